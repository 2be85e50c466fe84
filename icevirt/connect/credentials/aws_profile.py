"""Read access keys and region from ``~/.aws``, if the environment has none.

obstore reads the environment and queries the cloud's instance metadata, but not these files. Only
keys written out in them are used; single sign-on and roles need `s3_refreshable_credentials`.
"""

from __future__ import annotations

import os
from configparser import ConfigParser, Error
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import cache
from importlib.util import find_spec
from typing import Any

from icevirt.connect.credentials.object_stores import (
    S3StaticCredentials,
    s3_refreshable_credentials,
)
from icevirt.errors import InvalidInputError, StorageError

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
    if not any(_section(*place) for place in _places()):
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
    places = _places()
    sections = [_section(*place) for place in places]
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
            profile=_profile(),
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
            profile=_profile(),
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


def _renewed() -> S3StaticCredentials:
    """Return the keys of the profile, read again after a while, because tools renew them."""
    found = from_profile()
    if found is None:
        raise LookupError("the profile no longer has keys")
    return replace(found, expires_after=datetime.now(UTC) + _WHILE)


PROFILE = s3_refreshable_credentials(_renewed)
"""The keys that the profile holds at the time of use."""


def profile_region() -> str | None:
    """Return the region of the profile in use, if it has one."""
    found = (_section(*place).get("region") for place in _places())
    return next((region for region in found if region), None)


def _profile() -> str:
    return os.environ.get("AWS_PROFILE") or "default"


def _places() -> tuple[tuple[str, str], ...]:
    """Return the files and sections of the profile in use."""
    profile = _profile()
    named = profile if profile == "default" else f"profile {profile}"
    return (
        (_file("AWS_SHARED_CREDENTIALS_FILE", "~/.aws/credentials"), profile),
        (_file("AWS_CONFIG_FILE", "~/.aws/config"), named),
    )


def _file(variable: str, usual: str) -> str:
    return os.path.expanduser(os.environ.get(variable) or usual)


def _section(path: str, section: str) -> dict[str, str]:
    parser = ConfigParser(interpolation=None)
    try:
        parser.read(path, encoding="utf-8")
    except (Error, OSError, UnicodeDecodeError):
        return {}
    return dict(parser[section]) if parser.has_section(section) or section == "DEFAULT" else {}
