"""Read the values of keys from a session: metadata, native, inline and virtual chunks.

A key that was never written has no value. A value that should exist but cannot be read raises an
error that zarr and xarray do not mistake for absence.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from contextlib import nullcontext
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from zarr.abc.store import ByteRequest

from icevirt.access.store import keys
from icevirt.access.store.keys import (
    ChunkKey,
    ChunksWanted,
    GroupedRequests,
    MetadataKey,
    Request,
    bounds,
    parse,
    sort_out,
)
from icevirt.access.store.locating import InMemory, Range, ReferenceLocator, wait_for_all
from icevirt.ids import ObjectId12
from icevirt.model.chunks import ChunkTable, ChunkType
from icevirt.model.snapshot import ArrayNode, Boxes
from icevirt.objects.answers import Staleness
from icevirt.repo.assets import Assets
from icevirt.repo.session import Session
from icevirt.versioning.chunk_tables import RowFinder

if TYPE_CHECKING:
    from icevirt.errors import StorageError
    from icevirt.objects.answers import Body
    from icevirt.objects.chunk_cache import ChunkCache
    from icevirt.repo.reader import FoundChunks

_FEW = 12  # chunks of one array, up to which looking up one by one is faster; or manifests

type Row = tuple[ChunkTable, int]


class SessionReader:
    """Reads one session. Blocking; safe in threads."""

    def __init__(
        self,
        session: Session,
        staleness: Staleness | None = None,
        cache: ChunkCache | None = None,
    ) -> None:
        self._session = session
        self.staleness = staleness or Staleness()
        self.locator = ReferenceLocator(session, self.staleness, cache)
        self._arrays: dict[str, _ArrayLookup] = {}  # as their nodes were when last looked at
        self._lock = nullcontext() if session.read_only else session.lock

    @property
    def is_far(self) -> bool:
        """Whether answers take long, and neither change nor bring warnings."""
        is_plain = self._session.read_only and self.staleness.on_stale == "raise"
        near = ("file:", "memory:")
        return is_plain and not self._session.assets.storage.url.startswith(near)

    def read_all(self, requests: Sequence[Request]) -> list[Body | None]:
        """Return the value of each request; None where nothing was written."""
        return wait_for_all(self.locate(sort_out(requests)))

    def locate(self, wanted: GroupedRequests) -> list[Range | None]:
        """Say for each request where its bytes are; None where nothing was written.

        Raises:
            StorageError: A manifest cannot be fetched.
            UnauthorizedError: A location is none that this session may read.
        """
        requests = wanted.requests
        found: list[Range | None] = [None] * len(requests)
        for row, path in wanted.metadata:
            if (document := self._cut_metadata(path, requests[row][1])) is not None:
                found[row] = InMemory(document)
        for path, rows, chunks in wanted.chunks:
            if len(rows) <= _FEW and self._sees_commits_only():
                each = zip(rows, chunks, self._find(path, chunks), strict=True)
                for row, chunk, one in each:
                    if one is not None:
                        table, at = one
                        if not table.length[at]:
                            raise self._empty_error(path, chunk)
                        start, end = bounds(requests[row][1], int(table.length[at]))
                        found[row] = self.locator.at(table, at, start, end)
            elif (references := self.references(path, chunks)) is not None:
                byte_ranges = [requests[row][1] for row in rows]
                self.locator.fill(found, references, rows, byte_ranges)
        return found

    def is_at_hand(self, wanted: GroupedRequests) -> bool:
        """Say whether `locate` needs no file, and about a millisecond."""
        return all(self._is_at_hand(chunks) for chunks in wanted.chunks)

    def _is_at_hand(self, wanted: ChunksWanted) -> bool:
        node = self._session.find(wanted.path)
        if not isinstance(node, ArrayNode) or len(node.num_chunks) != wanted.chunks.shape[1]:
            return True
        known = self._arrays.get(wanted.path)
        if (known is None or known.node is not node) and len(node.manifests) > _FEW:
            return False
        return self._array(node).is_at_hand(wanted.chunks)

    def _array(self, node: ArrayNode) -> _ArrayLookup:
        known = self._arrays.get(node.path)
        if known is None or known.node is not node:
            known = self._arrays[node.path] = _ArrayLookup(self._session.assets, node)
        return known

    def document(self, key: str, byte_range: ByteRequest | None) -> Body | None:
        """Return the value of a key that names no chunk; None where there is none."""
        named = parse(key)
        return (
            self._cut_metadata(named.path, byte_range) if isinstance(named, MetadataKey) else None
        )

    def _cut_metadata(self, path: str, byte_range: ByteRequest | None) -> Body | None:
        if (node := self._session.find(path)) is None:
            return None
        start, end = bounds(byte_range, len(node.user_data))
        return node.user_data[start:end]

    def size(self, key: str) -> int | None:
        """Return the length of a key's value without reading it; None where nothing was written."""
        named = parse(key)
        if not isinstance(named, ChunkKey):
            node = None if named is None else self._session.find(named.path)
            return None if node is None else len(node.user_data)
        wanted = np.array([named.chunk], np.int64).reshape(1, len(named.chunk))
        if self._sees_commits_only():
            (held,) = self._find(named.path, wanted)
            return None if held is None else int(held[0].length[held[1]])
        found = self.references(named.path, wanted)
        is_there = found is not None and found.kind[0] != ChunkType.uninitialized
        return int(found.length[0]) if found is not None and is_there else None

    def coordinates(self, node: ArrayNode) -> NDArray[np.uint32]:
        """Return the coordinates of every chunk of an array that was written."""
        with self._lock:
            return self._session.array_table(node.path).index

    def size_below(self, prefix: str) -> int:
        """Return the bytes of all values whose keys begin with ``prefix``."""
        total = 0
        for node in self._session.snapshot.nodes:
            if keys.metadata_key(node.path).startswith(prefix):
                total += len(node.user_data)
            if isinstance(node, ArrayNode) and keys.may_hold(node, prefix):
                with self._lock:
                    table = self._session.array_table(node.path)
                total += int(table.length[keys.inside(node, table.index, prefix)].sum())
        return total

    def references(self, path: str, chunks: NDArray[np.int64]) -> FoundChunks | None:
        """Look chunks up, to read them; None where there is no such array.

        Raises:
            StorageError: A manifest cannot be fetched, or a reference has no bytes.
        """
        node = self._session.find(path)
        if not isinstance(node, ArrayNode) or len(node.num_chunks) != chunks.shape[1]:
            return None
        self._array(node)  # where the next chunks are is known then
        with self._lock:
            found = self._session.references(path, chunks)
        empty = (found.length == 0) & (found.kind != ChunkType.uninitialized)
        if empty.any():
            raise self._empty_error(path, chunks[int(empty.argmax())])
        return found

    def _empty_error(self, path: str, chunk: NDArray[np.int64]) -> StorageError:
        from icevirt.access.store.chunk_errors import empty_error

        return empty_error(self._session, path, chunk.tolist())

    def _sees_commits_only(self) -> bool:
        """Say whether manifests hold all chunks that the session sees."""
        if self._session.read_only:
            return True
        with self._lock:
            return not self._session.has_uncommitted_changes

    def _find(self, path: str, chunks: NDArray[np.int64]) -> list[Row | None]:
        """Find few chunks, in a session without changes."""
        node = self._session.find(path)
        if not isinstance(node, ArrayNode):
            return [None] * len(chunks)
        return self._array(node).find(chunks)


