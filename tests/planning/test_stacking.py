"""Files stacked along a dimension that none of them has, as xarray's nested combination stacks them."""

import json

import netCDF4
import numpy as np
import pytest
import xarray as xr

import icevirt
from builds.support import verified
from fixtures import archives
from grouping import grouped
from icevirt.errors import CombineError, InvalidInputError

pytestmark = pytest.mark.usefixtures("in_process")


def opened(repo, report, **how):
    """Open with icevirt, every chunk verified."""
    checked = verified(repo, report.containers)
    assert checked.chunks == report.references.virtual
    return xr.open_dataset(
        repo, engine="icevirt", authorize_virtual_chunk_access=report.containers, **how
    ).load()


def write_run(path, number, *, n=20, kind="f4", layout=None, **attributes):
    """Write a run: time, a large field, a small series, text, a static mask."""
    with netCDF4.Dataset(path, "w", format=layout or "NETCDF4") as file:
        file.setncatts({"run": f"r{number}", **attributes})
        for name, length in (("time", 6), ("y", n), ("x", n)):
            file.createDimension(name, length)
        time = file.createVariable("time", "f8", ("time",))
        time.units = "days since 2000-01-01"
        time[:] = np.arange(6)
        more = {} if layout else {"zlib": True, "chunksizes": (2, n, n)}
        field = file.createVariable("field", kind, ("time", "y", "x"), **more)
        field[:] = np.arange(6 * n * n).reshape(6, n, n) + 10_000 * number
        file.createVariable("series", "f8", ("time",))[:] = np.arange(6) + number
        file.createVariable("number", "i4", ())[:] = number
        file.createVariable("mask", "i1", ("y", "x"))[:] = np.eye(n)
        if layout is None:
            file.createVariable("name", str, ())[...] = f"run {number}"
    return str(path)


@pytest.mark.parametrize("layout", [None, "NETCDF3_CLASSIC"])
def test_all_data_variables_are_stacked_whether_they_differ_or_not(tmp_path, repo_path, layout):
    files = [write_run(tmp_path / f"{n}.nc", n, n=200, layout=layout) for n in (3, 1, 2)]
    report = icevirt.build(
        files, repo_path, concat_dim="run", combine_options={"labels": ["c", "a", "b"]}
    )
    ours = opened(repo_path, report)
    theirs = xr.concat(
        [xr.open_dataset(path) for path in files], dim="run", data_vars="all",
        coords="minimal", compat="equals", combine_attrs="override",
    )  # fmt: skip
    assert ours.run.values.tolist() == ["c", "a", "b"]
    assert ours.mask.dims == ("run", "y", "x")
    for name in theirs.variables:
        np.testing.assert_array_equal(ours[name].values, theirs[name].values, err_msg=name)
        assert ours[name].dims == theirs[name].dims, name
    assert report.references.virtual >= (3 if layout else 3 * 3)
    assert any("new dimension 'run'" in text for text in report.findings)


def test_labels_are_given_by_names_and_attributes(tmp_path, repo_path):
    files = [write_run(tmp_path / f"run_{n:02d}.nc", n, member=np.int32(n)) for n in (10, 9)]
    for labels in (r"regex:run_(\d+)\.nc$", "attribute:member"):
        plan = icevirt.plan(files, concat_dim="member", combine_options={"labels": labels})
        (coordinate,) = [array for array in plan.arrays if array.path == "/member"]
        assert coordinate.values.tolist() == [9, 10]
        assert [url[-5:] for url in plan.files.url] == ["09.nc", "10.nc"]


def test_files_of_one_label_are_merged(tmp_path, repo_path):
    """Variables in files of their own, for each of two members."""
    files = []
    for member in (1, 2):
        for name in ("tas", "pr"):
            files.append(str(tmp_path / f"{name}_m{member}.nc"))
            with netCDF4.Dataset(files[-1], "w") as file:
                file.createDimension("x", 30_000)
                file.createVariable(name, "f4", ("x",), zlib=True)[:] = np.arange(30_000) * member
    report = icevirt.build(
        files, repo_path, concat_dim="member", combine_options={"labels": r"regex:_m(\d)\.nc"}
    )
    ours = opened(repo_path, report)
    assert dict(ours.sizes) == {"member": 2, "x": 30_000}
    for name in ("tas", "pr"):
        np.testing.assert_array_equal(
            ours[name].values, np.arange(30_000)[None] * np.array([[1], [2]])
        )


def test_a_member_that_is_missing_reads_as_missing_where_asked(tmp_path, repo_path):
    files = [
        path for path in archives.forecast_like(tmp_path) if "20240102" in path and "f012" in path
    ] + [path for path in archives.forecast_like(tmp_path) if "20240102" in path and "f006" in path]
    plan = icevirt.plan(
        files[:2], concat_dim="member", combine_options={"labels": r"regex:_m(\d+)\.nc"}
    )
    assert [array.shape for array in plan.arrays if array.path == "/t2m"] == [(2, 4, 5)]
    labels = next(array for array in plan.arrays if array.path == "/member").values
    assert labels.tolist() == [1, 3]


