"""Measure chunks: sizes of all chunk objects from a listing, and bytes that versions refer to."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import batched

import numpy as np
from numpy.typing import NDArray

from icevirt.ids import ObjectId12
from icevirt.model.chunks import ChunkTable, ChunkType
from icevirt.model.repo_info import RepoInfo
from icevirt.repo import layout
from icevirt.repo.assets import Assets
from icevirt.storage.protocol import ObjectInfo
from icevirt.versioning.history import garbage_collection
from icevirt.versioning.id_columns import ID, of_names, of_rows, places

_AT_ONCE = 1 << 14
_NEVER = 1 << 63  # no snapshot counts because it is young
_ODD = np.uint64(0x9E3779B97F4A7C15)


@dataclass(frozen=True, slots=True)
class ChunkSizes:
    """The chunk objects of a repository."""

    ids: NDArray[np.void]  # (n,) ascending
    sizes: NDArray[np.int64]  # (n,) bytes

    @classmethod
    def of(cls, listed: Iterable[ObjectInfo]) -> ChunkSizes:
        """Make the columns; what is not named like a chunk is left out."""
        ids, sizes = [np.zeros(0, ID)], [np.zeros(0, np.int64)]
        start = len(layout.CHUNKS) + 1
        for some in batched(listed, _AT_ONCE):
            found, there = of_names([info.path[start:] for info in some])
            ids.append(found)
            sizes.append(np.array([info.size for info in some], np.int64)[there])
        whole = np.concatenate(ids)
        order = np.argsort(whole, kind="stable")
        return cls(whole[order], np.concatenate(sizes)[order])

    def find(self, ids: NDArray[np.void]) -> NDArray[np.int64]:
        """Return the size of each chunk, -1 where there is none."""
        at = places(self.ids, ids)
        if not len(self.ids):
            return at
        return np.where(at < 0, -1, self.sizes[at])

    def join(self, ids: NDArray[np.void], sizes: NDArray[np.int64]) -> ChunkSizes:
        """Return these chunks and others, whose sizes replace those that are known."""
        kept = ~np.isin(self.ids, ids)
        whole = np.concatenate([self.ids[kept], ids])
        order = np.argsort(whole, kind="stable")
        return ChunkSizes(whole[order], np.concatenate([self.sizes[kept], sizes])[order])

    def lacking(self, table: ChunkTable) -> Lacking:
        """Return the chunks of a table that are missing, or shorter than what is referred to."""
        native = np.flatnonzero(table.kind == ChunkType.native)
        ids, number = np.unique(of_rows(table.chunk_ids[table.source[native]]), return_inverse=True)
        needed = np.zeros(len(ids), np.uint64)
        np.maximum.at(needed, number, table.offset[native] + table.length[native])
        sizes = self.find(ids)
        bad = (sizes < 0) | (sizes.astype(np.uint64) < needed)
        return Lacking(ids[bad], sizes[bad], needed[bad])


@dataclass(frozen=True, slots=True)
class Lacking:
    """Chunks that lack bytes."""

    ids: NDArray[np.void]
    sizes: NDArray[np.int64]  # -1: it is missing
    needed: NDArray[np.uint64]


@dataclass(frozen=True, slots=True, kw_only=True)
class ChunkStorageStats:
    """Bytes of chunks, by storage kind; names are icechunk's."""

    native_bytes: int
    virtual_bytes: int
    inlined_bytes: int

    def non_virtual_bytes(self) -> int:
        """Bytes that the repository itself holds."""
        return self.native_bytes + self.inlined_bytes

    def total_bytes(self) -> int:
        """Bytes of all chunks."""
        return self.non_virtual_bytes() + self.virtual_bytes


def storage_stats(assets: Assets, info: RepoInfo) -> ChunkStorageStats:
    """Read every manifest once and add up; a chunk that several refer to counts once.

    Chunks are known by 64-bit hashes of their names: 8 bytes of memory for each.
    """
    manifests: set[ObjectId12] = set()
    for key in garbage_collection.reachable(info, _NEVER):
        manifests.update(file.id for file in assets.snapshot(key).manifest_files)
    totals = {ChunkType.native: 0, ChunkType.virtual: 0, ChunkType.inline: 0}
    seen = dict.fromkeys(totals, np.zeros(0, np.uint64))
    for key in sorted(manifests):
        for table in assets.read_manifest(key).arrays.values():
            totals[ChunkType.inline] += int(table.length[table.kind == ChunkType.inline].sum())
            for kind in (ChunkType.native, ChunkType.virtual):
                rows = table.kind == kind
                name, first = np.unique(_hashes(table, kind, rows), return_index=True)
                new = ~np.isin(name, seen[kind], assume_unique=True)
                totals[kind] += int(table.length[rows][first[new]].sum())
                seen[kind] = np.union1d(seen[kind], name[new])
    return ChunkStorageStats(
        native_bytes=totals[ChunkType.native],
        virtual_bytes=totals[ChunkType.virtual],
        inlined_bytes=totals[ChunkType.inline],
    )


def _hashes(table: ChunkTable, kind: ChunkType, rows: NDArray[np.bool_]) -> NDArray[np.uint64]:
    """Return a hash for each row of a kind: of a chunk's id, or of its URL, offset and length."""
    if kind is ChunkType.native:
        ids = np.ascontiguousarray(table.chunk_ids[:, :8]).view(np.uint64).reshape(-1)
        return ids[table.source[rows]]
    urls = [ObjectId12.of_content(url.encode()) for url in table.locations.url]
    names = np.array([int.from_bytes(url[:8]) for url in urls], np.uint64)
    mixed = names[table.source[rows]]
    for column in (table.offset[rows], table.length[rows]):
        mixed = (mixed ^ column) * _ODD
        mixed ^= mixed >> np.uint64(29)
    return mixed
