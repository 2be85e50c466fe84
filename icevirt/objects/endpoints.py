"""Where the requests for a container really go, and whether its prefix alone says so. Pure.

A container is written by whoever wrote the repository, and its options can name any server as the
endpoint of a bucket. Requests carry credentials, so whoever authorises has to name that server too.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from icevirt.model.config import VirtualChunkContainer

_OPTIONS = {
    "s3": ("endpoint_url",),
    "s3_compatible": ("endpoint_url",),
    "tigris": ("endpoint_url",),
    "gcs": ("google_base_url", "base_url", "gcs_base_url", "endpoint"),
    "azure": ("azure_storage_endpoint", "azure_endpoint", "endpoint"),
}
# the same buckets under another name: regional endpoints of Amazon itself
_AMAZON = re.compile(
    r"https://s3(-fips)?([.-](dualstack\.)?[a-z]{2}(-[a-z]+)+-\d)?\.amazonaws\.com(\.cn)?/?"
)


def endpoint_of(container: VirtualChunkContainer) -> str | None:
    """Return the server that has to be authorised beside the prefix; None where there is none.

    An Azure account counts as one: it is an option, and anybody can have one.
    """
    options = container.store.options
    if not isinstance(options, Mapping):
        return None
    for name in _OPTIONS.get(container.store.kind, ()):
        if (told := options.get(name)) is not None:
            return None if _AMAZON.fullmatch(str(told)) else plain(str(told))
    if "@" in container.url_prefix:  # of Azure, which names the account there
        return None
    if container.store.kind == "azure" and (account := _account(options)) is not None:
        return f"https://{account}.blob.core.windows.net"
    return None


type Prefix = str | tuple[str, str]
"""A url_prefix, or one with the endpoint that the container names."""


def entry_of(container: VirtualChunkContainer) -> Prefix:
    """Return what authorises a container."""
    endpoint = endpoint_of(container)
    return container.url_prefix if endpoint is None else (container.url_prefix, endpoint)


def plain(endpoint: str) -> str:
    """Return an endpoint as it is compared: without a slash at its end."""
    return endpoint.rstrip("/")


def _account(options: Mapping[str, object]) -> str | None:
    for name in ("account", "account_name", "azure_storage_account_name"):
        if (told := options.get(name)) is not None:
            return str(told)
    return None
