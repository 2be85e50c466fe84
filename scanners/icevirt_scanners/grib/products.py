"""Say what fields are, as columns: when and where they hold, and what was done with them.

Octets are those of the templates of section 4. A template that is not read has no columns; the
reason is a text of its row in ``refused``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from icevirt_scanners.grib.headers import read_number
from icevirt_scanners.grib.sections import DamagedMessageError, Fields

INSTANT = 255
"""The statistic of a field that is none."""
NO_MEMBER = -1
OF_RUNS, FLOATING = 1, 5
"""How the times of a statistic follow each other (table 4.11): start by start, all with one lead;
and as any part of an interval."""
# the valid time stays: what is said of a length of time is not true of these
_SAME_VALID_TIME = (3, 4)
_MISSING = 0xFFFFFFFF
# seconds of a unit of time (table 4.4); months and years have no length
_UNITS = {0: 60, 1: 3600, 2: 86400, 10: 10800, 11: 21600, 12: 43200, 13: 1, 14: 900, 15: 1800}
UNITS = np.zeros(256, np.int64)
"""Seconds of each unit of time, 0 where it has no length."""
UNITS[list(_UNITS)] = list(_UNITS.values())
# kinds of surfaces of which 0 is a place, too (table 4.5): those with a unit, and numbered ones;
# services write 0 for the others, and for no value at all
_FROM_ZERO = np.zeros(256, np.bool_)
for _kinds in (range(20, 37), (100,), range(102, 116), range(117, 120), range(150, 153)):
    _FROM_ZERO[[*_kinds]] = True
_FROM_ZERO[[160, 161, 168, 169, 170, 171, 191, 193, 235, 241]] = True
_NO_SURFACE = 255
_EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001 - GRIB has no other times than UTC


class Template(NamedTuple):
    """Where a template of section 4 holds what; octets count from 0, -1 where it does not."""

    size: int  # bytes that it has at least
    shift: int = 0  # of all that follows category and number
    member: int = -1
    derived: int = -1
    probability: int = -1
    percentile: int = -1
    interval: int = -1  # the end of the time interval, before its ranges


TEMPLATES = {
    0: Template(34),
    1: Template(37, member=35),
    2: Template(36, derived=34),
    5: Template(47, probability=34),
    6: Template(35, percentile=34),
    8: Template(58, interval=34),
    9: Template(71, probability=34, interval=47),
    10: Template(59, percentile=34, interval=35),
    11: Template(61, member=35, interval=37),
    12: Template(60, derived=34, interval=36),
    40: Template(36, 2),
    41: Template(39, 2, member=37),
    42: Template(60, 2, interval=36),
    43: Template(63, 2, member=37, interval=39),
    60: Template(44, member=35),
    61: Template(68, member=35, interval=44),
}


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Products:
    """What fields are, a row each."""

    time: NDArray[np.int64]  # (n,) seconds from 1970 to the reference time
    step: NDArray[np.int64]  # (n,) seconds from there to the end of the field
    window: NDArray[np.int64]  # (n,) seconds of its time interval, 0 for an instant
    begin: NDArray[np.int64]  # (n,) seconds from the reference time to its beginning
    member: NDArray[np.int64]  # (n,) of an ensemble, NO_MEMBER where there is none
    level: NDArray[np.float64]  # (n,) of the first surface, NaN where there is none
    second_level: NDArray[np.float64]  # (n,)
    facts: NDArray[np.int64]  # (n, FACTS) what decides how it is called
    refused: Mapping[int, str]  # rows that are not read, and why

    def take(self, rows: NDArray[np.int64]) -> Products:
        """Return some of the rows."""
        columns = {name: getattr(self, name)[rows] for name in _COLUMNS}
        refused = {
            at: self.refused[row] for at, row in enumerate(rows.tolist()) if row in self.refused
        }
        return Products(**columns, refused=refused)

    def put(self, rows: NDArray[np.int64], others: Products) -> Products:
        """Return the same with others in the place of some rows."""
        columns = {name: getattr(self, name).copy() for name in _COLUMNS}
        for name, column in columns.items():
            column[rows] = getattr(others, name)
        replaced = rows.tolist()
        refused = {row: why for row, why in self.refused.items() if row not in replaced}
        refused |= {replaced[at]: why for at, why in others.refused.items()}
        return Products(**columns, refused=refused)


_COLUMNS = ("time", "step", "window", "begin", "member", "level", "second_level", "facts")

FACTS = (
    *("discipline", "category", "number", "center", "subcenter", "tables", "local"),
    *("process", "stat", "unit", "length", "t1", "f1", "v1", "t2", "f2", "v2"),
    *("derived", "probability", "lower", "lower_scale", "upper", "upper_scale", "percentile"),
    *("constituent", "increment"),
)
"""Columns of `Products.facts`; -1 where the field has none, or a missing one."""


def read_products(fields: Fields) -> Products:
    """Read sections 1 and 4.

    Raises:
        DamagedMessageError: A date is none, or a template is cut short.
    """
    count = len(fields)
    template = read_number(fields.product, 7, 2)
    facts = np.full((count, len(FACTS)), -1, np.int64)
    columns = {name: facts[:, at] for at, name in enumerate(FACTS)}
    step = np.zeros(count, np.int64)
    products = Products(
        time=_identify(fields, columns),
        step=step,
        window=np.zeros(count, np.int64),
        begin=np.zeros(count, np.int64),
        member=np.full(count, NO_MEMBER, np.int64),
        level=np.full(count, np.nan),
        second_level=np.full(count, np.nan),
        facts=facts,
        refused={},
    )
    refused: dict[int, str] = {}
    for number in np.unique(template).tolist():
        rows = np.nonzero(template == number)[0]
        if number not in TEMPLATES:
            refused |= dict.fromkeys(rows.tolist(), f"product definition template 4.{number}")
        else:
            refused |= _read_template(fields, rows, TEMPLATES[number], columns, products)
    object.__setattr__(products, "refused", refused)
    return products


def _identify(fields: Fields, columns: Mapping[str, NDArray[np.int64]]) -> NDArray[np.int64]:
    """Fill in what section 1 says; return reference times."""
    known = np.array([_times(fields, row) for row in range(len(fields.identifications))], np.int64)
    known = known.reshape(len(fields.identifications), 5)[fields.identification]
    names = ("center", "subcenter", "tables", "local")
    for at, name in enumerate(names, 1):
        columns[name][:] = known[:, at]
    columns["discipline"][:] = fields.discipline
    return known[:, 0]


def _times(fields: Fields, row: int) -> tuple[int, ...]:
    held = fields.identifications[row]
    year = int.from_bytes(held[12:14], "big")
    try:
        when = datetime(year, *held[14:19])  # noqa: DTZ001
    except ValueError as error:
        at = int(np.argmax(fields.identification == row))
        what = f"a reference time that is none ({error})"
        raise _damage(fields, at, what) from error
    seconds = int((when - _EPOCH).total_seconds())
    center, subcenter = int.from_bytes(held[5:7], "big"), int.from_bytes(held[7:9], "big")
    return seconds, center, subcenter, held[9], held[10]


def _damage(fields: Fields, row: int, what: str) -> DamagedMessageError:
    message, offset = int(fields.message[row]), int(fields.begin[row])
    return DamagedMessageError(what, message=message, offset=offset)


def _read_template(
    fields: Fields,
    rows: NDArray[np.int64],
    template: Template,
    columns: Mapping[str, NDArray[np.int64]],
    products: Products,
) -> dict[int, str]:
    """Fill in what the rows of one template say; return those that are not read, and why."""
    held = fields.product[rows]
    short = read_number(held, 0, 4) < template.size
    if short.any():
        raise _damage(fields, int(rows[short][0]), "section 4 is too short for its template")
    at = template.shift

    def put(name: str, values: NDArray[np.int64]) -> None:
        columns[name][rows] = values

    put("category", read_number(held, 9, 1))
    put("number", read_number(held, 10, 1))
    if at:
        put("constituent", read_number(held, 11, 2))
    put("process", read_number(held, 11 + at, 1))
    products.level[rows], unscaled = _surface(held, 22 + at, columns, rows, "1")
    products.second_level[rows], other = _surface(held, 28 + at, columns, rows, "2")
    if template.member >= 0:
        products.member[rows] = read_number(held, template.member, 1)
    if template.derived >= 0:
        put("derived", read_number(held, template.derived, 1))
    if template.percentile >= 0:
        put("percentile", read_number(held, template.percentile, 1))
    if template.probability >= 0:
        _probability(held, template.probability, put)
    unit, refused = _unit(read_number(held, 17 + at, 1), rows)
    refused |= unscaled | other
    begin = _signed(held, 18 + at, 4) * unit
    products.begin[rows] = products.step[rows] = begin
    if template.interval >= 0:
        refused |= _interval(held, template.interval, rows, put, products)
    return refused


def _probability(held: NDArray[np.uint8], at: int, put: object) -> None:
    assert callable(put)
    put("probability", read_number(held, at + 2, 1))
    for name, octet in (("lower", 3), ("upper", 8)):
        put(f"{name}_scale", _signed(held, at + octet, 1))
        put(name, _signed(held, at + octet + 1, 4))


def _interval(
    held: NDArray[np.uint8], at: int, rows: NDArray[np.int64], put: object, products: Products
) -> dict[int, str]:
    """Read the only time range of fields over an interval."""
    assert callable(put)
    count = read_number(held, at + 7, 1)
    several = rows[count != 1].tolist()
    refused = dict.fromkeys(several, "a statistic over other than one range of times")
    put("stat", read_number(held, at + 12, 1))
    put("unit", read_number(held, at + 14, 1))
    put("length", read_number(held, at + 15, 4))
    unit, unknown = _unit(read_number(held, at + 14, 1), rows)
    window = read_number(held, at + 15, 4) * unit
    products.window[rows] = window
    increment = read_number(held, at + 13, 1)
    put("increment", increment)
    # a lead of many starts is where it begins, as ecCodes says
    products.step[rows] += np.where(increment == OF_RUNS, 0, window)
    constant = rows[np.isin(increment, _SAME_VALID_TIME)].tolist()
    why = "a statistic over several runs for one valid time"
    return unknown | dict.fromkeys(constant, why) | refused


def _unit(
    codes: NDArray[np.int64], rows: NDArray[np.int64]
) -> tuple[NDArray[np.int64], dict[int, str]]:
    """Return seconds of units of time, and the rows whose unit has no length."""
    found = UNITS[codes]
    odd = np.nonzero(found == 0)[0].tolist()
    return found, {int(rows[at]): f"steps in units of code {int(codes[at])}" for at in odd}


def _surface(
    held: NDArray[np.uint8],
    at: int,
    columns: Mapping[str, NDArray[np.int64]],
    rows: NDArray[np.int64],
    which: str,
) -> tuple[NDArray[np.float64], dict[int, str]]:
    """Fill in what a surface is; return its value, and the rows where that is not known."""
    kind, scale, raw = (
        read_number(held, at, 1),
        read_number(held, at + 1, 1),
        read_number(held, at + 2, 4),
    )
    missing = (raw == _MISSING) | (scale == 255)
    factor = _signed(held, at + 1, 1)
    columns[f"t{which}"][rows] = kind
    columns[f"f{which}"][rows] = np.where(scale == 255, -1, factor)
    columns[f"v{which}"][rows] = np.where(raw == _MISSING, -1, raw)
    value = _signed(held, at + 2, 4).astype(np.float64)
    # a division by a power of ten is rounded once
    with np.errstate(over="ignore"):
        large = value * 10.0 ** np.maximum(-factor, 0)
    found = large / 10.0 ** np.maximum(factor, 0)
    none = missing | (kind == _NO_SURFACE) | ((found == 0) & ~_FROM_ZERO[kind])
    odd = (scale == 255) & (raw != _MISSING) & (value != 0) & (kind != _NO_SURFACE)
    why = "a surface whose value has no scale"
    return np.where(none, np.nan, found), dict.fromkeys(rows[odd].tolist(), why)


def _signed(held: NDArray[np.uint8], at: int, length: int) -> NDArray[np.int64]:
    """Return numbers whose first bit is their sign (regulation 92.1.5)."""
    raw, sign = read_number(held, at, length), 1 << 8 * length - 1
    return np.where(raw & sign, -(raw & sign - 1), raw)
