"""Check feature flags: operations that a repository's owner disabled. Names are icechunk's.

Unknown flags are kept unchanged.
"""

from __future__ import annotations

from dataclasses import replace

from icevirt.deferred_dataclass import dataclass
from icevirt.errors import InvalidInputError, SessionStateError
from icevirt.model.repo_info import FeatureFlagChanged, RepoInfo, UpdateKind
from icevirt.versioning.repo_updates import Edit

MOVE_NODE, CREATE_TAG, DELETE_TAG = "move_node", "create_tag", "delete_tag"
IDS = {MOVE_NODE: 3, CREATE_TAG: 4, DELETE_TAG: 5}


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
        FeatureFlag(id=key, name=name, setting=_setting(info, key)) for name, key in IDS.items()
    ]


def refuse_disabled(info: RepoInfo, name: str) -> None:
    """Check that a feature may be used.

    Raises:
        SessionStateError: It was switched off.
    """
    if _setting(info, IDS[name]) is False:
        raise SessionStateError(
            f"{name} is disabled in this repository",
            do=f"Its owner can enable it: repo.set_feature_flag({name!r}, True).",
        )


def guarded(name: str, edit: Edit) -> Edit:
    """Return an edit that is refused while a feature is disabled."""

    def checked(info: RepoInfo) -> tuple[RepoInfo, UpdateKind] | None:
        refuse_disabled(info, name)
        return edit(info)

    return checked


def set_flag(name: str, setting: bool | None) -> Edit:
    """Switch a feature on or off, or back to its default.

    Raises:
        InvalidInputError: Unknown feature.
    """
    if (key := IDS.get(name)) is None:
        raise InvalidInputError("unknown feature", do=f"Use one of {sorted(IDS)}.", name=name)

    def edit(info: RepoInfo) -> tuple[RepoInfo, FeatureFlagChanged]:
        enabled = {*(info.enabled_feature_flags or ())} - {key}
        disabled = {*(info.disabled_feature_flags or ())} - {key}
        if setting is not None:
            (enabled if setting else disabled).add(key)
        changed = replace(
            info,
            enabled_feature_flags=_kept(enabled, info.enabled_feature_flags),
            disabled_feature_flags=_kept(disabled, info.disabled_feature_flags),
        )
        return changed, FeatureFlagChanged(key, setting)

    return edit


def _setting(info: RepoInfo, key: int) -> bool | None:
    if key in (info.enabled_feature_flags or ()):
        return True
    return False if key in (info.disabled_feature_flags or ()) else None


def _kept(ids: set[int], before: tuple[int, ...] | None) -> tuple[int, ...] | None:
    """Return ids in order; the list does not exist until it is used first."""
    return tuple(sorted(ids)) if ids or before is not None else None
