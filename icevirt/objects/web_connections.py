"""Keep connections to web servers open between requests, and limit requests to one host.

Safe in threads. A forked child starts without connections and threads.

A thread for each small range costs more than the range: two handovers, and turns in Python. So what
is usual happens in the event loop, on connections that a thread opened before: a request that the
kernel takes at once, and an answer with a range of known length. In every other case a thread goes
on with the same connection and what arrived on it.
"""

from __future__ import annotations

import asyncio
import http.client
import io
import ipaddress
import os
import re
import socket
import ssl
import threading
import time
from asyncio import AbstractEventLoop, Semaphore
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from functools import cache, cached_property
from http.client import HTTPResponse
from typing import Any, Literal, Self
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

from icevirt.objects import public_network
from icevirt.objects.answers import Fields, fields_of, refuse_unclear_framing
from icevirt.threads import Threads, run_interruptibly

_IDLE = 30.0  # seconds after which servers may have hung up
_TARGET = re.compile(r"[!-~]+")
_NAME = re.compile(r"[^:\s][^:\r\n]*")
_VALUE = re.compile(r"[^\x00\r\n]*")
_END = re.compile(rb"\n\r?\n")  # of a head, as the standard library sees it
_LONGEST_HEAD = 64 * 1024  # bytes
_PART = 64 * 1024  # bytes that are received at a time

AT_ONCE = 64
"""Requests to one host that are under way at a time, in each thread pool or event loop."""


@dataclass(frozen=True, slots=True, order=True)
class Origin:
    """A server: scheme, host and port."""

    scheme: str
    host: str
    port: int
    is_public: bool = False  # it has to be one of the public internet; its connections are apart

    @classmethod
    def of(cls, url: str, *, is_public: bool = False) -> Self:
        """Return the server of a URL."""
        parts = urlsplit(url)
        default = 443 if parts.scheme == "https" else 80
        return cls(parts.scheme, (parts.hostname or "").lower(), parts.port or default, is_public)

    @property
    def names(self) -> frozenset[str]:
        """How a list of hosts may name it."""
        with_port = f"{self.host}:{self.port}"
        is_usual = self.port == (443 if self.scheme == "https" else 80)
        return frozenset({self.host, with_port} if is_usual else {with_port})

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        port = "" if self.host in self.names else f":{self.port}"
        return f"{self.scheme}://{host}{port}"


class HungUpError(OSError):
    """The server hung up on a connection that was idle: nothing was done yet."""


class Answer(HTTPResponse):
    """The answer of a server."""

    @cached_property
    def fields(self) -> Fields:
        """Its headers; see `fields_of`."""
        return fields_of(self.headers)


class ArrivedBytes(io.RawIOBase):
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


