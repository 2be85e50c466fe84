"""Let the storage of a repository write as the repository's configuration says."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from icevirt.model.config.document import unusable
from icevirt.repo import layout

if TYPE_CHECKING:
    from icevirt.model.config.sections import StorageSettings, StorageTimeoutSettings
    from icevirt.storage.protocol import Storage

_METADATA = (layout.MANIFESTS, layout.SNAPSHOTS, layout.TRANSACTIONS)
_MOST_BYTES = (1 << 64) - 1
_YEAR = 365 * 24 * 3600 * 1000  # milliseconds


def with_settings(storage: Storage, config: Mapping[str, Any]) -> Storage:
    """Return the storage as ``config.storage`` wants it: classes, parts of objects, timeouts.

    Disks and memory have none, as in the official client.

    Raises:
        FormatError: A setting is not valid.
    """
    if not hasattr(storage, "with_settings"):
        return storage
    from icevirt.model.config.document import RepositoryConfig

    settings = RepositoryConfig.from_document(config).storage
    assert settings is not None
    classes = {
        "": _class(settings, "storage_class"),
        layout.CHUNKS: _class(settings, "chunks_storage_class"),
        **dict.fromkeys(_METADATA, _class(settings, "metadata_storage_class")),
    }
    least_multipart = _number("", settings, "minimum_size_for_multipart_upload", _MOST_BYTES)
    given = {folder: name for folder, name in classes.items() if name}
    timeouts = _timeouts(settings.timeouts)
    made: Storage = storage.with_settings(given, least_multipart, timeouts)
    return made


def _class(settings: StorageSettings, name: str) -> str | None:
    """Return the storage class of a setting, which is sent as a header."""
    found: str | None = getattr(settings, name)
    if found and not re.fullmatch("[!-~]+", found):
        raise unusable(f"storage.{name}", "it is not a word of printable ASCII characters")
    return found


def _number(section: str, settings: Any, name: str, most: int) -> int | None:
    found: int | None = getattr(settings, name)
    if found is not None and found > most:  # a section takes none below zero
        raise unusable(f"storage.{section}{name}", f"it is not a number from 0 to {most}")
    return found


def _timeouts(given: StorageTimeoutSettings | None) -> dict[str, timedelta]:
    """Return timeouts by obstore's names."""
    if given is None:
        return {}
    found = {
        "connect_timeout": "connect_timeout_ms",
        "read_timeout": "read_timeout_ms",
        "timeout": "operation_attempt_timeout_ms",
    }
    read = {name: _number("timeouts.", given, own, _YEAR) for name, own in found.items()}
    return {name: timedelta(milliseconds=ms) for name, ms in read.items() if ms is not None}
