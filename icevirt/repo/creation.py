"""Create a repository atomically: completely or not at all.

The initial snapshot and its transaction log come first, `repo` last and only if there is none.
A process killed in between leaves files that no reader sees and that the next creation reuses.
"""

from __future__ import annotations

from collections.abc import Callable

from icevirt.errors import AlreadyExistsError, InvalidInputError, NotEmptyError
from icevirt.ids import INITIAL_SNAPSHOT_ID
from icevirt.model.config.document import persistable
from icevirt.model.json import JSONObject
from icevirt.model.repo_info import RepoInfo
from icevirt.model.snapshot import Snapshot
from icevirt.model.transaction_log import TransactionLog
from icevirt.repo import layout
from icevirt.repo.assets import Assets
from icevirt.repo.repo_info_file import RepoInfoFile
from icevirt.repo.v1.files import V1Files
from icevirt.storage.protocol import Storage
from icevirt.versioning import repo_updates
from icevirt.wire.ref import Ref


def create(storage: Storage, config: JSONObject | None, spec_version: int = 2) -> None:
    """Make an empty repository; of V1, the branch that makes the objects one comes last.

    Raises:
        AlreadyExistsError: There is one.
        InvalidInputError: There is no such version of the format.
    """
    if spec_version not in (1, 2) or isinstance(spec_version, bool):
        raise InvalidInputError(
            "there is no such version of the format", do="Pass 1 or 2.", spec_version=spec_version
        )
    head, assets = RepoInfoFile(storage), Assets(storage, spec_version=spec_version)
    if spec_version == 1:
        _put_root(assets, repo_updates.initialize(head.now()))
        files = V1Files(storage, {})
        if config:
            files.put_config(persistable(config))
        is_new = files.put_branch(repo_updates.MAIN, Ref(INITIAL_SNAPSHOT_ID))
    else:
        is_new = head.create(prepare(assets, head.now(), config)) is not None
    if not is_new:
        raise already_exists(storage)


def _put_root(assets: Assets, info: RepoInfo) -> Snapshot:
    """Store the initial snapshot unless it is there; return the one that is there afterwards."""
    root = info.snapshots[INITIAL_SNAPSHOT_ID]
    return assets.put_new_snapshot(
        Snapshot(
            id=root.id,
            nodes=(),
            flushed_at=root.flushed_at,
            message=root.message,
            metadata=root.metadata,
        )
    )


def prepare(assets: Assets, now: int, config: JSONObject | None) -> RepoInfo:
    """Write the objects of a new repository except `repo`, and return what that will hold."""
    info = repo_updates.initialize(now, persistable(config) if config else None)
    assets.put_transaction_log(TransactionLog(id=INITIAL_SNAPSHOT_ID))
    at = _put_root(assets, info).flushed_at
    return repo_updates.initialize(now, info.config, flushed_at=at)


def refuse_only_readable(storage: Storage) -> None:
    """Refuse a storage that takes no writes, before any request. Raises ``ReadOnlyError``."""
    if (refuse := getattr(storage, "refuse_writes", None)) is not None:
        refuse()


def already_exists(storage: Storage) -> AlreadyExistsError:
    """Return the error of creating a repository where one exists."""
    return NotEmptyError(
        "a repository already exists at this path",
        do="Open it with `Repository.open`, or choose another path.",
        repo=storage.url,
    )


def refuse_foreign(storage: Storage) -> None:
    """Check that the root holds only what an interrupted creation or build left there.

    Raises:
        AlreadyExistsError: It holds something else.
    """
    ours = {*layout.FOLDERS, *layout.WORK}
    _refuse_unless(storage, lambda path: path.split("/", 1)[0] in ours)


def refuse_occupied(storage: Storage) -> None:
    """Check that the root holds only what an interrupted creation left there.

    Raises:
        AlreadyExistsError: It holds something else.
    """
    _refuse_unless(storage, lambda path: path in layout.INITIAL_OBJECTS or path == layout.REPO)


def _refuse_unless(storage: Storage, is_ours: Callable[[str], bool]) -> None:
    path = ""
    for path in (found.path for found in storage.list()):
        if not is_ours(path):
            break
    else:
        if path or not storage.exists():
            return
    raise NotEmptyError(
        "this path holds something that is not a repository"
        if path
        else "this is a file, not a repository",
        do="Choose an empty or new path, or clear this one."
        if path
        else "Pass the files first, and behind them the repository.",
        repo=storage.url,
        found=path,
    )
