# Written by docs/make_stub.py from the table in __init__.py.

from icevirt import errors
from icevirt.access.kerchunk import (
    to_kerchunk,
)
from icevirt.access.store.zarr_store import (
    IcevirtStore,
)
from icevirt.access.virtual_refs import (
    VirtualChunkSpec,
)
from icevirt.access.virtualizarr import (
    from_virtualizarr,
    to_virtualizarr,
)
from icevirt.api.append import (
    append,
)
from icevirt.api.build import (
    build,
)
from icevirt.api.commit_options import (
    CommitOptions,
)
from icevirt.api.export import (
    export,
)
from icevirt.api.history.compare import (
    diff,
)
from icevirt.api.history.log import (
    log,
    ops_log,
    source,
)
from icevirt.api.history.moves import (
    redo,
    reset,
    undo,
)
from icevirt.api.materialize import (
    materialize,
)
from icevirt.api.plan import (
    Plan,
    plan,
)
from icevirt.api.recipe import (
    dump_recipe,
    load_recipe,
)
from icevirt.api.relocate import (
    relocate,
)
from icevirt.api.repository import (
    info,
    upgrade,
    upgrade_icechunk_repository,
)
from icevirt.api.scan import (
    ScannedArchive,
    scan_file,
    scan_files,
)
from icevirt.api.update import (
    update,
)
from icevirt.api.upkeep.maintain import (
    maintain,
)
from icevirt.api.upkeep.scans import (
    exclude,
    excluded,
    forget_scans,
)
from icevirt.api.upkeep.status import (
    status,
)
from icevirt.api.upkeep.withdraw import (
    withdraw,
)
from icevirt.api.verify import (
    verify,
)
from icevirt.api.views.catalog_view import (
    CatalogView,
    catalog_view,
)
from icevirt.api.views.open import (
    open,
)
from icevirt.api.views.pages import (
    to_html,
)
from icevirt.archive.plan import (
    BuildPlan,
)
from icevirt.archive.reports.build import (
    AppendReport,
    BuildReport,
    RepositorySummary,
)
from icevirt.archive.reports.history import (
    BranchMove,
    CommitLog,
    OperationLog,
    ValueSource,
    VersionDiff,
)
from icevirt.archive.reports.relocation import (
    ExportReport,
    MaterializeReport,
    RelocateReport,
    UpgradeCopyReport,
)
from icevirt.archive.reports.scan import (
    ScanReport,
)
from icevirt.archive.reports.upkeep import (
    ExcludedFiles,
    FileHeldBack,
    MaintenanceReport,
    RepositoryStatus,
    UpdateReport,
    WithdrawReport,
)
from icevirt.archive.reports.verification import (
    VerifyReport,
)
from icevirt.archive.scanned import (
    ScannedFile,
)
from icevirt.connect.credentials.common import (
    HttpAccess,
    LocalFileSystemAccess,
    containers_credentials,
)
from icevirt.connect.credentials.http import (
    http_credentials,
)
from icevirt.connect.credentials.object_stores import (
    AzureRefreshableCredential,
    GcsBearerCredential,
    S3StaticCredentials,
    azure_anonymous_credentials,
    azure_credentials,
    azure_from_env_credentials,
    azure_refreshable_credentials,
    azure_static_credentials,
    gcs_anonymous_credentials,
    gcs_credentials,
    gcs_from_env_credentials,
    gcs_refreshable_credentials,
    gcs_static_credentials,
    s3_anonymous_credentials,
    s3_credentials,
    s3_from_env_credentials,
    s3_refreshable_credentials,
    s3_static_credentials,
)
from icevirt.connect.options import (
    azure_store,
    gcs_store,
    http_store,
    s3_store,
)
from icevirt.display.events import (
    JsonFormatter,
)
from icevirt.display.progress import (
    ProgressBar,
)
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
from icevirt.model.chunks import (
    ChunkType,
)
from icevirt.model.config.containers import (
    ObjectStoreConfig,
    VirtualChunkContainer,
    fsspec_store,
    local_filesystem_store,
)
from icevirt.model.config.document import (
    RepositoryConfig,
)
from icevirt.model.config.sections import (
    CachingConfig,
    CompressionAlgorithm,
    CompressionConfig,
    ManifestConfig,
    ManifestPreloadCondition,
    ManifestPreloadConfig,
    ManifestSplitCondition,
    ManifestSplitDimCondition,
    ManifestSplittingConfig,
    ManifestVirtualChunkLocationCompressionConfig,
    RepoUpdateRetryConfig,
    StorageConcurrencySettings,
    StorageRetriesSettings,
    StorageSettings,
    StorageTimeoutSettings,
)
from icevirt.model.generation import (
    OldFormatWarning,
)
from icevirt.model.repo_info import (
    RepoAvailability,
)
from icevirt.planning.combine.options import (
    CombineOptions,
)
from icevirt.planning.edits.file_edits import (
    FileChanges,
    FileFacts,
    VariableFacts,
)
from icevirt.repo.history.types import (
    ManifestFileInfo,
    RepoStatus,
    SnapshotInfo,
    Update,
    UpdateType,
)
from icevirt.repo.maintenance.check import (
    CheckReport,
    check,
)
from icevirt.repo.maintenance.chunk_sizes import (
    ChunkStorageStats,
)
from icevirt.repo.maintenance.garbage_collection import (
    GCSummary,
    OpsLogTrimSummary,
)
from icevirt.repo.repository import (
    Repository,
)
from icevirt.repo.session import (
    ForkSession,
    Session,
    SessionMode,
)
from icevirt.repo.v1.upgrade import (
    UpgradeReport,
)
from icevirt.scan.contract import (
    ScannerOptions,
)
from icevirt.scan.options import (
    ScanOptions,
)
from icevirt.storage.constructors import (
    azure_storage,
    gcs_storage,
    r2_storage,
    s3_storage,
    tigris_storage,
)
from icevirt.storage.local import (
    local_filesystem_storage,
)
from icevirt.storage.memory import (
    in_memory_storage,
)
from icevirt.storage.web_server import (
    http_storage,
)
from icevirt.version import (
    __version__,
)
from icevirt.versioning.diff import (
    Diff,
)
from icevirt.versioning.history.ancestry_graph import (
    AncestryGraph,
)
from icevirt.versioning.merge.conflicts import (
    AppendConflictSolver,
    BasicConflictSolver,
    Conflict,
    ConflictDetector,
    ConflictSolver,
    ConflictType,
    VersionSelection,
)
from icevirt.versioning.repo_updates import (
    FeatureFlag,
)

