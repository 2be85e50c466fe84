"""Which virtual chunk containers a build needs: few prefixes that cover all its files."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from icevirt.connect.urls import local_path
from icevirt.model.config import VirtualChunkContainer, local_filesystem_store
from icevirt.model.strings import Strings


def containers_for(urls: Strings) -> tuple[VirtualChunkContainer, ...]:
    """Return the containers of local files: their common directory, or one per top directory.

    The whole disk is never made a container: a reader would have to authorise ``file:///``.
    """
    directories = {url.rsplit("/", 1)[0] + "/" for url in urls}
    common = _common(directories)
    if common.count("/") > 3:
        return (_container(common),)
    tops: dict[str, set[str]] = defaultdict(set)
    for directory in directories:
        tops["/".join(directory.split("/")[:4])].add(directory)
    return tuple(_container(_common(members)) for _, members in sorted(tops.items()))


def _container(prefix: str) -> VirtualChunkContainer:
    return VirtualChunkContainer(prefix, local_filesystem_store(local_path(prefix)))


def _common(directories: Iterable[str]) -> str:
    split = [directory.split("/") for directory in directories]
    shared = []
    for column in zip(*split, strict=False):
        if len(set(column)) > 1:
            break
        shared.append(column[0])
    prefix = "/".join(shared)
    return prefix if prefix.endswith("/") else prefix + "/"
