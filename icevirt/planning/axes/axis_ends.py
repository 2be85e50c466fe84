"""Say with which labels dimensions begin and end, how far apart they are, and where they have gaps.

Labels are columns; only those that are shown become texts.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from icevirt.archive.facts import CatalogFacts
from icevirt.archive.plan import BuildPlan
from icevirt.archive.reports.card import counted
from icevirt.archive.reports.plan import AxisSummary, StepGap
from icevirt.archive.schema import ArraySchema
from icevirt.model import paths
from icevirt.model.attributes import Attributes
from icevirt.model.strings import Strings
from icevirt.planning.axes.coordinates import coordinate_of
from icevirt.planning.axes.dates import counted_times, written
from icevirt.planning.axes.file_order import decoded
from icevirt.planning.axes.new_dimensions import NewDimension
from icevirt.planning.axes.placement import NOWHERE, AxisPlacement, distinct_firsts, files_along
from icevirt.planning.remedies import choose
from icevirt.planning.times.steps import Spacing, spacing_of_numbers, spacing_of_times
from icevirt.planning.times.units import units_of

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
            ends = written(decoded(raw, attributes.values)[[0, -1]], attributes)
            found.setdefault(int(arrays.file[row]), (ends[0], ends[1]))
    return found


def labels_at_ends(plan: BuildPlan, facts: CatalogFacts) -> dict[str, list[str]]:
    """Return the first and the last label along each dimension whose coordinate files hold."""
    found: dict[str, list[str]] = {}
    for array in plan.arrays:
        name = paths.name(array.path)
        if name not in plan.concat_dim or name in found or len(array.axes) != 1:
            continue
        if not len(array.files):
            continue
        starts = array.starts[:, 0]
        first, last = (int(array.files[at]) for at in (np.argmin(starts), np.argmax(starts)))
        rows = [_row(facts, plan.files.url[at]) for at in (first, last)]
        labels = labels_of_files(facts, name, set(rows))
        if all(row in labels for row in rows):
            found[name] = [labels[rows[0]][0], labels[rows[1]][1]]
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
        times = None if units is None else counted_times(values, units)
        if units is not None and times is not None:
            spacing = spacing_of_times(times, units.calendar)
        elif units is None:
            spacing = spacing_of_numbers(values)
    first, last = written(values[[0, -1]], attributes)
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
        examples=tuple(_gaps(values, attributes, after[:_SHOWN], missing[:_SHOWN])),
    )


def _gaps(
    values: NDArray[Any],
    attributes: Attributes,
    after: NDArray[np.int64],
    missing: NDArray[np.int64],
) -> Iterator[StepGap]:
    before = written(values[after + 1], attributes)
    for last, next_, count in zip(
        written(values[after], attributes), before, missing.tolist(), strict=True
    ):
        yield StepGap(after=last, before=next_, missing=count)


def describe_axes(axes: Sequence[AxisSummary]) -> Iterator[str]:
    """Yield a line for each dimension along which steps are missing, with what reserves them."""
    for axis in axes:
        if not axis.gaps:
            continue
        shown = ", ".join(
            f"{counted(each.missing, 'step')} between {each.after} and {each.before}"
            for each in axis.examples
        )
        more = axis.gaps - len(axis.examples)
        line = (
            f"{axis.dimension!r} has {counted(axis.gaps, 'gap')}: {shown}"
            f"{f', and {more:,} more' if more > 0 else ''}"
        )
        if axis.spacing:
            reserve = choose(spacing={axis.dimension: axis.spacing})
            line += (
                f". To give these steps a place, where they read as missing, build with {reserve}"
            )
        yield line
