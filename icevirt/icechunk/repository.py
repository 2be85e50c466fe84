"""A repository with icechunk's signatures and ``_async`` twins."""

from __future__ import annotations

import os
import warnings
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from enum import IntEnum
from textwrap import indent
from typing import TYPE_CHECKING, Any, ClassVar, Self

from icevirt.errors import (
    AlreadyUpgradedError,
    EmptyPrefixError,
    InvalidInputError,
    NoBucketError,
    RepositoryNotFoundError,
    check_time,
)
from icevirt.escaping import escape_lines
from icevirt.icechunk._shims import logs
from icevirt.icechunk._shims.classes import AsyncTwin, each, guard, raises_icechunks
from icevirt.icechunk._shims.shown import as_html
from icevirt.icechunk._shims.unused_settings import log_unused
from icevirt.icechunk.session import Session
from icevirt.model.repo_info import RepoAvailability
from icevirt.repo import repository as engine
from icevirt.storage.constructors import StorageLike

if TYPE_CHECKING:
    from icevirt.icechunk.config import Attribution, FeatureFlag, RepositoryConfig
    from icevirt.icechunk.ops import GCSummary, Update
    from icevirt.icechunk.snapshots import (
        ChunkStorageStats,
        Diff,
        ManifestFileInfo,
        RepoStatus,
        SnapshotInfo,
    )

__all__ = [
    "RepoAvailability",
    "RepoStatus",
    "Repository",
    "SpecVersion",
    "upgrade_icechunk_repository",
]


class SpecVersion(IntEnum):
    """Versions of the format."""

    v1 = 1
    v2 = 2

    @classmethod
    def current(cls) -> SpecVersion:
        """Return the version that new repositories have."""
        return cls.v2

    def __repr__(self) -> str:
        return f"SpecVersion.{self.name}{' (current)' if self is SpecVersion.v2 else ''}"

    def __str__(self) -> str:
        return str(self.value)


