"""Compresses parts into one zstd frame that begins with bytes which are not compressed.

A manifest holds its own id, and the id is a digest of the manifest. With the id in a block of its
own in front, everything else is compressed first, the digest is taken of the compressed bytes
(a sixth of the work of digesting the payload), and then the id is put in place. So the name of a
manifest covers its very bytes, whatever library and level made them.

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


def compress(parts: Iterable[NDArray[np.uint8]], size: int, level: int) -> bytes:
    """Return one frame of ``size`` bytes that come in parts; none is held beyond its turn."""
    compressor = zstandard.ZstdCompressor(level=level).compressobj(size=size)
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
