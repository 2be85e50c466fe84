"""Write labels as people read them: times as dates, in whatever calendar."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from icevirt.archive.times import TimeUnits
from icevirt.model.attributes import Attributes
from icevirt.planning.times.calendars import dates_of
from icevirt.planning.times.instants import InexactError, microseconds
from icevirt.planning.times.units import units_of


def written(values: NDArray[Any], attributes: Attributes) -> list[str]:
    """Return labels as people write them: times as dates of their calendar."""
    attrs = attributes.values
    units = units_of(attrs)
    offset = attrs.get("add_offset")
    if isinstance(offset, int | float) and values.dtype.kind in "iuf":
        values = values + offset
    if units is None:
        return [str(value) for value in values.tolist()]
    times = counted_times(values, units)
    dates = None if times is None else dates_of(times, units.calendar)
    plain = [f"{value} {units.text}" for value in values.tolist()]
    if dates is None:
        return plain
    there = np.isfinite(values).tolist() if values.dtype.kind == "f" else [True] * len(plain)
    return [
        date if known else text
        for date, text, known in zip(dates.texts(), plain, there, strict=True)
    ]


def counted_times(values: NDArray[Any], units: TimeUnits) -> NDArray[np.int64] | None:
    """Return microseconds since 1970-01-01; None where one lies further away than they count."""
    try:
        return microseconds(values, units)[0]
    except InexactError:
        return None
