"""What is packed anew decodes to the very numbers it was, or is said to be lost."""

import warnings

import netCDF4
import numpy as np
import pytest
import xarray as xr
from hypothesis import given
from hypothesis import strategies as st

from icevirt.model.attributes import Attributes
from icevirt.planning.combine.cf_packing import LostValues, decode, packing_of, repack

ROUND = {"scale_factor": np.float32(0.5), "add_offset": np.float32(2), "_FillValue": np.int16(-1)}
CASES = {
    "another scale": ({"scale_factor": np.float32(1.0)}, "i2"),
    "another offset": ({"scale_factor": np.float32(0.5), "add_offset": np.float32(1)}, "i2"),
    "another fill": ({**ROUND, "_FillValue": np.int16(7)}, "i2"),
    "missing_value": ({**ROUND, "missing_value": np.int16(3)}, "i2"),
    "unsigned": ({"_Unsigned": "true", "_FillValue": np.int16(-1)}, "i2"),
    "a wider type": (ROUND, "i4"),
    "floats": ({"_FillValue": np.float32(-9)}, "f4"),
}


@pytest.mark.parametrize(("packing", "dtype"), CASES.values(), ids=CASES.keys())
def test_decoding_is_what_xarray_shows_of_a_file(tmp_path, packing, dtype):
    """Dtype included."""
    raw = np.array([[-1, 0, 3], [7, 100, -9]], dtype)
    with netCDF4.Dataset(tmp_path / "a.nc", "w") as file:
        file.createDimension("y", 2)
        file.createDimension("x", 3)
        fill = packing.get("_FillValue")
        variable = file.createVariable(
            "v", dtype, ("y", "x"), fill_value=None if fill is None else fill.astype(dtype)
        )
        variable.set_auto_maskandscale(False)
        for name, value in packing.items():
            if name != "_FillValue":
                variable.setncattr(name, value)
        variable[:] = raw
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", xr.SerializationWarning)
        expected = xr.open_dataset(tmp_path / "a.nc")["v"].values
    own = packing if fill is None else {**packing, "_FillValue": fill.astype(dtype)}
    found = decode(raw, packing_of(Attributes.of(own)))
    assert found.dtype == expected.dtype
    np.testing.assert_array_equal(found, expected)


@given(st.lists(st.integers(-1000, 1000), min_size=1, max_size=20),
       st.sampled_from([0.5, 1.0, 2.0, 0.25, 0.1]))  # fmt: skip
def test_values_are_packed_exactly_or_lost(numbers, scale):
    """Never rounded."""
    theirs = {"scale_factor": np.float32(scale), "_FillValue": np.int16(-999)}
    values = decode(np.array(numbers, "i2"), theirs)
    found = repack(values, np.dtype("i2"), ROUND)
    if isinstance(found, LostValues):
        assert found.count
        assert found.maximum_error != 0
    else:
        again = decode(found, ROUND)
        np.testing.assert_array_equal(again, values)
    if scale in (0.5, 1.0, 2.0) and max(map(abs, numbers)) < 900 and 1.5 not in values:
        # 1.5 would be -1, which means "missing"
        assert not isinstance(found, LostValues)


def test_a_missing_value_needs_one_to_become():
    """Packing that knows none cannot hold it."""
    found = repack(np.array([1.0, np.nan]), np.dtype("i2"), {"scale_factor": 1.0})
    assert isinstance(found, LostValues)
    assert np.isnan(found.maximum_error)


def test_a_value_that_would_become_the_missing_one_is_lost():
    found = repack(np.array([1.5], "f4"), np.dtype("i2"), ROUND)
    assert isinstance(found, LostValues)


def test_large_whole_numbers_are_no_floats():
    """2**53 + 1 has no float64."""
    odd = np.array([2**53 + 1])
    assert isinstance(repack(odd, np.dtype("f8"), {}), LostValues)
    assert not isinstance(repack(odd - 1, np.dtype("f8"), {}), LostValues)


def test_minus_zero_stays():
    packed = repack(np.array([-0.0]), np.dtype("f4"), {})
    assert not isinstance(packed, LostValues)
    assert np.signbit(packed).all()
    assert isinstance(repack(np.array([-0.0]), np.dtype("i2"), {"scale_factor": 1.0}), LostValues)
