"""Define what all kinds of credentials share, and how they reach obstore.

Credentials are frozen values: they compare, pickle and show nothing secret. Each knows its
``provider`` and the ``arguments`` of the obstore store that is opened with it.
"""

from __future__ import annotations

import os
import pickle
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from configparser import ConfigParser, Error
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import cache
from types import ModuleType
from typing import Any, ClassVar, Never, Protocol, runtime_checkable

from icevirt.errors import IcevirtError, InvalidInputError, StorageError, check_time
from icevirt.import_path import is_trusted, working_directory


@dataclass(frozen=True, slots=True)
class PickledFunction:
    """A function as code."""

    name: str
    code: bytes = field(repr=False)

    def __call__(self) -> Any:
        """Call the function."""
        return _load(self.code)()


@cache
def _load(code: bytes) -> Callable[[], Any]:
    function: Callable[[], Any] = pickle.loads(code)  # noqa: S301  # made by `carried`
    return function


def carry(function: Callable[[], Any]) -> Callable[[], Any]:
    """Return what pickles in the place of a function that other processes cannot import.

    It is defined in a script, in a notebook or a module beside one, or inside of a function.

    Everything else stays as it is, and so does that where Spark, which has the means, is missing.
    """
    name = str(getattr(function, "__qualname__", ""))
    home = str(getattr(function, "__module__", ""))
    beside = _beside(home)
    if home != "__main__" and "<" not in name and beside is None:
        return function
    try:
        from pyspark import cloudpickle
    except ImportError:
        return function
    try:
        with _by_value(beside, cloudpickle):
            code = cloudpickle.dumps(function)  # type: ignore[no-untyped-call]
    except Exception:
        if beside is None:
            raise
        return function  # it uses what is no code; where it is installed, others import it
    return PickledFunction(name or type(function).__name__, code)


def _beside(name: str) -> ModuleType | None:
    """Return the module or package, if no other process imports it: it lies beside a notebook."""
    top = name.partition(".")[0]
    module, here = sys.modules.get(top), working_directory()
    if module is None or here is None or top == __name__.partition(".")[0]:
        return None
    file = getattr(module, "__file__", None)
    if not file or is_trusted(here):
        return None
    home = os.path.dirname(file)
    if hasattr(module, "__path__"):  # a package
        home = os.path.dirname(home)
    return module if os.path.realpath(home) == os.path.realpath(here) else None


@contextmanager
def _by_value(module: ModuleType | None, pickler: ModuleType) -> Iterator[None]:
    """Let what a module defines travel as code while the block runs."""
    if module is None:
        yield
        return
    pickler.register_pickle_by_value(module)
    try:
        yield
    finally:
        pickler.unregister_pickle_by_value(module)


_MARGIN = timedelta(minutes=1)  # a request that starts now should still end in time


class Secret:
    """A password, key or token.

    It compares and pickles, because executors need it; nothing but `reveal` shows it.
    """

    __slots__ = ("_text",)
    _text: str

    def __init__(self, text: str) -> None:
        object.__setattr__(self, "_text", text)

    def reveal(self) -> str:
        """Return the text, only for the library that signs requests."""
        return self._text

    def __repr__(self) -> str:
        return "<secret>"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and self._text == other._text

    def __hash__(self) -> int:
        return hash((Secret, self._text))

    def __setattr__(self, name: str, value: object) -> Never:
        raise AttributeError("a secret is immutable")

    def __reduce__(self) -> tuple[Any, ...]:
        return Secret, (self._text,)


def secret(value: str | Secret) -> Secret:
    """Return the value as a secret."""
    return value if isinstance(value, Secret) else Secret(value)


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
        return self.as_obstore() | {"expires_at": None}  # not renewed here; the server refuses


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
    """Credentials that each process finds in its environment."""

    provider: str
    pays: bool = False  # for requests to a bucket of S3

    def arguments(self) -> dict[str, Any]:
        """Say who pays; obstore looks for the credentials by itself."""
        return {"request_payer": True} if self.pays else {}


@dataclass(frozen=True, slots=True)
class Anonymous:
    """Requests are not signed, as public buckets want it."""

    provider: str

    def arguments(self) -> dict[str, Any]:
        """Say that requests are not signed."""
        return {"skip_signature": True}


@dataclass(frozen=True, slots=True)
class PublicAccess(Anonymous):
    """Requests go without credentials, and to servers of the public internet only."""


@dataclass(frozen=True, slots=True)
class NoCredentials:
    """Authorizes reading a container that needs no credentials."""

    provider: str

    def arguments(self) -> dict[str, Any]:
        """Return nothing."""
        return {}


LocalFileSystemAccess = NoCredentials("local")
"""Authorizes a ``file://`` container."""

HttpAccess = NoCredentials("http")
"""Authorizes an ``http(s)://`` container without credentials."""


def is_web_without(credentials: Any) -> bool:
    """Say whether requests to a web server go without credentials."""
    kinds = NoCredentials | Anonymous | FromEnv
    return credentials is None or (
        isinstance(credentials, kinds) and credentials.provider == "http"
    )


