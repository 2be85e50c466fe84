"""Divide an archive into eras: files of one grid that decode equally, found without reading values.

Files are compared position by position along the concatenated dimensions, because files at one
position may hold different variables. A position that merely lacks a variable joins its neighbors
if these steps can be reserved; otherwise it is an era of its own. All facts are columns with one
row per position, and only variables that differ are compared, so a million files cost seconds.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from icevirt.archive.facts import CatalogFacts, by_path, variables_of
from icevirt.archive.schema import ArraySchema
from icevirt.errors import CombineError
from icevirt.model import paths
from icevirt.planning.axes.axis import NOWHERE, Placement
from icevirt.planning.axes.gaps import can_reserve
from icevirt.planning.axes.placement import as_given
from icevirt.planning.combine.options import CombineSpec
from icevirt.planning.combine.prepare import PreparedFacts
from icevirt.planning.eras.signatures import Grids, Signatures

_ABSENT = -1
"""The signature of a variable that a place lacks."""

EVERYWHERE = -1
"""The era of a file that lies nowhere along a dimension: it belongs to all of them."""

type _Admits = frozenset[int] | None
"""Signatures that a place may have a variable with; None: any."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class EraVariable:
    """An array that not all places have, or not all with one signature."""

    path: str
    rows: NDArray[np.integer]  # of the array columns
    found: NDArray[np.int64]  # the signature of each row
    number: NDArray[np.int64]  # (places,) of its signature, or `_ABSENT`
    reserved: bool  # places that lack it go with their neighbours


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class EraPartition:
    """The eras of all files; numbered by where they begin."""

    count: int
    of_file: NDArray[np.int64]  # (files,) or `EVERYWHERE`
    of_place: NDArray[np.int64]  # (places,)
    place: NDArray[np.int64]  # (files,) or NOWHERE
    ordered: bool  # whether labels say which place follows which
    dimension: str | None  # along which eras follow one another; None: along several
    alone: bool  # whether eras are alike along all other dimensions
    variables: tuple[EraVariable, ...]
    signatures: Signatures

    @property
    def contiguous(self) -> bool:
        """Whether each era is one run of places."""
        return 1 + int(np.count_nonzero(np.diff(self.of_place))) == self.count

    def rows(self, era: int) -> NDArray[np.int64]:
        """Return the files of an era, those that belong to all of them included."""
        return np.flatnonzero((self.of_file == era) | (self.of_file == EVERYWHERE))


def is_by_label(parted: EraPartition, spec: CombineSpec) -> bool:
    """Say whether labels order the steps of all eras, not the order in which files are given."""
    is_listed = not isinstance(spec.labels.get(parted.dimension or "", ""), str)
    return not is_listed and spec.options.combine != "nested"


def part(prepared: PreparedFacts, spec: CombineSpec) -> EraPartition:
    """Find the eras of files whose facts were made alike."""
    facts = prepared.facts
    cells, ordered = _place_files(prepared, spec)
    place, boxes = _number_places(cells, len(facts.files))
    grids = Grids.of(facts, spec)
    signatures = Signatures.of(facts.arrays, grids)
    variables = tuple(_find_varying(facts, place, len(boxes), (signatures, grids), spec))
    of_place = _assign(variables, signatures, len(boxes))
    of_file = np.full(len(facts.files), EVERYWHERE, np.int64)
    there = place != NOWHERE
    of_file[there] = of_place[place[there]]
    count = int(of_place.max(initial=0)) + 1
    pairs = [np.unique(np.stack([column, of_place]), axis=1) for column in boxes.T]
    of_cell = [each.shape[1] / len(np.unique(each[0])) for each in pairs]  # eras that have it
    # the first of which no cell is of two eras
    first = next((at for at, eras in enumerate(of_cell) if eras == 1), None)
    dimension = None if first is None else cells.axes[first].dimension
    return EraPartition(
        count=count,
        of_file=of_file,
        of_place=of_place,
        place=place,
        ordered=ordered,
        dimension=dimension,
        alone=all(eras == count for at, eras in enumerate(of_cell) if at != first),
        variables=variables,
        signatures=signatures,
    )


def _place_files(prepared: PreparedFacts, spec: CombineSpec) -> tuple[Placement, bool]:
    """Return where files lie, in the order given where their labels contradict one another."""
    try:
        if all(comparable(prepared.facts, name) for name in prepared.existing(spec.concat_dim)):
            return prepared.cells(spec), True
    except CombineError:
        pass  # combining the files raises it
    return as_given(prepared.facts, spec.concat_dim), False


def comparable(facts: CatalogFacts, dimension: str) -> bool:
    """Say whether labels of all files count alike, so that they can be put into an order."""
    different: dict[str, set[tuple[str, ...]]] = {}
    for path, schema in variables_of(facts):
        if paths.name(path) == dimension:
            attributes = schema.attributes.values
            said = tuple(str(attributes.get(n)) for n in ("units", "calendar", "add_offset"))
            different.setdefault(path, set()).add(said)
    return all(len(each) < 2 for each in different.values())


