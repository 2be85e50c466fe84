"""Define credentials for HTTP servers: headers that go with every request.

Headers that a function returns are renewed by calling it again, once at a time per process: before
its answer expires, and when a server refuses the answer. A server may also refuse one file to every
user, so a refusal that persists after a renewal no longer counts as an expired token.
"""

from __future__ import annotations

import base64
import netrc
import os
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, ClassVar

from icevirt.connect.credentials.common import (
    CredentialKind,
    Refreshable,
    Secret,
    expiry,
    one_of,
    refresh,
    secret,
)
from icevirt.errors import InvalidInputError

_RENEW_BEFORE = 60.0  # seconds before the end at which others are fetched; half of a shorter life
_MOST = 64  # functions whose answers are remembered


@dataclass(frozen=True, slots=True, init=False)
class HttpCredentials:
    """Headers sent to one server, perhaps with an end."""

    provider: ClassVar[str] = "http"
    headers: tuple[tuple[str, Secret], ...]
    expires_after: datetime | None

    def __init__(
        self, headers: Mapping[str, str | Secret], *, expires_after: datetime | None = None
    ) -> None:
        pairs = tuple(sorted((name.lower(), secret(value)) for name, value in headers.items()))
        object.__setattr__(self, "headers", pairs)
        object.__setattr__(self, "expires_after", expiry(expires_after))

    def reveal(self) -> dict[str, str]:
        """Return the headers, in the clear."""
        return {name: value.reveal() for name, value in self.headers}

    def arguments(self) -> dict[str, Any]:
        """Return the headers as client options."""
        return {"default_headers": self.reveal()}

    as_obstore = arguments


@dataclass(frozen=True, slots=True)
class FromNetrc:
    """The user name and password that the netrc file of each process has for a host."""

    provider: ClassVar[str] = "http"

    def arguments(self) -> dict[str, Any]:
        """Return nothing: it depends on the host."""
        return {}

    def of_host(self, host: str) -> HttpCredentials:
        """Read the file that ``NETRC`` names, or ``~/.netrc``.

        Raises:
            InvalidInputError: There is no such file, it is damaged, open to others, or has no entry
                for the host.
        """
        named, path = os.environ.get("NETRC"), None
        if named:
            path = Path(named).expanduser()
        else:
            with suppress(RuntimeError):  # some containers have users without any home
                there = (Path.home() / name for name in (".netrc", "_netrc"))
                path = next((each for each in there if each.is_file()), None)
        if path is None:
            raise InvalidInputError(
                "no netrc file with the password for this server",
                do="Write ~/.netrc on this machine, or let the variable NETRC name a file.",
                host=host,
            )
        entry = _entry(path, host, is_own=not named)
        if entry is None:
            raise InvalidInputError(
                "the netrc file has no entry for a server",
                do="Add a line: machine HOST login NAME password PASSWORD.",
                host=host,
                file=str(path),
            )
        pair = base64.b64encode(f"{entry[0]}:{entry[2]}".encode()).decode()
        return HttpCredentials({"authorization": f"Basic {pair}"})


def _entry(path: Path, host: str, *, is_own: bool) -> tuple[str, str, str] | None:
    """Return the entry of a host. Other content of the file is not repeated in errors."""
    cause = ""
    try:
        if is_own and os.name == "posix" and path.stat().st_mode & 0o077:
            cause = "other users can read it: run chmod 600"
        else:
            return netrc.netrc(str(path)).authenticators(host)
    except netrc.NetrcParseError as error:
        cause = f"damaged in line {error.lineno}"
    except UnicodeDecodeError:
        cause = "it is not text"
    except OSError as error:
        cause = error.strerror or type(error).__name__
    raise InvalidInputError(
        "the netrc file cannot be used", do="Correct it.", file=str(path), host=host, cause=cause
    )


type AnyHttpCredential = HttpCredentials | FromNetrc | Refreshable


def _read(returned: Any) -> HttpCredentials:
    if not isinstance(returned, HttpCredentials):
        raise TypeError("not made by icevirt.http_credentials")
    return returned


_KIND: CredentialKind[HttpCredentials] = CredentialKind("http", {}, _read)
http_refreshable_credentials = _KIND.refreshable


