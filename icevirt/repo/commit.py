"""A commit, in the order that makes it safe: manifests, transaction log, snapshot, repo info.

Until the last step nobody can see any of it; a process killed before leaves garbage, not damage.
"""

from __future__ import annotations

from icevirt.ids import ObjectId12
from icevirt.logic import edits
from icevirt.logic.stamps import stamp
from icevirt.model.config import RepositoryConfig
from icevirt.model.json import JSONObject
from icevirt.model.repo_info import SnapshotInfo
from icevirt.model.snapshot import Snapshot
from icevirt.repo.assets import Assets
from icevirt.repo.flush import write_manifests
from icevirt.repo.head import Head, refuse_read_only
from icevirt.repo.staging import Staging


def commit(
    assets: Assets,
    head: Head,
    staging: Staging,
    *,
    branch: str,
    message: str,
    metadata: JSONObject,
    config: RepositoryConfig,
) -> Snapshot:
    """Write the staged changes as a new tip of ``branch`` and return its snapshot.

    Raises:
        ReadOnlyError: The repository takes no writes.
        RefNotFoundError: The branch was deleted.
        ConflictError: The branch is no longer at the snapshot that the changes are based on.
    """
    info = head.read().info  # find out what would fail anyway, before manifests are written
    refuse_read_only(info)
    edits.refuse_moved(info, branch, staging.base.id)
    nodes, files = write_manifests(assets, staging, config)
    snapshot = Snapshot(
        id=ObjectId12.random(),
        nodes=nodes,
        flushed_at=stamp(head.now(), parent=staging.base.flushed_at),
        message=message,
        metadata=metadata,
        manifest_files=files,
    )
    assets.put_transaction_log(staging.log(snapshot.id))
    assets.put_snapshot(snapshot)
    head.update(edits.commit(branch, info_of(snapshot, staging.base.id)))
    return snapshot


def info_of(snapshot: Snapshot, parent: ObjectId12) -> SnapshotInfo:
    """Return what the repo info repeats of a snapshot."""
    return SnapshotInfo(
        id=snapshot.id,
        parent_id=parent,
        flushed_at=snapshot.flushed_at,
        message=snapshot.message,
        metadata=snapshot.metadata,
    )
