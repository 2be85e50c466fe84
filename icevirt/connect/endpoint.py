"""Parse the server of a URL so strictly that no two libraries can read it differently.

Requests carry credentials, and libraries disagree about the text before the first slash of an odd
URL. Only URLs that all libraries send to the same host and port are accepted.
"""

from __future__ import annotations

import ipaddress
import re

from icevirt.errors import InvalidInputError

_LABEL = r"[A-Za-z0-9_](?:[A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?"
_ENDPOINT = re.compile(
    rf"(?P<scheme>https?)://(?P<host>{_LABEL}(?:\.{_LABEL})*|\[[0-9A-Fa-f:.]+\])"
    r"(?::(?P<port>[0-9]{1,5}))?(?P<path>(?:/[A-Za-z0-9._~-]+)*)/*",
    re.ASCII | re.IGNORECASE,
)
_PORTS = {"http": 80, "https": 443}
HOST_AND_PORT = re.compile(
    rf"(?:{_LABEL}(?:\.{_LABEL})*|\[[0-9A-Fa-f:.]+\])(?::[0-9]{{1,5}})?", re.ASCII
)
"""A host, with or without a port."""


def endpoint(text: object) -> str:
    """Return the URL of a server in one spelling: lower case, no default port, no last slash.

    Raises:
        InvalidInputError: It is not a plain ``http`` or ``https`` URL: it has a user name, a query,
            characters that are escaped or not ASCII, a port that is none, or a ``..`` in its path.
    """
    found = _ENDPOINT.fullmatch(text) if isinstance(text, str) else None
    if found is None or not _is_host(found["host"]) or not _is_path(found["path"]):
        raise _refused()
    scheme, host = found["scheme"].lower(), found["host"].lower()
    port = int(found["port"] or _PORTS[scheme])
    if not 0 < port < 1 << 16:
        raise _refused()
    shown = "" if port == _PORTS[scheme] else f":{port}"
    return f"{scheme}://{host}{shown}{found['path']}"


def plain(text: str) -> str:
    """Return an endpoint in the spelling in which endpoints are compared.

    What is no endpoint stays as it is: it equals none.
    """
    try:
        return endpoint(text)
    except InvalidInputError:
        return text.rstrip("/")


def _is_host(host: str) -> bool:
    if not host.startswith("["):
        return len(host) <= 253
    try:
        ipaddress.IPv6Address(host[1:-1])
    except ValueError:
        return False
    return True


def _is_path(path: str) -> bool:
    return not any(part in (".", "..") for part in path.split("/"))


def _refused() -> InvalidInputError:
    return InvalidInputError(
        "this is not the URL of a server",
        do="Write it like https://host or https://host:9000, without user name or query.",
    )
