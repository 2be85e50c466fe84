"""Narrow the virtual chunk containers of old configurations, which cover whole schemes.

Those said how to reach ``s3://`` or any file. One of today says below which prefix locations may
lie. Only prefixes in use are carried, with the settings that were persisted for their scheme.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any

from icevirt.errors import InvalidInputError
from icevirt.model.config.containers import (
    SCHEMES,
    ObjectStoreConfig,
    VirtualChunkContainer,
    local_filesystem_store,
)
from icevirt.model.config.document import RepositoryConfig
from icevirt.model.strings import Strings
from icevirt.planning.containers import containers_for

_DISK = "file:///"
_KINDS = {
    "LocalFileSystem": "local_file_system",
    "S3Compatible": "s3_compatible",
    "Gcs": "gcs",
    "Azure": "azure",
    "Tigris": "tigris",
}
"""Kinds of stores by their names before 0.1.0."""


def authorize_containers(
    document: Mapping[str, Any], prefixes: Iterable[str]
) -> dict[str, dict[str, Any]]:
    """Return the containers of a configuration, and one for each prefix that the caller names.

    Those of old repositories cover whole schemes, which cannot be authorized.
    """
    usable, stores = _usable(document), _stores(document)
    for prefix in prefixes:
        if prefix not in usable and (store := _store(prefix, stores)) is not None:
            usable[prefix] = VirtualChunkContainer(prefix, store)
    return {prefix: dict(container.to_document()) for prefix, container in usable.items()}


def containers_in_use(
    document: Mapping[str, Any],
    urls: Iterable[str],
    apart: Mapping[str, ObjectStoreConfig | None] = MappingProxyType({}),
) -> tuple[list[VirtualChunkContainer], list[str]]:
    """Return the narrowest containers that cover locations, and the locations that none can.

    Containers of the configuration that cover no more than a bucket or directory are kept. For
    prefixes that are ``apart`` it does not count: how they are reached is given.
    """
    usable, stores = _usable(document), _stores(document)
    roots: dict[str, list[str]] = {}
    found: dict[str, VirtualChunkContainer] = {}
    uncovered = []
    for url in urls:
        if root := next((prefix for prefix in apart if url.startswith(prefix)), None):
            roots.setdefault(root, []).append(url)
        elif own := [prefix for prefix in usable if url.startswith(prefix)]:
            prefix = max(own, key=len)
            found[prefix] = usable[prefix]
        else:
            roots.setdefault("/".join(url.split("/")[:3]) + "/", []).append(url)
    for root, members in sorted(roots.items()):
        store = apart.get(root) or (None if root == _DISK else _store(root, stores))
        try:
            made = containers_for(Strings.of(members), stores=[(root, store)] if store else ())
        except InvalidInputError:
            uncovered += members
            continue
        found |= {each.url_prefix: each for each in made}
    return list(found.values()), uncovered


def _usable(document: Mapping[str, Any]) -> dict[str, VirtualChunkContainer]:
    found = RepositoryConfig.from_document(document).virtual_chunk_containers
    return {prefix: each for prefix, each in found.items() if prefix != _DISK}


def _stores(document: Mapping[str, Any]) -> dict[str, ObjectStoreConfig]:
    found: dict[str, ObjectStoreConfig] = {}
    entries = document.get("virtual_chunk_containers")
    for entry in entries.values() if isinstance(entries, Mapping) else ():
        try:
            store = ObjectStoreConfig.from_document(entry["store"])
        except (InvalidInputError, KeyError, TypeError):
            continue
        kind = _KINDS.get(store.kind, store.kind)
        found[kind] = ObjectStoreConfig(kind, store.options)
    return found


def _store(prefix: str, stores: Mapping[str, ObjectStoreConfig]) -> ObjectStoreConfig | None:
    """Return how the objects below a prefix are reached; None where no client of today can."""
    kinds = SCHEMES.get(prefix.partition("://")[0])
    if kinds is None:
        return None
    if prefix.startswith("file:"):
        return local_filesystem_store(prefix.removeprefix("file://"))
    return next((stores[kind] for kind in kinds if kind in stores), ObjectStoreConfig(kinds[0], {}))
