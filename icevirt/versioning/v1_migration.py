"""Convert V1 repositories for the upgrade to V2, and refuse what they cannot do. Pure.

The repo info of V2 begins with a history made from the snapshots, as the official client makes it.
Later V1 commits are carried over by edits: on top of the branch if it is still where they found it,
and on a branch of their own if V2 clients committed there.
"""

from __future__ import annotations

from collections.abc import Collection, Container, Iterator, Mapping
from dataclasses import dataclass, field

from icevirt.errors import ConflictError, FormatError, SpecVersionError
from icevirt.ids import ObjectId12
from icevirt.model import updates as kinds
from icevirt.model.config.document import persistable
from icevirt.model.json import JSONObject
from icevirt.model.repo_info import (
    OpsLogEntry,
    RepoAvailability,
    RepoInfo,
    SnapshotSummary,
    StatusRecord,
    UpdateKind,
)
from icevirt.versioning import repo_updates as edits
from icevirt.versioning.history.timestamps import stamp
from icevirt.versioning.repo_updates import MAIN, Edit

_MILLISECOND = 1000  # between a snapshot and a branch or tag made for it
_NEED_V2: dict[type[UpdateKind], str] = {
    kinds.MetadataChanged: "metadata of a repository",
    kinds.CommitAmended: "amending a commit",
    kinds.FeatureFlagChanged: "feature flags",
    kinds.RepoStatusChanged: "making a repository read-only",
}


def refuse_v1(info: RepoInfo, what: str) -> None:
    """Check that a repository is not of the V1 format.

    Raises:
        FormatError: It is; ``what`` would need more.
        ReadOnlyError: It is even older.
    """
    if info.old is not None:
        info.old.refuse()
    if info.spec_version == 1:
        raise SpecVersionError(
            f"this repository has the V1 format, and {what} needs the V2 format",
            do="Upgrade it: icevirt.upgrade_icechunk_repository(repo, dry_run=False).",
        )


def refuse_update(info: RepoInfo, kind: UpdateKind) -> None:
    """Check that a V1 repository can express an update. Raises ``FormatError``."""
    if (what := _NEED_V2.get(type(kind))) is not None:
        refuse_v1(info, what)


@dataclass(frozen=True, slots=True, kw_only=True)
class V1State:
    """What the mutable objects of a V1 repository say."""

    branches: Mapping[str, ObjectId12]
    tags: Mapping[str, ObjectId12]
    deleted_tags: Mapping[str, ObjectId12 | None]  # what they named, if that is still known
    snapshots: Mapping[ObjectId12, SnapshotSummary]  # all that branches and tags lead to
    config: JSONObject | None
    lines: Mapping[str, tuple[ObjectId12, ...]] = field(default_factory=dict)
    """Where each branch was, oldest first, as generations before V1 recorded it."""


def migrate(state: V1State, now: int) -> RepoInfo:
    """Return the repo info of V2 that says the same.

    Raises:
        StorageError: The newest snapshot is dated too far in the future.
    """
    log: list[OpsLogEntry] = []
    for at, kind in sorted(_kinds_of(state), key=lambda event: event[0]):  # no two at one time
        last = log[-1].updated_at if log else -1
        log.append(OpsLogEntry(kind=kind, updated_at=max(at, last + 1)))
    top = log[-1].updated_at
    log.append(OpsLogEntry(kind=kinds.RepoMigrated(1, 2), updated_at=stamp(now, top=top)))
    return RepoInfo(
        branches=dict(state.branches),
        tags=dict(state.tags),
        deleted_tags=frozenset(state.deleted_tags),
        snapshots=dict(state.snapshots),
        status=StatusRecord(availability=RepoAvailability.online, set_at=_root(state).flushed_at),
        metadata={},
        latest_updates=tuple(reversed(log)),
        config=persistable(state.config) if state.config else None,
    )


def refuse_incomplete(state: V1State) -> None:
    """Check that every snapshot is there that branches, tags and other snapshots refer to.

    Raises:
        FormatError: One is not.
    """
    wanted: dict[ObjectId12, str] = {
        summary.parent_id: f"snapshot {key}"
        for key, summary in state.snapshots.items()
        if summary.parent_id is not None
    }
    wanted |= {key: f"tag {name!r}" for name, key in state.tags.items()}
    wanted |= {key: f"branch {name!r}" for name, key in state.branches.items()}
    for key, who in wanted.items():
        if key not in state.snapshots:
            raise FormatError(
                "a snapshot is missing from the V1 repository",
                do="Restore its file from a copy; or delete a branch or tag that you do not need.",
                snapshot=str(key),
                referred_to_by=who,
            )


def _kinds_of(state: V1State) -> Iterator[tuple[int, UpdateKind]]:
    """Yield what must have happened, and when; equal times keep this order."""
    seen = set()
    yield _root(state).flushed_at, kinds.RepoInitialized()
    for name in sorted(state.branches, key=lambda name: (name != MAIN, name)):
        before, at = None, 0
        for tip in state.lines.get(name, (state.branches[name],)):
            snapshot = state.snapshots[tip]
            if before is None and name != MAIN:
                at = snapshot.flushed_at + _MILLISECOND
                yield at, kinds.BranchCreated(name)
            elif before is not None and snapshot.parent_id != before:
                at = max(at + _MILLISECOND, snapshot.flushed_at)
                yield at, kinds.BranchReset(name, before)
            before, at = tip, max(at, snapshot.flushed_at)
            for snapshot in _history(state, tip):
                if snapshot.id not in seen and snapshot.parent_id is not None:
                    yield snapshot.flushed_at, kinds.NewCommit(name, snapshot.id)
                seen.add(snapshot.id)
    for name, key in sorted(state.tags.items()):
        yield state.snapshots[key].flushed_at + _MILLISECOND, kinds.TagCreated(name)
    for name, was in sorted(state.deleted_tags.items()):
        if was is not None:
            at = state.snapshots.get(was, _root(state)).flushed_at
            yield at + _MILLISECOND, kinds.TagCreated(name)
            yield at + 2 * _MILLISECOND, kinds.TagDeleted(name, was)


