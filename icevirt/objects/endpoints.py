"""Describe what authorizes a container: its prefix, and the server it names. Pure.

The author of a repository writes its containers, and a container's options can name any server as
the endpoint of a bucket. Requests carry credentials, so the user who authorizes a container has to
name that server too.
"""

from __future__ import annotations

from icevirt.connect.container import endpoint_of, without_server
from icevirt.connect.options import azure_endpoint_of_environment
from icevirt.connect.stores import bucket_of
from icevirt.connect.urls import plain
from icevirt.errors import InvalidInputError
from icevirt.model.config.document import VirtualChunkContainer

type Prefix = str | tuple[str, str]
"""A url_prefix, or one with the endpoint that the container names."""


def entry_of(container: VirtualChunkContainer) -> Prefix:
    """Return what authorises a container; its prefix where its options are not valid."""
    endpoint = endpoint_if_valid(container)
    return container.url_prefix if endpoint is None else (container.url_prefix, endpoint)


def endpoint_if_valid(container: VirtualChunkContainer) -> str | None:
    """Return the server that has to be authorised; None too where the options are not valid.

    For what only shows a container. Whatever reads it asks `endpoint_of`.
    """
    try:
        return endpoint_of(container)
    except InvalidInputError:
        return None


def allowed_endpoints(
    container: VirtualChunkContainer, authorized: frozenset[str]
) -> frozenset[str]:
    """Return where a container's requests may go: the server that it names, if authorised.

    The server that prefix and environment of the reader lead to by themselves is always allowed.

    Raises:
        InvalidInputError: The container's options are not valid.
    """
    named = endpoint_of(container)
    found = {named} & authorized
    try:
        found.add(bucket_of(container.url_prefix, without_server(container)).endpoint)
    except InvalidInputError:  # of Azure, whose account is not known then
        if (said := azure_endpoint_of_environment()) is not None:
            found.add(plain(said))
    return frozenset(each for each in found if each is not None)