__all__ = [
    "AlreadyExistsError",
    "AncestryGraph",
    "AppendConflictSolver",
    "AppendReport",
    "AzureRefreshableCredential",
    "BasicConflictSolver",
    "BranchMove",
    "BuildPlan",
    "BuildReport",
    "CachingConfig",
    "CatalogView",
    "CheckReport",
    "ChunkStorageStats",
    "ChunkType",
    "CombineOptions",
    "CommitLog",
    "CommitOptions",
    "CompressionAlgorithm",
    "CompressionConfig",
    "Conflict",
    "ConflictDetector",
    "ConflictError",
    "ConflictSolver",
    "ConflictType",
    "Diff",
    "ExcludedFiles",
    "ExportReport",
    "FeatureFlag",
    "FileChanges",
    "FileFacts",
    "FileHeldBack",
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
    "MaintenanceReport",
    "ManifestConfig",
    "ManifestFileInfo",
    "ManifestPreloadCondition",
    "ManifestPreloadConfig",
    "ManifestSplitCondition",
    "ManifestSplitDimCondition",
    "ManifestSplittingConfig",
    "ManifestVirtualChunkLocationCompressionConfig",
    "MaterializeReport",
    "NodeNotFoundError",
    "NotFoundError",
    "ObjectStoreConfig",
    "OldFormatWarning",
    "OperationLog",
    "OpsLogTrimSummary",
    "Plan",
    "ProgressBar",
    "ReadOnlyError",
    "RebaseFailedError",
    "RefNotFoundError",
    "RelocateReport",
    "RepoAvailability",
    "RepoStatus",
    "RepoUpdateRetryConfig",
    "Repository",
    "RepositoryConfig",
    "RepositoryNotFoundError",
    "RepositoryStatus",
    "RepositorySummary",
    "S3StaticCredentials",
    "ScanOptions",
    "ScanReport",
    "ScannedArchive",
    "ScannedFile",
    "ScannerOptions",
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
    "UpdateReport",
    "UpdateType",
    "UpgradeCopyReport",
    "UpgradeReport",
    "ValueSource",
    "VariableFacts",
    "VerifyReport",
    "VersionDiff",
    "VersionSelection",
    "VirtualChunkContainer",
    "VirtualChunkSpec",
    "WithdrawReport",
    "__version__",
    "append",
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
    "diff",
    "dump_recipe",
    "errors",
    "exclude",
    "excluded",
    "export",
    "forget_scans",
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
    "log",
    "maintain",
    "materialize",
    "open",
    "ops_log",
    "plan",
    "r2_storage",
    "redo",
    "relocate",
    "reset",
    "s3_anonymous_credentials",
    "s3_credentials",
    "s3_from_env_credentials",
    "s3_refreshable_credentials",
    "s3_static_credentials",
    "s3_storage",
    "s3_store",
    "scan_file",
    "scan_files",
    "source",
    "status",
    "tigris_storage",
    "to_html",
    "to_kerchunk",
    "to_virtualizarr",
    "undo",
    "update",
    "upgrade",
    "upgrade_icechunk_repository",
    "verify",
    "withdraw",
]
