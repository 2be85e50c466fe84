"""Store referenced times that files count differently: all chunks, in one unit and type."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from icevirt.archive.schema import ArraySchema
from icevirt.archive.times import DURATION, TimeUnits
from icevirt.planning.combine.options import CombineOptions
from icevirt.planning.partial.storage_cost import NUMBERS, permits
from icevirt.planning.times.calendars import SINCE_REFORM
from icevirt.planning.times.recoding import counting_as
from icevirt.planning.times.targets import declared, storage_of, target_of
from icevirt.planning.times.units import counted_units, missing_of

_COUNTING = frozenset(("attribute units", "attribute calendar"))


def converts(
    options: CombineOptions,
    path: str,
    axes: Sequence[int],
    unlike: Mapping[str, tuple[Any, Any]],
    pair: tuple[ArraySchema, ArraySchema],
) -> bool:
    """Say whether files that count times differently may make one array, which is stored."""
    counts = [_units(each) for each in pair]
    calendars = {each.calendar for each in counts if each is not None}
    counting = _COUNTING | {"attribute dtype"} if calendars == {DURATION} else _COUNTING
    rest = {name: each for name, each in unlike.items() if name not in counting}
    return (
        None not in counts
        and (len(calendars) == 1 or calendars <= SINCE_REFORM)
        and options.on_mismatch == "native"
        and not options.as_floats(path)
        and permits(options, path, axes, rest)
    )


def counts_differ(schemas: Sequence[ArraySchema]) -> bool:
    """Say whether files count times differently."""
    counts = [_units(each) for each in schemas]
    return None not in counts and any(each != counts[0] for each in counts)


def stored_times(schemas: Sequence[ArraySchema], first: ArraySchema) -> ArraySchema | None:
    """Return the schema of times that all files can be converted to; None where there is none.

    Args:
        schemas: Of the files, in their order.
        first: The one whose attributes the array gets.
    """
    counts = [each for each in map(_units, schemas) if each is not None]
    storage = [(storage_of(each), missing_of(each.attributes)) for each in schemas]
    number = np.arange(len(schemas))
    target = target_of(declared(counts, storage, number, number), None)
    if target is None:
        return None
    return replace(
        first,
        data_type=target.data_type,
        fill_value="NaN" if target.fill != target.fill else target.fill or 0,
        attributes=counting_as(first.attributes, target, schemas[0].attributes),
    )


def _units(schema: ArraySchema) -> TimeUnits | None:
    is_number = isinstance(schema.data_type, str) and schema.data_type in NUMBERS
    return counted_units(schema.attributes.values) if is_number else None
