"""Keep connections to web servers open between requests, and limit requests to one host.

Safe in threads. A forked child starts without connections and threads.
"""

from __future__ import annotations

import asyncio
import http.client
import ipaddress
import os
import re
import socket
import ssl
import threading
import time
from asyncio import AbstractEventLoop, Semaphore
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import cache, cached_property
from http.client import HTTPResponse
from typing import IO, Any, Literal, Protocol, Self
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass
from weakref import WeakKeyDictionary

from icevirt.objects.answers import refuse_unclear_framing

_IDLE = 30.0  # seconds after which servers may have hung up
_TARGET = re.compile(r"[!-~]+")
_NAME = re.compile(r"[^:\s][^:\r\n]*")
_VALUE = re.compile(r"[^\x00\r\n]*")

AT_ONCE = 64
"""Requests to one host that are under way at a time, in each thread pool or event loop."""


@dataclass(frozen=True, slots=True, order=True)
class Origin:
    """A server: scheme, host and port."""

    scheme: str
    host: str
    port: int

    @classmethod
    def of(cls, url: str) -> Self:
        """Return the server of a URL."""
        parts = urlsplit(url)
        default = 443 if parts.scheme == "https" else 80
        return cls(parts.scheme, (parts.hostname or "").lower(), parts.port or default)

    @property
    def _has_default_port(self) -> bool:
        return self.port == (443 if self.scheme == "https" else 80)

    @property
    def names(self) -> frozenset[str]:
        """How a list of hosts may name it."""
        with_port = f"{self.host}:{self.port}"
        return frozenset({self.host, with_port} if self._has_default_port else {with_port})

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return (
            f"{self.scheme}://{host}"
            if self._has_default_port
            else f"{self.scheme}://{host}:{self.port}"
        )


class HungUpError(OSError):
    """The server hung up on a connection that was idle: nothing was done yet."""


class Readable(Protocol):
    """What an answer is read from: a socket, or what arrived of it."""

    def makefile(self, mode: Literal["rb"], /) -> IO[bytes]:
        """Return the bytes to come as a file."""


class Connection:
    """One connection to a server, in use by one thread or event loop at a time."""

    def __init__(self, origin: Origin, timeout: float) -> None:
        self.origin = origin
        self.idle_since = 0.0
        self._proxy = _proxy(origin)
        self._is_used = False
        self._response: HTTPResponse | None = None  # the last one, if it came
        self._http = _open(origin, self._proxy, timeout)
        self._http.connect()

    @property
    def socket(self) -> socket.socket:
        """The socket; with TLS, what encrypts on it."""
        found: socket.socket = self._http.sock
        return found

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

    def ask(self, url: str, headers: dict[str, str], method: str = "GET") -> HTTPResponse:
        """Send a request without a body and return the answer, its body unread.

        Raises:
            OSError, http.client.HTTPException: It did not work.
            ValueError: A header cannot be sent, or it is unclear where the answer ends.
        """
        return self.answer_of(self.socket, self.request(url, headers, method), method)

    def request(self, url: str, headers: dict[str, str], method: str = "GET") -> bytes:
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
        lines = [f"{method} {target} HTTP/1.1"]
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

    def answer_of(self, source: Readable, unsent: bytes = b"", method: str = "GET") -> HTTPResponse:
        """Send what is left of a request, and read the head of its answer.

        Raises:
            OSError, http.client.HTTPException: It did not work.
            ValueError: It is unclear where the answer ends.
        """
        self._response = None
        try:
            if unsent:
                self.socket.sendall(unsent)
            answer = _parsed(source, method)
        except ConnectionError as error:
            if not self._is_used:
                raise
            raise self._hung_up(error) from error
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
            return Connection(origin, timeout)
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


def _open(origin: Origin, proxy: Origin | None, timeout: float) -> http.client.HTTPConnection:
    near = proxy or origin
    made = (
        http.client.HTTPSConnection(near.host, near.port, timeout=timeout, context=_trust())
        if origin.scheme == "https"
        else http.client.HTTPConnection(near.host, near.port, timeout=timeout)
    )
    if proxy is not None and origin.scheme == "https":
        made.set_tunnel(origin.host, origin.port)
    return made


