"""Choose how to reach the objects of a container, from its authorization, and reach buckets.

obstore reads objects in buckets, except where a redirect could leak a secret. It follows redirects
by itself. It removes ``authorization`` from requests to another server, but repeats two secrets
that travel elsewhere: the session token of S3, which is a header, and the shared access signature
of Azure, which ``referer`` quotes. The servers of a provider redirect only among themselves. Any
other server gets a signed URL through the client for web servers, which follows no redirect out of
the folder.
"""

from __future__ import annotations

import asyncio
import os
import re
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from typing import Any, Protocol
from urllib.parse import quote, urlsplit

from icevirt.connect.container import canonical, canonical_store
from icevirt.connect.credentials.common import (
    Anonymous,
    FromEnv,
    PublicAccess,
    Refreshable,
    is_web_without,
)
from icevirt.connect.credentials.http import FromNetrc, HttpCredentials
from icevirt.connect.library import ask, is_refusal, obstore
from icevirt.connect.retry import RetryState
from icevirt.connect.stores import Bucket, bucket_of
from icevirt.errors import InvalidInputError, ObjectNotFoundError, StorageError
from icevirt.model.config.containers import ObjectStoreConfig, VirtualChunkContainer
from icevirt.objects import answers
from icevirt.objects.answers import Body, Check, Meta, ObjectBytes
from icevirt.objects.authorize import RemoteGrant, choose_endpoints
from icevirt.objects.web_client import SAFE, Site, site_of
from icevirt.objects.web_connections import HOSTS
from icevirt.threads import run_interruptibly

# not all of amazonaws.com: anybody has load balancers there
_OWN = re.compile(
    r"https://(s3(-fips)?([.-](dualstack\.)?[a-z0-9-]+)?\.amazonaws\.com(\.cn)?|t3\.storage\.dev"
    r"|[a-z0-9]+\.blob\.(core\.windows\.net|fabric\.microsoft\.com))"
)
_GOOD_FOR = timedelta(minutes=15)
_TOKENS = ("AWS_SESSION_TOKEN", "AWS_TOKEN")
_SHARED = ("AZURE_STORAGE_SAS_TOKEN", "AZURE_STORAGE_SAS_KEY")
_GOOGLE = "https://storage.googleapis.com"
_REFUSED = ("400", "401", "403")


@dataclass(frozen=True, slots=True)
class _InBucket:
    """The objects of one bucket, below one prefix of it."""

    bucket: Bucket
    prefix: str  # that was authorized

    @property
    def host(self) -> str:
        """The limit of requests to this host counts."""
        return self.bucket.url


class BucketReach(_InBucket):
    """The objects of one bucket, through obstore."""

    __slots__ = ()

    def get(self, key: str, begin: int, end: int, check: Check) -> ObjectBytes:
        """Return bytes ``begin`` to ``end`` of an object.

        Raises:
            ObjectNotFoundError: There is no such object.
            StorageError: The store refuses, or keeps failing; or ``check`` raises it.
        """
        tries = _Tries(self, key, begin)

        def act(store: Any) -> tuple[Meta, Body]:
            result = obstore().get(store, key, options={"range": (begin, end)})
            check(meta := _meta(result.meta))
            return meta, memoryview(result.buffer())

        while True:
            store, failure = tries.store(), None
            try:
                meta, body = run_interruptibly(partial(act, store))
            except BaseException as error:  # noqa: BLE001 - its panics are no exceptions
                failure = error
            if failure is None:
                return tries.end(meta, end, body)
            if isinstance(found := tries.after(failure), ObjectBytes):
                return found
            time.sleep(found)

    async def get_async(self, key: str, begin: int, end: int, check: Check) -> ObjectBytes:
        """Do what `get` does."""
        tries = _Tries(self, key, begin)
        while True:
            store, failure = tries.store(), None
            try:
                async with HOSTS.limit(self.host):
                    options = {"range": (begin, end)}
                    result = await obstore().get_async(store, key, options=options)
                    check(meta := _meta(result.meta))
                    body = memoryview(await result.buffer_async())
            except BaseException as error:  # noqa: BLE001 - its panics are no exceptions
                failure = error
            if failure is None:
                return tries.end(meta, end, body)
            if isinstance(found := tries.after(failure), ObjectBytes):
                return found
            await asyncio.sleep(found)


