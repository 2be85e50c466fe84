"""Check that a transaction log lists the differences between two snapshots."""

from __future__ import annotations

from collections.abc import Iterator

from icevirt.model.snapshot import ArrayNode, Snapshot
from icevirt.model.transaction_log import TransactionLog
from icevirt.versioning.invariants.problem import Problem


def of_log(log: TransactionLog, before: Snapshot, after: Snapshot) -> Iterator[Problem]:
    """Check the log of ``after`` against its parent; not for logs that an amend merged."""
    for what in _log(log, before, after):
        yield Problem(file=f"transactions/{log.id}", code="log", what=what)


def _log(log: TransactionLog, before: Snapshot, after: Snapshot) -> Iterator[str]:
    if log.id != after.id:
        yield "it holds the log of another snapshot"
    old = {node.id: node for node in before.nodes}
    new = {node.id: node for node in after.nodes}
    both = new.keys() & old.keys()
    if log.new_groups | log.new_arrays != new.keys() - old.keys():
        yield "the new nodes it lists are not those of the snapshot"
    if log.deleted_groups | log.deleted_arrays != old.keys() - new.keys():
        yield "the deleted nodes it lists are not those that were deleted"
    if {move.node_id for move in log.moved_nodes} != {
        key for key in both if old[key].path != new[key].path
    }:
        yield "the moved nodes it lists are not those that moved"
    updated = log.updated_groups | log.updated_arrays
    if not {key for key in both if old[key].user_data != new[key].user_data} <= updated:
        yield "metadata changed that it does not list"
    # a rewrite of manifests changes no chunk, and its log is empty
    rewritten = {key for key in both if _manifests(old[key]) != _manifests(new[key])}
    if not log.is_empty() and not rewritten <= log.updated_chunks.keys() | updated:
        yield "manifests changed of an array that it does not list"


def _manifests(node: object) -> object:
    return node.manifests if isinstance(node, ArrayNode) else ()
