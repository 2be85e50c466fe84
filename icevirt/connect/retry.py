"""Retry requests to object stores that throttle or are down, longer than obstore does.

obstore retries for a second or two, enough for chance failures. A store that asks for fewer
requests (S3 while it spreads a prefix over more servers) does so for much longer, so failed
requests are sent again for a minute, one at a time, with random, growing pauses. Retries do not
multiply: obstore sends such requests once, and Spark does not retry a task that ended in an icevirt
error. A server that failed for the whole minute counts as down in this process: each request tries
it once until one succeeds, so permanent failures end soon, however many requests there are.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol, Self

from icevirt.connect.library import ask, is_refusal
from icevirt.errors import StorageError
from icevirt.threads import is_failed

TOTAL = 60.0
"""Seconds of pauses and requests after which a request is given up."""

_UNKNOWN = 3.0  # the same for a server that never answered yet: its name may be wrong
_FIRST_PAUSE = 0.5  # seconds, at most
_LONGEST_PAUSE = 8.0
_CERTAIN = 16  # requests given up in a row that are no accident of one object
_REST = 1.0  # seconds in which a server is not asked at all
_PASSING = (408, 425, 429, 500, 502, 503, 504)
_SLOWER = ("SlowDown", "InternalError", "ServiceUnavailable", "RequestTimeout", "ServerBusy")
_THROTTLES = ("SlowDown", "ServerBusy")
_SLOW = "RequestTimeout"  # with status 400, on S3
# not the numbers of the `random` module: programs that seed these want them undisturbed, and
# processes that seed them alike would wait alike
_SYSTEM = random.SystemRandom()


class Retryable(Protocol):
    """What is asked of a bucket; `icevirt.connect.stores.Bucket` is one."""

    def once(self) -> Self:
        """Return the bucket, with each request sent only once."""

    def store(self) -> Any:
        """Return the store of obstore."""

    def renew(self, store: Any) -> bool:
        """Read credentials again; False where there are no others."""

    def note_vain_renewal(self) -> None:
        """Take note that a renewal did not help."""


@dataclass(slots=True)
class Server:
    """What this process knows of a server."""

    answered: bool = False
    given_up: int = 0  # requests in a row, each after all patience or as the server seemed down
    failure: StorageError | None = None  # of the last one
    rest_until: float = 0.0
    throttled: int = 0  # requests that are sent again because it asked for fewer

    @property
    def is_down(self) -> bool:
        """Whether it is taken for down, or nobody needs the answer: requests are sent once."""
        return self.given_up > 0 or is_failed()

    def check(self, url: str) -> None:
        """Raise the failure of requests before, where it would be that of one for ``url``, too.

        An object that always fails is not taken for a server that does: no request fails for the
        few before it.
        """
        failure = self.failure
        if failure is None or self.given_up < _CERTAIN or time.monotonic() > self.rest_until:
            return
        where = dict.fromkeys(failure.facts.keys() & {"url", "location"}, url)
        raise StorageError(failure.what, do=failure.do, **failure.facts | where)

    def works(self) -> None:
        """Take note of an answer."""
        self.answered, self.given_up, self.failure = True, 0, None

    def gave_up(self, failure: StorageError, took: float) -> None:
        """Take note of a request that was given up, and of the seconds that its last try took."""
        self.given_up += 1
        self.failure = failure
        # a server that lets requests time out is left alone for as long as that took
        self.rest_until = time.monotonic() + max(_REST, min(took, TOTAL))


SERVERS: dict[object, Server] = {}
"""What this process knows of each server, by whatever names it."""

os.register_at_fork(after_in_child=SERVERS.clear)


class RetryState[B: Retryable]:
    """The tries of one request to a store.

    Args:
        bucket: The store.
        url: Of the object, without secrets.

    Raises:
        StorageError: The store is down, and was found so a moment ago.
    """

    def __init__(self, bucket: B, url: str) -> None:
        self._server = SERVERS.setdefault(bucket.once(), Server())
        self._server.check(url)
        # the first try is the library's, which has some of its own
        self.bucket = bucket.once() if self._server.is_down else bucket
        self._failed = 0
        self._since = self._begin = time.monotonic()

    def pause_after(self, error: StorageError) -> float:
        """Return the seconds to wait before the next try.

        Raises:
            StorageError: ``error``, where another try is of no use, or there were enough.
        """
        now, server = time.monotonic(), self._server
        if not _may_pass(error):
            server.works()  # it refuses, so it is there
            raise error
        server.answered |= "status" in error.facts
        total = TOTAL if server.answered else _UNKNOWN
        longest = min(_LONGEST_PAUSE, _FIRST_PAUSE * 2**self._failed)
        pause: float = longest * jitter(0.5, 1.0)
        if server.is_down or now - self._since + pause > total:
            tried = f"{now - self._since:.0f} s"
            failure = StorageError(error.what, do=error.do, **error.facts | {"tried_for": tried})
            server.gave_up(failure, now - self._begin)
            raise failure
        self._failed += 1
        server.throttled += is_throttle(error)
        self.bucket = self.bucket.once()
        self._begin = now + pause
        return pause

    def note_success(self) -> None:
        """Take note that the store answers."""
        self._server.works()
        self._failed = 0
        self._since = self._begin = time.monotonic()


def patiently[T](bucket: Retryable, url: str, act: Callable[[Any], T]) -> T:
    """Act on the store of a bucket, again where it throttles or is away for a while.

    Args:
        bucket: The store.
        url: What is acted on, without secrets; it appears in the message.
        act: Asks the store, and may be called again; what it does is the same each time.

    Raises:
        StorageError, ObjectNotFoundError: As `asked` does.
    """
    tries = RetryState(bucket, url)
    while True:
        store = tries.bucket.store()
        try:
            result = ask(url, lambda: act(store))  # noqa: B023 - it is called at once
        except StorageError as error:
            time.sleep(tries.pause_after(error))
        else:
            tries.note_success()
            return result


def on_store[T](bucket: Retryable, url: str, act: Callable[[Any], T]) -> T:
    """Do what `patiently` does, once more where the credentials had come to their end.

    Raises:
        StorageError, ObjectNotFoundError: As `asked` does.
    """
    store = bucket.store()
    try:
        return patiently(bucket, url, act)
    except StorageError as error:
        if not is_refusal(error) or not bucket.renew(store):
            raise
    try:
        return patiently(bucket, url, act)
    except StorageError as error:
        if is_refusal(error):
            bucket.note_vain_renewal()
        raise


def is_throttle(error: StorageError) -> bool:
    """Say whether a server asks for fewer requests."""
    return error.facts.get("status") in (429, 503) or error.facts.get("reason") in _THROTTLES


def _may_pass(error: StorageError) -> bool:
    """Say whether the same request may succeed later."""
    facts = error.facts
    if facts.get("kind") != "GenericError":  # others are about the request
        return False
    status = facts.get("status")
    if status is None:  # no answer, or one that broke off, or about one of many objects
        return facts.get("reason", _SLOWER[0]) in _SLOWER
    return status in _PASSING or (status == 400 and facts.get("reason") == _SLOW)


def jitter(low: float, high: float) -> float:
    """Return a random number between two others: waiting processes must not retry together."""
    return _SYSTEM.uniform(low, high)
