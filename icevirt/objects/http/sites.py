"""Build the directory of a web server from options and credentials."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from icevirt.connect.container import canonical_store
from icevirt.connect.credentials.common import Anonymous, FromEnv, NoCredentials, Refreshable
from icevirt.connect.credentials.http import FromNetrc, HttpCredentials
from icevirt.errors import InvalidInputError
from icevirt.model.config.document import ObjectStoreConfig
from icevirt.objects.http.client import Site, site_of


def site_for(prefix: str, store: ObjectStoreConfig | None, credentials: Any) -> Site:
    """Return what lies below a prefix of a web server.

    Args:
        prefix: The URL; credentials are sent to nothing else.
        store: Options ``redirect_hosts`` and ``headers`` of it count.
        credentials: Of `http_credentials`, or None.

    Raises:
        InvalidInputError: The credentials are for another kind of store, there are none in the
            netrc file, or an option is not one that a container may have.
    """
    options: Mapping[str, Any] = {} if store is None else canonical_store(store, prefix).options
    headers: dict[str, str] = dict(options.get("headers") or {})
    renewable = None
    match credentials:
        case HttpCredentials():
            headers |= credentials.sent()
        case FromNetrc():
            headers |= credentials.of_host(urlsplit(prefix).hostname or "").sent()
        case Refreshable(provider="http"):
            renewable = credentials
        case None | NoCredentials("http") | Anonymous("http") | FromEnv("http"):
            pass
        case _:
            raise InvalidInputError(
                "these credentials are for another kind of store",
                do="Pass icevirt.http_credentials(...), icevirt.HttpAccess or None.",
                container=prefix,
                found=type(credentials).__name__,
            )
    hosts = str(options.get("redirect_hosts") or "").split(",")
    return site_of(
        prefix,
        redirect_hosts=frozenset(host.strip() for host in hosts if host.strip()),
        headers=headers,
        renewable=renewable,
    )
