"""Check every invariant of a repository file by file, with memory bounded by one manifest."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from icevirt.errors import IcevirtError, InvalidInputError
from icevirt.escaping import Pictured
from icevirt.ids import ObjectId8, ObjectId12
from icevirt.model.chunks import ChunkTable, Manifest
from icevirt.model.config.document import RepositoryConfig
from icevirt.model.generation import without_old_format_warning
from icevirt.model.repo_info import CommitAmended, RepoInfo, SnapshotSummary
from icevirt.model.snapshot import ArrayNode, ManifestRef, Snapshot
from icevirt.repo import layout
from icevirt.repo.assets import Assets
from icevirt.repo.history import walks
from icevirt.repo.maintenance.chunk_bytes import ChunkBytes, ChunksReport
from icevirt.repo.maintenance.chunk_sizes import ChunkSizes
from icevirt.repo.repo_info_file import RepoInfoFile, old_of, refuse_read_only
from icevirt.repo.v1 import files
from icevirt.repo.v1.upgrade import left_behind
from icevirt.storage.constructors import StorageLike, storage_of
from icevirt.storage.protocol import ObjectInfo, Storage
from icevirt.versioning.id_columns import ID, id_at
from icevirt.versioning.invariants import Problem, of_log, of_repo_info, of_snapshot, of_window
from icevirt.wire import header
from icevirt.wire.manifests import manifest as manifest_file


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckReport(Pictured):
    """What `check` examined, and what was wrong."""

    repo: str  # URL
    snapshots: int
    manifests: int
    references: int
    problems: tuple[Problem, ...]
    chunks: ChunksReport | None = None  # where the bytes of native chunks were compared
    generation: str = ""  # before V1: which, what may be missing, and how to upgrade

    @property
    def ok(self) -> bool:
        """Whether nothing was wrong; advice does not count."""
        return all(problem.advice for problem in self.problems)


def check(repo: StorageLike, *, chunks: bool = False, record: bool = False) -> CheckReport:
    """Check every invariant of a repository and of all snapshots it lists.

    Args:
        repo: A storage, a path or a URL.
        chunks: Also read every native chunk, and compare its bytes with its name if the name is a
            digest, as in builds and in sessions with ``content_addressed_chunks=True``.
        record: With ``chunks``: list the chunks whose bytes agree with their names, so that later
            damage to them is reported. Writes to the repository.

    Raises:
        RepositoryNotFoundError: No repository there.
        FormatError: Its repo info cannot be read at all.
        InvalidInputError: ``record`` without ``chunks``.

    Examples:
        >>> icevirt.check("repo", chunks=True).ok
        True
    """
    if record and not chunks:
        raise InvalidInputError("record=True needs chunks=True", do="Pass chunks=True as well.")
    return _Check(storage_of(repo), chunks=chunks, record=record).run()


class _Check:
    """One walk through a repository; what was seen is not checked twice."""

    def __init__(self, storage: Storage, *, chunks: bool, record: bool) -> None:
        self._storage = storage
        self._assets = Assets(storage)
        self._chunk_sizes = ChunkSizes.of(())
        self._lacking = [np.zeros(0, ID)]  # ids of chunks
        self._bytes = ChunkBytes(self._assets) if chunks else None
        self._record = record
        self._sizes: dict[str, int] = {}
        self._problems: list[Problem] = []
        self._references: dict[ObjectId12, int] = {}
        self._seen: set[tuple[ObjectId8, ManifestRef]] = set()

    def run(self) -> CheckReport:
        head = RepoInfoFile(self._storage)
        with without_old_format_warning():
            current = head.read()
        read = current.info
        if (old := old_of(current)) is not None:  # names of its chunks say nothing of their bytes
            if self._record:
                refuse_read_only(read)
            counted, self._references, self._problems = old.check(time.time_ns() // 1000)
            return replace(self._report(counted), generation=read.generation)
        info = self._try("snapshots", lambda: _whole(read))
        if info is None:
            return self._report(0)
        self._chunk_sizes = ChunkSizes.of(self._listed_chunks())
        self._problems += of_repo_info(info, time.time_ns() // 1000)
        if info.spec_version > 1:
            self._problems += self._backups(head, info)
            self._problems += self._left_of_v1(head, info)
        config = RepositoryConfig.from_document(info.config)
        log = (entry.kind for entry in info.latest_updates)
        amended = {kind.new_snap_id for kind in log if isinstance(kind, CommitAmended)}
        newest_first = sorted(info.snapshots.values(), key=lambda each: -each.flushed_at)
        for listed in newest_first:  # so that moved arrays have their current names
            snapshot = self._snapshot(listed.id)
            if snapshot is None:
                continue
            self._problems += of_snapshot(snapshot, listed)
            self._manifests(snapshot, config)
            # logs of amended commits are unions of several
            exact = listed.pruned_ancestor_tx_logs is None and listed.id not in amended
            self._log(
                listed.parent_id, snapshot, exact=exact and not self._is_expired_v1(info, listed)
            )
        return self._report(len(info.snapshots), self._compared())

    def _listed_chunks(self) -> Iterator[ObjectInfo]:
        """List the root: yield the chunks, which may be millions, and keep sizes of other files."""
        for each in self._storage.list():
            if each.path.startswith(f"{layout.CHUNKS}/"):
                yield each
            else:
                self._sizes[each.path] = each.size

    def _compared(self) -> ChunksReport | None:
        """Compare the bytes of chunks with their names, if that is asked for."""
        if self._bytes is None:
            return None
        lacking = np.unique(np.concatenate(self._lacking))
        report = self._bytes.compare(self._chunk_sizes, lacking, record=self._record)
        self._problems += self._bytes.problems
        return report

    def _report(self, snapshots: int, chunks: ChunksReport | None = None) -> CheckReport:
        return CheckReport(
            repo=self._storage.url,
            snapshots=snapshots,
            manifests=len(self._references),
            references=sum(self._references.values()),
            problems=tuple(dict.fromkeys(self._problems)),
            chunks=chunks,
        )

    def _left_of_v1(self, head: RepoInfoFile, info: RepoInfo) -> Iterator[Problem]:
        """Report an upgrade that did not end, and changes of V1 clients after it."""
        try:
            left = left_behind(head, info)
        except IcevirtError as error:
            yield Problem(file=files.FOLDER, code="v1-left", what=str(error))
            return
        if left is not None and left.edits:
            what = f"V1 clients made {len(left.edits)} changes that V2 lacks: run the upgrade again"
            yield Problem(file=files.FOLDER, code="v1-changes", what=what)
        elif left is not None:
            what = "V1 branches remain, and V1 clients can still commit to them"
            yield Problem(file=files.FOLDER, code="v1-left", what=what, advice=True)

    def _is_expired_v1(self, info: RepoInfo, summary: SnapshotSummary) -> bool:
        """Say whether the log may be that of a longer history, which V1 clients do not keep."""
        parent = None if summary.parent_id is None else info.snapshots.get(summary.parent_id)
        return parent is not None and parent.parent_id is None and self._is_v1(summary.id)

    def _is_v1(self, key: ObjectId12) -> bool:
        offset = header.FIELDS["spec_version"][0]
        return self._storage.get_range(layout.snapshot(key), offset=offset, length=1) == b"\1"

    def _backups(self, head: RepoInfoFile, info: RepoInfo) -> Iterator[Problem]:
        """Check that the ops log can be followed to its end."""
        for entry in info.latest_updates:
            if entry.backup_path is not None:
                path = layout.backup(entry.backup_path)
                if path not in self._sizes:
                    yield Problem(file=path, code="missing", what="the ops log names it")
        try:
            for _ in walks.operations(head):
                pass
        except IcevirtError as error:
            yield Problem(file="repo", code="ops-log", what=str(error))

    def _snapshot(self, key: ObjectId12) -> Snapshot | None:
        return self._try(layout.snapshot(key), lambda: self._assets.snapshot(key))

    def _log(self, parent: ObjectId12 | None, snapshot: Snapshot, *, exact: bool) -> None:
        path = layout.transaction_log(snapshot.id)
        if parent is None and path not in self._sizes and self._is_v1(snapshot.id):
            return  # V1 has none of the initial snapshot
        log = self._try(path, lambda: self._assets.transaction_log(snapshot.id))
        before = snapshot if parent is None else self._snapshot(parent)
        if log is not None and before is not None and exact:
            self._problems += of_log(log, before, snapshot)

    def _manifests(self, snapshot: Snapshot, config: RepositoryConfig) -> None:
        """Check the manifests that were not seen in another snapshot, one at a time."""
        users: dict[ObjectId12, list[tuple[ArrayNode, ManifestRef]]] = {}
        for node in snapshot.arrays():
            for ref in node.manifests:
                if (node.id, ref) not in self._seen:
                    self._seen.add((node.id, ref))
                    users.setdefault(ref.object_id, []).append((node, ref))
        for key, windows in users.items():
            path = layout.manifest(key)
            raw = self._try(path, partial(self._storage.get, path))
            if raw is None or not self._is_intact(path, raw):
                continue
            manifest = self._try(path, partial(self._assets.decoded_manifest, key, raw))
            if manifest is None:
                continue
            self._references[key] = manifest.num_chunk_refs
            self._problems += self._row(snapshot, manifest)
            for node, ref in windows:
                table = manifest.arrays.get(node.id)
                # compressed locations are decompressed here, and may turn out to be damaged
                found = partial(list[Problem], of_window(node, ref, table, config))
                self._problems += self._try(path, found) or ()
                if table is not None:
                    self._problems += self._chunks(path, table)
                    if self._bytes is not None:
                        self._bytes.add(key, node, table)

    def _row(self, snapshot: Snapshot, manifest: Manifest) -> Iterator[Problem]:
        """Readers fetch exactly ``size_bytes``, so a wrong size makes a manifest unreadable."""
        path, listed = layout.manifest(manifest.id), snapshot.manifest(manifest.id)
        if listed is None:
            return
        if listed.size_bytes != self._sizes.get(path):
            what = f"it has {self._sizes.get(path)} bytes, its snapshot says {listed.size_bytes}"
            yield Problem(file=path, code="size", what=what)
        if listed.num_chunk_refs != manifest.num_chunk_refs:
            what = (
                f"{manifest.num_chunk_refs} references, its snapshot says {listed.num_chunk_refs}"
            )
            yield Problem(file=path, code="count", what=what)

    def _is_intact(self, path: str, raw: bytes) -> bool:
        """Compare a manifest's bytes with its name, where the name is made of them."""
        if manifest_file.is_intact(raw) is not False:
            return True
        what = "its bytes do not agree with its name: restore it from a copy"
        self._problems.append(Problem(file=path, code="manifest-bytes", what=what))
        return False

    def _chunks(self, path: str, table: ChunkTable) -> Iterator[Problem]:
        """Check that native chunks lie in objects that are long enough."""
        lacking = self._chunk_sizes.lacking(table)
        self._lacking.append(lacking.ids)
        for at, (size, needed) in enumerate(
            zip(lacking.sizes.tolist(), lacking.needed.tolist(), strict=True)
        ):
            name, found = layout.chunk(id_at(lacking.ids, at)), None if size < 0 else size
            what = f"{name} has {found} bytes, but references need {needed}"
            yield Problem(file=path, code="chunk", what=what)

    def _try[T](self, path: str, fetch: Callable[[], T]) -> T | None:
        try:
            return fetch()
        except IcevirtError as error:
            self._problems.append(Problem(file=path, code=error.code, what=str(error)))
            return None


def _whole(info: RepoInfo) -> RepoInfo:
    """Return the repo info of a V1 repository with all that is read one by one in it."""
    if info.spec_version > 1:
        return info
    return replace(
        info,
        branches=dict(sorted(info.branches.items())),
        tags=dict(sorted(info.tags.items())),
        snapshots=dict(sorted(info.snapshots.items())),
    )
