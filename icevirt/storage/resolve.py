"""What people write where a storage is meant: a storage, a path, or a URL."""

from __future__ import annotations

import os

from icevirt.connect import urls
from icevirt.errors import InvalidInputError
from icevirt.storage.local import LocalStorage
from icevirt.storage.protocol import Storage

type StorageLike = Storage | str | os.PathLike[str]


def storage_of(root: StorageLike) -> Storage:
    """Return the storage that a path, a ``file://`` URL or a storage stands for.

    Raises:
        InvalidInputError: It is empty, or a URL of a kind that is not supported.
    """
    if not isinstance(root, str | os.PathLike):
        return root
    text = os.fspath(root)
    if not text:
        raise InvalidInputError("a repository's path is empty", do="Pass a path or a URL.")
    if urls.is_url(text) and not text.startswith("file://"):
        raise InvalidInputError(
            "repositories on this kind of storage are not supported yet",
            do="Use a local path or a file:// URL.",
            url=text,
        )
    return LocalStorage(text)
