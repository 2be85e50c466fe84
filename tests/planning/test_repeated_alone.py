"""A variable that gets a dimension is repeated for each step, also where one file is alone."""

import netCDF4
import numpy as np
import pytest
import xarray as xr

import icevirt
from builds.support import verified
from builds.xarray_answer import combined
from icevirt.errors import CombineError
from long_forms import crossed

pytestmark = [pytest.mark.ci, pytest.mark.usefixtures("in_process")]

LARGE = 160  # squared: stays in the file

KINDS = {
    "a number": ("i4", ()),
    "a row": ("f8", ("two",)),
    "a field that stays in its file": ("f4", ("y", "x")),
    "a text": (str, ()),
}


def write(path, number, *, steps, day=0, kind="a number", group=None):
    """Write a field along scans of one day, and a variable that lacks the dimension."""
    with netCDF4.Dataset(path, "w") as file:
        for name, length in (("time", 1), ("scan", steps), ("two", 2), ("y", LARGE), ("x", LARGE)):
            file.createDimension(name, length)
        time = file.createVariable("time", "i4", ("time",))
        time.units = "days since 2010-01-01"
        time[:] = [day]
        file.createVariable("field", "f4", ("time", "scan"))[:] = number + np.arange(steps)
        dtype, dims = KINDS[kind]
        held = (file.createGroup(group) if group else file).createVariable("n", dtype, dims)
        held[...] = "abc"[number] if dtype is str else number + np.zeros(held.shape)
    return str(path)


def written(folder, spec, **how):
    """Write files of the steps and days given."""
    return [
        write(folder / f"f{n}.nc", n, steps=steps, day=day, **how)
        for n, (steps, day) in enumerate(spec)
    ]


def held(repo, report, group=None):
    verified(repo, report.containers)
    return xr.open_dataset(
        repo, engine="icevirt", group=group, authorize_virtual_chunk_access=report.containers
    ).load()


def by_xarray(files):
    """Return what xarray makes of files of one era."""
    return combined(
        files, combine="nested", concat_dim="scan", data_vars=["n", "field"], coords="minimal",
        compat="override",
    )  # fmt: skip


ALONE = {
    "the last is": (((4, 0), (5, 0), (6, 9)), ((0, 1), (2,))),
    "each is": (((4, 0), (6, 9)), ((0,), (1,))),
    "the first is, with one step": (((1, 0), (2, 9), (3, 9)), ((0,), (1, 2))),
}


@pytest.mark.parametrize(("kind", "alone"), crossed(KINDS, ALONE))
def test_each_era_repeats_what_gets_the_dimension(tmp_path, repo_path, kind, alone):
    spec, eras = ALONE[alone]
    files = written(tmp_path, spec, kind=kind)
    report = icevirt.build(
        files, repo_path, concat_dim="scan",
        combine_options={"on_mismatch": "eras", "data_vars": ["n"]},
    )  # fmt: skip
    for number, rows in enumerate(eras):
        found = held(repo_path, report, f"era_{number}")
        expected = by_xarray([files[row] for row in rows])
        for name in ("n", "field", "time"):
            xr.testing.assert_equal(found[name].transpose(*expected[name].dims), expected[name])


@pytest.mark.parametrize("kind", KINDS)
def test_a_dataset_of_one_file_repeats_it_too(tmp_path, repo_path, kind):
    files = written(tmp_path, [(5, 0)], kind=kind)
    report = icevirt.build(files, repo_path, concat_dim="scan", combine_options={"data_vars": "n"})
    found = held(repo_path, report)
    assert found.n.dims[0] == "scan"
    expected = by_xarray([*files, *files]).n.isel(scan=slice(5))
    xr.testing.assert_equal(found.n.drop_vars("scan", errors="ignore"), expected)


def test_the_command_that_a_refusal_proposes_builds(tmp_path, repo_path):
    """Files of two days differ in more than the dimension: the fix says both, and works."""
    files = written(tmp_path, ((4, 0), (5, 0), (6, 9)))
    with pytest.raises(CombineError, match=r"/time does not have the dimension 'scan'") as caught:
        icevirt.build(files, repo_path, concat_dim="scan")
    options = caught.value.fixes[0].arguments["combine_options"]
    assert options == {"on_mismatch": "eras", "data_vars": ["n"]}
    report = icevirt.build(files, repo_path, concat_dim="scan", combine_options=options)
    assert held(repo_path, report, "era_1").n.values.tolist() == [2] * 6
