"""Compare what files say of where on earth their values are: reference systems and grids.

Statements agree if they contradict each other nowhere, and have one in common that says all: a
text or a code of the system, or CF's name of a projection with the same parameters. A statement
and none do not agree: a reader would take the one for the other.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

type Statement = Mapping[str, Any]  # attributes

NAMING = "grid_mapping"
KIND = "grid_mapping_name"
PROJECTING = frozenset((
    *("crs", "crs_wkt", "spatial_ref", "esri_pe_string", "projection_wkt", "proj4", "proj4text"),
    *("proj4_string", "proj4_params", "proj_string", "epsg", "epsg_code", "spatial_epsg"),
    *("utm_zone", "utm_zone_number"),
))  # fmt: skip
"""Attributes, in lower case, by which data or groups say themselves how they are projected."""
OF_NO_PLACE = frozenset({
    *("long_name", "standard_name", "comment", "description", "history", "units", "coordinates"),
    *("geotransform", "_fillvalue", "missing_value", "valid_range", "valid_min", "valid_max"),
})  # fmt: skip
"""Attributes, in lower case, that say nothing of a projection; where files lie, x and y say."""
_DEFAULTS = {"false_easting": 0, "false_northing": 0, "longitude_of_prime_meridian": 0}
_OPTIONAL = frozenset((
    *("reference_ellipsoid_name", "prime_meridian_name", "horizontal_datum_name", "geoid_name"),
    *("geographic_crs_name", "projected_crs_name", "geopotential_datum_name", "semi_major_axis"),
    *("semi_minor_axis", "inverse_flattening", "earth_radius", "towgs84", "proj4", "units"),
))  # fmt: skip
"""Attributes, in lower case, that only some of equal statements have."""
_OF_GRID = frozenset({"uuidOfHGrid", "GRIB_gridDefinition"})
"""Notes of scans about grids. A file without such a note, like one of an older catalog, agrees."""
_TEXTS = frozenset({KIND, "sweep_angle_axis", "fixed_angle_axis", "healpix_order", "geotiff_keys"})
"""Parameters that are texts; other texts, like titles and what THREDDS adds, only some may have."""
_TERMS = 6  # of a GeoTransform


def only_places(attributes: Statement) -> dict[str, Any]:
    """Return the attributes that say something of a place."""
    return {
        name: value
        for name, value in attributes.items()
        if name.lower() not in OF_NO_PLACE or _is_turned(name, value)
    }


def number_places(statements: Sequence[Statement], *, is_lax: bool = False) -> list[int]:
    """Number statements by the place that they mean, in the order in which places come.

    Those that say most are looked at first: what they say joins others that say only a part.

    Args:
        statements: Of files.
        is_lax: Statements agree where they contradict each other nowhere.
    """
    own = [only_places(each) for each in statements]
    merged: list[dict[str, Any]] = []
    found = [0] * len(own)
    for at in sorted(range(len(own)), key=lambda at: -len(own[at])):
        number = next(
            (n for n, each in enumerate(merged) if _agree(each, own[at], is_lax=is_lax)),
            len(merged),
        )
        if number == len(merged):
            merged.append({})
        merged[number] = {**own[at], **merged[number]}
        found[at] = number
    order = list(dict.fromkeys(found))
    return [order.index(number) for number in found]


def unlike_names(statements: Sequence[Statement]) -> list[str]:
    """Return the attributes that differ: those that contradict one another, else all that do."""
    own = [only_places(each) for each in statements]
    names = list(dict.fromkeys(name for each in own for name in each))
    said = {name: {text_of(name, each[name]) for each in own if name in each} for name in names}
    contradicting = [name for name in names if len(said[name]) > 1]
    return contradicting or [name for name in names if any(name not in each for each in own)]


def says_degrees(said: Statement) -> bool:
    """Say whether x and y are longitudes and latitudes, as far as anything is said of them."""
    if KIND in said:
        return bool(said[KIND] == "latitude_longitude")
    texts = [str(value).upper() for name, value in said.items() if name.lower() in PROJECTING]
    return not only_places(said) or any(text.startswith("GEOG") for text in texts)


def _agree(one: Statement, other: Statement, *, is_lax: bool) -> bool:
    shared = one.keys() & other.keys()
    one, other = (
        {name: each[name] for name in each if name in shared or name not in _OF_GRID}
        for each in (one, other)
    )
    if not is_lax and not (one and other):
        return not one and not other
    if any(text_of(name, one[name]) != text_of(name, other[name]) for name in shared):
        return False
    if is_lax or any(name.lower() in PROJECTING for name in shared):
        return True
    return _parameters(one) == _parameters(other)


def _parameters(said: Statement) -> dict[str, str]:
    held = {**_DEFAULTS, **said} if KIND in said else said
    return {
        name: text_of(name, value)
        for name, value in held.items()
        if name.lower() not in PROJECTING | _OPTIONAL
        and not (KIND in said and name not in _TEXTS and _is_word(name, value))
    }


def _is_word(name: str, value: Any) -> bool:
    """Say whether an attribute of one of CF's projections is none of its parameters."""
    return isinstance(value, str) and not name.startswith("GRIB_")


def _is_turned(name: str, value: Any) -> bool:
    """Say whether a transform is of turned rows and columns, for which x and y say nothing."""
    terms = str(value).split() if name.lower() == "geotransform" else []
    return len(terms) == _TERMS and not {terms[2], terms[4]} <= {"0", "0.0", "-0.0"}


def text_of(name: str, value: Any) -> str:
    """Return what is compared of an attribute; letters of a projection may be large or small."""
    found = _normalize(value)
    is_folded = name.lower() in PROJECTING and isinstance(found, str)
    return repr(found.casefold() if is_folded else found)


def _normalize(value: Any) -> Any:
    """Return a value of an attribute, numbers to nine digits, texts without their layout."""
    if isinstance(value, np.generic | np.ndarray):
        value = value.tolist()
    if isinstance(value, bool) or value is None:
        return value
    if isinstance(value, int | float):
        return f"{value:.9g}"
    if isinstance(value, list | tuple):
        return [_normalize(each) for each in value] if len(value) != 1 else _normalize(value[0])
    return " ".join(str(value).split())
