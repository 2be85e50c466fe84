"""Build versioned Icechunk datasets from archives of NetCDF/HDF5 files, without copying data.

This is the whole public interface. Names are imported when they are first used, so ``import
icevirt`` takes milliseconds and a reader never loads Spark or HDF5.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from icevirt.version import __version__

if TYPE_CHECKING:
    from icevirt import errors
    from icevirt.access.interop.from_virtualizarr import from_virtualizarr
    from icevirt.access.interop.kerchunk import to_kerchunk
    from icevirt.access.interop.to_virtualizarr import to_virtualizarr
    from icevirt.access.store.zarr_store import IcevirtStore
    from icevirt.access.virtual_refs import VirtualChunkSpec
    from icevirt.api.build import build
    from icevirt.api.catalog_view import CatalogView, catalog_view
    from icevirt.api.check import CheckReport, check
    from icevirt.api.info import info
    from icevirt.api.plan import plan
    from icevirt.api.recipe import dump_recipe, load_recipe
    from icevirt.api.scan import scan_file, scan_files
    from icevirt.api.upgrade import UpgradeReport, upgrade_icechunk_repository
    from icevirt.api.verify import verify
    from icevirt.archive.edits import FileChanges, FileFacts, VariableFacts
    from icevirt.archive.plan import BuildPlan
    from icevirt.archive.reports.build import BuildReport, RepositorySummary
    from icevirt.archive.reports.scan import ScanReport
    from icevirt.archive.reports.verification import VerifyReport
    from icevirt.archive.scanned import ScannedFile
    from icevirt.connect.credentials.azure import (
        AzureRefreshableCredential,
        azure_anonymous_credentials,
        azure_credentials,
        azure_from_env_credentials,
        azure_refreshable_credentials,
        azure_static_credentials,
    )
    from icevirt.connect.credentials.common import (
        HttpAccess,
        LocalFileSystemAccess,
        containers_credentials,
    )
    from icevirt.connect.credentials.gcs import (
        GcsBearerCredential,
        gcs_anonymous_credentials,
        gcs_credentials,
        gcs_from_env_credentials,
        gcs_refreshable_credentials,
        gcs_static_credentials,
    )
    from icevirt.connect.credentials.http import http_credentials
    from icevirt.connect.credentials.s3 import (
        S3StaticCredentials,
        s3_anonymous_credentials,
        s3_credentials,
        s3_from_env_credentials,
        s3_refreshable_credentials,
        s3_static_credentials,
    )
    from icevirt.connect.store_configs import azure_store, gcs_store, http_store, s3_store
    from icevirt.display.events import JsonFormatter
    from icevirt.errors import (
        AlreadyExistsError,
        ConflictError,
        FormatError,
        IcevirtError,
        InvalidInputError,
        NodeNotFoundError,
        NotFoundError,
        ReadOnlyError,
        RebaseFailedError,
        RefNotFoundError,
        RepositoryNotFoundError,
        SessionStateError,
        SnapshotNotFoundError,
        StorageError,
    )
    from icevirt.model.chunks import ChunkType
    from icevirt.model.config.document import (
        ObjectStoreConfig,
        RepositoryConfig,
        VirtualChunkContainer,
        fsspec_store,
        local_filesystem_store,
    )
    from icevirt.model.config.manifests import (
        ManifestConfig,
        ManifestSplitCondition,
        ManifestSplitDimCondition,
        ManifestSplittingConfig,
        ManifestVirtualChunkLocationCompressionConfig,
    )
    from icevirt.model.config.preload import ManifestPreloadCondition, ManifestPreloadConfig
    from icevirt.model.config.tuning import (
        CachingConfig,
        CompressionAlgorithm,
        CompressionConfig,
        RepoUpdateRetryConfig,
        StorageConcurrencySettings,
        StorageRetriesSettings,
        StorageSettings,
        StorageTimeoutSettings,
    )
    from icevirt.model.repo_info import RepoAvailability
    from icevirt.repo.history.types import (
        ManifestFileInfo,
        RepoStatus,
        SnapshotInfo,
        Update,
        UpdateType,
    )
    from icevirt.repo.maintenance.garbage_collection import GCSummary
    from icevirt.repo.maintenance.ops_log_trimming import OpsLogTrimSummary
    from icevirt.repo.maintenance.stats import ChunkStorageStats
    from icevirt.repo.repository import Repository
    from icevirt.repo.session import ForkSession, Session, SessionMode
    from icevirt.scan.contract import ScanOptions
    from icevirt.storage.constructors import (
        azure_storage,
        gcs_storage,
        r2_storage,
        s3_storage,
        tigris_storage,
    )
    from icevirt.storage.http import http_storage
    from icevirt.storage.local import local_filesystem_storage
    from icevirt.storage.memory import in_memory_storage
    from icevirt.versioning.diff import Diff
    from icevirt.versioning.feature_flags import FeatureFlag
    from icevirt.versioning.history.ancestry_graph import AncestryGraph
    from icevirt.versioning.merge.conflicts import (
        AppendConflictSolver,
        BasicConflictSolver,
        Conflict,
        ConflictDetector,
        ConflictSolver,
        ConflictType,
        VersionSelection,
    )

__all__ = [
    "AlreadyExistsError",
    "AncestryGraph",
    "AppendConflictSolver",
    "AzureRefreshableCredential",
    "BasicConflictSolver",
    "BuildPlan",
    "BuildReport",
    "CachingConfig",
    "CatalogView",
    "CheckReport",
    "ChunkStorageStats",
    "ChunkType",
    "CompressionAlgorithm",
    "CompressionConfig",
    "Conflict",
    "ConflictDetector",
    "ConflictError",
    "ConflictSolver",
    "ConflictType",
    "Diff",
    "FeatureFlag",
    "FileChanges",
    "FileFacts",
    "ForkSession",
    "FormatError",
    "GCSummary",
    "GcsBearerCredential",
    "HttpAccess",
    "IcevirtError",
    "IcevirtStore",
    "InvalidInputError",
    "JsonFormatter",
    "LocalFileSystemAccess",
    "ManifestConfig",
    "ManifestFileInfo",
    "ManifestPreloadCondition",
    "ManifestPreloadConfig",
    "ManifestSplitCondition",
    "ManifestSplitDimCondition",
    "ManifestSplittingConfig",
    "ManifestVirtualChunkLocationCompressionConfig",
    "NodeNotFoundError",
    "NotFoundError",
    "ObjectStoreConfig",
    "OpsLogTrimSummary",
    "ReadOnlyError",
    "RebaseFailedError",
    "RefNotFoundError",
    "RepoAvailability",
    "RepoStatus",
    "RepoUpdateRetryConfig",
    "Repository",
    "RepositoryConfig",
    "RepositoryNotFoundError",
    "RepositorySummary",
    "S3StaticCredentials",
    "ScanOptions",
    "ScanReport",
    "ScannedFile",
    "Session",
    "SessionMode",
    "SessionStateError",
    "SnapshotInfo",
    "SnapshotNotFoundError",
    "StorageConcurrencySettings",
    "StorageError",
    "StorageRetriesSettings",
    "StorageSettings",
    "StorageTimeoutSettings",
    "Update",
    "UpdateType",
    "UpgradeReport",
    "VariableFacts",
    "VerifyReport",
    "VersionSelection",
    "VirtualChunkContainer",
    "VirtualChunkSpec",
    "__version__",
    "azure_anonymous_credentials",
    "azure_credentials",
    "azure_from_env_credentials",
    "azure_refreshable_credentials",
    "azure_static_credentials",
    "azure_storage",
    "azure_store",
    "build",
    "catalog_view",
    "check",
    "containers_credentials",
    "dump_recipe",
    "errors",
    "from_virtualizarr",
    "fsspec_store",
    "gcs_anonymous_credentials",
    "gcs_credentials",
    "gcs_from_env_credentials",
    "gcs_refreshable_credentials",
    "gcs_static_credentials",
    "gcs_storage",
    "gcs_store",
    "http_credentials",
    "http_storage",
    "http_store",
    "in_memory_storage",
    "info",
    "load_recipe",
    "local_filesystem_storage",
    "local_filesystem_store",
    "plan",
    "r2_storage",
    "s3_anonymous_credentials",
    "s3_credentials",
    "s3_from_env_credentials",
    "s3_refreshable_credentials",
    "s3_static_credentials",
    "s3_storage",
    "s3_store",
    "scan_file",
    "scan_files",
    "tigris_storage",
    "to_kerchunk",
    "to_virtualizarr",
    "upgrade_icechunk_repository",
    "verify",
]

_HOME = {
    "AlreadyExistsError": "icevirt.errors",
    "AncestryGraph": "icevirt.versioning.history.ancestry_graph",
    "AppendConflictSolver": "icevirt.versioning.merge.conflicts",
    "AzureRefreshableCredential": "icevirt.connect.credentials.azure",
    "BasicConflictSolver": "icevirt.versioning.merge.conflicts",
    "BuildPlan": "icevirt.archive.plan",
    "VariableFacts": "icevirt.archive.edits",
    "FileFacts": "icevirt.archive.edits",
    "FileChanges": "icevirt.archive.edits",
    "BuildReport": "icevirt.archive.reports.build",
    "CachingConfig": "icevirt.model.config.tuning",
    "CatalogView": "icevirt.api.catalog_view",
    "CheckReport": "icevirt.api.check",
    "ChunkStorageStats": "icevirt.repo.maintenance.stats",
    "ChunkType": "icevirt.model.chunks",
    "CompressionAlgorithm": "icevirt.model.config.tuning",
    "CompressionConfig": "icevirt.model.config.tuning",
    "Conflict": "icevirt.versioning.merge.conflicts",
    "ConflictDetector": "icevirt.versioning.merge.conflicts",
    "ConflictError": "icevirt.errors",
    "ConflictSolver": "icevirt.versioning.merge.conflicts",
    "ConflictType": "icevirt.versioning.merge.conflicts",
    "Diff": "icevirt.versioning.diff",
    "FeatureFlag": "icevirt.versioning.feature_flags",
    "ForkSession": "icevirt.repo.session",
    "FormatError": "icevirt.errors",
    "GCSummary": "icevirt.repo.maintenance.garbage_collection",
    "GcsBearerCredential": "icevirt.connect.credentials.gcs",
    "HttpAccess": "icevirt.connect.credentials.common",
    "IcevirtError": "icevirt.errors",
    "IcevirtStore": "icevirt.access.store.zarr_store",
    "InvalidInputError": "icevirt.errors",
    "JsonFormatter": "icevirt.display.events",
    "LocalFileSystemAccess": "icevirt.connect.credentials.common",
    "ManifestConfig": "icevirt.model.config.manifests",
    "ManifestFileInfo": "icevirt.repo.history.types",
    "ManifestPreloadCondition": "icevirt.model.config.preload",
    "ManifestPreloadConfig": "icevirt.model.config.preload",
    "ManifestSplitCondition": "icevirt.model.config.manifests",
    "ManifestSplitDimCondition": "icevirt.model.config.manifests",
    "ManifestSplittingConfig": "icevirt.model.config.manifests",
    "ManifestVirtualChunkLocationCompressionConfig": "icevirt.model.config.manifests",
    "NodeNotFoundError": "icevirt.errors",
    "NotFoundError": "icevirt.errors",
    "ObjectStoreConfig": "icevirt.model.config.document",
    "OpsLogTrimSummary": "icevirt.repo.maintenance.ops_log_trimming",
    "ReadOnlyError": "icevirt.errors",
    "RebaseFailedError": "icevirt.errors",
    "RefNotFoundError": "icevirt.errors",
    "RepoAvailability": "icevirt.model.repo_info",
    "RepoStatus": "icevirt.repo.history.types",
    "RepoUpdateRetryConfig": "icevirt.model.config.tuning",
    "Repository": "icevirt.repo.repository",
    "RepositoryConfig": "icevirt.model.config.document",
    "RepositoryNotFoundError": "icevirt.errors",
    "RepositorySummary": "icevirt.archive.reports.build",
    "S3StaticCredentials": "icevirt.connect.credentials.s3",
    "ScanOptions": "icevirt.scan.contract",
    "ScanReport": "icevirt.archive.reports.scan",
    "ScannedFile": "icevirt.archive.scanned",
    "Session": "icevirt.repo.session",
    "SessionMode": "icevirt.repo.session",
    "SessionStateError": "icevirt.errors",
    "SnapshotInfo": "icevirt.repo.history.types",
    "SnapshotNotFoundError": "icevirt.errors",
    "StorageConcurrencySettings": "icevirt.model.config.tuning",
    "StorageError": "icevirt.errors",
    "StorageRetriesSettings": "icevirt.model.config.tuning",
    "StorageSettings": "icevirt.model.config.tuning",
    "StorageTimeoutSettings": "icevirt.model.config.tuning",
    "Update": "icevirt.repo.history.types",
    "UpdateType": "icevirt.repo.history.types",
    "UpgradeReport": "icevirt.api.upgrade",
    "VerifyReport": "icevirt.archive.reports.verification",
    "VersionSelection": "icevirt.versioning.merge.conflicts",
    "VirtualChunkContainer": "icevirt.model.config.document",
    "VirtualChunkSpec": "icevirt.access.virtual_refs",
    "azure_anonymous_credentials": "icevirt.connect.credentials.azure",
    "azure_credentials": "icevirt.connect.credentials.azure",
    "azure_from_env_credentials": "icevirt.connect.credentials.azure",
    "azure_refreshable_credentials": "icevirt.connect.credentials.azure",
    "azure_static_credentials": "icevirt.connect.credentials.azure",
    "azure_storage": "icevirt.storage.constructors",
    "azure_store": "icevirt.connect.store_configs",
    "build": "icevirt.api.build",
    "catalog_view": "icevirt.api.catalog_view",
    "check": "icevirt.api.check",
    "containers_credentials": "icevirt.connect.credentials.common",
    "from_virtualizarr": "icevirt.access.interop.from_virtualizarr",
    "fsspec_store": "icevirt.model.config.document",
    "gcs_anonymous_credentials": "icevirt.connect.credentials.gcs",
    "gcs_credentials": "icevirt.connect.credentials.gcs",
    "gcs_from_env_credentials": "icevirt.connect.credentials.gcs",
    "gcs_refreshable_credentials": "icevirt.connect.credentials.gcs",
    "gcs_static_credentials": "icevirt.connect.credentials.gcs",
    "gcs_storage": "icevirt.storage.constructors",
    "gcs_store": "icevirt.connect.store_configs",
    "http_credentials": "icevirt.connect.credentials.http",
    "http_storage": "icevirt.storage.http",
    "http_store": "icevirt.connect.store_configs",
    "in_memory_storage": "icevirt.storage.memory",
    "info": "icevirt.api.info",
    "local_filesystem_storage": "icevirt.storage.local",
    "local_filesystem_store": "icevirt.model.config.document",
    "plan": "icevirt.api.plan",
    "r2_storage": "icevirt.storage.constructors",
    "s3_anonymous_credentials": "icevirt.connect.credentials.s3",
    "s3_credentials": "icevirt.connect.credentials.s3",
    "s3_from_env_credentials": "icevirt.connect.credentials.s3",
    "s3_refreshable_credentials": "icevirt.connect.credentials.s3",
    "s3_static_credentials": "icevirt.connect.credentials.s3",
    "s3_storage": "icevirt.storage.constructors",
    "s3_store": "icevirt.connect.store_configs",
    "scan_file": "icevirt.api.scan",
    "load_recipe": "icevirt.api.recipe",
    "dump_recipe": "icevirt.api.recipe",
    "scan_files": "icevirt.api.scan",
    "tigris_storage": "icevirt.storage.constructors",
    "to_kerchunk": "icevirt.access.interop.kerchunk",
    "to_virtualizarr": "icevirt.access.interop.to_virtualizarr",
    "upgrade_icechunk_repository": "icevirt.api.upgrade",
    "verify": "icevirt.api.verify",
}

_BUILDERS = ("h5py", "pandas", "pyarrow", "pyspark")


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used (PEP 562)."""
    if name == "errors":
        return importlib.import_module("icevirt.errors")
    if name not in _HOME:
        raise AttributeError(f"module 'icevirt' has no attribute {name!r}")
    try:
        value = getattr(importlib.import_module(_HOME[name]), name)
    except ModuleNotFoundError as error:
        raise _with_remedy(name, error) from error
    globals()[name] = value
    return value


def _with_remedy(name: str, error: ModuleNotFoundError) -> Exception:
    """Say what to install, where a reader's installation lacks what a builder needs."""
    from icevirt.errors import BuildError

    if error.name is None or error.name.partition(".")[0] not in _BUILDERS:
        return error
    return BuildError(
        f"icevirt.{name} needs packages that the reader-only installation lacks",
        do="Run `pip install 'icevirt[all]'`.",
        missing=error.name,
    )


def __dir__() -> list[str]:
    """Return the public names, whether or not they were used."""
    return sorted(__all__)
