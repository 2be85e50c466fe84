"""Find the groups and datasets of a file, each group once.

Hard links come first, so that an object is known by a real name. A further hard or soft link to a
*dataset* is an array of its own with the same references: the name stays usable and no data is
copied. A further link to a *group* is only reported, because its content stands under its first
name already (and because cycles end there). Dangling and external links are reported.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Any

from h5py import h5, h5d, h5g, h5l, h5o, h5s

from icevirt.archive.scanned import Finding, Severity
from icevirt.model import paths
from icevirt_scanners.hdf5.files import HeldFile, explained
from icevirt_scanners.hdf5.links import follow
from icevirt_scanners.hdf5.names import node_name
from icevirt_scanners.hdf5.raw.file import Header


class Handle:
    """A group or dataset that libhdf5 opens when it is first asked for."""

    __slots__ = ("_file", "_id", "_path")

    def __init__(self, *, id: Any = None, file: HeldFile | None = None, path: bytes = b"") -> None:  # noqa: A002
        self._id, self._file, self._path = id, file, path

    @property
    def id(self) -> Any:
        """The h5py id."""
        if self._id is None:
            assert self._file is not None, "an object has an id or a file"
            self._id = h5o.open(self._file.fid, self._path)
        return self._id

    @property
    def is_open(self) -> bool:
        """Whether libhdf5 opened it."""
        return self._id is not None

    def plist(self) -> Any:
        """Return a copy of a dataset's creation properties, which is dear to make."""
        return self.id.get_create_plist()


@dataclass(slots=True, kw_only=True)
class FoundGroup:
    """A group as it lies in the file."""

    path: str
    handle: Handle
    address: int  # of its object header

    @property
    def gid(self) -> Any:
        """The h5py GroupID."""
        return self.handle.id


@dataclass(slots=True, kw_only=True, eq=False)
class FoundDataset:
    """A dataset as it lies in the file; a key of dictionaries by its identity."""

    path: str
    link: str  # the name of its link, as the file spells it
    handle: Handle
    address: int
    shape: tuple[int, ...] | None  # None without a dataspace
    limits: tuple[int, ...]  # how far each axis may grow
    header: Header | None = None  # where its bytes could be read

    @property
    def dsid(self) -> Any:
        """The h5py DatasetID."""
        return self.handle.id


@dataclass(slots=True)
class Walk:
    """All that was found below a group, in the order of the file."""

    url: str
    groups: list[FoundGroup] = field(default_factory=list)
    datasets: list[FoundDataset] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    _seen: dict[int, str] = field(default_factory=dict)  # address of a group or dataset -> path
    _open: dict[int, Any] = field(default_factory=dict)  # address of a dataset -> its id

    def below(self, root: Any) -> Walk:
        """Walk everything below an open group, which becomes the root."""
        soft: list[tuple[Any, str, bytes]] = []
        address = h5o.get_info(root).addr
        self._seen[address] = paths.ROOT
        pending = deque([FoundGroup(path=paths.ROOT, handle=Handle(id=root), address=address)])
        while pending:
            group = pending.popleft()
            self.groups.append(group)
            inner = self._links(group, soft)
            pending.extendleft(reversed(inner))
        for gid, path, raw in soft:
            self._soft(gid, path, raw)
        return self

    def renamed(self, path: str, raw: bytes) -> None:
        """Tell that a node is not called as its link is."""
        self._tell(path, "renamed", f"the link {raw!r} is no node name in zarr")

    def _links(self, group: FoundGroup, soft: list[tuple[Any, str, bytes]]) -> list[FoundGroup]:
        inner: list[FoundGroup] = []
        for raw, kind, address in _links_of(group.gid):
            name, odd = node_name(raw)
            path = paths.join(group.path, name)
            if odd:
                self.renamed(path, raw)
            if kind == h5l.TYPE_HARD:
                found = self._object(group.gid, path, raw, address)
                if found is not None:
                    inner.append(found)
            elif kind == h5l.TYPE_SOFT:
                soft.append((group.gid, path, raw))
            else:
                self._tell(path, "external-link", "a link to another file", Severity.warning)
        return inner

    def _object(self, gid: Any, path: str, raw: bytes, address: int) -> FoundGroup | None:
        with explained(self.url, path):
            oid = h5o.open(gid, raw)
        first = self._seen.setdefault(address, path)
        if isinstance(oid, h5d.DatasetID):
            # one id for all names: what has raw files is closed and opened again
            dsid = self._open.setdefault(address, oid)
            self.datasets.append(found_dataset(dsid, path, raw, address))
            if first != path:
                self._tell(path, "linked-dataset", f"another name of {first}")
        elif isinstance(oid, h5g.GroupID):
            if first == path:
                return FoundGroup(path=path, handle=Handle(id=oid), address=address)
            self._tell(path, "linked-group", f"another name of {first}, left out")
        return None

    def _soft(self, gid: Any, path: str, raw: bytes) -> None:
        target = follow(gid, raw)
        if target is None:
            self._tell(
                path,
                "dangling-link",
                "a link to nothing in this file, or to all of it",
                Severity.warning,
            )
            return
        gid, raw = target
        found = self._object(gid, path, raw, gid.links.get_info(raw).u)
        if found is not None:  # reachable by no hard link below the root of this scan
            self.groups.append(found)
            rest: list[tuple[Any, str, bytes]] = []
            pending = deque(self._links(found, rest))
            while pending:
                group = pending.popleft()
                self.groups.append(group)
                pending.extendleft(reversed(self._links(group, rest)))
            for inner in rest:
                self._soft(*inner)

    def _tell(self, path: str, code: str, message: str, severity: Severity = Severity.note) -> None:
        self.findings.append(Finding(path=path, code=code, message=message, severity=severity))


def found_dataset(dsid: Any, path: str, raw: bytes, address: int) -> FoundDataset:
    """Describe an open dataset under a path, with the name of its link."""
    space = dsid.get_space()
    null = space.get_simple_extent_type() == h5s.NULL
    return FoundDataset(
        path=path,
        link=raw.decode("utf-8", "surrogateescape"),
        handle=Handle(id=dsid),
        address=address,
        shape=None if null else space.get_simple_extent_dims(),
        limits=() if null else space.get_simple_extent_dims(True),
    )


def _links_of(gid: Any) -> list[tuple[bytes, int, int]]:
    """Return name, kind and address (of a hard link; asking the object walks its chunk index)."""
    links: list[tuple[bytes, int, int]] = []

    def note(name: bytes, info: Any) -> None:
        links.append((name, info.type, info.u if info.type == h5l.TYPE_HARD else 0))

    try:
        gid.links.iterate(note, info=True, idx_type=h5.INDEX_CRT_ORDER)
    except (RuntimeError, ValueError, KeyError):
        links.clear()
        gid.links.iterate(note, info=True, idx_type=h5.INDEX_NAME)
    return links
