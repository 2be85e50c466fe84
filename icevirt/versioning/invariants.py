"""Check what must hold for the files of a repository, each by itself and across files."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from icevirt.errors import FormatError, InvalidInputError
from icevirt.escaping import escape_line
from icevirt.ids import ObjectId12
from icevirt.model import paths
from icevirt.model.chunks import ChunkTable, ChunkType
from icevirt.model.config import containers
from icevirt.model.config.document import RepositoryConfig
from icevirt.model.repo_info import RepoInfo, SnapshotSummary
from icevirt.model.snapshot import ArrayNode, Boxes, ManifestRef, Snapshot, document_of, grid_facts
from icevirt.model.transaction_log import TransactionLog
from icevirt.versioning.manifest_splitting import grid_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """One violated invariant."""

    file: str  # path below the root, like "snapshots/1CECHNKREP0F1RSTCMT0"
    code: str  # stable
    what: str
    advice: bool = False  # legal, but worth mending

    def __str__(self) -> str:
        advice = ", advice" if self.advice else ""
        return escape_line(f"{self.file}: {self.what} [{self.code}{advice}]")


EMPTY = "zero-length"
"""The code of references to no bytes."""

MOST_AHEAD = 600_000_000
"""Microseconds that an entry may be ahead of the clock before official writers refuse to write."""


def of_repo_info(info: RepoInfo, now: int) -> Iterator[Problem]:
    """Check the repo info by itself; ``now`` in microseconds."""
    for code, what in (*_refs(info), *_history(info), *_ops_log(info, now), *_orders(info)):
        yield Problem(file="repo", code=code, what=what)


def _refs(info: RepoInfo) -> Iterator[tuple[str, str]]:
    if "main" not in info.branches:
        yield "no-main", "there is no branch main, so no client can open the repository"
    for kind, refs in (("branch", info.branches), ("tag", info.tags)):
        for name, target in refs.items():
            if target not in info.snapshots:
                yield "dangling-ref", f"{kind} {name!r} points at an unknown snapshot {target}"
    for name in sorted(info.deleted_tags & info.tags.keys()):
        yield "tag-reused", f"tag {name!r} exists and is listed as deleted"


def _history(info: RepoInfo) -> Iterator[tuple[str, str]]:
    for snapshot in info.snapshots.values():
        parent = info.snapshots.get(snapshot.parent_id) if snapshot.parent_id else None
        if snapshot.parent_id is not None and parent is None:
            yield "unknown-parent", f"the parent of {snapshot.id} is unknown"
        if parent is not None and snapshot.flushed_at <= parent.flushed_at:
            yield "time-order", f"{snapshot.id} is not later than its parent {parent.id}"
    sound: set[ObjectId12] = set()
    for start in info.snapshots:
        walk: dict[ObjectId12, None] = {}
        at: ObjectId12 | None = start
        while at is not None and at not in sound and at in info.snapshots:
            if at in walk:
                yield "circle", f"the history of {start} contains a cycle at {at}"
                break
            walk[at] = None
            at = info.snapshots[at].parent_id
        sound.update(walk)


def _ops_log(info: RepoInfo, now: int) -> Iterator[tuple[str, str]]:
    entries = info.latest_updates
    if info.spec_version < 2:
        return  # it has none
    if not entries:
        yield "empty-ops-log", "the ops log is empty"
        return
    if entries[0].backup_path is not None:
        yield "backup-of-newest", "the newest entry names a backup, which crashes official writers"
    if entries[0].updated_at > now + MOST_AHEAD:
        yield "future", "the newest entry lies in the future, so no client can write"
    for later, earlier in itertools.pairwise(entries):
        if later.updated_at <= earlier.updated_at:
            yield "time-order", "the ops log is not ordered from newest to oldest"
            break


def _orders(info: RepoInfo) -> Iterator[tuple[str, str]]:
    """Readers search these lists by bisection: what is out of order is not found."""
    lists: dict[str, Sequence[bytes]] = {
        "branches": [name.encode() for name in info.branches],
        "tags": [name.encode() for name in info.tags],
        "snapshots": list(info.snapshots),
    }
    for name, keys in lists.items():
        if list(keys) != sorted(keys):
            yield "order", f"{name} are not in ascending order"


def of_snapshot(snapshot: Snapshot, listed: SnapshotSummary) -> Iterator[Problem]:
    """Check a snapshot by itself and against its entry in the repo info."""
    differing = [
        ("summary", f"{name} differs between the snapshot and the repo info")
        for name in ("id", "flushed_at", "message", "metadata")
        if getattr(snapshot, name) != getattr(listed, name)
    ]
    file = f"snapshots/{snapshot.id}"
    for code, what in (*differing, *_nodes(snapshot), *_manifest_rows(snapshot)):
        yield Problem(file=file, code=code, what=what, advice=code == "unused-manifest")


def _nodes(snapshot: Snapshot) -> Iterator[tuple[str, str]]:
    ids = [node.id for node in snapshot.nodes]
    if len(set(ids)) != len(ids):
        yield "node-id", "two nodes share one id"
    arrays = {node.path for node in snapshot.arrays()}
    for node in snapshot.nodes:
        if below := arrays.intersection(paths.ancestors(node.path)):
            yield "below-array", f"{node.path} lies below the array {min(below)}"
        try:
            canonical, document = paths.canonical(node.path), document_of(node)
        except (InvalidInputError, FormatError) as error:
            yield "metadata", f"{node.path} has no usable path or zarr.json: {error}"
            continue
        if canonical != node.path:
            yield "path", f"{node.path!r} is not in canonical form"
        if isinstance(node, ArrayNode):
            facts = grid_facts(document)
            for name in ("shape", "num_chunks", "dimension_names"):
                if getattr(facts, name) != getattr(node, name):
                    yield "grid", f"{name} of {node.path} differs from its zarr.json"


def _manifest_rows(snapshot: Snapshot) -> Iterator[tuple[str, str]]:
    used = {ref.object_id for node in snapshot.arrays() for ref in node.manifests}
    known = {info.id for info in snapshot.manifest_files}
    for lacking in sorted(used - known):
        yield "manifest-row", f"manifest {lacking} is used but not listed"
    for unused in sorted(known - used):
        yield "unused-manifest", f"manifest {unused} is listed but not used"
    for node in snapshot.arrays():
        ndim = len(node.num_chunks)
        if any(len(ref.extents) not in (0, ndim) for ref in node.manifests):
            continue  # `of_window` reports them
        if (pair := Boxes.of(node.manifests, ndim).first_overlap()) is not None:
            one, other = (node.manifests[at].extents for at in pair)
            yield "overlap", f"two manifests of {node.path} cover {one} and {other}, which overlap"


def of_window(
    node: ArrayNode, ref: ManifestRef, table: ChunkTable | None, config: RepositoryConfig
) -> Iterator[Problem]:
    """Check one array's table in one manifest against the node and the configuration."""
    file = f"manifests/{ref.object_id}"
    found = (
        [("missing-array", f"it has no references of {node.path}")]
        if table is None
        else [*_table(node, ref, table), *_window(node, table, config), *_rows(node, table, config)]
    )
    for code, what in found:
        yield Problem(file=file, code=code, what=what, advice=code == "window")


