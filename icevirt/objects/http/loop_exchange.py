"""Send a request on a kept connection, and receive its answer in the event loop.

A thread for each small range costs more than the range: two handovers, and turns in Python. Only
what is usual happens here, on connections that a thread opened before: a request that the kernel
takes at once, and an answer with a range of known length. In every other case a thread goes on with
the same connection and what arrived on it, so decisions are made in one place.
"""

from __future__ import annotations

import asyncio
import http.client
import io
import re
import socket
import ssl
from collections.abc import Callable
from http.client import HTTPResponse
from typing import Any, Literal

from icevirt.objects.http.connections import Connection

_END = re.compile(rb"\n\r?\n")  # of a head, as the standard library sees it
_LONGEST_HEAD = 64 * 1024  # bytes
_PART = 64 * 1024  # bytes that are received at a time


class LoopExchange:
    """A request and its answer on a connection whose socket does not block.

    Only in the thread of the loop, until another one takes over with `resume`.
    """

    def __init__(self, connection: Connection, timeout: float) -> None:
        self.connection = connection
        self.failure: OSError | http.client.HTTPException | None = None
        self._timeout = timeout
        self._arrived = _Arrived(connection.socket)
        self._unsent = b""
        self._response: HTTPResponse | None = None
        self._head = 0  # bytes of the head, once it is there
        self._is_over = False  # nothing more arrives

    async def ask(self, url: str, headers: dict[str, str]) -> HTTPResponse | None:
        """Return the answer with a range, its body unread; None where a thread has to go on.

        Raises:
            OSError, http.client.HTTPException: It did not work.
            ValueError: A header cannot be sent.
        """
        self._unsent = self.connection.send_now(self.connection.request(url, headers))
        if self._unsent:
            return None
        await self._receive(self._has_head)
        if not self._head or not self._arrived.data.startswith(b"HTTP/1.1 206 "):
            return None
        self._response = self.connection.answer_of(self._arrived)
        return self._response

    async def read(self, length: int) -> bytes:
        """Return the body, which has ``length`` bytes.

        Raises:
            OSError, http.client.HTTPException: It did not work.
        """
        assert self._response is not None, "there is an answer"
        data, end = self._arrived.data, self._head + length
        if not self._pull(lambda: len(data) >= end):
            await self._receive(lambda: len(data) >= end)
        # a server that sent bytes after the end of its answer may not get another request
        self._response.will_close |= len(data) > end
        return self._response.read()

    def resume(self) -> HTTPResponse:
        """Return the answer, its body unread; blocks. Only in a thread that takes over.

        Raises:
            OSError, http.client.HTTPException: It did not work.
        """
        if self.failure is not None:
            raise self.failure
        self.connection.socket.settimeout(self._timeout)
        return self._response or self.connection.answer_of(self._arrived, self._unsent)

    def _has_head(self) -> bool:
        found = _END.search(self._arrived.data)
        self._head = found.end() if found else 0
        return bool(found) or len(self._arrived.data) > _LONGEST_HEAD

    def _pull(self, is_enough: Callable[[], bool]) -> bool:
        """Take what arrived; say whether that is enough, or all."""
        while not is_enough():
            try:
                part = self.connection.socket.recv(_PART)
            except (BlockingIOError, ssl.SSLWantReadError):
                return self._is_over
            except ssl.SSLWantWriteError:
                part = b""
            if not part:
                self._is_over = True
                return True
            self._arrived.data += part
        return True

    async def _receive(self, is_enough: Callable[[], bool]) -> None:
        """Wait until enough arrived. Raises ``OSError``."""
        loop = asyncio.get_running_loop()
        done: asyncio.Future[None] = loop.create_future()
        number = self.connection.socket.fileno()
        self._last = loop.time()
        self._wait(done)
        loop.add_reader(number, self._on_arrival, done, is_enough)
        try:
            await done
        finally:
            loop.remove_reader(number)
            self._timer.cancel()

    def _on_arrival(self, done: asyncio.Future[None], is_enough: Callable[[], bool]) -> None:
        if done.done():  # cancelled in this turn
            return
        self._last = done.get_loop().time()
        try:
            if self._pull(is_enough):
                done.set_result(None)
        except OSError as error:
            done.set_exception(error)

    def _wait(self, done: asyncio.Future[None]) -> None:
        """Give up once nothing arrived for too long."""
        loop = done.get_loop()
        if (left := self._last + self._timeout - loop.time()) > 0:
            self._timer = loop.call_later(left, self._wait, done)
        elif not done.done():
            done.set_exception(TimeoutError("timed out"))


class _Arrived(io.RawIOBase):
    """The bytes of a connection: first what the event loop received, then what its socket gives."""

    def __init__(self, source: socket.socket) -> None:
        self.data = bytearray()
        self._source = source
        self._taken = 0

    def makefile(self, _mode: Literal["rb"], /) -> io.BufferedReader:
        """Return a file of the bytes."""
        return io.BufferedReader(self)

    def readable(self) -> bool:
        """True."""
        return True

    def readinto(self, into: Any, /) -> int:
        """Take bytes."""
        part = self.data[self._taken : self._taken + len(into)]
        if not part:
            return self._source.recv_into(into)
        into[: len(part)] = part
        self._taken += len(part)
        return len(part)
