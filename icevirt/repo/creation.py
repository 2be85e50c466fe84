"""Create a repository atomically: completely or not at all.

The initial snapshot and its transaction log come first, `repo` last and only if there is none.
A process killed in between leaves files that no reader sees and that the next creation reuses.
"""

from __future__ import annotations

from icevirt.errors import AlreadyExistsError
from icevirt.ids import INITIAL_SNAPSHOT_ID
from icevirt.model.json import JSONObject
from icevirt.model.repo_info import RepoInfo
from icevirt.model.snapshot import Snapshot
from icevirt.model.transaction_log import TransactionLog
from icevirt.repo import layout
from icevirt.repo.assets import Assets
from icevirt.repo.repo_info_file import RepoInfoFile
from icevirt.storage.protocol import Storage
from icevirt.versioning import repo_updates
from icevirt.versioning.config_merge import persistable


def create(assets: Assets, head: RepoInfoFile, config: JSONObject | None) -> None:
    """Make an empty repository.

    Raises:
        AlreadyExistsError: There is one.
    """
    if head.create(prepare(assets, head.now(), config)) is None:
        raise there_is_one(assets.storage)


def prepare(assets: Assets, now: int, config: JSONObject | None) -> RepoInfo:
    """Write the objects of a new repository except `repo`, and return what that will hold."""
    info = repo_updates.initialised(now, None if not config else persistable(config))
    root = info.snapshots[INITIAL_SNAPSHOT_ID]
    assets.put_transaction_log(TransactionLog(id=root.id))
    written = assets.put_new_snapshot(
        Snapshot(
            id=root.id,
            nodes=(),
            flushed_at=root.flushed_at,
            message=root.message,
            metadata=root.metadata,
        )
    )
    return repo_updates.initialised(now, info.config, flushed_at=written.flushed_at)


def there_is_one(storage: Storage) -> AlreadyExistsError:
    """Return the error of making a repository where there is one."""
    return AlreadyExistsError(
        "a repository already exists at this path",
        do="Open it with `Repository.open`, or choose another path.",
        repo=storage.url,
    )


def refuse_foreign(storage: Storage) -> None:
    """Check that nothing lies at the root but what an interrupted creation or build left there.

    Raises:
        AlreadyExistsError: Something else does.
    """
    for found in storage.list():
        if found.path.split("/", 1)[0] not in (*layout.FOLDERS, *layout.WORK):
            raise _occupied(storage, found.path)
    _refuse_file(storage)


def refuse_occupied(storage: Storage) -> None:
    """Check that nothing lies at the root but what an interrupted creation left there.

    Raises:
        AlreadyExistsError: Something else does.
    """
    for found in storage.list():
        if found.path not in layout.INITIAL_OBJECTS and found.path != layout.REPO:
            raise _occupied(storage, found.path)
    _refuse_file(storage)


def _refuse_file(storage: Storage) -> None:
    if storage.exists() and next(iter(storage.list()), None) is None:
        raise _occupied(storage, "")


def _occupied(storage: Storage, path: str) -> AlreadyExistsError:
    return AlreadyExistsError(
        "this path holds something that is not a repository",
        do="Choose an empty or new path, or clear this one.",
        repo=storage.url,
        found=path,
    )
