"""Compress and decompress locations one by one with a trained zstd dictionary.

Spec: Manifest.location_dictionary and ChunkRef.compressed_location. Each location is a complete
zstd frame that declares its size. The official reader takes locations of up to 1,024 bytes.
"""

from __future__ import annotations

from math import ceil

import numpy as np
import zstandard
from numpy.typing import NDArray

from icevirt.model.strings import Bytes, Places
from icevirt.wire.flatbuffer.reader import Damage

MAX_LOCATION = 1024
_MAGIC = 0xFD2FB528
MAX_RATIO = 64  # a frame of a location is never shorter than a 64th of the longest
ALWAYS_ALLOWED = 1 << 20  # bytes
_SHORTEST = 6  # magic, descriptor, a byte of size or window
_ID_SIZES = np.array([0, 1, 2, 4])


class Dictionary:
    """A trained dictionary, ready to use."""

    def __init__(self, trained: bytes) -> None:
        self.trained = trained
        try:
            self._dictionary = zstandard.ZstdCompressionDict(
                trained, dict_type=zstandard.DICT_TYPE_FULLDICT
            )
        except (ValueError, zstandard.ZstdError) as error:
            raise Damage(f"not a zstd dictionary: {error}", 0) from None

    @classmethod
    def train(cls, samples: list[bytes], size: int) -> Dictionary | None:
        """Train on samples, always to the same result; None when they do not give a dictionary."""
        total = sum(map(len, samples))
        if not total or min(map(len, samples)) < 1:
            return None
        # as the official client does with short samples
        enough: list[bytes | bytearray | memoryview] = [*samples] * ceil(size / total)
        try:
            return cls(zstandard.train_dictionary(size, enough).as_bytes())
        except zstandard.ZstdError:
            return None

    def decompress(self, frames: Bytes, starts: Places) -> tuple[Bytes, Places]:
        """Return the contents of frames that lie end to end, in the same way. Raises ``Damage``."""
        if len(starts) == 1:
            return np.zeros(0, np.uint8), starts
        content_sizes(frames, starts[:-1], np.diff(starts))
        try:
            reader = zstandard.ZstdDecompressor(dict_data=self._dictionary)
            made = reader.multi_decompress_to_buffer(_segments(frames, starts))
        except zstandard.ZstdError as error:
            raise Damage(f"a compressed location is damaged: {error}", 0) from None
        return _joined(made)

    def compress(self, data: Bytes, starts: Places, level: int) -> tuple[Bytes, Places]:
        """Return a frame for each string; strings and frames lie end to end."""
        if len(starts) == 1:
            return np.zeros(0, np.uint8), starts
        writer = zstandard.ZstdCompressor(level=level, dict_data=self._dictionary)
        return _joined(writer.multi_compress_to_buffer(_segments(data, starts)))


def _segments(data: Bytes, starts: Places) -> zstandard.BufferWithSegments:
    pairs = np.stack([starts[:-1], np.diff(starts)], axis=1).astype("<u8")
    return zstandard.BufferWithSegments(data.tobytes(), pairs.tobytes())


def _joined(made: zstandard.BufferWithSegmentsCollection) -> tuple[Bytes, Places]:
    """Return what the library made, end to end, and where each begins."""
    parts = [made[row].tobytes() for row in range(len(made))]
    return np.frombuffer(b"".join(parts), np.uint8), np.cumsum([0, *map(len, parts)])


def content_sizes(data: Bytes, at: Places, length: Places) -> NDArray[np.int64]:
    """Return the size that the header of every frame declares, a possible one. Raises ``Damage``.

    The decoder would take the memory that a header asks for, so it is read here first.
    """
    size = _declared(data, at, length)
    if int(size.max()) > MAX_LOCATION or int(size.min()) < 1:
        raise Damage("a location of an impossible length", int(np.argmax(size)))
    if int(size.sum()) > max(ALWAYS_ALLOWED, MAX_RATIO * int(length.sum())):
        raise Damage("locations decompress to an impossible size", 0)
    return size


def _declared(frames: Bytes, at: Places, length: Places) -> NDArray[np.int64]:
    if int(length.min()) < _SHORTEST:
        raise Damage("a compressed location is cut short", int(np.argmin(length)))
    magic = _little_endian(frames, at, 4)
    descriptor = frames[at + 4].astype(np.int64)
    single = descriptor >> 5 & 1
    flag = descriptor >> 6
    width = np.where(flag == 0, single, 1 << flag)  # 0: no size is declared
    place = at + 5 + (1 - single) + _ID_SIZES[descriptor & 3]
    if bool((magic != _MAGIC).any() or (width == 0).any() or (place + width > at + length).any()):
        raise Damage("a compressed location is not a frame with a declared size", 0)
    size = np.full(len(at), MAX_LOCATION + 1)  # wide sizes are of no location
    for size_of, base in ((1, 0), (2, 256), (4, 0)):
        rows = np.flatnonzero(width == size_of)
        size[rows] = _little_endian(frames, place[rows], size_of) + base
    return size


def _little_endian(data: Bytes, at: Places, width: int) -> NDArray[np.int64]:
    found = np.zeros(len(at), np.int64)
    for byte in range(width):
        found |= data[at + byte].astype(np.int64) << 8 * byte
    return found
