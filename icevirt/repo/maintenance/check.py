"""Check every invariant of a repository file by file, with memory bounded by one manifest.

A chunk whose bytes agree with its name is intact, whichever client wrote it. One that disagrees is
damaged if a list says that its name covers its content; otherwise it counts as unverifiable.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from enum import IntEnum
from functools import partial
from itertools import batched, groupby

import numpy as np
from numpy.typing import NDArray

from icevirt.errors import IcevirtError, InvalidInputError
from icevirt.escaping import Pictured
from icevirt.ids import ObjectId8, ObjectId12
from icevirt.model.chunks import ChunkTable, ChunkType, Manifest
from icevirt.model.config.document import RepositoryConfig
from icevirt.model.generation import without_old_format_warning
from icevirt.model.repo_info import RepoInfo
from icevirt.model.snapshot import ArrayNode, ManifestFile, ManifestRef, Snapshot
from icevirt.model.updates import CommitAmended
from icevirt.objects.locations import find_unreadable
from icevirt.remedy_notation import write_option, write_remedy
from icevirt.repo import layout
from icevirt.repo.assets import Assets
from icevirt.repo.history import walks
from icevirt.repo.maintenance import content_names
from icevirt.repo.maintenance.chunk_sizes import ChunkSizes
from icevirt.repo.repo_info_file import RepoInfoFile, old_of, refuse_read_only
from icevirt.repo.v1 import files
from icevirt.repo.v1.upgrade import find_left_behind
from icevirt.storage.constructors import StorageLike, storage_of
from icevirt.storage.protocol import ObjectInfo, Storage
from icevirt.threads import Threads
from icevirt.versioning.id_columns import ID, id_at, of_rows, places
from icevirt.versioning.invariants import (
    EMPTY,
    Problem,
    of_log,
    of_repo_info,
    of_snapshot,
    of_window,
)
from icevirt.wire import header
from icevirt.wire.header import is_intact

_PIECE = 4 << 20  # bytes of a chunk that are read at once
_SIDE_BY_SIDE = 16
_BATCH = 1 << 10
_NAMED = 3  # references to a damaged chunk that are named


@dataclass(frozen=True, slots=True, kw_only=True)
class ArrayChunks:
    """The native chunks of one array, each object once."""

    path: str
    intact: int
    damaged: int
    unverifiable: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ChunksReport:
    """What the bytes of all native chunks say. A chunk of several arrays counts once."""

    intact: int  # the bytes are those that the name was made of
    damaged: int  # missing, short, unreadable, or other bytes
    unverifiable: int  # the name is not known to be made of the bytes
    unlisted: int  # intact ones in no list: were they damaged, they would be unverifiable
    bytes_read: int
    arrays: tuple[ArrayChunks, ...]  # by path


class _State(IntEnum):
    intact = 0
    damaged = 1
    unverifiable = 2


class ChunkBytes:
    """Collects the references to native chunks while manifests are walked, then compares."""

    def __init__(self, assets: Assets) -> None:
        self._assets = assets
        self._places: list[tuple[ObjectId12, ArrayNode]] = []  # an array's table in a manifest
        self._ids = [np.zeros(0, ID)]
        self._place = [np.zeros(0, np.uint32)]
        self._row = [np.zeros(0, np.int64)]
        self.problems: list[Problem] = []

    def add(self, manifest: ObjectId12, node: ArrayNode, table: ChunkTable) -> None:
        """Note the native chunks of an array's table, each once."""
        rows = np.flatnonzero(table.kind == ChunkType.native)
        if not len(rows):
            return
        ids, first = np.unique(of_rows(table.chunk_ids[table.source[rows]]), return_index=True)
        self._ids.append(ids)
        self._place.append(np.full(len(ids), len(self._places), np.uint32))
        self._row.append(rows[first])
        self._places.append((manifest, node))

    def compare(
        self, existing: ChunkSizes, lacking: NDArray[np.void], *, record: bool
    ) -> ChunksReport:
        """Read all chunks that were noted; what is wrong is in ``problems``.

        Those that lack bytes, ascending, are not read. With ``record``, intact chunks in no list
        are listed.
        """
        ids = np.concatenate(self._ids)
        order = np.argsort(ids, kind="stable")
        ids = ids[order]
        first = np.ones(len(ids), np.bool_)
        first[1:] = ids[1:] != ids[:-1]
        used, number = ids[first], np.cumsum(first) - 1
        place, row = np.concatenate(self._place)[order], np.concatenate(self._row)[order]
        named, bad = content_names.read_recorded(self._assets.storage)
        for path, error in bad.items():
            self.problems.append(Problem(file=path, code="content-names", what=str(error)))
        listed = places(named, used) >= 0  # known to be named by their content
        sizes = existing.find(used)
        sizes[places(lacking, used) >= 0] = -1
        state = self._read_states(used, sizes, listed)
        wrong = (state == _State.damaged) & (sizes >= 0) & listed
        self._report(used, np.flatnonzero(wrong[number]), number, place, row)
        unlisted = (state == _State.intact) & ~listed
        if record:
            content_names.record(self._assets.storage, used[unlisted])
        counts = np.bincount(state, minlength=len(_State)).tolist()
        return ChunksReport(
            intact=counts[_State.intact],
            damaged=counts[_State.damaged],
            unverifiable=counts[_State.unverifiable],
            unlisted=0 if record else int(unlisted.sum()),
            bytes_read=int(sizes[sizes >= 0].sum()),
            arrays=self._by_array(number, place, state),
        )

    def _read_states(
        self, used: NDArray[np.void], sizes: NDArray[np.int64], listed: NDArray[np.bool_]
    ) -> NDArray[np.uint8]:
        """Read all chunks that have a size, and say what they are."""
        state = np.full(len(used), _State.damaged, np.uint8)
        with Threads(_SIDE_BY_SIDE, "icevirt-check") as pool:
            for some in batched(np.flatnonzero(sizes >= 0).tolist(), _BATCH):
                keys = [id_at(used, at) for at in some]
                digests = pool.map(self._digest, keys, sizes[[*some]].tolist())
                for at, key, found in zip(some, keys, digests, strict=True):
                    if isinstance(found, IcevirtError):
                        problem = Problem(file=layout.chunk(key), code=found.code, what=str(found))
                        self.problems.append(problem)
                        listed[at] = False  # it is reported already
                    elif found == key:
                        state[at] = _State.intact
                    elif not listed[at]:
                        state[at] = _State.unverifiable
        return state

    def _digest(self, key: ObjectId12, size: int) -> ObjectId12 | IcevirtError:
        pieces = (
            self._assets.chunk(key, offset=at, length=min(_PIECE, size - at))
            for at in range(0, size, _PIECE)
        )
        try:
            return ObjectId12.of_pieces(size, pieces)
        except IcevirtError as error:
            return error

    def _report(
        self,
        used: NDArray[np.void],
        wrong: NDArray[np.int64],
        number: NDArray[np.int64],
        place: NDArray[np.uint32],
        row: NDArray[np.int64],
    ) -> None:
        """Note a problem for each chunk whose bytes are not those that its name was made of."""
        for chunk, rows in groupby(wrong.tolist(), key=lambda at: int(number[at])):
            where: dict[str, None] = {}  # names of arrays, and indices of the chunk
            for at in rows:
                manifest, node = self._places[int(place[at])]
                index = self._assets.manifest(manifest)[node.id].table.index[int(row[at])]
                where[f"{node.path} {index.tolist()}"] = None
            more = f" and {len(where) - _NAMED} more" if len(where) > _NAMED else ""
            self.problems.append(
                Problem(
                    file=layout.chunk(id_at(used, chunk)),
                    code="chunk-bytes",
                    what="its bytes do not agree with its name, so"
                    f" {', '.join([*where][:_NAMED])}{more} reads wrong values or none: restore the"
                    " object from a copy, or write the chunk again",
                )
            )

    def _by_array(
        self, number: NDArray[np.int64], place: NDArray[np.uint32], state: NDArray[np.uint8]
    ) -> tuple[ArrayChunks, ...]:
        paths = sorted({node.path for _, node in self._places})
        numbers = {path: n for n, path in enumerate(paths)}
        array = np.array([numbers[node.path] for _, node in self._places], np.int64)[place]
        distinct = np.unique(np.stack([array, number], axis=1), axis=0)
        of_array, of_chunk = distinct.reshape(-1, 2).T
        counts = np.zeros((len(paths), len(_State)), np.int64)
        np.add.at(counts, (of_array, state[of_chunk]), 1)
        return tuple(
            ArrayChunks(path=path, intact=intact, damaged=damaged, unverifiable=unverifiable)
            for path, (intact, damaged, unverifiable) in zip(paths, counts.tolist(), strict=True)
        )


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


