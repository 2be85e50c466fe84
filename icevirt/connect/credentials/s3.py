"""Credentials for S3 and stores that speak its protocol, under icechunk's names."""

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


@dataclass(frozen=True, slots=True, init=False)
class S3StaticCredentials:
    """An access key and its secret, perhaps with a session token and an end."""

    access_key_id: Secret
    secret_access_key: Secret
    session_token: Secret | None
    expires_after: datetime | None

    def __init__(
        self,
        access_key_id: str | Secret,
        secret_access_key: str | Secret,
        session_token: str | Secret | None = None,
        expires_after: datetime | None = None,
    ) -> None:
        keep = object.__setattr__
        keep(self, "access_key_id", secret(access_key_id))
        keep(self, "secret_access_key", secret(secret_access_key))
        keep(self, "session_token", None if session_token is None else secret(session_token))
        keep(self, "expires_after", expiry(expires_after))

    @property
    def provider(self) -> str:
        """``s3``."""
        return "s3"

    def as_obstore(self) -> dict[str, Any]:
        """Return what obstore's credential providers return."""
        return {
            "access_key_id": self.access_key_id.reveal(),
            "secret_access_key": self.secret_access_key.reveal(),
            "token": None if self.session_token is None else self.session_token.reveal(),
            "expires_at": None,  # they cannot be renewed; the server says when they are over
        }

    def arguments(self) -> dict[str, Any]:
        """Return a provider: it takes precedence over half of a key pair in the environment."""
        return {"credential_provider": self.as_obstore, "skip_signature": False}


type AnyS3Credential = S3StaticCredentials | Anonymous | FromEnv | Refreshable


@dataclass(frozen=True, slots=True)
class _Granted:
    """Static credentials as a refreshing function returned them: obstore is told their end."""

    static: S3StaticCredentials

    @property
    def expires_after(self) -> datetime | None:
        """When they expire."""
        return self.static.expires_after

    def as_obstore(self) -> dict[str, Any]:
        """Return them with their end."""
        return self.static.as_obstore() | {"expires_at": self.expires_after}


def _read(returned: Any) -> _Granted:
    if isinstance(returned, S3StaticCredentials):
        return _Granted(returned)
    return _Granted(  # icechunk's own have the same attributes
        S3StaticCredentials(
            returned.access_key_id,
            returned.secret_access_key,
            returned.session_token,
            returned.expires_after,
        )
    )


def s3_static_credentials(
    *,
    access_key_id: str,
    secret_access_key: str,
    session_token: str | None = None,
    expires_after: datetime | None = None,
) -> S3StaticCredentials:
    """Return credentials that stay as they are. Raises ``InvalidInputError``."""
    return S3StaticCredentials(access_key_id, secret_access_key, session_token, expires_after)


def s3_anonymous_credentials() -> Anonymous:
    """Return credentials for public buckets: requests are not signed."""
    return Anonymous("s3")


def s3_from_env_credentials() -> FromEnv:
    """Return credentials that each process takes from its environment."""
    return FromEnv("s3")


def s3_refreshable_credentials(
    get_credentials: Callable[[], Any], scatter_initial_credentials: bool = False
) -> Refreshable:
    """Return credentials that a function returns, asked again before they expire.

    Args:
        get_credentials: Returns `S3StaticCredentials`; has to pickle.
        scatter_initial_credentials: Ask it now, and send the answer along to other processes.

    Raises:
        StorageError: It was asked now and failed.
    """
    return refreshable("s3", get_credentials, _read, scatter=scatter_initial_credentials)


def s3_credentials(
    *,
    access_key_id: str | None = None,
    secret_access_key: str | None = None,
    session_token: str | None = None,
    expires_after: datetime | None = None,
    anonymous: bool | None = None,
    from_env: bool | None = None,
    get_credentials: Callable[[], Any] | None = None,
    scatter_initial_credentials: bool = False,
) -> AnyS3Credential:
    """Return credentials of the kind that the arguments ask for, of the environment without any.

    Raises:
        InvalidInputError: They ask for several kinds, or for half of a key pair.
        StorageError: ``get_credentials`` was asked now and failed.
    """
    static = (access_key_id, secret_access_key, session_token, expires_after)
    match one_of(
        "s3_credentials",
        keys=any(part is not None for part in static),
        anonymous=bool(anonymous),
        from_env=bool(from_env),
        get_credentials=get_credentials is not None,
    ):
        case "keys":
            if not access_key_id or not secret_access_key:
                raise InvalidInputError(
                    "an access key has two parts",
                    do="Pass access_key_id and secret_access_key.",
                )
            return S3StaticCredentials(
                access_key_id, secret_access_key, session_token, expires_after
            )
        case "anonymous":
            return s3_anonymous_credentials()
        case "get_credentials" if get_credentials is not None:
            return s3_refreshable_credentials(get_credentials, scatter_initial_credentials)
    return s3_from_env_credentials()
