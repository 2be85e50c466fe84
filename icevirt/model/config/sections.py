"""Define the sections of the persisted configuration, and convert them to values and back.

A section knows its settings; other keys in the document, from a newer client, stay there. None is
the default, which is also what an absent key means. Names, order and defaults are icechunk's:
icevirt persists all settings for every client, and itself follows ``CompressionConfig.level``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from enum import Enum
from typing import Any, Self, get_args, get_type_hints

from icevirt.deferred_dataclass import dataclass
from icevirt.errors import InvalidInputError
from icevirt.model.config.settings import refuse_other
from icevirt.model.json import JSONObject


class Word(Enum):
    """A choice that is persisted as a word."""


@dataclass(frozen=True, slots=True)
class Section:
    """Settings that belong together; each is a bool, int, str, `Word` or section, or None."""

    def __post_init__(self) -> None:
        for name, kind in _kinds(type(self)).items():
            refuse_other(f"{type(self).__name__}.{name}", getattr(self, name), kind)

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> Self:
        """Read the persisted form. Raises ``InvalidInputError``."""
        if not isinstance(document, Mapping):
            raise InvalidInputError(
                f"not the persisted form of a {cls.__name__}",
                do="Correct the repository's config, or upgrade icevirt.",
                found=document,
            )
        return cls(**{n: _read(kind, document.get(n)) for n, kind in _kinds(cls).items()})

    def onto(self, document: Mapping[str, Any]) -> JSONObject:
        """Return the persisted form, with all other keys as in ``document``."""
        written = {n: _written(getattr(self, n), document.get(n)) for n in _kinds(type(self))}
        return {**document, **written}


def _kinds(section: type[Section]) -> dict[str, Any]:
    """Return what each setting is when it is not None, in their order."""
    hints = get_type_hints(section)
    return {
        each.name: next(kind for kind in get_args(hints[each.name]) if kind is not type(None))
        for each in fields(section)
    }


def _read(kind: type[Any], value: Any) -> Any:
    if value is None:
        return None
    if hasattr(kind, "from_document"):
        return kind.from_document(value)
    return kind(value) if issubclass(kind, Word) else value


def _written(value: Any, before: Any) -> Any:
    if isinstance(value, Word):
        return value.value
    if not hasattr(value, "onto"):
        return value
    return value.onto(before if isinstance(before, Mapping) else {})


class CompressionAlgorithm(Word):
    """How metadata files are compressed."""

    Zstd = "zstd"

    @staticmethod
    def default() -> CompressionAlgorithm:
        """Return the format's algorithm."""
        return CompressionAlgorithm.Zstd


@dataclass(frozen=True, slots=True)
class CompressionConfig(Section):
    """How metadata files are compressed."""

    algorithm: CompressionAlgorithm | None = None
    level: int | None = None  # 3

    @staticmethod
    def default() -> CompressionConfig:
        """Return the section with all defaults."""
        return CompressionConfig()


@dataclass(frozen=True, slots=True)
class CachingConfig(Section):
    """What icechunk clients cache in memory. icevirt's cache is bounded in bytes instead."""

    num_snapshot_nodes: int | None = None
    num_chunk_refs: int | None = None
    num_transaction_changes: int | None = None
    num_bytes_attributes: int | None = None
    num_bytes_chunks: int | None = None

    @staticmethod
    def default() -> CachingConfig:
        """Return the section with all defaults."""
        return CachingConfig()


@dataclass(frozen=True, slots=True)
class StorageConcurrencySettings(Section):
    """The number and size of parallel requests for one object."""

    max_concurrent_requests_for_object: int | None = None
    ideal_concurrent_request_size: int | None = None


@dataclass(frozen=True, slots=True)
class StorageRetriesSettings(Section):
    """How often a request is retried, and the pauses between retries."""

    max_tries: int | None = None
    initial_backoff_ms: int | None = None
    max_backoff_ms: int | None = None


@dataclass(frozen=True, slots=True)
class StorageTimeoutSettings(Section):
    """How long a request may take."""

    connect_timeout_ms: int | None = None
    read_timeout_ms: int | None = None
    operation_timeout_ms: int | None = None
    operation_attempt_timeout_ms: int | None = None


@dataclass(frozen=True, slots=True)
class StorageSettings(Section):
    """How clients talk to the storage of the repository."""

    concurrency: StorageConcurrencySettings | None = None
    retries: StorageRetriesSettings | None = None
    unsafe_use_conditional_create: bool | None = None
    unsafe_use_conditional_update: bool | None = None
    unsafe_use_metadata: bool | None = None
    storage_class: str | None = None
    metadata_storage_class: str | None = None
    chunks_storage_class: str | None = None
    minimum_size_for_multipart_upload: int | None = None
    timeouts: StorageTimeoutSettings | None = None


@dataclass(frozen=True, slots=True)
class RepoUpdateRetryConfig(Section):
    """How often icechunk clients retry replacing the repo info when other writers are faster."""

    default: StorageRetriesSettings | None = None
