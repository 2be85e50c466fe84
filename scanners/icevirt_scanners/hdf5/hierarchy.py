"""Find the groups and datasets of a file, each group once.

Hard links come first, so an object is known by a real name. A further hard or soft link to a
*dataset* is an array of its own with the same references: the name stays usable and no data is
copied. A further link to a *group* is only reported, because its content already appears under its
first name (and because cycles end there). Dangling and external links are reported.

A file with only hard links is walked by its bytes, with an equal result. libhdf5 takes over for
anything that is not plain: soft and external links, second names, names that no path can hold, odd
headers.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import h5py
import numpy as np
from h5py import h5, h5a, h5d, h5g, h5i, h5l, h5o, h5r, h5s

from icevirt.archive.scanned import Finding, Severity
from icevirt.errors import ScanError
from icevirt.model import paths
from icevirt.model.paths import node_name
from icevirt_scanners.context import check_dimensions
from icevirt_scanners.hdf5.attributes import FoundAttributes
from icevirt_scanners.hdf5.files import Handle, HeldFile, explained
from icevirt_scanners.hdf5.raw.header import (
    DATASPACE,
    DATATYPE,
    GUESS,
    LINK_INFO,
    NEWEST,
    SYMBOL_TABLE,
    ObjectHeader,
    RawFile,
    SharedMessages,
    extent_of,
)
from icevirt_scanners.hdf5.raw.links import HARD, links_of
from icevirt_scanners.hdf5.raw.space import require

GROUP, _DATASET, _TYPE = "group", "dataset", "named datatype"
_NEW, _VIRTUAL = b"\4", b"\3"  # version of layout messages that know virtual datasets, their class


_MOST = 64  # soft links on the way of one, as operating systems limit symbolic links
PREFIX = "_nc4_non_coord_"
_PREFIX = PREFIX.encode()


@dataclass(slots=True, kw_only=True)
class FoundGroup:
    """A group of the file."""

    path: str
    handle: Handle
    address: int  # of its object header

    @property
    def gid(self) -> Any:
        """The h5py GroupID."""
        return self.handle.id


@dataclass(slots=True, kw_only=True, eq=False)
class FoundDataset:
    """A dataset of the file; a key of dictionaries by its identity."""

    path: str
    link: str  # the name of its link, as the file spells it
    handle: Handle
    address: int
    shape: tuple[int, ...] | None  # None without a dataspace
    limits: tuple[int, ...]  # how far each axis may grow
    header: ObjectHeader | None = None  # where its bytes could be read

    @property
    def dsid(self) -> Any:
        """The h5py DatasetID."""
        return self.handle.id


class _Link(NamedTuple):
    """A link of a group."""

    gid: Any  # of the group
    above: str  # its path
    raw: bytes  # the name of the link


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
        address = h5o.get_info(root).addr
        self._seen[address] = paths.ROOT
        self._descend(FoundGroup(path=paths.ROOT, handle=Handle(id=root), address=address))
        return self

    def _descend(self, first: FoundGroup) -> None:
        """Walk a group and everything below it, soft links last."""
        soft: list[_Link] = []
        pending = deque([first])
        while pending:
            group = pending.popleft()
            self.groups.append(group)
            pending.extendleft(reversed(self._links(group, soft)))
        for link in soft:
            self._soft(link)

    def path_of(self, above: str, raw: bytes, *, is_group: bool) -> str:
        """Return the path of what a link in the group ``above`` leads to; say if it is escaped."""
        name, escaped = node_name(raw) if is_group else variable_name(raw)
        path = paths.join(above, name)
        if escaped:
            self._tell(path, "renamed", f"Zarr cannot hold the name of the link {raw!r}")
        return path

    def _links(self, group: FoundGroup, soft: list[_Link]) -> list[FoundGroup]:
        inner: list[FoundGroup] = []
        for raw, kind, address in _links_of(group.gid):
            if is_odd(raw):
                raise ScanError(
                    "libhdf5 reads the name of this link as a path and opens another object",
                    do="Rename the link with the program that wrote the file.",
                    file=self.url,
                    group=group.path,
                    link=raw,
                )
            link = _Link(gid=group.gid, above=group.path, raw=raw)
            if kind == h5l.TYPE_HARD:
                found = self._object(link, group.gid, raw, address)
                if found is not None:
                    inner.append(found)
            elif kind == h5l.TYPE_SOFT:
                soft.append(link)
            else:
                path = self.path_of(group.path, raw, is_group=False)
                self._tell(path, "external-link", "a link to another file", Severity.warning)
        return inner

    def _object(self, link: _Link, gid: Any, raw: bytes, address: int) -> FoundGroup | None:
        """Take note of the object that the name ``raw`` in ``gid`` has, and ``link`` leads to."""
        with explained(self.url, paths.join(link.above, node_name(link.raw)[0])):
            oid = h5o.open(gid, raw)
        if not isinstance(oid, h5d.DatasetID | h5g.GroupID):
            return None  # a named datatype
        path = self.path_of(link.above, link.raw, is_group=isinstance(oid, h5g.GroupID))
        first = self._seen.setdefault(address, path)
        if isinstance(oid, h5d.DatasetID):
            # one id for all names: what has raw files is closed and opened again
            dsid = self._open.setdefault(address, oid)
            self.datasets.append(describe_dataset(dsid, path, raw, address))
            if first != path:
                self._tell(path, "linked-dataset", f"another name of {first}")
        elif first == path:
            return FoundGroup(path=path, handle=Handle(id=oid), address=address)
        else:
            self._tell(path, "linked-group", f"another name of {first}, left out")
        return None

    def _soft(self, link: _Link) -> None:
        target = follow(link.gid, link.raw)
        if target is None:
            self._tell(
                self.path_of(link.above, link.raw, is_group=False),
                "dangling-link",
                "a link to nothing in this file, or to its root",
                Severity.warning,
            )
            return
        gid, raw = target
        found = self._object(link, gid, raw, gid.links.get_info(raw).u)
        if found is not None:  # reachable by no hard link below the root of this scan
            self._descend(found)

    def _tell(self, path: str, code: str, message: str, severity: Severity = Severity.note) -> None:
        self.findings.append(Finding(path=path, code=code, message=message, severity=severity))


def is_odd(name: bytes) -> bool:
    """Say whether libhdf5 takes the name of a link for a path, and cannot open the link."""
    return b"/" in name or b"\0" in name or name == b"."


def describe_dataset(dsid: Any, path: str, raw: bytes, address: int) -> FoundDataset:
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


def plain_walk(raw: RawFile, file: HeldFile, url: str) -> Walk:
    """Walk a whole file. Raises `NotUnderstoodError`."""
    walk = Walk(url)
    root = FoundGroup(path=paths.ROOT, handle=Handle(file=file, path=b"/"), address=raw.root)
    seen = {root.address}
    pending = deque([(root, b"")])
    while pending:
        group, above = pending.popleft()
        header = _header(raw, group.address)
        require(kind_of(header) == GROUP, "no group")
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
            kind = kind_of(found)
            path = walk.path_of(group.path, link.name, is_group=kind == GROUP)
            if kind == GROUP:
                inner.append((FoundGroup(path=path, handle=handle, address=link.address), spelt))
            elif kind == _DATASET:
                shape, limits = found.shared.once(extent_of)
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


def kind_of(header: ObjectHeader) -> str:
    """Say what an object is, by libhdf5's rules."""
    kind = header.shared.once(_kind)
    if kind == _DATASET:
        # the shape of one without limit is not in its header: it depends on its sources
        layout = header.layout
        require(layout[:1] < _NEW or layout[1:2] != _VIRTUAL, "a virtual dataset")
    return kind