class Connection:
    """One connection to a server, in use by one thread or event loop at a time."""

    def __init__(self, origin: Origin, timeout: float) -> None:
        self.origin = origin
        self.idle_since = 0.0
        self._is_used = False
        self._response: Answer | None = None  # the last one, if it came
        named = getproxies().get(origin.scheme)
        self._proxy: Origin | None = None  # that the environment names for the server
        if named and not proxy_bypass(origin.host):
            self._proxy = Origin.of(named if "://" in named else f"http://{named}")
        if origin.is_public and self._proxy is not None:
            public_network.refuse_proxy(origin.host)
        near = self._proxy or origin
        if origin.scheme == "https":
            self._http: http.client.HTTPConnection = http.client.HTTPSConnection(
                near.host, near.port, timeout=timeout, context=_trust()
            )
            if self._proxy is not None:
                self._http.set_tunnel(origin.host, origin.port)
        else:
            self._http = http.client.HTTPConnection(near.host, near.port, timeout=timeout)
        if origin.is_public:
            self._http._create_connection = public_network.connect  # type: ignore[attr-defined]  # noqa: SLF001 - the library's own seam
        self._http.connect()
        self.socket: socket.socket = self._http.sock  # with TLS, what encrypts on it

    @property
    def address(self) -> str:
        """The address at the other end; the server's name where a proxy stands between."""
        if self._proxy is not None:
            return self.origin.host
        return str(self.socket.getpeername()[0])

    @cached_property
    def network(self) -> str:
        """What kind of network the other end is in; see `kind_of`."""
        return kind_of(self.address)

    @property
    def is_reusable(self) -> bool:
        """Whether the last answer was read to its end, and the server did not hang up."""
        response = self._response
        return response is not None and response.isclosed() and not response.will_close

    @property
    def is_regular(self) -> bool:
        """Whether the last answer was a range of known length: so will be the next, probably."""
        last = self._response
        return last is not None and last.status == 206 and not last.chunked

    def ask(self, url: str, headers: dict[str, str]) -> Answer:
        """Send a request without a body and return the answer, its body unread.

        Raises:
            OSError, http.client.HTTPException: It did not work.
            ValueError: A header cannot be sent, or it is unclear where the answer ends.
        """
        return self.answer_of(self.socket, self.request(url, headers))

    def request(self, url: str, headers: dict[str, str]) -> bytes:
        """Return the bytes of a request without a body.

        Raises:
            http.client.InvalidURL: The URL cannot be requested.
            ValueError: A header cannot be sent.
        """
        parts = urlsplit(url)
        target = parts.path or "/"
        target += f"?{parts.query}" if parts.query else ""
        if self._proxy is not None and self.origin.scheme == "http":
            target = f"{self.origin}{target}"
        if not _TARGET.fullmatch(target):
            raise http.client.InvalidURL("the URL has characters that no request can have")
        given = {name.lower() for name in headers}
        lines = [f"GET {target} HTTP/1.1"]
        if "host" not in given:
            lines.append(f"Host: {str(self.origin).partition('://')[2]}")
        if "accept-encoding" not in given:
            lines.append("Accept-Encoding: identity")
        for name, value in headers.items():
            if not _NAME.fullmatch(name) or not _VALUE.fullmatch(value):
                raise ValueError("a header has characters that no header can have")
            lines.append(f"{name}: {value}")
        return "\r\n".join([*lines, "", ""]).encode("latin-1")

    def send_now(self, request: bytes) -> bytes:
        """Send what the kernel takes at once of a request, and return the rest.

        Raises:
            OSError: It did not work.
        """
        self._response = None
        try:
            return request[self.socket.send(request) :]
        except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
            return request
        except ConnectionError as error:
            raise self._hung_up(error) from error

    def answer_of(self, source: socket.socket | ArrivedBytes, unsent: bytes = b"") -> Answer:
        """Send what is left of a request, and read the head of its answer.

        Raises:
            OSError, http.client.HTTPException: It did not work.
            ValueError: It is unclear where the answer ends.
        """
        self._response = answer = None
        try:
            if unsent:
                self.socket.sendall(unsent)
            answer = Answer(source)  # type: ignore[arg-type]  # it needs a file only
            answer.begin()
            refuse_unclear_framing(answer, answer.fields)
        except BaseException as error:
            if answer is not None:
                answer.close()
            if isinstance(error, ConnectionError) and self._is_used:
                raise self._hung_up(error) from error
            raise
        self._is_used, self._response = True, answer
        return answer

    def _hung_up(self, error: ConnectionError) -> HungUpError:
        CONNECTIONS.forget(self.origin)  # others idled as long
        return HungUpError(str(error))

    def close(self) -> None:
        """Hang up."""
        with suppress(OSError):
            if self._response is not None:
                self._response.close()
            self._http.close()
        self._response = None


