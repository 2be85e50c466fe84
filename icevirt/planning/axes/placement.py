"""Place each file along the concatenated dimensions.

Along one dimension, a cell is a run of steps that one or more files cover: files with equal labels
share a cell. Cells are in the order of the labels. Without labels, and with one dimension only,
each file is a cell, in the order given. With several dimensions a file has a cell in each, so its
share of an array is a box.

Where a person says how far apart steps are, every step gets a place and a label, also where no file
has it. Times are compared in whole microseconds, other numbers within a millionth of a step. The
labels of missing steps must have an exact value in the units and the data type of the coordinate.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from icevirt.archive.facts import CatalogFacts
from icevirt.archive.kinds import spread
from icevirt.archive.schema import ArraySchema, TimeUnits
from icevirt.errors import CombineError, Fix, InvalidInputError
from icevirt.model import paths
from icevirt.model.indices import are_all
from icevirt.model.strings import Strings
from icevirt.planning.axes.axis import (
    NOWHERE,
    UNITS,
    AxisPlacement,
    AxisSteps,
    Placement,
    duration_of,
)
from icevirt.planning.axes.coordinates import Coordinate, coordinate_of, order_files
from icevirt.planning.axes.dates import write_labels
from icevirt.planning.remedies import build_fix, choose, fix
from icevirt.planning.times.calendars import MICROSECOND
from icevirt.planning.times.instants import InexactError, Times, encode_times, microseconds
from icevirt.planning.times.units import bounds_of, missing_of, units_of
from icevirt.remedy_notation import write_option, write_remedy

_SPARSEST = 100  # steps for each that a file holds: more are a mistake
_TOLERANCE = 1e-6  # of a step, for numbers that are no times
_LONGEST = 100_000_000  # steps: more are a mistake of the spacing


def steps_of(held: Coordinate, urls: Strings, spacing: str | float, *, dimension: str) -> AxisSteps:
    """Return the steps of an axis.

    Args:
        held: The labels of one file of each cell, in the order of the cells.
        urls: Of these files.
        spacing: What `spacing_of` returned.
        dimension: Of the axis.

    Raises:
        CombineError: A label is not on the grid, or a step inside a file is missing.
    """
    lengths, raw = held.values.lengths, held.values.flat
    attrs = held.attributes.values
    units = units_of(attrs)
    if "scale_factor" in attrs or held.shifted or not lengths.all():
        what = "is packed" if lengths.all() else "is empty in a file"
        raise CombineError(
            f"the coordinate of {dimension!r} cannot be made regular, because it {what}",
            fixes=[without_spacing(dimension)],
            file=urls[int(np.argmin(lengths))],
        )
    if units:
        grid = _of_times(held, raw, units, spacing, dimension)
    else:
        grid = _of_numbers(raw, spacing, dimension)
    begins = np.cumsum(lengths) - lengths
    odd = np.zeros(len(raw), np.bool_)
    odd[1:] = np.diff(grid.at) != 1
    odd[begins] = False
    if (~grid.fits | odd).any():
        off = "is not a whole number of steps after the first"
        what = "follows a step that is missing within the file" if grid.fits.all() else off
        row = int(np.argmax(odd if grid.fits.all() else ~grid.fits))
        label, first_label = write_labels(raw[[row, 0]], held.attributes)
        raise CombineError(
            f"a label of {dimension!r} {what}, so the axis is not regular",
            fixes=[*_fit_spacing(raw, begins, units, dimension), without_spacing(dimension)],
            do="You can also leave the file out.",
            file=urls[int(np.searchsorted(begins, row, side="right")) - 1],
            label=label,
            first_label=first_label,
            spacing=spacing,
        )
    return AxisSteps(
        path=held.path,
        begins=grid.at[begins],
        lengths=lengths,
        values=grid.values,
        attributes=held.attributes,
    )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Grid:
    at: NDArray[np.int64]  # (labels,) their steps
    fits: NDArray[np.bool_]  # (labels,)
    values: NDArray[Any]  # (steps,)


def without_spacing(dimension: str) -> Fix:
    """Return the fix that leaves the spacing of a dimension out."""
    return build_fix("steps that no file holds get no place", without={"spacing": dimension})


def _fit_spacing(
    raw: NDArray[Any], begins: NDArray[np.int64], units: TimeUnits | None, dimension: str
) -> list[Fix]:
    """Return the fix by the widest spacing on which all labels of times lie, if there is one."""
    if units is None:
        return []
    try:
        times, there = microseconds(raw, units, missing=())
    except InexactError:
        return []
    apart = np.diff(times)
    inside = np.ones(len(apart), np.bool_)
    inside[begins[1:] - 1] = False
    step = int(np.gcd.reduce(np.abs(apart))) if len(apart) and there.all() else 0
    if not step or (np.abs(apart[inside]) != step).any():
        return []
    count = int(abs(times[-1] - times[0])) // step + 1
    if count > _SPARSEST * len(times):
        return []
    sizes = ((size, name) for name, size in UNITS.items() if not step % size and name != "w")
    size, unit = max(sizes)
    price = f"{count - len(times):,} of {count:,} steps have no file and read as missing"
    return [fix(price, spacing={dimension: f"{step // size}{unit}"})]


def _of_times(
    held: Coordinate, raw: NDArray[Any], units: TimeUnits, spacing: str | float, dimension: str
) -> _Grid:
    if isinstance(spacing, str):
        step = duration_of(spacing)
    else:
        step = round(spacing * units.step / MICROSECOND)
    try:
        times, there = microseconds(raw, units, missing=missing_of(held.attributes))
        step = -step if times[-1] < times[0] else step
        at, rest = np.divmod(times - times[0], step)
        every = np.arange(_count(at, held.path), dtype=np.int64) * step + times[0]
        none = np.zeros_like(every)
        exact = Times(microseconds=every, rest=none, there=np.ones(len(every), np.bool_))
        wide = np.dtype(np.float64 if raw.dtype.kind == "f" else np.int64)
        values = encode_times(exact, units, wide, None)
        lost = microseconds(values, units)[0] != every
    except InexactError as error:
        raise CombineError(
            f"a step that is missing has no value in {held.path}: {error}",
            fixes=[without_spacing(dimension)],
            do="You can also correct the spacing.",
            variable=held.path,
        ) from error
    narrow = values.astype(raw.dtype)
    if (lost | (narrow != values)).any():
        raise CombineError(
            f"a step that is missing has no exact value in the data type of {held.path}",
            fixes=[without_spacing(dimension)],
            do="You can also correct the spacing.",
            variable=held.path,
            data_type=str(raw.dtype),
        )
    fits = there & (rest == 0)
    narrow[at[fits]] = raw[fits]
    return _Grid(at=at, fits=fits, values=narrow)


def _of_numbers(raw: NDArray[Any], spacing: str | float, dimension: str) -> _Grid:
    if isinstance(spacing, str):
        raise InvalidInputError(
            "the spacing of an axis without time units must be a number",
            do="Correct spacing.",
            regular=spacing,
            dimension=dimension,
        )
    wide = raw.astype(np.float64)
    step = -spacing if wide[-1] < wide[0] else spacing
    exact = (wide - wide[0]) / step
    at = np.rint(exact).astype(np.int64)
    values = wide[0] + np.arange(_count(at, dimension)) * step
    narrow = values.astype(raw.dtype)
    narrow[at] = raw
    fits = np.abs(exact - at) <= _TOLERANCE
    if raw.dtype.kind in "iu":
        fits &= np.full(len(at), bool((np.abs(values - narrow) <= _TOLERANCE).all()))
    return _Grid(at=at, fits=fits, values=narrow)


def _count(at: NDArray[np.int64], what: str) -> int:
    count = int(at.max(initial=0)) + 1
    if count > max(_LONGEST, len(at)):
        raise InvalidInputError(
            f"the steps are so small that {what} would have {count:,} of them",
            do="Correct spacing.",
            steps=count,
        )
    return count


_ROWS = 1 << 16  # of the arrays that are looked at together


def as_given(
    facts: CatalogFacts, dimensions: Sequence[str], new: Collection[str] = ()
) -> Placement:
    """Return a cell for each file, without a look at labels; ``new`` are dimensions of no file."""
    files = len(facts.files)
    axes = (_in_order(facts, dimension) for dimension in dimensions)
    return Placement.of([replace(each, is_new=each.dimension in new) for each in axes], files)


def place_files(
    facts: CatalogFacts,
    dimensions: Sequence[str],
    known: Mapping[str, AxisPlacement],
    regular: Mapping[str, str | float],
    falling: Collection[str] = (),
) -> Placement:
    """Return the cells of the files; along some dimensions they may be ``known`` already.

    ``regular`` says how far apart the steps of a dimension are, so that missing ones have a place;
    along dimensions that are ``falling``, labels of single steps fall.

    Raises:
        CombineError: Labels are missing (NaN), repeat, or the files' ranges overlap.
    """
    alone = len(dimensions) == 1
    apart = not alone and not known and _apart(facts, dimensions)
    axes = [
        known[dimension]
        if dimension in known
        else _by_labels(
            facts,
            dimension,
            alone=alone or apart,
            spacing=regular.get(dimension),
            falling=dimension in falling,
        )
        for dimension in dimensions
    ]
    return Placement.of(_in_step(facts, axes) if apart else axes, len(facts.files))


def _apart(facts: CatalogFacts, dimensions: Sequence[str]) -> bool:
    """Say whether no array has two of the dimensions, as in ragged arrays (CF 9.3.3)."""
    wanted = {*dimensions}
    schemas = map(ArraySchema.loads, facts.arrays.schema.values)
    return all(len(wanted & {*each.dimension_names}) < 2 for each in schemas)


def _in_step(facts: CatalogFacts, axes: Sequence[AxisPlacement]) -> list[AxisPlacement]:
    """Return axes of which those without labels follow the one that has some.

    Raises:
        CombineError: Several files have the same label, so that the others have no order.
    """
    leader = next((axis for axis in axes if len(axis.names)), None)
    found = []
    for axis in axes:
        if leader is None or len(axis.names):
            found.append(axis)
            continue
        there = np.flatnonzero(axis.cell != NOWHERE)
        ranked, rank = np.unique(leader.cell[there], return_inverse=True)
        if len(ranked) < len(there) or NOWHERE in ranked:
            raise _unknown_positions(axis.dimension)
        cell = _spread(len(facts.files), there, rank.astype(np.int64))
        reason = f"along {axis.dimension!r} in the order of {leader.dimension!r}"
        found.append(replace(axis, cell=cell, reason=reason))
    return found


def _unknown_positions(dimension: str) -> CombineError:
    return CombineError(
        f"the positions of files along {dimension!r} are unknown: some files have the "
        "dimension without its coordinate",
        do=write_remedy(
            "Pass nested lists of files with ",
            choose(combine="nested"),
            ", or leave the dimension out of ",
            write_option("concat_dim"),
            ".",
        ),
        dimension=dimension,
    )


def place_by_order(facts: CatalogFacts, dimension: str, place: NDArray[np.int64]) -> AxisPlacement:
    """Return the cells of files along a dimension that they have, whose places a person gave."""
    there = files_along(facts, dimension)
    cell = np.unique(place[there], return_inverse=True)[1].astype(np.int64)
    reason = f"in the order given along {dimension!r}"
    return replace(_in_order(facts, dimension, cell), reason=reason)


def _in_order(
    facts: CatalogFacts, dimension: str, cell: NDArray[np.int64] | None = None
) -> AxisPlacement:
    there = files_along(facts, dimension)
    cell = np.arange(len(there)) if cell is None else cell
    return AxisPlacement(
        dimension=dimension,
        cell=_spread(len(facts.files), there, cell),
        count=int(cell.max(initial=-1)) + 1,
    )


def _by_labels(
    facts: CatalogFacts,
    dimension: str,
    *,
    alone: bool,
    spacing: str | float | None,
    falling: bool,
) -> AxisPlacement:
    if len(facts.files) == 1 and spacing is None:
        return _in_order(facts, dimension)
    there = files_along(facts, dimension)
    found = coordinate_of(facts, dimension, there)
    if found is None and not alone:
        raise _unknown_positions(dimension)
    return place_by(facts, dimension, there, found, alone=alone, spacing=spacing, falling=falling)


def place_by(
    facts: CatalogFacts,
    dimension: str,
    there: NDArray[np.int64],
    found: Coordinate | None,
    *,
    alone: bool,
    spacing: str | float | None,
    falling: bool = False,
) -> AxisPlacement:
    """Place some files by the labels of a coordinate, at equal steps where a spacing is given.

    Args:
        facts: Of all files.
        dimension: Along which they are placed.
        there: Which files these are.
        found: Their labels; None leaves the files in the order given.
        alone: Whether files are placed along no other dimension.
        spacing: How far apart steps are.
        falling: Whether labels of files of one step fall.

    Raises:
        CombineError: Labels are missing (NaN), repeat, or the files' ranges overlap.
    """
    keys = None if found is None else found.keys()
    groups = np.arange(len(there)) if keys is None else keys.runs.numbers()
    firsts = distinct_firsts(groups)[1]
    held = None if found is None else found.values.take(firsts)
    urls = facts.files.url[there[firsts]]
    order = order_files(
        urls,
        None if keys is None else keys.take(firsts),
        dimension=dimension,
        alone=alone,
        falling=falling,
    )
    names: NDArray[Any] | tuple[()] = () if held is None else held.firsts()
    cells = groups
    if not are_all(order.rows, len(firsts)):
        names = names[order.rows] if len(names) else ()
        rank = np.empty(len(firsts), np.int64)
        rank[order.rows] = np.arange(len(firsts))
        cells = rank[groups]
    steps = None
    if spacing is not None:
        if found is None or held is None or found.is_text:
            raise CombineError(
                f"{dimension!r} cannot be made regular: it has no numeric coordinate",
                fixes=[without_spacing(dimension)],
                dimension=dimension,
            )
        ordered = replace(found, values=held.take(order.rows))
        steps = steps_of(ordered, urls[order.rows], spacing, dimension=dimension)
    return AxisPlacement(
        dimension=dimension,
        cell=_spread(len(facts.files), there, cells),
        count=len(firsts),
        reason=order.reason,
        names=names,
        attributes=None if found is None else found.attributes,
        coordinate="" if found is None else found.path,
        steps=steps,
    )


def files_along(facts: CatalogFacts, dimension: str) -> NDArray[np.int64]:
    """Return the rows of the files that have an array with the dimension."""
    arrays, there = facts.arrays, np.zeros(len(facts.files), np.bool_)
    has = _schemas_with(facts, dimension)
    for low in range(0, len(arrays.file), _ROWS):
        some = slice(low, low + _ROWS)
        there[arrays.file[some][has[arrays.schema.codes[some]]]] = True
    return np.flatnonzero(there)


def _schemas_with(facts: CatalogFacts, dimension: str) -> NDArray[np.bool_]:
    """Say which of the schemas of arrays have the dimension."""
    texts = facts.arrays.schema.values
    return np.array([dimension in ArraySchema.loads(e).dimension_names for e in texts], np.bool_)


def along(facts: CatalogFacts, dimension: str) -> NDArray[np.bool_]:
    """Say which arrays have the dimension."""
    return spread(_schemas_with(facts, dimension), facts.arrays.schema.codes)


def data_along(facts: CatalogFacts, dimension: str) -> NDArray[np.bool_]:
    """Say which arrays hold data along the dimension: neither its coordinate nor that one's bounds.

    Coordinates are repeated in every file that has data for these steps.
    """
    arrays = facts.arrays
    repeated: set[str] = set()
    for code, path in enumerate(arrays.path.values):
        if paths.name(path) == dimension:
            used = arrays.schema.find_used(arrays.schema.codes[arrays.path.codes == code]).tolist()
            schemas = (ArraySchema.loads(arrays.schema.values[each]) for each in used)
            repeated |= {path, *(b for e in schemas for b in bounds_of(path, e.attributes.values))}
    is_data = np.array([path not in repeated for path in arrays.path.values], np.bool_)
    found = along(facts, dimension)
    found &= spread(is_data, arrays.path.codes)
    return found


def distinct_firsts(values: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return distinct numbers, ascending, and the first place of each."""
    if (values[1:] > values[:-1]).all():  # as nearly always: nothing is sorted
        return values, values if are_all(values, len(values)) else np.arange(len(values))
    return np.unique(values, return_index=True)


def number_rows(columns: Iterable[NDArray[np.integer]], rows: int) -> NDArray[np.int64]:
    """Number the rows of columns of cells, equal ones alike; without columns all are one."""
    number = np.zeros(rows, np.int64)
    for column in columns:
        span = int(column.max(initial=0)) + 2
        if int(number.max(initial=0)) >= np.iinfo(np.int64).max // span - 1:
            number = np.unique(number, return_inverse=True)[1].astype(np.int64)
        number = number * span + (column.astype(np.int64) + 1)
    return number


def _spread(files: int, there: NDArray[np.int64], cells: NDArray[np.int64]) -> NDArray[np.int64]:
    if are_all(there, files):
        return cells
    cell = np.full(files, NOWHERE, np.int64)
    cell[there] = cells
    return cell
