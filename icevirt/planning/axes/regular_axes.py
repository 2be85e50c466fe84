"""Fill axes with equal steps: every step gets a place and a label, also where no file has it.

The user gives the spacing. Times are compared in whole microseconds, other numbers within a
millionth of a step. The labels of missing steps are computed, and must have an exact value in the
units and the data type of the coordinate.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from icevirt.archive.times import TimeUnits
from icevirt.errors import CombineError, Fix, InvalidInputError
from icevirt.model.attributes import Attributes
from icevirt.model.strings import Strings
from icevirt.planning.axes.coordinates import Coordinate
from icevirt.planning.axes.dates import written
from icevirt.planning.remedies import build_fix, fix, listed
from icevirt.planning.times.instants import InexactError, Times, microseconds
from icevirt.planning.times.units import MICROSECOND, missing_of, units_of
from icevirt.planning.times.values import encoded_times

_SPARSEST = 100  # steps for each that a file holds: more are a mistake
_TOLERANCE = 1e-6  # of a step, for numbers that are no times
_LONGEST = 100_000_000  # steps: more are a mistake of the spacing
_SHOWN = 10  # steps in a note
_UNITS = {  # microseconds
    "us": 1, "ms": 1_000, "s": 1_000_000, "min": 60_000_000, "h": 3_600_000_000,
    "d": 86_400_000_000, "w": 604_800_000_000,
}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class AxisSteps:
    """All steps of an axis, and where the steps of each cell are among them."""

    path: str  # of the coordinate
    begins: NDArray[np.int64]  # (cells,) the step at which each begins
    lengths: NDArray[np.int64]  # (cells,) steps of each
    values: NDArray[Any]  # (steps,) of the coordinate, as files store them
    attributes: Attributes  # of the coordinate

    @property
    def absent(self) -> NDArray[np.int64]:
        """The steps that no file holds."""
        there = np.zeros(len(self.values) + 1, np.int64)
        np.add.at(there, self.begins, 1)
        np.add.at(there, self.begins + self.lengths, -1)
        return np.flatnonzero(np.cumsum(there)[:-1] == 0)

    def describe(self, dimension: str) -> str:
        """Return the line that lists the steps that no file holds."""
        absent = self.absent
        shown = listed(written(self.values[absent], self.attributes), _SHOWN)
        return (
            f"{len(absent):,} of {len(self.values):,} steps along {dimension!r} have no file and "
            f"read as missing: {shown}"
        )


def spacing_of(given: Any) -> str | float:
    """Return how far apart steps are, as a person says it: ``"6h"``, ``"1D"``, or a number.

    Raises:
        InvalidInputError: It is neither, or not above zero.
    """
    if isinstance(given, str) and duration_of(given):
        return given
    try:
        number = float(given)
    except (TypeError, ValueError):
        number = 0.0
    if not number > 0 or not np.isfinite(number):
        raise InvalidInputError(
            "the spacing must be a time like 6h or 1D, or a number above zero",
            do=f"Correct spacing; units of time are {', '.join(_UNITS)}.",
            spacing=given,
        )
    return number


def duration_of(text: str) -> int:
    """Return the microseconds of a time like ``6h`` or ``30D``, 0 where the text says none."""
    found = re.fullmatch(r"\s*([0-9]+)?\s*([A-Za-z]+)\s*", text)
    if found is None or found[2].lower() not in _UNITS:
        return 0
    return int(found[1] or 1) * _UNITS[found[2].lower()]


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
    grid = (
        _of_times(held, raw, units, spacing, dimension)
        if units
        else _of_numbers(raw, spacing, dimension)
    )
    begins = np.cumsum(lengths) - lengths
    odd = np.zeros(len(raw), np.bool_)
    odd[1:] = np.diff(grid.at) != 1
    odd[begins] = False
    other = _fitting(raw, begins, units, dimension)
    for wrong, what in ((~grid.fits, "is not a whole number of steps after the first"),
                        (odd, "follows a step that is missing within the file")):  # fmt: skip
        if wrong.any():
            row = int(np.argmax(wrong))
            label, first_label = written(raw[[row, 0]], held.attributes)
            raise CombineError(
                f"a label of {dimension!r} {what}, so the axis is not regular",
                fixes=[*other, without_spacing(dimension)],
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


def _fitting(
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
    step = int(np.gcd.reduce(np.abs(apart))) if there.all() and len(apart) else 0
    if not step or (np.abs(apart[inside]) != step).any():
        return []
    count = int(abs(times[-1] - times[0])) // step + 1
    if count > _SPARSEST * len(times):
        return []
    return [
        fix(
            f"{count - len(times):,} of {count:,} steps have no file and read as missing",
            spacing={dimension: _written(step)},
        )
    ]


def _written(step: int) -> str:
    """Return microseconds as a person says them."""
    unit, size = max(
        ((name, size) for name, size in _UNITS.items() if not step % size and name != "w"),
        key=lambda each: each[1],
    )
    return f"{step // size}{unit}"


def _of_times(
    held: Coordinate, raw: NDArray[Any], units: TimeUnits, spacing: str | float, dimension: str
) -> _Grid:
    step = (
        duration_of(spacing)
        if isinstance(spacing, str)
        else round(spacing * units.step / MICROSECOND)
    )
    try:
        times, there = microseconds(raw, units, missing=missing_of(held.attributes))
        step = -step if times[-1] < times[0] else step
        at, rest = np.divmod(times - times[0], step)
        every = np.arange(_count(at, held.path), dtype=np.int64) * step + times[0]
        none = np.zeros_like(every)
        exact = Times(microseconds=every, rest=none, there=np.ones(len(every), np.bool_))
        wide = np.dtype(np.float64 if raw.dtype.kind == "f" else np.int64)
        values = encoded_times(exact, units, wide, None)
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
