"""Normalize the ``authorize_virtual_chunk_access`` argument, and ask for what is missing in it.

`icevirt.objects` decides about every location that is read.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

from icevirt.connect import urls
from icevirt.connect.container import endpoint_of
from icevirt.connect.credentials.keywords import parse_credentials
from icevirt.connect.urls import PROVIDERS, is_url, plain, spell
from icevirt.errors import Fix, InvalidInputError, UnauthorizedError
from icevirt.model.config.containers import VirtualChunkContainer
from icevirt.model.config.document import RepositoryConfig
from icevirt.objects.authorize import (
    PUBLIC,
    GrantedAccess,
    Prefix,
    authorizing_fix,
    endpoint_if_valid,
    find_covering,
    normalize_prefix,
)

_LIKE = 0.8
"""How like two prefixes are, of which one is a typing error of the other, as difflib counts."""

_WORD = "public"
"""In the place of a prefix: public buckets and https, without credentials. A directory of that name
is ``./public``."""

_SHOWN = 5  # containers in a message

type Authorization = (
    str
    | os.PathLike[str]
    | Mapping[Prefix, Any]
    | Mapping[str, Any]
    | Mapping[os.PathLike[str], Any]
    | Iterable[Prefix | os.PathLike[str]]
    | None
)
"""One prefix, several, or prefixes with the credentials below each (None: the environment's).

Credentials may be named: "anonymous", "environment", "netrc", or "package.module:function".

A container that names its own endpoint is authorized by ``(url_prefix, endpoint)``.
"""


def authorize(
    given: Authorization, config: RepositoryConfig | None = None, *, reads_chunks: bool = False
) -> Mapping[str, GrantedAccess]:
    """Return access by prefix, each ending in ``/``; local paths become ``file://`` URLs.

    Args:
        given: What the caller passed.
        config: Endpoints of its containers are the caller's own choice, who passed it too.
        reads_chunks: Nothing but chunks of a repository is read with it, so it may be "public":
            scanners and listings look names up by libraries of their own.

    Raises:
        InvalidInputError: A prefix is empty, credentials are named that are not there, or "public"
            stands where files are opened.
    """
    if isinstance(given, str | os.PathLike):
        given = (os.fspath(given),)
    if not isinstance(given, Iterable | None):
        raise InvalidInputError(
            "authorize_virtual_chunk_access must be a list of prefixes",
            do="Pass a list of url_prefixes, or a mapping of them to credentials.",
            found=type(given).__name__,
        )
    pairs = given.items() if isinstance(given, Mapping) else ((p, None) for p in given or ())
    found: dict[str, GrantedAccess] = {}
    for entry, credentials in pairs:
        if entry in (_WORD, PUBLIC):
            _check_public(credentials, reads_chunks=reads_chunks)
            found[PUBLIC] = GrantedAccess()
            continue
        prefix, endpoints = _entry(entry)
        access = credentials
        if isinstance(access, str):
            provider = PROVIDERS.get(prefix.partition(":")[0])
            if provider is None:
                raise InvalidInputError(
                    "credentials or a file system were passed for a prefix that needs none",
                    do="Pass None for local files, an fsspec file system for fsspec containers.",
                    prefix=prefix,
                )
            access = parse_credentials(access, provider)
        if isinstance(access, GrantedAccess):  # from another repository
            endpoints |= access.endpoints
            access = access.credentials
        container = None if config is None else config.virtual_chunk_containers.get(prefix)
        if container is not None and (endpoint := endpoint_if_valid(container)) is not None:
            endpoints |= {endpoint}
        found[prefix] = GrantedAccess(access, endpoints)
    return found


def refuse_unmatched(
    access: Mapping[str, GrantedAccess], containers: Mapping[str, VirtualChunkContainer]
) -> None:
    """Check that prefixes which authorize nothing are no typing errors.

    Raises:
        UnauthorizedError: A prefix is like that of a container which is not authorized, or none of
            the prefixes is that of any container.
    """
    covers = [(each, *find_covering(each, access)) for each in containers.values()]
    used = {prefix for _, prefix, found in covers if found is not None}
    missing = {each.url_prefix: each for each, _, found in covers if found is None}
    if not missing:
        return
    if PUBLIC in access and not used:
        raise UnauthorizedError(
            "'public' authorizes public buckets and https, and the repository has no container"
            " of these",
            fixes=[authorizing_fix(list(missing.values())[:_SHOWN])],
            containers=list(missing)[:_SHOWN],
        )
    from difflib import get_close_matches

    for prefix in access.keys() - {PUBLIC}:
        near = get_close_matches(prefix, missing, n=1, cutoff=_LIKE if used else 0.0)
        if prefix not in used and near:
            raise UnauthorizedError(
                "a prefix that is authorized is that of no virtual chunk container",
                fixes=[authorizing_fix([missing[near[0]]])],
                prefix=prefix,
                containers=[near[0], *(each for each in missing if each != near[0])][:_SHOWN],
            )


def refuse_useless(
    prefixes: Iterable[str], places: Collection[str], propose: Callable[[str], Fix]
) -> None:
    """Check that each prefix covers one of the places that a call can read, or is none by mistake.

    Args:
        prefixes: What the caller authorized, each with a slash at the end.
        places: The same of what may be read.
        propose: Returns what to pass in the place of a prefix that covers nothing.

    Raises:
        UnauthorizedError: One covers none; the error proposes the nearest place.
    """
    from difflib import get_close_matches

    for prefix in prefixes:
        if any(place.startswith(prefix) for place in places):
            continue
        near = get_close_matches(prefix, places, n=1, cutoff=0.0)
        raise UnauthorizedError(
            "a prefix that is authorized covers nothing that the repository refers to",
            fixes=list(map(propose, near)),
            prefix=prefix,
            places=[*near, *(each for each in places if each not in near)][:_SHOWN],
        )


def _check_public(credentials: object, *, reads_chunks: bool) -> None:
    if not reads_chunks:
        raise InvalidInputError(
            "'public' authorizes the reading of values, and this call opens source files",
            do="Name the prefixes of the files. A directory of that name is ./public.",
        )
    if credentials is not None and not isinstance(credentials, GrantedAccess):
        raise InvalidInputError(
            "'public' goes without credentials",
            do="Name the prefix that the credentials are for.",
        )


def _entry(entry: object) -> tuple[str, frozenset[str]]:
    match os.fspath(entry) if isinstance(entry, os.PathLike) else entry:
        case str(prefix):
            return _normalize(prefix), frozenset()
        case (str(prefix), str(endpoint)):
            return _normalize(prefix), frozenset({plain(endpoint)})
        case _:
            raise InvalidInputError(
                "this prefix cannot be authorized",
                do="Pass the url_prefix of a container, or (url_prefix, endpoint_url).",
                found=entry,
            )


def _normalize(prefix: str) -> str:
    if not prefix:
        raise InvalidInputError(
            "an empty prefix would authorize everything",
            do="Pass the url_prefix of a virtual chunk container.",
        )
    prefix = spell(prefix, foreign=True)
    return normalize_prefix(prefix if is_url(prefix) else urls.file_url(prefix))


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
