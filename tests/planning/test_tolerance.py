"""Coordinates that are nearly alike are taken for alike as far as was said, and no further."""

import netCDF4
import numpy as np
import pytest

import icevirt
from builds.support import opened, write_days
from grouping import grouped
from icevirt import errors
from long_forms import crossed

pytestmark = [pytest.mark.ci, pytest.mark.usefixtures("in_process")]


@pytest.fixture
def days(tmp_path):
    return write_days(tmp_path / "days")


def shift(path, name, by):
    with netCDF4.Dataset(path, "a") as file:
        file[name].set_auto_mask(False)
        file[name][:] = file[name][:] + by


def built(days, tmp_path, **how):
    report = icevirt.build(days, tmp_path / "repo", concat_dim="time", **grouped(how))
    return opened(str(tmp_path / "repo")), report


def test_the_first_file_counts_and_the_largest_difference_is_reported(days, tmp_path):
    """The first along the dimension, in whatever order the files are given."""
    with netCDF4.Dataset(days[0]) as file:
        first = file["x"][:].data
    shift(days[1], "x", np.float32(1e-5))
    shift(days[2], "x", np.float32(3e-5))
    found, report = built(days[::-1], tmp_path, tolerance=1e-4)
    np.testing.assert_array_equal(found["x"], first)
    (output,) = (text for text in report.findings if text.startswith("/x"))
    assert "within the tolerance 0.0001" in output
    assert "day1.nc are used" in output
    assert float(output.split("up to ")[1].split(",")[0]) == pytest.approx(3e-5, rel=1e-2)


LIMITS = {
    "of all coordinates": 1e-4,
    "of one, by name": {"x": 1e-4},
    "of one, by path": {"/x": 1e-4},
    "the name counts more": {"*": 0, "x": 1e-4},
}


@pytest.mark.parametrize(("limit", "by"), crossed(LIMITS, [2e-4, 0.9e-4, np.nan]))
def test_it_is_held_exactly(by, limit, days, tmp_path):
    tolerance = LIMITS[limit]
    shift(days[1], "x", np.float32(by))
    if by < 1e-4:
        built(days, tmp_path, tolerance=tolerance)
        return
    with pytest.raises(errors.CombineError, match=r"more than the tolerance|one is missing") as e:
        built(days, tmp_path, tolerance=tolerance)
    assert e.value.facts["first"].endswith("day1.nc")
    assert e.value.facts["other"].endswith("day2.nc")


def test_without_it_nothing_may_differ(days, tmp_path):
    """And the tolerance of one variable is none for others."""
    shift(days[1], "x", np.float32(1e-6))
    for how in ({}, {"tolerance": {"y": 1}}, {"tolerance": 0}):
        with pytest.raises(errors.CombineError, match="tolerance"):
            built(days, tmp_path, **how)


def test_other_variables_have_one_by_name(days, tmp_path):
    """A number is for coordinates only; integers are compared exactly."""
    shift(days[2], "mask", 1)
    with pytest.raises(errors.CombineError, match="differ between files"):
        built(days, tmp_path, tolerance=5)
    _, report = built(days, tmp_path, tolerance={"mask": 1})
    assert any("/mask differs between files by up to 1" in text for text in report.findings)


def test_a_renamed_coordinate_has_it_by_its_new_name(days, tmp_path):
    shift(days[2], "x", np.float32(1e-6))
    found, _ = built(days, tmp_path, rename={"x": "lon"}, tolerance={"lon": 1e-4})
    assert found["packed"].dims == ("time", "y", "lon")


@pytest.mark.parametrize("wrong", [-1, "much", {"x": np.nan}, True])
def test_what_is_no_tolerance_is_refused(wrong, days, tmp_path):
    with pytest.raises(errors.InvalidInputError, match="tolerance must be a number"):
        built(days, tmp_path, tolerance=wrong)
