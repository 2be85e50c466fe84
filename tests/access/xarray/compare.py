"""Datasets compared bit by bit: values, dtypes, attributes, encodings."""

import numpy as np
import xarray as xr

ENCODINGS = [
    "dtype",
    "units",
    "calendar",
    "_FillValue",
    "missing_value",
    "scale_factor",
    "add_offset",
    "coordinates",
    "_Unsigned",
    "char_dim_name",
    "_Encoding",
    "original_shape",
]


def same(ours, theirs, where=""):
    """Compare two attributes or encodings, dtypes included."""
    assert type(ours) is type(theirs), (where, ours, theirs)
    if isinstance(theirs, np.generic | np.ndarray):
        assert ours.dtype == theirs.dtype, where
        np.testing.assert_array_equal(ours, theirs)
    else:
        assert ours == theirs or (ours != ours and theirs != theirs), (where, ours, theirs)


def same_attributes(ours, theirs, where=""):
    assert list(ours) == list(theirs), where
    for name in theirs:
        same(ours[name], theirs[name], (where, name))


def same_dataset(ours, theirs):
    assert set(ours.variables) == set(theirs.variables)
    assert set(ours.coords) == set(theirs.coords)
    same_attributes(ours.attrs, theirs.attrs)
    for name in theirs.variables:
        same_variable(ours[name], theirs[name], name)


def same_variable(ours, theirs, name):
    assert ours.dims == theirs.dims, name
    assert ours.dtype == theirs.dtype, name
    a, b = ours.variable.to_base_variable(), theirs.variable.to_base_variable()
    xr.testing.assert_equal(a, b)
    assert a.values.dtype == b.values.dtype, name
    if b.dtype.kind == "O":
        assert [type(v) for v in a.values.flat] == [type(v) for v in b.values.flat]
    same_attributes(ours.attrs, theirs.attrs, name)
    for key in ENCODINGS:
        assert (key in ours.encoding) == (key in theirs.encoding), (name, key)
        if key in theirs.encoding:
            same(ours.encoding[key], theirs.encoding[key], (name, key))
