"""Archives with the differences that published ones have, built and compared with xarray's reading."""

import functools
from pathlib import Path

import numpy as np
import pytest
import xarray as xr
import zarr

import icevirt
from builds.support import official, verified
from builds.xarray_answer import combined
from fixtures import archives
from icevirt.errors import CombineError
from icevirt.planning.partial.storage_cost import deviates

MICROSECONDS = xr.coders.CFDatetimeCoder(time_unit="us")


pytestmark = [pytest.mark.ci, pytest.mark.usefixtures("in_process")]


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    """Write files that no test changes, those of a kind once."""

    @functools.cache
    def write(kind, **how):
        return kind(tmp_path_factory.mktemp(kind.__name__), **how)

    return write


def opened(repo, report, **how):
    """Open with icevirt, every value read and every chunk verified."""
    verified(repo, report.containers)
    return xr.open_dataset(
        repo,
        engine="icevirt",
        decode_times=MICROSECONDS,
        authorize_virtual_chunk_access=report.containers,
        **how,
    ).load()


def by_xarray(files, dim, **how):
    """Combine files as xarray does, static variables once, gaps as missing."""
    return combined(
        files, combine="nested", concat_dim=dim, data_vars="minimal", coords="minimal",
        compat="override", join="outer", decode_times=MICROSECONDS, **how,
    )  # fmt: skip


def same_through_the_official_client(repo, ours, group=""):
    """Compare what zarr reads through the official client with what icevirt showed.

    Without the dtypes of attributes, which only icevirt restores, xarray decodes to wider floats.
    """
    theirs = xr.open_zarr(
        official(repo).readonly_session("main").store,
        group=group,
        consolidated=False,
        decode_times=MICROSECONDS,
    ).load()
    assert set(theirs.variables) == set(ours.variables)
    for name in ours.variables:
        mine, found = ours[name].values, theirs[name].values
        if mine.dtype.kind == "f":
            np.testing.assert_allclose(found, mine, rtol=2e-6, err_msg=str(name))
        else:
            np.testing.assert_array_equal(found, mine, err_msg=str(name))


# -- A: GOES-like ----------------------------------------------------------------------------------


def test_goes_scale_that_changes_is_refused_with_both_files(tmp_path, repo_path):
    files = archives.goes_like(tmp_path, range(40, 50))
    with pytest.raises(CombineError, match="scale_factor") as caught:
        icevirt.build(files, repo_path, concat_dim="t")
    assert "s0044" in caught.value.facts["first"] or "s0040" in caught.value.facts["first"]
    assert "s0045" in caught.value.facts["other"]


def test_goes_shuffle_that_changes_is_refused(tmp_path, repo_path):
    files = archives.goes_like(tmp_path, range(28, 33))
    with pytest.raises(CombineError, match="codecs"):
        icevirt.build(files, repo_path, concat_dim="t")


@pytest.mark.ci
def test_goes_the_later_of_two_publications_counts_and_gaps_read_as_missing(tmp_path, repo_path):
    files = archives.goes_like(tmp_path, range(5, 25))
    report = icevirt.build(
        files,
        repo_path,
        concat_dim="t",
        combine_options={"duplicates": "version", "missing": "reserve"},
    )
    ours = opened(repo_path, report)
    kept = [path for path in files if not path.endswith("_c000101.nc")]
    theirs = by_xarray(kept, "t")
    assert len(kept) == 20
    xr.testing.assert_equal(ours, theirs)
    for name in ours.variables:
        assert ours[name].dtype == theirs[name].dtype, name
    assert ours.C02.sel(t=ours.t[5]).values[0, 0] == pytest.approx(
        (10 + 1000) * 0.01 - 20, abs=1e-4
    )
    assert np.isnan(ours.C13.values[[15, 16]]).all()  # scans 20 and 21
    assert not np.isnan(ours.C13.values[14]).any()
    assert any("/C13 has no file at 2 of 20 file positions" in text for text in report.findings)


@pytest.mark.ci
def test_goes_a_file_that_is_cut_off_is_left_out_by_name(tmp_path, repo_path):
    files = archives.goes_like(tmp_path, range(46, 54))
    report = icevirt.build(files, repo_path, concat_dim="t", scan_options={"max_bad_files": 1})
    (bad,) = report.bad_files
    assert "s0050" in bad.url
    assert opened(repo_path, report).sizes["t"] == 7


