"""The sections of a configuration, which programs change in place."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar

from icevirt.icechunk._shims.shown import Shown
from icevirt.model.config import sections
from icevirt.model.config.sections import CompressionAlgorithm
from icevirt.model.config.settings import OptionalSection

_OWNER = "_owner"
OF: dict[type, Any] = {}
"""The section of this module for each of icevirt's."""


class Changeable(Shown):
    """A section whose settings can be assigned, as those of icechunk; frozen ones are icevirt's."""

    _is_expression = True
    _owner: Callable[[Any], None] | None = None  # what hears of changes

    def __post_init__(self) -> None:
        for name in self._names():
            object.__setattr__(self, name, changeable(getattr(self, name)))
        self._check()

    def _check(self) -> None:
        """Refuse settings of another type."""
        sections.Section.__post_init__(self)  # type: ignore[arg-type]

    def __setattr__(self, name: str, value: Any) -> None:
        if name not in self._names():
            raise AttributeError(f"{type(self).__name__} has no setting {name!r}")
        before = getattr(self, name)
        object.__setattr__(self, name, changeable(value))
        try:
            self._check()
        except Exception:
            object.__setattr__(self, name, before)
            raise
        if self._owner is not None:
            self._owner(self)

    def __getattribute__(self, name: str) -> Any:
        value = object.__getattribute__(self, name)
        if isinstance(value, Changeable) and not name.startswith("_"):
            object.__setattr__(value, _OWNER, lambda new: setattr(self, name, new))
        return value

    def owned_by(self, owner: Callable[[Any], None]) -> None:
        """Tell a function of each change."""
        object.__setattr__(self, _OWNER, owner)

    def __getstate__(self) -> Any:
        return {name: getattr(self, name) for name in self._names()}

    def __setstate__(self, state: Any) -> None:
        for name, value in state.items():
            object.__setattr__(self, name, value)


def changeable(value: Any) -> Any:
    """Return the section that can be changed for one that cannot; other values as they are."""
    kind = None if value is None else OF.get(type(value))
    return value if kind is None else kind.of(value)


class CompressionConfig(Changeable, sections.CompressionConfig):
    """How metadata files are compressed."""

    _home = "icechunk.config"
    _defaults: ClassVar[Mapping[str, Any]] = {"algorithm": CompressionAlgorithm.Zstd, "level": 3}


class CachingConfig(Changeable, sections.CachingConfig):
    """What icechunk clients cache in memory. icevirt's cache is bounded in bytes instead."""

    _home = "icechunk.config"
    _defaults: ClassVar[Mapping[str, Any]] = {
        "num_snapshot_nodes": 500_000,
        "num_chunk_refs": 15_000_000,
        "num_transaction_changes": 0,
        "num_bytes_attributes": 0,
        "num_bytes_chunks": 0,
    }


class StorageConcurrencySettings(Changeable, sections.StorageConcurrencySettings):
    """The number and size of parallel requests for one object."""

    _home = "icechunk.storage"
    _defaults: ClassVar[Mapping[str, Any]] = {
        "max_concurrent_requests_for_object": 18,
        "ideal_concurrent_request_size": 12 << 20,
    }


class StorageRetriesSettings(Changeable, sections.StorageRetriesSettings):
    """How often a request is retried, and the pauses between retries."""

    _home = "icechunk.storage"
    _defaults: ClassVar[Mapping[str, Any]] = {
        "max_tries": 10,
        "initial_backoff_ms": 100,
        "max_backoff_ms": 180_000,
    }


class StorageTimeoutSettings(Changeable, sections.StorageTimeoutSettings):
    """How long a request may take."""

    _home = "icechunk.storage"


