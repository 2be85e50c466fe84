"""Read keys of chunks as columns: ``c/0/3``, ``c.0.3``, ``0.3`` and ``0/3``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from icevirt.model.strings import Strings
from icevirt.model.zarr_v2 import NoEquivalentError

_DIGITS = 10  # of the greatest index
_SEPARATORS = (".", "/")
_SCALARS = {"c": "c", "": "0"}  # the key of the chunk of an array without dimensions


@dataclass(frozen=True, slots=True, kw_only=True)
class ChunkKeys:
    """How an array spells the keys of its chunks."""

    separator: str
    begin: str = ""  # "c" before the first index

    @classmethod
    def of_v2(cls, document: Mapping[str, Any]) -> ChunkKeys:
        """Return what a ``.zarray`` says. Raises `NoEquivalentError`."""
        return cls(separator=_check(document.get("dimension_separator", ".")))

    @classmethod
    def of_v3(cls, document: Mapping[str, Any]) -> ChunkKeys:
        """Return what a ``zarr.json`` says. Raises `NoEquivalentError`."""
        given = document["chunk_key_encoding"]
        name = given if isinstance(given, str) else given["name"]
        settings = {} if isinstance(given, str) else given.get("configuration") or {}
        if name == "default":
            return cls(separator=_check(settings.get("separator", "/")), begin="c")
        if name == "v2":
            return cls(separator=_check(settings.get("separator", ".")))
        raise NoEquivalentError(f"the chunk key encoding {name!r}")

    def read(self, keys: Strings, ndim: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return which keys are those of chunks, and the index of each of these.

        Args:
            keys: Of objects, below the array.
            ndim: Dimensions of the array.
        """
        if not ndim:
            scalar = _SCALARS[self.begin].encode()
            same = (keys.lengths == len(scalar)) & keys.begin_with(scalar)
            rows = np.flatnonzero(same)
            return rows, np.zeros((len(rows), 0), np.int64)
        prefix = (self.begin + self.separator).encode() if self.begin else b""
        rows = np.flatnonzero(keys.begin_with(prefix))
        numbers = Strings(*_behind(keys[rows], len(prefix)))
        good = np.flatnonzero(_are_indices(numbers, ndim, ord(self.separator)))
        return rows[good], _values(numbers[good], ord(self.separator)).reshape(len(good), ndim)


def _check(separator: Any) -> str:
    if separator not in _SEPARATORS:
        raise NoEquivalentError(f"the separator {separator!r} of chunk keys")
    return str(separator)


def _behind(keys: Strings, size: int) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Return texts without their first bytes."""
    if not size or not len(keys):
        return keys.data, keys.starts
    kept = np.ones(len(keys.data), np.bool_)
    for at in range(size):
        kept[keys.starts[:-1] + at] = False
    return keys.data[kept], keys.starts - size * np.arange(len(keys) + 1)


def _are_indices(keys: Strings, ndim: int, separator: int) -> NDArray[np.bool_]:
    """Say which texts are so many whole numbers as Zarr spells them, without leading zeros."""
    data, filled = keys.data, keys.lengths > 0
    is_digit, is_cut = (data >= ord("0")) & (data <= ord("9")), data == separator
    begins = np.zeros(len(data) + 1, np.bool_)  # of a number, or of the next text
    begins[1:] = np.append(is_cut[:-1], True) if len(data) else False
    begins[keys.starts] = True
    wrong = ~(is_digit | is_cut) | (begins[:-1] & is_cut)  # nothing before a separator
    ends = keys.starts[1:][filled] - 1
    wrong[ends] |= is_cut[ends]
    if len(data):
        first_of_two = begins[:-1] & ~begins[1:]
        first_of_two[:-1] &= is_digit[1:]
        wrong |= first_of_two & (data == ord("0"))
    at = np.flatnonzero(begins)
    long = np.diff(at) > _DIGITS + 1  # with its separator
    wrong[at[:-1][long]] = True
    good: NDArray[np.bool_] = filled & (_count(wrong, keys) == 0)
    good &= _count(is_cut, keys) == ndim - 1
    return good


def _count(marked: NDArray[np.bool_], keys: Strings) -> NDArray[np.int64]:
    done = np.zeros(len(marked) + 1, np.int64)
    np.cumsum(marked, out=done[1:])
    return done[keys.starts[1:]] - done[keys.starts[:-1]]


def _values(keys: Strings, separator: int) -> NDArray[np.int64]:
    """Return all numbers in texts that hold nothing else."""
    data = keys.data
    if not len(data):
        return np.zeros(0, np.int64)
    is_cut = data == separator
    begins = np.zeros(len(data), np.bool_)
    begins[keys.starts[:-1]] = True
    begins[1:] |= is_cut[:-1]
    at = np.flatnonzero(begins)
    ends = np.append(at[1:], len(data))
    ends -= is_cut[ends - 1]
    power = np.repeat(ends, np.diff(np.append(at, len(data)))) - 1 - np.arange(len(data))
    digits = np.where(is_cut, 0, data.astype(np.int64) - ord("0"))
    return np.add.reduceat(digits * 10 ** np.maximum(power, 0), at)
