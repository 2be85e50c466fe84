"""Look up references of many chunks at once across a snapshot's manifests."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from icevirt.model.chunks import ChunkTable, ChunkType, Locations, Manifest
from icevirt.model.snapshot import ArrayNode, ManifestRef
from icevirt.repo.assets import Assets
from icevirt.versioning import chunk_tables
from icevirt.versioning.manifest_splitting import Boxes


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class FoundChunks:
    """The answer to a request for k chunks; row i answers index i.

    ``kind`` 0 (uninitialized) says that the chunk was never written: its values are the array's
    fill value. The other columns mean what they mean in a `ChunkTable`: a virtual row is ``length``
    bytes at ``offset`` of ``locations[source]``, a native row of the object ``chunk_ids[source]``,
    an inline row is ``inline[offset:offset + length]``. Only what is used is in them.
    """

    kind: NDArray[np.uint8]  # (k,) ChunkType
    source: NDArray[np.uint32]  # (k,)
    offset: NDArray[np.uint64]  # (k,)
    length: NDArray[np.uint64]  # (k,)
    locations: Locations
    chunk_ids: NDArray[np.uint8]  # (m, 12)
    inline: NDArray[np.uint8]  # (bytes,)

    def __len__(self) -> int:
        return len(self.kind)

    @classmethod
    def of(cls, table: ChunkTable, at: NDArray[np.int64], count: int) -> FoundChunks:
        """Put the rows of a table at the positions ``at`` of an answer of ``count`` rows."""
        table = chunk_tables.compact(table)
        columns = {}
        for name in ("kind", "source", "offset", "length"):
            column = getattr(table, name)
            columns[name] = np.zeros(count, column.dtype)
            columns[name][at] = column
        return cls(
            **columns,
            locations=table.locations,
            chunk_ids=table.chunk_ids,
            inline=table.inline,
        )


class ArrayReader:
    """Looks up references of one array node; keeps the boxes of its manifests as columns."""

    def __init__(self, assets: Assets, node: ArrayNode) -> None:
        self._assets = assets
        self._node = node
        self._boxes = Boxes.of(node.manifests, len(node.num_chunks))

    def parts(self, index: NDArray[np.integer]) -> Iterator[tuple[NDArray[np.int64], ChunkTable]]:
        """Yield, per manifest, positions in ``index`` and the references found for them."""
        box = self._boxes.first_containing(index)
        for number in np.unique(box[box >= 0]).tolist():
            indexed = self._assets.manifest(self._node.manifests[number].object_id).get(
                self._node.id
            )
            if indexed is None:
                continue
            at = np.flatnonzero(box == number)
            rows = indexed.rows.find(index[at])
            there = rows >= 0
            yield at[there], indexed.table.take(rows[there])

    def table(self, refs: tuple[ManifestRef, ...] | None = None) -> ChunkTable:
        """Return all references of the array, or those of some of its manifests."""
        wanted = self._node.manifests if refs is None else refs
        return self._joined(self._assets.read_manifest(ref.object_id) for ref in wanted)

    def table_to_rewrite(self, refs: tuple[ManifestRef, ...]) -> ChunkTable:
        """Return the references of manifests that others are to replace.

        Raises:
            FormatError: They hold facts of a newer client, which would be lost.
        """
        manifests = [self._assets.read_manifest(ref.object_id) for ref in refs]
        for manifest in manifests:
            manifest.refuse_loss()
        return self._joined(manifests)

    def _joined(self, manifests: Iterable[Manifest]) -> ChunkTable:
        found = (manifest.arrays.get(self._node.id) for manifest in manifests)
        held = [table for table in found if table is not None]
        return ChunkTable.concatenate(held) if held else self.nothing

    @property
    def nothing(self) -> ChunkTable:
        """The table without references."""
        return ChunkTable.empty(len(self._node.num_chunks))


def joined(parts: list[tuple[NDArray[np.int64], ChunkTable]], count: int, ndim: int) -> FoundChunks:
    """Return the answer whose rows are given in parts; later parts replace earlier ones."""
    if not parts:
        return FoundChunks.of(ChunkTable.empty(ndim), np.zeros(0, np.int64), count)
    if len(parts) == 1:
        return FoundChunks.of(parts[0][1], parts[0][0], count)
    return FoundChunks.of(_end_to_end([table for _, table in parts]), _places(parts), count)


def _places(parts: list[tuple[NDArray[np.int64], ChunkTable]]) -> NDArray[np.int64]:
    return np.concatenate([at for at, _ in parts])


def _end_to_end(parts: list[ChunkTable]) -> ChunkTable:
    """Join tables row after row; their rows keep their places, so the index becomes a number."""
    start = np.cumsum([0, *(len(part) for part in parts)])
    return ChunkTable.concatenate(
        [
            _numbered(chunk_tables.compact(part), int(at))
            for part, at in zip(parts, start, strict=False)
        ]
    )


def _numbered(part: ChunkTable, start: int) -> ChunkTable:
    number = np.arange(start, start + len(part), dtype=np.uint32)[:, None]
    return ChunkTable(
        index=number,
        kind=part.kind,
        source=part.source,
        offset=part.offset,
        length=part.length,
        locations=part.locations,
        chunk_ids=part.chunk_ids,
        inline=part.inline,
    )


def is_there(found: FoundChunks) -> NDArray[np.bool_]:
    """Say which of the chunks asked for were ever written."""
    there: NDArray[np.bool_] = found.kind != ChunkType.uninitialized
    return there