class _Tries:
    """The tries of one range of an object in a bucket, with credentials that may come to an end."""

    def __init__(self, reach: BucketReach, key: str, begin: int) -> None:
        self._bucket, self._prefix, self._begin = reach.bucket, reach.prefix, begin
        self._url = f"{reach.bucket.url}/{key}"
        self._state = RetryState(reach.bucket, self._url)
        self._is_renewed = False  # since the last pause

    def store(self) -> Any:
        """Return the store to ask."""
        self._store = self._state.bucket.store()
        return self._store

    def end(self, meta: Meta, end: int, body: Body) -> ObjectBytes:
        """Return what the store answered, if it is the range."""
        self._state.note_success()
        return answers.exact_bytes(self._url, meta, self._begin, end, body)

    def after(self, failure: BaseException) -> ObjectBytes | float:
        """Return the seconds before the next try, or no bytes where the object ends before.

        Not called while the failure is handled, whose text could hold a secret.

        Raises:
            ObjectNotFoundError: There is no such object.
            StorageError: Another try is of no use.
        """
        bucket = self._state.bucket
        refused: StorageError
        try:
            ask(self._url, lambda: _raise(failure))
        except ObjectNotFoundError as error:
            refused = error if error is failure else answers.not_found(self._url)
        except StorageError as error:
            refused = error
        if refused is not failure and is_refusal(refused):
            if not self._is_renewed and bucket.renew(self._store):
                self._is_renewed = True
                return 0.0
            if self._is_renewed:
                bucket.note_vain_renewal()
            facts = refused.facts
            reason = str(facts.get("reason") or facts.get("status") or facts.get("kind"))
            given = not isinstance(self._bucket.credentials, FromEnv | Anonymous)
            refused = answers.denial(self._url, self._prefix, reason=reason, with_credentials=given)
        elif refused is not failure and refused.facts.get("status") == 416:
            self._state.note_success()
            return ObjectBytes(meta=Meta(size=None), begin=self._begin, body=b"")
        self._is_renewed = False
        return self._state.pause_after(refused)


def _raise(failure: BaseException) -> None:
    raise failure


def _meta(found: Any) -> Meta:
    seconds = found["last_modified"].timestamp()
    return Meta(
        size=found["size"],
        etag=found["e_tag"] or "",
        last_modified=seconds or None,  # obstore says 1970 where the server names no time
    )


def _repeats_secrets(bucket: Bucket) -> bool:
    """Say whether obstore would repeat a secret to a server that this one redirects to."""
    if isinstance(bucket.credentials, Anonymous) or _OWN.fullmatch(bucket.endpoint):
        return False
    if bucket.provider == "azure":
        return bool(_sas_of(bucket))
    if bucket.provider != "s3":
        return False
    if (granted := bucket.secrets_in_use()) is not None:
        return bool(granted.get("token"))
    # what roles and machines get from Amazon has one, keys of the environment perhaps
    is_key = "AWS_ACCESS_KEY_ID" in os.environ
    return not is_key or any(os.environ.get(name) for name in _TOKENS)


