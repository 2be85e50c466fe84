"""Say which variable each field belongs to, and how variables are called.

A name follows from the field alone, whatever else is in its file: cfgrib's name of the parameter,
and what else tells it from others of that name. A parameter that ecCodes knows on one kind of level
or with one statistic only, and pressure levels, need no such word.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Self

import numpy as np
from numpy.typing import NDArray

from icevirt.model.paths import node_name
from icevirt_scanners.grib.parameters import (
    SURFACE_VALUES,
    Parameter,
    asks_for_values,
    is_old,
    name_level,
    name_parameter,
)
from icevirt_scanners.grib.products import (
    FACTS,
    FLOATING,
    NO_MEMBER,
    OF_RUNS,
    Products,
    read_products,
)
from icevirt_scanners.grib.sections import Fields

_PRESSURE = "isobaricInhPa"
_STATISTICS = {
    -1: "instant",
    255: "instant",
    0: "avg",
    1: "accum",
    2: "max",
    3: "min",
    4: "diff",
    5: "rms",
    6: "sd",
    7: "cov",
    8: "sdiff",
    9: "ratio",
    10: "stdanom",
    11: "sum",
    100: "severity",
    101: "mode",
    102: "index",
}
_METHODS = {
    "avg": "mean",
    "accum": "sum",
    "sum": "sum",
    "max": "maximum",
    "min": "minimum",
    "sd": "standard_deviation",
    "rms": "root_mean_square",
    "diff": "range",
}
_DERIVED = {
    0: "mean",
    1: "weighted_mean",
    2: "cluster_deviation",
    3: "normalized_deviation",
    4: "spread",
    5: "anomaly_index",
    6: "cluster_mean",
    7: "interquartile_range",
    8: "minimum",
    9: "maximum",
}
_ERRORS = {6: "forecast_error", 7: "analysis_error"}  # of generating processes (table 4.3)
_INCREMENTS = {OF_RUNS: "of_runs", FLOATING: "floating"}
_FROM_TIME = "from time to valid_time"
_LIMITS = {0: "below_{lower}", 1: "above_{upper}", 2: "between_{lower}_and_{upper}"}
_LIMITS |= {3: "above_{lower}", 4: "below_{upper}"}


@dataclass(frozen=True, slots=True, kw_only=True)
class VariableKey:
    """What all fields of a variable have in common."""

    parameter: Parameter
    type_of_level: str
    level: float | None  # of a parameter that has one level only; None where there is none
    has_levels: bool
    has_members: bool
    step_type: str
    window: int | None  # seconds of the interval; 0: from the reference time on; None: an instant
    increment: int  # OF_RUNS or FLOATING, -1 for others
    kind: (
        str  # whether it is an error, what was made of an ensemble, of which constituent; "" mostly
    )
    discipline: int

    @property
    def name(self) -> str:
        """The name of its array."""
        return "_".join((self.parameter.cf_var_name, *self._words()))

    def _words(self) -> Iterator[str]:
        if self.parameter.origin:
            yield self.parameter.origin
        known = self.parameter.conditions
        if "t1" not in known and self.type_of_level != _PRESSURE:
            yield self.type_of_level
        if self.step_type != "instant" and "stat" not in known:
            yield self.step_type
        if self.window and ("length" not in known or self.increment == OF_RUNS):
            yield span(self.window)
        if self.increment >= 0:
            yield _INCREMENTS[self.increment]
        if self.kind:
            yield self.kind

    @property
    def cell_methods(self) -> str:
        """CF's word for its statistic; "" for an instant."""
        method = _METHODS.get(self.step_type, "")
        axis = "time" if self.increment == OF_RUNS else "step"
        return f"{axis}: {method}" if method else ""

    @property
    def time_window(self) -> str:
        """What its statistic was made over; "" for an instant."""
        if self.window is None:
            return ""
        if self.increment == OF_RUNS:
            return f"runs of {span(self.window)} from time on, each at step"
        found = f"{span(self.window)} before valid_time" if self.window else _FROM_TIME
        return f"any part of: {found}" if self.increment == FLOATING else found


