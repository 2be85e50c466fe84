"""Define updates of a repository as pure steps from one repo info to the next.

Each function makes an `Edit`, which returns the changed repo info and its ops-log entry, or None if
there is nothing to do, and raises if it is not allowed. It is repeated where another was faster.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import wraps
from typing import TYPE_CHECKING, Any, Concatenate

from icevirt.errors import (
    BranchExistsError,
    BranchGoneError,
    BranchMovedError,
    ConflictError,
    FeatureDisabledError,
    FeatureNameError,
    MainBranchError,
    MetadataError,
    TagDeletedError,
    TagExistsError,
)
from icevirt.ids import INITIAL_SNAPSHOT_ID, ObjectId12
from icevirt.model import updates as kinds
from icevirt.model.repo_info import (
    OpsLogEntry,
    RepoAvailability,
    RepoInfo,
    SnapshotSummary,
    StatusRecord,
    UpdateKind,
    minus,
    plus,
)
from icevirt.model.snapshot import Snapshot
from icevirt.remedy_notation import write_code, write_remedy
from icevirt.versioning.lookup import branch_tip, find_snapshot, tag_target

if TYPE_CHECKING:
    from icevirt.model.json import JSONObject


type Edit = Callable[[RepoInfo], tuple[RepoInfo, UpdateKind] | None]

MAIN = "main"
INITIAL_MESSAGE = "Repository initialized"
INITIAL_METADATA: JSONObject = {"__icechunk": {"is_root": True}}


def initialize(
    now: int, config: JSONObject | None = None, *, flushed_at: int | None = None
) -> RepoInfo:
    """Return the repo info of a new repository, whose only snapshot is the empty initial one.

    That was written ``now``, or at ``flushed_at``.
    """
    root = SnapshotSummary(
        id=INITIAL_SNAPSHOT_ID,
        parent_id=None,
        flushed_at=now if flushed_at is None else flushed_at,
        message=INITIAL_MESSAGE,
        metadata=INITIAL_METADATA,
    )
    return RepoInfo(
        branches={MAIN: root.id},
        tags={},
        snapshots={root.id: root},
        status=StatusRecord(availability=RepoAvailability.online, set_at=now),
        latest_updates=(OpsLogEntry(kind=kinds.RepoInitialized(), updated_at=now),),
        config=config,
    )


def line_of(commit: Snapshot | SnapshotSummary) -> str:
    """Name a commit in an error, by its id and message."""
    return f"{commit.id} ({commit.message!r})"


def refuse_moved(info: RepoInfo, branch: str, base: ObjectId12 | None) -> None:
    """Check that a branch is still where a session began.

    Raises:
        RefNotFoundError: There is no such branch.
        ConflictError: It moved.
    """
    if (tip := branch_tip(info, branch, BranchGoneError)) != base:
        raise ConflictError(
            f"the branch {branch!r} moved since this session began",
            do="Open a new session at its tip and repeat the changes.",
            branch=branch,
            expected_parent=str(base),
            actual_parent=str(tip),
            theirs=line_of(info.snapshots[tip]),
        )


type _Step = tuple[RepoInfo, UpdateKind]


def _edit[**P](
    step: Callable[Concatenate[RepoInfo, P], _Step | None],
) -> Callable[P, Edit]:
    """Make what returns an `Edit` of its arguments from a step that takes the repo info first."""

    @wraps(step)
    def bind(*args: P.args, **kwargs: P.kwargs) -> Edit:
        return lambda info: step(info, *args, **kwargs)

    return bind


@_edit
def commit(info: RepoInfo, branch: str, snapshot: SnapshotSummary) -> _Step:
    """Add a snapshot and point ``branch`` at it; its parent must be the branch's tip."""
    refuse_moved(info, branch, snapshot.parent_id)
    return _with_tip(info, branch, snapshot), kinds.NewCommit(branch, snapshot.id)


