"""Grids whose chunks follow the files: all is referenced, or only what a file ends within is stored."""

import h5py
import numpy as np
import pytest
import xarray as xr
import zarr

import icevirt
from builds.support import official
from icevirt.errors import CombineError
from planning.chunked_files import counts, held, names, raw, write

pytestmark = pytest.mark.usefixtures("in_process")


@pytest.fixture
def rectilinear():
    """Let zarr read grids of chunks whose lengths differ."""
    with zarr.config.set({"array.rectilinear_chunks": True}):
        yield


def test_years_of_one_chunk_are_all_referenced(tmp_path, repo_path, rectilinear):
    """365 and 366 days, a chunk each: the grid says so, and nothing is stored."""
    files, begin = names(tmp_path, 3), 0
    for path, days in zip(files, (365, 366, 365), strict=True):
        write(path, begin, days, chunk=days, grid=(40, 30))
        begin += days
    with pytest.raises(CombineError, match="chunk shape"):
        icevirt.build(files, repo_path, concat_dim="time")
    report = icevirt.build(
        files, repo_path, concat_dim="time", combine_options={"chunk_grid": "rectilinear"}
    )
    np.testing.assert_array_equal(held(repo_path), raw(files))
    assert (counts(report).virtual, counts(report).native) == (3, 0)
    store = icevirt.Repository.open(repo_path).readonly_session("main").store
    array = zarr.open_array(store, path="data", mode="r")
    assert array.metadata.chunk_grid.to_dict()["name"] == "rectilinear"
    ours = xr.open_dataset(
        repo_path, engine="icevirt", chunks={}, authorize_virtual_chunk_access=report.containers
    )
    assert ours["data"].chunks[0] == (365, 366, 365)
    checked = icevirt.verify(repo_path, full=True, authorize_virtual_chunk_access=report.containers)
    assert checked.ok
    assert checked.checked.chunks == 3


def test_files_that_end_within_a_chunk_store_only_that(tmp_path, repo_path, rectilinear):
    """HDF5 keeps the last chunk of a file at full length; all others are references."""
    files = names(tmp_path, 3)
    for path, begin, steps in zip(files, (0, 7, 15), (7, 8, 7), strict=True):
        write(path, begin, steps)
    report = icevirt.build(
        files, repo_path, concat_dim="time", combine_options={"chunk_grid": "rectilinear"}
    )
    np.testing.assert_array_equal(held(repo_path), raw(files))
    assert (counts(report).virtual, counts(report).native) == (10, 2)


def test_a_grid_that_fits_stays_regular(tmp_path, repo_path):
    """Whatever was asked for: readers need nothing then."""
    files = names(tmp_path, 2)
    for number, path in enumerate(files):
        write(path, 4 * number, 4)
    icevirt.build(
        files, repo_path, concat_dim="time", combine_options={"chunk_grid": "rectilinear"}
    )
    np.testing.assert_array_equal(held(repo_path), raw(files))


def test_a_reader_that_does_not_know_such_grids_is_reported(tmp_path, repo_path):
    """Zarr refuses to open the array unless its setting is on; the build says so beforehand."""
    files = names(tmp_path, 2)
    write(files[0], 0, 5)
    write(files[1], 5, 6)
    report = icevirt.build(
        files, repo_path, concat_dim="time", combine_options={"chunk_grid": "rectilinear"}
    )
    assert any("array.rectilinear_chunks" in text for text in report.findings)
    store = official(repo_path).readonly_session("main").store
    with pytest.raises(Exception, match="rectilinear"):
        zarr.open_array(store, path="data", mode="r")


@pytest.mark.ci
def test_a_grid_of_chunks_that_follow_files_is_offered_with_what_else_is_needed(tmp_path):
    """A reference time of each forecast differs, and forecasts end within chunks."""
    files = names(tmp_path, 3)
    for path, begin, steps in zip(files, (0, 7, 15), (7, 8, 7), strict=True):
        write(path, begin, steps, grid=(100, 100))
        with h5py.File(path, "a") as file:
            file["reference_time"] = float(begin)
    call = {"concat_dim": "time", "combine_options": {"max_native_bytes": 1000}}
    with pytest.raises(CombineError, match="/reference_time does not have") as caught:
        icevirt.plan(files, **call)
    kept = [each.arguments["combine_options"] for each in caught.value.fixes if not each.loss]
    assert [each.get("chunk_grid") for each in kept] == ["rectilinear", None]
    assert all(each["data_vars"] == ["reference_time"] for each in kept)
