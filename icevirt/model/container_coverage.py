"""Check that a repository's virtual chunk containers cover the locations of its references."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from icevirt.model.config.document import VirtualChunkContainer
from icevirt.model.strings import Strings

_ROWS_AT_ONCE = 1 << 14


def prefixes_of(containers: Iterable[VirtualChunkContainer]) -> tuple[str, ...]:
    """Return every beginning of a location that some container covers."""
    found = []
    for container in containers:
        found.append(container.url_prefix)
        if container.name is not None:
            found.append(f"vcc://{container.name}/")
    return tuple(found)


def first_uncovered(urls: Strings, prefixes: Iterable[str]) -> str | None:
    """Return the first location that begins with none of the prefixes, or None."""
    uncovered = np.ones(len(urls), np.bool_)
    for prefix in prefixes:
        rows = np.flatnonzero(uncovered)
        uncovered[rows] = ~begins(urls, rows, prefix.encode())
    return urls[int(uncovered.argmax())] if uncovered.any() else None


def begins(urls: Strings, rows: NDArray[np.int64], prefix: bytes) -> NDArray[np.bool_]:
    """Say of each of the rows whether its location begins with the prefix."""
    size = len(prefix)
    found = urls.lengths[rows] >= size
    if not size or not found.any():
        return found
    beginnings = sliding_window_view(urls.data, size)
    wanted = np.frombuffer(prefix, f"V{size}")
    for start in range(0, len(rows), _ROWS_AT_ONCE):
        part = np.flatnonzero(found[start : start + _ROWS_AT_ONCE]) + start
        found[part] = (beginnings[urls.starts[rows[part]]].view(f"V{size}") == wanted)[:, 0]
    return found
