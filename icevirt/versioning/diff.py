"""Compare two states of the nodes, for the transaction log of a commit and for diffs.

As states are compared, a node that was added and deleted again leaves no trace.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from icevirt.escaping import escape_line
from icevirt.ids import ObjectId8, ObjectId12
from icevirt.model.snapshot import ArrayNode, GroupNode, Node, Snapshot
from icevirt.model.transaction_log import Move, NodeType, TransactionLog

type Chunks = Mapping[ObjectId8, NDArray[np.uint32]]


def log_of(
    id: ObjectId12,  # noqa: A002 - the format's name
    before: Iterable[Node],
    after: Iterable[Node],
    chunks: Chunks,
) -> TransactionLog:
    """Return the transaction log of the commit ``id`` that led from ``before`` to ``after``.

    ``chunks`` are the indices of chunks that were written or deleted, by array; those of arrays
    that are gone are left out.
    """
    old = {node.id: node for node in before}
    new = {node.id: node for node in after}
    both = new.keys() & old.keys()
    changed = {
        "new": [new[key] for key in new.keys() - old.keys()],
        "deleted": [old[key] for key in old.keys() - new.keys()],
        "updated": [new[key] for key in both if new[key].user_data != old[key].user_data],
    }
    ids: dict[str, Any] = {}
    for verb, nodes in changed.items():
        ids[f"{verb}_groups"] = frozenset(n.id for n in nodes if isinstance(n, GroupNode))
        ids[f"{verb}_arrays"] = frozenset(n.id for n in nodes if isinstance(n, ArrayNode))
    return TransactionLog(
        id=id,
        **ids,
        updated_chunks={
            key: index for key, index in sorted(chunks.items()) if key in new and len(index)
        },
        moved_nodes=_in_order(
            Move(
                from_path=old[key].path,
                to_path=new[key].path,
                node_id=key,
                node_type=NodeType.array if isinstance(new[key], ArrayNode) else NodeType.group,
            )
            for key in both
            if old[key].path != new[key].path
        ),
    )


def combine(*logs: TransactionLog) -> TransactionLog:
    """Return the log of commits that follow one another, oldest first, as one; id of the last."""

    def of(*names: str) -> set[ObjectId8]:
        return set().union(*(getattr(log, name) for log in logs for name in names))

    # an id is never used again: what came and went leaves no trace
    born, gone = of("new_groups", "new_arrays"), of("deleted_groups", "deleted_arrays")
    but = {"new": gone, "deleted": born, "updated": born | gone}
    sets: dict[str, Any] = {
        f"{verb}_{kind}": frozenset(of(f"{verb}_{kind}") - left_out)
        for verb, left_out in but.items()
        for kind in ("groups", "arrays")
    }
    first: dict[ObjectId8, Move] = {}
    last: dict[ObjectId8, Move] = {}
    for move in (move for log in logs for move in log.moved_nodes):
        first.setdefault(move.node_id, move)
        last[move.node_id] = move
    moves = (replace(move, from_path=first[key].from_path) for key, move in last.items())
    return TransactionLog(
        id=logs[-1].id,
        **sets,
        updated_chunks={
            key: index for key, index in sorted(_unite(logs).items()) if key not in gone
        },
        moved_nodes=_in_order(
            move for move in moves if move.node_id not in gone and move.from_path != move.to_path
        ),
    )


def _unite(logs: Iterable[TransactionLog]) -> dict[ObjectId8, NDArray[np.uint32]]:
    """Return the chunks that any of the commits wrote, by array."""
    parts: dict[ObjectId8, list[NDArray[np.uint32]]] = {}
    for log in logs:
        for key, index in log.updated_chunks.items():
            parts.setdefault(key, []).append(index)
    return {
        key: found[0] if len(found) == 1 else np.unique(np.concatenate(found), axis=0)
        for key, found in parts.items()
    }


def _in_order(moves: Iterable[Move]) -> tuple[Move, ...]:
    return tuple(sorted(moves, key=lambda move: move.to_path.split("/")))


@dataclass(frozen=True, slots=True, kw_only=True)
class Diff:
    """What differs between two snapshots, by path."""

    new_groups: frozenset[str] = frozenset()
    new_arrays: frozenset[str] = frozenset()
    deleted_groups: frozenset[str] = frozenset()
    deleted_arrays: frozenset[str] = frozenset()
    updated_groups: frozenset[str] = frozenset()
    updated_arrays: frozenset[str] = frozenset()
    updated_chunks: Mapping[str, NDArray[np.uint32]] = field(default_factory=dict)  # (n, ndim)
    moved_nodes: tuple[tuple[str, str], ...] = ()

    def is_empty(self) -> bool:
        """Return whether nothing differs."""
        return not any(getattr(self, name) for name in self.__slots__)

    def __repr__(self) -> str:
        parts = []
        for name in self.__slots__:
            value = getattr(self, name)
            if name == "updated_chunks":
                parts += [f"updated_chunks {path}: {len(index)}" for path, index in value.items()]
            elif value:
                parts.append(f"{name} {', '.join(map(str, sorted(value)))}")
        return escape_line(f"<icevirt.Diff {'; '.join(parts) or 'empty'}>")


def diff_of(before: Snapshot, after: Snapshot, logs: Sequence[TransactionLog]) -> Diff:
    """Sum up the logs between two snapshots, oldest first, by the paths of their nodes."""
    old = {node.id: node.path for node in before.nodes}
    new = {node.id: node.path for node in after.nodes}
    sets: dict[str, Any] = {}
    for verb, known in (("new", new), ("deleted", old), ("updated", new)):
        for name in (f"{verb}_groups", f"{verb}_arrays"):
            ids: set[ObjectId8] = set().union(*(getattr(log, name) for log in logs))
            sets[name] = frozenset(known[key] for key in ids if key in known)
    chunks = {new[key]: index for key, index in _unite(logs).items() if key in new}
    first: dict[ObjectId8, str] = {}  # path of every node that was moved, if it is still there
    for move in (move for log in logs for move in log.moved_nodes if move.node_id in new):
        first.setdefault(move.node_id, move.from_path)
    moves = [(was, new[key]) for key, was in first.items() if was != new[key]]
    return Diff(
        **sets,
        updated_chunks=dict(sorted(chunks.items())),
        moved_nodes=tuple(sorted(moves, key=lambda move: move[1].split("/"))),
    )
