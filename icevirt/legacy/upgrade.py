"""Copy a repository of an older format into a new V2 repository, and leave the old one as it is.

Objects come first and `repo` last, by one conditional create: until then the new repository is not
there. Names of objects follow from their content or from the old repository, so an upgrade that was
interrupted goes on when it is run again, and chunks that were copied are not copied again.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from shlex import quote
from typing import Any

import numpy as np

from icevirt.archive.reports.build import Progress
from icevirt.archive.reports.relocation import Chunks, UpgradeCopyReport
from icevirt.connect.urls import local_path
from icevirt.errors import FormatError, InvalidInputError, ObjectNotFoundError
from icevirt.ids import ObjectId8, ObjectId12
from icevirt.legacy.assets import OldAssets
from icevirt.legacy.check import find_mixed_arrays
from icevirt.legacy.containers import containers_in_use
from icevirt.legacy.repository import OldRepoState
from icevirt.model.chunks import ChunkTable, ChunkType, Locations
from icevirt.model.config.document import RepositoryConfig
from icevirt.model.generation import without_old_format_warning
from icevirt.model.repo_info import RepoInfo, SnapshotSummary
from icevirt.model.snapshot import ArrayNode, ManifestFile, ManifestRef, Node, Snapshot
from icevirt.model.strings import Strings
from icevirt.model.transaction_log import TransactionLog
from icevirt.objects.authorize import entry_of
from icevirt.repo import creation, layout
from icevirt.repo.assets import Assets
from icevirt.repo.maintenance.chunk_sizes import ChunkSizes
from icevirt.repo.repo_info_file import RepoInfoFile, RepoState
from icevirt.repo.v1.files import V1RepoState
from icevirt.storage.object_reading import ObjectReading
from icevirt.storage.protocol import Storage
from icevirt.threads import Threads
from icevirt.versioning import invariants, lookup
from icevirt.versioning.chunk_tables import compact
from icevirt.versioning.id_columns import id_at, of_rows
from icevirt.versioning.repo_updates import MAIN
from icevirt.versioning.v1_migration import V1State, migrate

MOST_LINES = 1000  # of a report
_AT_ONCE = 16  # chunks that are copied side by side
_BATCH = 1024


@dataclass(slots=True)
class Findings:
    """What was done so far, and what is to be said about it; lines keep their order."""

    notes: dict[str, None] = field(default_factory=dict)
    lost: dict[str, None] = field(default_factory=dict)
    urls: dict[str, None] = field(default_factory=dict)  # of virtual chunks
    stored: str = ""  # URL of a chunk of the old repository that is referenced
    references: int = 0
    manifests: int = 0
    copied: int = 0
    copied_bytes: int = 0

    def note(self, what: str) -> None:
        """Remember what differs."""
        self.notes[what] = None

    def lose(self, what: str) -> None:
        """Remember what could not be carried over."""
        self.lost[what] = None


class SnapshotCopier:
    """Writes the objects of the new repository, each once."""

    def __init__(
        self, read: Assets, write: Assets, findings: Findings, *, chunks: Chunks, dry_run: bool
    ) -> None:
        self._read = read
        self._old = read if isinstance(read, OldAssets) else None
        self._write = write
        self._chunks = chunks
        self._dry_run = dry_run
        self.findings = findings
        self._there = ChunkSizes.of(read.chunk_objects())
        self._done = ChunkSizes.of(write.storage.list(layout.CHUNKS))
        # when each native chunk was written: in place of sizes, seconds that are rounded up
        dated = read.chunk_objects() if chunks == "reference" else ()
        self._times = ChunkSizes.of(
            info._replace(size=-(-info.last_modified // 1_000_000)) for info in dated
        )
        self._ids: dict[ObjectId12, dict[ObjectId8, ObjectId8]] = {}  # of nodes, by snapshot
        self.manifests: set[ObjectId12] = set()  # that were written
        self._unreadable: set[ObjectId12] = set()
        self._windows: dict[Any, tuple[ManifestRef, ManifestFile] | None] = {}

    def snapshot(self, listed: SnapshotSummary, parent: SnapshotSummary | None) -> SnapshotSummary:
        """Write a snapshot with its manifests and log, and return the facts about it."""
        before = None if listed.parent_id is None else self._read.snapshot(listed.parent_id)
        old = self._read.snapshot(listed.id)
        self._ids[old.id] = self._node_ids(before, old)
        at = listed.flushed_at
        if parent is not None and parent.id != listed.id and at <= parent.flushed_at:
            at = parent.flushed_at + 1
            self.findings.note(f"snapshot {old.id}: its time is its parent's, or earlier")
        new = replace(self._write_manifests(old), flushed_at=at, parent_id=None, extra=None)
        for pair in () if self._old is None else find_mixed_arrays(self._old, old):
            (self.findings.lose if pair.chunks else self.findings.note)(str(pair))
        log = self._log(before, old, new)
        if not self._dry_run:
            self._write.put_snapshot(new)
            self._write.put_transaction_log(log)
        return replace(listed, flushed_at=at)

    def _node_ids(self, before: Snapshot | None, after: Snapshot) -> dict[ObjectId8, ObjectId8]:
        """Return the new ids of nodes: ids that are numbers are unique in one branch only."""
        if self._old is None or not self._old.encoding.numbers_nodes:
            return {node.id: node.id for node in after.nodes}
        known = {} if before is None else self._ids.get(before.id, {})
        paths = {} if before is None else {node.id: node.path for node in before.nodes}
        return {
            node.id: known[node.id]
            if paths.get(node.id) == node.path
            else ObjectId8.of_content(after.id, node.id)
            for node in after.nodes
        }

    def _write_manifests(self, snapshot: Snapshot) -> Snapshot:
        """Write the manifests of a snapshot that are not there yet, and return it with them."""
        nodes: list[Node] = []
        files: dict[ObjectId12, ManifestFile] = {}
        for node in snapshot.nodes:
            new = self._ids[snapshot.id][node.id]
            if not isinstance(node, ArrayNode):
                nodes.append(node._replace(id=new))
                continue
            refs = []
            for ref in node.manifests:
                key = ref, node.id, new, node.num_chunks
                if key not in self._windows:
                    self._windows[key] = self._write_window(node, ref, new, snapshot)
                if (window := self._windows[key]) is not None:
                    refs.append(window[0])
                    files[window[1].id] = window[1]
            nodes.append(node._replace(id=new, manifests=tuple(refs)))
        return replace(snapshot, nodes=tuple(nodes), manifest_files=tuple(files.values()))

    # -- references --------------------------------------------------------------------------

    def _write_window(
        self, node: ArrayNode, ref: ManifestRef, new: ObjectId8, snapshot: Snapshot
    ) -> tuple[ManifestRef, ManifestFile] | None:
        """Write the references of an array in one manifest; None if there are none."""
        to = self.findings
        try:
            indexed = self._read.manifest(ref.object_id).get(node.id)
        except (ObjectNotFoundError, FormatError) as error:
            # the new repository refers to it too: no reader sees holes
            to.lose(f"chunks of {node.path} in snapshot {snapshot.id}: {error}")
            self._unreadable.add(ref.object_id)
            listed = snapshot.manifest(ref.object_id)
            return ref, listed or ManifestFile(id=ref.object_id, size_bytes=0, num_chunk_refs=0)
        table = None if indexed is None else self._carry(node, indexed.table, ref)
        if table is None or not len(table):
            return None
        file, raw = self._write.encode_manifest({new: table})
        if file.id not in self.manifests:
            self.manifests.add(file.id)
            to.references += len(table)
            if not self._dry_run:
                self._write.storage.put(layout.manifest(file.id), raw)
        return ManifestRef(object_id=file.id, extents=table.extents()), file

    def _carry(self, node: ArrayNode, table: ChunkTable, ref: ManifestRef) -> ChunkTable:
        """Return the references that a reader of the old repository would find and could read."""
        box = ref.extents or tuple((0, count) for count in node.num_chunks)
        low, high = np.array(box, np.int64).reshape(-1, 2).T
        high = np.minimum(high, np.array(node.num_chunks, np.int64))
        inside = ((table.index >= low) & (table.index < high)).all(axis=1)
        empty = inside & (table.length == 0)
        if empty.any():
            self.findings.lose(f"{int(empty.sum())} chunks of {node.path} without any bytes")
        table = compact(table.take(np.flatnonzero(inside & ~empty)))
        self.findings.urls.update(dict.fromkeys(table.locations.url))
        lacking = self._there.lacking(table)
        for at in range(min(len(lacking.ids), MOST_LINES)):
            name = layout.chunk(id_at(lacking.ids, at))
            self.findings.lose(f"a chunk of {node.path}: {name} is missing or too short")
        if (more := len(lacking.ids) - MOST_LINES) > 0:
            self.findings.lose(f"{more} more of {node.path} in manifest {ref.object_id}")
        if self._chunks == "reference":
            return self._refer_to(table)
        self._copy(table)
        return table

    def _refer_to(self, table: ChunkTable) -> ChunkTable:
        """Return references to native chunks as virtual ones, to where the chunks lie."""
        native = table.kind == ChunkType.native
        if not native.any():
            return table
        times = self._times.find(of_rows(table.chunk_ids))
        locations = Locations(
            url=self._read.chunk_urls(table.chunk_ids),
            etag=Strings.empty(len(times)),
            last_modified=np.maximum(times, 0).astype(np.uint32),
        )
        self.findings.stored = self.findings.stored or locations.url[0]
        source = table.source.copy()
        source[native] += np.uint32(len(table.locations))
        kind = np.where(native, np.uint8(ChunkType.virtual), table.kind)
        joined = Locations.join([table.locations, locations])
        return compact(replace(table, kind=kind, source=source, locations=joined))

    def _copy(self, table: ChunkTable) -> None:
        ids = np.unique(of_rows(table.chunk_ids))
        sizes = self._there.find(ids)
        wanted = ids[(sizes >= 0) & (self._done.find(ids) != sizes)]
        self._done = self._done.join(wanted, self._there.find(wanted))
        self.findings.copied += len(wanted)
        self.findings.copied_bytes += int(self._there.find(wanted).sum())
        if self._dry_run or not len(wanted):
            return

        def copy(at: int) -> None:
            key = id_at(wanted, at)
            body = self._read.storage.get(self._read.path(layout.CHUNKS, key))
            self._write.storage.put(layout.chunk(key), body)

        with Threads(_AT_ONCE, "icevirt-upgrade") as pool:
            for low in range(0, len(wanted), _BATCH):
                for _ in pool.map(copy, range(low, min(low + _BATCH, len(wanted)))):
                    pass

    # -- what is said about them -------------------------------------------------------------

    def _log(self, before: Snapshot | None, old: Snapshot, new: Snapshot) -> TransactionLog:
        """Return the transaction log of a snapshot, in the new ids of nodes."""
        if before is None:
            return TransactionLog(id=old.id)
        ids = {**self._ids[before.id], **self._ids[old.id]}
        if self._old is None:
            return _rename(self._read.transaction_log(old.id), ids)
        try:
            log = _rename(self._read.transaction_log(old.id), ids)
            if not any(invariants.of_log(log, self._write_manifests(before), new)):
                return log
        except (ObjectNotFoundError, FormatError):
            pass
        self.findings.note(f"snapshot {old.id}: its transaction log was wrong, and computed anew")
        return _rename(self._old.compute_log(old.id, self._unreadable), ids)


def _rename(log: TransactionLog, ids: Mapping[ObjectId8, ObjectId8]) -> TransactionLog:
    chunks = {ids.get(key, key): index for key, index in log.updated_chunks.items()}
    sets: dict[str, Any] = {
        each.name: frozenset(ids.get(key, key) for key in getattr(log, each.name))
        for each in fields(log)
        if isinstance(getattr(log, each.name), frozenset)
    }
    return replace(log, **sets, updated_chunks=dict(sorted(chunks.items())))


_CARRIED = ("inline_chunk_threshold_bytes", "get_partial_values_concurrency", "compression")


def upgrade(
    source: Storage,
    target: Storage,
    *,
    chunks: Chunks = "copy",
    dry_run: bool = False,
    progress: Callable[[Progress], None] | None = None,
) -> UpgradeCopyReport:
    """Make a V2 repository of an older one; see `icevirt.upgrade`."""
    return _CopyingUpgrade(source, target, chunks, dry_run, progress or (lambda _: None)).run()


@dataclass(slots=True)
class _CopyingUpgrade:
    source: Storage
    target: Storage
    chunks: Chunks
    dry_run: bool
    tell: Callable[[Progress], None]
    findings: Findings = field(default_factory=Findings)

    def run(self) -> UpgradeCopyReport:
        _refuse_nested(self.source.url, self.target.url)
        with without_old_format_warning():
            current = RepoInfoFile(self.source).read()
        if current.info.spec_version > 1:
            raise InvalidInputError(
                "this repository is already V2",
                do="It needs no upgrade. Copy its whole directory or prefix with the tool of your"
                " storage.",
                repo=self.source.url,
            )
        head = RepoInfoFile(self.target)
        if head.find() is not None:
            raise creation.already_exists(self.target)
        creation.refuse_foreign(self.target)
        state = self._read_state(current)
        copied = self._copy(current, state.snapshots)
        config, authorize = self._config(current.info)
        info = migrate(replace(state, snapshots=copied, config=config), head.now())
        if not self.dry_run and head.create(info) is None:
            raise creation.already_exists(self.target)
        old = current.info.old
        return UpgradeCopyReport(
            source=self.source.url,
            repo=self.target.url,
            dry_run=self.dry_run,
            generation="V1" if old is None else old.generation.name,
            snapshots=len(copied),
            branches=len(state.branches),
            tags=len(state.tags),
            manifests=self.findings.manifests,
            references=self.findings.references,
            chunks=self.findings.copied,
            bytes=self.findings.copied_bytes,
            authorize=authorize,
            notes=_lines(self.findings.notes),
            lost=_lines(self.findings.lost),
        )

    def _copy(
        self, current: RepoState, snapshots: Mapping[ObjectId12, SnapshotSummary]
    ) -> dict[ObjectId12, SnapshotSummary]:
        read = current.assets if isinstance(current, OldRepoState) else Assets(self.source)
        found, write = self.findings, Assets(self.target)
        copier = SnapshotCopier(read, write, found, chunks=self.chunks, dry_run=self.dry_run)
        step = Progress(phase="upgrade", done=0, total=len(snapshots), unit="snapshots")
        done: dict[ObjectId12, SnapshotSummary] = {}
        for summary in (*_parents_first(snapshots), None):
            counts = replace(step, references=found.references, bytes=found.copied_bytes)
            self.tell(replace(counts, done=len(done)))
            if summary is not None:
                parent = None if summary.parent_id is None else done[summary.parent_id]
                done[summary.id] = copier.snapshot(summary, parent)
        found.manifests = len(copier.manifests)
        return dict(sorted(done.items()))

    # -- what there is -----------------------------------------------------------------------

    def _read_state(self, current: RepoState) -> V1State:
        """Return branches, tags and snapshots as far as they can be read.

        Raises:
            FormatError, SnapshotNotFoundError: The tip of ``main`` cannot be.
        """
        info = current.info
        lookup.find_snapshot(info, info.branches[MAIN])
        if isinstance(current, OldRepoState):
            every = current.lines()
        else:
            every = {name: (key,) for name, key in info.branches.items()}
        known: dict[ObjectId12, SnapshotSummary] = {}
        lines = {}
        for name, line in sorted(every.items(), key=lambda item: item[0] != MAIN):
            whole = tuple(key for key in line if self._walk(info, key, f"branch {name!r}", known))
            if whole and whole[-1] == line[-1]:
                lines[name] = whole
            else:
                self.findings.lose(f"branch {name!r}: its snapshot {line[-1]} cannot be read")
        tags = {}
        for name in info.tags:
            if self._walk(info, info.tags[name], f"tag {name!r}", known):
                tags[name] = info.tags[name]
        return V1State(
            branches={name: line[-1] for name, line in sorted(lines.items())},
            tags=dict(sorted(tags.items())),
            deleted_tags={
                name: _find_deleted_tag(current, name) for name in sorted(info.deleted_tags)
            },
            snapshots=known,
            config=None,
            lines=lines,
        )

    def _walk(
        self, info: RepoInfo, tip: ObjectId12, who: str, known: dict[ObjectId12, SnapshotSummary]
    ) -> bool:
        """Read a snapshot and its ancestors; False if not even the snapshot can be read."""
        later: SnapshotSummary | None = None
        at: ObjectId12 | None = tip
        while at is not None and at not in known:
            try:
                found = info.snapshots[at]
            except (KeyError, FormatError) as error:
                cause = "it is missing" if isinstance(error, KeyError) else str(error)
                self.findings.lose(f"snapshot {at} of {who}, and what came before: {cause}")
                if later is None:
                    return False
                known[later.id] = replace(later, parent_id=None)
                return True
            known[at] = later = found
            at = found.parent_id
        return True

    def _config(self, info: RepoInfo) -> tuple[Mapping[str, Any], tuple[Any, ...]]:
        document = dict(info.config or {})
        config = RepositoryConfig()
        for name in _CARRIED if info.old is not None else set(document):
            if document.get(name) is not None and name != "virtual_chunk_containers":
                config.document[name] = document[name]
        if isinstance(compression := config.document.get("compression"), Mapping):
            config.document["compression"] = {**compression, "algorithm": "zstd"}
        apart = {}
        if stored := self.findings.stored:
            self.findings.urls[stored] = None
            # the official client knows no container whose prefix is percent-encoded
            above = stored.partition("%")[0].rpartition("/")[0] + "/"
            source = self.source
            apart[above] = source.config if isinstance(source, ObjectReading) else None
        containers, uncovered = containers_in_use(document, self.findings.urls, apart)
        for url in uncovered:
            self.findings.lose(f"virtual chunks at {url}: no client of today reads such a location")
        for container in containers:
            config.set_virtual_chunk_container(container)
        had = document.get("virtual_chunk_containers")
        if isinstance(had, Mapping) and len(had) > len(containers):
            self.findings.note("virtual chunk containers: only prefixes in use were carried over")
        return config.document, tuple(map(entry_of, containers))


def _find_deleted_tag(current: RepoState, name: str) -> ObjectId12 | None:
    """Return the snapshot that a deleted tag named, if that is still known."""
    match current:
        case OldRepoState() if name in current.paths.tags:
            return current.target(current.paths.tags[name])
        case V1RepoState():
            return current.files.find_deleted_tag(name)
        case _:
            return None


def _parents_first(
    snapshots: Mapping[ObjectId12, SnapshotSummary],
) -> Iterator[SnapshotSummary]:
    done: set[ObjectId12] = set()
    for key in snapshots:
        line = []
        at: ObjectId12 | None = key
        while at is not None and at not in done and at in snapshots:
            done.add(at)
            line.append(snapshots[at])
            at = snapshots[at].parent_id
        yield from reversed(line)


def _lines(found: Mapping[str, None]) -> tuple[str, ...]:
    lines = tuple(found)
    more = len(lines) - MOST_LINES
    return lines if more <= 0 else (*lines[:MOST_LINES], f"and {more} more")


def _refuse_nested(source: str, target: str) -> None:
    one, other = (
        (os.path.realpath(local_path(url)) if url.startswith("file:") else url).rstrip("/") + "/"
        for url in (source, target)
    )
    if one.startswith(other) or other.startswith(one):
        raise InvalidInputError(
            "the old and the new repository have the same path, or one lies in the other",
            do=f"Choose a path beside the old one: icevirt upgrade {quote(source)}"
            f" {quote(source + '-v2')}",
            source=source,
            target=target,
        )
