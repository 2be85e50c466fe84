"""Look chunks up in manifests: decode few references, or the whole manifest where many are wanted.

A manifest is opened for its first lookup: decompressed, not decoded. Each lookup decodes what it
finds. When lookups have cost as much as decoding the manifest would, it is decoded as a whole. So
it is when it is opened again soon after it had to make room. Decoded manifests take half of the
memory, and finding a chunk in them takes a hundredth of the time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from icevirt.ids import ObjectId8, ObjectId12
from icevirt.model.chunks import ChunkTable, Manifest
from icevirt.repo import layout
from icevirt.repo.cache import Cache
from icevirt.versioning import chunk_tables
from icevirt.wire.manifests.open_manifest import OpenManifest

# what searching costs, in rows of a manifest that is decoded as a whole
_PER_LOOKUP = 4000
_PER_ROW = 10
_DECODED = 40  # bytes of a decoded row and its key, about
_QUICK = 20_000  # references whose order is checked in less than a millisecond


@dataclass(frozen=True, slots=True)
class IndexedTable:
    """A chunk table and what is needed to look things up in it quickly."""

    table: ChunkTable
    rows: chunk_tables.RowFinder

    @property
    def nbytes(self) -> int:
        """Memory held."""
        return chunk_tables.nbytes(self.table) + self.rows.nbytes


type IndexedManifest = dict[ObjectId8, IndexedTable]
type FoundRows = tuple[NDArray[np.int64], ChunkTable]
"""Which of the wanted chunks were found, and a table with a row for each of those."""


@dataclass(slots=True)
class _Searched:
    """An open manifest, and what searching it has cost so far, in rows."""

    manifest: OpenManifest
    cost: int = 0

    def is_worth(self, rows: int) -> bool:
        """Say whether searching for so many rows is cheaper than decoding all."""
        return self.cost + _cost(rows) <= self.manifest.num_chunk_refs


class ManifestLookup:
    """Finds chunks in the manifests of one repository. Safe in threads.

    Args:
        cache: Holds manifests that are decoded.
        searched_bytes: Memory for those that are open and not decoded.
        opened: Opens a manifest; returns None where manifests cannot be searched.
        decoded: Fetches and decodes a manifest.
    """

    def __init__(
        self,
        cache: Cache,
        searched_bytes: int,
        *,
        opened: Callable[[ObjectId12], OpenManifest | None],
        decoded: Callable[[ObjectId12], Manifest],
    ) -> None:
        self._whole = cache
        self._searched = Cache(searched_bytes)
        # manifests that were opened lately, with the memory that they would take when decoded
        self._lately = Cache(cache.limit)
        self._open = opened
        self._decode = decoded

    def whole(self, key: ObjectId12) -> IndexedManifest:
        """Return the tables of a manifest by node id.

        Raises:
            ObjectNotFoundError: Its file is gone.
            FormatError: Its file is damaged, or another manifest's.
        """
        found: IndexedManifest = self._whole.get(("manifest", key), lambda: self._indexed(key))
        return found

    def keep(self, key: ObjectId12, arrays: Mapping[ObjectId8, ChunkTable]) -> None:
        """Keep the tables of a manifest that was just written, as if they had been read."""
        self._whole.put(("manifest", key), *_indexed(arrays))

    def held(self, key: ObjectId12) -> IndexedManifest | None:
        """Return the tables of a manifest if they are in memory."""
        found: IndexedManifest | None = self._whole.find(("manifest", key))
        return found

    def is_at_hand(self, key: ObjectId12, node: ObjectId8, rows: int) -> bool:
        """Say whether `find` looks up so many chunks in memory, in about a millisecond."""
        if self.held(key) is not None:
            return True
        searched: _Searched | None = self._searched.find(key)
        if searched is None or not searched.is_worth(rows):
            return False
        manifest = searched.manifest
        return manifest.num_chunk_refs <= _QUICK or manifest.is_proven(node)

    def find(self, key: ObjectId12, node: ObjectId8, index: NDArray[np.int64]) -> FoundRows:
        """Look chunks of an array up by their indices, shape (k, ndim). Raises as `whole` does."""
        whole = self.held(key)
        if whole is None:
            if (searched := self._to_search(key, len(index))) is not None:
                with layout.naming(layout.manifest(key)):
                    return searched.find(node, index)
            whole = self.whole(key)
        if (indexed := whole.get(node)) is None:
            return np.zeros(0, np.int64), ChunkTable.empty(index.shape[1])
        row = indexed.rows.find(index)
        there = np.flatnonzero(row >= 0)
        return there, indexed.table.take(row[there])

    def _to_search(self, key: ObjectId12, rows: int) -> OpenManifest | None:
        """Return a manifest if searching it for so many rows is the cheaper way."""
        searched: _Searched | None = self._searched.find(key)
        if searched is None and not self._lately.find(key):
            searched = self._searched.get(key, lambda: self._opened(key))
        if searched is None:
            return None
        if not searched.is_worth(rows):
            return None
        searched.cost += _cost(rows)
        return searched.manifest

    def _opened(self, key: ObjectId12) -> tuple[_Searched | None, int]:
        manifest = self._open(key)
        if manifest is None:
            return None, 0
        self._lately.put(key, True, _DECODED * manifest.num_chunk_refs)
        return _Searched(manifest), manifest.nbytes

    def _indexed(self, key: ObjectId12) -> tuple[IndexedManifest, int]:
        searched: _Searched | None = self._searched.find(key)
        if searched is None:
            manifest = self._decode(key)
        else:
            with layout.naming(layout.manifest(key)):
                manifest = searched.manifest.decoded()
            self._searched.drop(key)
        return _indexed(manifest.arrays)


def _cost(rows: int) -> int:
    return _PER_LOOKUP + _PER_ROW * rows


def _indexed(arrays: Mapping[ObjectId8, ChunkTable]) -> tuple[IndexedManifest, int]:
    found = {
        node: IndexedTable(table, chunk_tables.RowFinder.of(table))
        for node, table in arrays.items()
    }
    return found, sum(indexed.nbytes for indexed in found.values())
