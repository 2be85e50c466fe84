"""Compute index ranges of arrays: the elements of a chunk, and their text in reports."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from icevirt.access.store.arrays import open_array
from icevirt.errors import FormatError
from icevirt.repo.commits.validation import any_grid
from icevirt.repo.session import Session

type Box = tuple[slice, ...]


def bounds(held: Any) -> list[NDArray[np.int64]]:
    """Return where chunks of a zarr array begin along each axis, and where the last one ends."""
    try:
        return [
            np.minimum(np.arange(-(-length // edge) + 1) * edge, length)
            for length, edge in zip(held.shape, held.chunks, strict=True)
        ]
    except NotImplementedError:  # their lengths differ
        return [np.cumsum([0, *sizes]) for sizes in held.read_chunk_sizes]


def box_of(held: Any, first: Sequence[int], last: Sequence[int]) -> Box:
    """Return the elements of the chunks from one index to another, both included."""
    return tuple(
        slice(int(edges[begin]), int(edges[end + 1]))
        for begin, end, edges in zip(first, last, bounds(held), strict=True)
    )


def describe_box(box: Box) -> str:
    """Return a box as text, like ``[3:4, 0:330]``."""
    return "[" + ", ".join(f"{part.start}:{part.stop}" for part in box) + "]"


def region_of(session: Session, path: str, indexes: NDArray[Any]) -> str:
    """Return the smallest box of an array around some chunks, as text.

    Args:
        session: The version of the repository.
        path: Path of the array.
        indexes: Of the chunks, ``(n, ndim)``.
    """
    with any_grid():
        try:
            held = open_array(session, path)
        except FormatError:
            return "[?]"  # what is reported of the chunks says more
        return describe_box(box_of(held, indexes.min(0).tolist(), indexes.max(0).tolist()))


def names_of(held: Any) -> tuple[str | None, ...]:
    """Return the names of dimensions that have one."""
    return tuple(name for name in dimensions_of(held) if name is not None)


def dimensions_of(held: Any) -> tuple[str | None, ...]:
    """Return the names of all dimensions, as far as the metadata goes."""
    return tuple(held.metadata.dimension_names or ())


def box_at(index: Sequence[int], edges: Sequence[int], shape: Sequence[int]) -> Box:
    """Return the elements of a chunk of a file."""
    return tuple(
        slice(number * edge, min((number + 1) * edge, length))
        for number, edge, length in zip(index, edges, shape, strict=True)
    )


def length_of(part: slice) -> int:
    """Return how many elements there are."""
    return int(part.stop - part.start)