def _parsed(source: Readable, method: str) -> HTTPResponse:
    """Return an answer whose head was read."""
    answer = HTTPResponse(source, method=method)  # type: ignore[arg-type]  # it needs a file only
    try:
        answer.begin()
        refuse_unclear_framing(answer)
    except BaseException:
        answer.close()
        raise
    return answer


def _proxy(origin: Origin) -> Origin | None:
    """Return the proxy that the environment names for a server."""
    named = getproxies().get(origin.scheme)
    if not named or proxy_bypass(origin.host):
        return None
    return Origin.of(named if "://" in named else f"http://{named}")


@cache
def _trust() -> ssl.SSLContext:
    return ssl.create_default_context()


class _Arrivals:
    """What threads did for one event loop; it is woken once for all that arrives meanwhile.

    Waking it costs each thread a system call and a turn, which is more than the rest of a handover.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._arrived: list[tuple[asyncio.Future[Any], Future[Any]]] = []

    def add(self, loop: AbstractEventLoop, answer: asyncio.Future[Any], done: Future[Any]) -> None:
        """Hand over what a thread did."""
        with self._lock:
            self._arrived.append((answer, done))
            is_first = len(self._arrived) == 1
        if is_first:
            with suppress(RuntimeError):  # the loop was closed: nobody waits
                loop.call_soon_threadsafe(self._hand_over)

    def _hand_over(self) -> None:
        with self._lock:
            arrived, self._arrived = self._arrived, []
        for answer, done in arrived:
            if answer.done():
                continue
            if done.cancelled():
                answer.cancel()
            elif (error := done.exception()) is not None:
                answer.set_exception(error)
            else:
                answer.set_result(done.result())


class Hosts:
    """The thread pools and limits of this process, by host."""

    def __init__(self) -> None:
        self.reset()
        os.register_at_fork(after_in_child=self.reset)

    def reset(self) -> None:
        """Forget them, with a lock that no thread of a parent can be holding."""
        self._lock = threading.Lock()
        self._pools: dict[str, ThreadPoolExecutor] = {}
        self._limits: dict[AbstractEventLoop, dict[str, Semaphore]] = {}
        self._arrivals: WeakKeyDictionary[AbstractEventLoop, _Arrivals] = WeakKeyDictionary()

    def submit[T](self, host: str, work: Callable[[], T]) -> Future[T]:
        """Do what blocks in a thread, when fewer than `AT_ONCE` wait for this host.

        Raises:
            RuntimeError: The interpreter is ending.
        """
        with self._lock:
            if host not in self._pools:
                name = f"icevirt-{host}"
                self._pools[host] = ThreadPoolExecutor(AT_ONCE, thread_name_prefix=name)
            pool = self._pools[host]
        return pool.submit(work)

    async def wait[T](self, host: str, work: Callable[[], T]) -> T:
        """Do what `submit` does, and wait in the running event loop."""
        loop = asyncio.get_running_loop()
        with self._lock:
            arrivals = self._arrivals.setdefault(loop, _Arrivals())
        answer: asyncio.Future[T] = loop.create_future()
        future = self.submit(host, work)
        future.add_done_callback(lambda done: arrivals.add(loop, answer, done))
        try:
            return await answer
        except asyncio.CancelledError:
            future.cancel()
            raise

    def limit(self, host: str) -> Semaphore:
        """Return what limits the requests of the running event loop to a host."""
        loop = asyncio.get_running_loop()
        with self._lock:
            if loop not in self._limits:  # limits know their loop, so none goes away by itself
                for ended in [each for each in self._limits if each.is_closed()]:
                    del self._limits[ended]
            return self._limits.setdefault(loop, {}).setdefault(host, Semaphore(AT_ONCE))


HOSTS = Hosts()