def _history(
    state: V1State, tip: ObjectId12, *known: Container[ObjectId12]
) -> list[SnapshotSummary]:
    """Return a snapshot and its ancestors that are neither known nor missing, oldest first."""
    found: dict[ObjectId12, SnapshotSummary] = {}
    at: ObjectId12 | None = tip
    while at is not None and not any(at in each for each in (found, *known)):
        snapshot = state.snapshots.get(at)
        if snapshot is None:
            break
        found[at] = snapshot
        at = snapshot.parent_id
    return list(found.values())[::-1]


def _root(state: V1State) -> SnapshotSummary:
    return _history(state, state.branches[MAIN])[0]


# -- what came after -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class CarriedChanges:
    """How what V1 clients did after the upgrade gets into V2."""

    edits: tuple[Edit, ...]
    commits: int
    aside: Mapping[str, str]  # branches whose commits V2 clients came before: where they are now


def carry(info: RepoInfo, past: Collection[UpdateKind], state: V1State) -> CarriedChanges:
    """Decide how to carry over what V1 clients did since the repo info of V2 was made.

    What V2 forgot on purpose, by the ops log ``past``, does not come back.

    Raises:
        ConflictError: A V1 client committed on top of a snapshot that V2 has expired.
    """
    carrier = _Carrier(info, past, state)
    for name, tip in sorted(state.branches.items()):
        carrier.carry_branch(name, tip)
    for name, key in sorted(state.tags.items()):
        carrier.carry_tag(name, key)
    for name, was in sorted(state.deleted_tags.items()):
        if was is not None:
            carrier.carry_tag(name, was)
        if name in carrier.info.tags:
            carrier.do(edits.delete_tag(name))
    # where the log was trimmed, the configuration may have been changed; what V2 has stays then
    is_whole = any(isinstance(kind, kinds.RepoMigrated) for kind in past)
    is_changed = any(isinstance(kind, kinds.ConfigChanged) for kind in past)
    if (config := state.config) and is_whole and not is_changed:
        carrier.do(edits.set_config(lambda _: persistable(config)))
    return CarriedChanges(tuple(carrier.edits), carrier.commits, carrier.aside)


class _Carrier:
    """Makes edits and follows what they do."""

    def __init__(self, info: RepoInfo, past: Collection[UpdateKind], state: V1State) -> None:
        self.info = info
        self.edits: list[Edit] = []
        self.commits = 0
        self.aside: dict[str, str] = {}
        self._state = state
        making = (kinds.NewCommit, kinds.CommitAmended, kinds.NewDetachedSnapshot)
        self._had = {kind.new_snap_id for kind in past if isinstance(kind, making)}
        self._dropped = {kind.name for kind in past if isinstance(kind, kinds.BranchDeleted)}

    def carry_branch(self, name: str, tip: ObjectId12) -> None:
        """Put new commits on the branch, or on one of their own."""
        there = self.info.branches
        new = _history(self._state, tip, self.info.snapshots, self._had)
        if not new:
            if name not in there and name not in self._dropped and tip in self.info.snapshots:
                self.do(edits.create_branch(name, tip))
            return
        base = self._refuse_expired(new[0])
        target = name
        if there.get(name, base) != base or (name not in there and name in self._dropped):
            target = self.aside[name] = f"{name}-v1-{tip}"
        if target not in there:
            self.do(edits.create_branch(target, base))
        for snapshot in new:
            self._refuse_expired(snapshot)
            self.do(edits.commit(target, snapshot))
        self.commits += len(new)

    def carry_tag(self, name: str, key: ObjectId12) -> None:
        """Create a tag that V2 neither has nor had, with the commits that it leads to."""
        if name in self.info.tags or name in self.info.deleted_tags:
            return
        new = _history(self._state, key, self.info.snapshots, self._had)
        for snapshot in new:
            self._refuse_expired(snapshot)
            self.do(edits.detach(snapshot))
        self.commits += len(new)
        if key in self.info.snapshots:
            self.do(edits.create_tag(name, key))

    def _refuse_expired(self, snapshot: SnapshotSummary) -> ObjectId12:
        """Return the parent of a snapshot, which V2 has to have."""
        if snapshot.parent_id is None or snapshot.parent_id not in self.info.snapshots:
            raise ConflictError(
                "a V1 client committed on top of a snapshot that was expired since the upgrade",
                do="Nothing of V1 was deleted. Repeat its changes in a V2 session, then delete "
                "its branch with a V1 client.",
                snapshot=str(snapshot.id),
                parent=str(snapshot.parent_id),
            )
        return snapshot.parent_id

    def do(self, edit: Edit) -> None:
        """Add an edit, and follow what it does."""
        if (done := edit(self.info)) is not None:
            self.info = done[0]
            self.edits.append(edit)
