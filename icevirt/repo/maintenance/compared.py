"""Read objects that are to be written again under another name, and refuse damaged ones.

A name that covers the content shows damage. Who writes what was read under a new name makes a name
that fits the damage, and no check finds it any more. So the bytes are compared with the old name.
A chunk whose name is random is taken as it is: decision 0035 says how these are told apart.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from shlex import quote

import numpy as np
from numpy.typing import NDArray

from icevirt.errors import FormatError, IcevirtError
from icevirt.ids import ObjectId12
from icevirt.model.snapshot import ArrayNode
from icevirt.storage.protocol import Storage, too_short
from icevirt.versioning.id_columns import column, places
from icevirt.wire.manifests import manifest

type Named = Callable[[], tuple[NDArray[np.void], Mapping[str, IcevirtError]]]

_VARIABLE = "VARIABLE"  # which `naming_variable` knows


def compared_manifest(storage: Storage, path: str) -> bytes:
    """Return the file of a manifest.

    Raises:
        FormatError: Its bytes are not those that its name was made of.
        ObjectNotFoundError: It is not there.
    """
    raw = storage.get(path)
    if manifest.is_intact(raw) is False:
        raise FormatError(
            "a manifest is damaged: its bytes do not agree with its name",
            do=_again(storage, "--rescan '*'"),
            path=path,
            repo=storage.url,
        )
    return raw


def compared_chunk(  # noqa: PLR0917 - an object, and what of it is wanted
    storage: Storage, path: str, key: ObjectId12, offset: int, length: int, named: Named
) -> bytes:
    """Return bytes of a native chunk.

    Args:
        storage: Of the repository.
        path: Of the chunk.
        key: Its name.
        offset: Of the first byte.
        length: How many bytes.
        named: Returns what `content_names.recorded` does.

    Raises:
        FormatError: They are not those that its name was made of, or it cannot be said whether the
            name was made of them.
        StorageError: It is not there, or too short.
    """
    raw = storage.get(path)
    if ObjectId12.of_content(raw) != key:
        _refuse_listed(storage, path, key, *named())
    if len(raw) < offset + length:
        raise too_short(f"{storage.url}/{path}", offset, length, len(raw))
    return raw[offset : offset + length]


def _refuse_listed(
    storage: Storage,
    path: str,
    key: ObjectId12,
    listed: NDArray[np.void],
    unread: Mapping[str, IcevirtError],
) -> None:
    """Refuse a chunk that does not agree with its name, unless that is a random one."""
    if (places(listed, column([key])) >= 0).any():
        raise FormatError(
            "a stored chunk is damaged: its bytes do not agree with its name",
            do=_again(storage, f"--variables {_VARIABLE}"),
            path=path,
            repo=storage.url,
        )
    if unread:
        raise FormatError(
            "a stored chunk may be damaged: its bytes do not agree with its name, and the list that"
            " says whether they should cannot be read",
            do="Look at both with `icevirt check REPO --chunks`, and restore the list.",
            path=path,
            lists=sorted(unread),
            repo=storage.url,
        )


def _again(storage: Storage, how: str) -> str:
    return (
        "Nothing was committed. Restore the object from a copy of the repository, or write it again"
        f" from the files: icevirt update {quote(storage.url)} {how}"
    )


@contextmanager
def naming_variable(node: ArrayNode) -> Iterator[None]:
    """Name the variable in errors about what is stored of it."""
    try:
        yield
    except FormatError as error:
        error.facts = {"variable": node.path, **error.facts}
        error.do = error.do.replace(_VARIABLE, quote(node.path))
        raise
