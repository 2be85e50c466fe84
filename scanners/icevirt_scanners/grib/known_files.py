"""Describe the variables of a file by another file that has the same ones.

Files of an archive have the same variables with their fields at the same places, and differ in
times and in where messages lie. What is made of the variables of one is then true of the others.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from icevirt.archive.array_layouts import ArrayLayout, LaidOutArrays
from icevirt.archive.joining import Fact
from icevirt.archive.scanned import ScannedArray
from icevirt_scanners.blocks import LARGE, check_inside
from icevirt_scanners.context import ScanContext
from icevirt_scanners.grib.described import DescribedFile
from icevirt_scanners.grib.refusals import Undecoded

_MOST = 64  # that are remembered


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class KnownVariables:
    """What was made of the variables of a file."""

    layout: ArrayLayout
    rows: NDArray[np.int64]  # the fields of its references, array after array
    left_out: tuple[str, ...]
    equal: frozenset[str]

    def describe(
        self, held: DescribedFile, own: Sequence[ScannedArray], context: ScanContext
    ) -> LaidOutArrays:
        """Return the arrays of a file, given those that are its own."""
        offset, length = held.fields.begin[self.rows], held.fields.length[self.rows]
        file = context.source.file
        check_inside(offset, length, size=file.size, url=file.url, variable=held.group)
        return LaidOutArrays(
            own=tuple(own),
            layout=self.layout,
            offset=offset.astype(np.uint64),
            length=length.astype(np.uint64),
            locations=context.location,
        )


_known: dict[Hashable, KnownVariables] = {}


def name_kind(held: DescribedFile, context: ScanContext) -> Hashable | None:
    """Return what decides about the variables of a file; None where it is other fields, too."""
    fields, place = held.fields, held.place
    is_plain = (
        place is not None
        and context.options.share is None
        and len(fields) > 0
        and bool((fields.grid == place.number).all())
        and int(fields.length.max()) <= LARGE
        and not Undecoded.of(fields).any.any()
    )
    if place is None or not is_plain:
        return None
    lengths, places = held.cube.lengths(), held.cube.places.tobytes()
    return held.read.variables, held.group, place.grid, lengths, places, context.options


def find_known(kind: Hashable | None) -> KnownVariables | None:
    """Return what was made of another file of a kind."""
    return None if kind is None else _known.get(kind)


def remember(
    kind: Hashable,
    held: DescribedFile,
    made: Sequence[tuple[int, ScannedArray]],
    left_out: Sequence[str],
    context: ScanContext,
) -> KnownVariables | None:
    """Keep what was made of the variables of a file; None where other files need more of theirs.

    Args:
        kind: Of the file.
        held: The file.
        made: The number of each variable, and its array.
        left_out: Variables that were not asked for.
        context: Of the scan, in which nothing was noticed about the variables.
    """
    for _, array in made:
        has_facts = array.beside is not None or context.choose_facts(array) is not Fact.none
        if has_facts or len(array.references.inline):
            return None
    rows = []
    for number, _ in made:
        mine = held.rows(number)
        rows.append(mine[np.lexsort(held.index(number, mine).T[::-1])])
    while len(_known) >= _MOST:
        _known.pop(next(iter(_known)), None)
    found = _known[kind] = KnownVariables(
        layout=ArrayLayout(array for _, array in made),
        rows=np.concatenate([np.zeros(0, np.int64), *rows]),
        left_out=tuple(left_out),
        equal=context.equal,
    )
    return found
