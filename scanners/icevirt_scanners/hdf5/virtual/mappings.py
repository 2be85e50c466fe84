"""Read the mappings of a virtual dataset: its boxes, and their source boxes and files.

HDF5 pairs the elements of two selections in C order (H5Pset_virtual). Selections that are boxes can
be resolved to chunks; others (strided, points, unions) are only named. An unlimited selection ends
with its source, and `%b` in a name stands for the number of a block along the unlimited axis.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import prod
from typing import Any

from h5py import h5s

UNLIMITED = -1  # a count that the source decides
_PERCENT = re.compile(r"%(.?)", re.DOTALL)
_HUGE = 1 << 62  # H5S_UNLIMITED and whatever no dataset reaches


@dataclass(frozen=True, slots=True, kw_only=True)
class Box:
    """A box of elements; a count may be `UNLIMITED`."""

    start: tuple[int, ...]
    count: tuple[int, ...]

    @property
    def end(self) -> tuple[int, ...]:
        """One more than the last element along each axis."""
        return tuple(at + n for at, n in zip(self.start, self.count, strict=True))

    def inside(self, shape: tuple[int, ...]) -> bool:
        """Say whether it lies in an array of this shape."""
        return len(shape) == len(self.start) and all(
            end <= length for end, length in zip(self.end, shape, strict=True)
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Mapping:
    """One mapping. A box is None where the selection is none."""

    file: str  # "." is the file of the virtual dataset
    dataset: str
    here: Box | None  # in the virtual dataset
    there: Box | None  # in its source
    whole: bool = False  # all of the source, however large
    reach: tuple[int, ...] = ()  # how far the source must extend, box or not

    def fitted(self, shape: tuple[int, ...], source: tuple[int, ...]) -> Mapping:
        """Let unlimited boxes, and whole sources, end where both arrays do."""
        there = Box(start=(0,) * len(source), count=source) if self.whole else self.there
        if self.here is None or there is None or len(there.start) != len(source):
            return replace(self, there=there)
        open_here = [n for n, count in enumerate(self.here.count) if count == UNLIMITED]
        open_there = [n for n, count in enumerate(there.count) if count == UNLIMITED]
        if len(open_here) != len(open_there):
            return replace(self, here=None)
        counts, sources = list(self.here.count), list(there.count)
        for n, m in zip(open_here, open_there, strict=True):
            left = min(shape[n] - self.here.start[n], source[m] - there.start[m])
            counts[n] = sources[m] = max(left, 0)
        return replace(
            self,
            here=Box(start=self.here.start, count=tuple(counts)),
            there=Box(start=there.start, count=tuple(sources)),
        )


class OddNameError(Exception):
    """The name of a source has a format that HDF5 does not know."""


def mappings_of(plist: Any, shape: tuple[int, ...]) -> Iterator[Mapping]:
    """Yield the mappings of a virtual dataset of this shape; numbered sources one by one.

    Raises:
        OddNameError: A name is neither plain nor numbered.
    """
    for number in range(plist.get_virtual_count()):
        space, source = plist.get_virtual_vspace(number), plist.get_virtual_srcspace(number)
        file, dataset = plist.get_virtual_filename(number), plist.get_virtual_dsetname(number)
        kind = source.get_select_type()
        if space.get_select_type() == h5s.SEL_NONE or kind == h5s.SEL_NONE:
            continue
        whole = kind == h5s.SEL_ALL
        there, reach = (None, ()) if whole else (_box(source), _reach(source))
        if not (_is_numbered(file) | _is_numbered(dataset)):
            everything = Box(start=(0,) * len(shape), count=shape)
            here = everything if space.get_select_type() == h5s.SEL_ALL else _box(space)
            yield Mapping(
                file=file, dataset=dataset, here=here, there=there, whole=whole, reach=reach
            )
            continue
        for block, here in enumerate(_blocks(space, shape)):
            yield Mapping(
                file=_named(file, block),
                dataset=_named(dataset, block),
                here=here,
                there=there,
                whole=whole,
                reach=reach,
            )


def _is_numbered(name: str) -> bool:
    found = _PERCENT.findall(name)
    if any(letter != "b" for letter in found):
        raise OddNameError(name)
    return bool(found)


def _named(name: str, block: int) -> str:
    return name.replace("%b", str(block))


def _blocks(space: Any, shape: tuple[int, ...]) -> Iterator[Box | None]:
    """Yield the blocks of an unlimited selection, as far as they lie in the shape."""
    start, stride, count, block = space.get_regular_hyperslab()
    axes = [n for n, times in enumerate(count) if times >= _HUGE]
    if len(axes) != 1:
        return
    (axis,) = axes
    sizes = tuple(_extent(*each) for each in zip(stride, count, block, strict=True))
    for at in range(start[axis], shape[axis], max(stride[axis], 1)):
        corner = (*start[:axis], at, *start[axis + 1 :])
        size = (*sizes[:axis], min(block[axis], shape[axis] - at), *sizes[axis + 1 :])
        known = tuple(n for n in size if n is not None)
        yield Box(start=corner, count=known) if len(known) == len(size) else None


def _box(space: Any) -> Box | None:
    """Return a selection as a box, None where it is none."""
    if space.get_select_type() != h5s.SEL_HYPERSLABS:
        return None
    if space.is_regular_hyperslab():
        start, *sizes = space.get_regular_hyperslab()
        found = [_extent(*each) for each in zip(*sizes, strict=True)]
        known = tuple(n for n in found if n is not None)
        return Box(start=tuple(start), count=known) if len(known) == len(found) else None
    low, high = space.get_select_bounds()
    count = tuple(last - first + 1 for first, last in zip(low, high, strict=True))
    is_box = space.get_select_npoints() == prod(count)
    return Box(start=tuple(low), count=count) if is_box else None


def _reach(space: Any) -> tuple[int, ...]:
    if space.is_regular_hyperslab():
        _, _, counts, blocks = space.get_regular_hyperslab()
        if max(*counts, *blocks) >= _HUGE:
            return ()
    return tuple(last + 1 for last in space.get_select_bounds()[1])


def _extent(stride: int, count: int, block: int) -> int | None:
    """Return how many elements a selection takes along an axis without a gap, None with gaps."""
    if block >= _HUGE:
        return UNLIMITED
    if count == 1:
        return block
    if stride != block:
        return None
    return UNLIMITED if count >= _HUGE else count * block
