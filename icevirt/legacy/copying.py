"""Write the objects of an upgraded repository: snapshots, their manifests, logs and chunks."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, fields, replace
from typing import Any

import numpy as np

from icevirt.archive.reports.upgrade import Chunks
from icevirt.errors import FormatError, ObjectNotFoundError
from icevirt.ids import ObjectId8, ObjectId12
from icevirt.legacy.assets import OldAssets
from icevirt.legacy.check import mixed_arrays
from icevirt.model.chunks import ChunkTable, ChunkType, Locations
from icevirt.model.repo_info import SnapshotSummary
from icevirt.model.snapshot import ArrayNode, ManifestFile, ManifestRef, Node, Snapshot
from icevirt.model.strings import Strings
from icevirt.model.transaction_log import TransactionLog
from icevirt.repo import layout
from icevirt.repo.assets import Assets
from icevirt.repo.maintenance.chunk_sizes import ChunkSizes
from icevirt.versioning import invariants
from icevirt.versioning.chunk_tables import compact
from icevirt.versioning.id_columns import id_at, of_rows

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
        self._write = write
        self._chunks = chunks
        self._dry_run = dry_run
        self.findings = findings
        self._there = ChunkSizes.of(read.chunk_objects())
        self._done = ChunkSizes.of(write.storage.list(layout.CHUNKS))
        self._times = _times(read) if chunks == "reference" else ChunkSizes.of(())
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
        new = replace(self._written(old), flushed_at=at, parent_id=None, extra=None)
        if isinstance(self._read, OldAssets):
            self._report_mixed(self._read, old)
        log = self._log(before, old, new)
        if not self._dry_run:
            self._write.put_snapshot(new)
            self._write.put_transaction_log(log)
        return replace(listed, flushed_at=at)

    def _node_ids(self, before: Snapshot | None, after: Snapshot) -> dict[ObjectId8, ObjectId8]:
        """Return the new ids of nodes: ids that are numbers are unique in one branch only."""
        numbered = isinstance(self._read, OldAssets) and self._read.encoding.numbers_nodes
        known = {} if before is None else self._ids.get(before.id, {})
        paths = {} if before is None else {node.id: node.path for node in before.nodes}
        found = {}
        for node in after.nodes:
            if not numbered:
                found[node.id] = node.id
            elif paths.get(node.id) == node.path:
                found[node.id] = known[node.id]
            else:
                found[node.id] = ObjectId8.of_content(after.id, node.id)
        return found

    def _written(self, snapshot: Snapshot) -> Snapshot:
        """Write the manifests of a snapshot that are not there yet, and return it with them."""
        nodes: list[Node] = []
        files: dict[ObjectId12, ManifestFile] = {}
        for node in snapshot.nodes:
            new = self._ids[snapshot.id][node.id]
            if not isinstance(node, ArrayNode):
                nodes.append(replace(node, id=new))
                continue
            found = [self._window(node, ref, new, snapshot) for ref in node.manifests]
            kept = [each for each in found if each is not None]
            files |= {file.id: file for _, file in kept}
            nodes.append(replace(node, id=new, manifests=tuple(ref for ref, _ in kept)))
        return replace(snapshot, nodes=tuple(nodes), manifest_files=tuple(files.values()))

    # -- references --------------------------------------------------------------------------

    def _window(
        self, node: ArrayNode, ref: ManifestRef, new: ObjectId8, snapshot: Snapshot
    ) -> tuple[ManifestRef, ManifestFile] | None:
        key = ref, node.id, new, node.num_chunks
        if key not in self._windows:
            self._windows[key] = self._made(node, ref, new, snapshot)
        return self._windows[key]

    def _made(
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
        if indexed is None:
            return None
        table = self._carried(node, indexed.table, ref)
        if not len(table):
            return None
        file, raw = self._write.encoded_manifest({new: table})
        if file.id not in self.manifests:
            self.manifests.add(file.id)
            to.references += len(table)
            if not self._dry_run:
                self._write.storage.put(layout.manifest(file.id), raw)
        return ManifestRef(object_id=file.id, extents=table.extents()), file

    def _carried(self, node: ArrayNode, table: ChunkTable, ref: ManifestRef) -> ChunkTable:
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
            return self._referenced(table)
        self._copy(table)
        return table

    def _referenced(self, table: ChunkTable) -> ChunkTable:
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
        joined = Locations.joined([table.locations, locations])
        return compact(replace(table, kind=kind, source=source, locations=joined))

    def _copy(self, table: ChunkTable) -> None:
        """Copy the chunks of a table that are not there yet, some side by side."""
        ids = np.unique(of_rows(table.chunk_ids))
        sizes = self._there.find(ids)
        wanted = ids[(sizes >= 0) & (self._done.find(ids) != sizes)]
        self._done = self._done.joined(wanted, self._there.find(wanted))
        self.findings.copied += len(wanted)
        self.findings.copied_bytes += int(self._there.find(wanted).sum())
        if self._dry_run or not len(wanted):
            return

        def copy(at: int) -> None:
            key = id_at(wanted, at)
            body = self._read.storage.get(self._read.path(layout.CHUNKS, key))
            self._write.storage.put(layout.chunk(key), body)

        with ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="icevirt-upgrade") as pool:
            for low in range(0, len(wanted), _BATCH):
                for _ in pool.map(copy, range(low, min(low + _BATCH, len(wanted)))):
                    pass

    # -- what is said about them -------------------------------------------------------------

    def _log(self, before: Snapshot | None, old: Snapshot, new: Snapshot) -> TransactionLog:
        """Return the transaction log of a snapshot, in the new ids of nodes."""
        if before is None:
            return TransactionLog(id=old.id)
        ids = {**self._ids[before.id], **self._ids[old.id]}
        if not isinstance(self._read, OldAssets):
            return _renamed(self._read.transaction_log(old.id), ids)
        try:
            log = _renamed(self._read.transaction_log(old.id), ids)
            if not any(invariants.of_log(log, self._written(before), new)):
                return log
        except (ObjectNotFoundError, FormatError):
            pass
        self.findings.note(f"snapshot {old.id}: its transaction log was wrong, and computed anew")
        return _renamed(self._read.computed_log(old.id, self._unreadable), ids)

    def _report_mixed(self, read: OldAssets, snapshot: Snapshot) -> None:
        for pair in mixed_arrays(read, snapshot):
            (self.findings.lose if pair.chunks else self.findings.note)(str(pair))


def _renamed(log: TransactionLog, ids: Mapping[ObjectId8, ObjectId8]) -> TransactionLog:
    """Return a log with other ids of nodes."""
    chunks = {ids.get(key, key): index for key, index in log.updated_chunks.items()}
    sets: dict[str, Any] = {
        each.name: frozenset(ids.get(key, key) for key in getattr(log, each.name))
        for each in fields(log)
        if isinstance(getattr(log, each.name), frozenset)
    }
    return replace(log, **sets, updated_chunks=dict(sorted(chunks.items())))


def _times(read: Assets) -> ChunkSizes:
    """Return when each native chunk was written: in place of sizes, seconds that are rounded up."""
    return ChunkSizes.of(
        replace(info, size=-(-info.last_modified // 1_000_000)) for info in read.chunk_objects()
    )
