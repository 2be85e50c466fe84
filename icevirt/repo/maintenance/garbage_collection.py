"""Delete old files that no branch or tag refers to, and old entries of the ops log.

The repo info drops unreachable snapshots, then every kept file is read, and only if all could be
read are files deleted. V1 has no repo info: there snapshots stay that branches and tags lead to, or
that are young. Memory is bounded by one manifest and the ids of files. Files not named like an
object of the format belong to other programs and stay, as does the work folder of builds.

The ops log is cut first, in `repo` and in the backups that stay, and files are deleted last: a
process killed in between leaves backups that nothing leads to, and the next trimming deletes them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from itertools import batched, takewhile
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from icevirt.errors import ConflictError, FormatError, ObjectNotFoundError, StorageError
from icevirt.ids import INITIAL_SNAPSHOT_ID, ObjectId12
from icevirt.model.chunks import ChunkType
from icevirt.model.repo_info import RepoInfo, SnapshotSummary, UpdateKind
from icevirt.model.updates import GCRan
from icevirt.repo import layout
from icevirt.repo.assets import Assets
from icevirt.repo.maintenance import content_names
from icevirt.repo.maintenance.chunk_sizes import ChunkSizes
from icevirt.repo.repo_info_file import RepoInfoFile, refuse_read_only
from icevirt.storage.protocol import ObjectInfo, Written
from icevirt.versioning.history import garbage_collection, ops_log
from icevirt.versioning.history.garbage_collection import Candidates
from icevirt.versioning.history.timestamps import is_old
from icevirt.versioning.id_columns import ID, column, of_rows, places
from icevirt.versioning.repo_updates import Edit
from icevirt.versioning.v1_migration import refuse_v1
from icevirt.wire.repo_info import file


@dataclass(frozen=True, slots=True, kw_only=True)
class GCSummary:
    """What was deleted, or would be deleted."""

    bytes_deleted: int = 0
    snapshots_deleted: int = 0
    transaction_logs_deleted: int = 0
    manifests_deleted: int = 0
    chunks_deleted: int = 0
    bytes_by_kind: Mapping[str, int] = field(default_factory=dict, compare=False, repr=False)
    refused: int = field(default=0, compare=False, repr=False)  # objects that the storage kept
    throttled: int = field(default=0, compare=False, repr=False)  # requests that were repeated
    reasons: tuple[str, ...] = field(default=(), compare=False, repr=False)
    left_out: tuple[str, ...] = field(default=(), compare=False, repr=False)  # kinds, therefore

    def check(self, url: str) -> None:
        """Raise ``StorageError`` where the storage kept some of it."""
        if self.refused:
            raise StorageError(
                "the storage refused to delete objects; what may refer to them was left, too",
                do="Look at the reasons, let the credentials delete objects, and run it again:"
                " it goes on with what is left.",
                repo=url,
                refused=self.refused,
                reasons=list(self.reasons),
                left_out=list(self.left_out),
                bytes_deleted=self.bytes_deleted,
            )


class Deletion(NamedTuple):
    """What was deleted of some files, or would be."""

    number: int = 0
    freed: int = 0  # bytes
    refused: int = 0
    reasons: tuple[str, ...] = ()
    throttled: int = 0

    def plus(self, other: Deletion) -> Deletion:
        """Return both, with a few of the reasons."""
        reasons = tuple(dict.fromkeys(self.reasons + other.reasons))[:_REASONS]
        return Deletion(
            self.number + other.number,
            self.freed + other.freed,
            self.refused + other.refused,
            reasons,
            self.throttled + other.throttled,
        )


_REASONS = 10


class ChunkSweeper(Protocol):
    """Finds and deletes the chunks that no manifest refers to."""

    def look(self, manifests: Collection[ObjectId12]) -> None:
        """Read the manifests that are kept. Raises before anything is deleted."""

    def sweep(self, older_than: int, *, dry_run: bool) -> Deletion:
        """Delete old chunks that none of them refers to."""


def collect(
    assets: Assets,
    head: RepoInfoFile,
    older_than: int,
    *,
    dry_run: bool,
    before: Sequence[Edit] = (),
    roots: Roots | None = None,
    sweeper: ChunkSweeper | None = None,
) -> GCSummary:
    """Delete the garbage that was written before a time, and count it.

    The storage's times of the files say what is older, also of snapshots. Where it keeps a file of
    one kind, those that it may refer to stay as well.

    Args:
        assets: Of the repository.
        head: Of the repository.
        older_than: Microseconds since 1970.
        dry_run: Only count.
        before: Edits of the repo info that are made in the same write, like an expiry.
        roots: Returns further snapshots that stay, with their ancestors.
        sweeper: Looks for chunks; this process by default.

    Raises:
        ReadOnlyError: The repository is read-only.
        FormatError: Something that is kept cannot be read; no file was deleted.
        ConflictError: In V1, a branch or tag was set to garbage meanwhile; no file was deleted.
    """
    is_v1 = head.read().info.spec_version == 1
    written = {key: is_old(at, older_than) for key, at in _times(assets, layout.snapshot)}
    chunks = ChunksHere(assets) if sweeper is None else sweeper
    # listed first: what is written from now on is not in the list, and what is committed until
    # the repo info is rewritten is kept
    old = {
        path: Candidates.of(
            (key for key, is_garbage in written.items() if is_garbage)
            if path is layout.snapshot
            else (key for key, _ in _old(assets, path, older_than))
        )
        for path in _NAMES
    }
    kept = (
        _find_kept_of_v1(assets, head, older_than - head.watch.lag)
        if is_v1
        else _forget(head, older_than, written, before, roots, dry_run=dry_run)
    )
    manifests: set[ObjectId12] = set()
    for key in kept:
        manifests.update(file.id for file in assets.snapshot(key).manifest_files)
    chunks.look(manifests)
    if is_v1:
        _refuse_revived(head, kept)
    needed = {  # in the order that leaves nothing dangling
        layout.snapshot: kept.keys(),
        layout.transaction_log: garbage_collection.find_needed_logs(kept),
        layout.manifest: manifests,
    }
    done: dict[str, Deletion] = {}
    surely = older_than - head.watch.lag  # by the storage's clock, which dates the files
    for path, ids in needed.items():
        candidates = old[path].without(column(ids))
        # their age is looked at once more right before: what is named by its content may have been
        # written again since it was listed first
        batches = (
            (candidates.among([key for key, _ in batch]), dict(batch))
            for batch in batched(_old(assets, path, surely), _AT_ONCE)
        )
        if not _is_refused(done):
            done[_NAMES[path]] = _delete(assets, path, batches, dry_run=dry_run)
    if not _is_refused(done):
        done["chunks"] = chunks.sweep(surely, dry_run=dry_run)
    if not dry_run and next(iter(assets.storage.list(layout.CONTENT_NAMES)), None) is not None:
        left = ChunkSizes.of(assets.storage.list(layout.CHUNKS))
        content_names.compact(assets.storage, left.ids, surely)
    total = reduce(Deletion.plus, done.values())
    names = (*_NAMES.values(), "chunks")
    return GCSummary(
        bytes_deleted=total.freed,
        bytes_by_kind={_WORDS.get(name, name): each.freed for name, each in done.items()},
        refused=total.refused,
        reasons=total.reasons,
        throttled=total.throttled,
        left_out=tuple(name for name in names if name not in done),
        **{f"{name}_deleted": each.number for name, each in done.items()},
    )


def _is_refused(done: Mapping[str, Deletion]) -> bool:
    return any(each.refused for each in done.values())


def _forget(
    head: RepoInfoFile,
    older_than: int,
    written: Mapping[ObjectId12, bool],
    before: Sequence[Edit],
    roots: Roots | None,
    *,
    dry_run: bool,
) -> Mapping[ObjectId12, SnapshotSummary]:
    """Take unreachable snapshots out of the repo info; return what is left, or would be."""

    def edit(info: RepoInfo) -> tuple[RepoInfo, UpdateKind]:
        spared = () if roots is None else roots(info)
        return garbage_collection.sweep(info, older_than, spared, written), GCRan()

    if not dry_run:
        return head.update(*before, edit).snapshots
    info = head.read().info
    refuse_read_only(info)
    for each in (*before, edit):
        if (done := each(info)) is not None:
            info, _ = done
    return info.snapshots


def _refuse_revived(head: RepoInfoFile, kept: Collection[ObjectId12]) -> None:
    """Check that no branch or tag of a V1 repository came to name a snapshot that is garbage."""
    info = head.read().info
    for name, tip in (*info.branches.items(), *info.tags.items()):
        if tip not in kept:
            raise ConflictError(
                "a branch or tag was set to a snapshot that was about to be deleted",
                do="Collect garbage again; nothing was deleted.",
                name=name,
                snapshot=str(tip),
            )


def _delete(
    assets: Assets,
    path: _Path,
    batches: Iterable[tuple[Sequence[ObjectId12], Mapping[ObjectId12, int]]],
    *,
    dry_run: bool,
) -> Deletion:
    done = Deletion()
    for going, sizes in batches:
        before = getattr(assets.storage, "throttled", 0)  # disks never do
        left: set[str] = set()
        reasons: tuple[str, ...] = ()
        if going and not dry_run:
            try:
                assets.storage.delete_many([path(key) for key in going])
            except StorageError as error:
                left, reasons = _find_left(assets, [path(key) for key in going]), (str(error),)
                if not left:  # another process deletes here too
                    reasons = ()
        gone = [key for key in going if path(key) not in left]
        freed = sum(sizes[key] for key in gone)
        throttled = getattr(assets.storage, "throttled", 0) - before
        done = done.plus(Deletion(len(gone), freed, len(left), reasons, throttled))
    return done


def _find_left(assets: Assets, paths: Sequence[str]) -> set[str]:
    """Return the files of one kind that are still there."""
    wanted, last = {*paths}, max(paths)
    folder, before = paths[0].partition("/")[0], min(paths)[:-1]
    found = (each.path for each in assets.storage.list(folder, after=before))
    return {each for each in takewhile(lambda each: each <= last, found) if each in wanted}


def _find_kept_of_v1(
    assets: Assets, head: RepoInfoFile, older_than: int
) -> dict[ObjectId12, SnapshotSummary]:
    """Return the snapshots of a V1 repository that stay: of branches, tags, young files, ancestors.

    Files are listed before branches are read: a commit in between has young files.
    """
    written = {key: is_old(at, older_than) for key, at in _times(assets, layout.snapshot)}
    young = [key for key, is_garbage in written.items() if not is_garbage]
    info = head.read().info
    try:
        return garbage_collection.reachable(info, older_than, young, written)
    except KeyError as error:
        raise FormatError(
            "a snapshot that branches or tags lead to is missing, so nothing was deleted",
            do="Look for damage by `icevirt check`.",
            snapshot=str(error.args[0]),
            repo=head.storage.url,
        ) from error


type Roots = Callable[[RepoInfo], Collection[ObjectId12]]
type _Path = Callable[[ObjectId12], str]

_AT_ONCE = 1000  # files between a look at their age and the end of their deletion

_NAMES: Mapping[_Path, str] = {
    layout.snapshot: "snapshots",
    layout.transaction_log: "transaction_logs",
    layout.manifest: "manifests",
}
_WORDS = {"transaction_logs": "transaction logs", "chunks": "native chunks"}


def _times(assets: Assets, path: _Path) -> Iterator[tuple[ObjectId12, int]]:
    """Yield the files of one kind with their times of change."""
    return ((key, found.last_modified) for key, found in _files_of(assets, path, (b"", b"")))


def _old(
    assets: Assets, path: _Path, older_than: int, ids: IdRange = (b"", b"")
) -> Iterator[tuple[ObjectId12, int]]:
    """Yield the files of one kind that are old enough, with their sizes, in a range of ids."""
    return _files(assets, path, lambda at: is_old(at, older_than), ids)


def _files(
    assets: Assets, path: _Path, fits: Callable[[int], bool], ids: IdRange = (b"", b"")
) -> Iterator[tuple[ObjectId12, int]]:
    """Yield the files of one kind whose time of change fits, with their sizes; see `_old`."""
    for key, found in _files_of(assets, path, ids):
        if fits(found.last_modified):
            yield key, found.size


def _files_of(assets: Assets, path: _Path, ids: IdRange) -> Iterator[tuple[ObjectId12, ObjectInfo]]:
    first, stop = (path(ObjectId12(each.ljust(12, b"\0"))) if each else "" for each in ids)
    folder = path(INITIAL_SNAPSHOT_ID).partition("/")[0]
    # what lies behind a name less its last letter begins with that name; "-" sorts before all names
    after = first[:-1] if first else f"{folder}/-" if stop else ""
    behind = {"after": after} if after else {}
    for found in assets.storage.list(folder, **behind):
        if stop and found.path >= stop:
            return
        try:
            key = ObjectId12.parse(found.path.removeprefix(folder + "/"))
        except ValueError:
            continue  # of another program
        if path(key) == found.path:
            yield key, found


# -- chunks ---------------------------------------------------------------------------------------

type IdRange = tuple[bytes, bytes]
"""Where a range of ids begins, and before what it ends; b"" for no limit."""


def chunks_of(assets: Assets, manifests: Iterable[ObjectId12]) -> NDArray[np.void]:
    """Return the native chunks that manifests refer to, ascending, reading one at a time."""
    found = [np.zeros(0, ID)]
    for key in sorted(manifests):
        for table in assets.read_manifest(key).arrays.values():
            native = np.unique(table.source[table.kind == ChunkType.native])
            found.append(np.unique(of_rows(table.chunk_ids[native])))
    return np.unique(np.concatenate(found))


def sweep_chunks(
    assets: Assets,
    needed: NDArray[np.void],
    older_than: int,
    *,
    ids: IdRange = (b"", b""),
    dry_run: bool,
) -> Deletion:
    """Delete old chunks in a range of ids, but for ``needed``, which ascend."""

    def batches() -> Iterator[tuple[list[ObjectId12], dict[ObjectId12, int]]]:
        for batch in batched(_old(assets, layout.chunk, older_than, ids), _AT_ONCE):
            keys = [key for key, _ in batch]
            there = places(needed, column(keys)) >= 0
            yield [keys[at] for at in np.flatnonzero(~there).tolist()], dict(batch)

    return _delete(assets, layout.chunk, batches(), dry_run=dry_run)


class ChunksHere:
    """Looks for chunks in this process."""

    def __init__(self, assets: Assets) -> None:
        self._assets = assets
        self._find_needed: NDArray[np.void] | None = None

    def look(self, manifests: Collection[ObjectId12]) -> None:
        """Read the manifests that are kept, unless there are no chunks at all."""
        if next(iter(self._assets.storage.list(layout.CHUNKS)), None) is not None:
            self._find_needed = chunks_of(self._assets, manifests)

    def sweep(self, older_than: int, *, dry_run: bool) -> Deletion:
        """Delete old chunks that none of them refers to."""
        if self._find_needed is None:
            return Deletion()
        return sweep_chunks(self._assets, self._find_needed, older_than, dry_run=dry_run)


_FOLDER = layout.backup("").rstrip("/")


@dataclass(frozen=True, slots=True, kw_only=True)
class OpsLogTrimSummary:
    """What was deleted, or would be deleted."""

    backups_deleted: int = 0
    bytes_deleted: int = 0


def trim(head: RepoInfoFile, older_than: int, *, dry_run: bool) -> OpsLogTrimSummary:
    """Forget entries of the ops log before a time, and delete backups that nothing leads to.

    Raises:
        ReadOnlyError: The repository is read-only.
        FormatError: A backup that continues the log is damaged or missing; none was deleted.
    """
    # listed first: a backup that another writer makes from now on is not in the list
    listed = {info.path.removeprefix(f"{_FOLDER}/"): info for info in head.storage.list(_FOLDER)}
    old = {
        name: info.size
        for name, info in listed.items()
        if ops_log.is_backup(name) and is_old(info.last_modified, older_than)
    }
    info = _cut(head, older_than, dry_run=dry_run)
    while (needed := _find_needed(head, info, older_than, dry_run)) is None:
        now = head.read().info
        if now.latest_updates == info.latest_updates:  # no other process trimmed it meanwhile
            raise FormatError(
                "the ops log leads to a backup that is missing; nothing was deleted",
                do="Restore it from a copy, or trim the log up to a later time.",
                repo=head.storage.url,
            )
        info = now
    unused = {name: size for name, size in old.items() if name not in needed}
    if not dry_run:
        head.storage.delete_many([layout.backup(name) for name in unused])
    return OpsLogTrimSummary(backups_deleted=len(unused), bytes_deleted=sum(unused.values()))


def _cut(head: RepoInfoFile, older_than: int, *, dry_run: bool) -> RepoInfo:
    """Cut the log that is in `repo`; return what is there then, or would be.

    `repo` is written even if nothing is cut: a writer who made a backup before the listing and has
    not replaced `repo` yet is too late then, and begins again with another backup.
    """

    def edit(info: RepoInfo) -> tuple[RepoInfo, GCRan]:
        refuse_v1(info, "trimming the ops log")
        return ops_log.trim(info, older_than) or info, GCRan()

    if not dry_run:
        return head.update(edit)
    info = head.read_v2("trimming the ops log").info
    refuse_read_only(info)
    return ops_log.trim(info, older_than) or info


def _find_needed(
    head: RepoInfoFile, info: RepoInfo, older_than: int, dry_run: bool
) -> set[str] | None:
    """Return the backups that the kept log leads to, now or once `repo` overflows into them.

    Each of them holds the log as it was then, and is cut too. None: one is missing.
    """
    found: set[str] = set()
    left = [*ops_log.backups_of(info)]
    while left:
        if (name := left.pop()) in found:
            continue
        found.add(name)
        try:
            left += ops_log.backups_of(_cut_backup(head, name, older_than, dry_run))
        except ObjectNotFoundError:
            return None
    return found


def _cut_backup(head: RepoInfoFile, name: str, older_than: int, dry_run: bool) -> RepoInfo:
    """Cut the log in a backup; return what is there then, or would be.

    Another process that trims at the same time may have cut more, and deleted backups already: what
    is written here never brings them back.
    """
    path = layout.backup(ops_log.check_backup(name))
    while True:
        raw, version = head.storage.get_versioned(path)
        before = file.decode(raw)
        cut = ops_log.trim(before, older_than) or before
        if cut == before or dry_run:
            return cut
        outcome = head.storage.put_if(path, file.encode(cut), was=version)
        if isinstance(outcome, Written):
            return cut
