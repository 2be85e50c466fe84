"""icechunk's names of the configuration, and of what icevirt does not have: its logs."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, ClassVar, Self

from icevirt.errors import InvalidInputError
from icevirt.icechunk._shims import logs
from icevirt.icechunk._shims.classes import guard, kind
from icevirt.icechunk._shims.configuration import (
    CachingConfig,
    ChangeableSection,
    CompressionConfig,
    ManifestConfig,
    ManifestPreloadConfig,
    ManifestSplittingConfig,
    ManifestVirtualChunkLocationCompressionConfig,
    ObjectStoreConfig,
    RepoUpdateRetryConfig,
    S3Options,
    StorageSettings,
    VirtualChunkContainer,
)
from icevirt.icechunk._shims.shown import Shown
from icevirt.model.config import containers, document
from icevirt.model.config.sections import CompressionAlgorithm as Algorithm
from icevirt.model.config.sections import (
    ManifestPreloadCondition,
    ManifestSplitCondition,
    ManifestSplitDimCondition,
)
from icevirt.versioning import repo_updates

__all__ = [
    "Attribution",
    "CachingConfig",
    "CompressionAlgorithm",
    "CompressionConfig",
    "FeatureFlag",
    "ManifestConfig",
    "ManifestPreloadCondition",
    "ManifestPreloadConfig",
    "ManifestSplitCondition",
    "ManifestSplitDimCondition",
    "ManifestSplitValues",
    "ManifestSplittingConfig",
    "ManifestVirtualChunkLocationCompressionConfig",
    "ObjectStoreConfig",
    "RepoUpdateRetryConfig",
    "RepositoryConfig",
    "S3Options",
    "SplitSizesDict",
    "initialize_logs",
    "set_logs_filter",
    "shutdown_telemetry",
    "user_agent",
]

type ManifestSplitValues = dict[Any, int]
type SplitSizesDict = dict[ManifestSplitCondition, ManifestSplitValues]


CompressionAlgorithm = kind(
    "CompressionAlgorithm",
    Algorithm.default,
    lambda x: isinstance(x, Algorithm),
    Zstd=Algorithm.Zstd,
    default=staticmethod(Algorithm.default),
)


class RepositoryConfig(document.RepositoryConfig, Shown):
    """Configuration of a repository; None is the default of a setting."""

    _home = "icechunk.config"
    _is_expression = True
    _defaults: ClassVar[Mapping[str, Any]] = {
        "inline_chunk_threshold_bytes": 512,
        "get_partial_values_concurrency": 10,
        "max_concurrent_requests": 256,
        "max_concurrent_decodes": 2,
        "num_updates_per_repo_info_file": 1000,
        "compression": CompressionConfig(),
        "caching": CachingConfig(),
        "manifest": ManifestConfig(),
        "repo_update_retries": RepoUpdateRetryConfig(),
    }

    compression = ChangeableSection(CompressionConfig)
    caching = ChangeableSection(CachingConfig)
    storage = ChangeableSection(StorageSettings)
    repo_update_retries = ChangeableSection(RepoUpdateRetryConfig)
    manifest = ChangeableSection(ManifestConfig)

    __repr__ = Shown.__repr__
    __str__ = Shown.__str__

    def _show_fields(self) -> Mapping[str, Any]:
        names = (
            "inline_chunk_threshold_bytes get_partial_values_concurrency max_concurrent_requests"
            " max_concurrent_decodes num_updates_per_repo_info_file compression caching storage"
            " manifest repo_update_retries virtual_chunk_containers"
        )
        return {name: getattr(self, name) or None for name in names.split()}

    @classmethod
    def of(cls, value: Any) -> Self:
        """Return icevirt's configuration as icechunk has it; both change together."""
        return value if isinstance(value, cls) else cls.from_document(value.document)

    @classmethod
    def default(cls) -> Self:
        """Return the configuration with all defaults."""
        return cls()

    @classmethod
    def from_document(cls, document: Mapping[str, Any] | None) -> Self:
        """Wrap a persisted document, without copying it."""
        config = cls()
        config.document = document if isinstance(document, dict) else dict(document or {})
        return config

    def __eq__(self, other: object) -> bool:
        """Say whether all settings are equal, the absent ones included."""
        return isinstance(other, RepositoryConfig) and self._show_fields() == other._show_fields()

    __hash__ = document.RepositoryConfig.__hash__

    @property
    def virtual_chunk_containers(self) -> dict[str, containers.VirtualChunkContainer]:
        """Containers by url_prefix."""
        found = super().virtual_chunk_containers
        return {prefix: VirtualChunkContainer.of(each) for prefix, each in found.items()}

    def get_virtual_chunk_container(self, name: str) -> VirtualChunkContainer | None:
        """Return the container of this name or url_prefix."""
        found = document.RepositoryConfig.from_document(self.document)
        container = found.get_virtual_chunk_container(name)
        return None if container is None else VirtualChunkContainer.of(container)


