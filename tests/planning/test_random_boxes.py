"""Random boxes of files in a product grid: what is built holds each file's values where they belong."""

import contextlib
import itertools
import math
import shutil
import tempfile
from pathlib import Path

import h5py
import numpy as np
import pytest
import xarray as xr
from hypothesis import Phase, event, given, settings
from hypothesis import strategies as st

import icevirt
from builds.support import official
from icevirt.errors import CombineError

pytestmark = [pytest.mark.ci, pytest.mark.slow, pytest.mark.usefixtures("in_process")]

FILL = -1.0
X = 5


@st.composite
def grids(draw):
    """Draw one to three dimensions: where each is cut, in which chunks, and whether files have it."""
    dims = []
    for number in range(draw(st.integers(1, 3))):
        is_new = draw(st.booleans()) if number else draw(st.sampled_from([False, False, True]))
        lengths = [1] * draw(st.integers(2, 3))
        edge = 1
        if not is_new:
            edge = draw(st.integers(1, 3))
            aligned = draw(st.sampled_from([True, True, True, False]))
            pieces = draw(st.lists(st.integers(1, 3), min_size=1, max_size=3))
            lengths = [edge * each if aligned else each for each in pieces]
        dims.append({"name": f"d{number}", "new": is_new, "lengths": lengths, "edge": edge})
    boxes = list(itertools.product(*(range(len(each["lengths"])) for each in dims)))
    held = draw(st.lists(st.sampled_from(boxes), unique=True, min_size=1, max_size=len(boxes)))
    return {
        "dims": dims,
        "boxes": held,  # in the order of arrival
        "falling": draw(st.booleans()),
        "told": draw(st.sampled_from(["regex", "variable"])),
        "compressed": draw(st.booleans()),
    }


def write(folder, grid, box, number):
    """Write the file of a box; all values of all files differ."""
    dims = grid["dims"]
    output = "_".join(f"{each['name']}-{cell}" for each, cell in zip(dims, box, strict=True))
    path = folder / f"{output}_.h5"
    own = [(each, cell) for each, cell in zip(dims, box, strict=True) if not each["new"]]
    shape = (*(each["lengths"][cell] for each, cell in own), X)
    values = np.arange(math.prod(shape), dtype="f4").reshape(shape) + 1000 * number
    with h5py.File(path, "w") as file:
        names = [*(each["name"] for each, _ in own), "x"]
        labels = {each["name"]: labels_of(each, cell, grid) for each, cell in own}
        for name, length in zip(names, shape, strict=True):
            file.create_dataset(name, data=labels.get(name, np.arange(length, dtype="f8")))
            file[name].make_scale(name)
        more = {"compression": "gzip"} if grid["compressed"] else {}
        field = file.create_dataset(
            "field", data=values, chunks=(*(each["edge"] for each, _ in own), 3), fillvalue=FILL,
            maxshape=(None,) * len(shape), **more,
        )  # fmt: skip
        field.attrs["_FillValue"] = np.float32(FILL)
        for axis, name in enumerate(names):
            field.dims[axis].attach_scale(file[name])
        for each, cell in zip(dims, box, strict=True):
            if each["new"]:
                file.create_dataset(f"{each['name']}_told", data=np.int32(cell * 3))
        file.create_dataset("fixed", data=np.arange(X, dtype="i2"))
    return str(path), labels, values


def labels_of(dim, cell, grid):
    """Return the coordinate of a cell."""
    begin = sum(dim["lengths"][:cell])
    labels = np.arange(begin, begin + dim["lengths"][cell], dtype="f8") * 0.5
    return -labels if grid["falling"] else labels


@given(grid=grids())
@settings(max_examples=6, deadline=None, phases=[Phase.explicit, Phase.reuse, Phase.generate])
def test_each_file_is_where_its_labels_say_and_nothing_else_is_there(grid):
    """Or the plan says which chunks do not line up."""
    folder = Path(tempfile.mkdtemp())
    with contextlib.ExitStack() as stack:
        stack.callback(shutil.rmtree, folder)
        files = [write(folder, grid, box, n) for n, box in enumerate(grid["boxes"], start=1)]
        dims = [each["name"] for each in grid["dims"]]
        new = [each["name"] for each in grid["dims"] if each["new"]]
        output = {
            name: f"regex:{name}-([0-9]+)_" if grid["told"] == "regex" else f"variable:{name}_told"
            for name in new
        }
        refused = None
        try:
            report = icevirt.build(
                [path for path, _, _ in files], folder / "repo",
                concat_dim=dims, combine_options={"labels": output, "missing": "reserve", "data_vars": {name: ["field", f"{name}_told"] for name in new}},
            )  # fmt: skip
        except CombineError as error:
            refused = error.what
        event(f"{len(dims)} dimensions, {len(new)} new, {'refused' if refused else 'built'}")
        if refused is not None:
            assert "do not line up" in refused
            return
        authorized = {"authorize_virtual_chunk_access": report.containers}
        ours = xr.open_dataset(folder / "repo", engine="icevirt", **authorized).load()
        store = official(str(folder / "repo")).readonly_session("main").store
        theirs = xr.open_zarr(store, consolidated=False, chunks=None)
        np.testing.assert_array_equal(ours.field.values, theirs.field.values)
        for (_, labels, values), box in zip(files, grid["boxes"], strict=True):
            place = dict(labels)
            for name, cell in zip(dims, box, strict=True):
                if name in new and name in ours.field.dims:
                    place[name] = cell if grid["told"] == "regex" else cell * 3
            mine = ours.field.sel(place).values
            np.testing.assert_array_equal(mine.reshape(values.shape), values)
        there = int(np.isfinite(ours.field.values).sum())
        assert there == sum(values.size for _, _, values in files)
        assert ours.fixed.dims == ("x",) or ours.fixed.shape == (X,)
        assert not icevirt.verify(folder / "repo", full=True, **authorized).checked.differences
