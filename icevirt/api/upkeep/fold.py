"""Join the small manifests that appends left behind, array by array.

The references stay what they are: readers see no difference but fewer requests. It is one commit,
or none if there is little to join.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from icevirt.amounts import plural
from icevirt.api.dataset.replacing import Carried
from icevirt.api.dataset.target import Target
from icevirt.ids import ObjectId8, ObjectId12
from icevirt.model import paths
from icevirt.model.chunks import ChunkTable
from icevirt.model.config.document import RepositoryConfig
from icevirt.model.snapshot import ArrayNode, ManifestFile, ManifestRef, Node, Snapshot
from icevirt.planning.schedule.write_tasks import SHARED_REFERENCES
from icevirt.planning.tail_runs import tail_run
from icevirt.repo.assets import Assets, HeldObjects
from icevirt.repo.commits.commit import by_cell
from icevirt.repo.commits.pending_commit import PendingCommit
from icevirt.repo.repo_info_file import RepoInfoFile, RepoState
from icevirt.storage.constructors import StorageLike, storage_of
from icevirt.versioning import lookup
from icevirt.versioning.chunk_tables import compact
from icevirt.versioning.manifest_splitting import grid_of
from icevirt.versioning.merge.build_merge import array_of
from icevirt.versioning.repo_updates import Edit
from icevirt.versioning.v1_migration import refuse_v1
from icevirt.wire.manifests.encoding import ManifestEncoding

FEWEST = 4
"""Manifests at the end of an array that are worth a commit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FoldReport:
    """What was joined; nothing where ``snapshot_id`` is ""."""

    snapshot_id: str
    arrays: int
    joined: int  # manifests that arrays no longer refer to
    written: int  # in their place
    references: int  # in these


def fold(
    storage: StorageLike, *, branch: str = "main", fewest: int = FEWEST, dry_run: bool = False
) -> FoldReport:
    """Join the manifests at the end of arrays into windows of their own, in one commit.

    Appends go on behind it as before. What others commit to other arrays meanwhile is taken
    in; if they append to these, it begins again.

    Args:
        storage: Of the repository.
        branch: Whose tip is looked at.
        fewest: Manifests that an array has at its end before they are joined.
        dry_run: Only count what would be joined.

    Raises:
        RefNotFoundError: There is no such branch.
        ReadOnlyError: The repository is read-only.
        FormatError: A manifest is damaged, or a newer client stored what would be lost.
        StorageError: Others changed the repository before every attempt.
    """
    head = RepoInfoFile(storage_of(storage))
    current = head.read()
    held = HeldObjects(head.obey(current.info.config))
    work = _Folding(head=head, held=held, branch=branch, fewest=fewest, dry_run=dry_run)
    do = "Do the same again when fewer processes write."
    return head.publish(work.decide, do=do, held=held, known=current)[0]


type _Written = tuple[Mapping[ObjectId12, ManifestFile], Mapping[str, list[ManifestRef]]]


@dataclass(slots=True, kw_only=True)
class _Folding:
    """A commit that joins manifests, one attempt after another until it is in."""

    head: RepoInfoFile
    held: HeldObjects
    branch: str
    fewest: int
    dry_run: bool
    joined: object = None  # the arrays of which it was done, and the configuration
    done: _Written = ({}, {})

    def decide(self, current: RepoState) -> tuple[FoldReport, Sequence[Edit]]:
        refuse_v1(current.info, "folding manifests")
        config = RepositoryConfig.from_document(current.info.config)
        encoding = ManifestEncoding.of_config(config.document)
        assets = Assets(self.head.storage, manifests=encoding, compares=True)
        tip = assets.snapshot(lookup.branch_tip(current.info, self.branch))
        runs = {node.path: run for node in tip.arrays() if (run := tail_run(node, self.fewest))}
        there = {ref.object_id for run in runs.values() for ref in run}
        if not runs or self.dry_run:
            count = len(there)
            return FoldReport(
                snapshot_id="", arrays=len(runs), joined=count, written=0, references=0
            ), ()
        joined = {path: tip.find(path) for path in runs}, current.info.config
        if joined != self.joined:  # else others committed beside them
            self.joined, self.done = joined, _write_tables(assets, config, tip, runs)
        written, refs = self.done
        nodes = tuple(
            _fold(node, runs[node.path], refs[node.path])
            if isinstance(node, ArrayNode) and node.path in runs
            else node
            for node in tip.nodes
        )
        records = _keep_records(self.head, current, self.branch, runs, nodes)
        pending = PendingCommit(
            base=tip,
            branch=self.branch,
            message=f"Join manifests of {plural(len(runs), 'array')}",
            nodes=nodes,
            written=written,
            records=records,
        )
        snapshot, commit = pending.put(self.head, assets, self.held)
        report = FoldReport(
            snapshot_id=str(snapshot.id),
            arrays=len(runs),
            joined=len(there - {info.id for info in snapshot.manifest_files}),
            written=len(written),
            references=sum(info.num_chunk_refs for info in written.values()),
        )
        return report, (commit,)


