"""Hold columns of object ids at 12 bytes each, without Python objects."""

from __future__ import annotations

from collections.abc import Collection, Iterable

import numpy as np
from numpy.typing import NDArray

from icevirt.ids import ALPHABET, ObjectId12

ID = np.dtype("V12")
_LETTERS = 20  # of the name of an id
_SPARE = _LETTERS * 5 - ID.itemsize * 8  # bits
_FOREIGN = 255

_VALUES = np.full(256, _FOREIGN, np.uint8)
for _value, _letter in enumerate(ALPHABET):
    _VALUES[ord(_letter)] = _value


def column(ids: Iterable[bytes]) -> NDArray[np.void]:
    """Return ids as a column, in their order."""
    return np.frombuffer(b"".join(ids), ID)


def of_rows(ids: NDArray[np.uint8]) -> NDArray[np.void]:
    """Return ids of shape (n, 12) as a column."""
    return np.ascontiguousarray(ids).view(ID).reshape(-1)


def of_names(names: Collection[str]) -> tuple[NDArray[np.void], NDArray[np.bool_]]:
    """Return the ids of those texts that are names of ids, and which texts are."""
    there = np.array([len(name) == _LETTERS and name.isascii() for name in names], np.bool_)
    text = "".join(name for name, is_name in zip(names, there, strict=True) if is_name)
    values = _VALUES[np.frombuffer(text.encode(), np.uint8)].reshape(-1, _LETTERS)
    bits = np.unpackbits(values[:, :, None], axis=2)[:, :, 3:].reshape(-1, _LETTERS * 5)
    real = (values != _FOREIGN).all(axis=1) & ~bits[:, -_SPARE:].any(axis=1)
    there[there] = real
    return of_rows(np.packbits(bits[real, :-_SPARE], axis=1)), there


def places[T: np.generic](ascending: NDArray[T], wanted: NDArray[T]) -> NDArray[np.int64]:
    """Return the position of each value in an ascending column, -1 where there is none."""
    if not len(ascending):
        return np.full(len(wanted), -1, np.int64)
    at = np.minimum(np.searchsorted(ascending, wanted), len(ascending) - 1)
    return np.where(ascending[at] == wanted, at, -1)


def id_at(ids: NDArray[np.void], row: int) -> ObjectId12:
    """Return one id of a column."""
    return ObjectId12(ids[row].tobytes())
