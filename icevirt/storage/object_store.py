"""Store a repository in a bucket of S3, Google Cloud Storage, Azure or a compatible store.

A web server can be read in the same way.

Promises: an acknowledged conditional put took place, and a lost one did not. Each is sent once at a
time, never repeated by the library, so that a refusal is not confused with an echo of our own
success: after an answer that never came the put is sent again, and a refusal then is settled by
reading back and comparing bytes. If that is not conclusive either, because another writer wrote on
top, the outcome says so (`LostRace.perhaps_first_written`).

S3 compares etags, which are digests of the content: an object that went from A to B and back to A
looks unchanged. So conditional puts never repeat content: ``repo`` holds the time and the random
name of the backup of its last change.
"""

from __future__ import annotations

import copy
import itertools
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from types import MappingProxyType
from typing import Any, Never, Self
from urllib.error import HTTPError
from urllib.parse import urlsplit
from urllib.request import Request, urlopen

from icevirt.connect.credentials.common import Credentials, Refreshable
from icevirt.connect.credentials.http import FromNetrc, HttpCredentials
from icevirt.connect.library import UNREADABLE, ask, obstore, refusal_by_status
from icevirt.connect.options import config_of
from icevirt.connect.retry import SERVERS, RetryState, jitter, patiently
from icevirt.connect.stores import Bucket, bucket_of
from icevirt.connect.urls import Address
from icevirt.errors import (
    InvalidInputError,
    NotListableError,
    ObjectNotFoundError,
    ReadOnlyStorageError,
    StorageError,
)
from icevirt.model.config.containers import ObjectStoreConfig
from icevirt.storage.protocol import (
    NOTHING,
    LostRace,
    ObjectInfo,
    Version,
    Written,
    check_path,
    refuse_huge,
    too_short,
)
from icevirt.threads import Threads

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_PAGE = 1000  # objects for each request of a listing
_PART = 16 * 1024 * 1024  # bytes; larger objects are sent in parts of this size
_PUTS = 8  # objects that are sent at once before a conditional write
_AT_ONCE = 1000  # objects that are deleted by one request
_DELETIONS = 8  # requests at once, where each deletes one
_GOOD_FOR = timedelta(minutes=15)  # signatures
_PATIENCE = 30.0  # seconds without a byte
_ANSWER = 64 * 1024  # bytes of an error that are looked at
_TRIES = 12  # of a conditional write; as long as the patience that other requests have
_LONGEST_PAUSE = 8.0  # seconds
_BUSY = ("ConditionalRequestConflict", "OperationAborted")  # S3: another writer was just writing
_CONDITION = ("AlreadyExistsError", "PreconditionError", "NotModifiedError")
_DENIED = ("UnauthenticatedError", "PermissionDeniedError")
_UNLIKELY = {"gcs": "1", "azure": '"0x0000000000000000"', "s3": '"' + "0" * 32 + '"'}


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


_METADATA = "x-amz-meta-"
_one_by_one: set[Bucket] = set()
"""Buckets that are known to lack the request that deletes many objects."""

_proven: set[tuple[Bucket, bool]] = set()
"""Buckets seen to refuse a write whose condition does not hold, for writes that create or not."""


