"""Configure a repository, clean it up, and show its files as they are."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Literal

from icevirt.errors import InvalidInputError, check
from icevirt.ids import ObjectId12
from icevirt.repo.assets import Assets
from icevirt.repo.repo_info_file import RepoInfoFile

if TYPE_CHECKING:
    from icevirt.model.config.document import RepositoryConfig
    from icevirt.model.json import JSONObject
    from icevirt.model.repo_info import RepoInfo
    from icevirt.model.updates import ExpirationRan
    from icevirt.repo.history.types import RepoStatus
    from icevirt.repo.maintenance.chunk_sizes import ChunkStorageStats
    from icevirt.repo.maintenance.garbage_collection import GCSummary, OpsLogTrimSummary
    from icevirt.repo.v1.upgrade import UpgradeReport
    from icevirt.versioning.repo_updates import FeatureFlag


SAFE_AGE = timedelta(days=7)
"""Younger garbage is kept by default: a session may be about to commit it."""


class Settings:
    """The part of `Repository` that is about the repository as a whole."""

    _head: RepoInfoFile
    _assets: Assets
    _config: RepositoryConfig
    _persisted: dict[str, Any]  # the document when it was last read or saved
    _commit_metadata: dict[str, Any]

    @property
    def config(self) -> RepositoryConfig:
        """The configuration in use: the persisted one, overlaid by the one passed to `open`.

        Changes to it apply to new sessions; `save_config` persists them.
        """
        return self._config

    def save_config(self) -> None:
        """Persist `config`.

        Only changes made here are written, on top of the latest persisted state: containers that
        others added in the meantime stay.
        """
        from icevirt.model.config.document import persistable, rebase_documents
        from icevirt.versioning import repo_updates

        mine = copy.deepcopy(self._config.document)
        base = self._persisted
        edit = repo_updates.set_config(lambda now: persistable(rebase_documents(base, mine, now)))
        info = self._head.update(edit)
        self._persisted = copy.deepcopy(dict(info.config or {}))
        self._config.document = copy.deepcopy(self._persisted)
        self._head.obey(self._persisted)

    def get_metadata(self) -> dict[str, Any]:
        """Return the repository's metadata. Raises ``FormatError`` for the V1 format."""
        return dict(self._head.read_v2("metadata of a repository").info.metadata or {})

    @property
    def metadata(self) -> dict[str, Any]:
        """The repository's metadata."""
        return self.get_metadata()

    def set_metadata(self, metadata: Mapping[str, Any]) -> None:
        """Replace the repository's metadata. Raises ``InvalidInputError``, ``FormatError``."""
        from icevirt.versioning import repo_updates

        new = repo_updates.as_json(metadata)
        self._head.update(repo_updates.set_metadata(lambda _: new))

    def update_metadata(self, metadata: Mapping[str, Any]) -> dict[str, Any]:
        """Add to the repository's metadata and return all; raises as `set_metadata`."""
        from icevirt.versioning import repo_updates

        new = repo_updates.as_json(metadata)
        info = self._head.update(repo_updates.set_metadata(lambda old: {**old, **new}))
        return dict(info.metadata or {})

    def get_status(self) -> RepoStatus:
        """Return whether the repository is writable. Raises ``FormatError`` for the V1 format."""
        from icevirt.repo.history.types import RepoStatus

        return RepoStatus.of(self._head.read_v2("the status of a repository").info.status)

    @property
    def status(self) -> RepoStatus:
        """Whether the repository is writable."""
        return self.get_status()

    def set_status(self, status: RepoStatus) -> None:
        """Make the repository read-only, or writable again; raises as `get_status`.

        Raises:
            InvalidInputError: Not a `RepoStatus`.
        """
        from icevirt.model.repo_info import StatusRecord
        from icevirt.repo.history.types import RepoStatus
        from icevirt.versioning import repo_updates
        from icevirt.versioning.history.timestamps import micros

        how = "Pass RepoStatus(RepoAvailability.read_only), or .online."
        status = check("status", status, RepoStatus, do=how)
        at = self._head.now() if status.set_at is None else micros(status.set_at)
        new = StatusRecord(
            availability=status.availability,
            set_at=at,
            limited_availability_reason=status.limited_availability_reason,
        )
        self._head.update(repo_updates.set_status(new), even_read_only=True)

    def feature_flags(self) -> list[FeatureFlag]:
        """Return the features that can be disabled, and whether they are.

        Raises:
            FormatError: The repository is of the V1 format.
        """
        from icevirt.versioning import repo_updates as flags

        return flags.flags_of(self._head.read_v2("feature flags").info)

    def enabled_feature_flags(self) -> list[FeatureFlag]:
        """Return the enabled features."""
        return [flag for flag in self.feature_flags() if flag.enabled]

    def disabled_feature_flags(self) -> list[FeatureFlag]:
        """Return the disabled features."""
        return [flag for flag in self.feature_flags() if not flag.enabled]

    def set_feature_flag(self, name: str, setting: bool | None) -> None:
        """Enable or disable a feature for all writers; None restores its default.

        Raises:
            InvalidInputError: Unknown feature.
            ReadOnlyError: The repository is read-only.
        """
        from icevirt.versioning import repo_updates as flags

        if setting is not None:
            check("setting", setting, bool, do="Pass True, False, or None for the default.")
        self._head.update(flags.set_flag(name, setting))

    def set_default_commit_metadata(self, metadata: Mapping[str, Any]) -> None:
        """Add this metadata to every commit of new sessions. Raises ``InvalidInputError``."""
        from icevirt.versioning.repo_updates import as_json

        self._commit_metadata = dict(as_json(metadata))

    def default_commit_metadata(self) -> dict[str, Any]:
        """Return the metadata set by `set_default_commit_metadata`."""
        return dict(self._commit_metadata)

    def expire_snapshots(
        self,
        older_than: datetime,
        *,
        delete_expired_branches: bool = False,
        delete_expired_tags: bool = False,
    ) -> set[str]:
        """Shorten the history: release snapshots written before a time, and return their ids.

        Tips of branches and tags stay, and everything reads as before. Files stay until
        `garbage_collect`. In a V1 repository the files of survivors whose parent goes are written
        again, and differences across what went show only the survivors' changes.

        Args:
            older_than: A time with a time zone.
            delete_expired_branches: Delete branches whose tip is that old, ``main`` excepted.
            delete_expired_tags: Delete tags of snapshots that old; their names stay taken.

        Raises:
            ReadOnlyError: The repository is read-only.
        """
        from icevirt.model.updates import ExpirationRan
        from icevirt.versioning.history.garbage_collection import expire
        from icevirt.versioning.history.timestamps import micros

        released: frozenset[ObjectId12] = frozenset()

        def edit(info: RepoInfo) -> tuple[RepoInfo, ExpirationRan]:
            nonlocal released
            changed, released = expire(
                info,
                micros(older_than),
                delete_branches=delete_expired_branches,
                delete_tags=delete_expired_tags,
            )
            return changed, ExpirationRan()

        self._head.update(edit)
        return {str(key) for key in released}

    def garbage_collect(
        self, delete_object_older_than: datetime | None = None, *, dry_run: bool = False
    ) -> GCSummary:
        """Delete files that are unreachable from branches and tags.

        In a V1 repository, snapshots stay that are younger than the time, with their ancestors.

        Args:
            delete_object_older_than: Younger files stay, because a session may be about to commit
                them: choose a time before the start of the oldest open session. Default: seven days
                ago.
            dry_run: Only report what would be deleted.

        Raises:
            InvalidInputError: The time lies in the future.
            ReadOnlyError: The repository is read-only.
            ConflictError: V1 clients committed after an upgrade, which has to be run again; or, in
                a V1 repository, a branch was set to garbage meanwhile.
            FormatError: A file to keep cannot be read; no file was deleted.
            StorageError: The storage refused to delete some of it; the error counts them.
        """
        summary = self._collect_garbage(delete_object_older_than, dry_run=dry_run)
        summary.check(self._head.storage.url)
        return summary

    def _collect_garbage(
        self, delete_object_older_than: datetime | None, *, dry_run: bool
    ) -> GCSummary:
        """Do what `garbage_collect` does; what was refused is in the summary."""
        from icevirt.repo.maintenance import garbage_collection
        from icevirt.repo.v1 import upgrade
        from icevirt.versioning.history.timestamps import micros, moment

        info = self._head.read().info
        if info.old is not None:
            info.old.refuse()
        if info.spec_version != 1:
            upgrade.refuse_left_behind(self._head, info, "garbage collection")
        cutoff = micros(delete_object_older_than or moment(self._head.now()) - SAFE_AGE)
        do = "Pass a time before the start of the oldest open session."
        self._refuse_future(cutoff, "delete_object_older_than", do=do)
        return garbage_collection.collect(self._assets, self._head, cutoff, dry_run=dry_run)

    def trim_ops_log(self, older_than: datetime, *, dry_run: bool = False) -> OpsLogTrimSummary:
        """Drop ops-log entries before a time, and delete the backups of `repo` from then.

        Each change of a repository leaves a backup of `repo` in ``overwritten/``, which the ops log
        continues in; they grow with the square of the number of commits. The remaining log
        stays complete for every client. Its newest entry always stays. Backups can also restore a
        damaged `repo`: keep the backups of the last days.

        Args:
            older_than: A time with a time zone.
            dry_run: Only report what would be deleted.

        Raises:
            InvalidInputError: The time lies in the future.
            ReadOnlyError: The repository is read-only.
            FormatError: A backup that continues the log is damaged, or the format is V1.
        """
        from icevirt.repo.maintenance import garbage_collection
        from icevirt.versioning.history.timestamps import micros

        cutoff = micros(older_than)
        self._refuse_future(cutoff, "older_than", do="Pass a time in the past.")
        return garbage_collection.trim(self._head, cutoff, dry_run=dry_run)

    def rewrite_manifests(
        self,
        message: str,
        *,
        branch: str,
        metadata: Mapping[str, Any] | None = None,
        commit_method: Literal["new_commit", "amend"] = "new_commit",
    ) -> str:
        """Rewrite all manifests of a branch's tip, split as configured, and commit the result.

        Manifests that share cells of the new splitting are in memory together, others one by one.

        Raises:
            RefNotFoundError: There is no such branch.
            ConflictError: Another writer committed to it in the meantime.
            ReadOnlyError: The repository is read-only.
        """
        from icevirt.repo.commits import commit
        from icevirt.repo.commits.change_set import ChangeSet
        from icevirt.versioning import lookup
        from icevirt.versioning.repo_updates import as_json

        method = {"new_commit": commit.commit, "amend": commit.amend}.get(commit_method)
        if method is None:
            raise InvalidInputError(
                "unknown commit method",
                do="Pass 'new_commit' or 'amend'.",
                commit_method=commit_method,
            )
        check("message", message, str)
        tip = lookup.branch_tip(self._head.read().info, branch)
        merged = {**self._commit_metadata, **as_json(metadata or {})}
        if (split := self._config.splitting_document) is not None:
            merged["__icechunk"] = as_json({"splitting_config": {"split_sizes": split}})
        draft = commit.SessionCommit(
            assets=self._assets,
            head=self._head,
            staging=ChangeSet(self._assets.snapshot(tip)),
            message=message,
            metadata=merged,
            config=self._config,
            rewrite=True,
        )
        return str(method(draft, branch).id)

    def upgrade(
        self,
        *,
        dry_run: bool = False,
        delete_unused_v1_files: bool = True,
        prefetch_concurrency: int | None = None,
    ) -> UpgradeReport:
        """Upgrade a V1 repository to V2 in place, or continue an interrupted upgrade.

        Snapshots, manifests and chunks stay unchanged. Commits that V1 clients make meanwhile are
        carried over; later V1 commits fail.

        Args:
            dry_run: Only report what would be done.
            delete_unused_v1_files: Remove the branches, tags and configuration of V1. If they
                stay, V1 clients can still read and even commit; V2 lacks such commits until this is
                called again.
            prefetch_concurrency: Number of snapshots to read in parallel; 64 by default.

        Raises:
            ReadOnlyError: It is even older than V1; `icevirt.upgrade` makes a new one of it.
            ConflictError: V1 and V2 clients committed to one branch at the same time. The
                repository is upgraded, and the commits of V1 are on branches of their own.
            FormatError: A file of the repository is damaged or missing.
            StorageError: Other writers were faster too often, or a snapshot is dated in the future.
        """
        from icevirt.repo.v1 import upgrade

        if (old := self._head.read().info.old) is not None:
            old.refuse()
        report = upgrade.upgrade(
            self._head,
            dry_run=dry_run,
            delete_unused_v1_files=delete_unused_v1_files,
            prefetch_concurrency=prefetch_concurrency or upgrade.PREFETCH,
        )
        if not dry_run:
            self._assets.spec_version = 2
        return report

    def chunk_storage_stats(self) -> ChunkStorageStats:
        """Count the bytes of chunks of all versions on branches and tags, each chunk once."""
        from icevirt.repo.maintenance.chunk_sizes import storage_stats

        return storage_stats(self._assets, self._head.read().info)

    # -- showing files as they are -----------------------------------------------------------

    def inspect_repo_info(self) -> JSONObject:
        """Return the contents of the file `repo`. Raises ``FormatError``: V1 has no such file."""
        from icevirt.repo.maintenance import inspection

        info = self._head.read_v2("showing `repo`").info
        return inspection.repo_info_document(self._assets, info)

    def inspect_snapshot(self, snapshot_id: str) -> JSONObject:
        """Return the contents of a snapshot file. Raises ``SnapshotNotFoundError``."""
        from icevirt.repo.maintenance import inspection

        return inspection.snapshot_document(self._assets, snapshot_id)

    def inspect_manifest(self, manifest_id: str) -> JSONObject:
        """Return counts of what a manifest holds. Raises ``NotFoundError``."""
        from icevirt.repo.maintenance import inspection

        return inspection.manifest_document(self._assets, manifest_id)

    def inspect_transaction_log(self, snapshot_id: str) -> JSONObject:
        """Return the changes of a snapshot's commit, including its expired ancestors' changes.

        Raises:
            SnapshotNotFoundError: There is no such snapshot.
        """
        from icevirt.repo.maintenance import inspection

        info = self._head.read().info
        return inspection.transaction_log_document(self._assets, info, snapshot_id)

    def _refuse_future(self, cutoff: int, name: str, *, do: str) -> None:
        from icevirt.versioning.history.timestamps import moment

        now = self._head.now()
        if cutoff > now:
            times = {name: moment(cutoff).isoformat(), "now": moment(now).isoformat()}
            raise InvalidInputError("this time lies in the future", do=do, **times)
