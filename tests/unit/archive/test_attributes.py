"""Attributes survive JSON with their dtypes, in the spelling that zarr and xarray expect."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from xarray.backends.zarr import FillValueCoder

from icevirt.model.attributes import EXTENSION, Attributes, restore

NUMBERS = {
    "a float32 scale factor": np.float32(0.1),
    "a double": np.float64(0.1),
    "a half": np.float16(1.5),
    "a short": np.int16(-3),
    "the largest unsigned": np.uint64(2**64 - 1),
    "a boolean": np.bool_(1),
    "NaN": np.float32(np.nan),
    "infinity": np.float64(-np.inf),
    "several": np.array([1.5, np.nan, np.inf, -np.inf], "f4"),
    "none": np.array([], "i4"),
    "one in an array": np.array([3], "u1"),
    "a matrix": np.arange(4, dtype="i2").reshape(2, 2),
}


def through_json(attributes: Attributes) -> dict:
    document = {"attributes": dict(attributes.values), **attributes.extension()}
    read = json.loads(json.dumps(document, allow_nan=False))
    dtypes = read.get(EXTENSION, {}).get("attribute_dtypes", {})
    return restore(read["attributes"], dtypes)


def same(found, wanted):
    assert type(found) is type(wanted)
    assert found.dtype == wanted.dtype
    np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize("value", NUMBERS.values(), ids=NUMBERS)
def test_numbers_come_back_with_their_dtype_and_form(value):
    same(through_json(Attributes.of({"a": value}))["a"], value)


@given(
    arrays.arrays(
        st.sampled_from(["f2", "f4", "f8", "i1", "i8", "u2", "u8", "?"]),
        arrays.array_shapes(max_dims=2, max_side=4),
    )
)
def test_any_array_comes_back(value):
    same(through_json(Attributes.of({"a": value}))["a"], value)


@pytest.mark.parametrize("dtype", ["f4", "f8"])
@pytest.mark.parametrize("number", [1e20, -9999.9, np.nan, np.inf])
def test_a_float_fill_value_is_what_xarray_decodes(number, dtype):
    value = np.dtype(dtype).type(number)
    attributes = Attributes.of({"_FillValue": value})
    decoded = FillValueCoder.decode(attributes.values["_FillValue"], np.dtype(dtype))
    np.testing.assert_equal(np.dtype(dtype).type(decoded), value)
    same(through_json(attributes)["_FillValue"], value)


def test_an_integer_fill_value_stays_a_number():
    attributes = Attributes.of({"_FillValue": np.int16(-99)})
    assert attributes.values == {"_FillValue": -99}
    assert attributes.dtypes == {"_FillValue": "i2"}


def test_big_endian_numbers_lose_only_their_order():
    same(through_json(Attributes.of({"a": np.array([1, 2], ">i4")}))["a"], np.array([1, 2], "i4"))


def test_text_and_plain_values_pass_through():
    found = {"a": "grüße", "b": ["x", "y"], "c": b"raw", "d": 3, "f": None}
    shown = through_json(Attributes.of(found))
    assert shown == {"a": "grüße", "b": ["x", "y"], "c": "raw", "d": 3, "f": None}


def test_python_numbers_that_json_lacks_keep_their_value():
    found = {"e": 1 + 2j, "nan": float("nan"), "list": [1, float("inf")], "plain": [1.5, 2]}
    shown = through_json(Attributes.of(found))
    assert shown["e"] == 1 + 2j
    assert np.isnan(shown["nan"])
    assert shown["list"].tolist() == [1, float("inf")]
    assert shown["plain"] == [1.5, 2]


def test_text_that_looks_like_a_number_is_not_one():
    assert through_json(Attributes.of({"a": "NaN", "b": "Infinity"})) == {
        "a": "NaN",
        "b": "Infinity",
    }


def test_the_extension_is_absent_where_nothing_would_be_lost():
    assert Attributes.of({"units": "K"}).extension() == {}
    assert Attributes.of({"n": np.int32(1)}).extension() == {
        "icevirt": {"must_understand": False, "attribute_dtypes": {"n": "i4"}}
    }


def test_attributes_can_be_left_out():
    attributes = Attributes.of({"a": np.int32(1), "b": "x"}).without("a")
    assert (attributes.values, attributes.dtypes) == ({"b": "x"}, {})
