"""Name parameters and kinds of levels as ecCodes does.

The table is made of ecCodes' public definitions (`fixtures/grib_parameters.py`). Of the rows whose
conditions a field meets, the one with the most conditions counts, and of several the last; tables
of the center come before the tables of all centers, and ECMWF's tables come last.
"""

from __future__ import annotations

import gzip
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

ECMWF = 98
_LOCAL = 192  # from which on numbers mean what a center says
_NO_SUBCENTER = (0, 0xFFFF)
SURFACE_VALUES = ("f1", "v1", "f2", "v2")
"""Facts that are a value of a surface."""
_OLD = 33  # tables of the WMO up to which ECMWF's messages have the older names


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameter:
    """What ecCodes calls a parameter, in its words."""

    short_name: str
    cf_var_name: str
    param_id: int
    units: str
    name: str
    cf_name: str
    conditions: frozenset[str] = frozenset()  # under which it is called so, beside its number
    origin: str = ""  # the center, where another one may mean something else by the number


def name_parameter(
    discipline: int, category: int, number: int, facts: Mapping[str, int], *, old: bool
) -> Parameter:
    """Return the parameter of a number, given the facts that conditions ask for."""
    what = f"{discipline}.{category}.{number}"
    own, suffix = str(facts["center"]), "old" if old else ""
    own, every = (own + suffix if own == str(ECMWF) else own), suffix
    is_local = max(discipline, category, number) >= _LOCAL
    for kinds in ((own, every), (f"{ECMWF}{suffix}", every)):
        if row := _best(what, kinds, facts):
            conditions, short, cf, param, units, name, cf_name = row
            return Parameter(
                short_name=short,
                cf_var_name=cf,
                param_id=int(param),
                units=units,
                name=name,
                cf_name=cf_name,
                conditions=frozenset(conditions),
                origin=_origin(facts) if is_local and not _is_of(own, what, row) else "",
            )
    unknown = f"param_{discipline}_{category}_{number}"
    return Parameter(
        short_name="unknown",
        cf_var_name=unknown,
        param_id=0,
        units="unknown",
        name=f"parameter {number} of category {category}, discipline {discipline}",
        cf_name="",
        origin=_origin(facts),
    )


def _origin(facts: Mapping[str, int]) -> str:
    """Return the part of a name that says whose number it is."""
    subcenter = "" if facts["subcenter"] in _NO_SUBCENTER else f"_{facts['subcenter']}"
    return f"center_{facts['center']}{subcenter}"


def _is_of(center: str, what: str, row: _Row) -> bool:
    """Say whether a row is one of a center's own tables."""
    return any(each is row for each in _table(what).get(center, ()))


def name_level(facts: Mapping[str, int]) -> str:
    """Return the kind of level of a field, ecCodes' ``typeOfLevel``."""
    row = _best("level", (str(facts["center"]), ""), facts)
    if row:
        return row[1]
    layer = "" if facts["t2"] == 255 else f"_{facts['t2']}"
    return f"level_{facts['t1']}{layer}"


@cache
def asks_for_values(discipline: int, category: int, number: int, t1: int, t2: int) -> bool:
    """Say whether names depend on the values of surfaces, given their kinds."""
    tables = (_table(f"{discipline}.{category}.{number}"), _table("level"))
    rows = (row[0] for table in tables for rows in table.values() for row in rows)
    return any(
        conditions.get("t1", t1) == t1
        and conditions.get("t2", t2) == t2
        and not conditions.keys().isdisjoint(SURFACE_VALUES)
        for conditions in rows
    )


def is_old(center: int, subcenter: int, tables: int) -> bool:
    """Say whether ecCodes names a message by the older generation of its tables."""
    return ECMWF in (center, subcenter) and tables <= _OLD


type _Row = tuple[Mapping[str, int], str, str, str, str, str, str]


def _best(what: str, kinds: Iterable[str], facts: Mapping[str, int]) -> _Row | None:
    best: _Row | None = None
    table = _table(what)
    for kind in dict.fromkeys(kinds):
        for row in table.get(kind, ()):
            fits = all(facts.get(key) == value for key, value in row[0].items())
            if fits and (best is None or len(row[0]) >= len(best[0])):
                best = row
    return best


@cache
def _table(what: str) -> dict[str, list[_Row]]:
    """Return the rows of a parameter by the tables that they are of."""
    found: dict[str, list[_Row]] = {}
    for line in _lines().get(what, ()):
        kinds, conditions, *names = line
        row = (dict(_conditions(conditions)), *names)
        for kind in kinds.split(","):
            found.setdefault(kind, []).append(row)  # type: ignore[arg-type]
    return found


def _conditions(text: str) -> Iterator[tuple[str, int]]:
    for part in text.split():
        key, _, value = part.partition("=")
        yield key, int(value)


@cache
def _lines() -> dict[str, list[list[str]]]:
    packed = files(__package__).joinpath("parameters.tsv.gz").read_bytes()
    found: dict[str, list[list[str]]] = {}
    for line in gzip.decompress(packed).decode().splitlines()[1:]:
        kinds, what, *rest = line.split("\t")
        found.setdefault(what, []).append([kinds, *rest])
    return found
