"""Connect to servers of the public internet, and to nothing else.

`authorize_virtual_chunk_access="public"` lets a repository choose servers. So a name is looked up
once, every address that it has is compared with the registries of special addresses, and the
connection goes to the very address that was compared. What a name looks like decides nothing: the
same number can be spelled in many ways, and a name can lead anywhere.
"""

from __future__ import annotations

import socket
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address, ip_network

from icevirt.errors import UnauthorizedError

# IANA's registries of special-purpose addresses, as of 2025, where they are not reached globally;
# one address of Azure, at which each of its machines finds a service of its own
_SPECIAL = tuple(
    ip_network(each)
    for each in (
        *("0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16"),
        *("172.16.0.0/12", "192.0.0.0/24", "192.0.2.0/24", "192.88.99.0/24", "192.168.0.0/16"),
        *("198.18.0.0/15", "198.51.100.0/24", "203.0.113.0/24", "224.0.0.0/3"),
        "168.63.129.16/32",
        *("2001::/23", "2001:db8::/32", "2002::/16", "3fff::/20"),
    )
)
_GLOBAL = IPv6Network("2000::/3")  # all that was ever given to anybody
_NAT64 = IPv6Network("64:ff9b::/96")  # an IPv4 address follows, which a gateway reaches

_resolve = socket.getaddrinfo
_dial = socket.create_connection


def is_public(address: str) -> bool:
    """Say whether an address is one of the public internet. Pure."""
    try:
        found = ip_address(address)  # without a zone: that of a link
    except ValueError:
        return False
    if isinstance(found, IPv6Address) and found.scope_id is None and found in _NAT64:
        found = IPv4Address(int(found) & 0xFFFFFFFF)
    if isinstance(found, IPv6Address) and (found.scope_id is not None or found not in _GLOBAL):
        return False
    return not any(found.version == each.version and found in each for each in _SPECIAL)


def connect(
    server: tuple[str, int], timeout: float, _source: tuple[str, int] | None = None
) -> socket.socket:
    """Connect to a server, as `socket.create_connection` does.

    Raises:
        UnauthorizedError: One of its addresses is none of the public internet.
        OSError: It has no address, or none answers.
    """
    host, port = server
    found = _resolve(host, port, type=socket.SOCK_STREAM)
    addresses = list(dict.fromkeys(str(each[4][0]) for each in found))
    if others := [each for each in addresses if not is_public(each)]:
        raise _refusal(host, others[0])
    failure: OSError | None = None
    for address in addresses:
        try:
            made = _dial((address, port), timeout)
        except OSError as error:
            failure = error
            continue
        if made.getsockname()[0] == address:  # this machine's own
            made.close()
            raise _refusal(host, address)
        return made
    raise failure or OSError(f"{host} has no address")


def _refusal(host: str, address: str) -> UnauthorizedError:
    return UnauthorizedError(
        "a server of virtual chunks is not on the public internet, which is all that 'public'"
        " authorizes",
        do="If you trust the repository to read from it, name its prefix in the place of 'public'.",
        host=host,
        address=address,
    )


def refuse_proxy(host: str) -> None:
    """Refuse to ask a server through a proxy, which looks the name up where nobody can compare.

    Raises:
        UnauthorizedError: Always.
    """
    raise UnauthorizedError(
        "a proxy of the environment stands before a server of virtual chunks, so its address"
        " cannot be looked at, as 'public' promises",
        do="Name the prefix in the place of 'public', or add the host to NO_PROXY.",
        host=host,
    )