def _keep_records(
    head: RepoInfoFile,
    current: RepoState,
    branch: str,
    runs: Iterable[str],
    nodes: Sequence[Node],
) -> list[Mapping[str, Any]]:
    """Write what datasets are made of now, for the time when the snapshots of builds are gone."""
    records: list[Mapping[str, Any]] = []
    for group in {each for path in runs for each in paths.ancestors(path)}:
        target = Target.at(head, current, branch=branch, group=group)
        if target.last_build() is not None:
            carried = Carried.of(target)
            records.append(carried.going_on)
            carried.keep(head.storage, carried.going_on, nodes)
    return records


def _fold(node: ArrayNode, run: Sequence[ManifestRef], refs: Sequence[ManifestRef]) -> ArrayNode:
    kept = [ref for ref in node.manifests if ref not in run]
    made = array_of(node.path, node.user_data, node.id, (*kept, *refs))
    return made._replace(extra=node.extra)


def _write_tables(
    assets: Assets,
    config: RepositoryConfig,
    tip: Snapshot,
    runs: Mapping[str, tuple[ManifestRef, ...]],
) -> tuple[dict[ObjectId12, ManifestFile], dict[str, list[ManifestRef]]]:
    """Write the joined tables: large ones by themselves, small ones together."""
    written: dict[ObjectId12, ManifestFile] = {}
    refs: dict[str, list[ManifestRef]] = {path: [] for path in runs}
    open_pile: dict[str, tuple[ObjectId8, ChunkTable]] = {}

    def write(pile: Mapping[str, tuple[ObjectId8, ChunkTable]]) -> None:
        info = assets.put_manifest({key: compact(table) for key, table in pile.values()})
        written[info.id] = info
        for path, (_, table) in pile.items():
            refs[path].append(ManifestRef(object_id=info.id, extents=table.extents()))

    for path, key, table in _join_tables(assets, config, tip, runs):
        size = sum(len(each) for _, each in open_pile.values()) + len(table)
        if len(table) >= SHARED_REFERENCES:
            write({path: (key, table)})
            continue
        if path in open_pile or size > SHARED_REFERENCES:
            write(open_pile)
            open_pile = {}
        open_pile[path] = key, table
    if open_pile:
        write(open_pile)
    return written, refs


def _join_tables(
    assets: Assets,
    config: RepositoryConfig,
    tip: Snapshot,
    runs: Mapping[str, tuple[ManifestRef, ...]],
) -> Iterator[tuple[str, ObjectId8, ChunkTable]]:
    """Yield the joined tables of arrays, one for each window: path, node, table."""
    tables: dict[str, list[ChunkTable]] = {path: [] for path in runs}
    wanted: dict[ObjectId12, list[ArrayNode]] = {}
    for path, run in runs.items():
        node = tip.node(path)
        assert isinstance(node, ArrayNode)
        for ref in run:
            wanted.setdefault(ref.object_id, []).append(node)
    for key, nodes in wanted.items():  # each manifest is read once, and what is not wanted let go
        manifest = assets.read_manifest(key)
        manifest.refuse_loss()
        for node in nodes:
            if (table := manifest.arrays.get(node.id)) is not None:
                tables[node.path].append(table)
    for path, parts in tables.items():
        node = tip.node(path)
        assert isinstance(node, ArrayNode)
        grid = grid_of(
            config.splitting_document,
            path=path,
            num_chunks=node.num_chunks,
            dimension_names=node.dimension_names,
        )
        for table in by_cell(ChunkTable.concatenate(parts), grid) if parts else ():
            yield path, node.id, table