class Connections:
    """The idle connections of this process."""

    def __init__(self) -> None:
        self.reset()
        os.register_at_fork(after_in_child=self.reset)

    def reset(self) -> None:
        """Forget every connection, with a lock that no thread of a parent can be holding."""
        self._lock = threading.Lock()
        self._idle: dict[Origin, list[Connection]] = {}

    def take(self, origin: Origin, timeout: float) -> Connection:
        """Return a connection. Raises ``OSError`` where none can be made."""
        kept = self._take_idle(origin)
        if kept is None:
            return run_interruptibly(lambda: Connection(origin, timeout))  # it looks up a name
        kept.socket.settimeout(timeout)
        return kept

    def take_regular(self, origin: Origin) -> Connection | None:
        """Return an idle connection that does not block; None where a thread has to see to it."""
        kept = self._take_idle(origin, only_regular=True)
        if kept is not None:
            kept.socket.settimeout(0)
        return kept

    def _take_idle(self, origin: Origin, *, only_regular: bool = False) -> Connection | None:
        oldest = time.monotonic() - _IDLE
        with self._lock:
            idle = self._idle.get(origin, [])
            while idle:
                if only_regular and not idle[-1].is_regular:
                    return None
                connection = idle.pop()
                if connection.idle_since > oldest:
                    return connection
                connection.close()
        return None

    def give_back(self, connection: Connection) -> None:
        """Keep a connection for the next request, if it is fit for one."""
        connection.idle_since = time.monotonic()
        with self._lock:
            idle = self._idle.setdefault(connection.origin, [])
            if connection.is_reusable and len(idle) < AT_ONCE:
                idle.append(connection)
                return
        connection.close()

    def forget(self, origin: Origin) -> None:
        """Hang up the idle connections to a server."""
        with self._lock:
            idle = self._idle.pop(origin, [])
        for connection in idle:
            connection.close()


CONNECTIONS = Connections()


class LoopExchange:
    """A request and its answer on a connection whose socket does not block.

    Only in the thread of the loop, until another one takes over with `resume`.
    """

    def __init__(self, connection: Connection, timeout: float) -> None:
        self.connection = connection
        self.failure: OSError | http.client.HTTPException | None = None
        self._timeout = timeout
        self._arrived = ArrivedBytes(connection.socket)
        self._unsent = b""
        self._response: Answer | None = None
        self._head = 0  # bytes of the head, once it is there
        self._is_over = False  # nothing more arrives

    async def ask(self, url: str, headers: dict[str, str]) -> Answer | None:
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

    def resume(self) -> Answer:
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


def kind_of(address: str) -> str:
    """Say what kind of network an address is in: ``global``, ``private``, ``loopback`` ..."""
    try:
        ip = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return "loopback" if address == "localhost" else "global"
    mapped = getattr(ip, "ipv4_mapped", None) or ip
    for kind in ("loopback", "link_local", "global"):
        if getattr(mapped, f"is_{kind}"):
            return kind
    return "private"


@cache
def _trust() -> ssl.SSLContext:
    return ssl.create_default_context()


class Hosts:
    """The thread pools and limits of this process, by host."""

    def __init__(self) -> None:
        self.reset()
        os.register_at_fork(after_in_child=self.reset)

    def reset(self) -> None:
        """Forget them, with a lock that no thread of a parent can be holding."""
        self._lock = threading.Lock()
        self._pools: dict[str, Threads] = {}
        self._limits: dict[AbstractEventLoop, dict[str, Semaphore]] = {}

    def submit[T](self, host: str, work: Callable[[], T]) -> Future[T]:
        """Do what blocks in a thread, when fewer than `AT_ONCE` wait for this host.

        Raises:
            RuntimeError: The interpreter is ending.
        """
        with self._lock:
            if host not in self._pools:
                name = f"icevirt-{host}"
                self._pools[host] = Threads(AT_ONCE, name)
            pool = self._pools[host]
        return pool.submit(work)

    async def wait[T](self, host: str, work: Callable[[], T]) -> T:
        """Do what `submit` does, and wait in the running event loop."""
        return await asyncio.wrap_future(self.submit(host, work))

    def limit(self, host: str) -> Semaphore:
        """Return what limits the requests of the running event loop to a host."""
        loop = asyncio.get_running_loop()
        with self._lock:
            if loop not in self._limits:  # limits know their loop, so none goes away by itself
                for ended in [each for each in self._limits if each.is_closed()]:
                    del self._limits[ended]
            return self._limits.setdefault(loop, {}).setdefault(host, Semaphore(AT_ONCE))


HOSTS = Hosts()
