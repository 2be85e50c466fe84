"""Every point of a message is read where ecCodes reads it, or the message is refused by name."""

from itertools import product

import numpy as np
import pytest

from icevirt.api.scan import scan_file
from icevirt.errors import UnsupportedError
from icevirt.tasks.verify.comparison import _ULPS
from long_forms import cases
from scanners.grib.grib_files import GRID, by_eccodes, find_section, message, put
from scanners.materialise import materialise

MAP = {"Nx": 5, "Ny": 4, "DxInMetres": 30000, "DyInMetres": 30000, "jScansPositively": 1}
FIRST = {"latitudeOfFirstGridPointInDegrees": 21.1, "longitudeOfFirstGridPointInDegrees": 237.3}
LAMBERT = FIRST | {"LaDInDegrees": 38.5, "LoVInDegrees": 262.5}
GRIDS = {
    "latitudes and longitudes": {},
    "across Greenwich": {
        "longitudeOfFirstGridPointInDegrees": 350,
        "longitudeOfLastGridPointInDegrees": 20,
    },
    "from -180": {
        "longitudeOfFirstGridPointInDegrees": -180,
        "longitudeOfLastGridPointInDegrees": -150,
    },
    "Gaussian": {"sample": "regular_gg_sfc_grib2"},
    "reduced Gaussian": {"sample": "reduced_gg_sfc_grib2"},
    "rotated": {
        "sample": "rotated_ll_sfc_grib2",
        "latitudeOfSouthernPoleInDegrees": -40,
        "longitudeOfSouthernPoleInDegrees": 10,
    },
    "Lambert": {"sample": "GRIB2", "gridType": "lambert", "Latin1InDegrees": 38.5}
    | {"Latin2InDegrees": 38.5}
    | LAMBERT
    | MAP,
    "Lambert, two parallels, WGS 84": {"sample": "GRIB2", "gridType": "lambert"}
    | {"Latin1InDegrees": 30, "Latin2InDegrees": 60, "shapeOfTheEarth": 5}
    | LAMBERT
    | MAP,
    "polar": {"sample": "GRIB2", "gridType": "polar_stereographic", "LaDInDegrees": 60}
    | {"orientationOfTheGridInDegrees": 255}
    | FIRST
    | MAP,
    "Mercator": {"sample": "GRIB2", "gridType": "mercator", "Ni": 5, "Nj": 4, "LaDInDegrees": 20}
    | {"latitudeOfLastGridPointInDegrees": 22, "longitudeOfLastGridPointInDegrees": 239}
    | {"DiInMetres": 30000, "DjInMetres": 30000, "jScansPositively": 1}
    | FIRST,
}
PACKINGS = (
    "grid_simple",
    "grid_complex",
    "grid_complex_spatial_differencing",
    "grid_ccsds",
    "grid_jpeg",
)
KINDS = {
    "values": {},
    "some missing": {"bitmap": True},
    "one number": {"values": np.full(12, 3.25)},
    "one number, some missing": {"values": np.full(12, 3.25), "bitmap": True},
    "small numbers": {"values": np.arange(12) * 1e-9},
    "24 bits": {"bitsPerValue": 24},
}


def scanning(negative, positive, by_column):
    keys = {
        "iScansNegatively": negative,
        "jScansPositively": positive,
        "jPointsAreConsecutive": by_column,
    }
    for name, is_turned in (("longitude", negative), ("latitude", positive)):
        if is_turned:
            first, last = (f"{name}Of{end}GridPointInDegrees" for end in ("First", "Last"))
            keys |= {first: GRID[last], last: GRID[first]}
    return keys


SCANNED = [scanning(*flags) for flags in product((0, 1), repeat=3)]


def places_of(scanned, shape):
    """Return the latitude and longitude of each point, in the order of the array."""
    by_path = {array.path: array for array in scanned.arrays}
    variable = scanned.arrays[-1]
    found = []
    for name in ("latitude", "longitude"):
        values = materialise(by_path[f"/{name}"])
        if values.shape != shape and values.ndim == 1:
            axis = variable.dimension_names[-2:].index(name)
            values = values[:, None] if axis == 0 else values
        found.append(np.broadcast_to(values, shape).reshape(-1))
    return found


def check(path, body, exact=1e-9):
    """Hold a message that was scanned against what ecCodes reads."""
    path.write_bytes(body)
    theirs = by_eccodes(body)
    scanned = scan_file(path)
    mine = materialise(scanned.arrays[-1])
    np.testing.assert_array_equal(mine.reshape(-1), theirs.values)
    latitude, longitude = places_of(scanned, mine.shape[2:])
    np.testing.assert_allclose(latitude, theirs.latitude, rtol=0, atol=exact)
    apart = (longitude - theirs.longitude + 180) % 360 - 180
    # at a pole each longitude is the same point
    np.testing.assert_allclose(apart * np.cos(np.radians(latitude)), 0, atol=exact)


@pytest.mark.parametrize("name", GRIDS)
def test_points_of_a_grid_lie_where_eccodes_says(name, tmp_path):
    # ecCodes rounds those of rotated grids to float32
    exact = 1e-5 if name == "rotated" else 1e-9
    check(tmp_path / "a.grib2", message(**GRIDS[name]), exact)


EVERY = list(product(PACKINGS, KINDS, range(len(SCANNED))))
FEW = [
    *product(PACKINGS, KINDS, (0,)),
    *product(PACKINGS[:1], ("some missing",), range(1, len(SCANNED))),
]


