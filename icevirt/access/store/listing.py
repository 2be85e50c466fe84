"""List the keys of a hierarchy from its nodes and the coordinates of their chunks.

Chunks are listed only where the requested prefix can contain some, so listing the members of a
group fetches no manifest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import numpy as np
from numpy.typing import NDArray

from icevirt.access.store.keys import CHUNK, METADATA, ChunkKey, chunk_keys, metadata_key, parse
from icevirt.errors import UnsupportedError
from icevirt.model.snapshot import ArrayNode, Node

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
    if prefix.endswith("/") and isinstance(key, ChunkKey) and len(key.index) < index.shape[1]:
        lead = np.array(key.index, np.int64)
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
                raise _misread(path, name)
            names[name] = None
        elif isinstance(node, ArrayNode):
            names |= dict.fromkeys(_next_coordinates(node, coordinates, folder))
    return iter(names)


def _misread(group: str, name: str) -> UnsupportedError:
    path = f"{group.rstrip('/')}/{name}"
    return UnsupportedError(
        "Zarr reads the backslash in the name of a node as a slash, and would open another node",
        do="Open the group with xarray and engine='icevirt', which reads it; or rename the node:"
        f' session = repo.rearrange_session("main"); session.move({path!r},'
        f' {path.replace(chr(92), "_")!r}); session.commit("rename").',
        path=path,
    )


def _folder(node: ArrayNode) -> str:
    return f"{node.path[1:]}/{CHUNK}".removeprefix("/")


def _next_coordinates(node: ArrayNode, coordinates: Coordinates, folder: str) -> Iterator[str]:
    """Yield the names below ``a/c`` or ``a/c/0``, if the folder is one of this array's."""
    key = parse(folder)
    if not isinstance(key, ChunkKey) or key.path != node.path:
        return
    depth = len(key.index)
    if depth < len(node.num_chunks):
        index = coordinates(node)
        below = np.all(index[:, :depth] == np.array(key.index, np.int64), axis=1)
        yield from map(str, np.unique(index[below, depth]).tolist())
