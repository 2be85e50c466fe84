"""Ask for the authorization that reading will need, before work begins."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from heapq import nlargest
from math import prod

from icevirt.model.snapshot import ArrayNode
from icevirt.objects.authorize import Authorizer, GrantedAccess
from icevirt.repo.authorization import find_unauthorized
from icevirt.repo.session import Session

_LOOKED_AT = 3  # arrays of a group, and manifests of an array


def refuse_unreadable(
    session: Session, nodes: Iterable[ArrayNode], access: Mapping[str, GrantedAccess]
) -> None:
    """Check that files of arrays may be read, by some of their references, before work begins.

    Args:
        session: Whose version it is.
        nodes: The arrays. The largest are looked at: a small one is a stored coordinate.
        access: What was authorized, by prefix.

    Raises:
        UnauthorizedError: One may not.
    """
    containers = session.config.virtual_chunk_containers
    if not find_unauthorized(containers.values(), access):
        return
    authorizer = Authorizer(containers, access)
    for node in nlargest(_LOOKED_AT, nodes, key=lambda each: prod(each.shape)):
        for ref in node.manifests[:_LOOKED_AT]:
            found = session.assets.manifest(ref.object_id).get(node.id)  # kept for the first value
            if found is not None and len(places := found.table.locations):
                authorizer.grant(places.url[0])
                authorizer.grant(places.url[len(places) - 1])
