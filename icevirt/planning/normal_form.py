"""Compare how files say that values decode by what is decoded, not by how it is spelled.

`ArraySchema.decode_signature` holds what a file says. Files that say it in several ways decode
alike if their normal forms are equal: xarray then makes the same values of the same numbers. Tools
spell anew what they copy: CDO calls ``noleap`` ``365_day`` and repeats ``_FillValue`` as
``missing_value``, xarray gives floats a ``_FillValue`` of NaN.

What is not known to decode alike is different.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import numpy as np

from icevirt.archive.joining import NUMBERS
from icevirt.archive.schema import ArraySchema
from icevirt.model.attributes import restore
from icevirt.planning.measures import spell
from icevirt.planning.times.units import calendar_called, parse

_ATTRIBUTE = "attribute "
_UNITS, _CALENDAR = f"{_ATTRIBUTE}units", f"{_ATTRIBUTE}calendar"
_UNSIGNED = f"{_ATTRIBUTE}_Unsigned"
_FILL, _MISSING = f"{_ATTRIBUTE}_FillValue", f"{_ATTRIBUTE}missing_value"
_MARKS = (_FILL, _MISSING)
_SCALING = (f"{_ATTRIBUTE}scale_factor", f"{_ATTRIBUTE}add_offset")
_PLACES = {  # CF 4.1 and 4.2
    spelt: f"degrees_{way}"
    for way, letter in (("north", "N"), ("east", "E"))
    for spelt in (
        *(f"degrees_{way}", f"degree_{way}", f"degree_{letter}"),
        *(f"degrees_{letter}", f"degree{letter}", f"degrees{letter}"),
    )
}
_NO_MEANING = {"i": "false", "u": "true"}  # what `_Unsigned` says of these anyway

type Facts = Mapping[str, Any]
"""Facts of a decode signature, by name."""


def normalize(facts: Facts) -> dict[str, Any]:
    """Return facts of a decode signature that are equal where values decode alike.

    Args:
        facts: As files say them; those that are not about attributes stay as they are.
    """
    made = dict(facts)
    if _UNITS in made or _CALENDAR in made:
        _normalize_units(made)
    kind = made.get("data type")
    if isinstance(kind, str) and kind in NUMBERS:
        _normalize_marks(made, np.dtype(kind).kind)
    return made


def differences(one: Facts, other: Facts) -> dict[str, tuple[Any, Any]]:
    """Return the facts in which two decode signatures differ, as their files say them.

    What is spelled in two ways and decodes alike is no difference.
    """
    names = [*one, *(name for name in other if name not in one)]
    said = {name: (one.get(name), other.get(name)) for name in names}
    unlike = {name: each for name, each in said.items() if each[0] != each[1]}
    if not unlike:
        return {}
    mine, theirs = normalize(one), normalize(other)
    differ = {name for name in {**mine, **theirs} if mine.get(name) != theirs.get(name)}
    if not differ.isdisjoint(_MARKS):
        differ |= {*_MARKS}
    if _UNITS in differ and _name_calendar(one) != _name_calendar(other):
        differ.add(_CALENDAR)
    return {name: each for name, each in unlike.items() if name in differ}


@lru_cache(64)
def file_signature(arrays: tuple[tuple[str, str], ...]) -> str:
    """Return a digest of the decode signatures of a file's arrays.

    Files of one signature decode alike: equal paths, types, fill values, codecs, chunk shapes and
    attributes that change decoded values; not lengths of dimensions, and no values.

    Args:
        arrays: Path, and schema as `ArraySchema.dumps` writes it.
    """
    facts = sorted((path, _signature(schema)) for path, schema in arrays)
    return hashlib.blake2b(json.dumps(facts).encode(), digest_size=16).hexdigest()


@lru_cache(1024)
def _signature(schema: str) -> str:
    """Return the decode signature of a schema as text; files of an archive repeat schemas."""
    found = ArraySchema.loads(schema)
    facts = normalize(found.decode_signature(stored=not found.whole))
    return json.dumps(facts, sort_keys=True)


def _normalize_units(facts: dict[str, Any]) -> None:
    """Say what times count, and which calendar is meant, in one way."""
    units, calendar = _value(facts, _UNITS), _name_calendar(facts)
    found = parse(units, calendar or None)
    if found is not None:  # far from the reference, cftime may read another date in the text
        text, is_known = "" if found.is_one else found.text, "since" in str(units)
        facts[_UNITS] = ["time", *found.meaning, found.is_fine, is_known, text]
        facts.pop(_CALENDAR, None)
        return
    if (spelled := unit_called(units)) != units:
        facts[_UNITS] = [spelled, None]
    if calendar:
        facts[_CALENDAR] = [calendar, None]


def unit_called(units: Any) -> Any:
    """Return one spelling of a unit; whatever is no known unit stays as it is."""
    return _PLACES.get(units) or spell(units) if isinstance(units, str) else units


def _name_calendar(facts: Facts) -> str:
    """Return the name of a calendar; "" where none is said."""
    said = _value(facts, _CALENDAR)
    return calendar_called(said) if isinstance(said, str) else ""


def _normalize_marks(facts: dict[str, Any], kind: str) -> None:
    """Say in one place which numbers mean "missing"; ``kind`` is that of the numbers.

    NaN is no number among integers, and missing among floats whatever attributes say. But floats
    that are scaled decode to another type where an attribute is there.
    """
    unsigned = _value(facts, _UNSIGNED)
    if kind == "f" or unsigned == _NO_MEANING[kind]:
        facts.pop(_UNSIGNED, None)
    if _UNSIGNED in facts:
        return  # which changes the numbers of one attribute, and not those of the other
    said = [name for name in _MARKS if name in facts]
    numbers = [_numbers(facts[name]) for name in said]
    if not said or None in numbers:
        return
    marks = {text for each in numbers for text in each or ()} - {"nan"}
    for name in said:
        del facts[name]
    if marks or (kind == "f" and any(name in facts for name in _SCALING)):
        facts[_FILL] = ["missing", *sorted(marks)]


def _numbers(said: Any) -> list[str] | None:
    """Return the numbers of an attribute, each in one spelling; None where it has others."""
    value, dtype = said
    try:
        held = value if dtype is None else restore({"": value}, {"": dtype})[""]
        array = np.asarray(held).reshape(-1)
    except (ValueError, TypeError):  # anybody may have written them
        return None
    return [*map(_spell, array.tolist())] if array.dtype.kind in "iuf" else None


def _spell(number: float) -> str:
    return repr(int(number) if float(number).is_integer() else number)


def _value(facts: Facts, name: str) -> Any:
    said = facts.get(name)
    return said[0] if said else None
