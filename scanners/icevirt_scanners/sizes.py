"""Compute the size of an encoded chunk, where its codecs determine it."""

from __future__ import annotations

from collections.abc import Iterable
from math import prod

import numpy as np
from numpy.typing import NDArray

from icevirt.archive.scanned import ScannedArray
from icevirt.model.json import JSON

_SAME = frozenset({"transpose", "bytes", "endian", "numcodecs.shuffle"})
_CHECKSUMS = frozenset(
    {
        *("crc32c", "numcodecs.crc32c", "numcodecs.crc32", "numcodecs.adler32"),
        *("numcodecs.fletcher32", "numcodecs.jenkins_lookup3"),
    }
)
_CHECKSUM = 4  # bytes, of each


def encoded_size(array: ScannedArray, itemsize: int) -> int | None:
    """Return the bytes of each chunk of an array, None where a codec makes that vary.

    Chunks at the edge of an array are as large as all others.
    """
    added = 0
    for name in map(_name, array.codecs):
        if name in _CHECKSUMS:
            added += _CHECKSUM
        elif name not in _SAME:
            return None
    return prod(array.chunk_shape) * itemsize + added


def wrong_size(lengths: NDArray[np.integer] | Iterable[int], expected: int | None) -> int | None:
    """Return the first length that no chunk can have: none at all, or not ``expected``."""
    held = np.asarray(lengths if isinstance(lengths, np.ndarray) else list(lengths), np.int64)
    bad = held == 0 if expected is None else held != expected
    return int(held[int(np.argmax(bad))]) if bad.any() else None


def _name(codec: JSON) -> str:
    return str(codec.get("name")) if isinstance(codec, dict) else str(codec)
