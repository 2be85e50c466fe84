"""Store a repository in a bucket of S3, Google Cloud Storage, Azure or a compatible store.

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
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from types import MappingProxyType
from typing import Any, Self

from icevirt.connect.library import ask, obstore
from icevirt.connect.retry import SERVERS, jitter
from icevirt.connect.stores import Bucket
from icevirt.errors import InvalidInputError, ObjectNotFoundError, StorageError
from icevirt.storage.object_deletion import ObjectDeletion
from icevirt.storage.protocol import NOTHING, LostRace, Version, Written
from icevirt.threads import Threads

_PART = 16 * 1024 * 1024  # bytes; larger objects are sent in parts of this size
_PUTS = 8  # objects that are sent at once before a conditional write
_TRIES = 12  # of a conditional write; as long as the patience that other requests have
_LONGEST_PAUSE = 8.0  # seconds
_BUSY = ("ConditionalRequestConflict", "OperationAborted")  # S3: another writer was just writing
_CONDITION = ("AlreadyExistsError", "PreconditionError", "NotModifiedError")
_DENIED = ("UnauthenticatedError", "PermissionDeniedError")
_UNLIKELY = {"gcs": "1", "azure": '"0x0000000000000000"', "s3": '"' + "0" * 32 + '"'}


_METADATA = "x-amz-meta-"
_proven: set[tuple[Bucket, bool]] = set()
"""Buckets seen to refuse a write whose condition does not hold, for writes that create or not."""


class ObjectStorage(ObjectDeletion):
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