def _number_places(cells: Placement, files: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the place of each file, and the cells of each place, shape (places, dimensions).

    A place is a box that files lie in; places are in the order of the dataset.
    """
    place = np.full(files, NOWHERE, np.int64)
    if not cells.axes:
        return np.zeros(files, np.int64), np.zeros((1, 0), np.int64)
    there = np.flatnonzero(np.all([axis.cell != NOWHERE for axis in cells.axes], axis=0))
    columns = [axis.cell[there] for axis in cells.axes]
    counts = [axis.count for axis in cells.axes]
    flat, place[there] = np.unique(np.ravel_multi_index(columns, counts), return_inverse=True)
    return place, np.stack(np.unravel_index(flat, counts), axis=1).astype(np.int64)


# -- variables that tell eras apart --------------------------------------------------------------


def _find_varying(
    facts: CatalogFacts,
    place_of_file: NDArray[np.int64],
    places: int,
    held: tuple[Signatures, Grids | None],
    spec: CombineSpec,
) -> Iterator[EraVariable]:
    arrays, (signatures, grids) = facts.arrays, held
    for path, there in by_path(facts):
        rows = there[place_of_file[arrays.file[there]] != NOWHERE]
        if not len(rows):
            continue
        codes = arrays.schema.codes[rows]
        place = place_of_file[arrays.file[rows]]
        used = np.unique(codes)
        names = ArraySchema.loads(arrays.schema.values[int(used[0])]).dimension_names
        along = spec.concatenates(names)
        found = signatures.of_row[rows].astype(np.int64)
        if not along and path in facts.alike:  # stored once, as the first file of a grid has it
            grid = np.zeros(len(rows), np.int64) if grids is None else grids.of_row[rows]
            _, at, number = np.unique(grid, return_index=True, return_inverse=True)
            found = found[at][number.reshape(-1)]
        elif not along:  # stored once, however it is encoded
            found = signatures.values[found]
        here = np.zeros(places, np.bool_)
        here[place] = True
        alike = frozenset.intersection(
            *(signatures.admits[number] for number in np.unique(found).tolist())
        )
        if alike and (here.all() or not along):
            continue
        number = np.full(places, _ABSENT, np.int64)
        number[place] = found
        reserve = spec.options.missing == "reserve" and can_reserve(
            ArraySchema.loads(arrays.schema.values[c]) for c in used.tolist()
        )
        is_reserved = not along or reserve
        yield EraVariable(path=path, rows=rows, found=found, number=number, reserved=is_reserved)


# -- places to eras --------------------------------------------------------------------------------


def _assign(
    variables: Sequence[EraVariable], signatures: Signatures, places: int
) -> NDArray[np.int64]:
    if not variables:
        return np.zeros(places, np.int64)
    kind, patterns = _find_patterns(variables, signatures, places)
    eras: list[tuple[_Admits, ...]] = []

    def narrow(one: tuple[_Admits, ...], other: tuple[_Admits, ...]) -> tuple[_Admits, ...]:
        pairs = zip(one, other, strict=True)
        return tuple(b if a is None else a if b is None else a & b for a, b in pairs)

    of_place = np.full(places, -1, np.int64)
    of_kind = np.full(len(patterns), -1, np.int64)
    open_kinds = []
    known: dict[tuple[_Admits, ...], int] = {}  # values that the scan read, and chunks: one era
    for number, pattern in enumerate(patterns):
        if all(each is not None and len(each) == 1 for each in pattern):
            of_kind[number] = known.setdefault(pattern, len(eras))
            if len(known) > len(eras):
                eras.append(pattern)
        else:
            open_kinds.append(number)
    of_place[:] = of_kind[kind]
    for number in sorted(open_kinds, key=lambda n: sum(each is None for each in patterns[n])):
        here, pattern = np.flatnonzero(kind == number), patterns[number]
        fits = [era for era, held in enumerate(eras) if frozenset() not in narrow(held, pattern)]
        if not fits:
            fits = [len(eras)]
            eras.append(pattern)
        of_place[here] = _find_nearest(of_place, here, fits)
        for era in np.unique(of_place[here]).tolist():
            eras[era] = narrow(eras[era], pattern)
    _, first, numbered = np.unique(of_place, return_index=True, return_inverse=True)
    rank = np.empty(len(first), np.int64)
    rank[np.argsort(first)] = np.arange(len(first))
    renumbered: NDArray[np.int64] = rank[numbered]
    return renumbered


def _find_patterns(
    variables: Sequence[EraVariable], signatures: Signatures, places: int
) -> tuple[NDArray[np.int64], list[tuple[_Admits, ...]]]:
    """Return which distinct combination of signatures each place has, and these combinations."""
    kind = np.zeros(places, np.int64)
    known: list[tuple[_Admits, ...]] = [()]
    for variable in variables:
        numbers, column = np.unique(variable.number, return_inverse=True)
        absent = None if variable.reserved else frozenset({_ABSENT})
        admitted = [absent if n == _ABSENT else signatures.admits[n] for n in numbers.tolist()]
        both, kind = np.unique(kind * len(numbers) + column, return_inverse=True)
        known = [
            (*known[old], admitted[new])
            for old, new in zip(*np.divmod(both, len(numbers)), strict=True)
        ]
    return kind.astype(np.int64), known


def _find_nearest(
    of_place: NDArray[np.int64], here: NDArray[np.int64], fits: Sequence[int]
) -> NDArray[np.int64]:
    """Return which of several eras places belong to: the one before them, else the one after."""
    known = np.flatnonzero(np.isin(of_place, fits))
    if len(fits) == 1 or not len(known):
        return np.full(len(here), fits[0], np.int64)
    before = np.searchsorted(known, here) - 1
    nearest: NDArray[np.int64] = of_place[known[np.maximum(before, 0)]]
    return nearest
