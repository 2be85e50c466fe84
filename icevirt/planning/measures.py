"""Read units of measures: which texts spell one unit, and which units convert exactly.

The words are those of UDUNITS for what coordinates and geophysical fields are measured in. A text
with a word that is not known is equal to itself alone. Times, which count since a date, are in
`planning.times`.
"""

from __future__ import annotations

import re
from collections import Counter
from fractions import Fraction
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

_SPELLED = {
    "m": "meter meters metre metres",
    "km": "kilometer kilometers kilometre kilometres",
    "cm": "centimeter centimeters centimetre centimetres",
    "mm": "millimeter millimeters millimetre millimetres",
    "um": "micrometer micrometers micrometre micrometres micron microns",
    "nm": "nanometer nanometers nanometre nanometres",
    "kg": "kilogram kilograms",
    "g": "gram grams",
    "Pa": "pascal pascals",
    "hPa": "hectopascal hectopascals mbar millibar millibars",
    "kPa": "kilopascal kilopascals",
    "K": "kelvin kelvins degK deg_K degree_K degrees_K degree_Kelvin degrees_Kelvin",
    "degC": "celsius deg_C degree_C degrees_C degree_Celsius degrees_Celsius degreeC degreesC °C",
    "degree": "degrees deg arc_degree arc_degrees °",
    "rad": "radian radians",
    "J": "joule joules",
    "W": "watt watts",
    "N": "newton newtons",
    "Hz": "hertz",
    "V": "volt volts",
    "mol": "mole moles",
    "sr": "steradian steradians",
    "%": "percent",
    "s": "second seconds sec",
    "min": "minute minutes",
    "h": "hour hours hr",
    "d": "day days",
}
_NAMES = {
    spelled: name
    for name, others in _SPELLED.items()
    for word in (name, *others.split())
    for spelled in {word, word.capitalize() if len(word) > 4 else word}  # Mbar are megabars
}
_OF_TIME = frozenset(("s", "min", "h", "d"))  # alone, they say how xarray decodes

_FACTORS = {
    name: (measure, Fraction(factor))
    for measure, units in {
        "length": {
            "km": "1000",
            "m": "1",
            "cm": "1/100",
            "mm": "1/1000",
            "um": "1e-6",
            "nm": "1e-9",
        },
        "mass": {"kg": "1", "g": "1/1000"},
        "pressure": {"Pa": "1", "hPa": "100", "kPa": "1000"},
        "share": {"1": "1", "%": "1/100"},
        "duration": {"s": "1", "min": "60", "h": "3600", "d": "86400"},
    }.items()
    for name, factor in units.items()
}
"""What a unit measures, and how many of the first one it is. Angles have no exact factor."""

_FACTOR = re.compile(
    r"(?P<sign> *[/.*·]? *)(?P<name>[A-Za-z°_]+|%)(?:(?:\^|\*\*)?(?P<power>[+-]?\d+))?"
)
_RECIPROCAL = re.compile(r"\s*1\s*(?=/)")


@lru_cache(4096)
def spell(text: str) -> str:
    """Return the usual spelling of a unit; the text itself where it is not known, or a duration."""
    factors = _read(text)
    if factors is None or any(factors == {name: 1} for name in _OF_TIME):
        return text
    order = sorted(factors.items(), key=lambda each: (each[1] < 0, each[0].lower()))
    return " ".join(name if power == 1 else f"{name}{power}" for name, power in order)


def _read(text: str) -> Counter[str] | None:
    """Return the powers of a product of units; None where a word is not known."""
    found: Counter[str] = Counter()
    start = _RECIPROCAL.match(text)
    at, end = start.end() if start else 0, len(text.rstrip())
    while at < end:
        match = _FACTOR.match(text, at)
        name = _NAMES.get(match["name"]) if match else None
        if match is None or name is None:
            return None
        power = int(match["power"] or 1)
        found[name] += -power if "/" in match["sign"] else power
        at = match.end()
    return found if found and all(found.values()) else None


def factor_between(one: object, other: object) -> Fraction | None:
    """Return how many of another unit a unit is; None where that is not known, or not exact."""
    known = [
        _FACTORS.get(_NAMES.get(str(each).strip(), str(each).strip())) for each in (one, other)
    ]
    if known[0] is None or known[1] is None or known[0][0] != known[1][0]:
        return None
    return known[0][1] / known[1][1]


def count_finest(unit: object) -> tuple[str, int] | None:
    """Return what a unit measures, and how many of the finest unit of that it is.

    Durations are none of these measures.
    """
    known = _FACTORS.get(_NAMES.get(str(unit).strip(), str(unit).strip()))
    if known is None or known[0] == "duration":
        return None
    finest = min(factor for measure, factor in _FACTORS.values() if measure == known[0])
    return known[0], int(known[1] / finest)


def convert(values: NDArray[np.float64], factor: Fraction) -> NDArray[np.float64]:
    """Return numbers in a unit of which one of theirs is ``factor``, rounded once."""
    if factor >= 1:
        return values * float(factor)
    return values / float(1 / factor)


def are_equal(one: NDArray[np.float64], other: NDArray[np.float64], factor: Fraction) -> bool:
    """Say whether numbers are those in another unit, as nearly as one of both is written."""
    return one.shape == other.shape and bool(
        (convert(one, factor) == other).all() or (convert(other, 1 / factor) == one).all()
    )
