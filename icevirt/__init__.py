"""Build versioned Icechunk datasets from archives of NetCDF/HDF5 files, without copying data.

This is the whole public interface. Names are imported when they are first used, so ``import
icevirt`` takes milliseconds and a reader never loads Spark or HDF5.
"""

from __future__ import annotations

import importlib
import sys
from typing import Any

from icevirt.version import __version__ as __version__

_EXPORTS = {
    "icevirt.access.kerchunk": "to_kerchunk",
    "icevirt.access.virtualizarr": "from_virtualizarr to_virtualizarr",
    "icevirt.access.store.zarr_store": "IcevirtStore",
    "icevirt.access.virtual_refs": "VirtualChunkSpec",
    "icevirt.api.append": "append",
    "icevirt.api.build": "build",
    "icevirt.api.views.catalog_view": "CatalogView catalog_view",
    "icevirt.api.commit_options": "CommitOptions",
    "icevirt.api.export": "export",
    "icevirt.api.history.compare": "diff",
    "icevirt.api.history.moves": "redo reset undo",
    "icevirt.api.history.log": "log ops_log source",
    "icevirt.api.update": "update",
    "icevirt.api.materialize": "materialize",
    "icevirt.api.views.open": "open",
    "icevirt.api.views.pages": "to_html",
    "icevirt.api.plan": "Plan plan",
    "icevirt.display.progress": "ProgressBar",
    "icevirt.api.recipe": "dump_recipe load_recipe",
    "icevirt.api.relocate": "relocate",
    "icevirt.api.repository": "info upgrade upgrade_icechunk_repository",
    "icevirt.api.scan": "ScannedArchive scan_file scan_files",
    "icevirt.api.upkeep.maintain": "maintain",
    "icevirt.api.upkeep.status": "status",
    "icevirt.api.upkeep.scans": "exclude excluded forget_scans",
    "icevirt.api.upkeep.withdraw": "withdraw",
    "icevirt.api.verify": "verify",
    "icevirt.archive.plan": "BuildPlan",
    "icevirt.archive.reports.build": "AppendReport BuildReport RepositorySummary",
    "icevirt.archive.reports.history": "BranchMove CommitLog OperationLog ValueSource VersionDiff",
    "icevirt.archive.reports.relocation": (
        "ExportReport MaterializeReport RelocateReport UpgradeCopyReport"
    ),
    "icevirt.archive.reports.scan": "ScanReport",
    "icevirt.archive.reports.upkeep": (
        "ExcludedFiles FileHeldBack MaintenanceReport RepositoryStatus UpdateReport WithdrawReport"
    ),
    "icevirt.archive.reports.verification": "VerifyReport",
    "icevirt.archive.scanned": "ScannedFile",
    "icevirt.connect.credentials.common": "HttpAccess LocalFileSystemAccess containers_credentials",
    "icevirt.connect.credentials.http": "http_credentials",
    "icevirt.connect.credentials.object_stores": (
        "AzureRefreshableCredential GcsBearerCredential S3StaticCredentials "
        "azure_anonymous_credentials azure_credentials azure_from_env_credentials "
        "azure_refreshable_credentials azure_static_credentials gcs_anonymous_credentials "
        "gcs_credentials gcs_from_env_credentials gcs_refreshable_credentials "
        "gcs_static_credentials s3_anonymous_credentials s3_credentials s3_from_env_credentials "
        "s3_refreshable_credentials s3_static_credentials"
    ),
    "icevirt.connect.options": "azure_store gcs_store http_store s3_store",
    "icevirt.display.events": "JsonFormatter",
    "icevirt.errors": (
        "AlreadyExistsError ConflictError FormatError IcevirtError InvalidInputError "
        "NodeNotFoundError NotFoundError ReadOnlyError RebaseFailedError RefNotFoundError "
        "RepositoryNotFoundError SessionStateError SnapshotNotFoundError StorageError"
    ),
    "icevirt.model.chunks": "ChunkType",
    "icevirt.model.config.containers": (
        "ObjectStoreConfig VirtualChunkContainer fsspec_store local_filesystem_store"
    ),
    "icevirt.model.config.document": "RepositoryConfig",
    "icevirt.model.config.sections": (
        "ManifestConfig ManifestSplitCondition ManifestSplitDimCondition "
        "ManifestSplittingConfig ManifestVirtualChunkLocationCompressionConfig "
        "ManifestPreloadCondition ManifestPreloadConfig "
        "CachingConfig CompressionAlgorithm CompressionConfig RepoUpdateRetryConfig "
        "StorageConcurrencySettings StorageRetriesSettings StorageSettings "
        "StorageTimeoutSettings"
    ),
    "icevirt.model.generation": "OldFormatWarning",
    "icevirt.model.repo_info": "RepoAvailability",
    "icevirt.planning.combine.options": "CombineOptions",
    "icevirt.planning.edits.file_edits": "FileChanges FileFacts VariableFacts",
    "icevirt.repo.history.types": "ManifestFileInfo RepoStatus SnapshotInfo Update UpdateType",
    "icevirt.repo.maintenance.check": "CheckReport check",
    "icevirt.repo.maintenance.garbage_collection": "GCSummary OpsLogTrimSummary",
    "icevirt.repo.maintenance.chunk_sizes": "ChunkStorageStats",
    "icevirt.repo.repository": "Repository",
    "icevirt.repo.session": "ForkSession Session SessionMode",
    "icevirt.repo.v1.upgrade": "UpgradeReport",
    "icevirt.scan.contract": "ScannerOptions",
    "icevirt.scan.options": "ScanOptions",
    "icevirt.storage.constructors": (
        "azure_storage gcs_storage r2_storage s3_storage tigris_storage"
    ),
    "icevirt.storage.local": "local_filesystem_storage",
    "icevirt.storage.memory": "in_memory_storage",
    "icevirt.storage.web_server": "http_storage",
    "icevirt.versioning.diff": "Diff",
    "icevirt.versioning.repo_updates": "FeatureFlag",
    "icevirt.versioning.history.ancestry_graph": "AncestryGraph",
    "icevirt.versioning.merge.conflicts": (
        "AppendConflictSolver BasicConflictSolver Conflict ConflictDetector ConflictSolver "
        "ConflictType VersionSelection"
    ),
}
if sys.platform == "win32":
    raise ImportError("icevirt does not run on Windows itself. Install it in WSL, which is Linux.")

_HOME = {name: module for module, names in _EXPORTS.items() for name in names.split()}

__all__ = [*_HOME, "__version__", "errors"]  # noqa: PLE0604 - names of the table


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used (PEP 562)."""
    if name == "errors":
        return importlib.import_module("icevirt.errors")
    if name not in _HOME:
        raise AttributeError(f"module 'icevirt' has no attribute {name!r}")
    from icevirt.errors import refuse_missing

    with refuse_missing(f"icevirt.{name}"):
        value = getattr(importlib.import_module(_HOME[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """Return the public names, whether or not they were used."""
    return sorted(__all__)
