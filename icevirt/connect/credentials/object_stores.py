"""Define credentials for S3, Google Cloud Storage and Azure, under icechunk's names.

obstore reads the environment and queries the cloud's instance metadata, but not ``~/.aws``. Keys
and region are read from there if the environment has none: only keys written out in it; single
sign-on and roles need `s3_refreshable_credentials`.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import cache, partial
from importlib.util import find_spec
from typing import Any, ClassVar

from icevirt.connect.credentials.common import (
    Anonymous,
    CredentialKind,
    FromEnv,
    Refreshable,
    Secret,
    SecretCredentials,
    StaticCredentials,
    expiry,
    profile_in_use,
    profile_places,
    secret,
    section_of,
)
from icevirt.errors import InvalidInputError, StorageError

# -- S3, and stores that speak its protocol --------------------------------------------------------


@dataclass(frozen=True, slots=True, init=False)
class S3StaticCredentials(StaticCredentials):
    """An access key and its secret, with an optional session token and expiration time."""

    provider: ClassVar[str] = "s3"
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

    def as_obstore(self) -> dict[str, Any]:
        """Return them under obstore's names."""
        return {
            "access_key_id": self.access_key_id.reveal(),
            "secret_access_key": self.secret_access_key.reveal(),
            "token": None if self.session_token is None else self.session_token.reveal(),
            "expires_at": self.expires_after,
        }


type AnyS3Credential = S3StaticCredentials | Anonymous | FromEnv | Refreshable


def _read_s3(returned: Any) -> S3StaticCredentials:
    return S3StaticCredentials(  # icechunk's own have the same attributes
        returned.access_key_id,
        returned.secret_access_key,
        returned.session_token,
        returned.expires_after,
    )


def _s3_of_keys(keys: tuple[Any, ...]) -> S3StaticCredentials:
    if not keys[0] or not keys[1]:
        raise InvalidInputError(
            "an access key needs both of its parts", do="Pass access_key_id and secret_access_key."
        )
    return S3StaticCredentials(*keys)


_S3 = CredentialKind("s3", {"keys": _s3_of_keys}, _read_s3)
s3_anonymous_credentials = _S3.anonymous
s3_from_env_credentials = _S3.from_env
s3_refreshable_credentials = _S3.refreshable


def s3_static_credentials(
    *,
    access_key_id: str,
    secret_access_key: str,
    session_token: str | None = None,
    expires_after: datetime | None = None,
) -> S3StaticCredentials:
    """Return credentials that do not change. Raises ``InvalidInputError``."""
    return S3StaticCredentials(access_key_id, secret_access_key, session_token, expires_after)


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
    """Return credentials of the kind that the arguments select; without any, the environment's.

    Secrets are never shown, and ``expires_after`` is when the keys expire. With ``anonymous``,
    requests are not signed; with ``from_env``, each process takes credentials from its environment.
    For the last two arguments see `s3_refreshable_credentials`.

    Raises:
        InvalidInputError: They select several kinds, or half of a key pair.
        StorageError: ``get_credentials`` was called now and failed.
    """
    keys = (access_key_id, secret_access_key, session_token, expires_after)
    given = None if keys == (None, None, None, None) else keys
    how = from_env, anonymous, get_credentials, scatter_initial_credentials
    return _S3.choose(how, keys=given)


# -- Google Cloud Storage --------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class GcsServiceAccount:
    """A service account: a file (by path, on every machine), or the text of one."""

    option: str  # obstore's name of it
    value: str | Secret
    provider: ClassVar[str] = "gcs"

    def arguments(self) -> dict[str, Any]:
        """Return the option."""
        value = self.value.reveal() if isinstance(self.value, Secret) else self.value
        return {self.option: value, "skip_signature": False}


class GcsBearerCredential(SecretCredentials):
    """An OAuth token, with an optional expiration time."""

    __slots__ = ()
    provider = "gcs"
    field = "token"

    def __init__(self, bearer: str | Secret, *, expires_after: datetime | None = None) -> None:
        super().__init__(bearer, expires_after=expires_after)


