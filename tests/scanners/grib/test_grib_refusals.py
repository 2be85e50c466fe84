"""Each row of the table of refusals in docs/grib.md is true: cause, remedy, and whether `native` helps."""

import re
from pathlib import Path

import eccodes
import numpy as np
import pytest
import xarray as xr

from icevirt.api.scan import scan_file
from icevirt.errors import UnsupportedError
from icevirt.objects.opening import open_source
from icevirt_scanners.grib.scanner import read_values
from scanners.grib.grib_files import ACCUMULATED, by_eccodes, change_length, message, put, several
from scanners.grib.test_grib_corpus import GRIDS, SCANNED
from scanners.materialise import materialise

PAGE = Path(__file__).parents[3] / "docs" / "grib.md"


def sample(name, values=None, **keys):
    handle = eccodes.codes_grib_new_from_samples(name)
    for key, value in keys.items():
        eccodes.codes_set(handle, key, value)
    if values is not None:
        eccodes.codes_set_values(handle, values)
    body = eccodes.codes_get_message(handle)
    eccodes.codes_release(handle)
    return body


def of_grid(kind, count, **keys):
    return sample("GRIB2", np.arange(count) * 0.5, gridType=kind, **keys)


def run_lengths():
    """Return a message as JMA packs those of radars; ecCodes does not write them."""
    body = change_length(change_length(message(), 5, 2), 7, -32)
    body = put(body, 5, 10, b"\0\xc8" + bytes((8, 0, 3, 0, 3, 0, 0, 10, 0, 20, 0, 30)))
    return put(body, 7, 6, bytes((1, 4 + 4, 2, 4 + 6)))  # five times 10, seven times 20


def surface(kind, scale, value):
    return bytes((kind, scale)) + value.to_bytes(4, "big")


# by the beginning of a row: messages, and the cause
CASES = {
    "packings other": [
        (message(packing="grid_ieee"), r"packing 5.4 \(IEEE floats\) \(message 1\)"),
        (run_lengths(), r"packing 5.200 \(run lengths\)"),
        (message(packing="grid_simple_log_preprocessing"), r"packing 5.61 \(logarithms\)"),
        (message(packing="grid_second_order"), "packing 5.50002"),
    ],
    "simple packing of more than 32": [
        (message(bitsPerValue=33), "packing 5.0 of 33 bits a value, not 1 to 32"),
        (message(packing="grid_ccsds", bitsPerValue=3), "packing 5.42 of 3 bits a value, not 5"),
    ],
    "the second and later": [
        (several(message(shortName="10u"), message(shortName="10v")), "not the first field"),
    ],
    "GRIB 1": [(sample("regular_ll_sfc_grib1"), "GRIB of edition 1: GRIB 2 is read only")],
    "reduced grids": [
        (sample("reduced_ll_sfc_grib2"), "a reduced grid of equal latitudes"),
        (put(sample("reduced_gg_sfc_grib2"), 3, 47, b"\0\x2d"), "that is not the globe"),
        (put(sample("reduced_gg_sfc_grib2"), 3, 60, b"\0\x2d"), "that is not the globe"),
        (put(sample("reduced_gg_sfc_grib2"), 3, 72, b"\x40"), "a reduced Gaussian grid in another"),
        (sample("rotated_gg_sfc_grib2"), "a rotated Gaussian grid"),
        (sample("sh_pl_grib2"), "spectral coefficients"),
        (sample("lambert_bf_grib2"), "grid definition template 3.63"),
        (of_grid("healpix", 48, Nside=2, numberOfDataPoints=48, scanningMode=64), "a HEALPix grid"),
        (of_grid("lambert_azimuthal_equal_area", 20, Nx=5, Ny=4), "an azimuthal Lambert grid"),
        (of_grid("albers", 20, Nx=5, Ny=4), "an Albers grid"),
        (of_grid("space_view", 20, Nx=5, Ny=4), "a space view"),
        (of_grid("transverse_mercator", 20, Ni=5, Nj=4), "a transverse Mercator grid"),
    ],
    "rows in alternating": [(message(alternativeRowScanning=1), "alternating directions")],
    "maps that are not": [
        (message(**GRIDS["Lambert"] | {"jScansPositively": 0}), "a map of scanning mode 0x00"),
        (message(**GRIDS["rotated"], angleOfRotationInDegrees=5), "turned around its pole"),
    ],
    "predefined bitmaps": [(put(message(), 6, 6, b"\x01"), "its bitmap is the predefined one 1")],
    "surfaces with": [
        (put(message(), 4, 23, surface(103, 255, 2)), "a surface whose value has no scale"),
    ],
    "products other": [
        (message(productDefinitionTemplateNumber=n), rf"product definition template 4\.{n}, in")
        for n in (3, 7, 15, 20, 31, 32, 44, 48, 53, 99, 1000)
    ],
    "statistics over several": [
        (put(message(**ACCUMULATED), 4, 42, b"\2"), "over other than one range of times"),
        (message(**ACCUMULATED, typeOfTimeIncrement=3), "several runs for one valid time"),
        (put(message(), 4, 18, b"\3"), "steps in units of code 3"),
    ],
    "two messages": [(message() + message(values=np.zeros(12)), "they differ in what")],
    "fields on several": [
        (message() + message(shortName="2t", Ni=2, longitudeOfLastGridPointInDegrees=10), "another"),
    ],
}  # fmt: skip
ROWS = {
    row: cells[2].split(",")[0]
    for line in PAGE.read_text().split("## What is refused")[1].split("\n## ")[0].splitlines()
    if len(cells := re.split(r"\s*\|\s*", line.strip("| "))) == 3
    for row in CASES
    if cells[0].startswith(row)
}


