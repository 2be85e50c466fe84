"""Configure how clients of a repository cache, compress and talk to storage.

Names, order and defaults are icechunk's. icevirt persists all of them for every client; icevirt
itself follows ``CompressionConfig.level``.
"""

from __future__ import annotations

from dataclasses import dataclass

from icevirt.model.config.sections import Section, Word


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
