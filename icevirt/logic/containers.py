"""Which virtual chunk containers a build needs: few prefixes that cover all its files."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from icevirt.connect.urls import local_path
from icevirt.errors import InvalidInputError
from icevirt.model.config import VirtualChunkContainer, local_filesystem_store
from icevirt.model.strings import Strings

_DISK = "file:///"


def containers_for(urls: Strings) -> tuple[VirtualChunkContainer, ...]:
    """Return the containers of local files: their common directory, or one per top directory.

    The whole disk is never made a container: a reader would have to authorise ``file:///``. The
    official client finds no container whose prefix is percent-encoded, so the nearest directory
    above it whose name needs no encoding is taken where there is one.

    Raises:
        InvalidInputError: A file lies in the root directory of the disk.
    """
    directories = {_directory(url) for url in urls}
    common = _common(directories)
    if common != _DISK:
        return (_container(common),)
    tops: dict[str, set[str]] = defaultdict(set)
    for directory in directories:
        tops["/".join(directory.split("/")[:4])].add(directory)
    return tuple(_container(_common(members)) for _, members in sorted(tops.items()))


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


def _container(directory: str) -> VirtualChunkContainer:
    prefix = _plain(directory)
    return VirtualChunkContainer(prefix, local_filesystem_store(local_path(prefix)))


def _plain(directory: str) -> str:
    before, encoded, _ = directory.partition("%")
    above = before.rsplit("/", 1)[0] + "/"
    return above if encoded and above != _DISK else directory


def _common(directories: Iterable[str]) -> str:
    split = [directory.split("/")[:-1] for directory in directories]
    shared = []
    for column in zip(*split, strict=False):
        if len(set(column)) > 1:
            break
        shared.append(column[0])
    return "/".join([*shared, ""])