def test_every_row_of_the_table_is_tested():
    text = PAGE.read_text().split("## What is refused")[1].split("\n## ")[0]
    rows = [line for line in text.splitlines() if line.startswith("| ")][1:]
    assert len(ROWS) == len(CASES) == len(rows)


@pytest.mark.parametrize(
    ("row", "body", "cause"),
    [(row, *case) for row, some in CASES.items() for case in some],
    ids=[f"{row}, {cause}" for row, some in CASES.items() for _, cause in some],
)
def test_a_row_of_the_table_is_what_happens(row, body, cause, tmp_path):
    (tmp_path / "a.grib2").write_bytes(body)
    with pytest.raises(UnsupportedError, match=cause) as caught:
        scan_file(tmp_path / "a.grib2")
    assert caught.value.do
    native = {"variable_policy": {"*": "native"}}
    assert ('"native"' in str(caught.value.do)) == (ROWS[row] == "yes")
    if ROWS[row] == "no":
        with pytest.raises(UnsupportedError, match=cause):
            scan_file(tmp_path / "a.grib2", scan_options=native)
        return
    stored = scan_file(tmp_path / "a.grib2", scan_options=native)
    found = [materialise(each).reshape(-1) for each in stored.arrays if len(each.shape) > 3]
    theirs = np.sort(by_eccodes(body).values)
    assert any(np.array_equal(theirs, np.sort(each)) for each in found)


@pytest.mark.parametrize("order", range(len(SCANNED)))
def test_rows_in_alternating_directions_are_turned(order, tmp_path):
    """ecCodes returns values as they stand; cfgrib turns rows of latitudes, as we do."""
    even, odd = (message(alternativeRowScanning=n, **SCANNED[order]) for n in (0, 1))
    for name, body in (("even", even), ("odd", odd)):
        (tmp_path / name).write_bytes(body)
    native = {"variable_policy": {"t_surface": "native"}}
    one = materialise(scan_file(tmp_path / "even").arrays[-1])
    other = scan_file(tmp_path / "odd", scan_options=native).arrays[-1]
    turned = one.copy()
    turned[:, :, 1::2] = turned[:, :, 1::2, ::-1]
    np.testing.assert_array_equal(materialise(other), turned)
    source = open_source((tmp_path / "odd").as_uri())
    region = tuple(slice(0, n) for n in other.shape)
    np.testing.assert_array_equal(read_values(source, "/t_surface", region), turned)
    if order in (0, 2):  # of columns it does not
        theirs = xr.open_dataset(
            tmp_path / "odd", engine="cfgrib", backend_kwargs={"indexpath": ""}
        )
        np.testing.assert_array_equal(turned[0, 0].astype("f4"), theirs.t.values)


@pytest.mark.parametrize("indicator", [1, 254])
def test_a_bitmap_that_no_library_knows_is_refused_where_it_counts(indicator, tmp_path):
    """ecCodes returns the values that there are, and does not say of which points."""
    body = put(put(message(), 6, 6, bytes([indicator])), 5, 6, b"\0\0\0\x0a")
    (tmp_path / "a.grib2").write_bytes(body)
    with pytest.raises(UnsupportedError, match="values of 10 of 12 points") as caught:
        scan_file(tmp_path / "a.grib2", scan_options={"variable_policy": {"*": "native"}})
    assert caught.value.facts["message"] == 1
