"""icevirt: versioned, cloud-native datasets over archives of NetCDF/HDF5 files, without copies.

This is all of the public interface. Nothing is imported before it is asked for, so that
``import icevirt`` costs milliseconds and a reader never loads Spark or HDF5.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from icevirt.version import __version__

if TYPE_CHECKING:
    from icevirt import errors
    from icevirt.access.virtualizarr import from_virtualizarr
    from icevirt.api.build import build
    from icevirt.api.check import CheckReport, check
    from icevirt.api.info import info
    from icevirt.api.plan import plan
    from icevirt.api.scan import scan_file
    from icevirt.archive.plan import BuildPlan
    from icevirt.archive.report import BuildReport, RepositorySummary
    from icevirt.archive.scanned import ScannedFile
    from icevirt.logic.conflicts import (
        AppendConflictSolver,
        BasicConflictSolver,
        Conflict,
        ConflictDetector,
        ConflictSolver,
        ConflictType,
        VersionSelection,
    )
    from icevirt.logic.flags import FeatureFlag
    from icevirt.model.chunks import ChunkType
    from icevirt.model.config import (
        ObjectStoreConfig,
        RepositoryConfig,
        VirtualChunkContainer,
        local_filesystem_store,
    )
    from icevirt.model.manifest_config import (
        ManifestConfig,
        ManifestSplitCondition,
        ManifestSplitDimCondition,
        ManifestSplittingConfig,
        ManifestVirtualChunkLocationCompressionConfig,
    )
    from icevirt.repo.collect import GCSummary
    from icevirt.repo.repository import Repository
    from icevirt.repo.session import ForkSession, Session, SessionMode
    from icevirt.repo.stats import ChunkStorageStats
    from icevirt.scan.contract import ScanOptions
    from icevirt.storage.local import local_filesystem_storage
    from icevirt.storage.memory import in_memory_storage

__all__ = [
    "AppendConflictSolver",
    "BasicConflictSolver",
    "BuildPlan",
    "BuildReport",
    "CheckReport",
    "ChunkStorageStats",
    "ChunkType",
    "Conflict",
    "ConflictDetector",
    "ConflictSolver",
    "ConflictType",
    "FeatureFlag",
    "ForkSession",
    "GCSummary",
    "ManifestConfig",
    "ManifestSplitCondition",
    "ManifestSplitDimCondition",
    "ManifestSplittingConfig",
    "ManifestVirtualChunkLocationCompressionConfig",
    "ObjectStoreConfig",
    "Repository",
    "RepositoryConfig",
    "RepositorySummary",
    "ScanOptions",
    "ScannedFile",
    "Session",
    "SessionMode",
    "VersionSelection",
    "VirtualChunkContainer",
    "__version__",
    "build",
    "check",
    "errors",
    "from_virtualizarr",
    "in_memory_storage",
    "info",
    "local_filesystem_storage",
    "local_filesystem_store",
    "plan",
    "scan_file",
]

_HOME = {
    "AppendConflictSolver": "icevirt.logic.conflicts",
    "BasicConflictSolver": "icevirt.logic.conflicts",
    "BuildPlan": "icevirt.archive.plan",
    "BuildReport": "icevirt.archive.report",
    "CheckReport": "icevirt.api.check",
    "ChunkStorageStats": "icevirt.repo.stats",
    "ChunkType": "icevirt.model.chunks",
    "Conflict": "icevirt.logic.conflicts",
    "ConflictDetector": "icevirt.logic.conflicts",
    "ConflictSolver": "icevirt.logic.conflicts",
    "ConflictType": "icevirt.logic.conflicts",
    "FeatureFlag": "icevirt.logic.flags",
    "ForkSession": "icevirt.repo.session",
    "GCSummary": "icevirt.repo.collect",
    "ManifestConfig": "icevirt.model.manifest_config",
    "ManifestSplitCondition": "icevirt.model.manifest_config",
    "ManifestSplitDimCondition": "icevirt.model.manifest_config",
    "ManifestSplittingConfig": "icevirt.model.manifest_config",
    "ManifestVirtualChunkLocationCompressionConfig": "icevirt.model.manifest_config",
    "ObjectStoreConfig": "icevirt.model.config",
    "Repository": "icevirt.repo.repository",
    "RepositoryConfig": "icevirt.model.config",
    "RepositorySummary": "icevirt.archive.report",
    "ScanOptions": "icevirt.scan.contract",
    "ScannedFile": "icevirt.archive.scanned",
    "Session": "icevirt.repo.session",
    "SessionMode": "icevirt.repo.session",
    "VersionSelection": "icevirt.logic.conflicts",
    "VirtualChunkContainer": "icevirt.model.config",
    "build": "icevirt.api.build",
    "check": "icevirt.api.check",
    "from_virtualizarr": "icevirt.access.virtualizarr",
    "in_memory_storage": "icevirt.storage.memory",
    "info": "icevirt.api.info",
    "local_filesystem_storage": "icevirt.storage.local",
    "local_filesystem_store": "icevirt.model.config",
    "plan": "icevirt.api.plan",
    "scan_file": "icevirt.api.scan",
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
        f"icevirt.{name} needs packages that a reader does without",
        do="Run `pip install 'icevirt[all]'`.",
        missing=error.name,
    )


def __dir__() -> list[str]:
    """Return the public names, whether or not they were used."""
    return sorted(__all__)
