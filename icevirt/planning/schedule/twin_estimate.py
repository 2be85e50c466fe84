"""Estimate what a map and a time series take, in the chunks at hand and in the ones of a twin.

Pure arithmetic over the grids and the bytes of arrays. The steps are the dimension with most
chunks, as far as nobody says which they are.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

from icevirt.archive.joining import find_fixed_dtype
from icevirt.archive.reports.build import ArraySummary, LayoutCost, ReadCost, TwinAdvice
from icevirt.errors import InvalidInputError
from icevirt.model.twins import path_of_twin

_CHUNK = 1 << 20  # bytes of the values in a chunk of a proposed twin
_STEPS = 365  # in it at most, so that appends write little of it again
_MANY = 100  # requests of a series that are worth a twin
_BETTER = 10  # times fewer requests, at least


def advise(arrays: Iterable[ArraySummary]) -> TwinAdvice | None:
    """Propose the twin that saves most requests of a series; None where none pays."""
    known = [*arrays]
    there = {array.path for array in known}
    pairs = [(path, path_of_twin(path)) for path in there if path_of_twin(path) in there]
    done = {path for pair in pairs for path in pair}
    each = (_advise(array) for array in known if array.path not in done)
    found = [advice for advice in each if advice is not None]
    return max(found, key=lambda each: (each.own.series.requests, each.own.bytes), default=None)


def _advise(array: ArraySummary) -> TwinAdvice | None:
    dtype = find_fixed_dtype(array.data_type)
    edges, names = edges_of(array), array.dimension_names
    grid = [-(-size // max(1, edge)) for size, edge in zip(array.shape, edges, strict=True)]
    total = array.references.bytes_referenced + array.references.bytes_stored
    if dtype is None or len(grid) < 2 or not total or None in names or max(grid) < _MANY:
        return None
    axis = grid.index(max(grid))
    chunks = _propose(array.shape, axis, dtype.itemsize)
    own, twin = (cost_of_layout(array, each, axis) for each in (edges, chunks))
    if twin.series.requests * _BETTER > own.series.requests:
        return None
    lengths = {str(name): edge for name, edge in zip(names, chunks, strict=True)}
    return TwinAdvice(path=array.path, chunks=lengths, own=own, twin=twin)


def price_twins(
    arrays: Iterable[ArraySummary], chunks: Mapping[str, int], growing: Iterable[str] = ()
) -> tuple[TwinAdvice, ...]:
    """Say what reading takes in the chunks at hand, and in those of a twin that a person names.

    Args:
        arrays: Of a dataset; those are priced that have all of the dimensions.
        chunks: Lengths of the twin's chunks, by dimension; -1 means all. Others stay as they are.
        growing: Dimensions along which files lie.

    Raises:
        InvalidInputError: No variable has these dimensions, or a chunk would have no elements.
    """
    known = [*arrays]
    if wrong := {
        name: n for name, n in chunks.items() if type(n) is not int or (n < 1 and n != -1)
    }:
        raise InvalidInputError(
            "a chunk has no elements", do="Pass 1 or more; -1 means all.", found=wrong
        )
    held = (each for each in known if each.references.total and len(each.shape) > 1)
    found = [each for each in held if {*chunks} <= {*each.dimension_names}]
    if not found:
        raise InvalidInputError(
            "no variable of several dimensions has these",
            do="Name dimensions of a variable.",
            found=sorted(chunks),
            dimensions=sorted({str(name) for each in known for name in each.dimension_names}),
        )
    return tuple(_price(each, chunks, growing) for each in found)


def _price(array: ArraySummary, chunks: Mapping[str, int], growing: Iterable[str]) -> TwinAdvice:
    own, names = edges_of(array), array.dimension_names
    sizes = zip(names, own, array.shape, strict=True)
    wanted = ((chunks.get(str(name), edge), size) for name, edge, size in sizes)
    twin = tuple(max(1, size) if edge == -1 else edge for edge, size in wanted)
    axis = steps_of(array, growing)
    return TwinAdvice(
        path=array.path,
        chunks={str(name): edge for name, edge in zip(names, twin, strict=True)},
        own=cost_of_layout(array, own, axis),
        twin=cost_of_layout(array, twin, axis),
    )


def edges_of(array: ArraySummary) -> tuple[int, ...]:
    """Return the lengths of chunks; where they differ, that of the dimension."""
    return tuple(
        edge if isinstance(edge, int) else max(1, size)
        for edge, size in zip(array.chunk_shape, array.shape, strict=True)
    )


def _propose(shape: Sequence[int], axis: int, width: int) -> tuple[int, ...]:
    """Return chunks that are long along an axis, and cut the others evenly."""
    steps = min(shape[axis], _STEPS)
    others = [size for at, size in enumerate(shape) if at != axis]
    share = _CHUNK / max(1, width * steps * math.prod(others))
    part = min(1.0, share) ** (1 / max(1, sum(size > 1 for size in others)))
    return tuple(
        steps if at == axis else max(1, math.floor(size * part)) for at, size in enumerate(shape)
    )


def cost_of_layout(array: ArraySummary, chunks: Sequence[int], axis: int) -> LayoutCost:
    """Return what reading an array takes in chunks of other lengths, which hold as many bytes."""
    counts = array.references
    values = max(1, math.prod(array.shape))
    each = (counts.bytes_referenced + counts.bytes_stored) / values  # bytes of a value
    grid = [-(-size // max(1, edge)) for size, edge in zip(array.shape, chunks, strict=True)]
    of_chunk = each * math.prod(map(min, chunks, map(_at_least_one, array.shape)))
    series = grid[axis]
    maps = math.prod(grid) // max(1, series)
    return LayoutCost(
        chunk_shape=tuple(chunks),
        map=ReadCost(chunks=maps, manifests=1, bytes=round(maps * of_chunk)),
        series=ReadCost(chunks=series, manifests=1, bytes=round(series * of_chunk)),
        bytes=round(each * values),
    )


def _at_least_one(size: int) -> int:
    return max(1, size)


def steps_of(array: ArraySummary, growing: Iterable[str]) -> int:
    """Return the axis of an array's steps: along which it grows, or which has most chunks."""
    names = {*growing}
    grid = [-(-n // max(1, e)) for n, e in zip(array.shape, edges_of(array), strict=True)]
    along = (at for at, name in enumerate(array.dimension_names) if name in names)
    return next(along, grid.index(max(grid)))