class _ArrayLookup:
    """Finds single references of one array.

    Raises:
        StorageError: A manifest cannot be fetched.
    """

    def __init__(self, assets: Assets, node: ArrayNode) -> None:
        self.node = node
        self._assets = assets
        self._ndim = len(node.num_chunks)
        self._boxes = Boxes.of(node.manifests, self._ndim)

    def is_at_hand(self, chunks: NDArray[np.int64]) -> bool:
        """Say whether chunks are found without a file, and soon."""
        counts = Counter(number for number in self._manifests_of(chunks) if number >= 0)
        lookup, manifests = self._assets.lookup, self.node.manifests
        return all(
            lookup.is_at_hand(manifests[number].object_id, self.node.id, rows)
            for number, rows in counts.items()
        )

    def find(self, chunks: NDArray[np.int64]) -> list[Row | None]:
        """Return table and row of few chunks, shape (k, ndim); None for one never written."""
        found: list[Row | None] = [None] * len(chunks)
        if chunks.shape[1] != self._ndim:
            return found
        places: dict[int, list[int]] = {}
        for place, number in enumerate(self._manifests_of(chunks)):
            if number >= 0:
                places.setdefault(number, []).append(place)
        for number, wanted in places.items():
            rows = self._rows(self.node.manifests[number].object_id, chunks[wanted])
            for place, row in zip(wanted, rows, strict=True):
                found[place] = row
        return found

    def _manifests_of(self, chunks: NDArray[np.int64]) -> list[int]:
        """Return the number of the manifest that each chunk belongs to, -1 for none."""
        manifests = self.node.manifests
        if len(manifests) != 1:
            numbers: list[int] = self._boxes.first_containing(chunks).tolist()
            return numbers
        extents = manifests[0].extents
        inside = (
            all(low <= at < high for at, (low, high) in zip(row, extents, strict=bool(extents)))
            for row in chunks.tolist()
        )
        return [0 if each else -1 for each in inside]

    def _rows(self, key: ObjectId12, chunks: NDArray[np.int64]) -> list[Row | None]:
        """Look up chunks of one manifest: one by one if it is decoded, and else together."""
        if (held := self._assets.lookup.find_held(key)) is None:
            there, table = self._assets.lookup.find(key, self.node.id, chunks)
            rows = dict(zip(there.tolist(), range(len(there)), strict=True))
            return [(table, rows[place]) if place in rows else None for place in range(len(chunks))]
        if (indexed := held.get(self.node.id)) is None:
            return [None] * len(chunks)
        each = (row_of(indexed.rows, one) for one in chunks.tolist())
        return [(indexed.table, row) if row >= 0 else None for row in each]


def row_of(rows: RowFinder, index: Sequence[int]) -> int:
    """Return the row of one chunk, as `RowFinder.find` does for many; -1 where there is none."""
    if rows.packed is not None or not rows.rows:
        return int(rows.find(np.array([index], np.int64))[0])
    key = 0
    columns = (rows.low.tolist(), rows.high.tolist(), rows.strides.tolist())
    for at, low, high, stride in zip(index, *columns, strict=True):
        if not low <= at < high:
            return -1
        key += (at - low) * stride
    if rows.keys is None:
        return key
    row = int(rows.keys.searchsorted(key))
    # a corner of the box may lie beyond the last chunk
    return row if row < rows.rows and int(rows.keys[row]) == key else -1
