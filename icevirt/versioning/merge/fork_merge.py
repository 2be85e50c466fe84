"""Merge sessions that worked in parallel, comparing their nodes with the common start.

Chunks need no decision: the later fork wins, as in icechunk. Nodes do: if two forks disagree about
a node, the official client takes the later; here that is refused.
"""

from __future__ import annotations

from collections.abc import Mapping

from icevirt.errors import ConflictError
from icevirt.ids import ObjectId8
from icevirt.model.snapshot import GroupNode, Node

type Nodes = Mapping[str, Node]


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
            _change(result, node, before[key], here.get(key))
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


def _change(result: dict[str, Node], node: Node, before: Node, here: Node | None) -> None:
    if here is None or here not in (before, node):
        raise both(node.path)
    result[node.path] = node


def both(path: str) -> ConflictError:
    """Return the error of two sessions that changed the same node."""
    return ConflictError(
        "two sessions that are merged changed the same node",
        do="Make arrays, groups and their metadata before `fork`, and write only chunks in forks.",
        path=path,
    )
