"""Choose how to reach the objects of a container, from its authorization."""

from __future__ import annotations

from typing import Any, Protocol

from icevirt.connect.container import canonical
from icevirt.connect.stores import Bucket, bucket_of
from icevirt.errors import InvalidInputError
from icevirt.model.config.document import VirtualChunkContainer
from icevirt.objects.answers import Check, ObjectBytes
from icevirt.objects.authorize import RemoteGrant
from icevirt.objects.buckets import BucketReach
from icevirt.objects.endpoints import allowed_endpoints
from icevirt.objects.fsspec_reader import ForeignReach
from icevirt.objects.http.signed_reads import SignedReach, repeats_secrets
from icevirt.objects.http.sites import site_for


class Backend(Protocol):
    """A way to objects."""

    @property
    def host(self) -> str:
        """Whose limit of requests counts."""

    def get(self, key: str, begin: int, end: int, check: Check) -> ObjectBytes:
        """Return bytes of an object, fewer only at its end; blocks."""


def reach_for_grant(grant: RemoteGrant) -> Backend:
    """Return the way to the object of a grant; a container's options are read once for all of them.

    Raises:
        InvalidInputError: The container's options or the credentials do not make one.
        UnauthorizedError: Requests would go to another server; perhaps when the first is sent.
        StorageError: A function was called for credentials and failed.
    """
    if (found := grant.made.get("reach")) is None:
        found = _made(grant.container, grant.credentials, grant.endpoints)
        grant.made["reach"] = found
    prefix = grant.container.url_prefix
    return bucket_reach(found, prefix) if isinstance(found, Bucket) else found


def _made(
    container: VirtualChunkContainer, credentials: Any, endpoints: frozenset[str]
) -> Backend | Bucket:
    """Return what stays the same for all objects; how a bucket is read depends on its secrets."""
    store, prefix = canonical(container), container.url_prefix
    if container.is_foreign:
        return _foreign(container, credentials)
    if store.kind == "http":
        return site_for(prefix, store, credentials)
    only = allowed_endpoints(container, endpoints)
    return bucket_of(prefix, store, credentials, only)


def bucket_reach(bucket: Bucket, prefix: str) -> Backend:
    """Return the way to objects of a bucket that keeps secrets from servers it redirects to."""
    return SignedReach(bucket, prefix) if repeats_secrets(bucket) else BucketReach(bucket, prefix)


def _foreign(container: VirtualChunkContainer, filesystem: Any) -> ForeignReach:
    from fsspec import AbstractFileSystem  # type: ignore[import-untyped]
    from fsspec.implementations.local import (  # type: ignore[import-untyped]
        LocalFileSystem,
    )

    if not isinstance(filesystem, AbstractFileSystem) or isinstance(filesystem, LocalFileSystem):
        raise InvalidInputError(
            "this container needs an fsspec file system, which the reader has to pass",
            do="Pass authorize_virtual_chunk_access={{container.url_prefix!r}: "
            "fsspec.filesystem(...)}; for local files, use a file:// container.",
            container=container.url_prefix,
            found=type(filesystem).__name__,
        )
    return ForeignReach(filesystem, container.url_prefix)
