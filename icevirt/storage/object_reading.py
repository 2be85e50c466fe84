"""Read and list objects below a prefix of a bucket."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any

from icevirt.connect.library import ask, obstore
from icevirt.connect.options import config_of
from icevirt.connect.retry import RetryState, patiently
from icevirt.connect.stores import Bucket
from icevirt.errors import InvalidInputError, ObjectNotFoundError, StorageError
from icevirt.model.config.containers import ObjectStoreConfig
from icevirt.storage.protocol import ObjectInfo, Version, check_path, refuse_huge, too_short

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_PAGE = 1000  # objects for each request of a listing


class ObjectReading:
    """The reading half of a storage in a bucket, below a prefix.

    Raises:
        InvalidInputError: The prefix has an empty, ``.`` or ``..`` segment.
    """

    def __init__(self, bucket: Bucket, prefix: str | None) -> None:
        self._bucket = bucket
        self._prefix = (prefix or "").strip("/")
        if self._prefix and not {"", ".", ".."}.isdisjoint(self._prefix.split("/")):
            raise InvalidInputError(
                "a repository's prefix has an empty, '.' or '..' segment",
                do="Write it like 'data/my-repository'.",
                prefix=self._prefix,
            )

    @property
    def url(self) -> str:
        """The root as a URL, without secrets."""
        return self._bucket.address._replace(key=self._prefix).url

    @property
    def server(self) -> str:
        """Where requests go; "" where credentials decide."""
        return self._bucket.endpoint

    @property
    def config(self) -> ObjectStoreConfig:
        """What a container of virtual chunks says, so that its readers find the same bucket."""
        return config_of(self._bucket.address, self._bucket.options)

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
        """Say whether there is anything at the root."""
        return next(self._pages(self._prefix, 1), None) is not None

    def has_rooted_keys(self) -> bool:
        """Say whether the bucket holds keys that begin with ``/``, which the library cannot name.

        icechunk wrote such keys before 2.1 where the prefix was empty, as it does still where the
        prefix begins so.
        """
        if self._bucket.provider != "s3":
            return False
        with suppress(StorageError):
            found = ask(
                self.url, lambda: obstore().list_with_delimiter(self._bucket.once().store())
            )
            return "" in found["common_prefixes"]
        return False

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

        return self._ask(path, act)

    def list(self, prefix: str = "", *, after: str = "") -> Iterator[ObjectInfo]:
        """Yield the objects below ``prefix``, in no particular order unless behind a path.

        General-purpose buckets of all providers list by name.
        """
        is_folder, prefix = prefix.endswith("/"), prefix.strip("/")
        start = self._key(prefix) if prefix else self._prefix
        found = is_folder
        for page in self._pages(start, _PAGE, self._key(after) if after else None):
            found = True
            infos = (self._info(meta) for meta in page)
            # the first of Azure's listing may be the path itself
            yield from infos if not after else (info for info in infos if info.path > after)
        if prefix and not found and not after:  # listings show what is below a name only
            with suppress(ObjectNotFoundError):
                yield self._info(self._ask(prefix, lambda store: obstore().head(store, start)))

    def _pages(self, start: str, size: int, last: str | None = None) -> Iterator[Any]:
        """Yield the pages of a listing, which goes on behind the last one where it broke off."""
        tries = RetryState(self._bucket, self.url)
        while True:
            try:
                for page in self._pages_after(tries.bucket, start, size, last):
                    tries.note_success()
                    last = page[-1]["path"]
                    yield page
            except StorageError as error:
                time.sleep(tries.pause_after(error))
            else:
                tries.note_success()
                return

    def _pages_after(
        self, bucket: Bucket, start: str, size: int, last: str | None
    ) -> Iterator[Any]:
        def begin() -> Any:
            store, prefix = bucket.store(), start or None
            return iter(obstore().list(store, prefix=prefix, offset=last, chunk_size=size))

        pages = ask(self.url, begin)
        while page := ask(self.url, lambda: next(pages, None)):
            yield page

    def _info(self, meta: Any) -> ObjectInfo:
        path = meta["path"][len(self._prefix) + 1 :] if self._prefix else meta["path"]
        at = (meta["last_modified"] - _EPOCH) // _MICROSECOND
        return ObjectInfo(path=path, size=meta["size"], last_modified=at)

    def _key(self, path: str) -> str:
        check_path(path)
        return f"{self._prefix}/{path}" if self._prefix else path

    def _ask[T](self, path: str, act: Callable[[Any], T]) -> T:
        return patiently(self._bucket, f"{self.url}/{path}", act)

    def _version(self, meta: Any) -> Version:
        """Return what a conditional put compares: generations on GCS, etags elsewhere."""
        found = meta["version"] if self._bucket.provider == "gcs" else meta["e_tag"]
        return Version(found or "")
