"""Parse zarr keys: the metadata of a node, or a chunk of an array.

Only zarr v3 keys with the default encoding exist: ``a/b/zarr.json``, ``a/b/c/0/1``, and ``a/b/c``
for the one chunk of a 0-d array. Anything else names nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from icevirt.errors import InvalidInputError
from icevirt.model import paths

METADATA = "zarr.json"
CHUNK = "c"
_U32 = 0xFFFFFFFF


@dataclass(frozen=True, slots=True)
class MetadataKey:
    """The zarr.json of the node at ``path``."""

    path: str


@dataclass(frozen=True, slots=True)
class ChunkKey:
    """The chunk at ``index`` of the array at ``path``."""

    path: str
    index: tuple[int, ...]


type Key = MetadataKey | ChunkKey


def parse(key: str) -> Key | None:
    """Say what a key names; None where no zarr v3 key is spelt like this."""
    parts = key.split("/")
    if parts[-1] == METADATA:
        path = _path(tuple(parts[:-1]))
        return None if path is None else MetadataKey(path)
    at = len(parts)
    while at and _is_number(parts[at - 1]):
        at -= 1
    if not at or parts[at - 1] != CHUNK or (path := _path(tuple(parts[: at - 1]))) is None:
        return None
    index = tuple(int(part) for part in parts[at:])
    return None if any(number > _U32 for number in index) else ChunkKey(path, index)


def parse_writable(key: str) -> Key:
    """Say what a key to be written or deleted names.

    Raises:
        InvalidInputError: No zarr v3 key is spelt like this.
    """
    if (found := parse(key)) is None:
        raise InvalidInputError(
            "not a valid key of a zarr v3 hierarchy",
            do="Keys are like 'group/array/zarr.json' and 'group/array/c/0/1'; write with"
            " zarr_format=3 and the default chunk key encoding.",
            key=key,
        )
    return found


def metadata_key(path: str) -> str:
    """Return the key of a node's metadata."""
    return METADATA if path == paths.ROOT else f"{path[1:]}/{METADATA}"


def chunk_keys(path: str, index: NDArray[np.integer]) -> Iterator[str]:
    """Yield the keys of chunks of one array, from their coordinates, shape (k, ndim)."""
    prefix = "/".join([*path.split("/")[1:], CHUNK]).removeprefix("/")
    return ("/".join([prefix, *map(str, row)]) for row in index.tolist())


def _is_number(part: str) -> bool:
    """Only the canonical spelling counts: ``01`` and other scripts' digits are foreign."""
    return part.isascii() and part.isdigit() and (part == "0" or part[0] != "0")


@lru_cache(maxsize=1024)
def _path(parts: tuple[str, ...]) -> str | None:
    """Return the node path of the segments before the end of a key; only canonical ones count."""
    if not parts:
        return paths.ROOT
    path = "/" + "/".join(parts)
    try:
        return path if path != paths.ROOT and paths.canonical(path) == path else None
    except InvalidInputError:
        return None
