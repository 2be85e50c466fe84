"""Name credentials by a keyword, for command lines and files that must hold no secret.

A function is named as ``package.module:function``. Each process imports it when it first needs
credentials.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from icevirt.connect.credentials.common import Anonymous, Credentials, FromEnv, Refreshable
from icevirt.connect.credentials.earthdata import TemporaryKeys
from icevirt.connect.credentials.http import FromNetrc, http_refreshable_credentials
from icevirt.connect.credentials.object_stores import (
    azure_refreshable_credentials,
    gcs_refreshable_credentials,
    s3_refreshable_credentials,
)
from icevirt.connect.options import QUOTA_PROJECT
from icevirt.errors import InvalidInputError

_FUNCTION = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*(\.[A-Za-z_]\w*)*")
# without what could be a secret; other addresses are servers of a container
_ENDPOINT = re.compile(r"https?://[^/?#@\s]+/([^?#@\s]*/)?s3credentials")
_REFRESHABLE: dict[str, Callable[[Callable[[], Any]], Refreshable]] = {
    "s3": s3_refreshable_credentials,
    "gcs": gcs_refreshable_credentials,
    "azure": azure_refreshable_credentials,
    "http": http_refreshable_credentials,
}
REQUESTER_PAYS = "requester-pays"
"""Says that the reader of a bucket of S3 pays; with the credentials of the environment."""

HOW = (
    f"anonymous, environment, netrc, {REQUESTER_PAYS}, https://HOST/s3credentials (temporary keys"
    " of an archive), or a function as package.module:function"
)
"""What `credentials_named` takes."""


@dataclass(frozen=True, slots=True)
class NamedCredentials:
    """A function by its name; calling it imports its module."""

    name: str

    def __call__(self) -> Any:
        """Call the function."""
        return self.function()()

    def function(self) -> Callable[[], Any]:
        """Import the function.

        Raises:
            InvalidInputError: There is no such module here, or no such function in it.
        """
        module, _, path = self.name.partition(":")
        try:
            found: Any = importlib.import_module(module)
            for part in path.split("."):
                found = getattr(found, part)
        except (ImportError, AttributeError) as error:
            raise InvalidInputError(
                "the credentials function cannot be imported",
                do="Install its module on this machine and on every executor, or add its directory"
                " to PYTHONPATH there.",
                function=self.name,
                cause=type(error).__name__,
            ) from error
        if not callable(found):
            raise InvalidInputError(
                "the name given for credentials is not a function",
                do="Name a function without arguments that returns icevirt.s3_credentials(...), "
                "icevirt.http_credentials(...) or similar.",
                function=self.name,
            )
        made: Callable[[], Any] = found
        return made


def is_named(word: str) -> bool:
    """Say whether a text is one of the words for credentials."""
    known = ("anonymous", "environment", "netrc", REQUESTER_PAYS)
    return word in known or _is_endpoint(word) or bool(_FUNCTION.fullmatch(word))


def _is_endpoint(word: str) -> bool:
    return bool(_ENDPOINT.fullmatch(word))


def parse_credentials(word: str, provider: str) -> Credentials:
    """Return the credentials that a word stands for.

    Args:
        word: See `HOW`. A function takes no arguments and returns what icevirt's functions for the
            provider return, with an ``expires_after`` where they expire.
        provider: The kind of store: ``s3``, ``gcs``, ``azure`` or ``http``.

    Raises:
        InvalidInputError: It is another word, or the function cannot be imported here.
    """
    if word == "anonymous":
        return Anonymous(provider)
    if word == "environment":
        return FromEnv(provider)
    if word == REQUESTER_PAYS and provider == "s3":
        return FromEnv(provider, pays=True)
    if word == REQUESTER_PAYS and provider == "gcs":
        raise InvalidInputError(
            "on Google Cloud Storage a project pays, which the word does not say",
            do=f"Write environment in its place, and set {QUOTA_PROJECT}=PROJECT where icevirt"
            " runs, on workers too.",
            store=provider,
        )
    if word == "netrc" and provider == "http":
        return FromNetrc()
    if _is_endpoint(word) and provider == "s3":
        return s3_refreshable_credentials(TemporaryKeys(word))
    if provider in _REFRESHABLE and _FUNCTION.fullmatch(word):
        named = NamedCredentials(word)
        named.function()
        return _REFRESHABLE[provider](named)
    what = (
        "netrc files work for web servers only"
        if word == "netrc"
        else "not a way to get credentials"
    )
    # another word may be a token, typed by mistake: do not repeat it
    raise InvalidInputError(what, do=f"Use one of: {HOW}.", store=provider)
