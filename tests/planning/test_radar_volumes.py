"""Volumes of a radar: each sweep is a group with rays of its own, and volumes follow one another."""

import netCDF4
import numpy as np
import pytest
import xarray as xr

import icevirt
from archives.groups import volume
from icevirt.errors import CombineError
from long_forms import crossed

pytestmark = [pytest.mark.ci, pytest.mark.usefixtures("in_process")]

KINDS = {
    "equal sweeps": {},
    "azimuths that differ": {"jitter": 0.1},
    "a ray more in a sweep": {"odd": 1},
    "dates of their own": {"own_dates": True},
    "all of that": {"jitter": 0.1, "odd": 1, "own_dates": True},
}


def write(folder, *, odd=0, count=3, **how):
    found = []
    for number in range(count):
        found.append(folder / f"KLOT20260727_190{number}44_V06.nc")
        volume(found[-1], number, rays=(6, 6 + odd * (number == 1), 4), **how)
    return [str(each) for each in found]


@pytest.mark.parametrize(("kind", "count"), crossed(KINDS, [2, 7]))
def test_the_first_proposal_keeps_every_value_of_every_sweep(tmp_path, repo_path, kind, count):
    files = write(tmp_path, count=count, **KINDS[kind])
    with pytest.raises(CombineError) as caught:
        icevirt.build(files, repo_path)
    first = caught.value.fixes[0]
    assert not first.loss
    report = icevirt.build(files, repo_path, **first.arguments)
    tree = xr.open_datatree(
        repo_path, engine="icevirt", authorize_virtual_chunk_access=report.containers
    ).load()
    for number, path in enumerate(files):
        for node in xr.open_datatree(path).load().subtree:
            own, found = node.to_dataset(inherit=False), tree[node.path].to_dataset()
            for name in own.variables:
                there = found[name if name in found.variables else f"{name}_values"]
                there = there.isel(date=number) if "date" in there.dims else there
                if "azimuth" in there.dims:
                    there = there.isel(azimuth=slice(own.sizes["azimuth"]))
                np.testing.assert_array_equal(there.values, own[name].values, err_msg=name)


def test_files_of_several_grids_are_named_with_the_group_that_differs(tmp_path, repo_path):
    files = write(tmp_path, odd=1)
    with pytest.raises(CombineError, match=r"along azimuth of /sweep_1 \(6, 7\)") as caught:
        icevirt.build(files, repo_path)
    assert caught.value.facts["first"].endswith("190044_V06.nc")
    assert caught.value.facts["other"].endswith("190144_V06.nc")
    assert (caught.value.facts["first_length"], caught.value.facts["other_length"]) == (6, 7)


@pytest.mark.parametrize("along", ["run", "time"])
def test_equal_numbers_that_count_from_other_dates_are_not_the_first_files(
    tmp_path, repo_path, along
):
    """They lack the dimension, so that one array would have the times of the first file alone."""
    files = []
    for number in range(2):
        files.append(str(tmp_path / f"{number}.nc"))
        with netCDF4.Dataset(files[-1], "w") as file:
            file.createDimension("ray", 3)
            file.createDimension("time", 1)
            seconds = file.createVariable("seconds", "f8", ("ray",))
            seconds.units = f"seconds since 2026-01-0{number + 1}"
            seconds[:] = np.arange(3)
            file.createVariable("time", "i4", ("time",))[:] = [number * (along == "time")]
            file.createVariable("value", "f4", ("time", "ray"))[:] = np.arange(3) + 10 * number
    labels = {"labels": [0, 1], "data_vars": ["value"]} if along == "run" else {}
    how = {"concat_dim": along, "combine_options": {"on_mismatch": "native", **labels}}
    with pytest.raises(CombineError, match="/seconds is encoded differently"):
        icevirt.build(files, repo_path, **how)
    how["combine_options"]["data_vars"] = ["value"] * (along == "run") + ["seconds"]
    report = icevirt.build(files, repo_path, **how)
    found = xr.open_dataset(
        repo_path, engine="icevirt", authorize_virtual_chunk_access=report.containers
    )
    for number, path in enumerate(files):
        own = xr.open_dataset(path).seconds.values
        np.testing.assert_array_equal(found.seconds.isel({along: number}).values, own)
