"""Random files written by h5py: whatever the type, layout, filters and holes, values are equal."""

import tempfile
from math import prod
from pathlib import Path

import h5py
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from icevirt.api.scan import scan_file
from scanners.materialise import materialise

DTYPES = st.sampled_from(
    [
        *("<i2", ">i4", "<u8", ">u2", "<f4", ">f8", "<f2", "i1", "?", "<c8", "S3"),
        np.dtype([("a", "<i2"), ("b", "<f4")]),
    ]
)
FILTERS = st.fixed_dictionaries(
    {
        "shuffle": st.booleans(),
        "fletcher32": st.booleans(),
        "compression": st.sampled_from([None, "gzip", "lzf", "szip"]),
    }
)


@st.composite
def datasets(draw):
    """Values, how they are laid out, and which boxes of them are really written."""
    dtype = np.dtype(draw(DTYPES))
    shape = draw(arrays.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=9))
    elements = {"allow_nan": False} if dtype.kind in "fc" else None
    values = draw(arrays.arrays(dtype, shape, elements=elements, fill=st.nothing()))
    layout: dict = {}
    if shape and draw(st.booleans()):
        layout["chunks"] = tuple(draw(st.integers(1, max(n, 1) + 1)) for n in shape)
        layout["maxshape"] = (None,) * len(shape)
        filters = draw(FILTERS)
        if filters["compression"] == "szip" and (
            dtype.kind not in "iuf" or prod(layout["chunks"]) < 8
        ):
            filters["compression"] = None
        layout.update(filters)
    written = tuple(slice(*sorted(draw(st.tuples(*[st.integers(0, n)] * 2)))) for n in shape)
    return values, layout, written


@pytest.mark.ci
@settings(max_examples=75, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.lists(datasets(), min_size=1, max_size=4),
    st.sampled_from(["earliest", "latest"]),
    st.sampled_from([None, "phony_dim_0", "phony_dim_1"]),
)
def test_a_random_file_reads_as_h5py_reads_it(found, bounds, concat_dim):
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "file.h5"
        with h5py.File(path, "w", libver=bounds) as file:
            for number, (values, layout, written) in enumerate(found):
                dataset = file.create_dataset(
                    f"d{number}", shape=values.shape, dtype=values.dtype, **layout
                )
                if values.size:
                    dataset[written] = values[written]
        scanned = scan_file(path, concat_dim=concat_dim)
        with h5py.File(path) as file:
            assert len(scanned.arrays) == len(found)
            for array in scanned.arrays:
                wanted = np.asarray(file[array.path][...])
                shown = materialise(array)
                assert shown.shape == wanted.shape
                assert shown.dtype == wanted.dtype.newbyteorder("=")
                assert shown.tobytes() == wanted.astype(shown.dtype).tobytes()
                inside = concat_dim in array.dimension_names
                assert bool(array.digest) is (concat_dim is not None and not inside)
