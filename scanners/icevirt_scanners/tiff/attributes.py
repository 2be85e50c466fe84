"""Show what a directory says about its values as attributes: nodata, scale, offset, texts.

GDAL keeps its own in an XML document (tag 42112). What holds for single bands of several is shown
by the names that rioxarray gives it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any
from xml.etree import ElementTree as ET

import numpy as np

from icevirt.archive.schema import DECODING
from icevirt_scanners.tiff.directories import Directory
from icevirt_scanners.tiff.geokeys import RASTER_TYPE, GeoKeys
from icevirt_scanners.tiff.images import COLOR_MAP, SAMPLES, Image

GDAL_METADATA, GDAL_NODATA = 42112, 42113
_TEXTS = {
    269: "TIFFTAG_DOCUMENTNAME",
    270: "TIFFTAG_IMAGEDESCRIPTION",
    305: "TIFFTAG_SOFTWARE",
    306: "TIFFTAG_DATETIME",
    315: "TIFFTAG_ARTIST",
    316: "TIFFTAG_HOSTCOMPUTER",
    33432: "TIFFTAG_COPYRIGHT",
}
_MOST_XML = 1 << 20
_STATED = {"scale": 1.0, "offset": 0.0}
_RESERVED = frozenset(DECODING) - {"units"} | {"coordinates", "grid_mapping", "bounds"}
"""Names that CF gives a meaning, which items of free text under such a name do not have."""
_OF_DURATIONS = {
    *("days", "hours", "minutes", "seconds", "milliseconds", "microseconds", "nanoseconds")
}
_OF_BANDS = ("scale_factor", "add_offset", "scales", "offsets", "long_name")

type Tell = Callable[[str, str], None]


def nodata_of(directory: Directory, image: Image, warn: Tell) -> np.generic | None:
    """Return the value that marks missing pixels, as one of the type of the image."""
    text = directory.text(GDAL_NODATA).strip()
    if not text:
        return None
    found = _number(text, image.dtype)
    if found is None:
        message = f"the nodata value {text!r} is none of {image.dtype.name}, and marks no pixel"
        warn("nodata-left-out", message)
    return found


def _number(text: str, dtype: np.dtype[Any]) -> np.generic | None:
    make: Callable[[Any], np.generic] = dtype.type
    try:
        if dtype.kind in "ui":
            whole = int(text) if text.lstrip("+-").isdecimal() else float(text)
            limits = np.iinfo(dtype)
            fits = whole == int(whole) and limits.min <= whole <= limits.max
            return make(int(whole)) if fits else None
        value = float(text)
    except (ValueError, OverflowError):
        return None
    if dtype.kind == "c":
        return make(value)
    with np.errstate(over="ignore"):
        found = make(value)
    if not np.isinf(float(found)) or np.isinf(value):
        return found
    largest = float(np.finfo(dtype).max)  # digits of it are cut in some files
    return make(np.copysign(largest, value)) if abs(value) <= largest * (1 + 1e-10) else None


def describe(
    directory: Directory, full: Directory, image: Image, keys: GeoKeys, warn: Tell
) -> dict[str, Any]:
    """Return the attributes of an image but for nodata, as rioxarray names them.

    Scales and names of bands are said once, with the image of full size: its overviews have them.
    """
    found: dict[str, Any] = {}
    is_alike = GDAL_METADATA in full and full.integer(SAMPLES, 1) == image.samples
    if full is not directory and is_alike:
        of_full = _of_gdal(full.text(GDAL_METADATA), image.samples, warn)
        found |= {name: of_full[name] for name in _OF_BANDS if name in of_full}
    for tag, name in _TEXTS.items():
        if text := directory.text(tag):
            found[name] = text
    if GDAL_METADATA in directory:
        found |= _of_gdal(directory.text(GDAL_METADATA), image.samples, warn)
    if raster := keys.number(RASTER_TYPE):
        found["AREA_OR_POINT"] = "Point" if raster == 2 else "Area"
    if COLOR_MAP in directory:
        warn("colors-left-out", "its values are numbers of colors, which are left out")
    return found


def _of_gdal(text: str, samples: int, warn: Tell) -> dict[str, Any]:
    """Return what GDAL's document says of the image, and of its bands."""
    found: dict[str, Any] = {}
    by_role: dict[str, dict[int, str]] = {"scale": {}, "offset": {}, "description": {}}
    for item in _items(text, warn):
        role, sample, held = item.get("role", ""), item.get("sample"), item.text or ""
        if sample is None or (samples == 1 and not role):
            found.setdefault(item.get("name", ""), held)
        elif role in by_role and sample.isdecimal():
            by_role[role][int(sample)] = held
    found.pop("", None)
    if _makes_times(found.get("units", "")):
        found["gdal_units"] = found.pop("units")
        warn("units-renamed", f"units of GDAL's metadata are no times: {found['gdal_units']!r}")
    if lost := sorted(_RESERVED & found.keys()):
        found = {name: held for name, held in found.items() if name not in _RESERVED}
        warn("metadata-left-out", f"texts of GDAL's metadata that have names of CF's: {lost}")
    stated = {name: _numbers(by_role[name], name, warn) for name in _STATED}
    return found | _by_band(stated, by_role["description"], samples)


def _makes_times(units: str) -> bool:
    """Say whether readers of CF take numbers for times or durations; GDAL's readers do not."""
    return "since" in units or units in _OF_DURATIONS


def _numbers(texts: Mapping[int, str], role: str, warn: Tell) -> dict[int, float]:
    try:
        return {band: float(text) for band, text in texts.items()}
    except ValueError:
        warn("metadata-left-out", f"a {role} is not a number: {[*texts.values()]}")
        return {}


def _items(text: str, warn: Tell) -> list[ET.Element]:
    """Return the entries of the document that belong to no domain."""
    cause: object = "it is too long, or has entities"
    if len(text) <= _MOST_XML and "<!" not in text:
        try:
            found = ET.fromstring(text)  # noqa: S314 - without entities
            return [item for item in found.findall("Item") if not item.get("domain")]
        except ET.ParseError as error:
            cause = error
    warn("metadata-left-out", f"the document of GDAL's metadata is not read: {cause}")
    return []


def _by_band(
    stated: Mapping[str, Mapping[int, float]], names: Mapping[int, str], samples: int
) -> dict[str, Any]:
    found: dict[str, Any] = {}
    columns = {
        name: [stated[name].get(band, default) for band in range(samples)]
        for name, default in _STATED.items()
    }
    if any(set(columns[name]) != {default} for name, default in _STATED.items()):
        shown = {"scale": "scale_factor", "offset": "add_offset"}
        for name, values in columns.items():
            if all(len(set(each)) == 1 for each in columns.values()):
                found[shown[name]] = np.float64(values[0])
            else:
                found[f"{name}s"] = np.array(values)
    if names:
        each_name = [names.get(band, "") for band in range(samples)]
        found["long_name"] = each_name[0] if samples == 1 else each_name
    return found