def check(
    repo: StorageLike,
    *,
    chunks: bool = False,
    record: bool = False,
    drop_empty: str | None = None,
) -> CheckReport:
    """Check every invariant of a repository and of all snapshots it lists.

    Args:
        repo: A storage, a path or a URL.
        chunks: Also read every native chunk, and compare its bytes with its name if the name is a
            digest, as in builds and in sessions with ``content_addressed_chunks=True``.
        record: With ``chunks``: list the chunks whose bytes agree with their names, so that later
            damage to them is reported. Writes to the repository.
        drop_empty: A branch. If references of its newest version have no bytes, which other clients
            could store and no client can read, first make a commit where these chunks are
            unwritten.

    Raises:
        RepositoryNotFoundError: No repository there.
        FormatError: Its repo info cannot be read at all.
        InvalidInputError: ``record`` without ``chunks``.
        RefNotFoundError: There is no branch of the name in ``drop_empty``.

    Examples:
        >>> icevirt.check("repo", chunks=True).ok
        True
    """
    if record and not chunks:
        raise InvalidInputError(
            "record=True needs chunks=True",
            do=write_remedy("Pass ", write_option("chunks", True), " as well."),
        )
    storage = storage_of(repo)
    if drop_empty is not None:
        from icevirt.repo.maintenance.empty_references import drop_empty_references

        drop_empty_references(storage, drop_empty)
    return _Check(storage, chunks=chunks, record=record).run()


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
        self._newest: set[ObjectId12] = set()  # manifests of the newest version of a branch

    def run(self) -> CheckReport:
        head = RepoInfoFile(self._storage)
        with without_old_format_warning():
            current = head.read()
        info = current.info
        if (old := old_of(current)) is not None:  # names of its chunks say nothing of their bytes
            if self._record:
                refuse_read_only(info)
            counted, self._references, self._problems = old.check(time.time_ns() // 1000)
            return replace(self._report(counted), generation=info.generation)
        if info.spec_version == 1:  # what is read one by one is read now
            whole = self._try("snapshots", partial(_read_whole, info))
            if whole is None:
                return self._report(0)
            info = whole
        self._check_info(head, info)
        self._check_snapshots(info)
        if self._bytes is None:
            return self._report(len(info.snapshots))
        lacking = np.unique(np.concatenate(self._lacking))
        chunks = self._bytes.compare(self._chunk_sizes, lacking, record=self._record)
        self._problems += self._bytes.problems
        return self._report(len(info.snapshots), chunks)

    def _report(self, snapshots: int, chunks: ChunksReport | None = None) -> CheckReport:
        return CheckReport(
            repo=self._storage.url,
            snapshots=snapshots,
            manifests=len(self._references),
            references=sum(self._references.values()),
            problems=tuple(dict.fromkeys(self._problems)),
            chunks=chunks,
        )

    def _check_info(self, head: RepoInfoFile, info: RepoInfo) -> None:
        """List the root, check the repo info, and that the ops log can be followed to its end.

        Of the chunks, which may be millions, columns are kept.
        """

        def chunks() -> Iterator[ObjectInfo]:
            for each in self._storage.list():
                if each.path.startswith(f"{layout.CHUNKS}/"):
                    yield each
                else:
                    self._sizes[each.path] = each.size

        self._chunk_sizes = ChunkSizes.of(chunks())
        self._problems += of_repo_info(info, time.time_ns() // 1000)
        if info.spec_version == 1:
            return
        for entry in info.latest_updates:
            if entry.backup_path is not None:
                path = layout.backup(entry.backup_path)
                if path not in self._sizes:
                    self._add(path, "missing", "the ops log names it")
        try:
            deque(walks.operations(head), maxlen=0)
        except IcevirtError as error:
            self._add(layout.REPO, "ops-log", str(error))
        self._check_left_of_v1(head, info)

    def _check_left_of_v1(self, head: RepoInfoFile, info: RepoInfo) -> None:
        """Report an upgrade that did not end, and changes of V1 clients after it."""
        try:
            left = find_left_behind(head, info)
        except IcevirtError as error:
            self._add(files.FOLDER, "v1-left", str(error))
            return
        if left is not None and left.edits:
            what = f"V1 clients made {len(left.edits)} changes that V2 lacks: run the upgrade again"
            self._add(files.FOLDER, "v1-changes", what)
        elif left is not None:
            what = "V1 branches remain, and V1 clients can still commit to them"
            self._add(files.FOLDER, "v1-left", what, advice=True)

    def _check_snapshots(self, info: RepoInfo) -> None:
        """Check snapshots with their logs and manifests, the newest first.

        So moved arrays have their current names.
        """
        config = RepositoryConfig.from_document(info.config)
        log = (entry.kind for entry in info.latest_updates)
        for tip in info.branches.values():
            if newest := self._try(layout.snapshot(tip), partial(self._assets.snapshot, tip)):
                self._newest |= {ref.object_id for n in newest.arrays() for ref in n.manifests}
        amended = {kind.new_snap_id for kind in log if isinstance(kind, CommitAmended)}
        for listed in sorted(info.snapshots.values(), key=lambda each: -each.flushed_at):
            path = layout.snapshot(listed.id)
            snapshot = self._try(path, partial(self._assets.snapshot, listed.id))
            if snapshot is None:
                continue
            self._problems += of_snapshot(snapshot, listed)
            self._check_manifests(snapshot, config)
            parent = None if listed.parent_id is None else info.snapshots.get(listed.parent_id)
            # V1 clients do not keep the log of a longer history
            is_first = parent is not None and parent.parent_id is None
            is_expired = is_first and self._is_v1(listed.id)
            # logs of amended commits are unions of several
            merged = listed.pruned_ancestor_tx_logs is not None or listed.id in amended
            self._check_log(listed.parent_id, snapshot, exact=not merged and not is_expired)

    def _is_v1(self, key: ObjectId12) -> bool:
        offset = header.FIELDS["spec_version"][0]
        return self._storage.get_range(layout.snapshot(key), offset=offset, length=1) == b"\1"

    def _check_log(self, parent: ObjectId12 | None, snapshot: Snapshot, *, exact: bool) -> None:
        path = layout.transaction_log(snapshot.id)
        if parent is None and path not in self._sizes and self._is_v1(snapshot.id):
            return  # V1 has none of the initial snapshot
        log = self._try(path, partial(self._assets.transaction_log, snapshot.id))
        before: Snapshot | None = snapshot
        if parent is not None:
            before = self._try(layout.snapshot(parent), partial(self._assets.snapshot, parent))
        if log is not None and before is not None and exact:
            self._problems += of_log(log, before, snapshot)

    def _check_manifests(self, snapshot: Snapshot, config: RepositoryConfig) -> None:
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
            if raw is None:
                continue
            if is_intact(raw) is False:
                what = "its bytes do not agree with its name: restore it from a copy"
                self._add(path, "manifest-bytes", what)
                continue
            manifest = self._try(path, partial(self._assets.decode_manifest, key, raw))
            if manifest is None:
                continue
            self._references[key] = manifest.num_chunk_refs
            self._compare_row(path, snapshot.manifest(key), manifest)
            for node, ref in windows:
                self._check_window(path, node, ref, manifest.arrays.get(node.id), config)

    def _compare_row(self, path: str, listed: ManifestFile | None, manifest: Manifest) -> None:
        """Readers fetch exactly ``size_bytes``, so a wrong size makes a manifest unreadable."""
        if listed is None:
            return
        size, count = self._sizes.get(path), manifest.num_chunk_refs
        if listed.size_bytes != size:
            what = f"it has {size} bytes, its snapshot says {listed.size_bytes}"
            self._add(path, "size", what)
        if listed.num_chunk_refs != count:
            self._add(
                path, "count", f"{count} references, its snapshot says {listed.num_chunk_refs}"
            )

    def _check_window(
        self,
        path: str,
        node: ArrayNode,
        ref: ManifestRef,
        table: ChunkTable | None,
        config: RepositoryConfig,
    ) -> None:
        """Check one array's table in a manifest, and that its native chunks are long enough."""
        # compressed locations are decompressed here, and may turn out to be damaged
        found = partial(list[Problem], of_window(node, ref, table, config))
        problems = self._try(path, found)
        for problem in problems or ():
            is_old = problem.code == EMPTY and ref.object_id not in self._newest
            self._problems.append(replace(problem, advice=True) if is_old else problem)
        if table is None or problems is None:
            return
        used = np.unique(table.source[table.kind == ChunkType.virtual])
        if (odd := find_unreadable(table.locations.url[used])) is not None:
            self._add(path, "location", f"a reference of {node.path} can never be read: {odd}")
        lacking = self._chunk_sizes.lacking(table)
        self._lacking.append(lacking.ids)
        sizes = zip(lacking.sizes.tolist(), lacking.needed.tolist(), strict=True)
        for at, (size, needed) in enumerate(sizes):
            name, there = layout.chunk(id_at(lacking.ids, at)), None if size < 0 else size
            self._add(path, "chunk", f"{name} has {there} bytes, but references need {needed}")
        if self._bytes is not None:
            self._bytes.add(ref.object_id, node, table)

    def _add(self, file: str, code: str, what: str, *, advice: bool = False) -> None:
        self._problems.append(Problem(file=file, code=code, what=what, advice=advice))

    def _try[T](self, path: str, fetch: Callable[[], T]) -> T | None:
        try:
            return fetch()
        except IcevirtError as error:
            self._add(path, error.code, str(error))
            return None


def _read_whole(info: RepoInfo) -> RepoInfo:
    return info._replace(
        branches=dict(sorted(info.branches.items())),
        tags=dict(sorted(info.tags.items())),
        snapshots=dict(sorted(info.snapshots.items())),
    )