def http_credentials(
    *,
    headers: Mapping[str, str] | None = None,
    bearer_token: str | None = None,
    expires_after: datetime | None = None,
    netrc: bool | None = None,
    get_credentials: Callable[[], Any] | None = None,
    scatter_initial_credentials: bool = False,
) -> AnyHttpCredential:
    """Return credentials for an ``http(s)://`` container or storage.

    Args:
        headers: Sent with each request.
        bearer_token: Sent as the header ``authorization``.
        expires_after: When headers or token expire; a function is called again in time.
        netrc: User name and password of the host, from ``~/.netrc`` or the file that the variable
            ``NETRC`` names, on each machine.
        get_credentials: Returns the result of this function for headers or a token. It is called
            again before they expire, and when a server refuses them; has to pickle.
        scatter_initial_credentials: Call it now, and send the result to other processes.

    Raises:
        InvalidInputError: Several kinds were given, or ``expires_after`` has no time zone.
        StorageError: ``get_credentials`` was called now and failed.
    """
    kind = one_of(
        "http_credentials",
        headers=headers,
        bearer_token=bearer_token,
        netrc=netrc,
        get_credentials=get_credentials,
    )
    if kind == "netrc":
        return FromNetrc()
    if get_credentials is not None:
        return http_refreshable_credentials(get_credentials, scatter_initial_credentials)
    if bearer_token is not None:
        headers = {"authorization": f"Bearer {bearer_token}"}
    return HttpCredentials(headers or {}, expires_after=expires_after)


@dataclass(slots=True, eq=False)
class Token:
    """An answer of the function."""

    headers: dict[str, str] = field(repr=False)
    until: float  # on the monotonic clock
    because: int = 0  # status of the answer that refused the one before
    worked: bool = False  # some server accepted it
    forbids: bool = False  # it is new, and was refused with 403: that is about the file

    @property
    def is_over(self) -> bool:
        """Whether it is about to expire."""
        return time.monotonic() >= self.until


class Tokens:
    """The answers of one function, shared by all threads."""

    def __init__(self, credentials: Refreshable) -> None:
        self._credentials = credentials
        self._lock = threading.Lock()
        self._current: Token | None = None

    def current(self) -> Token:
        """Return the headers to send.

        Raises:
            StorageError: The function failed.
        """
        with self._lock:
            if self._current is None:
                scattered = self._credentials.current
                self._current = _token(scattered or refresh(self._credentials))
            if self._current.is_over:
                self._current = _token(refresh(self._credentials))
            return self._current

    def renew(self, refused: Token, status: int) -> bool:
        """Take a refusal for the end of a token, and fetch another unless another thread did.

        Returns:
            False where another one does not help.

        Raises:
            StorageError: The function failed.
        """
        with self._lock:
            if self._current is not refused:
                return True
            if refused.forbids and status == 403:
                return False
            if refused.because and not refused.worked:
                refused.forbids = status == 403
                return False
            self._current = _token(refresh(self._credentials), because=status)
            return True


def _token(answer: object, because: int = 0) -> Token:
    assert isinstance(answer, HttpCredentials), "what functions return was checked"
    until = float("inf")
    if answer.expires_after is not None:
        left = (answer.expires_after - datetime.now(UTC)).total_seconds()
        until = time.monotonic() + left - min(_RENEW_BEFORE, left / 2)
    return Token(headers=answer.reveal(), until=until, because=because)


class _All:
    """The answers of all functions of this process."""

    def __init__(self) -> None:
        self.reset()
        os.register_at_fork(after_in_child=self.reset)

    def reset(self) -> None:
        """Forget them, with a lock that no thread of a parent can be holding."""
        self._lock = threading.Lock()
        self._known: OrderedDict[Refreshable, Tokens] = OrderedDict()

    def of(self, credentials: Refreshable) -> Tokens:
        """Return the answers of the function of some credentials."""
        with self._lock:
            found = self._known.setdefault(credentials, Tokens(credentials))
            self._known.move_to_end(credentials)
            if len(self._known) > _MOST:
                self._known.popitem(last=False)
            return found


TOKENS = _All()
