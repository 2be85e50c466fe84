"""Resolve what users pass as a storage: a storage, a path, or a URL."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from icevirt.connect import urls
from icevirt.errors import InvalidInputError
from icevirt.storage.constructors import storage_at
from icevirt.storage.local import LocalStorage
from icevirt.storage.protocol import Storage

type StorageLike = Storage | str | os.PathLike[str]


def storage_of(root: StorageLike, options: Mapping[str, Any] | None = None) -> Storage:
    """Return the storage that a path, a URL or a storage stands for.

    Args:
        root: A path, a URL like ``s3://bucket/prefix``, or a storage.
        options: Arguments of the storage's constructor beyond what the URL says; what they leave
            open, the environment says.

    Raises:
        InvalidInputError: It is empty, or a URL of a kind that is not supported, or options do
            not fit.
    """
    if isinstance(root, str | os.PathLike):
        text = os.fspath(root)
        if not text:
            raise InvalidInputError("a repository's path is empty", do="Pass a path or a URL.")
        if urls.is_url(text) and not text.lower().startswith("file://"):
            return storage_at(text, options)
        root = LocalStorage(text)
    if not hasattr(root, "get_versioned"):
        raise InvalidInputError(
            "this is not a storage",
            do="Pass a path, a URL, or a storage from `s3_storage` or a similar function.",
            found=type(root).__name__,
        )
    if options:
        raise InvalidInputError(
            "storage_options work only for URLs of object stores",
            do="Leave them out, or pass them to the storage's constructor.",
            options=sorted(options),
        )
    return root