@_edit
def amend(info: RepoInfo, branch: str, snapshot: SnapshotSummary, previous: ObjectId12) -> _Step:
    """Put a snapshot in the place of ``previous``, the tip of ``branch``.

    The previous one stays listed until it is collected as garbage, as in the official client.
    """
    refuse_moved(info, branch, previous)
    return _with_tip(info, branch, snapshot), kinds.CommitAmended(branch, previous, snapshot.id)


@_edit
def detach(info: RepoInfo, snapshot: SnapshotSummary) -> _Step:
    """Add a snapshot that is on no branch."""
    assert snapshot.parent_id is not None
    find_snapshot(info, snapshot.parent_id)
    changed = info._replace(snapshots=plus(info.snapshots, snapshot.id, snapshot))
    return changed, kinds.NewDetachedSnapshot(snapshot.id)


@_edit
def create_branch(info: RepoInfo, branch: str, snapshot: ObjectId12) -> _Step:
    """Create a branch at a snapshot."""
    find_snapshot(info, snapshot)
    if branch in info.branches:
        raise BranchExistsError(
            "a branch of this name exists",
            do="Choose another name, or move it with `reset_branch`.",
            branch=branch,
        )
    changed = info._replace(branches=plus(info.branches, branch, snapshot))
    return changed, kinds.BranchCreated(branch)


@_edit
def copy_branch(info: RepoInfo, branch: str, new: str) -> _Step | None:
    """Create a branch where another one points."""
    return create_branch(new, branch_tip(info, branch))(info)


@_edit
def reset_branch(
    info: RepoInfo, branch: str, snapshot: ObjectId12, *, expected: ObjectId12 | None = None
) -> _Step:
    """Point an existing branch at any snapshot, if it is still at ``expected`` (None: wherever)."""
    find_snapshot(info, snapshot)
    tip = branch_tip(info, branch)
    if expected is not None and tip != expected:
        raise BranchMovedError(
            f"the branch {branch!r} is not where it was expected",
            do="Check its new tip, then reset it with that tip as `from_snapshot_id`.",
            branch=branch,
            expected_parent=str(expected),
            actual_parent=str(tip),
        )
    changed = info._replace(branches=plus(info.branches, branch, snapshot))
    return changed, kinds.BranchReset(branch, tip)


@_edit
def delete_branch(info: RepoInfo, branch: str) -> _Step:
    """Delete a branch; its snapshots stay until they are garbage."""
    if branch == MAIN:
        raise MainBranchError(
            "the branch 'main' cannot be deleted",
            do=write_remedy(
                "To point it elsewhere: ",
                write_code(
                    "repo.reset_branch('main', snapshot_id)",
                    "icevirt reset REPO SNAPSHOT --branch main",
                ),
                ".",
            ),
        )
    tip = branch_tip(info, branch)
    return info._replace(branches=minus(info.branches, branch)), kinds.BranchDeleted(branch, tip)


@_edit
def create_tag(info: RepoInfo, tag: str, snapshot: ObjectId12) -> _Step:
    """Create a tag; a name is used once, even if its tag was deleted."""
    find_snapshot(info, snapshot)
    do = "Choose another name: tags are immutable."
    if tag in info.tags:
        raise TagExistsError("a tag of this name exists", do=do, tag=tag)
    if tag in info.deleted_tags:
        raise TagDeletedError("a tag of this name existed and was deleted", do=do, tag=tag)
    return info._replace(tags=plus(info.tags, tag, snapshot)), kinds.TagCreated(tag)


@_edit
def delete_tag(info: RepoInfo, tag: str) -> _Step:
    """Delete a tag; its name stays taken."""
    target = tag_target(info, tag)
    changed = info._replace(tags=minus(info.tags, tag), deleted_tags=info.deleted_tags | {tag})
    return changed, kinds.TagDeleted(tag, target)


@_edit
def set_config(info: RepoInfo, change: Callable[[JSONObject], JSONObject]) -> _Step | None:
    """Replace the persisted configuration by what ``change`` makes of the one persisted now."""
    before = info.config or {}
    after = change(before)
    return None if after == before else (info._replace(config=after), kinds.ConfigChanged())