def test_values_are_those_of_eccodes_bit_for_bit(tmp_path):
    """Packings, bitmaps, constant fields and orders of points, each with each at night."""
    for packing, kind, order in cases(EVERY, *FEW):
        try:
            body = message(packing=packing, **SCANNED[order], **KINDS[kind])
        except AssertionError:
            continue  # ecCodes writes constant fields in the simple packing
        check(tmp_path / "a.grib2", body)


@pytest.mark.parametrize("packing", PACKINGS[1:3])
@pytest.mark.parametrize("marks", [1, 2])
def test_missing_values_within_complex_packing_are_read(marks, packing, tmp_path):
    """Without a bitmap, the largest numbers of a group mean none (octet 23 of section 5)."""
    wide = {"sample": "GRIB2", "gridType": "regular_ll"} | GRID | {"Ni": 25, "Nj": 20}
    values = np.concatenate([np.arange(300.0) % 7, np.zeros(100), np.arange(100) * 3.0])
    wide |= {"latitudeOfLastGridPointInDegrees": 1, "longitudeOfLastGridPointInDegrees": 24}
    steps = {f"{axis}DirectionIncrementInDegrees": 1 for axis in "ij"}
    body = message(packing=packing, values=values, bitsPerValue=8, **wide | steps)
    body = put(body, 5, 23, bytes([marks]))
    check(tmp_path / "a.grib2", body)
    assert np.isnan(by_eccodes(body).values).any()


ROUNDED = [(packing, scale) for packing in PACKINGS for scale in (-60, -30, *range(-4, 24), 30, 60)]


def test_values_of_any_decimal_scale_are_those_of_eccodes_but_for_rounding(tmp_path):
    """At scale factors up to 5 they are equal; at others up to `verify`'s bound apart."""
    for packing, scale in ROUNDED:
        sign = 0x8000 if scale < 0 else 0
        body = put(message(packing=packing), 5, 18, (abs(scale) | sign).to_bytes(2, "big"))
        (tmp_path / "a.grib2").write_bytes(body)
        mine = materialise(scan_file(tmp_path / "a.grib2").arrays[-1]).reshape(-1)
        theirs = by_eccodes(body).values
        ulps = 0 if -4 <= scale <= 5 else _ULPS["gribberish"]
        assert (np.abs(mine - theirs) <= ulps * np.spacing(np.abs(theirs))).all(), (packing, scale)


DECODED = [
    *product(("grid_simple",), (1, 24, 25, 32)),
    *product(("grid_ccsds",), (5, 24)),
    *product(("grid_jpeg",), (1, 25, 31)),
]
NOT_DECODED = [
    *product(("grid_simple",), (33, 40)),
    *product(("grid_ccsds",), (1, 2, 3, 4, 25, 32)),
]


@pytest.mark.parametrize(("packing", "bits"), DECODED)
def test_values_of_as_few_and_as_many_bits_as_the_codec_knows_are_read(packing, bits, tmp_path):
    body = message(packing=packing, bitsPerValue=bits)
    assert body[find_section(body, 5) + 19] == bits
    check(tmp_path / "a.grib2", body)


@pytest.mark.parametrize(("packing", "bits"), NOT_DECODED)
def test_values_of_other_numbers_of_bits_are_refused_and_stored_by_eccodes(packing, bits, tmp_path):
    body = message(packing=packing, bitsPerValue=bits, shortName="2t")
    (tmp_path / "a.grib2").write_bytes(body)
    with pytest.raises(UnsupportedError, match=f"of {bits} bits a value") as caught:
        scan_file(tmp_path / "a.grib2")
    assert '{"t2m": "native"}' in str(caught.value)
    stored = scan_file(tmp_path / "a.grib2", scan_options={"variable_policy": {"t2m": "native"}})
    values = by_eccodes(body).values
    np.testing.assert_array_equal(materialise(stored.arrays[-1]).reshape(-1), values)


def test_more_bits_than_either_library_encodes_are_refused(tmp_path):
    for packing in ("grid_jpeg", "grid_complex", "grid_complex_spatial_differencing"):
        body = put(message(packing=packing), 5, 20, b"\x21")
        (tmp_path / "a.grib2").write_bytes(body)
        with pytest.raises(UnsupportedError, match="of 33 bits a value"):
            scan_file(tmp_path / "a.grib2")


REFUSED = {
    "an odd basic angle": (
        {"basicAngleOfTheInitialProductionDomain": 2},
        "a grid of basic angle 2",
    ),
    "a scale of the other pole": (GRIDS["polar"] | {"LaDInDegrees": -60}, "the other pole"),
}


@pytest.mark.parametrize(("keys", "cause"), REFUSED.values(), ids=REFUSED)
def test_a_grid_of_odd_numbers_is_refused_by_name(keys, cause, tmp_path):
    (tmp_path / "a.grib2").write_bytes(message(**keys))
    with pytest.raises(UnsupportedError, match=cause) as caught:
        scan_file(tmp_path / "a.grib2")
    assert caught.value.facts["variable"]


def test_the_first_edition_is_refused_with_the_way_out(tmp_path):
    (tmp_path / "a.grib").write_bytes(
        message() + message("regular_ll_sfc_grib1", jPointsAreConsecutive=0)
    )
    with pytest.raises(UnsupportedError, match="GRIB of edition 1") as caught:
        scan_file(tmp_path / "a.grib")
    assert caught.value.facts["message"] == 2
    assert "grib_set -s edition=2" in str(caught.value)
