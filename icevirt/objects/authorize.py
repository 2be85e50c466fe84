"""Decide which locations may be read: the covering container, and its authorization.

No location outside an authorized prefix is ever granted: not by ``..``, percent-encoding, another
scheme or host. Symbolic links are caught when a file is opened (`icevirt.objects.fetch`), redirects
when they arrive (`icevirt.objects.web_client`). Pure: this module opens nothing.

The author of a repository writes its locations and containers. A location that icevirt and a server
or library could read in two ways is refused: dots, backslashes, encoded slashes, user names,
queries. A container's options can name any server as the endpoint of a bucket, and requests carry
credentials, so the user who authorizes a container has to name that server too.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote, urlsplit

from icevirt.connect import urls
from icevirt.connect.container import endpoint_of, without_server
from icevirt.connect.credentials.common import PublicAccess, is_web_without
from icevirt.connect.options import azure_endpoint_of_environment
from icevirt.connect.stores import bucket_of
from icevirt.connect.urls import plain
from icevirt.errors import (
    Fix,
    InvalidInputError,
    LocationError,
    NoContainerError,
    UnauthorizedError,
)
from icevirt.model.config.containers import VirtualChunkContainer
from icevirt.remedy_notation import write_code, write_remedy

_NAMED = "vcc://"
_HTTP = ("http", "https")
_RENAME = "Rename the object: readers disagree about which object such a URL names."
_DO = "Refer to the object by its plain percent-encoded URL."
_WITH_QUERY = re.compile(r"https?://[!-~]*\?[!-\"$-\[\]-~]*")
_DO_WITHOUT = (
    "If the archive is public, authorize its prefix without credentials. Otherwise write the"
    " reference again, to a URL without a query: `icevirt relocate`, or `set_virtual_refs_arr`."
)
_DO_APART = write_remedy(
    "Name it without user, password and query: references are stored and"
    " published. Pass what opens it apart: ",
    write_code(
        'access={"https://host/": icevirt.http_credentials(...)} to a build,'
        " authorize_virtual_chunk_access to a reader",
        "--access https://host/=HOW to a build, --authorize https://host/=HOW to a reader",
    ),
    ". For a presigned URL or"
    " SAS token, name the object as s3://, gs:// or az:// and pass the"
    " credentials of its bucket.",
)


@dataclass(frozen=True, slots=True)
class GrantedAccess:
    """What was authorized for a prefix: credentials, and the endpoints they may be sent to."""

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
    query: str = field(default="", repr=False)  # behind the key, of a public file on a web server


PUBLIC = "*public*/"
"""In the place of a prefix: what everybody can read on the public internet. No URL begins so."""

type Grant = LocalGrant | RemoteGrant
type Prefix = str | tuple[str, str]
"""A url_prefix, or one with the endpoint that the container names."""


def normalize_prefix(prefix: str) -> str:
    """Return a prefix as containers spell it, with a trailing slash."""
    return prefix if prefix.endswith("/") else prefix + "/"


def find_covering(
    container: VirtualChunkContainer, authorized: Mapping[str, GrantedAccess]
) -> tuple[str, GrantedAccess | None]:
    """Return the authorized prefix that covers a container, the longest one, with its access.

    A prefix covers what lies below it in the same bucket, host or directory. It must name one: the
    root of a scheme or of the machine covers nothing but a container of exactly that prefix. Nor
    does any prefix cover a container whose own could be read in two ways, or whose URLs another
    library reads. `PUBLIC` covers, without credentials, what no prefix does and lies on servers
    that speak https; whether they are of the public internet is decided when one is connected.

    Returns:
        The prefix and its access; the container's own prefix and None where nothing covers it.
    """
    url = container.url_prefix
    if url != PUBLIC and (access := authorized.get(url)) is not None:
        return url, access
    wide = []
    for each in authorized:
        scheme, _, rest = each.partition("://")
        names_a_place = bool(rest.strip("/") if scheme == "file" else rest.partition("/")[0])
        if url.startswith(each) and names_a_place:
            wide.append(each)
    if not wide or container.is_foreign or not _is_plain(url):
        return url, _public_access(container) if PUBLIC in authorized else None
    longest = max(wide, key=len)
    return longest, authorized[longest]


def _public_access(container: VirtualChunkContainer) -> GrantedAccess | None:
    url = container.url_prefix
    provider = urls.PROVIDERS.get(url.partition("://")[0])
    if provider is None or container.is_foreign or not _is_plain(url):
        return None
    try:
        server = endpoint_of(container)
    except InvalidInputError:
        return None
    at = url if provider == "http" else server
    if at is not None and not at.startswith("https://"):
        return None
    endpoints = frozenset[str]() if server is None else frozenset({server})
    return GrantedAccess(PublicAccess(provider), endpoints)


def _is_plain(url_prefix: str) -> bool:
    """Say whether a prefix means the same to everybody who reads it."""
    is_file = url_prefix.startswith("file:///")
    try:
        inside = f"{url_prefix.removeprefix('file:///')}_" if is_file else f"{url_prefix}_"
        object_key(f"file://{inside}" if is_file else inside, has_bucket=not is_file)
    except InvalidInputError:
        return False
    return True


class Authorizer:
    """Decides about locations, for one session.

    Args:
        containers: The virtual chunk containers of the repository, by url_prefix.
        authorized: What the session was opened with: prefix to access. A prefix counts for the
            containers that it covers; see `covering`.
    """

    def __init__(
        self,
        containers: Mapping[str, VirtualChunkContainer],
        authorized: Mapping[str, GrantedAccess] | Iterable[str],
    ) -> None:
        by_length = sorted(containers.values(), key=lambda cont: -len(cont.url_prefix))
        self._containers = by_length
        self._named = {cont.name: cont for cont in by_length if cont.name is not None}
        given = authorized if isinstance(authorized, Mapping) else dict.fromkeys(authorized)
        self._authorized = {
            normalize_prefix(p): access or GrantedAccess() for p, access in given.items()
        }
        # what was decided of a container, by prefix: what covers it, its server, what is made of it
        self._decided: dict[str, tuple[str, GrantedAccess | None, str | None, dict[str, Any]]] = {}

    def grant(self, location: str) -> Grant:
        """Grant the reading of ``location``.

        Raises:
            InvalidInputError: No container covers it, it is no address of an object, or the
                options of its container are not valid.
            UnauthorizedError: Its container was not authorized, or not with its endpoint.
        """
        container, url = self._container_of(location)
        own = container.url_prefix
        if own not in self._decided:
            prefix, access = find_covering(container, self._authorized)
            server = None if access is None else endpoint_of(container)
            self._decided[own] = prefix, access, server, {}
        prefix, access, server, made = self._decided[own]
        if access is None:
            raise UnauthorizedError(
                "a virtual chunk lies in a container that this session is not authorized to read",
                fixes=[authorizing_fix([container])],
                location=url,
                container=container.name or own,
            )
        if server is not None and server not in access.endpoints:
            raise UnauthorizedError(
                "the repository names the server of a container, which was not authorized with the"
                " prefix",
                do=write_remedy(
                    "If you trust that server with these credentials, name both: ",
                    write_code(
                        f"authorize_virtual_chunk_access=[{entry_text(container)}]",
                        "--authorize PREFIX",
                    ),
                    ", or as the key of a mapping to credentials.",
                ),
                location=url,
                container=container.name or own,
                endpoint=server,
            )
        if container.store.kind == "local_file_system":
            root = urls.local_path(prefix)  # symbolic links must not lead out of it
            return LocalGrant(url, urls.local_path(url), root)
        address, query = _public_query(url, access.credentials)
        key = object_key(address, has_bucket=not container.is_foreign)
        known = access.credentials, access.endpoints
        return RemoteGrant(url, key, container, *known, made=made, query=query)

    def container(self, location: str) -> VirtualChunkContainer:
        """Return the container of a location, authorized or not.

        Raises:
            InvalidInputError: No container covers it.
        """
        return self._container_of(location)[0]

    def absolute(self, location: str) -> str:
        """Return the URL of a location, authorized or not; one of no container stays as it is."""
        if not location.startswith(_NAMED):
            return location
        name, _, rest = location.removeprefix(_NAMED).partition("/")
        found = self._named.get(name)
        return location if found is None else found.url_prefix + rest

    def grants(self, locations: Iterable[str]) -> dict[str, Grant]:
        """Grant every distinct location, each decided once. Raises as `grant` does."""
        return {location: self.grant(location) for location in dict.fromkeys(locations)}

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


def _public_query(url: str, credentials: Any) -> tuple[str, str]:
    """Return the address and the query of a file on a web server that is read without credentials.

    Other clients store such locations, like ``?download=1`` of public archives. With credentials,
    a query of the repository's author could do what only the reader may.
    """
    address, query = part_query(url)
    if query and not is_web_without(credentials):
        raise _refusal("it has a query, and credentials would go with it", url, _DO_WITHOUT)
    return address, query


def part_query(url: str) -> tuple[str, str]:
    """Return the address and the query of a file on a web server; other URLs are not parted."""
    if not _WITH_QUERY.fullmatch(url):
        return url, ""
    address, mark, query = url.partition("?")
    return address, mark + query


def _no_container(location: str, hint: str) -> InvalidInputError:
    return NoContainerError(
        "no virtual chunk container of this repository covers the location of a virtual chunk",
        do=write_remedy(
            f"{hint}, with `repo.config.set_virtual_chunk_container(...)` and"
            " `repo.save_config()`. In a repository from before V1, authorize the"
            " prefix when you open it: ",
            write_code(
                f"authorize_virtual_chunk_access=[{_quote(posixpath.dirname(location) + '/')}]",
                "--authorize PREFIX",
            ),
            ".",
        ),
        location=location,
    )


def authorizing_fix(containers: Collection[VirtualChunkContainer]) -> Fix:
    """Return what to add to a call or a command so that it reads below these prefixes."""
    entries = map(entry_of, containers)
    words = (each if isinstance(each, str) else "=".join(each) for each in entries)
    return Fix(
        python=f"authorize_virtual_chunk_access=[{', '.join(map(entry_text, containers))}]",
        flags=tuple(word for each in words for word in ("--authorize", each)),
        price="if you trust the repository",
    )


def entry_text(container: VirtualChunkContainer) -> str:
    """Return the Python of what authorizes a container, so that it can be pasted."""
    endpoint = endpoint_if_valid(container)
    prefix = _quote(container.url_prefix)
    return prefix if endpoint is None else f"({prefix}, {_quote(endpoint)})"


def _quote(text: str) -> str:
    """Return a Python literal in double quotes, so that it can be pasted."""
    return '"' + repr(text)[1:-1].replace('"', '\\"') + '"'


def entry_of(container: VirtualChunkContainer) -> Prefix:
    """Return what authorizes a container; its prefix where its options are not valid."""
    endpoint = endpoint_if_valid(container)
    return container.url_prefix if endpoint is None else (container.url_prefix, endpoint)


def endpoint_if_valid(container: VirtualChunkContainer) -> str | None:
    """Return the server that has to be authorized; None too where the options are not valid.

    For code that only shows a container; code that reads it calls `endpoint_of`.
    """
    try:
        return endpoint_of(container)
    except InvalidInputError:
        return None


def choose_endpoints(
    container: VirtualChunkContainer, authorized: frozenset[str]
) -> frozenset[str]:
    """Return where a container's requests may go: the server that it names, if authorized.

    The server that prefix and environment of the reader lead to by themselves is always allowed.

    Raises:
        InvalidInputError: The container's options are not valid.
    """
    named = endpoint_of(container)
    found = {named} & authorized
    try:
        found.add(bucket_of(container.url_prefix, without_server(container)).endpoint)
    except InvalidInputError:  # of Azure, whose account is not known then
        if (endpoint := azure_endpoint_of_environment()) is not None:
            found.add(plain(endpoint))
    return frozenset(each for each in found if each is not None)


def object_key(url: str, *, has_bucket: bool) -> str:
    """Return the percent-decoded key of an object: below its bucket, or with all that follows //.

    Args:
        url: The location, with the name of a container resolved.
        has_bucket: Whether a host or bucket comes first that is not part of the key.

    Raises:
        InvalidInputError: It is not the plain URL of one object.
    """
    scheme, _, rest = url.partition("://")
    if any(ord(character) < 0x20 or character in "\\\x7f" for character in url):
        raise _refusal("it has a backslash or control character", url)
    if "?" in url or "#" in url:
        raise _refusal("it has a query or fragment", url, _DO_APART)
    try:
        authority = urlsplit(url).netloc
        decoded = unquote(rest.partition("/")[2] if has_bucket else rest, errors="strict")
    except ValueError as error:
        raise _refusal("it is malformed", url) from error
    named = "@" in authority and not scheme.startswith("abfs")  # there it parts container, account
    if has_bucket and named:
        raise _refusal("it has a user name", url, _DO_APART)
    if has_bucket and not (
        urls.is_authority(scheme, authority) if scheme in urls.PROVIDERS else authority
    ):
        raise _refusal("it has no host or bucket, or one that no request can go to", url)
    if scheme in _HTTP and "%2f" in rest.lower():
        raise _refusal("it has an encoded slash", url)
    if not has_bucket and "::" in decoded:
        raise _refusal("it is a chain of URLs", url)
    if any(segment in ("", ".", "..") for segment in decoded.split("/")):
        raise _refusal("a part of its path is empty, '.' or '..'", url, _RENAME)
    if any(ord(character) < 0x20 or character in "\\\x7f" for character in decoded):
        raise _refusal("it has an encoded backslash or control character", url, _RENAME)
    return decoded


def _refusal(why: str, url: str, do: str = _DO) -> LocationError:
    return LocationError(
        f"the location of a virtual chunk is not a plain object URL: {why}",
        do=do,
        location=url,
    )
