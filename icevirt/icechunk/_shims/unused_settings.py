"""Say which settings of a configuration are kept for official clients, and do nothing here."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from icevirt.icechunk._shims import logs

if TYPE_CHECKING:
    from icevirt.model.config.document import RepositoryConfig

_REQUESTS = "requests are bounded for each server and joined by their distance"
_MEMORY = "icevirt bounds memory in bytes"
_PATIENCE = "requests that fail by chance are repeated for about a minute"
_CONDITIONS = "icevirt always writes conditionally"
UNUSED = {
    "get_partial_values_concurrency": _REQUESTS,
    "max_concurrent_requests": _REQUESTS,
    "max_concurrent_decodes": "codecs run where bytes arrive",
    "caching.num_snapshot_nodes": _MEMORY,
    "caching.num_chunk_refs": _MEMORY,
    "caching.num_transaction_changes": _MEMORY,
    "caching.num_bytes_attributes": _MEMORY,
    "storage.concurrency": _REQUESTS,
    "storage.retries": _PATIENCE,
    "storage.timeouts.operation_timeout_ms": _PATIENCE,
    "storage.unsafe_use_conditional_create": _CONDITIONS,
    "storage.unsafe_use_conditional_update": f"{_CONDITIONS}; `False` is refused in buckets",
    "storage.unsafe_use_metadata": "icevirt stores no metadata with objects",
    "manifest.preload": "manifests are searched when they are needed",
    "manifest.max_concurrent_manifest_fetches_during_commit": _REQUESTS,
}
"""Why, by the place of a setting in the document."""


def log_unused(config: RepositoryConfig | None) -> None:
    """Write a line for each setting of a program that does nothing."""
    if config is not None and logs.is_on("info"):
        for place in find_unused(config.document):
            logs.log("info", f"RepositoryConfig.{place} has no effect: {UNUSED[place]}")


def find_unused(document: Mapping[str, Any], below: str = "") -> Iterator[str]:
    """Yield the places of settings that are set and do nothing."""
    for name, value in document.items():
        place = f"{below}{name}"
        if value is not None and place in UNUSED:
            yield place
        elif isinstance(value, Mapping):
            yield from find_unused(value, f"{place}.")
