"""Read ranges of objects in S3, Google Cloud Storage and Azure, through obstore."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from typing import Any

from icevirt.connect.credentials.common import Anonymous, FromEnv
from icevirt.connect.failures import asked, is_refusal
from icevirt.connect.library import obstore
from icevirt.connect.retry import RetryState
from icevirt.connect.stores import Bucket
from icevirt.errors import ObjectNotFoundError, StorageError
from icevirt.objects import answers
from icevirt.objects.answers import Check, Meta, ObjectBytes
from icevirt.objects.http.connections import HOSTS


@dataclass(frozen=True, slots=True)
class BucketReach:
    """The objects of one bucket, reached below one prefix of it."""

    bucket: Bucket
    prefix: str  # that was authorised

    @property
    def host(self) -> str:
        """Whose limit of requests counts."""
        return self.bucket.url

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
                return ObjectBytes(meta=meta, begin=begin, body=memoryview(result.buffer()))
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
                    body = await result.buffer_async()
                return ObjectBytes(meta=meta, begin=begin, body=memoryview(body))
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
        told = error.facts
        reason = str(told.get("reason") or told.get("status") or told.get("kind"))
        is_told = not isinstance(self.bucket.credentials, FromEnv | Anonymous)
        return answers.denied(url, self.prefix, reason=reason, with_credentials=is_told)


def _raise(failure: BaseException) -> None:
    raise failure


def _meta(told: Any) -> Meta:
    seconds = told["last_modified"].timestamp()
    return Meta(
        size=told["size"],
        etag=told["e_tag"] or "",
        last_modified=seconds or None,  # where the server does not tell, obstore says 1970
    )