type AnyGcsStaticCredential = GcsServiceAccount | GcsBearerCredential
type AnyGcsCredential = AnyGcsStaticCredential | Anonymous | FromEnv | Refreshable


def _read_gcs(returned: Any) -> GcsBearerCredential:
    if isinstance(returned, GcsBearerCredential):
        return returned
    return GcsBearerCredential(returned.bearer, expires_after=returned.expires_after)


_GCS: CredentialKind[AnyGcsStaticCredential] = CredentialKind(
    "gcs",
    {
        "service_account_file": partial(GcsServiceAccount, "service_account"),
        "service_account_key": lambda key: GcsServiceAccount("service_account_key", secret(key)),
        "application_credentials": partial(GcsServiceAccount, "application_credentials"),
        "bearer_token": GcsBearerCredential,
    },
    _read_gcs,
)
gcs_anonymous_credentials = _GCS.anonymous
gcs_from_env_credentials = _GCS.from_env
gcs_refreshable_credentials = _GCS.refreshable


def gcs_static_credentials(
    *,
    service_account_file: str | None = None,
    service_account_key: str | None = None,
    application_credentials: str | None = None,
    bearer_token: str | None = None,
) -> AnyGcsStaticCredential:
    """Return credentials that do not change. Raises ``InvalidInputError`` unless one is given."""
    return _GCS.static(
        "gcs_static_credentials",
        service_account_file=service_account_file,
        service_account_key=service_account_key,
        application_credentials=application_credentials,
        bearer_token=bearer_token,
    )


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
    """Return credentials of the kind that the arguments select; without any, the environment's.

    ``service_account_file`` and ``application_credentials`` are paths of files, on every machine.
    For the last four arguments and errors see `s3_credentials`.
    """
    how = from_env, anonymous, get_credentials, scatter_initial_credentials
    return _GCS.choose(
        how,
        service_account_file=service_account_file,
        service_account_key=service_account_key,
        application_credentials=application_credentials,
        bearer_token=bearer_token,
    )


# -- Azure Blob Storage ----------------------------------------------------------------------------


class _AccessKey(SecretCredentials):
    """The key of a storage account."""

    __slots__ = ()
    provider = "azure"
    field = "access_key"


class _SasToken(SecretCredentials):
    """A shared access signature, without its question mark."""

    __slots__ = ()
    provider = "azure"
    field = "sas_token"

    def __init__(self, value: str | Secret, *, expires_after: datetime | None = None) -> None:
        text = secret(value).reveal().removeprefix("?")
        super().__init__(text, expires_after=expires_after)


class _BearerToken(SecretCredentials):
    """An OAuth token."""

    __slots__ = ()
    provider = "azure"
    field = "token"


class AzureRefreshableCredential:
    """What a refreshing function returns, under icechunk's names."""

    AccessKey = _AccessKey
    SasToken = _SasToken
    BearerToken = _BearerToken


type AnyAzureStaticCredential = _AccessKey | _SasToken | _BearerToken
type AnyAzureCredential = AnyAzureStaticCredential | Anonymous | FromEnv | Refreshable


def _read_azure(returned: Any) -> AnyAzureStaticCredential:
    if isinstance(returned, _AccessKey | _SasToken | _BearerToken):
        return returned
    raise TypeError(type(returned).__name__)


_AZURE: CredentialKind[AnyAzureStaticCredential] = CredentialKind(
    "azure",
    {"access_key": _AccessKey, "sas_token": _SasToken, "bearer_token": _BearerToken},
    _read_azure,
)
azure_anonymous_credentials = _AZURE.anonymous
azure_from_env_credentials = _AZURE.from_env
azure_refreshable_credentials = _AZURE.refreshable


def azure_static_credentials(
    *,
    access_key: str | None = None,
    sas_token: str | None = None,
    bearer_token: str | None = None,
) -> AnyAzureStaticCredential:
    """Return credentials that do not change. Raises ``InvalidInputError`` unless one is given."""
    name = "azure_static_credentials"
    return _AZURE.static(
        name, access_key=access_key, sas_token=sas_token, bearer_token=bearer_token
    )


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
    """Return credentials of the kind that the arguments select; without any, the environment's.

    For the last four arguments and errors see `s3_credentials`.
    """
    how = from_env, anonymous, get_credentials, scatter_initial_credentials
    return _AZURE.choose(how, access_key=access_key, sas_token=sas_token, bearer_token=bearer_token)


