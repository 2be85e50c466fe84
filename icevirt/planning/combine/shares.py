"""Find which steps of its files an array is made of, where files overlap in part."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace

import numpy as np
from numpy.typing import NDArray

from icevirt.archive.facts import CatalogFacts
from icevirt.planning.axes.placement import numbered


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class FileBoxes:
    """What counts of files, a row for each box of steps that lie end to end."""

    rows: NDArray[np.int64]  # (k,) among those given
    source: NDArray[np.int64]  # (k,) the file
    starts: NDArray[np.int64]  # (k, n) in the array
    lengths: NDArray[np.int64]  # (k, n)
    skips: NDArray[np.int64]  # (k, n) in the file
    held: NDArray[np.int64]  # (k, n) of the whole file

    @property
    def needed(self) -> tuple[NDArray[np.int64] | None, NDArray[np.int64] | None]:
        """What is skipped and what files hold; None where all files are whole."""
        if not self.skips.any() and (self.held == self.lengths).all():
            return None, None
        return self.skips, self.held

    def take(self, rows: NDArray[np.int64]) -> FileBoxes:
        """Return some of the boxes."""
        return FileBoxes(**{each.name: getattr(self, each.name)[rows] for each in fields(self)})


def boxes_of(
    facts: CatalogFacts,
    rows: NDArray[np.integer],
    dimensions: Sequence[str],
    starts: NDArray[np.int64],
    lengths: NDArray[np.int64],
) -> FileBoxes:
    """Return the boxes of an array.

    Args:
        facts: Of pieces of files.
        rows: (k,) The array in these.
        dimensions: Of the first axes of ``starts``, along which files are placed.
        starts: (k, n) Where each begins in the array.
        lengths: (k, n) How long it is.
    """
    cuts = facts.cuts
    assert cuts is not None
    file = facts.arrays.file[rows]
    skips, held = np.zeros_like(starts), np.array(lengths, np.int64)
    for at, name in enumerate(dimensions):
        if name in cuts.skip:
            skips[:, at], held[:, at] = cuts.skip[name][file], cuts.held[name][file]
    return FileBoxes(
        rows=np.arange(len(rows)),
        source=cuts.source[file],
        starts=starts,
        lengths=np.array(lengths, np.int64),
        skips=skips,
        held=held,
    )


def joined(boxes: FileBoxes, axes: int) -> FileBoxes:
    """Join boxes of a file that follow one another in the array as in the file, axis by axis."""
    for at in range(axes):
        boxes = _joined_along(boxes, at)
    return boxes


def _joined_along(boxes: FileBoxes, at: int) -> FileBoxes:
    starts, lengths, skips = boxes.starts, boxes.lengths, boxes.skips
    others = [axis for axis in range(starts.shape[1]) if axis != at]
    columns = [each[:, axis] for axis in others for each in (starts, lengths, skips)]
    number = numbered([boxes.source, *columns], len(boxes.rows))
    order = np.lexsort((starts[:, at], number))
    one, two = order[:-1], order[1:]
    follows = np.zeros(len(order), np.bool_)
    follows[1:] = (
        (number[one] == number[two])
        & (starts[one, at] + lengths[one, at] == starts[two, at])
        & (skips[one, at] + lengths[one, at] == skips[two, at])
    )
    if not follows.any():
        return boxes
    first = np.flatnonzero(~follows)
    total = lengths.copy()
    total[order[first], at] = np.add.reduceat(lengths[order, at], first)
    return replace(boxes, lengths=total).take(np.sort(order[first]))
