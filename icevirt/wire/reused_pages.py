"""Allocate large arrays of bytes again and again without new pages of memory.

The kernel fills each new page with zeros, which takes a fifth of decompressing a manifest into it.
So the memory of the last large array that nothing refers to any more is kept for the next.
"""

from __future__ import annotations

import weakref
from collections import deque

import numpy as np
from numpy.typing import NDArray

_LARGE = 4 * 1024 * 1024  # bytes; the allocator keeps less by itself
_MOST = 64 * 1024 * 1024  # bytes that are kept

_spare: deque[NDArray[np.uint8]] = deque(maxlen=1)


def empty_bytes(size: int) -> NDArray[np.uint8]:
    """Return an array of so many bytes, of any content."""
    if not _LARGE <= size <= _MOST:
        return np.empty(size, np.uint8)
    try:
        owner = _spare.pop()
    except IndexError:
        owner = np.empty(size, np.uint8)
    if not size <= len(owner) <= 2 * size:
        owner = np.empty(size, np.uint8)
    # every view of it refers to the array, as its memory belongs to no array that numpy knows
    made = np.frombuffer(memoryview(owner)[:size], np.uint8)
    weakref.finalize(made, _spare.append, owner).atexit = False
    return made
