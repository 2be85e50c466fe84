"""Which variables, groups and scanners are asked for: alike for every scanner, and loud if wrong."""

import h5py
import netCDF4
import numpy as np
import pytest

import icevirt
from grouping import grouped
from icevirt.api.choices import scanner_options
from icevirt.errors import InvalidInputError, ScanError
from icevirt.scan import registry
from icevirt.scan.options import ScanOptions


@pytest.fixture(params=["NETCDF4", "NETCDF3_CLASSIC", "NETCDF3_64BIT_DATA"])
def path(request, tmp_path):
    with netCDF4.Dataset(tmp_path / "a.nc", "w", format=request.param) as file:
        file.createDimension("x", 3)
        for name in ("x", "one", "two"):
            file.createVariable(name, "i4", ("x",))[:] = np.arange(3)
    return str(tmp_path / "a.nc")


def paths(scanned):
    return {array.path for array in scanned.arrays}


@pytest.mark.parametrize(
    ("options", "left"),
    [
        ({}, {"/x", "/one", "/two"}),
        ({"variables": "one"}, {"/one"}),
        ({"variables": ["/one", "x"]}, {"/one", "/x"}),
        ({"drop_variables": ["/one"]}, {"/x", "/two"}),
        ({"variables": ["one", "two"], "drop_variables": "two"}, {"/one"}),
    ],
)
def test_what_is_named_is_taken_or_left_out(path, options, left):
    scanned = icevirt.scan_file(path, **grouped(options))
    assert paths(scanned) == left
    assert set(scanned.left_out) == {"/x", "/one", "/two"} - left


@pytest.mark.parametrize("argument", ["variables", "drop_variables"])
def test_a_name_that_is_not_there_is_an_error_that_lists_what_is(path, argument):
    with pytest.raises(InvalidInputError, match="no such variable") as caught:
        icevirt.scan_file(path, **grouped({argument: ["one", "tow"]}))
    assert caught.value.facts["unknown"] == ["tow"]
    assert caught.value.facts["there"] == ["/one", "/two", "/x"]


def test_a_group_becomes_the_root(tmp_path):
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["in/deep/v"], file["out"] = 1, 2
    assert paths(icevirt.scan_file(tmp_path / "a.h5", scan_options={"source_group": "/in"})) == {
        "/deep/v"
    }
    assert paths(icevirt.scan_file(tmp_path / "a.h5", scan_options={"variables": "/in"})) == {
        "/in/deep/v"
    }


def test_a_group_that_is_not_there_is_an_error(path):
    with pytest.raises(ScanError, match="no such group"):
        icevirt.scan_file(path, scan_options={"source_group": "/in"})


def test_a_scanner_can_be_named(path):
    wanted = icevirt.scan_file(path)
    assert icevirt.scan_file(path, scan_options={"scanner": wanted.scanner}) == wanted
    dotted = "icevirt_scanners.netcdf3.scanner:NetCDF3Scanner"
    if wanted.scanner == "netcdf3":
        assert icevirt.scan_file(path, scan_options={"scanner": dotted}) == wanted
    else:
        with pytest.raises(ScanError, match="damaged NetCDF-3"):
            icevirt.scan_file(path, scan_options={"scanner": dotted})


@pytest.mark.parametrize("name", ["nosuch", "nosuch.module:X", "icevirt.scan.registry:X", "os:sep"])
def test_a_scanner_that_is_not_there_is_an_error_that_lists_what_is(path, name):
    with pytest.raises(InvalidInputError, match="scanner"):
        icevirt.scan_file(path, scan_options={"scanner": name})


def test_a_named_scanner_is_part_of_a_builds_identity():
    from icevirt.api.dataset.records import identity_of

    plain, named = (scanner_options(ScanOptions(scanner=name)) for name in ("", "netcdf3"))
    assert identity_of(plain) != identity_of(named)
    assert [each.name for each in registry.in_use(named)] == ["netcdf3"]
