"""Messages that ecCodes writes, what it reads in them, and sidecars of files of them."""

import json
from dataclasses import dataclass

import eccodes
import numpy as np

MISSING = 1e34
GRID = {
    "Ni": 4,
    "Nj": 3,
    "latitudeOfFirstGridPointInDegrees": 20,
    "latitudeOfLastGridPointInDegrees": 0,
    "longitudeOfFirstGridPointInDegrees": 0,
    "longitudeOfLastGridPointInDegrees": 30,
    "iDirectionIncrementInDegrees": 10,
    "jDirectionIncrementInDegrees": 10,
}
ACCUMULATED = {
    "productDefinitionTemplateNumber": 8,
    "indicatorOfUnitForTimeRange": 1,
    "typeOfStatisticalProcessing": 1,
}


def message(
    sample="regular_ll_sfc_grib2", *, values=None, packing="grid_simple", bitmap=False, **keys
):
    """Return the bytes of a message; keys are set in their order, behind a small grid."""
    handle = eccodes.codes_grib_new_from_samples(sample)
    try:
        for name, value in ((GRID if sample.startswith("regular_ll") else {}) | keys).items():
            eccodes.codes_set(handle, name, value)
        count = points(handle)
        if values is None:
            values = 280 + np.random.default_rng(0).standard_normal(count).cumsum()
        values = np.broadcast_to(values, count)
        if bitmap:
            eccodes.codes_set(handle, "bitmapPresent", 1)
            eccodes.codes_set(handle, "missingValue", MISSING)
            values = np.where(np.arange(count) % 5 == 2, MISSING, values)
        eccodes.codes_set_values(handle, np.asarray(values, float))
        if packing != "grid_simple":
            eccodes.codes_set(handle, "packingType", packing)
            assert eccodes.codes_get(handle, "packingType") == packing
        return eccodes.codes_get_message(handle)
    finally:
        eccodes.codes_release(handle)


def find_section(body, kind):
    """Return where a section of a message begins."""
    at = 16
    while body[at + 4] != kind:
        at += int.from_bytes(body[at : at + 4], "big")
    return at


def put(body, kind, octet, values):
    """Return a message with other bytes in a section, from an octet on, which count from 1."""
    at = find_section(body, kind) + octet - 1
    return body[:at] + values + body[at + len(values) :]


def change_length(body, kind, more):
    """Return a message whose section has more bytes at its end, or fewer; its lengths say so."""
    at = find_section(body, kind)
    length = int.from_bytes(body[at : at + 4], "big")
    section = (body[at : at + length] + bytes(max(more, 0)))[: length + more]
    rest = (len(section).to_bytes(4, "big") + section[4:]) + body[at + length :]
    return body[:8] + (len(body) + more).to_bytes(8, "big") + body[16:at] + rest


def points(handle):
    for across, up in (("Ni", "Nj"), ("Nx", "Ny")):
        if eccodes.codes_is_defined(handle, across) and not eccodes.codes_is_missing(
            handle, across
        ):
            return eccodes.codes_get(handle, across) * eccodes.codes_get(handle, up)
    return eccodes.codes_get(handle, "numberOfDataPoints")


@dataclass
class Read:
    """A message as ecCodes reads it, in the order of its points."""

    values: np.ndarray
    latitude: np.ndarray
    longitude: np.ndarray
    keys: dict


def by_eccodes(body, *keys):
    handle = eccodes.codes_new_from_message(body)
    try:
        eccodes.codes_set(handle, "missingValue", MISSING)
        values = eccodes.codes_get_values(handle)
        return Read(
            np.where(values == MISSING, np.nan, values),
            *(_places(handle, name) for name in ("latitudes", "longitudes")),
            {key: eccodes.codes_get(handle, key) for key in keys},
        )
    finally:
        eccodes.codes_release(handle)


def _places(handle, name):
    try:
        return eccodes.codes_get_array(handle, name)
    except eccodes.KeyValueNotFoundError:  # of an unstructured grid
        return np.zeros(0)


def several(*bodies):
    """Return one message with the fields of messages that differ behind section 3."""
    handles = [eccodes.codes_new_from_message(body) for body in bodies]
    multi = eccodes.codes_grib_multi_new()
    for handle in handles:
        eccodes.codes_grib_multi_append(handle, 4, multi)
    import tempfile

    with tempfile.TemporaryFile() as file:
        eccodes.codes_grib_multi_write(multi, file)
        file.seek(0)
        found = file.read()
    eccodes.codes_grib_multi_release(multi)
    for handle in handles:
        eccodes.codes_release(handle)
    return found


KEYS = ("shortName", "level", "dataDate", "dataTime", "startStep", "endStep", "stepType")


def listed(bodies):
    """Yield the offset, length and keys of each message."""
    offset = 0
    for body in bodies:
        handle = eccodes.codes_new_from_message(body)
        yield offset, len(body), {key: eccodes.codes_get(handle, key) for key in KEYS}
        eccodes.codes_release(handle)
        offset += len(body)


def noaa(bodies):
    """Write what wgrib2 writes."""
    for number, (offset, _, keys) in enumerate(listed(bodies), 1):
        first, last = int(keys["startStep"]), int(keys["endStep"])
        when = f"{first}-{last} hour acc fcst" if first != last else f"{last} hour fcst"
        date = f"{keys['dataDate']}{keys['dataTime'] // 100:02d}"
        yield f"{number}:{offset}:d={date}:{keys['shortName']}:{keys['level']} mb:{when}:"


def ecmwf(bodies):
    """Write what ECMWF's open data has."""
    for offset, length, keys in listed(bodies):
        yield json.dumps(
            {
                "date": str(keys["dataDate"]),
                "time": f"{keys['dataTime']:04d}",
                "step": str(keys["endStep"]),
                "param": keys["shortName"],
                "levelist": str(keys["level"]),
                "_offset": offset,
                "_length": length,
            }
        )


WRITERS = {"wgrib2": (noaa, "{}.grib2.idx"), "ECMWF": (ecmwf, "{}.index")}