def _kind(shared: SharedMessages) -> str:
    kinds = {message.kind for message in shared.messages}
    require(kinds and max(kinds) <= NEWEST, "messages of another version")
    if kinds & {LINK_INFO, SYMBOL_TABLE}:
        return GROUP
    require(DATATYPE in kinds, "an object of another kind")
    return _DATASET if DATASPACE in kinds else _TYPE


def variable_name(raw: bytes) -> tuple[str, bool]:
    """Return the node name of the link to a variable, and whether it had to be escaped.

    netCDF-4 prepends ``_nc4_non_coord_`` to a variable that shares its name with a dimension it
    lacks.
    """
    return node_name(raw.removeprefix(_PREFIX) or raw)


def follow(gid: Any, name: bytes) -> tuple[Any, bytes] | None:
    """Find what a soft link leads to: the group and the name of the hard link at its end.

    Returns None where it leads to nothing, in circles or to another file. Paths are walked part by
    part, because libhdf5 would open an external link on the way.
    """
    return _Follower(_MOST).end_of(gid, name)


def object_at(fid: Any, path: bytes) -> Any | None:
    """Open the object at a path of a file, None if this file has none there."""
    root = h5g.open(fid, b"/")
    if not path.strip(b"/"):
        return root
    end = _Follower(_MOST).end_of_path(root, path)
    return h5o.open(*end) if end is not None else None


