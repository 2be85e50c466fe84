"""A manifest: the chunk tables of one or more arrays, as one immutable file.

Spec: "Chunk Manifest Files".
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from icevirt.ids import ObjectId8, ObjectId12
from icevirt.model.chunks import ChunkTable


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """Chunk tables by node id."""

    id: ObjectId12
    arrays: Mapping[ObjectId8, ChunkTable]

    @property
    def num_chunk_refs(self) -> int:
        """References of all arrays together."""
        return sum(len(table) for table in self.arrays.values())
