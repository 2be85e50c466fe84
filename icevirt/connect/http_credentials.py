"""Credentials for HTTP servers: headers that go with every request."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from icevirt.connect.credentials import one_of
from icevirt.connect.secret import Secret, secret


@dataclass(frozen=True, slots=True, init=False)
class HttpCredentials:
    """Headers sent to one server."""

    headers: tuple[tuple[str, Secret], ...]

    def __init__(self, headers: Mapping[str, str | Secret]) -> None:
        pairs = tuple(sorted((name.lower(), secret(value)) for name, value in headers.items()))
        object.__setattr__(self, "headers", pairs)

    @property
    def provider(self) -> str:
        """``http``."""
        return "http"

    def arguments(self) -> dict[str, Any]:
        """Return the headers as client options."""
        return {"default_headers": {name: value.reveal() for name, value in self.headers}}


def http_credentials(
    *, headers: Mapping[str, str] | None = None, bearer_token: str | None = None
) -> HttpCredentials:
    """Return credentials for an ``http(s)://`` container or storage.

    Raises:
        InvalidInputError: Both were given.
    """
    one_of("http_credentials", headers=headers is not None, bearer_token=bearer_token is not None)
    if bearer_token is not None:
        return HttpCredentials({"authorization": f"Bearer {bearer_token}"})
    return HttpCredentials(headers or {})
