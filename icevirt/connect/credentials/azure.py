"""Credentials for Azure Blob Storage, under icechunk's names."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any, ClassVar

from icevirt.connect.credentials.common import (
    Anonymous,
    FromEnv,
    Refreshable,
    expiry,
    one_of,
    refreshable,
)
from icevirt.connect.credentials.secret import Secret, secret
from icevirt.errors import InvalidInputError


@dataclass(frozen=True, slots=True, init=False)
class _AzureCredential:
    """One secret, perhaps with an end."""

    field: ClassVar[str]  # obstore's name of it
    value: Secret
    expires_after: datetime | None

    def __init__(self, value: str | Secret, *, expires_after: datetime | None = None) -> None:
        object.__setattr__(self, "value", secret(value))
        object.__setattr__(self, "expires_after", expiry(expires_after))

    @property
    def provider(self) -> str:
        """``azure``."""
        return "azure"

    def as_obstore(self) -> dict[str, Any]:
        """Return what obstore's credential providers return."""
        return {self.field: self.value.reveal(), "expires_at": self.expires_after}

    def arguments(self) -> dict[str, Any]:
        """Return a provider: it takes precedence over other kinds in the environment."""
        return {"credential_provider": self._forever, "skip_signature": False}

    def _forever(self) -> dict[str, Any]:
        return self.as_obstore() | {"expires_at": None}


class _AccessKey(_AzureCredential):
    """The key of a storage account."""

    __slots__ = ()
    field = "access_key"


class _SasToken(_AzureCredential):
    """A shared access signature, without its question mark."""

    __slots__ = ()
    field = "sas_token"

    def __init__(self, value: str | Secret, *, expires_after: datetime | None = None) -> None:
        text = secret(value).reveal().removeprefix("?")
        super().__init__(text, expires_after=expires_after)


class _BearerToken(_AzureCredential):
    """An OAuth token."""

    __slots__ = ()
    field = "token"


class AzureRefreshableCredential:
    """What a refreshing function returns, under icechunk's names."""

    AccessKey = _AccessKey
    SasToken = _SasToken
    BearerToken = _BearerToken


type AnyAzureStaticCredential = _AccessKey | _SasToken | _BearerToken
type AnyAzureCredential = AnyAzureStaticCredential | Anonymous | FromEnv | Refreshable


def _read(returned: Any) -> _AzureCredential:
    if isinstance(returned, _AzureCredential):
        return returned
    raise TypeError(type(returned).__name__)


def azure_static_credentials(
    *,
    access_key: str | None = None,
    sas_token: str | None = None,
    bearer_token: str | None = None,
) -> AnyAzureStaticCredential:
    """Return credentials that stay as they are.

    Raises:
        InvalidInputError: None were given, or several.
    """
    one_of(
        "azure_static_credentials",
        access_key=access_key is not None,
        sas_token=sas_token is not None,
        bearer_token=bearer_token is not None,
    )
    if access_key is not None:
        return _AccessKey(access_key)
    if sas_token is not None:
        return _SasToken(sas_token)
    if bearer_token is not None:
        return _BearerToken(bearer_token)
    raise InvalidInputError("no credentials were given", do="Pass one of the arguments.")


def azure_anonymous_credentials() -> Anonymous:
    """Return credentials for public containers: requests are not signed."""
    return Anonymous("azure")


def azure_from_env_credentials() -> FromEnv:
    """Return credentials that each process takes from its environment."""
    return FromEnv("azure")


def azure_refreshable_credentials(
    get_credentials: Callable[[], Any], scatter_initial_credentials: bool = False
) -> Refreshable:
    """Return credentials that a function returns, asked again before they expire.

    Args:
        get_credentials: Returns an `AzureRefreshableCredential`; has to pickle.
        scatter_initial_credentials: Ask it now, and send the answer along to other processes.

    Raises:
        StorageError: It was asked now and failed.
    """
    return refreshable("azure", get_credentials, _read, scatter=scatter_initial_credentials)


def azure_credentials(
    *,
    access_key: str | None = None,
    sas_token: str | None = None,
    bearer_token: str | None = None,
    from_env: bool | None = None,
    anonymous: bool | None = None,
    get_credentials: Callable[[], Any] | None = None,
    scatter_initial_credentials: bool = False,
) -> AnyAzureCredential:
    """Return credentials of the kind that the arguments ask for, of the environment without any.

    Raises:
        InvalidInputError: They ask for several kinds.
        StorageError: ``get_credentials`` was asked now and failed.
    """
    match one_of(
        "azure_credentials",
        access_key=access_key is not None,
        sas_token=sas_token is not None,
        bearer_token=bearer_token is not None,
        from_env=bool(from_env),
        anonymous=bool(anonymous),
        get_credentials=get_credentials is not None,
    ):
        case None | "from_env":
            return azure_from_env_credentials()
        case "anonymous":
            return azure_anonymous_credentials()
        case "get_credentials" if get_credentials is not None:
            return azure_refreshable_credentials(get_credentials, scatter_initial_credentials)
    return azure_static_credentials(
        access_key=access_key, sas_token=sas_token, bearer_token=bearer_token
    )
