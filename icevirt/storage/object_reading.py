"""Read objects below a prefix of a bucket; shared by all network storages."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

from icevirt.connect.address import Address
from icevirt.connect.failures import asked
from icevirt.connect.library import obstore
from icevirt.connect.retry import RetryState, patiently
from icevirt.connect.stores import Bucket
from icevirt.errors import InvalidInputError, ObjectNotFoundError, StorageError
from icevirt.storage import keys
from icevirt.storage.memory import refuse_huge, too_short
from icevirt.storage.protocol import ObjectInfo, Version

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_PAGE = 1000  # objects for each request of a listing


class ObjectReading:
    """The reading half of a storage.

    Args:
        bucket: Where the objects are.
        prefix: What their keys begin with; slashes at its ends do not matter.

    Raises:
        InvalidInputError: The prefix has an empty, ``.`` or ``..`` segment.
    """

    def __init__(self, bucket: Bucket, prefix: str | None) -> None:
        self._bucket = bucket
        self._prefix = _checked((prefix or "").strip("/"))

    @property
    def url(self) -> str:
        """The root as a URL, without secrets."""
        at = self._bucket.address
        return Address(scheme=at.scheme, bucket=at.bucket, key=self._prefix, account=at.account).url

    def __repr__(self) -> str:
        return f"<icevirt.{type(self).__name__} {self.url}>"

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, ObjectReading)
            and type(self) is type(other)
            and (self._bucket, self._prefix) == (other._bucket, other._prefix)
        )

    def __hash__(self) -> int:
        return hash((self._bucket, self._prefix))

    def exists(self) -> bool:
        """Say whether anything lies at the root."""
        return next(self._pages(self._prefix, 1), None) is not None

    def get(self, path: str) -> bytes:
        """Return the whole object."""
        return self.get_versioned(path)[0]

    def get_range(self, path: str, *, offset: int, length: int) -> bytes:
        """Return exactly ``length`` bytes."""
        key, url = self._key(path), f"{self.url}/{path}"
        if length == 0:
            return b""

        def act(store: Any) -> bytes:
            return bytes(obstore().get_range(store, key, start=offset, length=length))

        try:
            body = patiently(self._bucket, url, act)
        except StorageError as error:
            if error.facts.get("status") == 416:
                raise too_short(url, offset, length, 0) from None
            raise
        if len(body) != length:
            raise too_short(url, offset, length, len(body))
        return body

    def get_versioned(self, path: str) -> tuple[bytes, Version]:
        """Return the object and its version."""
        key = self._key(path)

        def act(store: Any) -> tuple[bytes, Version]:
            found = obstore().get(store, key)
            refuse_huge(f"{self.url}/{path}", found.meta["size"])
            return bytes(found.bytes()), self._version(found.meta)

        return self._asked(path, act)

    def list(self, prefix: str = "") -> Iterator[ObjectInfo]:
        """Yield the objects below ``prefix``, in no particular order."""
        prefix = prefix.strip("/")
        start = self._key(prefix) if prefix else self._prefix
        found = False
        for page in self._pages(start, _PAGE):
            found = True
            yield from (self._info(meta) for meta in page)
        if prefix and not found and (alone := self._head(prefix)) is not None:
            yield alone

    def _head(self, path: str) -> ObjectInfo | None:
        """Return an object of just this name: listings show what is below a name only."""
        key = self._key(path)
        try:
            return self._info(self._asked(path, lambda store: obstore().head(store, key)))
        except ObjectNotFoundError:
            return None

    def _pages(self, start: str, size: int) -> Iterator[Any]:
        """Yield the pages of a listing, which goes on behind the last one where it broke off."""
        tries, last = RetryState(self._bucket, self.url), None
        while True:
            try:
                for page in self._pages_after(tries.bucket, start, size, last):
                    tries.succeeded()
                    last = page[-1]["path"]
                    yield page
            except StorageError as error:
                time.sleep(tries.pause_after(error))
            else:
                tries.succeeded()
                return

    def _pages_after(
        self, bucket: Bucket, start: str, size: int, last: str | None
    ) -> Iterator[Any]:
        def begin() -> Any:
            found = obstore().list(
                bucket.store(), prefix=start or None, offset=last, chunk_size=size
            )
            return iter(found)

        pages = asked(self.url, begin)
        while page := asked(self.url, lambda: next(pages, None)):
            yield page

    def _info(self, meta: Any) -> ObjectInfo:
        path = meta["path"][len(self._prefix) + 1 :] if self._prefix else meta["path"]
        at = (meta["last_modified"] - _EPOCH) // _MICROSECOND
        return ObjectInfo(path=path, size=meta["size"], last_modified=at)

    def _key(self, path: str) -> str:
        keys.checked(path)
        return f"{self._prefix}/{path}" if self._prefix else path

    def _asked[T](self, path: str, act: Callable[[Any], T]) -> T:
        return patiently(self._bucket, f"{self.url}/{path}", act)

    def _version(self, meta: Any) -> Version:
        """Return what a conditional put compares: generations on GCS, etags elsewhere."""
        found = meta["version"] if self._bucket.provider == "gcs" else meta["e_tag"]
        return Version(found or "")


def _checked(prefix: str) -> str:
    if any(part in ("", ".", "..") for part in prefix.split("/")) and prefix:
        raise InvalidInputError(
            "a repository's prefix has an empty, '.' or '..' segment",
            do="Write it like 'data/my-repository'.",
            prefix=prefix,
        )
    return prefix