class Repository(engine.Repository):
    """An Icechunk repository. Get one from `create`, `open` or `open_or_create`."""

    _invalidated_by = ""
    _attribution: Attribution | None = None

    def __getattribute__(self, name: str) -> Any:
        if (by := object.__getattribute__(self, "_invalidated_by")) and not name.startswith("_"):
            raise RuntimeError(f"this repository was invalidated by {by}: use what it returned")
        return super().__getattribute__(name)

    def __repr__(self) -> str:
        storage = indent(escape_lines(repr(self.storage).rstrip()), "    ")
        return (
            f"<icechunk.Repository (v{int(self.spec_version)})>\nstorage:\n{storage}\n"
            "config: <RepositoryConfig ...>\n"
        )

    def _repr_html_(self) -> str:
        return as_html(repr(self))

    _session_type: ClassVar[type[Session]] = Session

    create_async = AsyncTwin("create")
    open_async = AsyncTwin("open")
    open_or_create_async = AsyncTwin("open_or_create")
    exists_async = AsyncTwin("exists")
    fetch_spec_version_async = AsyncTwin("fetch_spec_version")
    fetch_config_async = AsyncTwin("fetch_config")
    save_config_async = AsyncTwin("save_config")
    reopen_async = AsyncTwin("reopen")
    get_metadata_async = AsyncTwin("get_metadata")
    set_metadata_async = AsyncTwin("set_metadata")
    update_metadata_async = AsyncTwin("update_metadata")
    get_status_async = AsyncTwin("get_status")
    set_status_async = AsyncTwin("set_status")
    feature_flags_async = AsyncTwin("feature_flags")
    enabled_feature_flags_async = AsyncTwin("enabled_feature_flags")
    disabled_feature_flags_async = AsyncTwin("disabled_feature_flags")
    set_feature_flag_async = AsyncTwin("set_feature_flag")
    ancestry_graph_async = AsyncTwin("ancestry_graph")
    create_branch_async = AsyncTwin("create_branch")
    list_branches_async = AsyncTwin("list_branches")
    lookup_branch_async = AsyncTwin("lookup_branch")
    reset_branch_async = AsyncTwin("reset_branch")
    delete_branch_async = AsyncTwin("delete_branch")
    create_tag_async = AsyncTwin("create_tag")
    list_tags_async = AsyncTwin("list_tags")
    lookup_tag_async = AsyncTwin("lookup_tag")
    delete_tag_async = AsyncTwin("delete_tag")
    lookup_snapshot_async = AsyncTwin("lookup_snapshot")
    list_manifest_files_async = AsyncTwin("list_manifest_files")
    diff_async = AsyncTwin("diff")
    readonly_session_async = AsyncTwin("readonly_session")
    writable_session_async = AsyncTwin("writable_session")
    rearrange_session_async = AsyncTwin("rearrange_session")
    expire_snapshots_async = AsyncTwin("expire_snapshots")
    rewrite_manifests_async = AsyncTwin("rewrite_manifests")
    garbage_collect_async = AsyncTwin("garbage_collect")
    chunk_storage_stats_async = AsyncTwin("chunk_storage_stats")
    inspect_snapshot_async = AsyncTwin("inspect_snapshot")
    inspect_repo_info_async = AsyncTwin("inspect_repo_info")
    inspect_manifest_async = AsyncTwin("inspect_manifest")
    inspect_transaction_log_async = AsyncTwin("inspect_transaction_log")

    def __reduce__(self) -> tuple[Any, ...]:
        make, arguments, state = super().__reduce__()
        return make, arguments, {**state, "_attribution": self._attribution}

    @classmethod
    def create(  # type: ignore[override]  # noqa: PLR0917 - icechunk's arguments
        cls,
        storage: StorageLike,
        config: RepositoryConfig | None = None,
        authorize_virtual_chunk_access: Mapping[str, Any] | None = None,
        spec_version: int | None = None,
        check_clean_root: bool = True,
        attribution: Any = None,
    ) -> Self:
        """Create a new repository and open it; requests do not carry ``attribution``."""
        _check_attribution(attribution)
        logs.log("debug", "Creating Repository")
        if getattr(storage, "is_bucket_root", False):
            raise EmptyPrefixError(
                "a repository cannot be created at an empty prefix", do="Pass a prefix."
            )
        made = super().create(
            storage,
            config,
            authorize_virtual_chunk_access,
            check_clean_root=check_clean_root,
            spec_version=_version(spec_version),
        )
        made._attribution = attribution  # noqa: SLF001 - of this class
        return made

    @classmethod
    def open(  # type: ignore[override]
        cls,
        storage: StorageLike,
        config: RepositoryConfig | None = None,
        authorize_virtual_chunk_access: Mapping[str, Any] | None = None,
        attribution: Any = None,
        **more: Any,
    ) -> Self:
        """Open an existing repository; requests do not carry ``attribution``."""
        _check_attribution(attribution)
        _warn_of_none(authorize_virtual_chunk_access)
        log_unused(config)
        with _without_bucket():
            made = super().open(storage, config, authorize_virtual_chunk_access, **more)
        made._attribution = attribution  # noqa: SLF001 - of this class
        return made

    def reopen(  # type: ignore[override]
        self,
        config: RepositoryConfig | None = None,
        authorize_virtual_chunk_access: Mapping[str, Any] | None = None,
    ) -> Self:
        """Open the same repository anew, with the same authorization unless given."""
        made = super().reopen(config, authorize_virtual_chunk_access)
        made._attribution = self._attribution  # noqa: SLF001 - of this class
        return made

    @classmethod
    def open_or_create(  # type: ignore[override]  # noqa: PLR0917 - icechunk's arguments
        cls,
        storage: StorageLike,
        config: RepositoryConfig | None = None,
        authorize_virtual_chunk_access: Mapping[str, Any] | None = None,
        create_version: int | None = None,
        check_clean_root: bool = True,
        attribution: Any = None,
    ) -> Self:
        """Open an existing repository, or create one; arguments as for both."""
        if cls.exists(storage):
            return cls.open(storage, config, authorize_virtual_chunk_access, attribution)
        return cls.create(
            storage,
            config,
            authorize_virtual_chunk_access,
            create_version,
            check_clean_root,
            attribution,
        )

    @staticmethod
    def exists(storage: StorageLike, storage_settings: Any = None) -> bool:
        """Return whether a repository exists there; settings belong to the storage."""
        del storage_settings
        try:
            return engine.Repository.exists(storage)
        except NoBucketError:
            return False

    @staticmethod
    def fetch_spec_version(
        storage: StorageLike, storage_settings: Any = None
    ) -> SpecVersion | None:
        """Return the version of the format; None without a repository."""
        del storage_settings
        try:
            found = engine.Repository.fetch_spec_version(storage)
        except NoBucketError:
            return None
        return None if found is None else SpecVersion(found)

    @property
    def spec_version(self) -> SpecVersion:
        """The version of the format."""
        return SpecVersion(super().spec_version)

    @staticmethod
    def fetch_config(storage: StorageLike) -> RepositoryConfig | None:
        """Return the persisted configuration. Raises ``RepositoryNotFoundError``."""
        from icevirt.icechunk.config import RepositoryConfig

        with _without_bucket():
            found = engine.Repository.fetch_config(storage)
        return None if found is None else RepositoryConfig.of(found)

    @property
    def config(self) -> RepositoryConfig:
        """A copy of the configuration that the repository was opened with."""
        from icevirt.icechunk.config import RepositoryConfig

        return RepositoryConfig.of(super().config)

    @property
    def status(self) -> RepoStatus:
        """Whether the repository is writable."""
        return self.get_status()

    def get_status(self) -> RepoStatus:
        """Return whether the repository is writable."""
        from icevirt.icechunk.snapshots import RepoStatus

        return RepoStatus.of(super().get_status())

    def feature_flags(self) -> list[FeatureFlag]:  # type: ignore[override]
        """Return all features."""
        from icevirt.icechunk.config import FeatureFlag

        return [FeatureFlag.of(each) for each in super().feature_flags()]

    def enabled_feature_flags(self) -> list[FeatureFlag]:  # type: ignore[override]
        """Return the features that are enabled."""
        return [each for each in self.feature_flags() if each.enabled]

    def disabled_feature_flags(self) -> list[FeatureFlag]:  # type: ignore[override]
        """Return the features that are disabled."""
        return [each for each in self.feature_flags() if not each.enabled]

    def ancestry(self, **version: str | None) -> Iterator[SnapshotInfo]:
        """Yield a version and its ancestors, newest first: branch, tag or snapshot_id."""
        from icevirt.icechunk.snapshots import SnapshotInfo

        return map(SnapshotInfo.of, super().ancestry(**version))

    def lookup_snapshot(self, snapshot_id: str) -> SnapshotInfo:
        """Return a snapshot of the history."""
        from icevirt.icechunk.snapshots import SnapshotInfo

        return SnapshotInfo.of(super().lookup_snapshot(snapshot_id))

    def list_manifest_files(self, snapshot_id: str) -> list[ManifestFileInfo]:  # type: ignore[override]
        """Return the manifest files of a snapshot."""
        from icevirt.icechunk.snapshots import ManifestFileInfo

        return [ManifestFileInfo.of(each) for each in super().list_manifest_files(snapshot_id)]

    def ops_log(self) -> Iterator[Update]:
        """Yield every operation on the repository, newest first."""
        from icevirt.icechunk.ops import Update

        return map(Update.of, super().ops_log())

    def diff(self, **versions: str | None) -> Diff:  # type: ignore[override]
        """Return what changed from one version to a later one; arguments as in icevirt."""
        from icevirt.icechunk.snapshots import Diff

        return Diff(super().diff(**versions))

    @property
    def attribution(self) -> Attribution:
        """The names that were given; requests do not carry them."""
        from icevirt.icechunk.config import Attribution

        return self._attribution or Attribution()

    async def async_ancestry(
        self,
        *,
        branch: str | None = None,
        tag: str | None = None,
        snapshot_id: str | None = None,
    ) -> AsyncIterator[SnapshotInfo]:
        """Yield a version and its ancestors, newest first."""
        async for info in each(
            lambda: self.ancestry(branch=branch, tag=tag, snapshot_id=snapshot_id)
        ):
            yield info

    async def ops_log_async(self) -> AsyncIterator[Update]:
        """Yield every operation on the repository, newest first."""
        async for update in each(self.ops_log):
            yield update

    def garbage_collect(  # type: ignore[override]
        self, delete_object_older_than: datetime, *, dry_run: bool = False, **limits: Any
    ) -> GCSummary:
        """Delete files that are unreachable; memory and concurrency are bounded already.

        What the storage refuses to delete is in the summary, as icechunk has it.
        """
        from icevirt.icechunk.ops import GCSummary

        _check_limits(limits, *_OF_DELETING)
        check_time("delete_object_older_than", delete_object_older_than)
        return GCSummary.of(self._collect_garbage(delete_object_older_than, dry_run=dry_run))

    def chunk_storage_stats(self, **limits: Any) -> ChunkStorageStats:
        """Return what chunks take; memory and concurrency are bounded already."""
        from icevirt.icechunk.snapshots import ChunkStorageStats

        _check_limits(limits)
        return ChunkStorageStats.of(super().chunk_storage_stats())

    def total_chunks_storage(self, **limits: Any) -> int:
        """Return the bytes of native chunks."""
        _warn_deprecated("total_chunks_storage")
        return self.chunk_storage_stats(**limits).native_bytes

    async def total_chunks_storage_async(self, **limits: Any) -> int:
        """Return the bytes of native chunks."""
        _warn_deprecated("total_chunks_storage_async")
        found: ChunkStorageStats = await self.chunk_storage_stats_async(**limits)
        return found.native_bytes


