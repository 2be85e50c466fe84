"""Define credentials for HTTP servers: headers that go with every request."""

from __future__ import annotations

import base64
import netrc
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, ClassVar

from icevirt.connect.credentials.common import CredentialKind, Refreshable, expiry, one_of
from icevirt.connect.credentials.secret import Secret, secret
from icevirt.errors import InvalidInputError

_FILES = (".netrc", "_netrc")


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

    def sent(self) -> dict[str, str]:
        """Return the headers, in the clear."""
        return {name: value.reveal() for name, value in self.headers}

    def arguments(self) -> dict[str, Any]:
        """Return the headers as client options."""
        return {"default_headers": self.sent()}

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
        path, is_own = _netrc_file()
        if path is None:
            raise InvalidInputError(
                "no netrc file with the password for this server",
                do="Write ~/.netrc on this machine, or let the variable NETRC name a file.",
                host=host,
            )
        entry = _entry(path, host, is_own=is_own)
        if entry is None:
            raise InvalidInputError(
                "the netrc file has no entry for a server",
                do="Add a line: machine HOST login NAME password PASSWORD.",
                host=host,
                file=str(path),
            )
        pair = base64.b64encode(f"{entry[0]}:{entry[2]}".encode()).decode()
        return HttpCredentials({"authorization": f"Basic {pair}"})


def _netrc_file() -> tuple[Path | None, bool]:
    """Return the file of this process, if it has one, and whether it is the one at home."""
    if named := os.environ.get("NETRC"):
        return Path(named).expanduser(), False
    try:
        home = Path.home()
    except RuntimeError:  # some containers have users without any
        return None, False
    return next((home / name for name in _FILES if (home / name).is_file()), None), True


def _entry(path: Path, host: str, *, is_own: bool) -> tuple[str, str, str] | None:
    """Return what the file says of a host. What it says otherwise is not repeated."""
    said = ""
    try:
        if is_own and os.name == "posix" and path.stat().st_mode & 0o077:
            said = "other users can read it: run chmod 600"
        else:
            return netrc.netrc(str(path)).authenticators(host)
    except netrc.NetrcParseError as error:
        said = f"damaged in line {error.lineno}"
    except UnicodeDecodeError:
        said = "it is not text"
    except OSError as error:
        said = error.strerror or type(error).__name__
    raise InvalidInputError(
        "the netrc file cannot be used", do="Correct it.", file=str(path), host=host, cause=said
    )


type AnyHttpCredential = HttpCredentials | FromNetrc | Refreshable


def _read(returned: Any) -> HttpCredentials:
    if not isinstance(returned, HttpCredentials):
        raise TypeError("not made by icevirt.http_credentials")
    return returned


_HTTP = CredentialKind[HttpCredentials]("http", {}, _read)


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
        headers=headers is not None,
        bearer_token=bearer_token is not None,
        netrc=bool(netrc),
        get_credentials=get_credentials is not None,
    )
    if kind == "netrc":
        return FromNetrc()
    if get_credentials is not None:
        return http_refreshable_credentials(get_credentials, scatter_initial_credentials)
    if bearer_token is not None:
        headers = {"authorization": f"Bearer {bearer_token}"}
    return HttpCredentials(headers or {}, expires_after=expires_after)


def http_refreshable_credentials(
    get_credentials: Callable[[], Any], scatter_initial_credentials: bool = False
) -> Refreshable:
    """Return credentials that a function returns, asked again when they expire or are refused.

    Args:
        get_credentials: Returns what `http_credentials` returns for headers or a token.
        scatter_initial_credentials: Call it now, and send the result to other processes.

    Raises:
        StorageError: It was called now and failed.
    """
    return _HTTP.refreshable(get_credentials, scatter=scatter_initial_credentials)
