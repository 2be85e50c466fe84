"""Hold what a listing says of the objects of a store, as columns: a Zarr store has millions.

A store is one file of an archive. Its checksum is the digest of its listing, by which a change of
any of its objects is noticed. See ``docs/decisions/0076-a-store-is-one-file.md``.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

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
        digest = hashlib.blake2b(digest_size=16)
        for strings in (self.keys, self.etags):
            digest.update(strings.lengths.astype("<i8").tobytes())
            digest.update(np.ascontiguousarray(strings.data))
        for column in (self.sizes, self.times):
            digest.update(column.astype("<i8").tobytes())
        newest = int(self.times.max(initial=0))
        return SourceFile(
            url=url,
            size=int(self.sizes.sum()),
            etag=f"{LISTING}{digest.hexdigest()}",
            last_modified=newest,
        )