# -- B: IMERG-like ---------------------------------------------------------------------------------


def test_imerg_a_variable_that_begins_later_reads_as_missing_before(shared, repo_path):
    files = shared(archives.imerg_like)[24:35]  # from day 25 on
    report = icevirt.build(
        files, repo_path, concat_dim="time", combine_options={"missing": "reserve"}
    )
    ours = opened(repo_path, report, group="Grid")
    theirs = by_xarray(files, "time", group="Grid")
    xr.testing.assert_equal(ours, theirs)
    assert np.isnan(ours.quality.values[:5]).all()
    assert not (ours.precipitation.values == 0).any()
    assert np.isnan(ours.precipitation.values[:, 0, :3]).all()


def test_imerg_no_hole_without_being_asked(shared, repo_path):
    files = shared(archives.imerg_like)[27:31]
    with pytest.raises(
        CombineError, match=r"missing at 2 of 4 file positions.*\"missing\": \"reserve\""
    ):
        icevirt.build(files, repo_path, concat_dim="time")


def test_imerg_other_chunks_are_refused_with_the_file(shared, repo_path):
    files = shared(archives.imerg_like)[17:21]
    with pytest.raises(CombineError, match="chunk shape") as caught:
        icevirt.build(files, repo_path, concat_dim="time")
    assert "0020" in caught.value.facts["other"]


@pytest.mark.ci
def test_imerg_the_whole_archive_stores_five_days_and_shows_no_rain_in_a_hole(shared, repo_path):
    files = shared(archives.imerg_like)
    report = icevirt.build(
        files,
        repo_path,
        concat_dim="time",
        combine_options={"missing": "reserve", "on_mismatch": "native"},
    )
    ours = opened(repo_path, report, group="Grid")
    theirs = by_xarray(files, "time", group="Grid")
    xr.testing.assert_equal(ours, theirs)
    for name in ours.variables:
        assert ours[name].dtype == theirs[name].dtype, name
    assert np.isnan(ours.quality.values[:29]).all()
    assert not (ours.precipitation.values == 0).any()
    kinds = {array.path: array.references for array in report.arrays}
    rain, quality = kinds["/Grid/precipitation"], kinds["/Grid/quality"]
    assert (rain.virtual, rain.native + rain.inline) == (35, 5)
    assert (quality.virtual, quality.native + quality.inline) == (11, 0)
    plan = icevirt.plan(
        files, concat_dim="time", combine_options={"missing": "reserve", "on_mismatch": "native"}
    )
    (array,) = (each for each in plan.arrays if each.hybrid is not None)
    assert deviates(array.hybrid)
    assert any("5 of 40 chunks" in text and "0020.nc4" in text for text in report.findings)
    same_through_the_official_client(repo_path, ours, group="Grid")


def test_a_hole_that_would_read_as_a_plausible_number_is_refused(tmp_path, repo_path):
    """Data-quality flags without a missing value: 0 means "good"."""
    import netCDF4

    files = []
    for day in range(3):
        files.append(str(tmp_path / f"{day}.nc"))
        with netCDF4.Dataset(files[-1], "w") as file:
            file.createDimension("time", None)
            file.createDimension("x", 16)
            file.createVariable("time", "i4", ("time",))[:] = [day]
            for name in ("flags", "other")[: 1 + (day != 1)][::-1]:
                file.createVariable(name, "i1", ("time", "x"), zlib=True, chunksizes=(1, 16))[:] = 1
            if day == 1:
                file.renameVariable("flags", "other")
    with pytest.raises(CombineError, match="cannot be reserved, because it has no _FillValue"):
        icevirt.build(files, repo_path, concat_dim="time", combine_options={"missing": "reserve"})


# -- C: CMIP-like ----------------------------------------------------------------------------------