_WHILE = timedelta(minutes=10)
_ENOUGH = (
    "AWS_ACCESS_KEY_ID",
    "AWS_WEB_IDENTITY_TOKEN_FILE",
    "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
    "AWS_CONTAINER_CREDENTIALS_FULL_URI",
    "AWS_SKIP_SIGNATURE",
)


# what only boto3 turns into keys: roles, single sign-on, programs, tokens of other issuers
_FOR_BOTO3 = (
    "role_arn",
    "sso_session",
    "sso_start_url",
    "credential_process",
    "web_identity_token_file",
    "login_session",
)


def choose(profile: str) -> None:
    """Let this process, and those that it starts, use a profile, whatever the environment says.

    Raises:
        InvalidInputError: There is no such profile.
    """
    before = os.environ.get("AWS_PROFILE")
    os.environ["AWS_PROFILE"] = profile
    if not any(section_of(*place) for place in profile_places()):
        if before is None:
            del os.environ["AWS_PROFILE"]
        else:
            os.environ["AWS_PROFILE"] = before
        raise InvalidInputError(
            "there is no such AWS profile",
            do="Name one that `aws configure list-profiles` shows.",
            profile=profile,
        )
    for name in (*_ENOUGH, "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"):
        os.environ.pop(name, None)


def from_profile() -> S3StaticCredentials | None:
    """Return the keys of the profile in use; None where the environment has some, or nothing has.

    Raises:
        InvalidInputError: The profile needs boto3, which is not installed.
        StorageError: boto3 gets no keys by the profile.
    """
    if any(name in os.environ for name in _ENOUGH):
        return None
    places = profile_places()
    sections = [section_of(*place) for place in places]
    needed = [name for name in _FOR_BOTO3 if any(name in found for found in sections)]
    if needed and find_spec("botocore") is not None:
        return _by_boto3(places)
    for found in sections:
        key, hidden = found.get("aws_access_key_id"), found.get("aws_secret_access_key")
        if key and hidden:
            return S3StaticCredentials(key, hidden, found.get("aws_session_token"))
    if needed:
        raise InvalidInputError(
            "an AWS profile gets its keys in a way that needs boto3",
            do="Run `pip install boto3` here and on every executor, or pass credentials.",
            profile=profile_in_use(),
            because=needed[0],
        )
    return None


def _by_boto3(places: tuple[tuple[str, str], ...]) -> S3StaticCredentials | None:
    """Return the present keys of boto3's chain of providers. Its messages are not repeated."""
    failure = ""
    try:
        found = _chain(places)
        keys = None if found is None else found.get_frozen_credentials()
    except Exception as error:  # noqa: BLE001 - of any provider, and of programs that it runs
        failure = type(error).__name__
    if failure:
        raise StorageError(
            "boto3 gets no keys by an AWS profile",
            do="Run `aws sts get-caller-identity` to see why; after single sign-on ended, run"
            " `aws sso login`.",
            profile=profile_in_use(),
            error=failure,
        )
    return (
        None if keys is None else S3StaticCredentials(keys.access_key, keys.secret_key, keys.token)
    )


@cache
def _chain(_places: tuple[tuple[str, str], ...]) -> Any:
    """Return boto3's credentials: they renew themselves, so one login is enough."""
    from botocore.session import Session

    return Session().get_credentials()


os.register_at_fork(after_in_child=_chain.cache_clear)


def _renew() -> S3StaticCredentials:
    """Return the keys of the profile, read again after a while, because tools renew them."""
    found = from_profile()
    if found is None:
        raise LookupError("the profile no longer has keys")
    return replace(found, expires_after=datetime.now(UTC) + _WHILE)


PROFILE = s3_refreshable_credentials(_renew)
"""The keys that the profile holds at the time of use."""
