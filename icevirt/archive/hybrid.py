"""Describe hybrid arrays, whose files cut, compress or pack values in several ways.

Some chunks of a hybrid array are references and others are stored. Chunks that lie in one file, on
that file's own grid, and have the array's encoding stay references. All others are read from the
files when the array is written, and stored beside them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from icevirt.archive.schema import ArraySchema, differences


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class AxisGrid:
    """The chunks along one axis: all of one length, or each as long as ``bounds`` say."""

    total: int  # elements
    edge: int
    bounds: NDArray[np.int64] | None = None  # (chunks + 1,) where they differ; begins with 0

    def __len__(self) -> int:
        return -(-self.total // self.edge) if self.bounds is None else len(self.bounds) - 1

    def chunk_at(self, elements: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the chunks in which elements lie; one behind the last for the end of the axis."""
        if self.bounds is None:
            return elements // self.edge
        return np.searchsorted(self.bounds, elements, side="right").astype(np.int64) - 1

    def begins(self, chunks: NDArray[np.int64] | int) -> NDArray[np.int64]:
        """Return the elements at which chunks begin; the end of the axis behind the last."""
        number = np.asarray(chunks, np.int64)
        if self.bounds is None:
            return np.minimum(number * self.edge, self.total)
        found: NDArray[np.int64] = self.bounds[number]
        return found

    def edge_of(self, chunk: int) -> int:
        """Return how many elements a chunk is encoded with; one at the end may be cut short."""
        if self.bounds is None:
            return self.edge
        return int(self.bounds[chunk + 1] - self.bounds[chunk])


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Hybrid:
    """What is known of the files of a hybrid array, a row each, and what storing it takes."""

    plain: NDArray[np.bool_]  # (k,) whether its chunks can be referenced where they line up
    own: NDArray[np.int32]  # (k,) which of ``schemas`` it has
    schemas: tuple[ArraySchema, ...]
    target: ArraySchema  # of the array; where it is no file's, values are decoded and encoded
    new_axes: int  # leading axes that the files lack
    bounds: NDArray[np.int64] | None  # (chunks + 1,) of a rectilinear grid along the axis
    chunks: int  # that are stored
    nbytes: int  # of their values
    scanned: int  # references of the plain files
    replaced: int  # of them, by stored chunks, where every chunk of the files was written
    why: str  # which files, and what about them

    @property
    def deviates(self) -> bool:
        """Whether chunks are stored though files cut, compress or pack them in several ways."""
        if not self.chunks:
            return False
        stored = [each for each in self.schemas if not each.whole]
        return any(
            differences(kept[0].decode_signature(stored=by), each.decode_signature(stored=by))
            for kept, by in ((stored, True), (self.schemas, False))
            for each in kept[1:]
        )

    def edges(self, axis: int, otherwise: int) -> NDArray[np.int64]:
        """Return how long each file's own chunks are along an axis."""
        edges = [each.chunk_shape[axis] if each.chunk_shape else otherwise for each in self.schemas]
        found: NDArray[np.int64] = np.array(edges, np.int64)[self.own]
        return found

    def spread(self, at: NDArray[np.int64], of: NDArray[np.int64], size: int) -> Hybrid:
        """Return the rows ``of`` at the places ``at`` of columns with ``size`` rows."""
        plain, own = np.zeros(size, np.bool_), np.zeros(size, np.int32)
        plain[at], own[at] = self.plain[of], self.own[of]
        return replace(self, plain=plain, own=own)
