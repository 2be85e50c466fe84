"""Access keys and region of ``~/.aws``, where the environment has none.

obstore reads the environment and asks the cloud's own machines, but not these files. Only keys
written out in them are used; single sign-on and roles need `s3_refreshable_credentials`.
"""

from __future__ import annotations

import os
from configparser import ConfigParser, Error
from datetime import UTC, datetime, timedelta
from pathlib import Path

from icevirt.connect.credentials.object_stores import (
    S3StaticCredentials,
    s3_refreshable_credentials,
)

_WHILE = timedelta(minutes=10)
_ENOUGH = (
    "AWS_ACCESS_KEY_ID",
    "AWS_WEB_IDENTITY_TOKEN_FILE",
    "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
    "AWS_CONTAINER_CREDENTIALS_FULL_URI",
    "AWS_SKIP_SIGNATURE",
)


def from_profile() -> S3StaticCredentials | None:
    """Return the keys of the profile in use; None where the environment or nobody has any."""
    if any(name in os.environ for name in _ENOUGH):
        return None
    for variable, file, section in _places():
        found = _section(variable, file, section)
        key, hidden = found.get("aws_access_key_id"), found.get("aws_secret_access_key")
        if key and hidden:
            return S3StaticCredentials(key, hidden, found.get("aws_session_token"))
    return None


def _renewed() -> S3StaticCredentials:
    """Return the keys of the profile, to be looked at again after a while: tools renew them."""
    found = from_profile()
    if found is None:
        raise LookupError("the profile has no keys any more")
    return S3StaticCredentials(
        found.access_key_id,
        found.secret_access_key,
        found.session_token,
        datetime.now(UTC) + _WHILE,
    )


PROFILE = s3_refreshable_credentials(_renewed)
"""Whatever keys the profile holds at the time."""


def profile_region() -> str | None:
    """Return the region of the profile in use, if it has one."""
    found = (_section(*place).get("region") for place in _places())
    return next((region for region in found if region), None)


def _places() -> tuple[tuple[str, str, str], ...]:
    profile = os.environ.get("AWS_PROFILE") or "default"
    named = profile if profile == "default" else f"profile {profile}"
    return (
        ("AWS_SHARED_CREDENTIALS_FILE", "~/.aws/credentials", profile),
        ("AWS_CONFIG_FILE", "~/.aws/config", named),
    )


def _section(variable: str, file: str, section: str) -> dict[str, str]:
    parser = ConfigParser(interpolation=None)
    try:
        parser.read(Path(os.environ.get(variable) or file).expanduser(), encoding="utf-8")
    except (Error, OSError, RuntimeError, UnicodeDecodeError):
        return {}
    return dict(parser[section]) if parser.has_section(section) or section == "DEFAULT" else {}
