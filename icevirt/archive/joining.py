"""Decide how small and uncompressed arrays join along a dimension, for scanners and plans."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from enum import IntEnum, IntFlag
from functools import lru_cache
from math import isqrt, prod
from typing import Any

import numpy as np

from icevirt.model.json import JSON

STEP = 512  # bytes of a step along the concatenated dimension that is worth a chunk of its own
LONGEST_RUN = 16 * 1024 * 1024  # bytes of a piece into which scans split uncompressed blocks
SMALL = 1024 * 1024  # bytes up to which values that join badly are stored, and join at any length
_FEW = 4  # values at a step of the concatenated dimension, like the bounds of a time or a place
_FAR = 64  # how many times smaller than asked pieces may get if there is no better divisor
_POINTER = 8  # bytes of a value of variable length


class Fact(IntFlag):
    """Kinds of facts about an array beside its description and its references."""

    none = 0
    digest = 1  # of data type, shape and values
    labels = 2  # values that the plan looks at
    values = 4  # all values, stored as one chunk


class Form(IntEnum):
    """How the references of an array in a file are made of what the catalog holds."""

    recorded = 0  # they are there
    cut = 1  # runs are cut along the first axis
    beside = 2  # its values lie beside


def itemsize_of(data_type: JSON) -> int:
    """Return the bytes of a value in memory, given its zarr data type."""
    if isinstance(data_type, str):
        return _itemsize(data_type)
    if isinstance(data_type, Mapping):
        settings = data_type.get("configuration")
        settings = settings if isinstance(settings, Mapping) else {}
        length, fields = settings.get("length_bytes"), settings.get("fields")
        if isinstance(length, int):
            return length
        if isinstance(fields, list):
            return sum(itemsize_of(each["data_type"]) for each in fields if isinstance(each, dict))
        return _POINTER
    return _itemsize(str(data_type))


NUMBERS = frozenset(
    (
        *("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
        *("float32", "float64"),
    )
)
"""Data types whose values can be stored anew."""


def find_fixed_dtype(data_type: object) -> np.dtype[Any] | None:
    """Return the dtype of plain numbers, and of byte strings of one length; None for all else."""
    if isinstance(data_type, str):
        return np.dtype(data_type) if data_type in NUMBERS else None
    if isinstance(data_type, Mapping) and data_type.get("name") == "null_terminated_bytes":
        return np.dtype(f"S{itemsize_of(data_type)}")
    return None


def is_character(data_type: object) -> bool:
    """Say whether values are single characters."""
    if isinstance(data_type, str):
        return False  # numbers, or strings of any length
    dtype = find_fixed_dtype(data_type)
    return dtype is not None and dtype.str == "|S1"


@lru_cache
def _itemsize(name: str) -> int:
    try:
        return np.dtype(name).itemsize or _POINTER
    except TypeError:
        return _POINTER


def cut_along(
    chunk: tuple[int, ...], axes: tuple[int, ...], itemsize: int, most: int = 0
) -> tuple[int, ...]:
    """Return the chunks of contiguous values, cut to single steps of a joined first axis.

    Steps of less than `STEP` bytes stay together. With ``most``, whole steps of the first axis stay
    together up to this many bytes, joined or not. Chunks of contiguous values are runs of the file,
    so that these are runs too.
    """
    step = prod(chunk[1:]) * itemsize
    if most and chunk:
        return (find_edge(chunk[0], most // max(step, 1)), *chunk[1:])
    return (1, *chunk[1:]) if 0 in axes and step >= STEP else chunk


def find_edge(length: int, most: int) -> int:
    """Return the largest divisor of ``length`` that is at most ``most``.

    Where that is far below, and another divisor is not as far above, return that.
    """
    if length <= most:
        return length
    most = max(most, 1)
    low = np.arange(1, min(isqrt(length), most) + 1)
    low = low[length % low == 0]
    divisors = np.concatenate([low, length // low])
    below = int(divisors[divisors <= most].max(initial=1))
    above = int(divisors[divisors > most].min(initial=length))
    return below if below * _FAR >= most or most * most <= above * below else above


def joins_badly(
    shape: tuple[int, ...],
    chunk: tuple[int, ...],
    axis: int,
    itemsize: int,
    *,
    contiguous: bool,
    padded: bool = False,
) -> bool:
    """Say whether a small array has chunks that would fix its length along a joined axis.

    Along a ``padded`` axis lengths differ between files, and so do chunks as long as the file.
    """
    nbytes = prod(shape) * itemsize
    if nbytes > SMALL:
        return False
    if padded and chunk[axis] >= shape[axis]:
        return True
    if contiguous:
        return shape[axis] > 1 and cut_along(chunk, (axis,), itemsize)[axis] > 1
    # where one chunk holds all few values, the library cut it by the length of the file: months
    # differ
    return has_few(shape, axis) or bool(shape[axis] % chunk[axis])


def has_few(shape: tuple[int, ...], axis: int) -> bool:
    """Say whether a reference to a step along an axis takes more room than its values do."""
    return prod(shape) <= _FEW * shape[axis]


def dimensions_of_texts(arrays: Iterable[tuple[Sequence[str | None], bool]]) -> frozenset[str]:
    """Return the dimensions that are the last one of characters, and that nothing else has.

    Args:
        arrays: Dimensions of each, and whether its values are characters.
    """
    texts: set[str | None] = set()
    others: set[str | None] = {None}
    for names, is_text in arrays:
        if names and is_text:
            texts.add(names[-1])
        others.update(names[:-1] if is_text else names)
    return frozenset(name for name in texts - others if name is not None)
