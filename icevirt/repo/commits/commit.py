"""Commit, amend and rebase; referenced objects are written first.

Manifests, transaction log, snapshot, repo info: no reader sees any of it before the last step, and
a process killed earlier leaves garbage, not damage. Of the manifests only those are written anew
that the changes touch: one is kept when it lies in one untouched cell of the splitting. Manifests
that span several cells, or the edge of a grid that shrank, are divided: a changed splitting applies
lazily.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from icevirt.errors import ConflictError, InitialAmendError, RebaseFailedError
from icevirt.ids import ObjectId8, ObjectId12
from icevirt.model.chunks import ChunkTable
from icevirt.model.config.document import RepositoryConfig
from icevirt.model.indices import all_inside, inside
from icevirt.model.json import JSONObject
from icevirt.model.repo_info import RepoInfo, SnapshotSummary
from icevirt.model.snapshot import ArrayNode, Boxes, ManifestFile, ManifestRef, Node, Snapshot
from icevirt.repo.assets import Assets, HeldObjects
from icevirt.repo.commits.change_set import ChangeSet
from icevirt.repo.commits.pending_commit import PendingCommit
from icevirt.repo.reader import ArrayReader
from icevirt.repo.repo_info_file import RepoInfoFile, refuse_read_only
from icevirt.versioning import chunk_tables, lookup, repo_updates
from icevirt.versioning.manifest_splitting import SplitGrid, grid_of

if TYPE_CHECKING:
    from icevirt.versioning.merge.conflicts import ConflictSolver


def write_manifests(
    assets: Assets,
    staging: ChangeSet,
    config: RepositoryConfig,
    *,
    held: HeldObjects | None = None,
    rewrite: bool = False,
) -> tuple[tuple[Node, ...], dict[ObjectId12, ManifestFile]]:
    """Store the staged references; return the nodes of the new snapshot and what was written.

    With ``held``, manifests are held in it. With ``rewrite`` all manifests are written anew, those
    that nothing touches too.

    Raises:
        FormatError: The base, or a manifest to be taken apart, holds what would be lost.
    """
    staging.base.refuse_loss()
    staged = staging.tables()
    old = {node.id: node for node in staging.base.arrays()}
    written: dict[ObjectId12, ManifestFile] = {}

    def rewritten(node: ArrayNode) -> ArrayNode:
        grid = grid_of(
            config.splitting_document,
            path=node.path,
            num_chunks=node.num_chunks,
            dimension_names=node.dimension_names,
        )
        over = _inside(staged.get(node.id, ChunkTable.empty(len(node.num_chunks))), grid)
        kept, taken = ((), node.manifests) if rewrite else _sort_out(node, grid, over)
        reader, refs = ArrayReader(assets, node), [*kept]
        for together, rows in _apart(taken, over, grid):
            merged = chunk_tables.overlay(reader.table_to_rewrite(together), rows)
            for part in by_cell(_inside(chunk_tables.drop_deleted(merged), grid), grid):
                file = assets.put_manifest({node.id: chunk_tables.compact(part)}, held)
                written[file.id] = file
                refs.append(ManifestRef(object_id=file.id, extents=part.extents()))
        refs.sort(key=lambda ref: tuple(low for low, _ in ref.extents))
        return node._replace(manifests=tuple(refs))

    def is_touched(node: ArrayNode) -> bool:
        before = old.get(node.id)
        resized = before is not None and before.num_chunks != node.num_chunks
        return node.id in staged or resized or rewrite

    nodes = tuple(
        rewritten(node) if isinstance(node, ArrayNode) and is_touched(node) else node
        for node in staging.nodes.values()
    )
    return nodes, written


def _sort_out(
    node: ArrayNode, grid: SplitGrid, over: ChunkTable
) -> tuple[tuple[ManifestRef, ...], tuple[ManifestRef, ...]]:
    """Return the manifests to keep and those to take apart."""
    if math.prod(grid.counts) == 1 and len(over):  # the only cell is touched
        return (), node.manifests
    if not node.manifests:
        return (), ()
    boxes = Boxes.of(node.manifests, len(node.num_chunks))
    size, steps = np.array(node.num_chunks, np.int64), np.array(grid.steps, np.int64)
    first, last = boxes.low, np.minimum(boxes.high, size) - 1
    contained = np.all((boxes.high <= size) & (first // steps == last // steps), axis=1)
    reaching = [
        grid.cells_under(low.tolist(), high.tolist())
        for low, high in zip(boxes.low[~contained], boxes.high[~contained], strict=True)
    ]
    rewritten = np.unique(np.concatenate([grid.cells_of(over.index), *reaching]))
    keep = contained & ~np.isin(grid.cells_of(first), rewritten)
    refs = [*zip(node.manifests, keep.tolist(), strict=True)]
    return tuple(ref for ref, kept in refs if kept), tuple(ref for ref, kept in refs if not kept)


def _apart(
    taken: tuple[ManifestRef, ...], over: ChunkTable, grid: SplitGrid
) -> Iterator[tuple[tuple[ManifestRef, ...], ChunkTable]]:
    """Yield manifests that share cells, and the rows in these: so much is in memory at a time.

    Manifests share cells if the numbers of theirs overlap. Rows in other cells come last, alone.
    """
    if not taken:
        yield (), over
        return
    boxes, end = Boxes.of(taken, len(grid.num_chunks)), np.maximum(grid.num_chunks, 1) - 1
    first = grid.cells_of(np.minimum(boxes.low, end))
    order = np.argsort(first, kind="stable")
    first = first[order]
    reach = np.maximum.accumulate(grid.cells_of(np.minimum(boxes.high - 1, end))[order])
    begins = np.flatnonzero(np.append(True, first[1:] > reach[:-1]))
    last = reach[np.append(begins[1:], len(order)) - 1]
    cell = grid.cells_of(over.index)
    owner = np.searchsorted(first[begins], cell, side="right") - 1
    owner[cell > last[owner]] = -1
    rows = np.argsort(owner, kind="stable")
    others, *theirs = np.split(rows, np.searchsorted(owner[rows], np.arange(len(begins))))
    for group, mine in zip(np.split(order, begins[1:]), theirs, strict=True):
        yield tuple(taken[at] for at in np.sort(group).tolist()), over.take(mine)
    yield (), over.take(others)


def _inside(table: ChunkTable, grid: SplitGrid) -> ChunkTable:
    if all_inside(table.index, grid.num_chunks):
        return table
    return table.take(inside(table.index, grid.num_chunks))


def by_cell(table: ChunkTable, grid: SplitGrid) -> list[ChunkTable]:
    """Return the rows of each cell as a table, in the order of the cells."""
    if not len(table):
        return []
    if math.prod(grid.counts) == 1:
        return [table]
    cell = grid.cells_of(table.index)
    order = np.argsort(cell, kind="stable")
    ends = np.flatnonzero(np.diff(cell[order])) + 1
    return [table.take(rows) for rows in np.split(order, ends)]


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionCommit:
    """Staged changes that are to become a snapshot, and where."""

    assets: Assets
    head: RepoInfoFile
    staging: ChangeSet
    message: str
    metadata: JSONObject
    config: RepositoryConfig
    rewrite: bool = False  # all manifests, not only those that the changes touch

    def info(self, branch: str | None) -> RepoInfo:
        """Find out what would fail anyway, before manifests are written.

        Raises:
            ReadOnlyError: The repository is read-only.
            RefNotFoundError: The branch was deleted.
            ConflictError: The branch is no longer at the snapshot that the changes are based on.
        """
        info = self.head.read().info
        refuse_read_only(info)
        if branch is not None:
            repo_updates.refuse_moved(info, branch, self.staging.base.id)
        return info

    def pending(self, branch: str | None, held: HeldObjects) -> PendingCommit:
        """Write manifests, or hold them."""
        self.assets.list_content_names()
        nodes, written = write_manifests(
            self.assets, self.staging, self.config, held=held, rewrite=self.rewrite
        )
        return PendingCommit(
            base=self.staging.base,
            branch=branch,
            message=self.message,
            nodes=nodes,
            written=written,
            chunks={node: table.index for node, table in self.staging.tables().items()},
            metadata=self.metadata,
            is_of_dataset=False,
        )


def commit(draft: SessionCommit, branch: str | None) -> Snapshot:
    """Write the staged changes as a new tip of ``branch``; raises as `SessionCommit.info`.

    Without a branch, the snapshot is on none.
    """
    draft.info(branch)
    held = HeldObjects(draft.assets.storage)
    snapshot, edit = draft.pending(branch, held).put(draft.head, draft.assets, held)
    draft.head.update(edit, held=held)
    return snapshot


def amend(draft: SessionCommit, branch: str) -> Snapshot:
    """Write the tip of ``branch`` and the staged changes as one commit in its place.

    Raises:
        SessionStateError: The tip is the initial snapshot.
        FormatError: The tip's transaction log holds facts of a newer client.
    """
    from icevirt.versioning.diff import combine

    previous = draft.staging.base.id
    tip = lookup.find_snapshot(draft.info(branch), previous)
    if tip.parent_id is None:
        raise InitialAmendError(
            "the initial snapshot of a repository cannot be amended",
            do="Commit instead.",
            branch=branch,
        )
    before = draft.assets.transaction_log(previous)
    before.refuse_loss()
    held = HeldObjects(draft.assets.storage)
    pending = draft.pending(branch, held)
    snapshot = pending.write(draft.head, draft.assets, held, lambda log: combine(before, log))
    info = replace(
        lookup.summary_of(snapshot, tip.parent_id),
        pruned_ancestor_tx_logs=tip.pruned_ancestor_tx_logs,
    )
    draft.head.update(repo_updates.amend(branch, info, previous), held=held)
    return snapshot


def rebase(
    assets: Assets, head: RepoInfoFile, staging: ChangeSet, branch: str, solver: ConflictSolver
) -> Iterator[ChangeSet]:
    """Yield the staged changes on top of each commit that came first, the oldest one first.

    Raises:
        RefNotFoundError: The branch was deleted.
        ConflictError: The branch was reset, or its history rewritten.
        RebaseFailedError: A conflict remains; what was yielded last holds the changes.
    """
    from icevirt.versioning.diff import combine
    from icevirt.versioning.merge import conflicts as merge

    for other in newer(head.read().info, branch, staging.base.id):
        # what the commit changed, together with its expired ancestors
        logs = (*(other.pruned_ancestor_tx_logs or ()), other.id)
        log = combine(*(assets.transaction_log(key) for key in logs))
        theirs, base = assets.snapshot(other.id), staging.base
        ours = merge.Ours(before=base, after=staging.snapshot(), log=staging.log(base.id))
        decided = merge.step(ours, log, theirs, solver, ObjectId8.random)
        if isinstance(decided, merge.Conflicts):
            raise RebaseFailedError(
                "another commit came first and changed the same things",
                do="Inspect `error.conflicts`; rebase with a solver that resolves them, or open a "
                "new session and repeat the changes.",
                snapshot=str(other.id),
                conflicts=decided,
            )
        staging = staging.replay(theirs, decided)
        yield staging


def newer(info: RepoInfo, branch: str, base: ObjectId12) -> list[SnapshotSummary]:
    """Return the commits of a branch since ``base``, oldest first.

    Raises:
        RefNotFoundError: The branch was deleted.
        ConflictError: ``base`` is not in its history.
    """
    tip = lookup.branch_tip(info, branch)
    found: list[SnapshotSummary] = []
    for snapshot in lookup.ancestry(info, tip):
        if snapshot.id == base:
            return found[::-1]
        found.append(snapshot)
    raise ConflictError(
        f"the branch {branch!r} no longer contains the snapshot that this session started from",
        do="It was reset, amended or expired: open a new session and repeat the changes.",
        branch=branch,
        expected_parent=str(base),
        actual_parent=str(tip),
    )
