"""What all kinds of credentials have in common, and how they reach obstore.

Credentials are frozen values: they compare, pickle and show nothing secret. Each knows its
``provider`` and the ``arguments`` of the obstore store that is opened with it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Protocol, runtime_checkable

from icevirt.connect.pickled_function import carried
from icevirt.errors import InvalidInputError, StorageError

_MARGIN = timedelta(minutes=1)  # a request that starts now should still end in time


@runtime_checkable
class Credentials(Protocol):
    """Credentials of one kind of store."""

    @property
    def provider(self) -> str:
        """The kind of store: ``s3``, ``gcs``, ``azure``, ``http`` or ``local``."""

    def arguments(self) -> dict[str, Any]:
        """Return arguments for the obstore store; they hold the secrets in the clear."""


class Grant(Protocol):
    """What a refreshing function returns: credentials, and for how long they are good."""

    @property
    def expires_after(self) -> datetime | None:
        """When they expire; None: never."""

    def as_obstore(self) -> dict[str, Any]:
        """Return them as obstore's credential providers do."""


@dataclass(frozen=True, slots=True)
class FromEnv:
    """Whatever the environment of the process offers that opens the store."""

    provider: str

    def arguments(self) -> dict[str, Any]:
        """Return nothing: obstore looks there by itself."""
        return {}


@dataclass(frozen=True, slots=True)
class Anonymous:
    """Requests are not signed, as public buckets want it."""

    provider: str

    def arguments(self) -> dict[str, Any]:
        """Say that requests are not signed."""
        return {"skip_signature": True}


@dataclass(frozen=True, slots=True, eq=False)
class Refreshable:
    """Credentials that a function returns, asked again before they expire.

    Args:
        provider: The kind of store.
        get_credentials: Called without arguments, from any thread; has to pickle.
        current: The first credentials, in use until they expire.
    """

    provider: str
    get_credentials: Callable[[], Any]
    current: Grant | None = None
    read: Callable[[Any], Grant] = field(kw_only=True)

    def arguments(self) -> dict[str, Any]:
        """Return the function as obstore wants it."""
        return {"credential_provider": Refresher(self), "skip_signature": False}

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Refreshable)
            and self.provider == other.provider
            and self.get_credentials == other.get_credentials
            and self.current == other.current
        )

    def __hash__(self) -> int:
        return hash((self.provider, self.current))  # a function may have no hash

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle, with the code of a function that other processes cannot import."""
        function = carried(self.get_credentials)
        return _refreshable, (self.provider, function, self.current, self.read)

    def __repr__(self) -> str:
        function = self.get_credentials  # the text of some functions could hold a secret
        name = getattr(function, "__qualname__", None) or getattr(function, "name", None)
        name = name if isinstance(name, str) else type(function).__name__
        return f"Refreshable(provider={self.provider!r}, get_credentials={name})"


def _refreshable(
    provider: str,
    get_credentials: Callable[[], Any],
    current: Grant | None,
    read: Callable[[Any], Grant],
) -> Refreshable:
    return Refreshable(provider, get_credentials, current, read=read)


class Refresher:
    """Asks the function of refreshable credentials when those at hand are about to expire."""

    def __init__(self, credentials: Refreshable) -> None:
        self._credentials = credentials
        self._current = credentials.current
        self._lock = threading.Lock()

    def __call__(self) -> dict[str, Any]:
        """Return credentials that are good for a while."""
        with self._lock:
            if self._current is None or _expires_soon(self._current):
                self._current = refreshed(self._credentials)
            return self._current.as_obstore()


def refreshed(credentials: Refreshable) -> Grant:
    """Ask the function once.

    Raises:
        StorageError: It fails, or returns something else. What it said is not repeated: it could
            hold a secret.
    """
    said = ""
    try:
        return credentials.read(credentials.get_credentials())
    except Exception as error:  # noqa: BLE001 - whatever a user's function raises
        said = type(error).__name__
    raise StorageError(
        "the function that refreshes credentials failed",
        do="Call it by itself to see why.",
        function=repr(credentials),
        error=said,
    )


def refreshable(
    provider: str,
    get_credentials: Callable[[], Any],
    read: Callable[[Any], Grant],
    *,
    scatter: bool,
) -> Refreshable:
    """Return refreshable credentials, asked for now where they are to be scattered."""
    made = Refreshable(provider, get_credentials, read=read)
    return Refreshable(provider, get_credentials, refreshed(made), read=read) if scatter else made


def expiry(moment: datetime | None) -> datetime | None:
    """Return the moment of expiry, which has to have a time zone. Raises ``InvalidInputError``."""
    if moment is not None and moment.tzinfo is None:
        raise InvalidInputError(
            "expires_after has no time zone",
            do="Write it like datetime(2030, 1, 1, tzinfo=UTC).",
            expires_after=moment.isoformat(),
        )
    return moment


def one_of(function: str, /, **given: bool) -> str | None:
    """Return which of several ways was given, None for none of them.

    Raises:
        InvalidInputError: More than one was.
    """
    chosen = [name for name, is_given in given.items() if is_given]
    if len(chosen) > 1:
        raise InvalidInputError(
            f"conflicting arguments to {function}", do="Pass one kind only.", given=chosen
        )
    return chosen[0] if chosen else None


def _expires_soon(grant: Grant) -> bool:
    return grant.expires_after is not None and grant.expires_after < datetime.now(UTC) + _MARGIN


@dataclass(frozen=True, slots=True)
class NoCredentials:
    """Says that a container may be read, where reading needs no credentials."""

    provider: str

    def arguments(self) -> dict[str, Any]:
        """Return nothing."""
        return {}


LocalFileSystemAccess = NoCredentials("local")
"""Authorises a ``file://`` container."""

HttpAccess = NoCredentials("http")
"""Authorises an ``http(s)://`` container without credentials."""


def containers_credentials(
    m: Mapping[str, Credentials | None],
) -> dict[str, Credentials | None]:
    """Return credentials by url_prefix of virtual chunk containers, checked.

    Raises:
        InvalidInputError: A value is not of the credentials that this package makes.
    """
    for prefix, given in m.items():
        if given is not None and not isinstance(given, Credentials):
            raise InvalidInputError(
                "these are no credentials",
                do="Make them with icevirt.s3_credentials, gcs_credentials, azure_credentials ...",
                prefix=prefix,
                found=type(given).__name__,
            )
    return dict(m)