class StorageSettings(Changeable, sections.StorageSettings):
    """How clients talk to the storage of the repository."""

    _home = "icechunk.storage"
    _defaults: ClassVar[Mapping[str, Any]] = {
        "unsafe_use_conditional_create": True,
        "unsafe_use_conditional_update": True,
        "unsafe_use_metadata": True,
        "minimum_size_for_multipart_upload": 100 << 20,
        "concurrency": StorageConcurrencySettings(),
        "retries": StorageRetriesSettings(),
    }

    def _shown(self) -> Mapping[str, Any]:
        last = ("concurrency", "retries", "timeouts")
        names = [*(name for name in self._names() if name not in last), *last]
        return {name: getattr(self, name) for name in names}


class RepoUpdateRetryConfig(Changeable, sections.RepoUpdateRetryConfig):
    """How often icechunk clients retry replacing the repo info when other writers are faster."""

    _home = "icechunk.config"
    _defaults: ClassVar[Mapping[str, Any]] = {
        "default": StorageRetriesSettings(
            max_tries=100, initial_backoff_ms=50, max_backoff_ms=30_000
        )
    }


class ManifestPreloadConfig(Changeable, sections.ManifestPreloadConfig):
    """Which manifests are fetched early, and how many at most."""

    _home = "icechunk.config"
    _defaults: ClassVar[Mapping[str, Any]] = {"max_total_refs": 10_000, "max_arrays_to_scan": 50}


class ManifestSplittingConfig(Changeable, sections.ManifestSplittingConfig):
    """Rules in order: of which arrays, how many chunks per manifest and axis."""

    _home = "icechunk.config"

    def __init__(self, split_sizes: Any = None) -> None:
        object.__setattr__(self, "split_sizes", tuple(split_sizes or ()))

    @staticmethod
    def from_dict(split_sizes: Any) -> ManifestSplittingConfig:
        """Make rules; the first rule that selects an axis applies to it."""
        return ManifestSplittingConfig.of(sections.ManifestSplittingConfig.from_dict(split_sizes))

    def _check(self) -> None:
        object.__setattr__(self, "split_sizes", tuple(self.split_sizes or ()))


class ManifestVirtualChunkLocationCompressionConfig(
    Changeable, sections.ManifestVirtualChunkLocationCompressionConfig
):
    """When and how the locations of virtual chunks are compressed; None is the default."""

    _home = "icechunk.config"
    _defaults: ClassVar[Mapping[str, Any]] = {
        "min_num_chunks": 1000,
        "dictionary_max_training_samples": 100,
        "dictionary_max_size_bytes": 2048,
        "compression_level": 3,
    }


class ManifestConfig(Changeable, sections.ManifestConfig):
    """The settings of manifests; None is the default. icevirt does not use ``preload`` itself."""

    _home = "icechunk.config"
    _defaults: ClassVar[Mapping[str, Any]] = {
        "preload": ManifestPreloadConfig(),
        "splitting": ManifestSplittingConfig(),
        "virtual_chunk_location_compression": ManifestVirtualChunkLocationCompressionConfig(),
        "max_concurrent_manifest_fetches_during_commit": 1,
    }


OF |= {
    each.__bases__[1]: each
    for each in (
        CompressionConfig,
        CachingConfig,
        StorageConcurrencySettings,
        StorageRetriesSettings,
        StorageTimeoutSettings,
        StorageSettings,
        RepoUpdateRetryConfig,
        ManifestPreloadConfig,
        ManifestSplittingConfig,
        ManifestVirtualChunkLocationCompressionConfig,
        ManifestConfig,
    )
}


class ChangeableSection(OptionalSection[Any]):
    """A section of the configuration whose changes reach the configuration."""

    def __init__(self, kind: Any) -> None:
        base = kind.__bases__[1]
        super().__init__(f"{base.__module__}.{base.__qualname__}", kind.__doc__)

    def __get__(self, config: Any, owner: type) -> Any:
        found = changeable(super().__get__(config, owner))
        if isinstance(found, Changeable):
            found.owned_by(lambda new: self.__set__(config, new))
        return found
