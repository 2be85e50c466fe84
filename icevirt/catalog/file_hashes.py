"""Hash what identifies files, and find files by that, without objects per file.

A file has two hashes: of its URL, and of all that is listed of it. Both together have 128 bits, so
that files of equal hashes are one file. They are the same in all processes and versions.
"""

from __future__ import annotations

from hashlib import blake2b
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from icevirt.archive.sources import SourceFiles
from icevirt.model.strings import FoldingStrings, Strings

HASHES = np.dtype([("url", "<u8"), ("state", "<u8")])
"""The hashes of a file."""

_BYTES = 8  # of a hash


def hashes_of(files: SourceFiles) -> NDArray[np.void]:
    """Return the hashes of files, shape (n,), of `HASHES`."""
    return hashes_by_column(files.urls, files.etags, files.sizes, files.times)


def hashes_by_column(
    urls: Strings, etags: Strings, sizes: NDArray[np.int64], times: NDArray[np.int64]
) -> NDArray[np.void]:
    """Return the hashes of files whose facts are in columns, shape (n,), of `HASHES`."""
    found = np.empty(len(urls), HASHES)
    step = FoldingStrings.block_rows
    for low in range(0, len(urls), step):
        some = np.arange(low, min(low + step, len(urls)))
        url, etag = _each(urls[some]), _each(etags[some])
        held = zip(sizes[some].tolist(), times[some].tolist(), etag, url, strict=True)
        found["url"][some] = _hash(url)
        found["state"][some] = _hash([b"%d %d %b %b" % facts for facts in held])
    return found


def hash_of_url(url: str) -> int:
    """Return the first hash of a file."""
    return int.from_bytes(blake2b(url.encode(), digest_size=_BYTES).digest())


def _hash(texts: list[bytes]) -> NDArray[np.uint64]:
    return np.frombuffer(b"".join([blake2b(e, digest_size=_BYTES).digest() for e in texts]), ">u8")


def _each(texts: Strings) -> list[bytes]:
    raw = texts.data.tobytes()
    return [raw[begin:end] for begin, end in pairwise(texts.starts.tolist())]


class WantedFiles:
    """Files that are looked for, sorted by the hash of their URL.

    Args:
        urls: The hash of the URL of each, shape (n,).
        states: Of all that is listed of each; None: only the URL counts.
    """

    def __init__(self, urls: NDArray[np.uint64], states: NDArray[np.uint64] | None = None) -> None:
        self._order = np.argsort(urls).astype(np.int32)
        self.urls = urls[self._order]
        """The hashes of their URLs, ascending."""
        self._states = None if states is None else states[self._order]

    @classmethod
    def of(cls, files: SourceFiles) -> WantedFiles:
        """Look for files just as they are listed."""
        hashes = hashes_of(files)
        return cls(hashes["url"], hashes["state"])

    def among(self, rows: NDArray[np.void]) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
        """Return the files that are among the rows, and which of these each one is.

        Args:
            rows: With the fields of `HASHES`, in any order.
        """
        urls = np.ascontiguousarray(rows["url"])
        low = np.searchsorted(self.urls, urls, side="left")
        found = np.flatnonzero(low < len(self.urls))
        found = found[self.urls[low[found]] == urls[found]]
        low = low[found]
        count = np.searchsorted(self.urls, urls[found], side="right") - low
        found = np.repeat(found, count)
        at = np.arange(len(found)) + np.repeat(low - np.cumsum(count) + count, count)
        if self._states is not None:
            same = self._states[at] == rows["state"][found]
            at, found = at[same], found[same]
        return self._order[at], found
