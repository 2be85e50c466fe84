"""Remark steps that are missing before files that a dataset grows by, or between them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from icevirt.planning.axes.axis_ends import describe_axes, summary_of_axis
from icevirt.planning.axes.coordinates import coordinate_of
from icevirt.planning.axes.placement import NOWHERE
from icevirt.planning.combine.options import CombineSpec
from icevirt.planning.combine.prepare import PreparedFacts

_FAR = 1.75  # mean steps: months, and the days of a year, differ by less


def new_gaps(
    prepared: PreparedFacts, spec: CombineSpec, ends: int, steps: int | None
) -> Iterator[str]:
    """Yield a line if the new files begin far behind the last step, and one for gaps among them.

    What lies between the files at the ends is not known, but how many steps there are: so the
    first line compares with the mean step.

    Args:
        prepared: Facts of the files at the ends of the dataset, and behind them of the new ones.
        spec: How they are combined, along one dimension.
        ends: How many files at the ends there are.
        steps: The length of the dataset along the dimension; None if it is not known.
    """
    (axis,) = prepared.cells(replace(spec, spacing={})).axes
    held = coordinate_of(prepared.facts, axis.dimension, np.arange(len(prepared.facts.files)))
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
    summary = summary_of_axis(prepared.facts, rest, None)
    yield from describe_axes([] if summary is None else [summary])
