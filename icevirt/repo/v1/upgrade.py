"""Upgrade V1 to V2 in place: create `repo`, and keep snapshots, manifests and chunks.

`repo` is created when everything else about it is known: until then the repository is V1, from then
on V2. Then V1 clients are shut out: each branch is sealed in place by a conditional write, and
commits that V2 lacks are carried over. So a V1 commit is acknowledged before and gets into V2, or
it fails. The next upgrade continues a killed one. Seals do not stop official writers on local disk,
which overwrite unconditionally.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field

from icevirt.errors import ConflictError, IcevirtError, ObjectNotFoundError, StorageError
from icevirt.escaping import Pictured
from icevirt.ids import ObjectId12
from icevirt.model.repo_info import Lazy, RepoInfo, SnapshotSummary, UpdateKind
from icevirt.repo.history import walks
from icevirt.repo.repo_info_file import RepoInfoFile, RepoState, pause
from icevirt.repo.v1.files import V1Files, V1RepoState
from icevirt.storage.protocol import ObjectInfo, Storage
from icevirt.threads import Threads
from icevirt.versioning.repo_updates import MAIN
from icevirt.versioning.v1_migration import (
    CarriedChanges,
    V1State,
    carry,
    migrate,
    refuse_incomplete,
)
from icevirt.wire.ref import Ref

PREFETCH = 64
"""Snapshots that are read side by side."""
_TRIES = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class UpgradeReport(Pictured):
    """The outcome of an upgrade, or of its dry run."""

    repo: str  # URL
    dry_run: bool
    from_version: int  # 2: it had been upgraded before
    snapshots: int  # that the repository has now, or would have
    branches: int
    tags: int
    commits_carried_over: int  # of V1 clients, made while or after it was upgraded
    v1_files_left: bool


def upgrade(
    head: RepoInfoFile,
    *,
    dry_run: bool,
    delete_unused_v1_files: bool,
    prefetch_concurrency: int = PREFETCH,
) -> UpgradeReport:
    """Upgrade a V1 repository to V2, or go on with an upgrade that was interrupted.

    Raises:
        ConflictError: V1 and V2 clients committed to one branch side by side. Both are kept, those
            of V1 on branches of their own; all else is done.
        FormatError: Something of the repository is damaged, or a snapshot dated in the future.
        StorageError: Other writers were faster too often.
    """
    return _Upgrade(head, delete=delete_unused_v1_files).run(dry_run, prefetch_concurrency)


def find_left_behind(head: RepoInfoFile, info: RepoInfo) -> CarriedChanges | None:
    """Say what V1 clients did that a V2 repository lacks; None where nothing of V1 is left."""
    files = V1Files(head.storage, {})
    return None if files.is_empty() else carry(info, _past(head), _state(files, lazily=True))


def refuse_left_behind(head: RepoInfoFile, info: RepoInfo, what: str) -> None:
    """Check that V2 has all that V1 clients committed. Raises ``ConflictError``."""
    left = find_left_behind(head, info)
    if left is not None and left.commits:
        raise ConflictError(
            f"V1 clients committed after this repository was upgraded: {what} would delete their "
            "commits",
            do="Carry them over: run the upgrade again, `repo.upgrade()`.",
            commits=left.commits,
        )


@dataclass(slots=True)
class _Upgrade:
    head: RepoInfoFile
    delete: bool
    carried: int = 0
    aside: dict[str, str] = field(default_factory=dict)
    known: dict[ObjectId12, SnapshotSummary] = field(default_factory=dict)
    storage: Storage = field(init=False)

    def __post_init__(self) -> None:
        self.storage = self.head.storage

    def run(self, dry_run: bool, prefetch_concurrency: int) -> UpgradeReport:
        current = self.head.read()
        if isinstance(current, V1RepoState):
            self._prefetch(prefetch_concurrency)
        first = current.info
        at: RepoState = current
        while isinstance(at, V1RepoState):
            state = _state(V1Files(self.storage, self.known))
            if MAIN in state.branches:
                first = migrate(state, self.head.now())
                break
            at = self.head.read()  # another upgrade took it over in this moment
            first = at.info
        if dry_run:
            return self._report(current, first, dry_run=True)
        if isinstance(current, V1RepoState):
            self.head.create(first)  # None: another upgrade was faster, and this one goes on
        self._finish()
        if self.aside:
            raise ConflictError(
                "V1 clients committed to branches that V2 clients had committed to: the repository"
                " was upgraded, and the commits of V1 are on branches of their own",
                do="Repeat their changes in sessions, then delete those branches.",
                branches=self.aside,
            )
        return self._report(current, self.head.read().info, dry_run=False)

    def _prefetch(self, concurrency: int) -> None:
        """Read all snapshots side by side; each names its parent, so a walk reads one at a time."""
        files = V1Files(self.storage, self.known)

        def fetch(listed: ObjectInfo) -> None:
            with suppress(ValueError, IcevirtError):  # foreign files; needed ones are read again
                files.snapshot(ObjectId12.parse(listed.path.rpartition("/")[2]))

        with Threads(max(1, concurrency), "icevirt-upgrade") as pool:
            for _ in pool.map(fetch, self.storage.list("snapshots")):
                pass

    def _finish(self) -> None:
        """Carry over what V1 clients did, and remove the V1 objects, until there are none."""
        for attempt in range(_TRIES):
            files = V1Files(self.storage, self.known)
            if files.is_empty():
                return
            if self.delete and not self._seal(files):
                continue
            what = carry(self.head.read().info, _past(self.head), _state(files, lazily=True))
            try:
                if what.edits:
                    self.head.update(*what.edits)
            except ConflictError:  # V2 clients changed it meanwhile
                pause(attempt)
                continue
            self.carried += what.commits
            self.aside |= what.aside
            if not self.delete:
                return
            now = V1Files(self.storage, self.known)
            if now.paths == files.paths and all(now.is_sealed(name) for name in now.branches):
                files.forget()  # nothing has changed since, but for the seals
        raise StorageError(
            "other clients changed the repository before every attempt to finish the upgrade",
            do="Stop them, then run the upgrade again: it continues.",
            tries=_TRIES,
        )

    def _seal(self, files: V1Files) -> bool:
        """Close each branch for V1 clients where it is now; False when one of them was faster."""
        done = True
        for name in sorted(files.branches, key=lambda name: (name != MAIN, name)):
            tip = files.branch(name)
            done &= tip is not None and (
                files.is_sealed(name) or files.put_branch(name, Ref(tip, sealed=True))
            )
        return done

    def _report(self, before: RepoState, after: RepoInfo, *, dry_run: bool) -> UpgradeReport:
        return UpgradeReport(
            repo=self.storage.url,
            dry_run=dry_run,
            from_version=before.info.spec_version,
            snapshots=len(after.snapshots),
            branches=len(after.branches),
            tags=len(after.tags),
            commits_carried_over=self.carried,
            v1_files_left=not V1Files(self.storage, self.known).is_empty(),
        )


def _state(files: V1Files, *, lazily: bool = False) -> V1State:
    """Return what the V1 objects say; lazily, without walking through all snapshots.

    Raises:
        FormatError: A snapshot is damaged, or not lazily, one that is referred to is gone.
    """
    tags = {name: key for name in files.tags if (key := files.tag(name)) is not None}
    deleted = {name: files.find_deleted_tag(name) for name in sorted(files.deleted_tags)}
    config = files.config() or None
    # branches last: what is committed to them from here on has to be carried over
    branches = {name: key for name in files.branches if (key := files.branch(name)) is not None}
    snapshots = Lazy(files.snapshot, files.reachable)
    state = V1State(
        branches=branches,
        tags=tags,
        deleted_tags=deleted,
        snapshots=snapshots if lazily else dict(sorted(snapshots.items())),
        config=config,
    )
    if not lazily:
        refuse_incomplete(state)
    return state


def _past(head: RepoInfoFile) -> list[UpdateKind]:
    """Return the ops log as far back as it can be read."""
    found: list[UpdateKind] = []
    with suppress(ObjectNotFoundError):  # backups may be trimmed
        for entry in walks.operations(head):
            found.append(entry.kind)  # noqa: PERF401 - what came before an error counts
    return found
