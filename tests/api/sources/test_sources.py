"""Sources of any name and order build datasets that both clients read."""

import os

import netCDF4
import pytest
import xarray as xr

import icevirt
from builds.support import assert_same_raw, official, opened, write_days

pytestmark = pytest.mark.usefixtures("in_process")


def by_both(repo, name):
    """Return a variable as each client reads it."""
    theirs = xr.open_zarr(official(repo).readonly_session("main").store, consolidated=False)
    return [dataset[name].to_numpy().tolist() for dataset in (opened(repo), theirs)]


@pytest.mark.parametrize("name", ["my däta #1", "100%", "a?b", "back\\slash", "{x}[1]|'q'"])
def test_an_archive_of_any_name_reads_through_both_clients(tmp_path, repo_path, name):
    """The official client finds no container by an encoded prefix, so one above it is made."""
    (tmp_path / name).mkdir()
    write_days(tmp_path / "plain")
    # renamed, as the C library takes a backslash for a slash
    folder = (tmp_path / "plain").rename(tmp_path / name / name)
    days = sorted(folder.iterdir())
    report = icevirt.build(tmp_path / name, repo_path, concat_dim="time")
    assert report.containers == (f"file://{tmp_path}/",)
    ours = icevirt.Repository.open(
        repo_path, authorize_virtual_chunk_access=report.containers
    ).readonly_session("main")
    theirs = official(repo_path).readonly_session("main")
    for store in (ours.store, theirs.store):
        assert_same_raw(
            store,
            days,
            lambda name, array: 0 if "time" in array.metadata.dimension_names else None,
        )


def numbered(path, number):
    """Write a file with one step of a dimension that has no coordinate."""
    with netCDF4.Dataset(path, "w") as file:
        file.createDimension("run", 1)
        file.createVariable("number", "i4", ("run",))[:] = number
    return path


def test_files_without_a_coordinate_stand_in_the_order_given(tmp_path, repo_path):
    """A list as it is, a glob naturally by the names of links; the plan says so."""
    (tmp_path / "pool").mkdir()
    (tmp_path / "runs").mkdir()
    for at, number in enumerate((10, 2, 1)):
        os.symlink(
            numbered(tmp_path / "pool" / f"{at}.nc", number), tmp_path / "runs" / f"f{number}.nc"
        )
    given = [tmp_path / "runs" / f"f{number}.nc" for number in (2, 10, 1)]
    for sources, expected in ((given, [2, 10, 1]), (tmp_path / "runs" / "*.nc", [1, 2, 10])):
        icevirt.build(sources, repo_path, concat_dim="run", mode="w")
        assert by_both(repo_path, "number") == [expected, expected]
    assert icevirt.plan(given, concat_dim="run").notes == (
        "in the given order: no coordinate 'run'",
    )