@dataclass(slots=True)
class _Follower:
    left: int

    def end_of(self, gid: Any, name: bytes) -> tuple[Any, bytes] | None:
        """Return the hard link that a link is, or leads to."""
        while gid.links.exists(name):
            kind = gid.links.get_info(name).type
            if kind == h5l.TYPE_HARD:
                return gid, name
            self.left -= 1
            if kind != h5l.TYPE_SOFT or self.left < 0:
                return None
            last = self._last_part(gid, gid.links.get_val(name))
            if last is None:
                return None
            gid, name = last
        return None

    def end_of_path(self, gid: Any, path: bytes) -> tuple[Any, bytes] | None:
        """Return the hard link at the end of a path."""
        last = self._last_part(gid, path)
        return self.end_of(*last) if last is not None else None

    def _last_part(self, gid: Any, target: bytes) -> tuple[Any, bytes] | None:
        """Walk a path up to its last part."""
        here = h5g.open(gid, b"/") if target.startswith(b"/") else gid
        parts = [part for part in target.split(b"/") if part not in (b"", b".")]
        for part in parts[:-1]:
            end = self.end_of(here, part)
            opened = h5o.open(*end) if end is not None else None
            if not isinstance(opened, h5g.GroupID):
                return None
            here = opened
        return (here, parts[-1]) if parts else None


_NO_VARIABLE = "This is a netCDF dimension but not a netCDF variable"
_UNREADABLE = (OSError, RuntimeError, ValueError, TypeError, KeyError)
_REFERENCES = h5py.vlen_dtype(h5py.ref_dtype)


def is_scale(attributes: FoundAttributes) -> bool:
    """Say whether a dataset is a dimension scale."""
    return attributes.hidden.get("CLASS") == "DIMENSION_SCALE"


def is_bare_dimension(attributes: FoundAttributes) -> bool:
    """Say whether a dataset only names a dimension; netCDF has no variable for it."""
    return is_scale(attributes) and str(attributes.hidden.get("NAME", "")).startswith(_NO_VARIABLE)


@dataclass(frozen=True, slots=True)
class VariableAxis:
    """One axis of a variable: the dimension's name, and its scale's address (0: phony)."""

    name: str
    address: int = 0


