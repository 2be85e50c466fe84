"""Delete objects of a bucket, a thousand by one request where the store can."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from datetime import timedelta
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

from icevirt.connect.library import UNREADABLE, obstore, refusal_by_status
from icevirt.connect.retry import patiently
from icevirt.connect.stores import Bucket
from icevirt.errors import ObjectNotFoundError, StorageError
from icevirt.storage.object_reading import ObjectReading
from icevirt.threads import Threads

_AT_ONCE = 1000  # objects that are deleted by one request
_DELETIONS = 8  # requests at once, where each deletes one
_GOOD_FOR = timedelta(minutes=15)  # signatures
_PATIENCE = 30.0  # seconds without a byte
_ANSWER = 64 * 1024  # bytes of an error that are looked at

_one_by_one: set[Bucket] = set()
"""Buckets that are known to lack the request that deletes many objects."""


class ObjectDeletion(ObjectReading):
    """A storage in a bucket whose objects can be deleted, too."""

    def delete(self, path: str) -> None:
        """Remove an object; one that is not there is no error."""
        self._delete_keys([self._key(path)])

    def delete_many(self, paths: Sequence[str]) -> None:
        """Remove objects, a thousand at once; those that are not there are no error."""
        for some in itertools.batched(paths, _AT_ONCE):
            self._delete_keys([self._key(path) for path in some])

    def delete_below(self, prefix: str) -> None:
        """Remove every object below ``prefix``, a page of the listing at once."""
        for page in self._pages(self._key(prefix.rstrip("/")), _AT_ONCE):
            self._delete_keys([meta["path"] for meta in page])

    def _delete_keys(self, doomed: Sequence[str]) -> None:
        if self._bucket.once() in _one_by_one:
            self._delete_one_by_one(doomed)
            return
        try:
            bucket = self._bucket.once()  # so that each throttle is counted
            patiently(bucket, self.url, lambda store: obstore().delete(store, [*doomed]))
        except ObjectNotFoundError:  # another process deletes here too
            if len(doomed) > 1:
                for key in doomed:
                    self._delete_keys([key])
        except StorageError as error:
            # some stores that speak S3 lack this request, which is all that the library sends
            is_lacking = error.facts.get("status") in (405, 501)
            is_odd = error.facts.get("reason") == UNREADABLE
            if self._bucket.provider != "s3" or not (is_lacking or is_odd):
                raise
            self._delete_one_by_one(doomed)
            _one_by_one.add(self._bucket.once())

    def _delete_one_by_one(self, doomed: Sequence[str]) -> None:
        with Threads(min(_DELETIONS, len(doomed)), "icevirt-delete") as pool:
            for _ in pool.map(self._delete_alone, doomed):
                pass  # which raises

    def _delete_alone(self, key: str) -> None:
        """Delete an object by a request of its own, which is signed here."""
        url = f"{self._bucket.url}/{key}"

        def act(store: Any) -> None:
            signed = obstore().sign(store, "DELETE", key, _GOOD_FOR)
            request = Request(signed, method="DELETE")  # noqa: S310  # its scheme is the store's
            try:
                urlopen(request, timeout=_PATIENCE).close()  # noqa: S310
            except HTTPError as error:
                with error:
                    status, answer = error.code, error.read(_ANSWER).decode(errors="replace")
            except OSError:
                status, answer = 503, ""  # whose text may repeat the signature
            else:
                return
            if status != 404:
                raise refusal_by_status(url, status, answer)

        patiently(self._bucket, url, act)