class ObjectStorage(ObjectReading):
    """The root is a prefix of a bucket."""

    _classes: Mapping[str, str] = MappingProxyType({})
    _metadata: Mapping[str, str] = MappingProxyType({})  # of the user, stored with each object
    _least_multipart = _PART  # bytes of an object that is sent in parts

    def with_headers(self, headers: tuple[tuple[str, str], ...]) -> ObjectStorage:
        """Return the storage, with headers sent along with each request.

        On S3 those of the user's metadata go along with what is written.

        Raises:
            InvalidInputError: One has to be signed, which the library does for its own only.
        """
        is_s3, metadata = self._bucket.provider == "s3", dict(self._metadata)
        sent: list[tuple[str, str]] = []
        for name, value in headers:
            if is_s3 and name.lower().startswith(_METADATA):
                metadata[name.lower().removeprefix(_METADATA)] = value
            else:
                sent.append((name, value))
        if is_s3 and (wrong := [name for name, _ in sent if name.lower().startswith("x-amz-")]):
            raise InvalidInputError(
                "S3 takes headers that begin with x-amz- only if they are signed, which icevirt"
                " does for its own only",
                do="Name what they ask for: requester_pays, checksum_algorithm, or the storage"
                " class in RepositoryConfig.storage.",
                headers=wrong,
            )
        made, before = copy.copy(self), self._bucket.options
        options = replace(before, headers=(*dict([*before.headers, *sent]).items(),))
        vars(made).update(_bucket=replace(self._bucket, options=options), _metadata=metadata)
        return made

    def with_settings(
        self,
        classes: Mapping[str, str],
        least_multipart: int | None,
        timeouts: Mapping[str, timedelta],
    ) -> Self:
        """Return the storage, which writes and waits as a configuration says.

        Args:
            classes: The class of each folder that has one; that of "" is for all others.
            least_multipart: Bytes of an object that is sent in parts; None: 16 MiB.
            timeouts: By obstore's names.
        """
        made, options = copy.copy(self), self._bucket.options
        client = dict([*options.client, *timeouts.items()])
        options = replace(options, client=(*client.items(),))
        bucket = replace(self._bucket, options=options)
        parts = least_multipart or _PART
        vars(made).update(_classes=classes, _least_multipart=parts, _bucket=bucket)
        return made

    def _attributes(self, path: str) -> dict[str, str] | None:
        """Return what is stored with an object."""
        folder = path.partition("/")[0] if "/" in path else ""
        found = self._classes.get(folder, self._classes.get(""))
        given = {**self._metadata, **({"Storage-Class": found} if found else {})}
        return given or None

    def put(self, path: str, body: bytes) -> None:
        """Write an object, in parts where it is large; no reader ever sees half of it."""
        key = self._key(path)

        def act(store: Any) -> Any:
            large = len(body) > self._least_multipart
            given = {"attributes": self._attributes(path), "use_multipart": large}
            return obstore().put(store, key, body, chunk_size=_PART, **given)

        self._ask(path, act)

    def put_if(
        self,
        path: str,
        body: bytes,
        *,
        was: Version | None,
        after: Mapping[str, bytes] = NOTHING,
    ) -> Written | LostRace:
        """Write ``body`` if the object is still at ``was``, after the objects it refers to.

        Raises:
            StorageError: The store refuses, ignores conditions, or fails for so long that it is
                not known whether the write took place; the message says which.
        """
        if after:
            with Threads(min(_PUTS, len(after)), "icevirt-put") as pool:
                for _ in pool.map(self.put, after.keys(), after.values()):
                    pass  # which raises
        applied = False  # perhaps, by a request whose answer never came
        for attempt in itertools.count():
            try:
                version = self._send(path, body, was)
            except StorageError as error:
                applied = applied or _may_be_applied(error)
                if attempt + 1 == _TRIES or _is_final(error):
                    return self._give_up(path, body, error, applied=applied)
                _pause(attempt)
                continue
            if version is None:
                return self._settle(path, body, applied=applied)
            self._prove(path, body, created=was is None)
            return Written(version)
        raise AssertionError

    @property
    def throttled(self) -> int:
        """How many requests of this process were sent again, as the store asked for fewer."""
        found = SERVERS.get(self._bucket.once())
        return 0 if found is None else found.throttled

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

    # -- conditional writes ------------------------------------------------------------------

    def _send(self, path: str, body: bytes, was: Version | None) -> Version | None:
        """Send the write once; None where its condition does not hold.

        Raises:
            StorageError: There was no answer, or none that says whether the write took place.
        """
        key, bucket = self._key(path), self._bucket.once()

        def act() -> Any:
            name = "version" if bucket.provider == "gcs" else "e_tag"
            mode = "create" if was is None else {name: was.token}
            given = {"attributes": self._attributes(path), "use_multipart": False}
            return obstore().put(bucket.store(), key, body, mode=mode, **given)

        try:
            return self._version(ask(f"{self.url}/{path}", act))
        except ObjectNotFoundError:
            return None
        except StorageError as error:
            if error.facts.get("reason") not in _BUSY and error.facts.get("kind") in _CONDITION:
                return None
            raise

    def _settle(self, path: str, body: bytes, *, applied: bool) -> Written | LostRace:
        """Find out whether the object that refuses our write is our own."""
        try:
            found, version = self.get_versioned(path)
        except ObjectNotFoundError:
            return LostRace()
        if found == body:
            return Written(version)
        return LostRace(perhaps_first_written=applied)

    def _give_up(self, path: str, body: bytes, error: StorageError, *, applied: bool) -> Written:
        """Look once whether the write took place, after the last try. Raises ``StorageError``."""
        if not applied:
            raise error
        with suppress(StorageError):
            found, version = self.get_versioned(path)
            if found == body:
                return Written(version)
        raise StorageError(
            "it is unknown whether the write took place: the store did not answer",
            do=f"Check the store before you repeat the write. {error.do}",
            **error.facts,
        )

    def _prove(self, path: str, body: bytes, *, created: bool) -> None:
        """Check once in a process that the store heeds conditions, on an object just written.

        The same bytes are written under conditions that do not hold, which changes nothing.
        """
        if (self._bucket, created) in _proven:
            return
        unlikely = Version(_UNLIKELY.get(self._bucket.provider, "0"))
        for condition in (None, unlikely) if created else (unlikely,):
            try:
                version = self._send(path, body, condition)
            except StorageError as error:
                if error.facts.get("status") == 501:
                    raise
                return
            if version is not None:
                raise StorageError(
                    "this store ignores the conditions of a write: commits of several writers"
                    " would overwrite each other",
                    do="Use a store with conditional writes (If-Match and If-None-Match), or"
                    " another version of this one.",
                    url=self._bucket.url,
                )
        _proven.add((self._bucket, created))


