"""Hold what a listing says of the objects of a store, as columns: a Zarr store has millions.

A store is one file of an archive. Its checksum is the digest of its listing, by which a change of
any of its objects is noticed. See ``docs/decisions/0076-a-store-is-one-file.md``.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from icevirt.archive.sources import LISTING, SourceFile
from icevirt.model.strings import Strings


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreObjects:
    """The objects below a folder; those below a folder of it follow one another."""

    keys: Strings  # (n,) paths below the folder
    sizes: NDArray[np.int64]  # (n,) bytes
    etags: Strings  # (n,) "" where there is none
    times: NDArray[np.int64]  # (n,) nanoseconds since 1970, 0 unknown

    def __len__(self) -> int:
        return len(self.sizes)

    @classmethod
    def join(cls, pages: Sequence[StoreObjects]) -> StoreObjects:
        """Return the objects of several pages, one behind the other."""
        none = np.zeros(0, np.int64)
        return cls(
            keys=Strings.join([page.keys for page in pages]),
            sizes=np.concatenate([none, *(page.sizes for page in pages)]),
            etags=Strings.join([page.etags for page in pages]),
            times=np.concatenate([none, *(page.times for page in pages)]),
        )

    def take(self, rows: Sequence[int]) -> StoreObjects:
        """Return some of the objects, in this order."""
        some = np.array(rows, np.int64)
        return StoreObjects(
            keys=self.keys[some],
            sizes=self.sizes[some],
            etags=self.etags[some],
            times=self.times[some],
        )

    def find(self, folder: str, near: int) -> tuple[int, int]:
        """Return the first row below a folder and the one behind the last, given one of them."""
        prefix = f"{folder}/" if folder else ""
        return self._edge(prefix, near, -1), self._edge(prefix, near, 1) + 1

    def _edge(self, prefix: str, near: int, step: int) -> int:
        """Return the last row with a prefix in one direction, by longer and longer steps."""
        inside, way, outside = near, 1, -1 if step < 0 else len(self)
        while way:
            row = inside + step * way
            if (row - outside) * step < 0 and self.keys[row].startswith(prefix):
                inside, way = row, 2 * way
                continue
            if (row - outside) * step < 0:
                outside = row
            way = (outside - inside) * step // 2
        return inside

    def describe(self, url: str) -> SourceFile:
        """Return the store as a file, with the digest of this listing; ``url`` stands for it."""
        digest = ListingDigest()
        digest.add(self)
        return digest.describe(url)


class ListingDigest:
    """Computes the digest of a listing from its pages, without holding them.

    The digest does not depend on where pages end.
    """

    def __init__(self) -> None:
        self._columns = [hashlib.blake2b(digest_size=16) for _ in range(6)]
        self._size = self._newest = 0
        self.count = 0  # objects

    def add(self, page: StoreObjects) -> None:
        """Add the next objects."""
        columns: list[NDArray[Any]] = [page.sizes, page.times]
        for strings in (page.keys, page.etags):
            columns += [strings.lengths, strings.data]
        for digest, column in zip(self._columns, columns, strict=True):
            little = column.astype(column.dtype.newbyteorder("<"), copy=False)
            digest.update(np.ascontiguousarray(little))
        self._size += int(page.sizes.sum())
        self._newest = max(self._newest, int(page.times.max(initial=0)))
        self.count += len(page)

    def describe(self, url: str) -> SourceFile:
        """Return the store as a file; ``url`` stands for it."""
        whole = hashlib.blake2b(b"".join(e.digest() for e in self._columns), digest_size=16)
        return SourceFile(
            url=url,
            size=self._size,
            etag=f"{LISTING}{whole.hexdigest()}",
            last_modified=self._newest,
        )
