"""Find the groups and datasets of a file with only hard links, from its bytes.

The result equals that of `icevirt_scanners.hdf5.hierarchy.walk` through libhdf5, which takes over
for anything that is not plain: soft and external links, second names, names that no path can hold,
odd headers.
"""

from __future__ import annotations

from collections import deque

from icevirt.model import paths
from icevirt_scanners.hdf5.files import Handle, HeldFile
from icevirt_scanners.hdf5.hierarchy.walk import FoundDataset, FoundGroup, Walk, is_odd
from icevirt_scanners.hdf5.raw.dataset import DATASPACE, DATATYPE, extent_of
from icevirt_scanners.hdf5.raw.file import ObjectHeader, RawFile
from icevirt_scanners.hdf5.raw.header import (
    GUESS,
    LINK_INFO,
    NEWEST,
    SYMBOL_TABLE,
    layout_message,
)
from icevirt_scanners.hdf5.raw.links import HARD, links_of
from icevirt_scanners.hdf5.raw.space import require

_GROUP, _DATASET, _TYPE = "group", "dataset", "named datatype"
_NEW, _VIRTUAL = b"\4", b"\3"  # version of layout messages that know virtual datasets, their class


def plain_walk(raw: RawFile, file: HeldFile, url: str) -> Walk:
    """Walk a whole file.

    Raises:
        NotUnderstoodError: libhdf5 must be asked.
    """
    walk = Walk(url)
    root = FoundGroup(path=paths.ROOT, handle=Handle(file=file, path=b"/"), address=raw.root)
    seen = {root.address}
    pending = deque([(root, b"")])
    while pending:
        group, above = pending.popleft()
        header = _header(raw, group.address)
        require(_kind_of(header) == _GROUP, "no group")
        walk.groups.append(group)
        inner: list[tuple[FoundGroup, bytes]] = []
        links = links_of(header.messages, raw.space)
        raw.space.soon((link.address, GUESS) for link in links)
        for link in links:
            require(link.kind == HARD and link.address not in seen, "a second name")
            require(not is_odd(link.name), "an odd name")
            seen.add(link.address)
            spelt = above + b"/" + link.name
            found, handle = _header(raw, link.address), Handle(file=file, path=spelt)
            kind = _kind_of(found)
            path = walk.path_of(group.path, link.name, is_group=kind == _GROUP)
            if kind == _GROUP:
                inner.append((FoundGroup(path=path, handle=handle, address=link.address), spelt))
            elif kind == _DATASET:
                shape, limits = extent_of(found.messages, raw.space)
                walk.datasets.append(
                    FoundDataset(
                        path=path,
                        link=link.name.decode("utf-8", "surrogateescape"),
                        handle=handle,
                        address=link.address,
                        shape=shape,
                        limits=limits,
                    )
                )
        pending.extendleft(reversed(inner))
    return walk


def _header(raw: RawFile, address: int) -> ObjectHeader:
    header = raw.header(address)
    require(header is not None, "an odd object header")
    assert header is not None
    return header


def _kind_of(header: ObjectHeader) -> str:
    """Say what an object is, by libhdf5's rules."""
    kinds = {message.kind for message in header.messages}
    require(kinds and max(kinds) <= NEWEST, "messages of another version")
    if kinds & {LINK_INFO, SYMBOL_TABLE}:
        return _GROUP
    require(DATATYPE in kinds, "an object of another kind")
    if DATASPACE not in kinds:
        return _TYPE
    # the shape of one without limit is not in its header: it depends on its sources
    layout = layout_message(header.messages)
    require(layout[:1] < _NEW or layout[1:2] != _VIRTUAL, "a virtual dataset")
    return _DATASET
