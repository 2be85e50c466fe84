"""The sections of a configuration, which programs change in place, and its containers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import wraps
from typing import Any, ClassVar

from icevirt.connect import options
from icevirt.icechunk._shims.classes import MadeKind, kind
from icevirt.icechunk._shims.shown import Shown, plain
from icevirt.model.config import containers, sections
from icevirt.model.config.document import OptionalSection
from icevirt.model.config.sections import CompressionAlgorithm

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

    def set_owner(self, owner: Callable[[Any], None]) -> None:
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

    def _show_fields(self) -> Mapping[str, Any]:
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
            found.set_owner(lambda new: self.__set__(config, new))
        return found


class S3Options(Shown, dict[str, Any]):
    """How an S3 store is reached; for `ObjectStoreConfig.S3` and its kind."""

    _home: ClassVar[str] = "icechunk.storage"
    _is_expression: ClassVar[bool] = True

    region: str | None
    endpoint_url: str | None
    allow_http: bool
    anonymous: bool
    force_path_style: bool
    network_stream_timeout_seconds: int | None
    requester_pays: bool
    checksum_algorithm: Any

    def __init__(  # noqa: PLR0917 - icechunk's arguments
        self,
        region: str | None = None,
        endpoint_url: str | None = None,
        allow_http: bool = False,
        anonymous: bool = False,
        force_path_style: bool = False,
        network_stream_timeout_seconds: int | None = None,
        requester_pays: bool = False,
        checksum_algorithm: Any = None,
    ) -> None:
        super().__init__(
            region=region,
            endpoint_url=endpoint_url,
            allow_http=allow_http,
            anonymous=anonymous,
            force_path_style=force_path_style,
            network_stream_timeout_seconds=network_stream_timeout_seconds,
            requester_pays=requester_pays,
            checksum_algorithm=checksum_algorithm,
        )

    def __getattr__(self, name: str) -> Any:
        """Return an option."""
        try:
            return self[name]
        except KeyError as error:
            raise AttributeError(name) from error

    def __setattr__(self, name: str, value: Any) -> None:
        """Change an option."""
        if name not in self:
            raise AttributeError(name)
        self[name] = value

    def _show_fields(self) -> Mapping[str, Any]:
        return dict(self)


_WORDS = {
    "InMemory": "in_memory",
    "LocalFileSystem": "local_file_system",
    "S3": "s3",
    "S3Compatible": "s3_compatible",
    "Tigris": "tigris",
    "Gcs": "gcs",
    "Azure": "azure",
    "Http": "http",
}
_ON_S3 = ("s3", "s3_compatible", "tigris")


def _of_word(name: str) -> MadeKind:
    """Return the class of one kind of store, whose values are `ObjectStoreConfig`."""
    word = _WORDS[name]

    def make(given: Any = None, headers: Any = None) -> ObjectStoreConfig:
        if word == "local_file_system":
            return ObjectStoreConfig(word, str(given))
        if word == "http":
            return ObjectStoreConfig.of(options.http_store(given, headers))
        found = {name: value for name, value in (given or {}).items() if value is not None}
        found.pop("checksum_algorithm", None)  # of writes, and containers are read
        return ObjectStoreConfig(word, found)

    return kind(
        name, make, lambda x: isinstance(x, containers.ObjectStoreConfig) and x.kind == word
    )


class ObjectStoreConfig(Shown, containers.ObjectStoreConfig):
    """How the objects of a container are reached, by the kind of store."""

    _home = "icechunk.config"
    _is_expression = True

    InMemory, LocalFileSystem, S3, S3Compatible, Tigris, Gcs, Azure, Http = map(_of_word, _WORDS)

    def _title(self) -> str:
        name = next((name for name, word in _WORDS.items() if word == self.kind), self.kind)
        return f"{self._home}.ObjectStoreConfig.{name}"

    def _show_fields(self) -> Mapping[str, Any]:
        if self.kind in _ON_S3:
            return S3Options(**self.options)
        return self.options if isinstance(self.options, Mapping) else {"path": self.options}

    def _expression(self) -> str:
        shown = self._show_fields()
        text = plain(shown) if self.options else ""
        return f"{self._title()}({repr(self.options) if isinstance(self.options, str) else text})"


class VirtualChunkContainer(Shown, containers.VirtualChunkContainer):
    """A URL prefix below which virtual chunks may lie, and how to reach it."""

    _home = "icechunk.virtual"
    _is_expression = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "store", ObjectStoreConfig.of(self.store))
        if self.store.kind != "in_memory":  # which no reader can share
            containers.VirtualChunkContainer.__post_init__(self)

    def _show_fields(self) -> Mapping[str, Any]:
        return {"name": self.name, "url_prefix": self.url_prefix, "store": self.store}


def _convert_result(
    make: Callable[..., containers.ObjectStoreConfig],
) -> Callable[..., ObjectStoreConfig]:
    @wraps(make)
    def convert(*args: Any, **kwargs: Any) -> ObjectStoreConfig:
        return ObjectStoreConfig.of(make(*args, **kwargs))

    return convert


azure_store = _convert_result(options.azure_store)
gcs_store = _convert_result(options.gcs_store)
http_store = _convert_result(options.http_store)
local_filesystem_store = _convert_result(containers.local_filesystem_store)
s3_store = _convert_result(options.s3_store)