@pytest.mark.ci
def test_real_scenarios_are_stacked(sample_data, repo_path):
    """A1B and E1 of one model over the same years."""
    files = [str(sample_data / f"{name}_north_america.nc") for name in ("A1B", "E1")]
    report = icevirt.build(
        files, repo_path, concat_dim="scenario", combine_options={"labels": ["A1B", "E1"]}
    )
    ours = opened(repo_path, report)
    theirs = [xr.open_dataset(path) for path in files]
    assert ours.scenario.values.tolist() == ["A1B", "E1"]
    for number, single in enumerate(theirs):
        np.testing.assert_array_equal(
            ours.air_temperature.values[number], single.air_temperature.values
        )
    assert ours.air_temperature.dtype == theirs[0].air_temperature.dtype


REFUSED = {
    "too few labels": ({"labels": ["a"]}, InvalidInputError, "1 labels for 2 files"),
    "labels of two kinds": ({"labels": ["a", None]}, InvalidInputError, "all strings, all integers"),
    "one place twice": ({"labels": ["a", "a"]}, CombineError, "run=a"),
    "no pattern": ({"labels": "regex:("}, InvalidInputError, "regular expression"),
    "no group": ({"labels": "regex:nc"}, InvalidInputError, "one group"),
    "a name that does not match": ({"labels": r"regex:(\d+)\.grib"}, CombineError, "not match"),
    "no such attribute": ({"labels": "attribute:xyz"}, CombineError, "'xyz'"),
    "neither": ({"labels": "xyz"}, InvalidInputError, "attribute:NAME"),
    "a dimension that is there": (
        {"labels": ["a", "b"], "concat_dim": "time"}, CombineError, "new dimension",
    ),
    "no dimension": ({"labels": ["a", "b"], "concat_dim": None}, InvalidInputError, "concat_dim"),
}  # fmt: skip


@pytest.mark.parametrize(("how", "kind", "output"), REFUSED.values(), ids=REFUSED.keys())
def test_what_cannot_be_stacked_is_refused(tmp_path, repo_path, how, kind, output):
    files = [write_run(tmp_path / f"{n}.nc", n) for n in (1, 2)]
    with pytest.raises(kind, match=output):
        icevirt.build(files, repo_path, **grouped({"concat_dim": "run", **how}))
    assert not (tmp_path / "repo").exists()


def test_what_only_some_labels_have_is_not_shown_for_the_others(tmp_path, repo_path):
    """Not even where it is small and without a dimension: it is missing there."""
    files = [write_run(tmp_path / f"{n}.nc", n) for n in (1, 2)]
    with netCDF4.Dataset(files[0], "r+") as file:
        file.createVariable("only", "f8", ("time",))[:] = 5
    with pytest.raises(CombineError, match="/only is missing at 1 of 2 file positions along 'run'"):
        icevirt.build(files, repo_path, concat_dim="run", combine_options={"labels": ["a", "b"]})


def test_unlike_coordinates_are_refused(tmp_path, repo_path):
    files = [write_run(tmp_path / f"{n}.nc", n) for n in (1, 2)]
    with netCDF4.Dataset(files[1], "r+") as file:
        file["time"][0] = -1
    with pytest.raises(CombineError, match=r"/time.*differ"):
        icevirt.build(files, repo_path, concat_dim="run", combine_options={"labels": ["a", "b"]})


def test_without_labels_the_way_to_stack_is_reported(tmp_path, repo_path):
    files = [write_run(tmp_path / f"{n}.nc", n) for n in (1, 2)]
    with pytest.raises(CombineError, match=r"give its labels: combine_options=\{\"labels\""):
        icevirt.build(files, repo_path, concat_dim="run")


def test_labels_are_read_by_other_clients(tmp_path, repo_path):
    import icechunk
    import zarr

    files = [write_run(tmp_path / f"{n}.nc", n) for n in (1, 2)]
    icevirt.build(files, repo_path, concat_dim="run", combine_options={"labels": ["a", "b"]})
    repo = icechunk.Repository.open(icechunk.local_filesystem_storage(repo_path))
    group = zarr.open_group(repo.readonly_session("main").store, mode="r")
    assert group["run"][:].tolist() == ["a", "b"]
    document = json.loads(
        icevirt.Repository.open(repo_path).readonly_session("main").node("/field").user_data
    )
    assert document["dimension_names"] == ["run", "time", "y", "x"]
    assert document["chunk_grid"]["configuration"]["chunk_shape"] == [1, 2, 20, 20]
