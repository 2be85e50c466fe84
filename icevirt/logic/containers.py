"""Which virtual chunk containers a build needs: few prefixes that cover all its files."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from icevirt.connect.urls import local_path
from icevirt.errors import InvalidInputError
from icevirt.model.config import (
    ObjectStoreConfig,
    VirtualChunkContainer,
    local_filesystem_store,
)
from icevirt.model.strings import Strings

_DISK = "file:///"
_KINDS = {
    "s3": "s3",
    "tigris": "tigris",
    "gs": "gcs",
    "gcs": "gcs",
    "az": "azure",
    "azure": "azure",
    "abfs": "azure",
    "http": "http",
    "https": "http",
}


def containers_for(urls: Strings) -> tuple[VirtualChunkContainer, ...]:
    """Return the containers of files: the common directory of those on one disk or server.

    The whole disk is never made a container: a reader would have to authorise ``file:///``. Instead
    there is one for each top directory. The official client finds no container whose prefix is
    percent-encoded, so the nearest directory above it whose name needs no encoding is taken where
    there is one.

    Raises:
        InvalidInputError: A file lies in the root directory of the disk, or on a server of an
            unknown kind.
    """
    roots: dict[str, set[str]] = defaultdict(set)
    for directory in {_directory(url) for url in urls}:
        roots["/".join(directory.split("/")[:3]) + "/"].add(directory)
    found = []
    for root, members in sorted(roots.items()):
        common = _common(members)
        if common != _DISK:
            found.append(_container(common, root))
            continue
        tops: dict[str, set[str]] = defaultdict(set)
        for directory in members:
            tops["/".join(directory.split("/")[:4])].add(directory)
        found += [_container(_common(each), root) for _, each in sorted(tops.items())]
    return tuple(found)


def _directory(url: str) -> str:
    directory = url.rsplit("/", 1)[0] + "/"
    if directory == _DISK:
        raise InvalidInputError(
            "a source lies in the root directory, and readers would have to authorise all of the"
            " disk",
            do="Move it into a directory.",
            url=url,
        )
    return directory


def _container(directory: str, root: str) -> VirtualChunkContainer:
    prefix = _plain(directory, root)
    if root == _DISK:
        return VirtualChunkContainer(prefix, local_filesystem_store(local_path(prefix)))
    kind = _KINDS.get(root.partition(":")[0])
    if kind is None:
        raise InvalidInputError(
            "no container can be made for a source of this kind",
            do=f"Use one of {', '.join(_KINDS)}, or local files.",
            url=directory,
        )
    return VirtualChunkContainer(prefix, ObjectStoreConfig(kind, {}))


def _plain(directory: str, root: str) -> str:
    before, encoded, _ = directory.partition("%")
    above = before.rsplit("/", 1)[0] + "/"
    enough = above.startswith(root) and above != _DISK
    return above if encoded and enough else directory


def _common(directories: Iterable[str]) -> str:
    split = [directory.split("/")[:-1] for directory in directories]
    shared = []
    for column in zip(*split, strict=False):
        if len(set(column)) > 1:
            break
        shared.append(column[0])
    return "/".join([*shared, ""])
