"""Which shares of files cannot be referenced where they lie in an array, because chunks do not fit.

A chunk of a file is a chunk of the array only if the file begins on the array's chunk grid, and its
last chunk is full or the array's last. A partial chunk in the middle would show whatever the file's
library left behind the values. This is the one place that decides it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from icevirt.archive.facts import CatalogFacts
from icevirt.errors import CombineError
from icevirt.logic.members import Member


class Obstacle(IntEnum):
    """Why a share cannot be referenced."""

    none = 0
    begins_within = 1  # a chunk of the array
    ends_within = 2  # a chunk of the array


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Boxes:
    """The shares of files along the placed axes of an array, in elements."""

    dimensions: Sequence[str]  # (n,)
    starts: NDArray[np.int64]  # (k, n)
    lengths: NDArray[np.int64]  # (k, n)
    edges: Sequence[int]  # (n,) of chunks
    totals: Sequence[int]  # (n,) of the array
    whole: NDArray[np.bool_]  # (k,) values that are stored, and fill chunks up with the fill value


def obstacles(boxes: Boxes) -> NDArray[np.uint8]:
    """Return the `Obstacle` of each share, shape (k,)."""
    edges, ends = np.array(boxes.edges, np.int64), boxes.starts + boxes.lengths
    found = np.zeros(len(boxes.starts), np.uint8)
    within = (ends % edges != 0) & (ends != np.array(boxes.totals, np.int64))
    found[within.any(axis=1) & ~boxes.whole] = Obstacle.ends_within
    found[(boxes.starts % edges != 0).any(axis=1)] = Obstacle.begins_within
    found[(boxes.lengths == 0).any(axis=1)] = Obstacle.none  # nothing to be referenced
    return found


def refuse_unaligned(
    facts: CatalogFacts, member: Member, of: NDArray[np.intp], boxes: Boxes
) -> None:
    """Refuse an array some of whose shares cannot be referenced and are not stored either.

    Args:
        facts: Of the catalog.
        member: The array.
        of: Which of its rows take part, shape (k,).
        boxes: Their shares.

    Raises:
        CombineError: There is such a share; the message names its file.
    """
    found = obstacles(boxes)
    if not found.any():
        return
    bad = int(np.argmax(found != Obstacle.none))
    edges, start, length = np.array(boxes.edges, np.int64), boxes.starts[bad], boxes.lengths[bad]
    if found[bad] == Obstacle.begins_within:
        axis = int(np.argmax(start % edges != 0))
        told = f"a file begins at {int(start[axis])}"
    else:
        axis = int(np.argmax((start + length) % edges != 0))
        told = f"a file in the middle has {int(length[axis])} steps"
    raise CombineError(
        f"the chunks of variable {member.path} do not line up along"
        f" {boxes.dimensions[axis]!r}: {told}, which is no multiple of the chunk's"
        f" {boxes.edges[axis]}",
        do=f"Leave the variable out with drop_variables=[{member.path!r}], or rechunk the"
        " files (nccopy -c).",
        variable=member.path,
        file=_url(facts, member, of[bad]),
        next=_url(facts, member, of[min(bad + 1, len(of) - 1)]),
    )


def _url(facts: CatalogFacts, member: Member, at: np.intp) -> str:
    return facts.files.url[int(facts.arrays.file[member.rows[at]])]