class FeatureFlag(Shown, repo_updates.FeatureFlag):
    """One feature, and whether it is enabled."""

    _home = "icechunk.config"

    def _show_fields(self) -> Mapping[str, Any]:
        names = ("id", "name", "default_enabled", "setting", "enabled")
        return {name: getattr(self, name) for name in names}


class Attribution(Shown):
    """Names of a program for the logs of servers; icevirt's requests do not carry them.

    Raises:
        InvalidInputError: A name is longer than 128 bytes, or has characters that no header takes.
        TypeError: One is no text.
    """

    _home = "icechunk"
    _is_expression = True

    client: str | None
    workload: str | None
    principal: str | None

    def __init__(
        self,
        *,
        client: str | None = None,
        workload: str | None = None,
        principal: str | None = None,
    ) -> None:
        names = {"client": client, "workload": workload, "principal": principal}
        for name, value in names.items():
            _check_attribution(name, value)
        vars(self).update(names)

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"attribute {name!r} of an attribution is not writable")

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Attribution) and vars(self) == vars(other)

    def __hash__(self) -> int:
        return hash(tuple(vars(self).items()))

    def _show_fields(self) -> Mapping[str, Any]:
        return vars(self)


_SIGNS = r"[!#$%&'*+.^_`|~0-9A-Za-z-]+"
_CLIENT = re.compile(rf"{_SIGNS}(/{_SIGNS})?")
_NAME = re.compile(r"[ !#-'*-:<>-\[\]-~]*")
_LONGEST = 128


@guard
def _check_attribution(name: str, value: object) -> None:
    if value is None:
        return
    if not isinstance(value, str):
        raise TypeError(f"{name} is a {type(value).__name__}, not a str")
    wrong = ""
    if len(value) > _LONGEST:
        wrong = f"is longer than {_LONGEST} characters"
    elif name == "client" and not _CLIENT.fullmatch(value):
        wrong = "has others than token characters"
    elif name != "client" and not _NAME.fullmatch(value):
        wrong = "has a forbidden character"
    if wrong:
        raise InvalidInputError(
            f"{name} of an attribution {wrong}, so that no header takes it",
            do='Write a client as name or name/version, and others in ASCII without "();=\\,'
            f" in at most {_LONGEST} characters.",
            found=value[:_LONGEST],
        )


def initialize_logs() -> None:
    """Log what ``ICECHUNK_LOG`` asks for."""
    logs.set_filter(None)


def set_logs_filter(log_filter_directive: str | None) -> None:
    """Log from now on what a directive such as ``debug`` asks for; None: ``ICECHUNK_LOG``."""
    logs.set_filter(log_filter_directive)


def shutdown_telemetry() -> None:
    """Do nothing: there is no telemetry."""


def user_agent() -> str:
    """Return what icevirt calls itself."""
    from icevirt.version import __version__

    return f"icevirt/{__version__}"
