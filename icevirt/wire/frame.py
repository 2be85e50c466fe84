"""Compress parts into one zstd frame that begins with uncompressed bytes.

A manifest holds its own id, and the id is a digest of the manifest. The id lies in a block of its
own in front: everything else is compressed first, the compressed bytes are digested (a sixth of the
work of digesting the payload), and then the id is put in place. So the name of a manifest covers
its very bytes, whichever library and level made them.

RFC 8878: 3.1.1.1 frame header, 3.1.1.2 blocks. Distances to earlier bytes count backwards, so
blocks mean the same behind one more block.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import zstandard
from numpy.typing import NDArray

_MAGIC_SIZE = 4
_SINGLE_SEGMENT = 1 << 5
_EIGHT_BYTE_SIZE = 3 << 6
_SIZE_WIDTHS = (1, 2, 4, 8)  # a single segment always tells its size
_SIZE_LIMITS = (256, 65_536 + 256, 0xFFFFFFFF)  # from which zstd takes the next width


def compress(parts: Iterable[NDArray[np.uint8]], size: int, level: int, *, checksum: bool) -> bytes:
    """Return one frame of ``size`` bytes that come in parts; none is held beyond its turn.

    Every decoder of zstd compares a checksum. `with_raw_start` needs a frame without one.
    """
    compressor = zstandard.ZstdCompressor(level=level, write_checksum=checksum).compressobj(
        size=size
    )
    made = [compressor.compress(memoryview(part)) for part in parts]
    return b"".join([*made, compressor.flush()])


def with_raw_start(head: bytes, start: bytes, frame: bytes) -> bytes:
    """Return ``head`` and a frame: ``start``, in a raw block, and then the content of ``frame``."""
    descriptor = frame[_MAGIC_SIZE]
    single = descriptor & _SINGLE_SEGMENT
    # without a window descriptor, the window is the whole content
    window = b"" if single else frame[_MAGIC_SIZE + 1 : _MAGIC_SIZE + 2]
    blocks = _MAGIC_SIZE + 1 + len(window) + _SIZE_WIDTHS[descriptor >> 6]
    size = zstandard.frame_content_size(frame) + len(start)
    return b"".join(
        (
            head,
            frame[:_MAGIC_SIZE],
            bytes((_EIGHT_BYTE_SIZE | single,)),
            window,
            size.to_bytes(8, "little"),
            (len(start) << 3).to_bytes(3, "little"),  # not the last block, raw
            start,
            memoryview(frame)[blocks:],
        )
    )


def without_raw_start(file: bytes, head: int) -> tuple[bytes, bytes] | None:
    """Undo `with_raw_start`, given the size of its ``head``: return ``start`` and ``frame``.

    None for a frame that it did not make.
    """
    data = memoryview(file)[head:]
    if len(data) < _MAGIC_SIZE + 1 or data[_MAGIC_SIZE] & ~_SINGLE_SEGMENT != _EIGHT_BYTE_SIZE:
        return None
    single = data[_MAGIC_SIZE] & _SINGLE_SEGMENT
    window = b"" if single else bytes(data[_MAGIC_SIZE + 1 : _MAGIC_SIZE + 2])
    at = _MAGIC_SIZE + 1 + len(window)
    block = int.from_bytes(data[at + 8 : at + 11], "little")
    length = block >> 3
    if block & 0b111 or at + 11 + length > len(data):  # the last block, or none of plain bytes
        return None
    size = int.from_bytes(data[at : at + 8], "little") - length
    if size < 0:
        return None
    code = sum(size >= limit for limit in _SIZE_LIMITS)
    told = (size - 256 if code == 1 else size).to_bytes(_SIZE_WIDTHS[code], "little")
    descriptor = bytes((code << 6 | single,))
    start = bytes(data[at + 11 : at + 11 + length])
    magic = bytes(data[:_MAGIC_SIZE])
    size_field = told if code or single else b""
    return start, b"".join((magic, descriptor, window, size_field, data[at + 11 + length :]))
