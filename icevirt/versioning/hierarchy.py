"""Add, replace, remove and merge nodes in a hierarchy, as pure steps over a mapping of paths.

Missing parents become groups. An existing group accepts new attributes that do not contradict its
own; any other existing node is an error.

Sessions that worked in parallel are merged by comparing their nodes with the common start. Chunks
need no decision: the later fork wins, as in icechunk. If two forks disagree about a node, the
official client takes the later; here that is refused.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, MutableMapping
from dataclasses import replace
from typing import Any

from icevirt.errors import AlreadyExistsError, ConflictError, InvalidInputError
from icevirt.ids import ObjectId8
from icevirt.model import paths
from icevirt.model.metadata import document_of, node_of
from icevirt.model.snapshot import ArrayNode, GroupNode, Node

type Hierarchy = MutableMapping[str, Node]
type Nodes = Mapping[str, Node]
type NewId = Callable[[], ObjectId8]

PLAIN_GROUP = b'{"zarr_format":3,"node_type":"group","attributes":{}}'


def add_parents(nodes: Hierarchy, path: str, new_id: NewId) -> None:
    """Add the groups that are missing above ``path``.

    Raises:
        InvalidInputError: One of them is an array.
    """
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
        nodes[path] = replace(found, user_data=_united(found, user_data))


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
    if type(changed) is not type(node) or _ndim(changed) != _ndim(node):
        raise InvalidInputError(
            "a node cannot change its kind or its number of dimensions",
            do="Delete it and add the new one.",
            path=node.path,
        )
    nodes[node.path] = replace(changed, extra=node.extra)
    return nodes[node.path]


def remove(nodes: Hierarchy, path: str) -> None:
    """Remove a node and all below it; one that is not there is no error."""
    remove_below(nodes, path)
    nodes.pop(path, None)


def remove_below(nodes: Hierarchy, path: str) -> None:
    """Remove all nodes below ``path``, the node itself excepted."""
    prefix = path.rstrip("/") + "/"
    for other in [other for other in nodes if other.startswith(prefix) and other != path]:
        del nodes[other]


def by_path(nodes: Iterable[Node]) -> dict[str, Node]:
    """Return the nodes keyed by path."""
    return {node.path: node for node in nodes}


def _ndim(node: Node) -> int:
    return len(node.shape) if isinstance(node, ArrayNode) else -1


def _united(node: GroupNode, new: bytes) -> bytes:
    """Return a group document that says what both say, that of the node if it says it all."""
    path, old = node.path, node.user_data
    if old == new:
        return old
    before, after = document_of(node), json.loads(new)
    attributes = _union(path, before.get("attributes") or {}, after.get("attributes") or {})
    rest = _union(path, _without_attributes(before), _without_attributes(after))
    united = {**rest, "attributes": attributes}
    if united == {**before, "attributes": before.get("attributes") or {}}:
        return old
    return json.dumps(united, allow_nan=False, ensure_ascii=False).encode()


def _without_attributes(document: Mapping[str, Any]) -> dict[str, Any]:
    return {k: v for k, v in document.items() if k != "attributes" and v is not None}


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


def merged(origin: Nodes, ours: Nodes, theirs: Nodes) -> dict[str, Node]:
    """Return our nodes with what a fork changed.

    Args:
        origin: The nodes when the fork began.
        ours: The nodes now, perhaps with the changes of other forks.
        theirs: The nodes of the fork.

    Raises:
        ConflictError: Both changed the same node.
    """
    before = {node.id: node for node in origin.values()}
    here = {node.id: node for node in ours.values()}
    there = {node.id: node for node in theirs.values()}
    result = dict(ours)
    for key in before.keys() - there.keys():
        if key in here:
            _remove(result, here[key], before)
    for key, node in there.items():
        if key not in before:
            _add(result, node)
        elif node != before[key]:
            if here.get(key) not in (before[key], node):
                raise both(node.path)
            result[node.path] = node
    return result


def _remove(result: dict[str, Node], node: Node, before: Mapping[ObjectId8, Node]) -> None:
    inside = node.path.rstrip("/") + "/"
    born = (n for n in result.values() if n.id not in before and n.path.startswith(inside))
    if node != before[node.id] or any(born):
        raise both(node.path)
    del result[node.path]


def _add(result: dict[str, Node], node: Node) -> None:
    found = result.setdefault(node.path, node)
    groups = isinstance(found, GroupNode) and isinstance(node, GroupNode)
    if found != node and not (groups and found.user_data == node.user_data):
        raise both(node.path)


def both(path: str) -> ConflictError:
    """Return the error of two sessions that changed the same node."""
    return ConflictError(
        "two sessions that are merged changed the same node",
        do="Make arrays, groups and their metadata before `fork`, and write only chunks in forks.",
        path=path,
    )
