"""Credentials for Google Cloud Storage, under icechunk's names."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

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


@dataclass(frozen=True, slots=True)
class GcsServiceAccount:
    """A service account: a file (by path, on every machine), or the text of one."""

    option: str  # obstore's name of it
    value: str | Secret

    @property
    def provider(self) -> str:
        """``gcs``."""
        return "gcs"

    def arguments(self) -> dict[str, Any]:
        """Return the option."""
        return {
            self.option: self.value.reveal() if isinstance(self.value, Secret) else self.value,
            "skip_signature": False,
        }


@dataclass(frozen=True, slots=True, init=False)
class GcsBearerCredential:
    """An OAuth token, perhaps with an end."""

    token: Secret
    expires_after: datetime | None

    def __init__(self, bearer: str | Secret, *, expires_after: datetime | None = None) -> None:
        object.__setattr__(self, "token", secret(bearer))
        object.__setattr__(self, "expires_after", expiry(expires_after))

    @property
    def provider(self) -> str:
        """``gcs``."""
        return "gcs"

    def as_obstore(self) -> dict[str, Any]:
        """Return what obstore's credential providers return."""
        return {"token": self.token.reveal(), "expires_at": self.expires_after}

    def arguments(self) -> dict[str, Any]:
        """Return a provider."""
        return {"credential_provider": self._forever, "skip_signature": False}

    def _forever(self) -> dict[str, Any]:
        return self.as_obstore() | {"expires_at": None}


type AnyGcsStaticCredential = GcsServiceAccount | GcsBearerCredential
type AnyGcsCredential = AnyGcsStaticCredential | Anonymous | FromEnv | Refreshable


def _read(returned: Any) -> GcsBearerCredential:
    if isinstance(returned, GcsBearerCredential):
        return returned
    return GcsBearerCredential(returned.bearer, expires_after=returned.expires_after)


def gcs_static_credentials(
    *,
    service_account_file: str | None = None,
    service_account_key: str | None = None,
    application_credentials: str | None = None,
    bearer_token: str | None = None,
) -> AnyGcsStaticCredential:
    """Return credentials that stay as they are. Raises ``InvalidInputError``."""
    if service_account_file is not None:
        return GcsServiceAccount("service_account", service_account_file)
    if service_account_key is not None:
        return GcsServiceAccount("service_account_key", secret(service_account_key))
    if application_credentials is not None:
        return GcsServiceAccount("application_credentials", application_credentials)
    if bearer_token is not None:
        return GcsBearerCredential(bearer_token)
    raise InvalidInputError("no credentials were given", do="Pass one of the arguments.")


def gcs_anonymous_credentials() -> Anonymous:
    """Return credentials for public buckets: requests are not signed."""
    return Anonymous("gcs")


def gcs_from_env_credentials() -> FromEnv:
    """Return credentials that each process takes from its environment."""
    return FromEnv("gcs")


def gcs_refreshable_credentials(
    get_credentials: Callable[[], Any], scatter_initial_credentials: bool = False
) -> Refreshable:
    """Return credentials that a function returns, asked again before they expire.

    Args:
        get_credentials: Returns a `GcsBearerCredential`; has to pickle.
        scatter_initial_credentials: Ask it now, and send the answer along to other processes.

    Raises:
        StorageError: It was asked now and failed.
    """
    return refreshable("gcs", get_credentials, _read, scatter=scatter_initial_credentials)


def gcs_credentials(
    *,
    service_account_file: str | None = None,
    service_account_key: str | None = None,
    application_credentials: str | None = None,
    bearer_token: str | None = None,
    from_env: bool | None = None,
    anonymous: bool | None = None,
    get_credentials: Callable[[], Any] | None = None,
    scatter_initial_credentials: bool = False,
) -> AnyGcsCredential:
    """Return credentials of the kind that the arguments ask for, of the environment without any.

    Raises:
        InvalidInputError: They ask for several kinds.
        StorageError: ``get_credentials`` was asked now and failed.
    """
    match one_of(
        "gcs_credentials",
        service_account_file=service_account_file is not None,
        service_account_key=service_account_key is not None,
        application_credentials=application_credentials is not None,
        bearer_token=bearer_token is not None,
        from_env=bool(from_env),
        anonymous=bool(anonymous),
        get_credentials=get_credentials is not None,
    ):
        case None | "from_env":
            return gcs_from_env_credentials()
        case "anonymous":
            return gcs_anonymous_credentials()
        case "get_credentials" if get_credentials is not None:
            return gcs_refreshable_credentials(get_credentials, scatter_initial_credentials)
    return gcs_static_credentials(
        service_account_file=service_account_file,
        service_account_key=service_account_key,
        application_credentials=application_credentials,
        bearer_token=bearer_token,
    )
