"""Find arrays that list chunks of each other: the first writers mixed arrays of equal rank up.

A chunk that has the name of another array's chunk was overwritten, or was never there. Which of
the two, is unknown.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations

import numpy as np

from icevirt.deferred_dataclass import dataclass
from icevirt.model.chunks import ChunkType
from icevirt.model.snapshot import ArrayNode, Snapshot
from icevirt.repo.legacy.assets import OldAssets
from icevirt.versioning.chunk_tables import RowFinder, same_bytes


@dataclass(frozen=True, slots=True)
class MixedArrays:
    """Two arrays that list the same chunks."""

    snapshot: str
    earlier: str  # path of the array whose chunks are in doubt
    later: str
    chunks: int  # that are the same objects
    equal: int  # inline chunks that are equal, perhaps because their values are
    first: tuple[int, ...]

    def __str__(self) -> str:
        at = f"snapshot {self.snapshot}, the first is {self.first}"
        if self.chunks:
            return (
                f"{self.chunks} chunks of {self.earlier} are those of {self.later} ({at}): a bug of"
                " the writer, and the right ones are unknown"
            )
        return (
            f"{self.equal} inline chunks of {self.earlier} and {self.later} are equal ({at}):"
            " perhaps by a bug of the writer"
        )


def mixed_arrays(assets: OldAssets, snapshot: Snapshot) -> Iterator[MixedArrays]:
    """Yield the pairs of arrays of a snapshot that list the same chunks."""
    if not assets.encoding.mixes_arrays:
        return
    arrays = sorted(snapshot.arrays(), key=lambda node: node.id)
    for one, other in combinations(arrays, 2):
        if len(one.shape) == len(other.shape) and one.manifests and other.manifests:
            yield from _compared(assets, snapshot, one, other)


def _compared(
    assets: OldAssets, snapshot: Snapshot, one: ArrayNode, other: ArrayNode
) -> Iterator[MixedArrays]:
    for ref in {ref.object_id for ref in one.manifests} & {r.object_id for r in other.manifests}:
        held = assets.manifest(ref)
        tables = [held[node.id].table for node in (one, other) if node.id in held]
        if len(tables) < 2:
            continue
        table, theirs = tables
        rows = RowFinder.of(theirs).find(table.index)
        there = np.flatnonzero(rows >= 0)
        there = there[same_bytes(table.take(there), theirs.take(rows[there]))]
        if not len(there):
            continue
        inline = int(np.count_nonzero(table.kind[there] == ChunkType.inline))
        yield MixedArrays(
            snapshot=str(snapshot.id),
            earlier=one.path,
            later=other.path,
            chunks=len(there) - inline,
            equal=inline,
            first=tuple(table.index[there[0]].tolist()),
        )
