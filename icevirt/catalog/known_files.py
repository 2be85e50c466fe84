"""Look files up in the list of a dataset's files without reading the list.

Beside each piece of the list lies an index: for each file a hash of its URL and one of all that is
listed of it, sorted. Hashes are spread evenly, so a few KiB around the place where one would be
hold it or show that it is not there. A file whose URL is there and whose other hash is not has to
be looked up in the list itself.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from enum import Enum

import numpy as np
from numpy.typing import NDArray

from icevirt.archive.scanned import SourceFile
from icevirt.archive.sources import SourceFiles
from icevirt.catalog.file_hashes import HASHES, hashes_of
from icevirt.errors import FormatError
from icevirt.storage.protocol import Storage

_FOLDER = "known"
_WHOLE = 1 << 14  # entries that are read at once
_SPREAD = 8  # standard deviations that a hash lies from its place at most
_AT_ONCE = 16  # requests


class Known(Enum):
    """What an index says of a file."""

    no = "no"
    yes = "yes"
    perhaps_changed = "perhaps changed"


def index_path(piece: str) -> str:
    """Return where the index of a piece lies."""
    return f"{_FOLDER}/{piece}"


def index_of(files: Iterable[SourceFile]) -> bytes:
    """Return the index of a piece of the list."""
    raw: bytes = np.sort(hashes_of(SourceFiles(files)), order="url").tobytes()
    return raw


def look_up(
    storage: Storage, pieces: Sequence[tuple[str, int]], files: Sequence[SourceFile]
) -> list[Known]:
    """Say which files are in the list.

    Args:
        storage: The folder of icevirt in a repository.
        pieces: Of the list: the name of each, and how many files it holds.
        files: Those that are looked for.

    Raises:
        ObjectNotFoundError: A piece has no index.
        FormatError: An index is damaged.
    """
    wanted = hashes_of(SourceFiles(files))
    listed, same = np.zeros(len(files), np.bool_), np.zeros(len(files), np.bool_)
    ranges = [
        (piece, count, low, high)
        for piece, count in pieces
        for low, high in _ranges(count, wanted["url"])
    ]
    with ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="icevirt-known") as pool:
        read = pool.map(lambda each: _read(storage, *each), ranges)
        for held in read:
            first = np.searchsorted(held["url"], wanted["url"], side="left")
            last = np.searchsorted(held["url"], wanted["url"], side="right")
            listed |= last > first
            same |= (last > first) & np.isin(wanted["state"], held["state"])
    return [
        Known.no if not there else Known.yes if alike else Known.perhaps_changed
        for there, alike in zip(listed.tolist(), same.tolist(), strict=True)
    ]


def _ranges(count: int, urls: NDArray[np.uint64]) -> list[tuple[int, int]]:
    """Return which entries of an index hold some URLs if any do: few ranges, or all of it."""
    around = _SPREAD * math.isqrt(count) + _SPREAD
    if count <= _WHOLE or len(urls) * 2 * around >= count:
        return [(0, count)]
    places = sorted(int(url) * count >> 64 for url in urls.tolist())
    found: list[tuple[int, int]] = []
    for place in places:
        low, high = max(0, place - around), min(count, place + around)
        if found and low <= found[-1][1]:
            found[-1] = (found[-1][0], high)
        else:
            found.append((low, high))
    return found


def _read(storage: Storage, piece: str, count: int, low: int, high: int) -> NDArray[np.void]:
    size = HASHES.itemsize
    raw = storage.get_range(index_path(piece), offset=low * size, length=(high - low) * size)
    held = np.frombuffer(raw, HASHES)
    if (held["url"][1:] < held["url"][:-1]).any():
        raise FormatError(
            "the index of a list of files is damaged",
            do=f"Delete {index_path(piece)}; files are then looked up in the list itself.",
            path=index_path(piece),
            files=count,
        )
    return held
