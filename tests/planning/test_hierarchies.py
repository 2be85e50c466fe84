"""Groups, empty files and other shapes that archives come in."""

import h5py
import netCDF4
import numpy as np
import pytest
import xarray as xr

import icevirt
from builds.support import assert_same_dataset, opened

pytestmark = pytest.mark.usefixtures("in_process")


def write_tree(path, hour):
    """Write an orbit file: everything in nested groups, names that sort against time."""
    with netCDF4.Dataset(path, "w") as file:
        product = file.createGroup("PRODUCT")
        product.createDimension("time", None)
        product.createDimension("pixel", 3)
        time = product.createVariable("time", "i4", ("time",))
        time.units = "hours since 2020-01-01"
        time[:] = [hour]
        no2 = product.createVariable("no2", "f4", ("time", "pixel"), zlib=True, chunksizes=(1, 3))
        no2[0] = np.arange(3) + hour
        support = product.createGroup("SUPPORT")
        support.note = "deep"
        support.createVariable("quality", "u1", ("time", "pixel"), chunksizes=(1, 3))[0] = hour
    return str(path)


def test_nested_groups_are_concatenated_in_the_order_of_their_own_coordinate(tmp_path, repo_path):
    """Every group is a dataset; the file named last comes first in time."""
    files = [write_tree(tmp_path / name, hour) for name, hour in (("b.nc", 1), ("a.nc", 2))]
    report = icevirt.build(files, repo_path, concat_dim="time")
    assert report.findings[0] == "ordered by the values of 'time'"
    expected = xr.open_mfdataset(
        files, group="PRODUCT", combine="nested", concat_dim="time", join="exact",
        data_vars="minimal", coords="minimal", compat="equals", combine_attrs="override",
    )  # fmt: skip
    assert_same_dataset(opened(repo_path, group="PRODUCT"), expected)
    deep = opened(repo_path, group="PRODUCT/SUPPORT")
    assert deep.quality.values[:, 0].tolist() == [1, 2]
    assert deep.attrs == {"note": "deep"}


def test_a_file_without_variables_is_a_group_with_attributes(tmp_path, repo_path):
    """Nothing to refer to is no error."""
    with h5py.File(tmp_path / "empty.h5", "w") as file:
        file.attrs["title"] = "nothing here"
        file.create_group("inner")
    report = icevirt.build(tmp_path / "empty.h5", repo_path)
    assert (report.references.total, report.manifests, report.arrays) == (0, 0, ())
    assert opened(repo_path).attrs == {"title": "nothing here"}
    assert [group.path for group in icevirt.info(repo_path).groups] == ["/", "/inner"]


def test_chunks_that_were_never_written_stay_unwritten(tmp_path, repo_path):
    """They read as the file's own fill value, in every file of the dataset."""
    files = []
    for number in range(3):
        path = tmp_path / f"f{number}.h5"
        with h5py.File(path, "w") as file:
            data = file.create_dataset("d", (4, 8), "i4", chunks=(2, 4), fillvalue=-7)
            if number == 1:
                data[2:, 4:] = number
            file["t"] = np.arange(4) + 4 * number
            file["t"].make_scale("t")
            data.dims[0].attach_scale(file["t"])
        files.append(path)
    report = icevirt.build(files, repo_path, concat_dim="t")
    assert report.references.virtual == 1
    expected = np.full((12, 8), -7)
    expected[6:8, 4:] = 1
    np.testing.assert_array_equal(opened(repo_path, decode_cf=False)["d"].values, expected)


@pytest.mark.parametrize("axis", [0, 1])
def test_files_are_joined_along_any_axis(tmp_path, repo_path, axis):
    """The concatenated dimension need not be the first."""
    dims = ("t", "x") if axis == 0 else ("x", "t")
    files = []
    for number in range(3):
        path = tmp_path / f"f{number}.nc"
        shape = {"t": 2, "x": 6}
        with netCDF4.Dataset(path, "w") as file:
            for name, size in shape.items():
                file.createDimension(name, None if name == "t" else size)
            edges = tuple(1 if name == "t" else 6 for name in dims)
            wide = tuple(7 if name == "t" else 6 for name in dims)
            variable = file.createVariable("d", "f8", dims, zlib=True, chunksizes=edges)
            variable[:] = np.arange(12).reshape([shape[name] for name in dims]) + 20 * number
            partial = file.createVariable("p", "f8", dims, chunksizes=wide)
            partial[:] = variable[:] + 0.5
        files.append(str(path))
    report = icevirt.build(files, repo_path, concat_dim="t")
    assert report.references.virtual == 6
    expected = xr.open_mfdataset(
        files, combine="nested", concat_dim="t", join="exact", data_vars="minimal",
        coords="minimal", compat="equals", combine_attrs="override",
    )  # fmt: skip
    assert_same_dataset(opened(repo_path), expected)


def test_months_of_different_length_are_joined_where_libraries_cut_chunks_by_length(
    tmp_path, repo_path
):
    """A 1-D variable written into an unlimited dimension of 31 days gets a chunk of 31."""
    files, day = [], 0
    for length in (31, 28, 31):
        files.append(str(tmp_path / f"m{len(files)}.nc"))
        with netCDF4.Dataset(files[-1], "w") as file:
            file.createDimension("time", None)
            file.createDimension("two", 2)
            file.createDimension("x", 8)
            time = file.createVariable("time", "f8", ("time",))
            time.units = "days since 2001-01-01"
            time[:] = np.arange(day, day + length)
            chunks = (length,)
            file.createVariable("flux", "f4", ("time",), chunksizes=chunks)[:] = time[:] / 2
            bounds = file.createVariable("bnds", "f8", ("time", "two"), chunksizes=(length, 2))
            bounds[:] = np.stack([time[:], time[:] + 1], 1)
            data = file.createVariable("d", "f4", ("time", "x"), zlib=True, chunksizes=(1, 8))
            data[:] = np.arange(length * 8).reshape(length, 8) + day
        day += length
    report = icevirt.build(files, repo_path, concat_dim="time")
    assert report.references.virtual == 90
    expected = xr.open_mfdataset(
        files, combine="nested", concat_dim="time", join="exact", data_vars="minimal",
        coords="minimal", compat="equals", combine_attrs="override",
    )  # fmt: skip
    assert_same_dataset(opened(repo_path), expected)