@contextmanager
def _without_bucket() -> Iterator[None]:
    """Say that there is no repository where there is no bucket, as icechunk does."""
    try:
        yield
    except NoBucketError as error:
        raise RepositoryNotFoundError(
            f"no repository: {error.what}", do=error.do, **error.facts
        ) from error


def _check_attribution(given: Any) -> None:
    """Refuse what is no attribution, as icechunk does."""
    if given is not None:
        from icevirt.icechunk.config import Attribution

        if not isinstance(given, Attribution):
            raise TypeError(f"attribution is a {type(given).__name__}, not an Attribution")


_MAY_BE_NONE, _MAY_BE_ZERO = ("max_concurrent_listings",), ("max_consecutive_delete_failures",)


def _check_limits(limits: Mapping[str, Any], *known: str) -> None:
    """Refuse limits that are none; memory and concurrency are bounded without them."""
    for name, value in limits.items():
        if name not in (*_OF_READING, *known):
            raise TypeError(f"got an unexpected keyword argument {name!r}")
        if value is None and name in _MAY_BE_NONE:
            continue
        if not isinstance(value, int):
            raise TypeError(f"{name} is a {type(value).__name__}, not an int")
        if value < (0 if name in _MAY_BE_ZERO else 1):
            raise InvalidInputError(
                f"{name} is not a positive number", do="Pass 1 or more.", found=value
            )


