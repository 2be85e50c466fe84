"""Present a V1 repository as V2's repo info, and apply V2's edits to it.

Promises that a commit is acknowledged only if the branch was still where the session began, and
that what V1 cannot express is refused. Two edits at once are two writes here: a process killed in
between leaves the first.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from icevirt.errors import FormatError, ObjectNotFoundError
from icevirt.model.config.document import refuse_unconditional
from icevirt.model.repo_info import (
    BranchCreated,
    BranchDeleted,
    BranchReset,
    ConfigChanged,
    ExpirationRan,
    Lazy,
    NewCommit,
    NewDetachedSnapshot,
    RepoAvailability,
    RepoInfo,
    StatusRecord,
    TagCreated,
    TagDeleted,
    UpdateKind,
)
from icevirt.repo import layout
from icevirt.repo.assets import Assets
from icevirt.repo.v1.files import V1Files
from icevirt.storage.protocol import Storage
from icevirt.versioning.repo_updates import MAIN, Edit
from icevirt.versioning.v1_migration import refuse_update
from icevirt.wire.ref import Ref


@dataclass(frozen=True, slots=True)
class V1RepoState:
    """A V1 repository as it was read; parts that nothing used yet are read later."""

    info: RepoInfo
    files: V1Files
    storage: Storage

    def swap(self, edits: tuple[Edit, ...]) -> RepoInfo | None:
        """Make edits one after the other; None if another writer was faster.

        Raises:
            FormatError: The V1 format cannot express one, or an upgrade took the repository over
                and its result is gone.
            StorageError: Other writers would overwrite this one.
        """
        info = self.info
        for edit in edits:
            if (done := edit(info)) is None:
                continue
            after, kind = done
            refuse_update(info, kind)
            refuse_unconditional(after.config, self.storage.url)
            if not self._write(after, kind) and not self._is_built_upon(after, kind):
                self._refuse_half()
                return None
            info = after
        return info

    def _write(self, after: RepoInfo, kind: UpdateKind) -> bool:  # noqa: PLR0911 - one each
        match kind:
            case NewCommit(branch=name) | BranchCreated(name) | BranchReset(name):
                return self.files.put_branch(name, Ref(after.branches[name]))
            case BranchDeleted(name):
                self.files.delete_branch(name)
                return True
            case TagCreated(name):
                return self.files.create_tag(name, after.tags[name])
            case TagDeleted(name):
                return self.files.delete_tag(name)
            case ConfigChanged():
                return self.files.put_config(after.config or {})
            case NewDetachedSnapshot():
                return True  # its file is all there is
            case ExpirationRan():
                self._expire(after)
                return True
            case _:
                raise AssertionError(kind)  # pragma: no cover - `refuse_update` refuses the others

    def _expire(self, after: RepoInfo) -> None:
        """Delete the branches and tags that go, then give survivors their new parents.

        Each write leaves a repository that reads as before, so that it can be repeated.
        """
        for name in self.info.branches.keys() - after.branches.keys():
            self.files.delete_branch(name)
        for name in self.info.tags.keys() - after.tags.keys():
            self.files.delete_tag(name)
        assets = Assets(self.storage, cache_bytes=0, spec_version=1)
        for key, summary in after.snapshots.items():
            if summary.parent_id != self.info.snapshots[key].parent_id:
                assets.put_snapshot(replace(assets.snapshot(key), parent_id=summary.parent_id))
                self.files.forget_snapshot(key)

    def _is_built_upon(self, after: RepoInfo, kind: UpdateKind) -> bool:
        """Say whether a commit whose answer got lost is in the history of what others committed."""
        if not self.files.is_unsure or not isinstance(kind, NewCommit):
            return False
        now = V1Files(self.storage, {})
        at, base = now.branch(kind.branch), after.snapshots[kind.new_snap_id].parent_id
        seen = {kind.new_snap_id, base}
        while at is not None and at not in seen:
            seen.add(at)  # parents that form a cycle end there
            found = now.snapshot(at)
            at = None if found is None else found.parent_id
        return at == kind.new_snap_id

    def _refuse_half(self) -> None:
        """Check that an upgrade which took over the branches left `repo`.

        Raises:
            FormatError: They were taken over, and `repo` is not there.
        """
        if self.files.is_sealed(MAIN):
            try:
                self.storage.get(layout.REPO)
            except ObjectNotFoundError as error:
                raise FormatError(
                    "the object `repo` of this upgraded repository was deleted",
                    do="Restore it from a copy or the newest file below `overwritten/`; or upgrade"
                    " the repository again as it was before.",
                    repo=self.storage.url,
                ) from error


def state_of(files: V1Files, storage: Storage) -> V1RepoState | None:
    """Read a V1 repository; None where there is none."""
    if MAIN not in files.branches:
        return None
    config = files.config()
    info = RepoInfo(
        spec_version=1,
        tags=Lazy(files.tag, lambda: files.tags),
        branches=Lazy(files.branch, lambda: files.branches),
        deleted_tags=files.deleted_tags,
        snapshots=Lazy(files.snapshot, files.reachable),
        status=StatusRecord(availability=RepoAvailability.online, set_at=0),
        latest_updates=(),
        config=config or None,
    )
    return V1RepoState(info, files, storage)
