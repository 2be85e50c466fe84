"""Refuse to begin work that would read below prefixes which the caller did not authorize."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from icevirt.connect.container import endpoint_of
from icevirt.errors import UnauthorizedError
from icevirt.model.config.containers import VirtualChunkContainer
from icevirt.model.snapshot import ArrayNode
from icevirt.objects.authorize import Authorizer, GrantedAccess, authorizing_fix, find_covering
from icevirt.repo.session import Session

_LOOKED_AT = 2  # manifests of an array


def find_unauthorized(
    containers: Iterable[VirtualChunkContainer], access: Mapping[str, GrantedAccess]
) -> list[VirtualChunkContainer]:
    """Return the containers that were not authorized, or not with their endpoint.

    Raises:
        InvalidInputError: The options of a container are not valid.
    """

    def is_authorized(container: VirtualChunkContainer) -> bool:
        (_, found), endpoint = find_covering(container, access), endpoint_of(container)
        return found is not None and (endpoint is None or endpoint in found.endpoints)

    return [each for each in containers if not is_authorized(each)]


def refuse_unreadable(
    session: Session, node: ArrayNode, access: Mapping[str, GrantedAccess]
) -> None:
    """Check that files of an array may be read, by some of its references, before work begins.

    Raises:
        UnauthorizedError: One may not.
    """
    containers = session.config.virtual_chunk_containers
    if not find_unauthorized(containers.values(), access):
        return
    authorizer = Authorizer(containers, access)
    for ref in node.manifests[:_LOOKED_AT]:
        table = session.assets.read_manifest(ref.object_id).arrays.get(node.id)
        if table is not None and len(table.locations):
            urls = table.locations.url
            authorizer.grant(urls[0])
            authorizer.grant(urls[len(urls) - 1])


def refuse_unauthorized(
    needed: Iterable[VirtualChunkContainer], access: Mapping[str, GrantedAccess], *, what: str
) -> None:
    """Check that all containers that are to be read were authorized.

    Args:
        needed: The containers.
        access: What the caller authorized, by prefix.
        what: The work, the subject of the message.

    Raises:
        UnauthorizedError: One was not.
    """
    needed = list(needed)
    if missing := [each.url_prefix for each in find_unauthorized(needed, access)]:
        which = "a prefix that is" if len(missing) == 1 else "prefixes that are"
        raise UnauthorizedError(
            f"{what} needs to read files below {which} not authorized",
            fixes=[authorizing_fix(needed)],
            containers=missing,
        )
