"""Add, replace, move, remove and merge nodes in a hierarchy: pure steps over a mapping of paths.

Missing parents become groups. Sessions that worked in parallel are merged by comparing their nodes
with the common start. If two forks disagree about a node, or wrote one chunk, the official client
takes the later, and here that is refused.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, MutableMapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from icevirt.errors import (
    AlreadyExistsError,
    ChunkIndexError,
    ConflictError,
    DestinationExistsError,
    InvalidInputError,
    MoveIntoItselfError,
    MoveParentMissingError,
    MoveParentNotGroupError,
    NodeNotFoundError,
)
from icevirt.ids import ObjectId8
from icevirt.model import paths
from icevirt.model.chunks import ChunkTable
from icevirt.model.snapshot import ArrayNode, GroupNode, Node, document_of, node_of
from icevirt.versioning import chunk_tables
from icevirt.versioning.chunk_tables import index_row

type Hierarchy = MutableMapping[str, Node]
type Nodes = Mapping[str, Node]
type NewId = Callable[[], ObjectId8]

PLAIN_GROUP = b'{"zarr_format":3,"node_type":"group","attributes":{}}'


def add_parents(nodes: Hierarchy, path: str, new_id: NewId) -> None:
    """Add the groups that are missing above ``path``. Raises ``InvalidInputError``."""
    missing = []
    above = path
    while above != paths.ROOT:
        above = paths.parent(above)
        found = nodes.get(above)
        if isinstance(found, ArrayNode):
            raise InvalidInputError(
                "nothing can lie below an array", do="Choose another path.", path=path, array=above
            )
        if found is not None:
            break  # a group, and what is above it is there
        missing.append(above)
    for above in reversed(missing):
        nodes[above] = GroupNode(id=new_id(), path=above, user_data=PLAIN_GROUP)


def add_group(nodes: Hierarchy, path: str, user_data: bytes, new_id: NewId) -> None:
    """Add a group, or its attributes to the group that is there.

    Raises:
        AlreadyExistsError: An array exists there, or a group with different metadata.
        InvalidInputError: Its name is none for Zarr.
    """
    found = nodes.get(path)
    if found is None:
        paths.creatable(path)
        add_parents(nodes, path, new_id)
        nodes[path] = GroupNode(id=new_id(), path=path, user_data=user_data)
    elif isinstance(found, ArrayNode):
        raise _exists(path, "an array")
    else:
        nodes[path] = found._replace(user_data=_unite(found, user_data))


def add_array(nodes: Hierarchy, node: ArrayNode, new_id: NewId) -> None:
    """Add an array.

    Raises:
        AlreadyExistsError: Something exists there.
        InvalidInputError: Its name is none for Zarr.
    """
    if (found := nodes.get(node.path)) is not None:
        raise _exists(node.path, "a group" if isinstance(found, GroupNode) else "an array")
    paths.creatable(node.path)
    add_parents(nodes, node.path, new_id)
    nodes[node.path] = node


def set_metadata(nodes: Hierarchy, node: Node, user_data: bytes) -> Node:
    """Give a node other metadata, and return it; it stays the kind of node it is.

    Raises:
        InvalidInputError: A group would become an array, or the other way round.
    """
    if node.user_data == user_data:
        return node
    manifests = node.manifests if isinstance(node, ArrayNode) else ()
    changed = node_of(node.path, user_data, node.id, manifests)
    before, after = (
        len(each.shape) if isinstance(each, ArrayNode) else None for each in (node, changed)
    )
    if before != after:
        raise InvalidInputError(
            "a node cannot change its kind or its number of dimensions",
            do="Delete it and add the new one.",
            path=node.path,
        )
    nodes[node.path] = changed._replace(extra=node.extra)
    return nodes[node.path]


def remove_below(nodes: Hierarchy, path: str) -> None:
    """Remove all nodes below ``path``, the node itself excepted."""
    prefix = path.rstrip("/") + "/"
    for other in [other for other in nodes if other.startswith(prefix) and other != path]:
        del nodes[other]


def by_path(nodes: Iterable[Node]) -> dict[str, Node]:
    """Return the nodes keyed by path."""
    return {node.path: node for node in nodes}


def _unite(node: GroupNode, new: bytes) -> bytes:
    """Return a group document that says what both say, that of the node if it says it all."""
    if node.user_data == new:
        return new
    documents = document_of(node), json.loads(new)
    attributes = _union(node.path, *(each.get("attributes") or {} for each in documents))
    rest = _union(
        node.path,
        *(
            {k: v for k, v in each.items() if k != "attributes" and v is not None}
            for each in documents
        ),
    )
    united = {**rest, "attributes": attributes}
    before = documents[0]
    if united == {**before, "attributes": before.get("attributes") or {}}:
        return node.user_data
    return json.dumps(united, allow_nan=False, ensure_ascii=False).encode()


def _union(path: str, old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, Any]:
    differing = sorted(key for key in old.keys() & new.keys() if old[key] != new[key])
    if differing:
        raise AlreadyExistsError(
            "a group with different metadata already exists",
            do="Choose another group, delete that one first, or change it with `set_metadata`.",
            path=path,
            differing=differing,
        )
    return {**old, **new}


def _exists(path: str, what: str) -> AlreadyExistsError:
    return AlreadyExistsError(
        f"{what} already exists",
        do="Choose another path, or delete that one first.",
        path=path,
    )


def merge(origin: Nodes, ours: Nodes, theirs: Nodes) -> dict[str, Node]:
    """Return our nodes with what a fork changed of those at its beginning, the origin.

    Raises:
        ConflictError: Both changed the same node.
    """
    before = {node.id: node for node in origin.values()}
    here = {node.id: node for node in ours.values()}
    there = {node.id: node for node in theirs.values()}
    result = dict(ours)
    for key in (before.keys() - there.keys()) & here.keys():
        node = here[key]
        inside = node.path.rstrip("/") + "/"
        born = (n for n in result.values() if n.id not in before and n.path.startswith(inside))
        if node != before[key] or any(born):
            raise both(node.path)
        del result[node.path]
    for key, node in there.items():
        if key not in before:
            found = result.setdefault(node.path, node)
            groups = isinstance(found, GroupNode) and isinstance(node, GroupNode)
            if found != node and not (groups and found.user_data == node.user_data):
                raise both(node.path)
        elif node != before[key]:
            if here.get(key) not in (before[key], node):
                raise both(node.path)
            result[node.path] = node
    return result


def both(path: str) -> ConflictError:
    """Return the error of two sessions that changed the same node."""
    return ConflictError(
        "two sessions that are merged changed the same node",
        do="Make arrays, groups and their metadata before `fork`, and write only chunks in forks.",
        path=path,
    )


_FREE = frozenset({"attributes", "shape", "dimension_names"})  # chunks mean the same with others


def keeps_values(before: Node, after: Node) -> bool:
    """Say whether chunks written for one node hold the same values in the other."""
    one, two = document_of(before), document_of(after)
    names = (one.keys() | two.keys()) - _FREE
    return all(one.get(name) == two.get(name) for name in names)


type Reindex = Callable[[list[int]], Iterable[int] | None]


def move(nodes: Nodes, source: str, target: str) -> dict[str, str]:
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
    do, facts = "Choose another path.", {"path": source, "to": target}
    if (target + "/").startswith(inside):
        raise MoveIntoItselfError("a node cannot be moved into itself", do=do, **facts)
    if target in nodes:
        raise DestinationExistsError("the destination already exists", do=do, **facts)
    above = nodes.get(paths.parent(target))
    if isinstance(above, ArrayNode):
        raise MoveParentNotGroupError(
            "the destination of a move lies in what is an array, not a group", do=do, **facts
        )
    if above is None:
        raise MoveParentMissingError(
            "the destination group of a move must exist",
            do="Create that group in a writable session and commit it first.",
            **facts,
        )
    found = [path for path in nodes if path == source or path.startswith(inside)]
    return {path: target + path[len(source) :] for path in found}


def shift(node: ArrayNode, table: ChunkTable, by: Sequence[int]) -> ChunkTable:
    """Return what to write so that each chunk lies ``by`` chunks further along each dimension.

    What would leave the grid is dropped, and the places that nothing moved to are cleared.
    """
    _refuse_irregular(node)
    row = index_row("chunk_offset", by, len(node.num_chunks), node.path)
    target = table.index.astype(np.int64) + row
    inside = np.all((target >= 0) & (target < np.array(node.num_chunks, np.int64)), axis=1)
    kept = table.take(inside).reindex(target[inside])
    return chunk_tables.overlay(chunk_tables.mark_deleted(table.index), kept)


def reindex(
    node: ArrayNode, table: ChunkTable, forward: Reindex, backward: Reindex | None
) -> ChunkTable:
    """Return what to write so that each chunk lies where ``forward`` says; None: where it is.

    ``backward`` goes from an index to the one whose chunk comes there; where that is None or has
    no chunk, the place is cleared.

    Raises:
        InvalidInputError: A new index is outside the grid, or two chunks would move to the same
            index.
    """
    _refuse_irregular(node)
    rows, target = _map(node, table.index, forward)
    try:
        kept = table.take(rows).reindex(target).sort()
    except ValueError as error:
        raise InvalidInputError(
            "two chunks would move to the same index",
            do="Make `forward` return a different index for each chunk.",
            path=node.path,
        ) from error
    if backward is None:
        return kept
    filled, origin = _map(node, table.index, backward)
    empty = np.ones(len(table), np.bool_)
    empty[filled] = chunk_tables.RowFinder.of(table).find(origin) < 0
    return chunk_tables.overlay(chunk_tables.mark_deleted(table.index[empty]), kept)


def _map(
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
    except (TypeError, ValueError):
        target = None
    if target is not None and (target.dtype.kind in "iu" or not target.size):
        target = target.astype(np.int64)
        if ((target >= 0) & (target < np.array(node.num_chunks, np.int64))).all():
            return rows, target
    raise ChunkIndexError(
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
