"""From a container and what was authorised for it to the way its objects are reached."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from icevirt.connect.stores import bucket_of
from icevirt.errors import InvalidInputError
from icevirt.model.config import ObjectStoreConfig, VirtualChunkContainer
from icevirt.objects.answers import Answer, Check
from icevirt.objects.buckets import BucketReach
from icevirt.objects.foreign import ForeignReach
from icevirt.objects.sites import site_for

# of a container that somebody else wrote: nothing that says whom credentials are sent to, whose
# certificates count, or which files of this machine are read
_HARMLESS = {
    "gcs": {"google_base_url", "base_url", "gcs_base_url", "endpoint", "bucket", "user_agent"},
    "azure": {
        "account",
        "account_name",
        "azure_storage_account_name",
        "azure_storage_endpoint",
        "azure_endpoint",
        "endpoint",
        "azure_allow_http",
        "container_name",
    },
}
_CLIENT = {"allow_http", "connect_timeout", "read_timeout", "timeout", "user_agent"}


class Reach(Protocol):
    """A way to objects."""

    @property
    def host(self) -> str:
        """Whose limit of requests counts."""

    def get(self, key: str, begin: int, end: int, check: Check) -> Answer:
        """Return bytes of an object, fewer only at its end; blocks."""


def reach_of(container: VirtualChunkContainer, credentials: Any) -> Reach:
    """Return the way to a container's objects.

    Raises:
        InvalidInputError: The container's options or the credentials do not make one.
    """
    if container.is_foreign:
        return _foreign(container, credentials)
    if container.store.kind == "http":
        return site_for(container.url_prefix, container.store, credentials)
    _refuse_options(container)
    bucket = bucket_of(container.url_prefix, container.store, credentials)
    return BucketReach(bucket, container.url_prefix)


def _refuse_options(container: VirtualChunkContainer) -> None:
    options = container.store.options
    allowed = _HARMLESS.get(container.store.kind)
    if allowed is None or not isinstance(options, Mapping):
        return  # of S3, `icevirt.connect` knows harmless ones only
    for name in options:
        if name.lower() not in allowed | _CLIENT:
            raise InvalidInputError(
                "a virtual chunk container has an option that is for its reader to choose",
                do="Remove it from the container, and set the environment instead.",
                container=container.url_prefix,
                option=name,
            )


def persistable(config: ObjectStoreConfig | None) -> ObjectStoreConfig | None:
    """Return what a container may say of a store: nothing secret, nothing that readers refuse.

    None stands for nothing.
    """
    if config is None or not isinstance(config.options, Mapping):
        return None
    allowed = _HARMLESS.get(config.kind)
    kept = {
        name: value
        for name, value in config.options.items()
        if allowed is None or name.lower() in allowed | _CLIENT
    }
    return ObjectStoreConfig(config.kind, kept) if any(kept.values()) else None


def _foreign(container: VirtualChunkContainer, filesystem: Any) -> ForeignReach:
    from fsspec import AbstractFileSystem  # type: ignore[import-untyped]
    from fsspec.implementations.local import (  # type: ignore[import-untyped]
        LocalFileSystem,
    )

    if not isinstance(filesystem, AbstractFileSystem) or isinstance(filesystem, LocalFileSystem):
        raise InvalidInputError(
            "a container is served by an fsspec file system, which whoever reads has to pass",
            do=f"Pass authorize_virtual_chunk_access={{{container.url_prefix!r}:"
            " fsspec.filesystem(...)}; for files of this machine, make it a file:// container.",
            container=container.url_prefix,
            found=type(filesystem).__name__,
        )
    return ForeignReach(filesystem, container.url_prefix)
