"""Refuse what V1 repositories cannot do, with the upgrade as the remedy."""

from __future__ import annotations

from icevirt.errors import FormatError
from icevirt.model import repo_info
from icevirt.model.repo_info import RepoInfo, UpdateKind

_NEED_V2: dict[type[UpdateKind], str] = {
    repo_info.MetadataChanged: "metadata of a repository",
    repo_info.CommitAmended: "amending a commit",
    repo_info.GCRan: "garbage collection",
    repo_info.ExpirationRan: "expiry of snapshots",
    repo_info.FeatureFlagChanged: "feature flags",
    repo_info.RepoStatusChanged: "making a repository read-only",
}


def refuse_v1(info: RepoInfo, what: str) -> None:
    """Check that a repository is not of the V1 format.

    Raises:
        FormatError: It is; ``what`` would need more.
    """
    if info.spec_version == 1:
        raise FormatError(
            f"this repository has the V1 format, and {what} needs the V2 format",
            do="Upgrade it: icevirt.upgrade_icechunk_repository(repo, dry_run=False).",
        )


def refuse_update(info: RepoInfo, kind: UpdateKind) -> None:
    """Check that a V1 repository can express an update. Raises ``FormatError``."""
    if (what := _NEED_V2.get(type(kind))) is not None:
        refuse_v1(info, what)
