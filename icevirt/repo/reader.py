"""Look up references of many chunks at once, and compare the chunks of two arrays."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from icevirt.model.chunks import ChunkTable, Locations
from icevirt.model.snapshot import ArrayNode, Boxes, ManifestRef, Node
from icevirt.repo.assets import Assets
from icevirt.versioning import chunk_tables

if TYPE_CHECKING:
    from icevirt.versioning.merge.build_merge import BuiltArray

_DECIDES = ("shape", "data_type", "chunk_grid", "codecs", "fill_value")


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

    @property
    def manifests(self) -> tuple[ManifestRef, ...]:
        """The manifests that it looks into."""
        return self._node.manifests

    def parts(self, index: NDArray[np.integer]) -> Iterator[tuple[NDArray[np.int64], ChunkTable]]:
        """Yield, per manifest, positions in ``index`` and the references found for them."""
        box = self._boxes.first_containing(index)
        for number in np.unique(box[box >= 0]).tolist():
            at = np.flatnonzero(box == number)
            wanted = index[at].astype(np.int64, copy=False)
            manifest = self._node.manifests[number].object_id
            there, table = self._assets.lookup.find(manifest, self._node.id, wanted)
            yield at[there], table

    def table(self, refs: tuple[ManifestRef, ...] | None = None) -> ChunkTable:
        """Return the references of all manifests of the array, or of some."""
        wanted = self._node.manifests if refs is None else refs
        return self._join(self._assets.read_table(ref.object_id, self._node.id) for ref in wanted)

    def table_to_rewrite(self, refs: tuple[ManifestRef, ...]) -> ChunkTable:
        """Return the references of manifests that new ones will replace.

        Raises:
            FormatError: They hold facts of a newer client, which would be lost.
        """
        manifests = [self._assets.manifest_to_rewrite(ref.object_id) for ref in refs]
        for manifest in manifests:
            manifest.refuse_loss()
        return self._join(manifest.arrays.get(self._node.id) for manifest in manifests)

    def _join(self, tables: Iterable[ChunkTable | None]) -> ChunkTable:
        held = [table for table in tables if table is not None]
        empty = ChunkTable.empty(len(self._node.num_chunks))
        return ChunkTable.concatenate(held) if held else empty


def join(parts: list[tuple[NDArray[np.int64], ChunkTable]], count: int, ndim: int) -> FoundChunks:
    """Return the answer whose rows are given in parts; later parts replace earlier ones."""
    if not parts:
        return FoundChunks.of(ChunkTable.empty(ndim), np.zeros(0, np.int64), count)
    if len(parts) == 1:
        return FoundChunks.of(parts[0][1], parts[0][0], count)
    ends = np.cumsum([len(at) for at, _ in parts])[:-1]
    # the rows of all parts end to end: the index becomes a number, which keeps their order
    numbers = np.split(np.arange(sum(len(at) for at, _ in parts), dtype=np.uint32)[:, None], ends)
    tables = [
        replace(chunk_tables.compact(table), index=number)
        for (_, table), number in zip(parts, numbers, strict=True)
    ]
    places = np.concatenate([at for at, _ in parts])
    return FoundChunks.of(ChunkTable.concatenate(tables), places, count)


def has_same_values(assets: Assets, there: Node, built: BuiltArray) -> bool:
    """Say whether a built coordinate holds the values of the existing one.

    Chunks are compared by name: builds name those that they store by their content, and references
    into files carry checksums. Values that are equal but stored otherwise count as others.
    """
    if not isinstance(there, ArrayNode) or _facts(there.user_data) != _facts(built.zarr_json):
        return False
    new = there._replace(id=built.node_id, manifests=tuple(built.manifests))
    return not len(
        chunk_tables.find_changed(*(ArrayReader(assets, each).table() for each in (there, new)))
    )


def _facts(zarr_json: bytes) -> str:
    """Return the metadata of an array that decides about its values."""
    from icevirt.archive.schema import DECODING

    document = json.loads(zarr_json)
    attributes = document.get("attributes") or {}
    facts = [document.get(key) for key in _DECIDES], [attributes.get(name) for name in DECODING]
    return json.dumps(facts, sort_keys=True)
