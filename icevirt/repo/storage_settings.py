"""Let the storage of a repository write as the repository's configuration says."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from icevirt.repo import layout

if TYPE_CHECKING:
    from icevirt.model.config.sections import StorageTimeoutSettings
    from icevirt.storage.protocol import Storage

_METADATA = (layout.MANIFESTS, layout.SNAPSHOTS, layout.TRANSACTIONS)


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
        "": settings.storage_class,
        layout.CHUNKS: settings.chunks_storage_class,
        **dict.fromkeys(_METADATA, settings.metadata_storage_class),
    }
    given = {folder: name for folder, name in classes.items() if name}
    made: Storage = storage.with_settings(
        given, settings.minimum_size_for_multipart_upload, _timeouts(settings.timeouts)
    )
    return made


def _timeouts(given: StorageTimeoutSettings | None) -> dict[str, timedelta]:
    """Return timeouts by obstore's names."""
    if given is None:
        return {}
    found = {
        "connect_timeout": given.connect_timeout_ms,
        "read_timeout": given.read_timeout_ms,
        "timeout": given.operation_attempt_timeout_ms,
    }
    return {name: timedelta(milliseconds=ms) for name, ms in found.items() if ms is not None}
