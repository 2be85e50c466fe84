"""Decide which locations may be read: the covering container, and its authorization.

No location outside an authorized prefix is ever granted: not by ``..``, percent-encoding, another
scheme or host. Symbolic links are caught when a file is opened (`icevirt.objects.descriptors`),
redirects when they arrive (`icevirt.objects.http.client`). Pure: this module opens nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from icevirt.connect import urls
from icevirt.connect.container import endpoint_of
from icevirt.errors import InvalidInputError, UnauthorizedError
from icevirt.model.config.document import VirtualChunkContainer
from icevirt.objects.endpoints import endpoint_if_valid
from icevirt.objects.locations import object_key

_NAMED = "vcc://"


@dataclass(frozen=True, slots=True)
class GrantedAccess:
    """What was authorised for a prefix: credentials, and the endpoints they may be sent to."""

    credentials: Any = field(default=None, repr=False)
    endpoints: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class LocalGrant:
    """The permission to read one file, and the directory it has to lie in."""

    url: str  # the location with its container's name resolved
    path: str  # of the file
    root: str  # the container's directory


@dataclass(frozen=True, slots=True)
class RemoteGrant:
    """The permission to read one object, by way of its container."""

    url: str  # the location with its container's name resolved
    key: str  # decoded; below the bucket or host, or what its file system calls it
    container: VirtualChunkContainer
    credentials: Any = field(default=None, repr=False)
    endpoints: frozenset[str] = frozenset()  # that were authorized with the prefix
    # what was made of the three, shared by all grants of the container; see
    # `icevirt.objects.backends`
    made: dict[str, Any] = field(default_factory=dict, repr=False, compare=False)


type Grant = LocalGrant | RemoteGrant


def normalized(prefix: str) -> str:
    """Return a prefix as containers spell it, with a trailing slash."""
    return prefix if prefix.endswith("/") else prefix + "/"


class Authorizer:
    """Decides about locations, for one session.

    Args:
        containers: The virtual chunk containers of the repository, by url_prefix.
        authorized: What the session was opened with: prefix to access. A prefix counts when it
            equals the url_prefix of a container; one that covers it does not.
    """

    def __init__(
        self,
        containers: Mapping[str, VirtualChunkContainer],
        authorized: Mapping[str, GrantedAccess] | Iterable[str],
    ) -> None:
        by_length = sorted(containers.values(), key=lambda cont: -len(cont.url_prefix))
        self._containers = tuple(by_length)
        self._named = {cont.name: cont for cont in by_length if cont.name is not None}
        given = authorized if isinstance(authorized, Mapping) else dict.fromkeys(authorized)
        self._authorized = {normalized(p): access or GrantedAccess() for p, access in given.items()}
        self._endpoints: dict[str, str | None] = {}  # of containers that were read, by prefix
        self._made: dict[str, dict[str, Any]] = {}  # for their grants, likewise

    def grant(self, location: str) -> Grant:
        """Grant the reading of ``location``.

        Raises:
            InvalidInputError: No container covers it, it is no address of an object, or the
                options of its container are not valid.
            UnauthorizedError: Its container was not authorised, or not with its endpoint.
        """
        container, url = self._container_of(location)
        access = self._authorized.get(container.url_prefix)
        if access is None:
            raise _not_authorized(container, url)
        endpoint = self._endpoint_of(container)
        if endpoint is not None and endpoint not in access.endpoints:
            raise _elsewhere(container, url, endpoint)
        if container.store.kind == "local_file_system":
            root = urls.local_path(container.url_prefix)
            return LocalGrant(url, urls.local_path(url), root)
        key = object_key(url, has_bucket=not container.is_foreign)
        made = self._made.setdefault(container.url_prefix, {})
        return RemoteGrant(url, key, container, access.credentials, access.endpoints, made)

    def absolute(self, location: str) -> str:
        """Return the URL of a location, authorised or not; one of no container stays as it is."""
        if not location.startswith(_NAMED):
            return location
        name, _, rest = location.removeprefix(_NAMED).partition("/")
        found = self._named.get(name)
        return location if found is None else found.url_prefix + rest

    def grants(self, locations: Iterable[str]) -> dict[str, Grant]:
        """Grant every distinct location, each decided once. Raises as `grant` does."""
        return {location: self.grant(location) for location in dict.fromkeys(locations)}

    def _endpoint_of(self, container: VirtualChunkContainer) -> str | None:
        """Return what `endpoint_of` does; the options of a container are read once."""
        prefix = container.url_prefix
        if prefix not in self._endpoints:
            self._endpoints[prefix] = endpoint_of(container)
        return self._endpoints[prefix]

    def _container_of(self, location: str) -> tuple[VirtualChunkContainer, str]:
        """Find the container, and the absolute URL where ``vcc://name/...`` was given."""
        if location.startswith(_NAMED):
            name, _, rest = location.removeprefix(_NAMED).partition("/")
            if (container := self._named.get(name)) is None:
                raise _no_container(location, f"Add a container of the name {name!r}")
            return container, container.url_prefix + rest
        for container in self._containers:
            if location.startswith(container.url_prefix):
                return container, location
        raise _no_container(location, "Add one whose url_prefix is a prefix of the location")


def _no_container(location: str, hint: str) -> InvalidInputError:
    return InvalidInputError(
        "no virtual chunk container of this repository covers the location of a virtual chunk",
        do=f"{hint}, with `repo.config.set_virtual_chunk_container(...)` and `repo.save_config()`.",
        location=location,
    )


def _not_authorized(container: VirtualChunkContainer, url: str) -> UnauthorizedError:
    return UnauthorizedError(
        "a virtual chunk lies in a container that this session is not authorized to read",
        do="If you trust the repository, open it with"
        f" authorize_virtual_chunk_access=[{entry_text(container)}]",
        location=url,
        container=container.name or container.url_prefix,
    )


def _elsewhere(container: VirtualChunkContainer, url: str, endpoint: str) -> UnauthorizedError:
    return UnauthorizedError(
        "the repository names the server of a container, which was not authorized with the prefix",
        do="If you trust that server with these credentials, name both:"
        f" authorize_virtual_chunk_access=[{entry_text(container)}], or as the key of a mapping to"
        " credentials.",
        location=url,
        container=container.name or container.url_prefix,
        endpoint=endpoint,
    )


def entry_text(container: VirtualChunkContainer) -> str:
    """Return the Python of what authorises a container, so that it can be pasted."""
    endpoint = endpoint_if_valid(container)
    prefix = _quoted(container.url_prefix)
    return prefix if endpoint is None else f"({prefix}, {_quoted(endpoint)})"


def _quoted(text: str) -> str:
    """Return a Python literal in double quotes, so that it can be pasted."""
    return '"' + repr(text)[1:-1].replace('"', '\\"') + '"'
