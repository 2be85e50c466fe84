"""Parse, list and group zarr keys: the metadata of a node, or a chunk of an array. Pure.

Only zarr v3 keys with the default encoding exist: ``a/b/zarr.json``, ``a/b/c/0/1``, and ``a/b/c``
for the one chunk of a 0-d array. Anything else names nothing. Chunks are listed only where the
requested prefix can contain some, so listing the members of a group fetches no manifest.

Looking up references may fetch manifests, so `sort_out` groups the keys of many requests by what
they name first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from zarr.abc.store import ByteRequest, OffsetByteRequest, RangeByteRequest, SuffixByteRequest

from icevirt.errors import InvalidInputError, InvalidKeyError, UnsupportedError, ZarrV2KeyError
from icevirt.model import paths
from icevirt.model.snapshot import ArrayNode, Node

METADATA = "zarr.json"
CHUNK = "c"
_OF_V2 = frozenset({".zarray", ".zgroup", ".zattrs", ".zmetadata"})
_U32 = 0xFFFFFFFF


class MetadataKey(NamedTuple):
    """The zarr.json of the node at ``path``."""

    path: str


class ChunkKey(NamedTuple):
    """A chunk of the array at ``path``, by its coordinates."""

    path: str
    chunk: tuple[int, ...]


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


def may_name_chunk(key: str) -> bool:
    """Say quickly whether a key may name a chunk; `parse` knows whether it does."""
    return key[-1:].isdigit() or key.endswith(CHUNK)


def parse_writable(key: str) -> Key:
    """Say what a key to be written or deleted names.

    Raises:
        InvalidInputError: No zarr v3 key is spelt like this.
    """
    if (found := parse(key)) is None:
        refusal = ZarrV2KeyError if key.rpartition("/")[2] in _OF_V2 else InvalidKeyError
        raise refusal(
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


type Coordinates = Callable[[ArrayNode], NDArray[np.integer]]
"""Returns the coordinates of all chunks that were written, shape (k, ndim)."""


def keys_below(nodes: Iterable[Node], coordinates: Coordinates, prefix: str) -> Iterator[str]:
    """Yield every key that begins with ``prefix``."""
    for node in nodes:
        if (key := metadata_key(node.path)).startswith(prefix):
            yield key
        if isinstance(node, ArrayNode) and may_hold(node, prefix):
            found = chunk_keys(node.path, coordinates(node))
            yield from (key for key in found if key.startswith(prefix))


def may_hold(node: ArrayNode, prefix: str) -> bool:
    """Say whether a chunk of the array can have a key that begins with ``prefix``."""
    chunks = _folder(node)
    return chunks.startswith(prefix) or prefix.startswith(chunks + "/")


def inside(node: ArrayNode, index: NDArray[np.integer], prefix: str) -> slice | NDArray[np.bool_]:
    """Select the chunks, given by their coordinates, whose keys begin with ``prefix``.

    A prefix that ends in the middle of a number is answered key by key.
    """
    if _folder(node).startswith(prefix) or prefix == _folder(node) + "/":
        return slice(None)
    key = parse(prefix.rstrip("/"))
    if prefix.endswith("/") and isinstance(key, ChunkKey) and len(key.chunk) < index.shape[1]:
        lead = np.array(key.chunk, np.int64)
        below: NDArray[np.bool_] = np.all(index[:, : len(lead)] == lead, axis=1)
        return below
    return np.array([key.startswith(prefix) for key in chunk_keys(node.path, index)], np.bool_)


def names_in(nodes: Iterable[Node], coordinates: Coordinates, folder: str) -> Iterator[str]:
    """Yield the names directly below ``folder``, each once, as a file system would list them.

    Raises:
        UnsupportedError: Zarr would open another node than the one that has the name.
    """
    folder = folder.strip("/")
    path = "/" + folder
    names: dict[str, None] = {}
    for node in nodes:
        if node.path == path:
            names[METADATA] = None
            if isinstance(node, ArrayNode) and len(coordinates(node)):
                names[CHUNK] = None
        elif node.path.startswith(inside := path.rstrip("/") + "/"):
            name = node.path.removeprefix(inside).split("/", 1)[0]
            if "\\" in name:
                raise UnsupportedError(
                    "Zarr reads the backslash in the name of a node as a slash, and would open"
                    " another node",
                    do="Open the group with xarray and engine='icevirt', which reads it; or rename"
                    f' the node: session = repo.rearrange_session("main"); session.move('
                    f"{inside + name!r}, {inside + name.replace(chr(92), '_')!r});"
                    ' session.commit("rename").',
                    path=inside + name,
                )
            names[name] = None
        elif isinstance(node, ArrayNode):
            names |= dict.fromkeys(_next_coordinates(node, coordinates, folder))
    return iter(names)


def _folder(node: ArrayNode) -> str:
    return f"{node.path[1:]}/{CHUNK}".removeprefix("/")


def _next_coordinates(node: ArrayNode, coordinates: Coordinates, folder: str) -> Iterator[str]:
    """Yield the names below ``a/c`` or ``a/c/0``, if the folder is one of this array's."""
    key = parse(folder)
    if not isinstance(key, ChunkKey) or key.path != node.path:
        return
    depth = len(key.chunk)
    if depth < len(node.num_chunks):
        index = coordinates(node)
        below = np.all(index[:, :depth] == np.array(key.chunk, np.int64), axis=1)
        yield from map(str, np.unique(index[below, depth]).tolist())