def test_cmip_models_cannot_be_eras_because_one_has_two_versions(shared):
    """A group for each is offered only where it can be built; otherwise it says why not.

    The fixed field has equal values in all of them, however it is encoded.
    """
    files = sorted(shared(archives.cmip_like), key=lambda path: "orog" not in path)
    with pytest.raises(CombineError, match="/time is encoded differently") as caught:
        icevirt.plan(files, concat_dim="time")
    fixes = [each.python for each in caught.value.fixes if "eras" in each.python]
    assert fixes
    assert all("duplicates" in each or "nested" in each for each in fixes)
    choices = {choice.option: choice for choice in caught.value.facts["eras"].choices}
    assert choices['on_mismatch="eras"'].groups == 0
    assert "is not possible: era_0: 2 files hold the same" in choices['on_mismatch="eras"'].does


@pytest.mark.parametrize("model", list(archives.CMIP_CALENDARS))
def test_cmip_variables_periods_and_a_fixed_field_are_one_group(shared, repo_path, model):
    files = [path for path in shared(archives.cmip_like) if f"/{model}/" in path]
    report = icevirt.build(
        files, repo_path, concat_dim="time", group=model, combine_options={"duplicates": "version"}
    )
    ours = opened(repo_path, report, group=model)
    old = "v20200101/tas_ModelC_2001"
    kept = [path for path in files if old not in path]
    assert len(kept) == 7
    parts = [
        by_xarray([path for path in kept if Path(path).name.startswith(name)], "time")
        for name in ("tas", "pr")
    ]
    fixed = xr.open_dataset(next(path for path in kept if "orog" in path)).load()
    for part in (*parts, fixed):
        for name in part.variables:
            xr.testing.assert_equal(ours[name].variable, part[name].variable)
    assert ours.orog.dims == ("lat", "lon")
    assert ours.sizes["time"] == 16
    group = zarr.open_group(
        icevirt.Repository.open(repo_path).readonly_session("main").store, path=model, mode="r"
    )
    assert group["time"].attrs["units"] == "days since 2000-01-01"


@pytest.mark.ci
def test_cmip_models_are_groups_of_one_repository_with_their_calendars(shared, repo_path):
    """A build for each; through the official client too, times as cftime shows them."""
    files = shared(archives.cmip_like)
    for model in archives.CMIP_CALENDARS:
        mine = [path for path in files if f"/{model}/" in path]
        icevirt.build(
            mine,
            repo_path,
            concat_dim="time",
            group=model,
            combine_options={"duplicates": "version"},
        )
    coder = xr.coders.CFDatetimeCoder(use_cftime=True)
    for model, calendar in archives.CMIP_CALENDARS.items():
        theirs = xr.open_mfdataset(
            [path for path in files if f"/tas_{model}_" in path and "v20200101/tas_ModelC_2001" not in path],
            combine="nested", concat_dim="time", data_vars="minimal", coords="minimal",
            compat="override", join="exact", decode_times=coder,
        )  # fmt: skip
        prefixes = list(icevirt.Repository.open(repo_path).config.virtual_chunk_containers)
        found = (
            xr.open_dataset(
                repo_path, engine="icevirt", group=model, decode_times=coder,
                authorize_virtual_chunk_access=prefixes,
            ),
            xr.open_zarr(
                official(repo_path).readonly_session("main").store, group=model,
                consolidated=False, decode_times=coder,
            ),
        )  # fmt: skip
        for ours in found:
            assert ours.time.dt.calendar == calendar
            assert ours.time.values.tolist() == theirs.time.values.tolist()
            np.testing.assert_array_equal(ours.tas.values, theirs.tas.values)
            assert ours.orog.dims == ("lat", "lon")


def test_cmip_other_times_of_the_same_steps_are_refused(tmp_path, repo_path):
    """Two files of one cell whose bounds differ: which ones are right nobody can tell."""
    import netCDF4

    files = [path for path in archives.cmip_like(tmp_path) if "/ModelA/" in path]
    with netCDF4.Dataset(next(path for path in files if "pr_" in path), "r+") as file:
        file["time_bnds"][0, 0] += 1
    with pytest.raises(CombineError, match="different values of /time_bnds for the same steps"):
        icevirt.build(files, repo_path, concat_dim="time")


# -- D: ERA5-like ----------------------------------------------------------------------------------


def test_era5_drift_of_the_packing_is_refused_by_name(shared, repo_path):
    files = shared(archives.era5_like, drift=True)
    with pytest.raises(CombineError, match="scale_factor"):
        icevirt.build(files, repo_path, concat_dim="time")


