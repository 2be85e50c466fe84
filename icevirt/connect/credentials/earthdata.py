"""Temporary keys of buckets that an archive's endpoint gives to who has logged in.

NASA's archives give keys for an hour at ``https://HOST/s3credentials``; others copy the form of the
answer. Each process asks for its own, before the last ones expire. Nothing is stored.
"""

from __future__ import annotations

import json
import os
import urllib.error
import urllib.request
from dataclasses import dataclass
from datetime import datetime
from typing import IO, Any
from urllib.parse import urlsplit

from icevirt.connect.credentials.object_stores import S3StaticCredentials
from icevirt.errors import InvalidInputError, StorageError

TOKEN = "EARTHDATA_TOKEN"  # noqa: S105  # the name of a variable
_SECONDS = 30.0
_LONGEST = 1 << 16  # bytes of an answer; two kilobytes are usual
_HERE = ("127.0.0.1", "localhost")  # where a stand-in may lack a certificate


@dataclass(frozen=True, slots=True)
class TemporaryKeys:
    """Asks an endpoint for keys, with the token that the variable `EARTHDATA_TOKEN` holds."""

    endpoint: str

    def __post_init__(self) -> None:
        """Refuse an address at which a token could be seen. Raises `InvalidInputError`."""
        parts = urlsplit(self.endpoint)
        if parts.scheme != "https" and parts.hostname not in _HERE:
            raise InvalidInputError(
                "temporary keys are requested at https:// addresses only",
                do="Name the endpoint by its https:// address.",
                endpoint=self.endpoint,
            )

    def __call__(self) -> S3StaticCredentials:
        """Return keys, and when they expire.

        Raises:
            StorageError: There is no token, the endpoint refuses it, or answers something else.
        """
        token = os.environ.get(TOKEN)
        if not token:
            raise self._failure("no token", f"Set {TOKEN} on this machine and on executors.")
        request = urllib.request.Request(  # noqa: S310  # the scheme was checked
            self.endpoint, headers={"authorization": f"Bearer {token}"}
        )
        try:
            with _OPENER.open(request, timeout=_SECONDS) as answer:
                return _read(json.loads(answer.read(_LONGEST)))
        except urllib.error.HTTPError as error:
            do = f"Make a new token, set {TOKEN}, and accept the archive's terms with that user."
            raise self._failure(f"status {error.code}", do) from None
        except (OSError, ValueError, KeyError, TypeError) as error:
            do = "Open the endpoint in a browser: it has to answer with keys as JSON."
            raise self._failure(type(error).__name__, do) from None

    def _failure(self, cause: str, do: str) -> StorageError:
        what = "an archive gives no temporary keys for its bucket"
        return StorageError(what, do=do, endpoint=self.endpoint, cause=cause)


def _read(found: Any) -> S3StaticCredentials:
    names = "accessKeyId", "secretAccessKey", "sessionToken", "expiration"
    key, secret, session, end = (str(found[name]) for name in names)
    return S3StaticCredentials(key, secret, session, datetime.fromisoformat(end))


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """Follows no redirect: the token is for the endpoint alone."""

    def redirect_request(
        self, req: urllib.request.Request, fp: IO[bytes], code: int, *_: Any
    ) -> None:
        """Refuse it."""
        raise urllib.error.HTTPError(req.full_url, code, "redirect", req.headers, fp)  # type: ignore[arg-type]


_OPENER = urllib.request.build_opener(_NoRedirect)