@dataclass(frozen=True, slots=True)
class Refreshable:
    """Credentials that a function returns, called again before they expire.

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
        function = carry(self.get_credentials)
        return Refreshable, (self.provider, function, self.read, self.current)

    def __repr__(self) -> str:
        function = self.get_credentials  # the text of some functions could hold a secret
        name = getattr(function, "__qualname__", None) or getattr(function, "name", None)
        name = name if isinstance(name, str) else type(function).__name__
        return f"Refreshable(provider={self.provider!r}, get_credentials={name})"


class Refresher:
    """Calls the function of refreshable credentials when the current ones are about to expire."""

    def __init__(self, credentials: Refreshable) -> None:
        self._credentials = credentials
        self._current = credentials.current
        self._lock = threading.Lock()

    def __call__(self) -> dict[str, Any]:
        """Return credentials that are good for a while."""
        with self._lock:
            current = self._current
            ends = None if current is None else current.expires_after
            if current is None or (ends is not None and ends < datetime.now(UTC) + _MARGIN):
                current = self._current = refresh(self._credentials)
            return current.as_obstore()


def refresh(credentials: Refreshable) -> Grant:
    """Call the function once.

    Raises:
        StorageError: It fails, or returns something else. Its message is not repeated: it could
            hold a secret.
    """
    failure = ""
    try:
        return credentials.read(credentials.get_credentials())
    except IcevirtError:
        raise  # ours name no secret
    except Exception as error:  # noqa: BLE001 - whatever a user's function raises
        failure = type(error).__name__
    raise StorageError(
        "the function that refreshes credentials failed",
        do="Call it by itself to see why.",
        function=repr(credentials),
        error=failure,
    )


def expiry(moment: datetime | None) -> datetime | None:
    """Return the moment of expiry, which has to have a time zone. Raises ``NaiveTimeError``."""
    return None if moment is None else check_time("expires_after", moment)


def one_of(function: str, /, **given: object) -> str | None:
    """Return which of several arguments is neither None nor False; None if all are.

    Raises:
        InvalidInputError: More than one was.
    """
    chosen = [name for name, value in given.items() if value is not None and value is not False]
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

    def anonymous(self) -> Anonymous:
        """Return credentials for public buckets: requests are not signed."""
        return Anonymous(self.provider)

    def from_env(self) -> FromEnv:
        """Return credentials that each process takes from its environment."""
        return FromEnv(self.provider)

    def refreshable(
        self, get_credentials: Callable[[], Any], scatter_initial_credentials: bool = False
    ) -> Refreshable:
        """Return credentials that a function returns, called again before they expire.

        Args:
            get_credentials: Returns credentials of this kind of store, with their end:
                `S3StaticCredentials`, `GcsBearerCredential`, `AzureRefreshableCredential`, or what
                `http_credentials` returns for headers or a token. Has to pickle.
            scatter_initial_credentials: Call it now, and send the result along to other processes.

        Raises:
            StorageError: It was called now and failed.
        """
        made = Refreshable(self.provider, get_credentials, self.read)
        return replace(made, current=refresh(made)) if scatter_initial_credentials else made

    def static(self, function: str, /, **given: object) -> S:
        """Return credentials of the one secret that was given to a function.

        Raises:
            InvalidInputError: None or several were given.
        """
        if (name := one_of(function, **given)) is None:
            raise InvalidInputError("no credentials given", do="Pass one of the arguments.")
        return self.secrets[name](given[name])

    def choose(
        self,
        how: tuple[bool | None, bool | None, Callable[[], Any] | None, bool],
        /,
        **given: object,
    ) -> S | Anonymous | FromEnv | Refreshable:
        """Return credentials of the kind that arguments select; without any, the environment's.

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
        ways = {"from_env": from_env, "anonymous": anonymous, "get_credentials": get_credentials}
        match one_of(function, **given, **ways):
            case None | "from_env":
                return self.from_env()
            case "anonymous":
                return self.anonymous()
            case "get_credentials" if get_credentials is not None:
                return self.refreshable(get_credentials, scatter)
        return self.static(function, **given)


def containers_credentials(
    m: Mapping[str, Credentials | None],
) -> dict[str, Credentials | None]:
    """Return credentials by url_prefix of virtual chunk containers, checked.

    Raises:
        InvalidInputError: A value is not credentials that this package makes.
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


def profile_region() -> str | None:
    """Return the region of the profile in use, if it has one."""
    found = (section_of(*place).get("region") for place in profile_places())
    return next((region for region in found if region), None)


def profile_in_use() -> str:
    """Return the name of the AWS profile in use."""
    return os.environ.get("AWS_PROFILE") or "default"


def profile_places() -> tuple[tuple[str, str], ...]:
    """Return the files and sections of the profile in use."""
    profile = profile_in_use()
    named = profile if profile == "default" else f"profile {profile}"
    keys = os.environ.get("AWS_SHARED_CREDENTIALS_FILE") or "~/.aws/credentials"
    config = os.environ.get("AWS_CONFIG_FILE") or "~/.aws/config"
    return (os.path.expanduser(keys), profile), (os.path.expanduser(config), named)


def section_of(path: str, section: str) -> dict[str, str]:
    """Return a section of a file of profiles; nothing where there is none."""
    parser = ConfigParser(interpolation=None)
    try:
        parser.read(path, encoding="utf-8")
    except (Error, OSError, UnicodeDecodeError):
        return {}
    return dict(parser[section]) if parser.has_section(section) or section == "DEFAULT" else {}