@dataclass(slots=True)
class Dimensions:
    """The dimensions of one file."""

    file: HeldFile
    _by_address: dict[int, VariableAxis] = field(default_factory=dict)
    _paths: list[str] = field(default_factory=list)  # of the dimensions that have a scale
    _by_number: dict[int, VariableAxis] = field(default_factory=dict)
    _lengths: dict[int, int] = field(default_factory=dict)
    _phony: dict[str, dict[VariableAxis, tuple[int, bool]]] = field(
        default_factory=lambda: defaultdict(dict)
    )

    def add_scale(self, found: FoundDataset, attributes: FoundAttributes) -> None:
        """Take note of a dimension scale; its first name stays."""
        axis = VariableAxis(
            variable_name(found.link.encode("utf-8", "surrogateescape"))[0], found.address
        )
        if self._by_address.setdefault(found.address, axis) is axis:
            self._paths.append(paths.join(paths.parent(found.path), axis.name))
        number = attributes.hidden.get("_Netcdf4Dimid")
        if isinstance(number, np.integer):
            self._by_number.setdefault(int(number), axis)

    def check_distinct(self, url: str) -> None:
        """Refuse dimensions of one group whose names become one. Raises ``UnsupportedError``."""
        check_dimensions(self._paths, url)

    def axes_of(
        self, found: FoundDataset, attributes: FoundAttributes, shape: Sequence[int]
    ) -> tuple[tuple[VariableAxis, ...], str]:
        """Return the axes of a dataset, and what was odd about finding them.

        ``shape`` may have more axes than the dataset has: those of an array type are phony.
        """
        given, odd = self._find_axes(found, attributes, len(shape))
        axes: list[VariableAxis] = []
        for length, axis in zip(shape, given, strict=True):
            unlimited = (*found.limits, 0)[min(len(axes), len(found.limits))] == h5s.UNLIMITED
            chosen = axis or self._make_phony(found.path, (length, unlimited), axes)
            axes.append(chosen)
            if chosen.address:
                known = self._lengths.get(chosen.address, 0)
                self._lengths[chosen.address] = max(known, length)
        return tuple(axes), odd

    def length(self, axis: VariableAxis, own: int) -> int:
        """Return how long netCDF takes the dimension to be: as its longest variable."""
        return self._lengths.get(axis.address, own) if axis.address else own

    def _find_axes(
        self, found: FoundDataset, attributes: FoundAttributes, ndim: int
    ) -> tuple[list[VariableAxis | None], str]:
        axes: list[VariableAxis | None] = [None] * ndim
        odd = ""
        if attributes.has_dimension_list:
            try:
                for at, scales in enumerate(self._scales(found, attributes)[:ndim]):
                    if len(scales) > 1:
                        odd = "an axis has several scales; the first counts"
                    axes[at] = scales[0] if scales else None
            except _UNREADABLE as error:
                odd = f"its list of dimension scales cannot be read: {error}"
        elif (numbers := attributes.hidden.get("_Netcdf4Coordinates")) is not None:
            for at, number in enumerate(np.atleast_1d(numbers).tolist()[:ndim]):
                axes[at] = self._by_number.get(number)
        elif is_scale(attributes) and ndim:
            axes[0] = self._by_address.get(found.address)
        return axes, odd

    def _scales(
        self, found: FoundDataset, attributes: FoundAttributes
    ) -> Sequence[Sequence[VariableAxis | None]]:
        """Return the scales of each axis, as the file lists them."""
        known = attributes.scales
        if known is not None and all(one in self._by_address for some in known for one in some):
            return [[self._by_address[one] for one in some] for some in known]
        return [[self._dereference(one) for one in some] for some in _dimension_list(found.dsid)]

    def _dereference(self, reference: Any) -> VariableAxis | None:
        if not reference:
            return None
        oid = h5r.dereference(reference, self.file.fid)
        address = h5o.get_info(oid).addr
        axis = self._by_address.get(address)
        if axis is None:  # a scale outside of the scanned group
            raw = h5i.get_name(oid) or b""
            axis = VariableAxis(variable_name(raw.rsplit(b"/", 1)[-1])[0], address)
            self._by_address[address] = axis
        return axis

    def _make_phony(
        self, path: str, kind: tuple[int, bool], taken: Sequence[VariableAxis]
    ) -> VariableAxis:
        here = self._phony[paths.parent(path)]
        for axis, known in here.items():
            if known == kind and axis not in taken:
                return axis
        real = len(self._by_number or self._by_address)
        axis = VariableAxis(f"phony_dim_{real + sum(map(len, self._phony.values()))}")
        here[axis] = kind
        return axis


def innermost_first(group_paths: Sequence[str]) -> dict[str, int]:
    """Rank groups, given in the order of the file, such that those inside come first."""
    inside: dict[str, list[str]] = defaultdict(list)
    for path in group_paths:
        if path != paths.ROOT:
            inside[paths.parent(path)].append(path)
    outermost: list[str] = []  # the last group first, each before those inside
    pending = [paths.ROOT]
    while pending:
        path = pending.pop()
        outermost.append(path)
        pending += inside[path]
    return {path: rank for rank, path in enumerate(reversed(outermost))}


def _dimension_list(dsid: Any) -> list[Any]:
    attribute = h5a.open(dsid, b"DIMENSION_LIST")
    references = np.empty(attribute.shape, _REFERENCES)
    attribute.read(references)
    return list(references)