def _pause(attempt: int) -> None:
    time.sleep(min(_LONGEST_PAUSE, 0.1 * 2**attempt) * jitter(0.5, 1.0))


def _may_be_applied(error: StorageError) -> bool:
    """Say whether a write whose answer is an error may have taken place."""
    is_busy = error.facts.get("reason") in _BUSY
    return not is_busy and error.facts.get("sent", True) and not _is_final(error)


def _is_final(error: StorageError) -> bool:
    """Say whether sending the same again is pointless, and nothing was written for sure."""
    if error.facts.get("reason") == "NoCredentials" or error.facts.get("kind") in _DENIED:
        return True
    status = error.facts.get("status", 500)
    return (400 <= status < 500 and status not in (408, 409, 425, 429)) or status in (301, 307, 501)


class HttpStorage(ObjectReading):
    """The root is a directory of a web server. It is never written and cannot be listed."""

    def exists(self) -> bool:
        """Say whether there is a repository at the root; a server shows nothing else."""
        key = self._key("repo")
        try:
            ask(self.url, lambda: obstore().head(self._bucket.store(), key))
        except ObjectNotFoundError:
            return False
        return True

    def list(self, prefix: str = "", *, after: str = "") -> Iterator[ObjectInfo]:
        """Raise ``NotListableError``."""
        raise NotListableError(
            "this operation lists files, which is not possible over HTTP",
            do="Use the storage behind the server, or a copy.",
            url=self.url,
            prefix=prefix or after,
        )

    def refuse_writes(self, *_args: object, **_options: object) -> Never:
        """Raise ``ReadOnlyError``."""
        raise ReadOnlyStorageError(
            "a repository on a web server can only be read",
            do="Write to the storage behind the server.",
            url=self.url,
        )

    put = put_if = delete = delete_many = delete_below = refuse_writes


def http_storage(
    base_url: str,
    opts: Mapping[str, str] | None = None,
    headers: Mapping[str, str] | None = None,
    credentials: Credentials | None = None,
) -> HttpStorage:
    """Return a storage that reads a repository from a web server.

    Args:
        base_url: URL of the directory that holds ``repo``.
        opts: Options of the client, like ``{"timeout": "30s"}``.
        headers: Sent with each request; never shown. If the server redirects to another host,
            only ``authorization`` and ``cookie`` are withheld from it.
        credentials: Of `http_credentials`, instead of headers.

    Raises:
        InvalidInputError: The URL or an option is not valid, or the credentials change.
    """
    if "?" in base_url or "#" in base_url:
        raise InvalidInputError(
            "the URL of a repository must not have a query or fragment",
            do="Remove it, and pass the secret separately: "
            "credentials=icevirt.http_credentials(...).",
            url=base_url,
        )
    config = ObjectStoreConfig("http", dict(opts or {}))
    given = credentials if credentials is not None else HttpCredentials(headers or {})
    if isinstance(given, FromNetrc):
        given = given.of_host(urlsplit(base_url).hostname or "")
    if isinstance(given, Refreshable):
        raise InvalidInputError(
            "a repository on a web server needs credentials that do not change",
            do="Pass the value that the function returns.",
            url=Address.parse(base_url).url,
        )
    return HttpStorage(bucket_of(base_url, config, given), Address.parse(base_url).key)
