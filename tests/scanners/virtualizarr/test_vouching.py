"""Values that a codec of an adapter decodes are compared, or a plan says that nobody did."""

import sys

import netCDF4
import numpy as np
import pytest

import icevirt
from icevirt.api.scan import scan_file
from icevirt.errors import UnsupportedError

GRIB = "virtualizarr:gribberish.virtualizarr.GribberishParser"


OWN = {"scanner": "scanners.virtualizarr.own_format:scanner"}


@pytest.fixture
def numbers(tmp_path):
    np.arange(3, dtype="<i4").tofile(tmp_path / "raw.bin")
    return str(tmp_path / "raw.bin")


def test_values_of_a_codec_of_its_own_are_said_not_to_be_compared(numbers):
    scanned = scan_file(numbers, scan_options=OWN)
    (found,) = [each for each in scanned.findings if each.code == "values-not-compared"]
    assert found.path == "/v"
    assert found.severity == "warning"
    assert "values not compared by icevirt: the codec own_format" in found.message
    assert "no reference library is known" in found.message


def test_the_plan_says_so_too(numbers):
    made = icevirt.plan([numbers], scan_options=OWN, executor="in-process")
    assert "values not compared by icevirt" in " ".join(str(made).split())


def test_general_codecs_need_no_voucher(tmp_path):
    with netCDF4.Dataset(tmp_path / "a.nc", "w") as file:
        file.createDimension("x", 3)
        file.createVariable("v", "i4", ("x",), zlib=True)[:] = [1, 2, 3]
    found = scan_file(tmp_path / "a.nc", scan_options={"scanner": "virtualizarr:HDFParser"})
    assert "values-not-compared" not in {each.code for each in found.findings}


# -- GRIB ----------------------------------------------------------------------------------------


READ = {
    "usual": {"jPointsAreConsecutive": 0},
    "south first": {"jScansPositively": 1, "lats": (0, 20)},
    "small numbers": {"jPointsAreConsecutive": 0, "values": np.arange(12) * 1e-7},
    "one number": {"jPointsAreConsecutive": 0, "values": np.full(12, 3.5)},
    "of the first edition": {"sample": "regular_ll_sfc_grib1", "jPointsAreConsecutive": 0},
}


@pytest.mark.parametrize("keys", READ.values(), ids=READ)
def test_messages_that_are_read_as_eccodes_reads_them_pass(keys, message):
    found = scan_file(message(**keys), scan_options={"scanner": GRIB})
    assert "values-not-compared" not in {each.code for each in found.findings}


def test_consecutive_j_points_are_refused_with_a_value(message):
    with pytest.raises(UnsupportedError, match="jPointsAreConsecutive=1") as caught:
        scan_file(message(jPointsAreConsecutive=1), scan_options={"scanner": GRIB})
    assert "10 of 12 values of message 0 are others" in str(caught.value)
    assert caught.value.facts["variable"] == "/sfc/instant/tmp"


def test_a_later_message_is_compared_too(message):
    message(jPointsAreConsecutive=0)
    path = message(jPointsAreConsecutive=1, dataDate=20240102)
    with pytest.raises(UnsupportedError, match="values of message 1 are others"):
        scan_file(path, scan_options={"scanner": GRIB})


def test_a_reduced_grid_is_refused_by_its_points(message):
    with pytest.raises(UnsupportedError, match="reduced_gg of 6,114 points, the array 64 × 65535"):
        scan_file(message("reduced_gg_pl_32_grib1"), scan_options={"scanner": GRIB})


def test_a_projected_grid_passes(message):
    found = scan_file(message("polar_stereographic_sfc_grib2"), scan_options={"scanner": GRIB})
    assert "values-not-compared" not in {each.code for each in found.findings}


def test_what_differs_may_be_left_out(message):
    path = message(jPointsAreConsecutive=1)
    found = scan_file(path, scan_options={"scanner": GRIB, "variable_policy": "skip"})
    assert "/sfc/instant/tmp" in found.left_out


def test_without_eccodes_nobody_vouches(message, monkeypatch):
    path = message(jPointsAreConsecutive=1)
    monkeypatch.setitem(sys.modules, "eccodes", None)
    found = scan_file(path, scan_options={"scanner": GRIB})
    (said,) = [each.message for each in found.findings if each.code == "values-not-compared"]
    assert "with the package eccodes installed, they are compared with ecCodes" in said