def test_era5_leap_years_of_small_variables_are_joined(shared, repo_path):
    files = shared(archives.era5_like, drift=False)
    report = icevirt.build(files, repo_path, concat_dim="time")
    ours = opened(repo_path, report)
    xr.testing.assert_equal(ours, by_xarray(files, "time"))
    assert ours.sizes["time"] == 365 + 366 + 365


def test_era5_the_refusal_of_the_drift_offers_groups_and_floats(shared, repo_path):
    """With what the floats would take, and nothing is written."""
    files = shared(archives.era5_like, drift=True, grid=(40, 50))
    with pytest.raises(CombineError, match=r"scale_factor.*group.*float_variables") as caught:
        icevirt.build(files, repo_path, concat_dim="time")
    groups, floats = caught.value.fixes  # the other packing would lose values
    assert groups.flags == ("--on-mismatch", "eras")
    assert floats.cost.startswith("stores 16.7 MiB")  # of float64
    plan = icevirt.plan(files, concat_dim="time", combine_options={"on_mismatch": "native"})
    (output,) = (note for note in plan.notes if note.startswith("/t2m"))
    assert (
        "must survive exactly, or the build stops; packing again could change them by up to 0.01"
        in output
    )
    with pytest.raises(CombineError, match=r"maximum error would be [0-9.e-]+ "):
        icevirt.build(
            files, repo_path, concat_dim="time", combine_options={"on_mismatch": "native"}
        )


@pytest.mark.parametrize("grid", [(4, 5), (40, 50)], ids=["small", "large"])
def test_era5_drift_as_floats_within_the_budget(shared, repo_path, grid):
    files = shared(archives.era5_like, drift=True, grid=grid)
    report = icevirt.build(
        files, repo_path, concat_dim="time", combine_options={"float_variables": ["t2m"]}
    )
    ours = opened(repo_path, report)
    theirs = by_xarray(files, "time")
    xr.testing.assert_equal(ours, theirs)
    assert ours.t2m.dtype == theirs.t2m.dtype
    same_through_the_official_client(repo_path, ours)


def test_era5_floats_beyond_the_budget_are_refused_with_their_size(shared, repo_path):
    files = shared(archives.era5_like, drift=True, grid=(40, 50))
    with pytest.raises(CombineError, match=r"16\.7 MiB of values.*max_native_bytes=3000000"):
        icevirt.build(
            files,
            repo_path,
            concat_dim="time",
            scan_options={"max_native_bytes_per_file": 3_000_000},
            combine_options={"float_variables": "t2m", "max_native_bytes": 3_000_000},
        )


def test_era5_leap_years_in_chunks_that_divide_no_year(shared, repo_path):
    """The first year is referenced; chunks in which years meet, and those behind, are stored."""
    files = shared(archives.era5_like, drift=False, grid=(40, 50))
    report = icevirt.build(files, repo_path, concat_dim="time")
    ours = opened(repo_path, report)
    xr.testing.assert_equal(ours, by_xarray(files, "time"))
    kinds = next(array.references for array in report.arrays if array.path == "/t2m")
    assert (kinds.virtual, kinds.native) == (12, 25)
    same_through_the_official_client(repo_path, ours)


def test_era5_chunks_that_follow_the_years_store_the_last_of_each_only(shared, repo_path):
    files = shared(archives.era5_like, drift=False, grid=(40, 50))
    with zarr.config.set({"array.rectilinear_chunks": True}):
        report = icevirt.build(
            files, repo_path, concat_dim="time", combine_options={"chunk_grid": "rectilinear"}
        )
        ours = opened(repo_path, report)
        xr.testing.assert_equal(ours, by_xarray(files, "time"))
        kinds = next(array.references for array in report.arrays if array.path == "/t2m")
        assert (kinds.virtual, kinds.native) == (36, 3)
        same_through_the_official_client(repo_path, ours)


# -- E: Argo-like ----------------------------------------------------------------------------------


def test_argo_profiles_of_other_lengths_are_refused_with_the_axis(tmp_path, repo_path):
    files = archives.argo_like(tmp_path)
    with pytest.raises(CombineError, match="grids") as caught:
        icevirt.build(files, repo_path, concat_dim="N_PROF")
    assert caught.value.facts["first_shape"] != caught.value.facts["other_shape"]
    assert "N_LEVELS" in str(caught.value)