_OF_READING = (
    "max_snapshots_in_memory",
    "max_compressed_manifest_mem_bytes",
    "max_decoded_manifest_mem_bytes",
    "max_concurrent_manifest_fetches",
)
_OF_DELETING = (
    "max_concurrent_deletes",
    "max_consecutive_delete_failures",
    "max_concurrent_listings",
)


def _version(given: Any) -> int:
    if given is not None and not isinstance(given, int):
        raise InvalidInputError(f"Couldn't parse a valid version from {given!r}", do="Pass 1 or 2.")
    if given is not None and given not in list(SpecVersion):
        raise InvalidInputError(f"Unsupported version {given}", do="Pass 1 or 2.")
    return 2 if given is None else int(given)


def _warn_deprecated(name: str) -> None:
    _warn(f"{name} is deprecated: use chunk_storage_stats().native_bytes")


def _warn_of_none(authorized: Mapping[str, Any] | None) -> None:
    if authorized and None in authorized.values():
        _warn(
            "None in authorize_virtual_chunk_access is deprecated: pass LocalFileSystemAccess,"
            " HttpAccess or credentials"
        )


def _warn(message: str) -> None:
    """Warn of what the program wrote, at its own line: Python shows no others by default."""
    inside = (os.path.dirname(__file__),)
    warnings.warn(message, DeprecationWarning, skip_file_prefixes=inside)


raises_icechunks(Repository)


@guard
def upgrade_icechunk_repository(
    repo: Repository,
    *,
    dry_run: bool,
    delete_unused_v1_files: bool = True,
    prefetch_concurrency: int | None = None,
) -> Repository:
    """Upgrade a V1 repository in place, and open it again."""
    from icevirt.api import repository as upgrades

    if repo.spec_version == SpecVersion.current():
        raise AlreadyUpgradedError(
            "this repository has the newest version of the format", do="Go on with it as it is."
        )
    upgraded = upgrades.upgrade_icechunk_repository(
        repo,
        dry_run=dry_run,
        delete_unused_v1_files=delete_unused_v1_files,
        prefetch_concurrency=prefetch_concurrency,
    )
    assert isinstance(upgraded, Repository)
    if not dry_run and upgraded is not repo:
        repo._invalidated_by = "upgrade_icechunk_repository"  # noqa: SLF001
    return upgraded


def __getattr__(name: str) -> Any:
    """Return what stands elsewhere, where icechunk has it here."""
    if name == "RepoStatus":
        from icevirt.icechunk.snapshots import RepoStatus

        return RepoStatus
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
