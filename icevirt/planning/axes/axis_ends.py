"""Say with which labels dimensions begin and end, how far apart they are, and where they have gaps.

Months and years are as long as their calendar has them, so that neither a 29th of February nor a
month of 30 days is a gap. Labels are columns; only those that are shown become texts.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from icevirt.amounts import count_exactly
from icevirt.archive.facts import CatalogFacts
from icevirt.archive.plan import BuildPlan
from icevirt.archive.reports.build import AxisSummary, StepGap
from icevirt.archive.schema import ArraySchema
from icevirt.model import paths
from icevirt.model.attributes import Attributes
from icevirt.model.strings import Strings
from icevirt.planning.axes.axis import NOWHERE, AxisPlacement, NewDimension
from icevirt.planning.axes.coordinates import coordinate_of, decode
from icevirt.planning.axes.dates import count_times, write_labels
from icevirt.planning.axes.placement import distinct_firsts, files_along
from icevirt.planning.remedies import choose
from icevirt.planning.times.calendars import CalendarDates, dates_of
from icevirt.planning.times.units import units_of
from icevirt.remedy_notation import write_remedy

_FEW = 2  # differences, at least
_MOST = 0.5  # of the differences are one step, or there is none
_ROUNDING = 0.01  # of a step: times in floats are not exact
_OF_NUMBERS = 1e-3
_MONTH = 28 * 86_400_000_000  # microseconds: no month is shorter
_YEAR = 12  # months
_UNITS = (  # microseconds
    ("day", 86_400_000_000),
    ("hour", 3_600_000_000),
    ("minute", 60_000_000),
    ("second", 1_000_000),
    ("millisecond", 1_000),
)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Spacing:
    """How far apart labels are."""

    every: str = ""  # like "day", "6 hours", "3 months", "0.25"; "" where that differs
    duration: str = ""  # the same as the option spacing takes it; "" where it cannot
    shortest: str = ""  # where there is no one step
    longest: str = ""
    after: NDArray[np.int64] | None = None  # (gaps,) the label before each gap
    missing: NDArray[np.int64] | None = None  # (gaps,) steps in each


def spacing_of_times(times: NDArray[np.int64], calendar: str) -> Spacing:
    """Return how far apart times are; microseconds since 1970-01-01 of their calendar, in order."""
    apart = _ascending(np.diff(times))
    if apart is None:
        return Spacing()
    step = int(_usual(apart))
    if step >= _MONTH and (dates := dates_of(times, calendar)) is not None:
        found = _of_months(dates)
        if found is not None:
            return found
    unit = 1_000_000 if step >= 60_000_000 else 1_000 if step >= 1_000_000 else 1
    step = max(1, round(step / unit)) * unit
    gaps = _of_steps(apart, step, _ROUNDING)
    if gaps is None:
        return Spacing(shortest=_duration(int(apart.min())), longest=_duration(int(apart.max())))
    after, missing = gaps
    return Spacing(
        every=_duration(step).removeprefix("1 "),
        duration=_option(step),
        after=after,
        missing=missing,
    )


def spacing_of_numbers(values: NDArray[Any]) -> Spacing:
    """Return how far apart numbers are, in order."""
    apart = _ascending(np.diff(values.astype(np.float64)))
    if apart is None or not np.isfinite(apart).all():
        return Spacing()
    step = float(_usual(apart))
    found = _of_steps(apart, step, _OF_NUMBERS) if step else None
    if found is None:
        return Spacing(shortest=f"{apart.min():g}", longest=f"{apart.max():g}")
    after, missing = found
    return Spacing(every=f"{step:g}", duration=f"{step:g}", after=after, missing=missing)


def _ascending(apart: NDArray[Any]) -> NDArray[Any] | None:
    """Return differences as distances; None where there are few, or labels go up and down."""
    if len(apart) < _FEW:
        return None
    if (apart > 0).all():
        return apart
    return -apart if (apart < 0).all() else None


def _usual(apart: NDArray[Any]) -> Any:
    """Return the first difference if most are equal to it, else the median."""
    first = apart[0]
    if np.count_nonzero(apart == first) > len(apart) // 2:
        return first
    return np.partition(apart, len(apart) // 2)[len(apart) // 2]


def _of_steps(
    apart: NDArray[Any], step: float, tolerance: float
) -> tuple[NDArray[np.int64], NDArray[np.int64]] | None:
    """Return after which labels steps are missing, and how many; None where there is no step."""
    others = np.flatnonzero(apart != step)  # few, or times are not exact
    steps = np.rint(apart[others] / step)
    is_whole = np.abs(apart[others] - steps * step) <= tolerance * step
    gaps = np.flatnonzero(steps > 1)
    if not is_whole.all() or (steps < 1).any() or len(gaps) > (1 - _MOST) * len(apart):
        return None
    return others[gaps], steps[gaps].astype(np.int64) - 1


def _of_months(dates: CalendarDates) -> Spacing | None:
    """Return the spacing of labels that are whole months apart; None where they are not.

    They lie on one day of the month, or where the months' lengths put them: at their ends or
    middles.
    """
    apart = np.abs(np.diff(dates.months))
    step = int(_usual(apart))
    found = _of_steps(apart, step, 0.0) if step else None
    day = dates.day[:-1], dates.day[1:]
    if found is None or (np.abs(day[0] - day[1]) > 3).any():
        return None
    is_fixed = (dates.day == dates.day[0]).all()
    if not is_fixed and not (bool((dates.day >= 28).all()) or (abs(dates.day - 15) <= 2).all()):
        return None
    unit, number = ("year", step // _YEAR) if not step % _YEAR else ("month", step)
    after, missing = found
    every = unit if number == 1 else f"{number} {unit}s"
    return Spacing(every=every, after=after, missing=missing)


def _duration(span: int) -> str:
    """Return a duration in the largest unit that measures it, nearly."""
    name, length = next((each for each in _UNITS if span >= each[1]), ("microsecond", 1))
    shown = f"{round(span / length, 2):,g}"
    return f"{shown} {name}{'' if shown == '1' else 's'}"


def _option(step: int) -> str:
    """Return a step as the option spacing takes it."""
    units = zip(("D", "h", "min", "s"), (length for _, length in _UNITS), strict=False)
    found = (f"{step // length}{unit}" for unit, length in units if not step % length)
    return next(found, f"{step}us")


_USUAL = ("standard", "proleptic_gregorian")  # calendars
_SHOWN = 3  # gaps


def labels_of_files(
    facts: CatalogFacts, dimension: str, files: set[int]
) -> dict[int, tuple[str, str]]:
    """Return the first and the last label of files, as people write them."""
    arrays, labels = facts.arrays, facts.arrays.labels
    found: dict[int, tuple[str, str]] = {}
    wanted = np.zeros(len(facts.files), np.bool_)
    wanted[list(files)] = True
    for place in np.flatnonzero(wanted[arrays.file[labels.row]]).tolist():
        row, raw = int(labels.row[place]), labels.at(place)
        if paths.name(arrays.path[row]) == dimension and len(raw):
            attributes = ArraySchema.loads(arrays.schema[row]).attributes
            ends = write_labels(decode(raw, attributes.values)[[0, -1]], attributes)
            found.setdefault(int(arrays.file[row]), (ends[0], ends[1]))
    return found


def labels_at_ends(plan: BuildPlan, facts: CatalogFacts) -> dict[str, list[str]]:
    """Return the first and the last label along each dimension whose coordinate files hold."""
    found: dict[str, list[str]] = {}
    for array in plan.arrays:
        name = paths.name(array.path)
        is_label = name in plan.concat_dim and name not in found and len(array.axes) == 1
        if not is_label or not len(array.files):
            continue
        starts = array.starts[:, 0]
        ends = (int(array.files[at]) for at in (np.argmin(starts), np.argmax(starts)))
        first, last = (_row(facts, plan.files.url[at]) for at in ends)
        labels = labels_of_files(facts, name, {first, last})
        if first in labels and last in labels:
            found[name] = [labels[first][0], labels[last][1]]
    return found


def _row(facts: CatalogFacts, url: str) -> int:
    same = np.flatnonzero(facts.files.url.hashes() == Strings.of([url]).hashes()[0])
    return next(int(row) for row in same if facts.files.url[int(row)] == url)


# -- from first to last --------------------------------------------------------------------------


def summary_of_axis(
    facts: CatalogFacts, axis: AxisPlacement, new: NewDimension | None
) -> AxisSummary | None:
    """Return the labels along a dimension in short; None where no file lies along it.

    Args:
        facts: Of the files.
        axis: Where they lie.
        new: The dimension, if no file has it or its labels are given.
    """
    if new is not None:
        if new.values is None:
            return AxisSummary(dimension=axis.dimension, steps=new.count)
        return _summary(axis.dimension, new.values, new.attributes)
    if axis.steps is not None:
        return _summary(axis.dimension, axis.steps.values, axis.steps.attributes)
    there = files_along(facts, axis.dimension)
    held = coordinate_of(facts, axis.dimension, there)
    if held is None:
        return None
    cells, first = distinct_firsts(axis.cell[there])
    values = held.values.take(first[cells != NOWHERE])
    is_plain = held.counts_alike and not held.shifted and not held.missing.any()
    return _summary(
        axis.dimension, values.flat, held.attributes, is_plain=is_plain, ends=values.starts[1:] - 1
    )


def _summary(
    dimension: str,
    values: NDArray[Any],
    attributes: Attributes,
    *,
    is_plain: bool = True,
    ends: NDArray[np.int64] | None = None,
) -> AxisSummary:
    """Return labels in short.

    Args:
        dimension: Its name.
        values: The labels.
        attributes: That say what they count.
        is_plain: Whether they can be compared; else they are only counted.
        ends: Where the last label of each file stands; None where each file has one.
    """
    if not is_plain or not len(values):
        return AxisSummary(dimension=dimension, steps=len(values))
    units = units_of(attributes.values)
    spacing = Spacing()
    if values.dtype.kind in "iuf":
        times = None if units is None else count_times(values, units)
        if units is not None and times is not None:
            spacing = spacing_of_times(times, units.calendar)
        elif units is None:
            spacing = spacing_of_numbers(values)
    first, last = write_labels(values[[0, -1]], attributes)
    calendar = "" if units is None or units.calendar in _USUAL else units.calendar
    after = np.zeros(0, np.int64) if spacing.after is None else spacing.after
    missing = after if spacing.missing is None else spacing.missing
    # a file that lacks a step between two of its own cannot be spread over a regular axis
    is_between = ends is None or bool(np.isin(after, ends).all())
    return AxisSummary(
        dimension=dimension,
        steps=len(values),
        first=first,
        last=last,
        calendar=calendar,
        every=spacing.every,
        spacing=spacing.duration if is_between else "",
        shortest=spacing.shortest,
        longest=spacing.longest,
        gaps=len(after),
        missing=int(missing.sum()),
        examples=_find_gaps(values, attributes, after[:_SHOWN], missing[:_SHOWN]),
    )


def _find_gaps(
    values: NDArray[Any],
    attributes: Attributes,
    after: NDArray[np.int64],
    missing: NDArray[np.int64],
) -> tuple[StepGap, ...]:
    columns = (write_labels(values[after], attributes), write_labels(values[after + 1], attributes))
    rows = zip(*columns, missing.tolist(), strict=True)
    return tuple(StepGap(after=last, before=next_, missing=count) for last, next_, count in rows)


def describe_axes(axes: Sequence[AxisSummary]) -> Iterator[str]:
    """Yield a line for each dimension along which steps are missing, with what reserves them."""
    for axis in (each for each in axes if each.gaps):
        shown = ", ".join(
            f"{count_exactly(each.missing, 'step')} between {each.after} and {each.before}"
            for each in axis.examples
        )
        more = axis.gaps - len(axis.examples)
        line = f"{axis.dimension!r} has {count_exactly(axis.gaps, 'gap')}: {shown}"
        if more > 0:
            line += f", and {more:,} more"
        if axis.spacing:
            reserve = choose(spacing={axis.dimension: axis.spacing})
            line = write_remedy(
                line,
                ". To give these steps a place, where they read as missing, build with ",
                reserve,
            )
        yield line


_FAR = 1.75  # mean steps: months, and the days of a year, differ by less


def new_gaps(
    facts: CatalogFacts, axis: AxisPlacement, ends: int, steps: int | None
) -> Iterator[str]:
    """Yield a line if the new files begin far behind the last step, and one for gaps among them.

    What lies between the files at the ends is not known, but how many steps there are: so the
    first line compares with the mean step.

    Args:
        facts: Of the files at the ends of the dataset, and behind them of the new ones.
        axis: Where they lie along the dimension, if no step is missing.
        ends: How many files at the ends there are.
        steps: The length of the dataset along the dimension; None if it is not known.
    """
    held = coordinate_of(facts, axis.dimension, np.arange(len(facts.files)))
    is_new = np.arange(len(axis.cell)) >= ends
    if held is None or held.is_text or held.missing.any() or not held.counts_alike:
        return
    keys = held.keys()
    flat, begin = keys.runs.flat, int(keys.runs.starts[ends])
    old, new = flat[:begin], flat[begin:]
    if len(old) and len(new) and steps is not None and steps > 1:
        last, first = int(np.argmax(old)), begin + int(np.argmin(new))
        mean = float(old.max() - old.min()) / (steps - 1)
        apart = float(flat[first] - flat[last])
        if mean > 0 and apart >= _FAR * mean:
            before, behind = keys.shown(np.array([last, first]))
            yield (
                f"{axis.dimension!r} goes from {before} to {behind}, which is"
                f" {apart / mean:.3g} times the mean step before: steps may be missing"
            )
    rest = replace(axis, cell=np.where(is_new, axis.cell, NOWHERE))
    summary = summary_of_axis(facts, rest, None)
    yield from describe_axes([] if summary is None else [summary])
