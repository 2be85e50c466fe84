"""A plan, a build and `info` say the same of where chunks lie and of how long they are."""

import h5py
import netCDF4
import numpy as np
import pytest
import xarray as xr
import zarr

import icevirt
from icevirt.display.blocks import box
from icevirt.display.render import as_text
from icevirt.errors import StorageError
from icevirt.model.snapshot import chunk_extents

pytestmark = pytest.mark.usefixtures("in_process")


def write(folder):
    """Write files of other lengths whose variables are stored in every way there is."""
    files = []
    for number in range(3):
        random, steps = np.random.default_rng(number), 2 + number
        files.append(str(folder / f"{number}.nc"))
        with netCDF4.Dataset(files[-1], "w") as file:
            for name, length in (("time", steps), ("x", 200), ("y", 30)):
                file.createDimension(name, length)
            time = file.createVariable("time", "f8", ("time",))
            time.units = "days since 2020-01-01"
            time[:] = np.arange(steps) + 10 * number
            file.createVariable("x", "f8", ("x",))[:] = np.arange(200)
            file.createVariable("y", "f8", ("y",))[:] = np.arange(30)
            file.createVariable("constant", "f4", ("time", "y"))[:] = number
            file.createVariable("random", "f4", ("time", "y"))[:] = random.random((steps, 30))
            for name, held in (("even", number), ("odd", random.random((steps, 200)))):
                cut = file.createVariable(name, "f4", ("time", "x"), zlib=True, chunksizes=(2, 200))
                cut[:] = held
            file.createVariable("large", "f4", ("time", "x", "y"), chunksizes=(1, 200, 30))[:] = 1
            file.createVariable("text", str, ("x",))[:] = np.array([f"t{n}" for n in range(200)])
            file.createVariable("scalar", "i4", ())[...] = 1
    return files


WAYS = {
    "chunks of one length": {},
    "chunks that follow the files": {"chunk_grid": "rectilinear"},
    "a variable is given the dimension": {"data_vars": ["scalar"]},
    "steps are reserved": {"spacing": "1D"},
}


@pytest.mark.parametrize("how", WAYS.values(), ids=WAYS)
def test_what_a_plan_knows_of_references_is_what_a_build_makes(tmp_path, repo_path, how):
    """Where the size of encoded values decides, it says that they are stored."""
    files = write(tmp_path)
    if "spacing" in how:
        for path in files:
            with h5py.File(path, "a") as file:
                for name in ("constant", "random", "even", "odd", "large"):
                    file[name].attrs["_FillValue"] = np.float32(-9)
    plan = icevirt.plan(files, concat_dim="time", combine_options=how)
    report = icevirt.build(files, repo_path, concat_dim="time", combine_options=how)
    planned = {array.path: array.written for array in plan.arrays}
    unknown = set()
    for made in (report, icevirt.info(repo_path)):
        for array in made.arrays:
            said, found = planned[array.path], array.references
            assert said.virtual == found.virtual, array.path
            if said.stored:
                unknown.add(array.path)
                assert (said.native, said.inline) == (0, 0)
                assert said.stored == found.native + found.inline, array.path
            else:
                assert (said.native, said.inline) == (found.native, found.inline), array.path
    assert unknown <= {"/constant", "/random", "/even", "/odd", "/scalar"}
    for known in ("/x", "/text", "/time"):
        assert known not in unknown


def test_chunks_of_several_lengths_are_shown_as_such(tmp_path, repo_path):
    """By the plan, the build and info; not as if the first one were all."""
    files = write(tmp_path)
    options = {"chunk_grid": "rectilinear"}
    plan = icevirt.plan(files, concat_dim="time", combine_options=options)
    report = icevirt.build(files, repo_path, concat_dim="time", combine_options=options)
    found = icevirt.info(repo_path)
    for made in (report.arrays, found.arrays):
        edges = {array.path: array.chunk_shape for array in made}
        assert edges["/odd"] == ((1, 2), 200)
        assert edges["/large"] == (1, 200, 30)
    assert {array.path: array.chunk_extents for array in plan.arrays}["/odd"] == ((1, 2), 200)
    for each in (plan, report, found):
        assert "1 to 2 × 200" in as_text(each, width=200)


GRIDS = {
    "regular": ({"chunk_shape": [2, 3]}, (2, 3), "2 × 3"),
    "no dimension": ({"chunk_shape": []}, (), "scalar"),
    "sizes": ({"chunk_shapes": [[365, 366, 365], [4]]}, ((365, 366), 4), "365 to 366 × 4"),
    "pairs": ({"chunk_shapes": [[[2, 3], 1], [[5, 2]]]}, ((1, 2), 5), "1 to 2 × 5"),
    "a number": ({"chunk_shapes": [7, [3, 3]]}, (7, 3), "7 × 3"),
    "nothing": ({"chunk_shapes": [[]]}, (0,), "0"),
}


@pytest.mark.parametrize(("configuration", "wanted", "text"), GRIDS.values(), ids=GRIDS)
def test_lengths_of_chunks_are_the_least_and_the_greatest(configuration, wanted, text):
    found = chunk_extents({"name": "any", "configuration": configuration})
    assert found == wanted
    assert box(found) == text


# -- errors that are none of codecs ----------------------------------------------------------------


@pytest.fixture
def sparse(tmp_path, repo_path):
    """A repository of a file of which one chunk was never written."""
    path = tmp_path / "sparse.h5"
    with h5py.File(path, "w") as file:
        data = file.create_dataset("d", (4, 4), "i4", chunks=(2, 4), compression="gzip")
        data[:2] = 7
    report = icevirt.build(path, repo_path)
    return path, report


def test_a_chunk_that_is_not_there_is_not_called_damaged(sparse):
    """Zarr raises its own error where it was told not to fill in."""
    with zarr.config.set({"array.read_missing_chunks": False}), sparse[1].open() as dataset:
        with pytest.raises(zarr.errors.ChunkNotFoundError, match="not found"):
            dataset.d.load()
        assert (dataset.d[:2].values == 7).all()


def test_a_chunk_that_is_damaged_is_called_so(sparse):
    path, report = sparse
    with h5py.File(path) as file:
        at = file["d"].id.get_chunk_info(0).byte_offset
    held = bytearray(path.read_bytes())
    held[at : at + 8] = b"nonsense"
    path.write_bytes(held)
    found = xr.open_dataset(
        report.repo, engine="icevirt", on_stale="ignore",
        authorize_virtual_chunk_access=report.containers,
    )  # fmt: skip
    with pytest.raises(StorageError, match="cannot be decoded") as caught:
        found.d.load()
    assert caught.value.facts["variable"] == "/d"