type Request = tuple[str, ByteRequest | None]


class ChunksWanted(NamedTuple):
    """Chunks of one array; row i of their coordinates answers request ``rows[i]``."""

    path: str
    rows: tuple[int, ...]
    chunks: NDArray[np.int64]  # (k, ndim)


class GroupedRequests(NamedTuple):
    """Requests by what they name; those that name nothing are in neither group."""

    requests: tuple[Request, ...]
    metadata: tuple[tuple[int, str], ...]  # (request, path of the node)
    chunks: tuple[ChunksWanted, ...]


def sort_out(requests: Sequence[Request]) -> GroupedRequests:
    """Group requests: metadata, and chunks by array."""
    metadata = []
    arrays: dict[tuple[str, int], tuple[list[int], list[tuple[int, ...]]]] = {}
    for row, (key, _) in enumerate(requests):
        match parse(key):
            case MetadataKey(path=path):
                metadata.append((row, path))
            case ChunkKey(path=path, chunk=chunk):
                rows, chunks = arrays.setdefault((path, len(chunk)), ([], []))
                rows.append(row)
                chunks.append(chunk)
            case None:
                pass
    return GroupedRequests(
        tuple(requests),
        tuple(metadata),
        tuple(
            ChunksWanted(path, tuple(rows), np.array(chunks, np.int64).reshape(len(rows), ndim))
            for (path, ndim), (rows, chunks) in arrays.items()
        ),
    )


def bounds(request: ByteRequest | None, length: int) -> tuple[int, int]:
    """Return where a request begins and ends in a value of ``length`` bytes.

    What lies beyond the end is cut off, so the range may be empty.

    Raises:
        TypeError: It is none of zarr's byte requests.
    """
    match request:
        case None:
            return 0, length
        case RangeByteRequest(start=start, end=end):
            start = min(start, length)
            return start, max(start, min(end, length))
        case OffsetByteRequest(offset=offset):
            return min(offset, length), length
        case SuffixByteRequest(suffix=suffix):
            return max(0, length - suffix), length
        case _:
            raise TypeError(f"Unexpected byte_range, got {request}.")


def all_bounds(
    requests: Sequence[ByteRequest | None], length: NDArray[np.uint64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the begins and ends of one request for each value; whole values cost no loop."""
    end = length.astype(np.int64)
    start = np.zeros_like(end)
    for row, request in enumerate(requests):
        if request is not None:
            start[row], end[row] = bounds(request, int(end[row]))
    return start, end
