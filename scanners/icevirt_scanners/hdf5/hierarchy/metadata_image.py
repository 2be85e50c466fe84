"""Walk a file by comparing bytes, where its metadata is that of an earlier file.

Files of an archive mostly have the same headers, links and heaps at the same addresses. They differ
in attributes of groups, and in where the layout messages say that values stand. So an image of a
file's metadata is kept: all bytes on which its walk and the key of its pattern depend, but for
those. A file in which all of them stand has the same groups, datasets and key. Headers of its
groups are read as ever, and must hold the same links; of a block around an address the checksum is
compared.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain

from icevirt_scanners.hdf5.files import Handle, HeldFile
from icevirt_scanners.hdf5.hierarchy.stretches import Stretch, stretches_of
from icevirt_scanners.hdf5.hierarchy.walk import (
    GROUP,
    FoundDataset,
    FoundGroup,
    Walk,
    kind_of,
)
from icevirt_scanners.hdf5.index.chunks import address_at
from icevirt_scanners.hdf5.raw.file import ObjectHeader, RawFile
from icevirt_scanners.hdf5.raw.header import NEW_BLOCKS, SharedMessages
from icevirt_scanners.hdf5.raw.links import Link, links_of
from icevirt_scanners.hdf5.raw.space import (
    CHECKSUM,
    NotUnderstoodError,
    Place,
    Space,
    check_sum,
    require,
)

_LARGEST = 256 * 1024  # bytes of an image
_REMEMBERED = 16  # images of files that begin alike
_KINDS = 64  # of such files
_VAIN = 64  # images that no file was like, from which on no more are made


@dataclass(frozen=True, slots=True)
class _KnownGroup:
    path: str
    link: bytes  # the path as links spell it
    address: int
    shared: SharedMessages
    links: list[Link]


@dataclass(frozen=True, slots=True)
class _KnownDataset:
    path: str
    name: str  # of its link
    link: bytes  # the path as links spell it
    address: int
    shape: tuple[int, ...] | None
    limits: tuple[int, ...]
    header: ObjectHeader
    hole: int | None  # where in its block the address in its layout stands; None: it is compared

    def here(self, raw: RawFile, file: HeldFile, block: bytes) -> FoundDataset:
        """Return the dataset of a file like the one of the image; ``block`` has the hole."""
        return FoundDataset(
            path=self.path,
            link=self.name,
            handle=Handle(file=file, path=self.link),
            address=self.address,
            shape=self.shape,
            limits=self.limits,
            header=raw.with_layout(self.address, self.header, self._layout(block, raw.space)),
        )

    def _layout(self, block: bytes, space: Space) -> bytes:
        old = self.header.layouts[0].data
        if self.hole is None:
            return old
        at, wide = address_at(old), space.address_width
        address, nowhere = block[self.hole : self.hole + wide], b"\xff" * wide
        there = (address != nowhere) == (old[at : at + wide] != nowhere)
        require(there, "values where there were none")
        return old[:at] + address + old[at + wide :]


@dataclass(frozen=True, slots=True)
class MetadataImage:
    """The metadata of a file, to compare others with."""

    stretches: tuple[Stretch, ...]
    holed: tuple[int, ...]  # numbers of the datasets whose blocks these are, in their order
    groups: tuple[_KnownGroup, ...]
    datasets: tuple[_KnownDataset, ...]
    key: Hashable

    def walk(self, raw: RawFile, file: HeldFile, url: str) -> Walk:
        """Return the walk of a file. Raises `NotUnderstoodError` where it is not like the image."""
        space = raw.space
        taken = [block for stretch in self.stretches for block in stretch.blocks(space)]
        for block in taken:
            if block.startswith(NEW_BLOCKS):
                check_sum(block)
        blocks = dict(zip(self.holed, taken, strict=True))
        walk = Walk(url, key=self.key)
        for group in self.groups:
            header = raw.header(group.address)
            require(header is not None, "an odd object header")
            assert header is not None
            if header.shared is not group.shared:
                require(kind_of(header) == GROUP, "no group")
                require(links_of(header.messages, space) == group.links, "other links")
            handle = Handle(file=file, path=group.link)
            walk.groups.append(FoundGroup(path=group.path, handle=handle, address=group.address))
        walk.datasets += [
            dataset.here(raw, file, blocks.get(number, b""))
            for number, dataset in enumerate(self.datasets)
        ]
        return walk


class _Images:
    """The images of files that were walked, by how these begin; the latest stand first."""

    def __init__(self) -> None:
        self.known: dict[Hashable, tuple[MetadataImage, ...]] = {}
        self.vain = 0  # images that were made since a file was last like one

    def keep(self, begin: Hashable, image: MetadataImage) -> None:
        self.vain += 1
        if begin not in self.known and len(self.known) >= _KINDS:
            self.known = {}
        self.known[begin] = (image, *self.known.get(begin, ()))[:_REMEMBERED]

    def first(self, begin: Hashable, image: MetadataImage) -> None:
        self.vain = 0
        known = self.known.get(begin, ())
        if not known or known[0] is not image:
            self.known[begin] = (image, *(each for each in known if each is not image))


_images = _Images()


def known_walk(raw: RawFile, file: HeldFile, url: str) -> Walk | None:
    """Return the walk of a file whose metadata is known, None where it is not.

    Raises:
        NotUnderstoodError: libhdf5 must judge the file.
    """
    if raw.space.announce is not None:
        return None  # of a file on a server, what is read next is fetched side by side
    begin = _begin_of(raw, raw.root)
    for image in _images.known.get(begin, ()):
        with suppress(NotUnderstoodError):
            walk = image.walk(raw, file, url)
            _images.first(begin, image)
            return walk
        raw.forget()  # the failed comparison stored headers of another file
    return None


def keep_image(walk: Walk, raw: RawFile, key: Hashable) -> None:
    """Keep the image of a file that was walked, and whose key was found.

    All that was read for both must have been recorded in ``raw.space.seen``.
    """
    seen, raw.space.seen = raw.space.seen, None
    if seen is None or walk.findings or _images.vain >= _VAIN:
        return
    with suppress(NotUnderstoodError):
        image = _image(walk, raw, key, seen)
        _images.keep(_begin_of(raw, walk.groups[0].address), image)


def _begin_of(raw: RawFile, root: int) -> Hashable:
    space = raw.space
    return root, space.base, space.address_width, space.length_width


def _image(walk: Walk, raw: RawFile, key: Hashable, seen: Sequence[Place]) -> MetadataImage:
    groups = [(found, _header(raw, found.address)) for found in walk.groups]
    datasets = [(found, _header(raw, found.address)) for found in walk.datasets]
    headers = chain(groups, datasets)
    rest = {*seen}.difference(*(header.places for _, header in headers))
    holes = [_hole(header, raw.space.address_width) for _, header in datasets]
    pieces = [*rest, *_around(datasets, holes, raw.space.address_width)]
    require(sum(len(data) for _, data in pieces) <= _LARGEST, "much metadata")
    stretches, holed = stretches_of([*_merged(pieces)], holes)
    return MetadataImage(
        stretches=stretches,
        holed=holed,
        groups=tuple(
            _KnownGroup(
                found.path,
                found.handle.path,
                found.address,
                header.shared,
                links_of(header.messages, raw.space),
            )
            for found, header in groups
        ),
        datasets=tuple(
            _KnownDataset(
                found.path,
                found.link,
                found.handle.path,
                found.address,
                found.shape,
                found.limits,
                header,
                None if hole is None else hole[0] - hole[1][0],
            )
            for (found, header), hole in zip(datasets, holes, strict=True)
        ),
        key=key,
    )


def _header(raw: RawFile, address: int) -> ObjectHeader:
    header = raw.header(address)
    require(header is not None, "an odd object header")
    assert header is not None
    return header


def _hole(header: ObjectHeader, wide: int) -> tuple[int, Place] | None:
    """Return where the address in a layout stands, and its block; None where that is unsure."""
    at = address_at(header.layout)
    if not at or len(header.layout) < at + wide:
        return None
    found = [
        (address + start, (address, data))
        for address, data in header.places
        for start in _starts(data, header.layout)
    ]
    return (found[0][0] + at, found[0][1]) if len(found) == 1 else None


def _starts(data: bytes, part: bytes) -> Iterator[int]:
    start = data.find(part)
    while start >= 0:
        yield start
        start = data.find(part, start + 1)


def _around(
    datasets: Sequence[tuple[FoundDataset, ObjectHeader]],
    holes: Sequence[tuple[int, Place] | None],
    wide: int,
) -> Iterator[Place]:
    """Yield the blocks of datasets' headers; those with a hole without it and their checksum."""
    for (_, header), hole in zip(datasets, holes, strict=True):
        for place in header.places:
            if hole is None or place != hole[1]:
                yield place
                continue
            address, data = place
            begin = hole[0] - address
            end = len(data) - (CHECKSUM if data.startswith(NEW_BLOCKS) else 0)
            yield address, data[:begin]
            yield hole[0] + wide, data[begin + wide : end]


def _merged(pieces: Iterable[Place]) -> Iterator[Place]:
    """Yield pieces joined where they touch, in the order of their addresses."""
    begin, held = 0, b""
    for address, data in sorted(pieces):
        inside = address - begin
        if held and inside <= len(held):
            held += data[len(held) - inside :] if inside + len(data) > len(held) else b""
            continue
        if held:
            yield begin, held
        begin, held = address, data
    if held:
        yield begin, held
