"""Define what all kinds of credentials share, and how they reach obstore.

Credentials are frozen values: they compare, pickle and show nothing secret. Each knows its
``provider`` and the ``arguments`` of the obstore store that is opened with it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any, ClassVar, Protocol, runtime_checkable

from icevirt.connect.credentials.secret import Secret, secret
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


class StaticCredentials:
    """Credentials of object stores that stay as they are, perhaps with an end."""

    __slots__ = ()
    provider: ClassVar[str]

    def as_obstore(self) -> dict[str, Any]:
        """Return what obstore's credential providers return, their end included."""
        raise NotImplementedError

    def arguments(self) -> dict[str, Any]:
        """Return a provider: it takes precedence over other kinds in the environment."""
        return {"credential_provider": self._forever, "skip_signature": False}

    def _forever(self) -> dict[str, Any]:
        return self.as_obstore() | {"expires_at": None}  # nobody renews them; the server refuses


@dataclass(frozen=True, slots=True, init=False)
class SecretCredentials(StaticCredentials):
    """One key or token."""

    field: ClassVar[str]  # obstore's name of it
    value: Secret
    expires_after: datetime | None

    def __init__(self, value: str | Secret, *, expires_after: datetime | None = None) -> None:
        object.__setattr__(self, "value", secret(value))
        object.__setattr__(self, "expires_after", expiry(expires_after))

    def as_obstore(self) -> dict[str, Any]:
        """Return it under obstore's name."""
        return {self.field: self.value.reveal(), "expires_at": self.expires_after}


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


@dataclass(frozen=True, slots=True)
class Refreshable:
    """Credentials that a function returns, asked again before they expire.

    Args:
        provider: The kind of store.
        get_credentials: Called without arguments, from any thread; has to pickle.
        read: Checks what it returns.
        current: The first credentials, in use until they expire.
    """

    provider: str
    get_credentials: Callable[[], Any] = field(hash=False)  # it may have no hash
    read: Callable[[Any], Grant] = field(compare=False)
    current: Grant | None = None

    def arguments(self) -> dict[str, Any]:
        """Return the function as obstore wants it."""
        return {"credential_provider": Refresher(self), "skip_signature": False}

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle, with the code of a function that other processes cannot import."""
        function = carried(self.get_credentials)
        return Refreshable, (self.provider, function, self.read, self.current)

    def __repr__(self) -> str:
        function = self.get_credentials  # the text of some functions could hold a secret
        name = getattr(function, "__qualname__", None) or getattr(function, "name", None)
        name = name if isinstance(name, str) else type(function).__name__
        return f"Refreshable(provider={self.provider!r}, get_credentials={name})"


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


@dataclass(frozen=True, slots=True)
class CredentialKind[S]:
    """How credentials for one kind of object store are made.

    Args:
        provider: The kind of store.
        secrets: Makes static credentials of one secret, by the name of the argument that holds it.
        read: Checks what a refreshing function returns.
    """

    provider: str
    secrets: Mapping[str, Callable[[Any], S]]
    read: Callable[[Any], Grant]

    def static(self, function: str, /, **given: object) -> S:
        """Return credentials of the one secret that was given to a function.

        Raises:
            InvalidInputError: None or several were given.
        """
        name = one_of(function, **{name: value is not None for name, value in given.items()})
        if name is None:
            raise InvalidInputError("no credentials given", do="Pass one of the arguments.")
        return self.secrets[name](given[name])

    def refreshable(self, get_credentials: Callable[[], Any], *, scatter: bool) -> Refreshable:
        """Return credentials that a function returns, called now if they are to be scattered.

        Raises:
            StorageError: It was called now and failed.
        """
        made = Refreshable(self.provider, get_credentials, self.read)
        return replace(made, current=refreshed(made)) if scatter else made

    def chosen(
        self,
        how: tuple[bool | None, bool | None, Callable[[], Any] | None, bool],
        /,
        **given: object,
    ) -> S | Anonymous | FromEnv | Refreshable:
        """Return credentials of the kind that arguments ask for, of the environment without any.

        Args:
            how: Arguments ``from_env``, ``anonymous``, ``get_credentials`` and
                ``scatter_initial_credentials`` of a function.
            given: Its others.

        Raises:
            InvalidInputError: They select several kinds.
            StorageError: ``get_credentials`` was called now and failed.
        """
        function = f"{self.provider}_credentials"
        from_env, anonymous, get_credentials, scatter = how
        match one_of(
            function,
            **{name: value is not None for name, value in given.items()},
            from_env=bool(from_env),
            anonymous=bool(anonymous),
            get_credentials=get_credentials is not None,
        ):
            case None | "from_env":
                return FromEnv(self.provider)
            case "anonymous":
                return Anonymous(self.provider)
            case "get_credentials" if get_credentials is not None:
                return self.refreshable(get_credentials, scatter=scatter)
        return self.static(function, **given)


def _expires_soon(grant: Grant) -> bool:
    return grant.expires_after is not None and grant.expires_after < datetime.now(UTC) + _MARGIN


@dataclass(frozen=True, slots=True)
class NoCredentials:
    """Authorizes reading a container that needs no credentials."""

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
                "these are not credentials",
                do="Make them with icevirt.s3_credentials, gcs_credentials, azure_credentials ...",
                prefix=prefix,
                found=type(given).__name__,
            )
    return dict(m)
