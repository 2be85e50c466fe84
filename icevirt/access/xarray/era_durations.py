"""Decode durations that eras count or mark differently, so that all of them are durations.

xarray decodes what has a mark, as its own files have it, and shows the numbers of others. Numbers
of several units would mean different durations in one array.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import Any

from xarray import Dataset, Variable
from xarray.coders import CFTimedeltaCoder

from icevirt.planning.times.units import duration_of

_OPTIONS = ("decode_cf", "decode_times", "decode_timedelta")  # whose False says what to show


def with_durations(datasets: Sequence[Dataset], decoders: Mapping[str, Any]) -> Sequence[Dataset]:
    """Return datasets in which durations of one name are decoded in all or in none.

    Args:
        datasets: Of each era.
        decoders: What the caller decodes.
    """
    if any(decoders.get(name) is False for name in _OPTIONS):
        return datasets
    found: dict[Hashable, set[str | None]] = {}
    for dataset in datasets:
        for name, variable in dataset.variables.items():
            found.setdefault(name, set()).add(_shown_as(variable))
    several = [name for name, each in found.items() if len(each) > 1 and None not in each]
    return [_decoded(dataset, several) for dataset in datasets] if several else datasets


def _shown_as(variable: Variable) -> str | None:
    """Return the unit of numbers of durations, "" of decoded ones; None of all else."""
    if variable.dtype.kind == "m":
        return ""
    units = duration_of(variable.attrs) if variable.dtype.kind in "iuf" else None
    return None if units is None else units.unit


def _decoded(dataset: Dataset, names: Sequence[Hashable]) -> Dataset:
    coder = CFTimedeltaCoder(decode_via_units=True)
    held = {name: dataset.variables[name] for name in names if name in dataset.variables}
    return dataset.assign({name: coder.decode(each) for name, each in held.items()})
