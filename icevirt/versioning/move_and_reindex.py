"""Move nodes, and shift or reindex chunks. Bytes are never copied."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from icevirt.errors import AlreadyExistsError, InvalidInputError, NodeNotFoundError
from icevirt.model import paths
from icevirt.model.arguments import index_row
from icevirt.model.chunks import ChunkTable
from icevirt.model.metadata import document_of
from icevirt.model.snapshot import ArrayNode, GroupNode, Node
from icevirt.versioning import chunk_tables

type Reindex = Callable[[list[int]], Iterable[int] | None]


def moved(nodes: Mapping[str, Node], source: str, target: str) -> dict[str, str]:
    """Return the new paths, by old path, of a node and all below it.

    Raises:
        NodeNotFoundError: No such node.
        AlreadyExistsError: The destination exists.
        InvalidInputError: The group it would go into is not there, or is inside the node itself,
            or the new name is none for Zarr.
    """
    if source not in nodes:
        raise NodeNotFoundError(
            "there is nothing to move", do="Check the path with `session.snapshot`.", path=source
        )
    paths.creatable(target)
    inside = source.rstrip("/") + "/"
    if (target + "/").startswith(inside):
        raise InvalidInputError(
            "a node cannot be moved into itself", do="Choose another path.", path=source, to=target
        )
    if target in nodes:
        raise AlreadyExistsError(
            "the destination already exists", do="Choose another path.", path=source, to=target
        )
    above = nodes.get(paths.parent(target))
    if above is not None and not isinstance(above, GroupNode):
        raise InvalidInputError(
            "the destination of a move lies in what is an array, not a group",
            do="Choose another path.",
            path=source,
            to=target,
        )
    if above is None:
        raise InvalidInputError(
            "the destination group of a move must exist",
            do="Create that group in a writable session and commit it first.",
            path=source,
            to=target,
        )
    found = [path for path in nodes if path == source or path.startswith(inside)]
    return {path: target + path[len(source) :] for path in found}


def shifted(node: ArrayNode, table: ChunkTable, by: Sequence[int]) -> ChunkTable:
    """Return what to write so that each chunk lies ``by`` chunks further along each dimension.

    What would leave the grid is dropped, and the places that nothing moved to are cleared.
    """
    _refuse_irregular(node)
    row = index_row("chunk_offset", by, len(node.num_chunks), node.path)
    target = table.index.astype(np.int64) + row
    inside = np.all((target >= 0) & (target < np.array(node.num_chunks, np.int64)), axis=1)
    kept = table.take(inside).reindexed(target[inside])
    return chunk_tables.overlay(chunk_tables.deleted(table.index), kept)


def reindexed(
    node: ArrayNode, table: ChunkTable, forward: Reindex, backward: Reindex | None
) -> ChunkTable:
    """Return what to write so that each chunk lies where ``forward`` says.

    Args:
        node: The array.
        table: All its references.
        forward: From the index of a chunk to its new one; None leaves it where it is.
        backward: From an index to the one whose chunk comes there; where that is None or has no
            chunk, the place is cleared.

    Raises:
        InvalidInputError: A new index is outside the grid, or two chunks would move to the same
            index.
    """
    _refuse_irregular(node)
    rows, target = _mapped(node, table.index, forward)
    try:
        kept = table.take(rows).reindexed(target).sorted()
    except ValueError as error:
        raise InvalidInputError(
            "two chunks would move to the same index",
            do="Make `forward` return a different index for each chunk.",
            path=node.path,
        ) from error
    if backward is None:
        return kept
    filled, origin = _mapped(node, table.index, backward)
    empty = np.ones(len(table), np.bool_)
    empty[filled] = chunk_tables.RowFinder.of(table).find(origin) < 0
    return chunk_tables.overlay(chunk_tables.deleted(table.index[empty]), kept)


def _mapped(
    node: ArrayNode, index: NDArray[np.uint32], function: Reindex
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Call a user's function for each chunk; return the rows it has an answer for, and these."""
    if not callable(function):
        raise InvalidInputError(
            "`forward` must be a function",
            do="Pass one that takes the index of a chunk and returns its new one, or None.",
            found=type(function).__name__,
        )
    answers = [function(each) for each in index.tolist()]
    rows = np.array([row for row, to in enumerate(answers) if to is not None], np.int64)
    try:
        found = np.array([tuple(to) for to in answers if to is not None])
        target = found.reshape(len(rows), len(node.num_chunks))
    except (TypeError, ValueError) as error:
        raise _outside(node) from error
    if target.size and target.dtype.kind not in "iu":
        raise _outside(node)
    target = target.astype(np.int64)
    if np.any((target < 0) | (target >= np.array(node.num_chunks, np.int64))):
        raise _outside(node)
    return rows, target


def _outside(node: ArrayNode) -> InvalidInputError:
    return InvalidInputError(
        "a chunk would leave the array's chunk grid",
        do="Return an index inside the grid, or None; or resize the array first.",
        path=node.path,
        num_chunks=node.num_chunks,
    )


def _refuse_irregular(node: ArrayNode) -> None:
    if document_of(node)["chunk_grid"]["name"] != "regular":
        raise InvalidInputError(
            "chunks of different sizes, in a rectilinear grid, cannot be moved",
            do="Only arrays with a regular chunk grid can be shifted or reindexed.",
            path=node.path,
        )
