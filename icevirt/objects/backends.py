"""Choose how to reach the objects of a container, from its authorization."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from datetime import datetime
from typing import Any, Protocol
from urllib.parse import urlsplit

from icevirt.connect.container import canonical, canonical_store
from icevirt.connect.credentials.common import Anonymous, FromEnv, NoCredentials, Refreshable
from icevirt.connect.credentials.http import FromNetrc, HttpCredentials
from icevirt.connect.stores import Bucket, bucket_of
from icevirt.deferred_dataclass import dataclass
from icevirt.errors import InvalidInputError
from icevirt.model.config.containers import ObjectStoreConfig, VirtualChunkContainer
from icevirt.objects import answers
from icevirt.objects.answers import Check, Meta, ObjectBytes
from icevirt.objects.authorize import RemoteGrant, allowed_endpoints
from icevirt.objects.buckets import BucketReach, SignedReach, repeats_secrets
from icevirt.objects.http.client import Site, site_of

_TIMES = ("mtime", "last_modified", "LastModified", "Last-Modified", "updated")
_ETAGS = ("ETag", "etag", "e_tag")


class Backend(Protocol):
    """A way to objects."""

    @property
    def host(self) -> str:
        """The limit of requests to this host counts."""

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
    from fsspec.implementations.local import LocalFileSystem  # type: ignore[import-untyped]

    if not isinstance(filesystem, AbstractFileSystem) or isinstance(filesystem, LocalFileSystem):
        raise InvalidInputError(
            "this container needs an fsspec file system, which the reader has to pass",
            do=f"Pass authorize_virtual_chunk_access={{{container.url_prefix!r}: "
            "fsspec.filesystem(...)}; for local files, use a file:// container.",
            container=container.url_prefix,
            found=type(filesystem).__name__,
        )
    return ForeignReach(filesystem, container.url_prefix)


def site_for(prefix: str, store: ObjectStoreConfig | None, credentials: Any) -> Site:
    """Return what lies below a prefix of a web server.

    Args:
        prefix: The URL; credentials are sent to nothing else.
        store: Options ``redirect_hosts`` and ``headers`` of it count.
        credentials: Of `http_credentials`, or None.

    Raises:
        InvalidInputError: The credentials are for another kind of store, there are none in the
            netrc file, or an option is not one that a container may have.
    """
    options: Mapping[str, Any] = {} if store is None else canonical_store(store, prefix).options
    headers: dict[str, str] = dict(options.get("headers") or {})
    renewable = None
    match credentials:
        case HttpCredentials():
            headers |= credentials.sent()
        case FromNetrc():
            headers |= credentials.of_host(urlsplit(prefix).hostname or "").sent()
        case Refreshable(provider="http"):
            renewable = credentials
        case None | NoCredentials("http") | Anonymous("http") | FromEnv("http"):
            pass
        case _:
            raise InvalidInputError(
                "these credentials are for another kind of store",
                do="Pass icevirt.http_credentials(...), icevirt.HttpAccess or None.",
                container=prefix,
                found=type(credentials).__name__,
            )
    hosts = str(options.get("redirect_hosts") or "").split(",")
    return site_of(
        prefix,
        redirect_hosts=frozenset(host.strip() for host in hosts if host.strip()),
        headers=headers,
        renewable=renewable,
    )


@dataclass(frozen=True, slots=True, eq=False)
class ForeignReach:
    """The files of an fsspec file system that the caller passed, below one prefix.

    A repository never decides which file system is made: its URLs could name other protocols, hosts
    and files of this machine.
    """

    filesystem: Any
    prefix: str

    @property
    def host(self) -> str:
        """The limit of requests to this host counts."""
        return self.prefix

    def get(self, key: str, begin: int, end: int, check: Check) -> ObjectBytes:
        """Return bytes ``begin`` to ``end`` of a file.

        The facts about the file do not come with the bytes. They are read after the bytes, so that
        a file that changes meanwhile does not pass.

        Raises:
            ObjectNotFoundError: There is no such file.
            StorageError: It cannot be read; or ``check`` raises it.
        """
        url = f"{self.prefix.partition('://')[0]}://{key}"
        try:
            (body,) = self.filesystem.cat_ranges(
                paths=[key], starts=[begin], ends=[end], on_error="raise"
            )
            meta = self._meta(key)
        except FileNotFoundError as error:
            raise answers.gone(url) from error
        except PermissionError as error:
            reason = str(error)
            raise answers.denied(url, self.prefix, reason=reason, with_credentials=True) from error
        except Exception as error:  # each file system has its own
            reason = f"{type(error).__name__}: {error}"
            raise answers.unreachable(url, reason=reason, tries=1) from error
        check(meta)
        return answers.exact_bytes(url, meta, begin, end, body)

    def _meta(self, key: str) -> Meta:
        info: dict[str, Any] = self.filesystem.info(key)
        size = info.get("size")
        etag = next((str(info[name]) for name in _ETAGS if info.get(name)), "")
        when = next((info[name] for name in _TIMES if info.get(name) is not None), None)
        if when is None:
            with suppress(NotImplementedError, KeyError, TypeError):
                when = self.filesystem.modified(key)
        return Meta(
            size=None if size is None else int(size), etag=etag, last_modified=_seconds(when)
        )


def _seconds(when: object) -> float | None:
    if isinstance(when, datetime):
        return when.timestamp()
    return float(when) if isinstance(when, int | float) else None