class SignedReach(_InBucket):
    """The objects of one bucket, each requested by a signed URL."""

    __slots__ = ()

    def get(self, key: str, begin: int, end: int, check: Check) -> ObjectBytes:
        """Return bytes ``begin`` to ``end`` of an object.

        Raises:
            ObjectNotFoundError: There is no such object.
            UnauthorizedError: It is redirected to another server.
            StorageError: The store refuses, or keeps failing; or ``check`` raises it.
        """
        store = self.bucket.store()
        try:
            return self._get(key, begin, end, check)
        except StorageError as error:
            refused = str(error.facts.get("reason")).startswith(_REFUSED)
            if not refused or not self.bucket.renew(store):
                raise
        return self._get(key, begin, end, check)

    def _get(self, key: str, begin: int, end: int, check: Check) -> ObjectBytes:
        if self.bucket.provider == "s3":
            store, at = self.bucket.store(), f"{self.bucket.url}/{key}"
            signed: str = ask(at, lambda: obstore().sign(store, "GET", key, _GOOD_FOR))
        else:
            path = quote(f"{self.bucket.address.bucket}/{key}", safe=SAFE)
            signed = f"{self.bucket.endpoint}/{path}?{_sas_of(self.bucket)}"
        url, _, query = signed.partition("?")
        folder = url.rpartition("/")[0] + "/"
        return site_of(folder).get_at(url, begin, end, check, f"?{query}")


@dataclass(frozen=True, slots=True)
class PublicReach(_InBucket):
    """The objects of a public bucket, at its URL, by the client that looks at addresses.

    obstore looks names up by itself, where nobody can compare what it finds.
    """

    def get(self, key: str, begin: int, end: int, check: Check) -> ObjectBytes:
        """Return bytes ``begin`` to ``end`` of an object.

        Raises:
            ObjectNotFoundError: There is no such object.
            UnauthorizedError: Its server is not on the public internet.
            StorageError: The store refuses, or keeps failing; or ``check`` raises it.
        """
        folder = f"{self.bucket.endpoint or _GOOGLE}/{self.bucket.address.bucket}/"
        url = folder + quote(key, safe="/~")
        return site_of(folder, is_public=True).get_at(url, begin, end, check)


def _sas_of(bucket: Bucket) -> str:
    """Return the shared access signature of a bucket of Azure; "" where it is another secret."""
    if (granted := bucket.secrets_in_use()) is not None:
        return str(granted.get("sas_token") or "")
    found = next((os.environ[name] for name in _SHARED if os.environ.get(name)), "")
    return found.removeprefix("?")


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
        container, credentials = grant.container, grant.credentials
        store, prefix = canonical(container), container.url_prefix
        if container.is_foreign:
            found = _foreign(container, credentials)
        elif store.kind == "http":
            found = site_for(prefix, store, credentials)
        elif isinstance(credentials, PublicAccess):
            found = PublicReach(bucket_of(prefix, store, Anonymous(credentials.provider)), prefix)
        else:  # how a bucket is read depends on its secrets, which may change
            only = choose_endpoints(container, grant.endpoints)
            found = bucket_of(prefix, store, credentials, only)
        grant.made["reach"] = found
    return bucket_reach(found, grant.container.url_prefix) if isinstance(found, Bucket) else found


def bucket_reach(bucket: Bucket, prefix: str) -> Backend:
    """Return the way to objects of a bucket that keeps secrets from servers it redirects to."""
    return SignedReach(bucket, prefix) if _repeats_secrets(bucket) else BucketReach(bucket, prefix)


def server_of(reach: Backend) -> str:
    """Return the server that is asked; "" where only credentials or a library know it.

    What is read as public is apart: credentials opened no part of it.
    """
    match reach:
        case Site():
            return f"public {reach.host}" if reach.origin.is_public else reach.host
        case PublicReach():
            return f"public {reach.bucket.endpoint or _GOOGLE}"
        case _InBucket():
            return reach.bucket.endpoint
        case _:
            return ""


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
            headers |= credentials.reveal()
        case FromNetrc():
            headers |= credentials.of_host(urlsplit(prefix).hostname or "").reveal()
        case Refreshable(provider="http"):
            renewable = credentials
        case _ if is_web_without(credentials):
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
        is_public=isinstance(credentials, PublicAccess),
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
            raise answers.not_found(url) from error
        except PermissionError as error:
            reason = str(error)
            raise answers.denial(url, self.prefix, reason=reason, with_credentials=True) from error
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
        if isinstance(when, datetime):
            when = when.timestamp()
        return Meta(
            size=None if size is None else int(size),
            etag=etag,
            last_modified=float(when) if isinstance(when, int | float) else None,
        )
