"""The official client's names, signatures and modules over icevirt's engine.

``import icevirt.icechunk as icechunk`` runs programs that were written for icechunk. `install` puts
it in the place of ``icechunk`` for libraries that import that themselves.
"""

from __future__ import annotations

import importlib
import sys
from typing import Any

_EXPORTS = {
    "_exceptions": (
        "AlreadyExistsError ConflictError ErrorKind FormatError IcechunkError InternalError "
        "InvalidInputError NodeNotFoundError NotFoundError ReadOnlyError RebaseFailedError "
        "RefNotFoundError RepositoryNotFoundError SessionStateError SnapshotNotFoundError "
        "StorageError"
    ),
    "config": (
        "Attribution CachingConfig CompressionAlgorithm CompressionConfig FeatureFlag "
        "ManifestConfig ManifestPreloadCondition ManifestPreloadConfig ManifestSplitCondition "
        "ManifestSplitDimCondition ManifestSplittingConfig "
        "ManifestVirtualChunkLocationCompressionConfig RepoUpdateRetryConfig RepositoryConfig "
        "initialize_logs set_logs_filter shutdown_telemetry user_agent"
    ),
    "conflicts": (
        "BasicConflictSolver Conflict ConflictDetector ConflictSolver ConflictType VersionSelection"
    ),
    "credentials": (
        "AnyAzureCredential AnyAzureStaticCredential AnyCredential AnyGcsCredential "
        "AnyGcsStaticCredential AnyS3Credential AzureCredentials AzureRefreshableCredential "
        "AzureStaticCredentials Credentials GcsBearerCredential GcsCredentials "
        "GcsStaticCredentials HttpAccess LocalFileSystemAccess S3Credentials S3StaticCredentials "
        "azure_anonymous_credentials azure_credentials azure_from_env_credentials "
        "azure_refreshable_credentials azure_static_credentials containers_credentials "
        "gcs_anonymous_credentials gcs_credentials gcs_from_env_credentials "
        "gcs_refreshable_credentials gcs_static_credentials s3_anonymous_credentials "
        "s3_credentials s3_from_env_credentials s3_refreshable_credentials s3_static_credentials"
    ),
    "debug": "print_debug_info spec_version supported_spec_versions",
    "ops": "GCSummary Update UpdateType",
    "repository": "RepoAvailability RepoStatus Repository SpecVersion upgrade_icechunk_repository",
    "session": "ForkSession Session SessionMode",
    "snapshots": "AncestryGraph Diff ManifestFileInfo SnapshotInfo",
    "storage": (
        "AnyObjectStoreConfig ChecksumAlgorithm ChunkType ObjectStoreConfig S3Options Storage "
        "StorageConcurrencySettings StorageRetriesSettings StorageSettings StorageTimeoutSettings "
        "azure_storage azure_store gcs_storage gcs_store hf_storage http_storage http_store "
        "in_memory_storage local_filesystem_store r2_storage "
        "redirect_storage s3_object_store_storage s3_storage s3_store tigris_storage"
    ),
    "_shims.storages": "local_filesystem_storage",
    "store": "IcechunkStore",
    "types": "CommitMethod",
    "virtual": "VirtualChunkContainer VirtualChunkSpec",
}
_HOME = {name: module for module, names in _EXPORTS.items() for name in names.split()}
_MODULES = (
    *(name for name in _EXPORTS if "." not in name),
    "dask",
    "distributed",
    "testing",
    "xarray",
    "_icechunk_python",
)

__version__ = "2.3.0"
"""The version of icechunk whose names these are."""

__all__ = [*_HOME, "__version__", "install"]  # noqa: PLE0604 - names of the table


def __getattr__(name: str) -> Any:
    """Import a public name, or a module, when it is first used (PEP 562)."""
    if name in _HOME:
        value = getattr(importlib.import_module(f"{__name__}.{_HOME[name]}"), name)
    elif name in _MODULES:
        value = importlib.import_module(f"{__name__}.{name}")
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """Return the public names, whether or not they were used."""
    return sorted(__all__)


def install() -> None:
    """Put this package in the place of ``icechunk`` in this process.

    Libraries that import icechunk afterwards, such as VirtualiZarr's writer, then use icevirt.
    Call it before they are imported.

    Raises:
        InvalidInputError: The official package is imported already.
    """
    from icevirt.errors import InvalidInputError

    here = sys.modules[__name__]
    loaded = sys.modules.get("icechunk")
    if loaded is not None and loaded is not here:
        raise InvalidInputError(
            "the official icechunk package is imported already",
            do="Call icevirt.icechunk.install() before anything imports icechunk.",
            file=getattr(loaded, "__file__", None),
        )
    sys.modules["icechunk"] = here
    for module in _MODULES:
        try:
            found = importlib.import_module(f"{__name__}.{module}")
        except ModuleNotFoundError as error:  # dask is not everywhere
            if (error.name or "").startswith("icevirt"):
                raise
            continue
        sys.modules[f"icechunk.{module}"] = found
