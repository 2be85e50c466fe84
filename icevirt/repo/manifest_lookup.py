"""Look chunks up in manifests: decode few references, or the whole manifest where many are wanted.

A manifest is opened for its first lookup: decompressed, not decoded. When lookups have cost as much
as decoding it would, or it had to make room and is wanted again, it is decoded as a whole: finding
a chunk takes a hundredth of the time then.
"""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping
from typing import Any, NamedTuple
from weakref import WeakSet

import numpy as np
from numpy.typing import NDArray

from icevirt.ids import ObjectId8, ObjectId12
from icevirt.model.chunks import ChunkTable, Manifest
from icevirt.repo import layout
from icevirt.versioning import chunk_tables
from icevirt.wire.manifests.open_manifest import OpenManifest

_all: WeakSet[Cache] = WeakSet()


class Cache:
    """The most recently used values, up to ``limit`` bytes; the newest is always kept.

    A value that several threads request at once is made once. A forked child starts with an empty
    cache: a lock that another thread held would stay locked there forever.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.clear()
        _all.add(self)

    def clear(self) -> None:
        """Forget everything, also which threads wait."""
        self._lock = threading.Lock()
        self._values: OrderedDict[Hashable, tuple[Any, int]] = OrderedDict()
        self._making: dict[Hashable, threading.Lock] = {}
        self._held = 0

    def get[T](self, key: Hashable, make: Callable[[], tuple[T, int]]) -> T:
        """Return the value of ``key``; ``make`` returns it with its size where it is missing."""
        found: T | None = self.find(key)
        if found is not None:
            return found
        with self._lock:
            making = self._making.setdefault(key, threading.Lock())
        with making:
            found = self.find(key)
            if found is None:
                try:
                    found, size = make()
                    self.put(key, found, size)
                finally:
                    with self._lock:
                        self._making.pop(key, None)
            return found

    def put(self, key: Hashable, value: object, size: int) -> None:
        """Keep a value and let the least recently used ones go."""
        with self._lock:
            _, before = self._values.pop(key, (None, 0))
            self._values[key] = (value, size)
            self._held += size - before
            while self._held > self.limit and len(self._values) > 1:
                _, (_, gone) = self._values.popitem(last=False)
                self._held -= gone

    def drop(self, key: Hashable) -> None:
        """Let a value go, if it is there."""
        with self._lock:
            self._held -= self._values.pop(key, (None, 0))[1]

    def find(self, key: Hashable) -> Any:
        """Return the value of ``key``, which counts as a use; None where it is missing."""
        with self._lock:
            if key not in self._values:
                return None
            self._values.move_to_end(key)
            return self._values[key][0]


def _forget_in_child() -> None:
    for cache in list(_all):
        cache.clear()


os.register_at_fork(after_in_child=_forget_in_child)

# what searching costs, in rows of a manifest that is decoded as a whole
_PER_LOOKUP = 4000
_PER_ROW = 10
_PER_TABLE = 2000  # of one that is decoded
_OF_WRITTEN = 8  # what writers keep is this part of what is kept of decoded manifests
_DECODED = 40  # bytes of a decoded row and its key, about
_QUICK = 20_000  # references whose order is checked in less than a millisecond


class IndexedTable(NamedTuple):
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


class _Searched:
    """An open manifest, and what searching it has cost so far, in rows."""

    def __init__(self, manifest: OpenManifest) -> None:
        self.manifest = manifest
        self.cost = 0

    def is_worth(self, rows: int) -> bool:
        """Say whether searching for so many rows is cheaper than decoding all."""
        decoding = self.manifest.num_chunk_refs + _PER_TABLE * self.manifest.num_arrays
        return self.cost + _cost(rows) <= decoding


class ManifestLookup:
    """Finds chunks in the manifests of one repository. Safe in threads.

    ``cache`` holds manifests that are decoded, ``searched_bytes`` is for those that are open.
    ``opened`` returns None where manifests cannot be searched.
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
        # of writers, which ask for the newest alone: each commit and each lost race makes others
        self._written = Cache(cache.limit // _OF_WRITTEN)
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
        found = self.find_held(key)
        if found is None:
            found = self._whole.get(("manifest", key), lambda: self._index(key))
        return found

    def keep(self, key: ObjectId12, arrays: Mapping[ObjectId8, ChunkTable]) -> None:
        """Keep the tables of a manifest as if they had been read."""
        self._whole.put(("manifest", key), *_index(arrays))

    def keep_written(self, key: ObjectId12, arrays: Mapping[ObjectId8, ChunkTable]) -> None:
        """Keep the tables of a manifest that was just written, until others follow."""
        self._written.put(key, *_index(arrays))

    def find_written(self, key: ObjectId12) -> Manifest | None:
        """Return a manifest that this process wrote lately."""
        found: IndexedManifest | None = self._written.find(key)
        if found is None:
            return None
        return Manifest(id=key, arrays={node: each.table for node, each in found.items()})

    def find_held(self, key: ObjectId12) -> IndexedManifest | None:
        """Return the tables of a manifest if they are in memory."""
        found: IndexedManifest | None = self._whole.find(("manifest", key))
        return self._written.find(key) if found is None else found

    def is_at_hand(self, key: ObjectId12, node: ObjectId8, rows: int) -> bool:
        """Say whether `find` looks up so many chunks in memory, in about a millisecond."""
        if self.find_held(key) is not None:
            return True
        searched: _Searched | None = self._searched.find(key)
        if searched is None or not searched.is_worth(rows):
            return False
        manifest = searched.manifest
        return manifest.num_chunk_refs <= _QUICK or manifest.is_proven(node)

    def find(self, key: ObjectId12, node: ObjectId8, index: NDArray[np.int64]) -> FoundRows:
        """Look chunks of an array up by their indices, shape (k, ndim). Raises as `whole` does."""
        whole = self.find_held(key)
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

        def open_searched() -> tuple[_Searched | None, int]:
            if (manifest := self._open(key)) is None:
                return None, 0
            self._lately.put(key, True, _DECODED * manifest.num_chunk_refs)
            return _Searched(manifest), manifest.nbytes

        searched: _Searched | None = self._searched.find(key)
        if searched is None and not self._lately.find(key):
            searched = self._searched.get(key, open_searched)
        if searched is None or not searched.is_worth(rows):
            return None
        searched.cost += _cost(rows)
        return searched.manifest

    def _index(self, key: ObjectId12) -> tuple[IndexedManifest, int]:
        searched: _Searched | None = self._searched.find(key)
        if searched is None:
            manifest = self._decode(key)
        else:
            with layout.naming(layout.manifest(key)):
                manifest = searched.manifest.decode()
            self._searched.drop(key)
        return _index(manifest.arrays)


def _cost(rows: int) -> int:
    return _PER_LOOKUP + _PER_ROW * rows


def _index(arrays: Mapping[ObjectId8, ChunkTable]) -> tuple[IndexedManifest, int]:
    found = {
        node: IndexedTable(table, chunk_tables.RowFinder.of(table))
        for node, table in arrays.items()
    }
    return found, sum(indexed.nbytes for indexed in found.values())
