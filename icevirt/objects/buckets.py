"""Read ranges of objects in S3, Google Cloud Storage and Azure.

obstore reads them, except where a redirect could leak a secret. It follows redirects by itself. It
removes ``authorization`` from requests to another server, but repeats two secrets that travel
elsewhere: the session token of S3, which is a header, and the shared access signature of Azure,
which ``referer`` quotes. The servers of a provider redirect only among themselves. Any other server
gets a signed URL through the client for web servers, which follows no redirect out of the folder.
"""

from __future__ import annotations

import asyncio
import os
import re
import time
from datetime import timedelta
from typing import Any
from urllib.parse import quote

from icevirt.connect.credentials.common import Anonymous, FromEnv
from icevirt.connect.library import asked, is_refusal, obstore
from icevirt.connect.retry import RetryState
from icevirt.connect.stores import Bucket
from icevirt.deferred_dataclass import dataclass
from icevirt.errors import ObjectNotFoundError, StorageError
from icevirt.objects import answers
from icevirt.objects.answers import Check, Meta, ObjectBytes
from icevirt.objects.http.client import SAFE, site_of
from icevirt.objects.http.connections import HOSTS

# not all of amazonaws.com: anybody has load balancers there
_OWN = re.compile(
    r"https://(s3(-fips)?([.-](dualstack\.)?[a-z0-9-]+)?\.amazonaws\.com(\.cn)?|t3\.storage\.dev"
    r"|[a-z0-9]+\.blob\.(core\.windows\.net|fabric\.microsoft\.com))"
)
_GOOD_FOR = timedelta(minutes=15)
_TOKENS = ("AWS_SESSION_TOKEN", "AWS_TOKEN")
_SHARED = ("AZURE_STORAGE_SAS_TOKEN", "AZURE_STORAGE_SAS_KEY")
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
        tries = RetryState(self.bucket, f"{self.bucket.url}/{key}")
        while True:
            try:
                answer = self._get(tries.bucket, key, begin, end, check)
            except StorageError as error:
                time.sleep(tries.pause_after(error))
            else:
                tries.succeeded()
                return answer

    async def get_async(self, key: str, begin: int, end: int, check: Check) -> ObjectBytes:
        """Do what `get` does."""
        tries = RetryState(self.bucket, f"{self.bucket.url}/{key}")
        while True:
            try:
                answer = await self._get_async(tries.bucket, key, begin, end, check)
            except StorageError as error:
                await asyncio.sleep(tries.pause_after(error))
            else:
                tries.succeeded()
                return answer

    def _get(self, bucket: Bucket, key: str, begin: int, end: int, check: Check) -> ObjectBytes:
        for is_last in (False, True):
            store = bucket.store()
            try:
                result = obstore().get(store, key, options={"range": (begin, end)})
                check(meta := _meta(result.meta))
                body = memoryview(result.buffer())
                return answers.exact_bytes(f"{self.bucket.url}/{key}", meta, begin, end, body)
            except StorageError:
                raise
            except BaseException as error:  # noqa: BLE001 - its panics are no exceptions
                failure = error
            if not self._renewed(bucket, failure, store, is_last=is_last):
                break
        return self._without_bytes(key, begin, failure)

    async def _get_async(
        self, bucket: Bucket, key: str, begin: int, end: int, check: Check
    ) -> ObjectBytes:
        for is_last in (False, True):
            store = bucket.store()
            try:
                async with HOSTS.limit(self.host):
                    options = {"range": (begin, end)}
                    result = await obstore().get_async(store, key, options=options)
                    check(meta := _meta(result.meta))
                    body = memoryview(await result.buffer_async())
                return answers.exact_bytes(f"{self.bucket.url}/{key}", meta, begin, end, body)
            except StorageError:
                raise
            except BaseException as error:  # noqa: BLE001 - its panics are no exceptions
                failure = error
            if not self._renewed(bucket, failure, store, is_last=is_last):
                break
        return self._without_bytes(key, begin, failure)

    def _renewed(
        self, bucket: Bucket, failure: BaseException, store: Any, *, is_last: bool
    ) -> bool:
        """Say whether the store was refused for credentials that are replaced by now."""
        is_over = False
        try:
            asked(self.bucket.url, lambda: _raise(failure))
        except StorageError as error:
            is_over = is_refusal(error)
        if is_over and is_last:
            bucket.renewed_in_vain()
        return is_over and not is_last and bucket.renew(store)

    def _without_bytes(self, key: str, begin: int, failure: BaseException) -> ObjectBytes:
        """Say what a failure means. Raises unless the object ends before the range."""
        url = f"{self.bucket.url}/{key}"
        try:
            asked(url, lambda: _raise(failure))
        except ObjectNotFoundError:
            refused: StorageError = answers.gone(url)
        except StorageError as error:
            if error.facts.get("status") == 416:
                return ObjectBytes(meta=Meta(size=None), begin=begin, body=b"")
            refused = self._denied(url, error) if is_refusal(error) else error
        raise refused

    def _denied(self, url: str, error: StorageError) -> StorageError:
        facts = error.facts
        reason = str(facts.get("reason") or facts.get("status") or facts.get("kind"))
        given = not isinstance(self.bucket.credentials, FromEnv | Anonymous)
        return answers.denied(url, self.prefix, reason=reason, with_credentials=given)


def _raise(failure: BaseException) -> None:
    raise failure


def _meta(found: Any) -> Meta:
    seconds = found["last_modified"].timestamp()
    return Meta(
        size=found["size"],
        etag=found["e_tag"] or "",
        last_modified=seconds or None,  # obstore says 1970 where the server names no time
    )


def repeats_secrets(bucket: Bucket) -> bool:
    """Say whether obstore would repeat a secret to a server that this one redirects to.

    Raises:
        InvalidInputError: The bucket's options or credentials do not make a store.
        StorageError: A function was asked for the credentials and failed.
    """
    if isinstance(bucket.credentials, Anonymous) or _OWN.fullmatch(bucket.endpoint):
        return False
    match bucket.provider:
        case "s3":
            return _has_token(bucket)
        case "azure":
            return bool(_shared_access(bucket))
        case _:
            return False


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
            signed: str = asked(at, lambda: obstore().sign(store, "GET", key, _GOOD_FOR))
        else:
            path = quote(f"{self.bucket.address.bucket}/{key}", safe=SAFE)
            signed = f"{self.bucket.endpoint}/{path}?{_shared_access(self.bucket)}"
        url, _, query = signed.partition("?")
        folder = url.rpartition("/")[0] + "/"
        return site_of(folder).get_at(url, begin, end, check, f"?{query}")


def _has_token(bucket: Bucket) -> bool:
    """Say whether credentials of S3 come with a session token."""
    if (granted := bucket.granted()) is not None:
        return bool(granted.get("token"))
    # what roles and machines get from Amazon has one, keys of the environment perhaps
    is_key = "AWS_ACCESS_KEY_ID" in os.environ
    return not is_key or any(os.environ.get(name) for name in _TOKENS)


def _shared_access(bucket: Bucket) -> str:
    """Return the shared access signature of a bucket of Azure; "" where it is another secret."""
    if (granted := bucket.granted()) is not None:
        return str(granted.get("sas_token") or "")
    found = next((os.environ[name] for name in _SHARED if os.environ.get(name)), "")
    return found.removeprefix("?")