def span(seconds: int) -> str:
    """Write a length of time without a loss, as part of a name."""
    for size, unit in ((3600, "h"), (60, "min")):
        if not seconds % size:
            return f"{seconds // size}{unit}"
    return f"{seconds}s"


@dataclass(frozen=True, kw_only=True, eq=False)
class Variables:
    """The variables of a file; files that say the same share them."""

    keys: tuple[VariableKey, ...]
    of: NDArray[np.int64]  # (n,) the variable of each field, -1 where its product is not read

    @cached_property
    def nodes(self) -> tuple[str, ...]:
        """The name of each array."""
        return tuple(node_name(key.name.encode())[0] for key in self.keys)

    @cached_property
    def _order(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The fields variable by variable, and where those of each begin."""
        order = np.argsort(self.of, kind="stable")
        return order, np.searchsorted(self.of[order], np.arange(len(self.keys) + 1))

    def rows(self, number: int) -> NDArray[np.int64]:
        """Return the fields of a variable."""
        order, starts = self._order
        return order[starts[number] : starts[number + 1]]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ReadFields:
    """The fields of a file, and what they are."""

    fields: Fields
    products: Products
    variables: Variables

    @classmethod
    def of(cls, fields: Fields) -> Self:
        """Interpret fields. Raises `DamagedMessageError`."""
        products = read_products(fields)
        return cls(fields=fields, products=products, variables=find_variables(products))

    def take(self, rows: NDArray[np.int64]) -> ReadFields:
        """Return some of the fields, which may have other variables."""
        products = self.products.take(rows)
        variables = find_variables(products)
        return ReadFields(fields=self.fields.take(rows), products=products, variables=variables)


_KNOWN = 64
_known: dict[bytes, Variables] = {}  # by what decides them, the latest at the end


def find_variables(products: Products) -> Variables:
    """Return the variables, in the order of their first fields."""
    columns = np.column_stack(
        [
            products.facts,
            products.window,
            _begins_with_run(products),
            products.member != NO_MEMBER,
            np.isnan(products.level),
            np.nan_to_num(products.second_level) != 0,
        ]
    ).astype(np.int64)
    _forget_values(columns)
    read = np.ones(len(columns), np.bool_)
    read[list(products.refused)] = False
    said = columns.tobytes() + read.tobytes()
    if (known := _known.get(said)) is not None:
        return known
    of = np.full(len(columns), -1, np.int64)
    rows = np.nonzero(read)[0]
    keys = _number_rows(columns[rows])
    _, first = np.unique(keys, return_index=True)
    numbers: dict[VariableKey, int] = {}
    own = np.zeros(len(first), np.int64)
    for at, row in enumerate(rows[first].tolist()):
        levels = (_or_none(each[row]) for each in (products.level, products.second_level))
        key = _key(tuple(columns[row, :-2].tolist()), *levels)
        own[at] = numbers.setdefault(key, len(numbers))
    of[rows] = own[keys]
    while len(_known) >= _KNOWN:
        _known.pop(next(iter(_known)), None)
    found = _known[said] = Variables(keys=tuple(numbers), of=of)
    return found


def are_called_alike(one: Products, other: Products) -> bool:
    """Say whether two files have the same variables, field for field; seldom it says no wrongly."""
    return (
        _are_equal(one.facts, other.facts)
        and _are_equal(one.window, other.window)
        and _are_equal(_begins_with_run(one), _begins_with_run(other))
        and (
            one.member is other.member
            or _are_equal(one.member == NO_MEMBER, other.member == NO_MEMBER)
        )
        and one.refused.keys() == other.refused.keys()
    )


def _are_equal(one: NDArray[np.generic], other: NDArray[np.generic]) -> bool:
    """Compare columns of as many rows; those of files of a kind are mostly the same."""
    return one is other or bool((one == other).all())


def _begins_with_run(products: Products) -> NDArray[np.bool_]:
    """Say which fields are statistics from the reference time on."""
    is_statistic: NDArray[np.bool_] = products.facts[:, FACTS.index("stat")] >= 0
    found: NDArray[np.bool_] = is_statistic & (products.begin == 0)
    return found


def _forget_values(columns: NDArray[np.int64]) -> None:
    """Take values of surfaces out of rows whose names are the same for all values."""
    names = ("discipline", "category", "number", "t1", "t2")
    kinds = columns[:, [FACTS.index(name) for name in names]]
    keys = _number_rows(kinds)
    _, first = np.unique(keys, return_index=True)
    asked = np.array([asks_for_values(*kinds[row].tolist()) for row in first.tolist()], np.bool_)
    for name in SURFACE_VALUES:
        columns[~asked[keys], FACTS.index(name)] = -1


def _number_rows(rows: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return a number for each row, by the order in which distinct ones come."""
    raw, width = rows.tobytes(), rows.shape[1] * rows.itemsize
    seen: dict[bytes, int] = {}
    found = [seen.setdefault(raw[at : at + width], len(seen)) for at in range(0, len(raw), width)]
    return np.array(found, np.int64)


def _or_none(level: float) -> float | None:
    return None if np.isnan(level) else float(level)


@lru_cache(1 << 14)  # files of an archive say mostly the same
def _key(values: tuple[int, ...], level: float | None, second: float | None) -> VariableKey:
    facts = dict(zip(FACTS, values, strict=False))
    window, from_reference, has_members = values[len(FACTS) :]
    parameter = name_parameter(
        facts["discipline"],
        facts["category"],
        facts["number"],
        facts,
        old=is_old(facts["center"], facts["subcenter"], facts["tables"]),
    )
    is_layer = facts["t2"] != 255 and "t2" not in parameter.conditions
    if is_layer:  # the tables mean a single level
        parameter = _without(parameter, "t1", "v1")
    has_one = "v1" in parameter.conditions
    has_levels = (level is not None and not has_one) or (
        bool(second) and "v2" not in parameter.conditions
    )
    step_type = _STATISTICS.get(facts["stat"], f"stat{facts['stat']}")
    increment = facts["increment"]
    is_whole = from_reference and increment != OF_RUNS
    return VariableKey(
        parameter=parameter,
        type_of_level=name_level(facts),
        level=None if has_levels else level,
        has_levels=has_levels,
        has_members=bool(has_members),
        step_type=step_type,
        window=None if facts["stat"] < 0 else 0 if is_whole else window,
        increment=increment if increment in _INCREMENTS else -1,
        kind=_kind(facts, parameter),
        discipline=facts["discipline"],
    )


def _without(parameter: Parameter, *names: str) -> Parameter:
    return replace(parameter, conditions=parameter.conditions - {*names})


def _kind(facts: Mapping[str, int], parameter: Parameter) -> str:
    words = []
    if facts["process"] in _ERRORS and "process" not in parameter.conditions:
        words.append(_ERRORS[facts["process"]])
    if facts["constituent"] >= 0:
        words.append(f"constituent_{facts['constituent']}")
    if facts["derived"] >= 0:
        words.append(_DERIVED.get(facts["derived"], f"derived_{facts['derived']}"))
    if facts["percentile"] >= 0:
        words.append(f"percentile_{facts['percentile']}")
    if facts["probability"] >= 0:
        lower, upper = (_limit(facts, name) for name in ("lower", "upper"))
        text = _LIMITS.get(facts["probability"], "probability_{lower}_{upper}")
        words.append(text.format(lower=lower, upper=upper))
    return "_".join(words)


def _limit(facts: Mapping[str, int], name: str) -> str:
    value, scale = facts[name], facts[f"{name}_scale"]
    found = value * 10.0**-scale if scale <= 0 else value / 10.0**scale
    return repr(float(found)).removesuffix(".0")
