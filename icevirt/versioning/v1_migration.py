"""Convert V1 repositories for the upgrade to V2, and refuse what they cannot do. Pure.

The repo info of V2 begins with a history made from the snapshots, as the official client makes it.
Later V1 commits are carried over by edits: on top of the branch if it is still where they found it,
and on a branch of their own if V2 clients committed there.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Container, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from icevirt.errors import ConflictError, FormatError
from icevirt.ids import ObjectId12
from icevirt.model.config.document import persistable
from icevirt.model.json import JSONObject
from icevirt.model.repo_info import (
    BranchCreated,
    BranchDeleted,
    BranchReset,
    CommitAmended,
    ConfigChanged,
    FeatureFlagChanged,
    MetadataChanged,
    NewCommit,
    NewDetachedSnapshot,
    OpsLogEntry,
    RepoAvailability,
    RepoInfo,
    RepoInitialized,
    RepoMigrated,
    RepoStatusChanged,
    SnapshotSummary,
    StatusRecord,
    TagCreated,
    TagDeleted,
    UpdateKind,
)
from icevirt.versioning import repo_updates as edits
from icevirt.versioning.history.timestamps import stamp
from icevirt.versioning.repo_updates import MAIN, Edit

_MILLISECOND = 1000  # between a snapshot and a branch or tag made for it
_NEED_V2: dict[type[UpdateKind], str] = {
    MetadataChanged: "metadata of a repository",
    CommitAmended: "amending a commit",
    FeatureFlagChanged: "feature flags",
    RepoStatusChanged: "making a repository read-only",
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
        raise FormatError(
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


def migrated(state: V1State, now: int) -> RepoInfo:
    """Return the repo info of V2 that says the same.

    Raises:
        StorageError: The newest snapshot is dated too far in the future.
    """
    log = [OpsLogEntry(kind=kind, updated_at=at) for at, kind in _spread(_kinds_of(state))][::-1]
    done = OpsLogEntry(kind=RepoMigrated(1, 2), updated_at=stamp(now, top=log[0].updated_at))
    return RepoInfo(
        branches=dict(state.branches),
        tags=dict(state.tags),
        deleted_tags=frozenset(state.deleted_tags),
        snapshots=dict(state.snapshots),
        status=StatusRecord(availability=RepoAvailability.online, set_at=_root(state).flushed_at),
        metadata={},
        latest_updates=(done, *log),
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
    yield _root(state).flushed_at, RepoInitialized()
    for name in sorted(state.branches, key=lambda name: (name != MAIN, name)):
        before, at = None, 0
        for tip in state.lines.get(name, (state.branches[name],)):
            snapshot = state.snapshots[tip]
            if before is None and name != MAIN:
                at = snapshot.flushed_at + _MILLISECOND
                yield at, BranchCreated(name)
            elif before is not None and snapshot.parent_id != before:
                at = max(at + _MILLISECOND, snapshot.flushed_at)
                yield at, BranchReset(name, before)
            before, at = tip, max(at, snapshot.flushed_at)
            for snapshot in _history(state, tip):
                if snapshot.id not in seen and snapshot.parent_id is not None:
                    yield snapshot.flushed_at, NewCommit(name, snapshot.id)
                seen.add(snapshot.id)
    for name, key in sorted(state.tags.items()):
        yield state.snapshots[key].flushed_at + _MILLISECOND, TagCreated(name)
    for name, was in sorted(state.deleted_tags.items()):
        if was is not None:
            at = state.snapshots.get(was, _root(state)).flushed_at
            yield at + _MILLISECOND, TagCreated(name)
            yield at + 2 * _MILLISECOND, TagDeleted(name, was)


def _spread(events: Iterable[tuple[int, UpdateKind]]) -> Iterator[tuple[int, UpdateKind]]:
    """Yield events in the order of time, no two at one time."""
    last = -1
    for at, kind in sorted(events, key=lambda event: event[0]):
        last = max(at, last + 1)
        yield last, kind


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

    Args:
        info: As it is now.
        past: The ops log: what V2 forgot on purpose does not come back.
        state: The V1 objects as they are now.

    Raises:
        ConflictError: A V1 client committed on top of a snapshot that V2 has expired.
    """
    return _Carrier(info, past, state).run()


class _Carrier:
    """Makes edits and follows what they do."""

    def __init__(self, info: RepoInfo, past: Collection[UpdateKind], state: V1State) -> None:
        self._info = info
        self._state = state
        self._had = {key for kind in past for key in _made(kind)}
        self._dropped = {kind.name for kind in past if isinstance(kind, BranchDeleted)}
        # where the log was trimmed, it may have been; what V2 has stays then
        is_whole = any(isinstance(kind, RepoMigrated) for kind in past)
        self._configured = not is_whole or any(isinstance(kind, ConfigChanged) for kind in past)
        self._edits: list[Edit] = []
        self._commits = 0
        self._aside: dict[str, str] = {}

    def run(self) -> CarriedChanges:
        for name, tip in sorted(self._state.branches.items()):
            self._branch(name, tip)
        for name, key in sorted(self._state.tags.items()):
            self._tag(name, key)
        for name, was in sorted(self._state.deleted_tags.items()):
            if was is not None:
                self._tag(name, was)
            if name in self._info.tags:
                self._do(edits.delete_tag(name))
        config = self._state.config
        if config and not self._configured:
            self._do(edits.set_config(lambda _: persistable(config)))
        return CarriedChanges(tuple(self._edits), self._commits, self._aside)

    def _branch(self, name: str, tip: ObjectId12) -> None:
        there = self._info.branches
        new = _history(self._state, tip, self._info.snapshots, self._had)
        if not new:
            if name not in there and name not in self._dropped and tip in self._info.snapshots:
                self._do(edits.create_branch(name, tip))
            return
        base = self._base(new[0])
        target = name
        if there.get(name, base) != base or (name not in there and name in self._dropped):
            target = self._aside[name] = f"{name}-v1-{tip}"
        if target not in there:
            self._do(edits.create_branch(target, base))
        self._add(new, lambda snapshot: edits.commit(target, snapshot))

    def _tag(self, name: str, key: ObjectId12) -> None:
        if name in self._info.tags or name in self._info.deleted_tags:
            return
        self._add(_history(self._state, key, self._info.snapshots, self._had), edits.detach)
        if key in self._info.snapshots:
            self._do(edits.create_tag(name, key))

    def _base(self, first: SnapshotSummary) -> ObjectId12:
        if first.parent_id is None or first.parent_id not in self._info.snapshots:
            raise ConflictError(
                "a V1 client committed on top of a snapshot that was expired since the upgrade",
                do="Nothing of V1 was deleted. Repeat its changes in a V2 session, then delete "
                "its branch with a V1 client.",
                snapshot=str(first.id),
                parent=str(first.parent_id),
            )
        return first.parent_id

    def _add(self, new: list[SnapshotSummary], edit: Callable[[SnapshotSummary], Edit]) -> None:
        for snapshot in new:
            self._base(snapshot)
            self._do(edit(snapshot))
            self._commits += 1

    def _do(self, edit: Edit) -> None:
        if (done := edit(self._info)) is not None:
            self._info = done[0]
            self._edits.append(edit)


def _made(kind: UpdateKind) -> tuple[ObjectId12, ...]:
    """Return the snapshots that an entry of the ops log made known."""
    match kind:
        case NewCommit(new_snap_id=key) | CommitAmended(new_snap_id=key) | NewDetachedSnapshot(key):
            return (key,)
        case _:
            return ()