def _table(node: ArrayNode, ref: ManifestRef, table: ChunkTable) -> Iterator[tuple[str, str]]:
    if table.ndim != len(node.num_chunks):
        yield "dimensions", f"references of {node.path} have {table.ndim} dimensions"
        return
    if not len(table):
        yield "empty", f"it holds an empty table of {node.path}"
    elif ref.extents != table.extents():
        yield "extents", f"extents of {node.path} are {ref.extents}, not {table.extents()}"
    outside = (table.index >= np.array(node.num_chunks, np.int64)).any(axis=1)
    if outside.any():
        index = tuple(table.index[int(outside.argmax())].tolist())
        yield "outside", f"chunk {index} of {node.path} lies outside the grid {node.num_chunks}"
    try:
        same = table.sort() == table
    except ValueError as error:
        yield "twice", f"{error} in {node.path}"
        return
    if not same:
        yield "order", f"references of {node.path} are not in ascending order"


def _window(
    node: ArrayNode, table: ChunkTable, config: RepositoryConfig
) -> Iterator[tuple[str, str]]:
    """A manifest that spans cells of the splitting is torn up by its next writer."""
    if not len(table) or table.ndim != len(node.num_chunks):
        return
    try:
        grid = grid_of(
            config.splitting_document,
            path=node.path,
            num_chunks=node.num_chunks,
            dimension_names=node.dimension_names,
        )
    except InvalidInputError as error:
        yield "splitting", str(error)
        return
    box = table.extents()
    cells = zip(box, grid.steps, strict=True)
    if any(low // step != (high - 1) // step for (low, high), step in cells):
        yield "window", f"{box} of {node.path} spans cells of {grid.steps} chunks"


def _rows(
    node: ArrayNode, table: ChunkTable, config: RepositoryConfig
) -> Iterator[tuple[str, str]]:
    empty = table.length == 0
    if empty.any():
        first = table.index[int(empty.argmax())].tolist()
        which = f"{int(empty.sum())} references of {node.path}, the first of chunk {first}"
        how = "`icevirt check REPO --drop-empty BRANCH` makes a commit without them"
        yield EMPTY, f"{which}, have no bytes, so that their chunks cannot be read: {how}"
    virtual = table.kind == ChunkType.virtual
    if not virtual.any():
        return
    used = table.locations.url[np.unique(table.source[virtual])]
    bad = containers.first_uncovered(
        used, containers.prefixes_of(config.virtual_chunk_containers.values())
    )
    if bad is not None:
        yield "no-container", f"no virtual chunk container covers {bad} of {node.path}"


def of_log(log: TransactionLog, before: Snapshot, after: Snapshot) -> Iterator[Problem]:
    """Check the log of ``after`` against its parent; not for logs that an amend merged."""
    old = {node.id: node for node in before.nodes}
    new = {node.id: node for node in after.nodes}
    both = new.keys() & old.keys()
    moved = {key for key in both if old[key].path != new[key].path}
    updated = log.updated_groups | log.updated_arrays
    rewritten = {
        key
        for key in both
        if getattr(old[key], "manifests", ()) != getattr(new[key], "manifests", ())
    }
    wrong = {
        "it holds the log of another snapshot": log.id != after.id,
        "the new nodes it lists are not those of the snapshot": (
            log.new_groups | log.new_arrays != new.keys() - old.keys()
        ),
        "the deleted nodes it lists are not those that were deleted": (
            log.deleted_groups | log.deleted_arrays != old.keys() - new.keys()
        ),
        "the moved nodes it lists are not those that moved": (
            {move.node_id for move in log.moved_nodes} != moved
        ),
        "metadata changed that it does not list": (
            not {key for key in both if old[key].user_data != new[key].user_data} <= updated
        ),
        # a rewrite of manifests changes no chunk, and its log is empty
        "manifests changed of an array that it does not list": (
            not log.is_empty() and not rewritten <= log.updated_chunks.keys() | updated
        ),
    }
    for what, is_so in wrong.items():
        if is_so:
            yield Problem(file=f"transactions/{log.id}", code="log", what=what)