@_edit
def set_metadata(info: RepoInfo, change: Callable[[JSONObject], JSONObject]) -> _Step | None:
    """Replace the repository's metadata by what ``change`` makes of the present ones."""
    before = info.metadata or {}
    after = change(before)
    return None if after == before else (info._replace(metadata=after), kinds.MetadataChanged())


@_edit
def set_status(info: RepoInfo, status: StatusRecord) -> _Step:
    """Change the availability of the repository."""
    return info._replace(status=status), kinds.RepoStatusChanged(status)


def _with_tip(info: RepoInfo, branch: str, snapshot: SnapshotSummary) -> RepoInfo:
    return info._replace(
        branches=plus(info.branches, branch, snapshot.id),
        snapshots=plus(info.snapshots, snapshot.id, snapshot),
    )


MOVE_NODE, CREATE_TAG, DELETE_TAG = "move_node", "create_tag", "delete_tag"
FEATURE_IDS = {MOVE_NODE: 3, CREATE_TAG: 4, DELETE_TAG: 5}


@dataclass(frozen=True, slots=True, kw_only=True)
class FeatureFlag:
    """One feature, and whether it is enabled."""

    id: int
    name: str
    setting: bool | None  # None: as by default
    default_enabled: bool = True

    @property
    def enabled(self) -> bool:
        """Whether it is enabled."""
        return self.default_enabled if self.setting is None else self.setting


def flags_of(info: RepoInfo) -> list[FeatureFlag]:
    """Return all features that are known."""
    return [
        FeatureFlag(id=key, name=name, setting=_setting(info, key))
        for name, key in FEATURE_IDS.items()
    ]


def refuse_disabled(info: RepoInfo, name: str) -> None:
    """Check that a feature may be used. Raises ``SessionStateError``."""
    if _setting(info, FEATURE_IDS[name]) is False:
        raise FeatureDisabledError(
            f"{name} is disabled in this repository",
            do=f"Its owner can enable it: repo.set_feature_flag({name!r}, True).",
        )


def guard(name: str, edit: Edit) -> Edit:
    """Return an edit that is refused while a feature is disabled."""

    def refuse(info: RepoInfo) -> _Step | None:
        refuse_disabled(info, name)
        return edit(info)

    return refuse


def set_flag(name: str, setting: bool | None) -> Edit:
    """Switch a feature on or off, or back to its default. Raises ``InvalidInputError``."""
    if (key := FEATURE_IDS.get(name)) is None:
        raise FeatureNameError(
            "unknown feature", do=f"Use one of {sorted(FEATURE_IDS)}.", name=name
        )

    def edit(info: RepoInfo) -> _Step:
        lists: dict[str, Any] = {}
        for is_on, field in ((True, "enabled_feature_flags"), (False, "disabled_feature_flags")):
            before: tuple[int, ...] | None = getattr(info, field)
            ids = {*(before or ())} - {key} | ({key} if setting is is_on else set())
            # a list does not exist until it is used first
            lists[field] = tuple(sorted(ids)) if ids or before is not None else None
        return info._replace(**lists), kinds.FeatureFlagChanged(key, setting)

    return edit


def _setting(info: RepoInfo, key: int) -> bool | None:
    if key in (info.enabled_feature_flags or ()):
        return True
    return False if key in (info.disabled_feature_flags or ()) else None


def as_json(metadata: Mapping[str, Any]) -> JSONObject:
    """Return a copy that is surely JSON. Raises ``InvalidInputError``."""
    try:
        text = json.dumps(dict(metadata), allow_nan=False, ensure_ascii=False)
        document: JSONObject = json.loads(text.encode())  # whose strings are UTF-8, too
    except (TypeError, ValueError) as error:
        raise MetadataError(
            f"metadata must be JSON: {error}",
            do="Use strings, finite numbers, true, false, null, lists and mappings of these.",
        ) from error
    return document
