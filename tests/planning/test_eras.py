"""Archives whose files decode unlike: the eras are named, built as groups, and read as one.

Held against xarray's own concatenation of the same files, h5py's raw values, and the official
client, which opens each era as a dataset.
"""

import contextlib
import functools
import json
from pathlib import Path

import h5py
import netCDF4
import numpy as np
import pytest
import xarray as xr
import zarr
from typer.testing import CliRunner

import icevirt
from builds.support import official, verified, write_day
from builds.xarray_answer import combined
from fixtures import archives
from grouping import grouped
from icevirt.cli import main
from icevirt.display.report import opening
from icevirt.errors import CombineError, InvalidInputError

MICROSECONDS = xr.coders.CFDatetimeCoder(time_unit="us")


pytestmark = [pytest.mark.ci, pytest.mark.usefixtures("in_process")]


def as_one(repo, report, **how):
    """Open all eras as one dataset, after every chunk was held against its file."""
    verified(repo, report.containers)
    return xr.open_dataset(
        repo,
        engine="icevirt",
        eras="concat",
        decode_times=MICROSECONDS,
        authorize_virtual_chunk_access=report.containers,
        **how,
    )


def by_xarray(files, dim, **how):
    """Combine files as xarray does, static variables once, gaps as missing."""
    return combined(
        files, engine="netcdf4", combine="nested", concat_dim=dim, data_vars="minimal",
        coords="minimal", compat="equals", join="exact", combine_attrs="override",
        decode_times=MICROSECONDS, **how,
    )  # fmt: skip


def assert_same(found, expected):
    """Values, dtypes, attributes, the order of variables."""
    for name in expected.variables:
        assert found[name].dtype == expected[name].dtype, name  # before a value is read
    xr.testing.assert_identical(found.load(), expected)
    for name in expected.variables:
        assert found[name].dtype == expected[name].dtype, name


def assert_raw(repo, eras, dim):
    """The official client reads each era as the files' bytes say, by h5py."""
    store = official(repo).readonly_session("main").store
    for number, files in eras.items():
        group = zarr.open_group(store, path=f"era_{number}", mode="r")
        with contextlib.ExitStack() as stack:
            held = [stack.enter_context(h5py.File(file)) for file in files]
            for name, array in group.arrays():
                assert array.metadata.dimension_names
                if dim in array.metadata.dimension_names:
                    parts = [
                        file[name][...]
                        if name in file
                        else np.full(array.shape[1:], array.fill_value)[None]
                        for file in held
                    ]
                    expected = np.concatenate(parts)
                else:
                    expected = held[0][name][...]
                np.testing.assert_array_equal(np.asarray(array[...]), expected, err_msg=name)
                assert array.dtype == expected.dtype.newbyteorder("="), name


# -- A: GOES-like ----------------------------------------------------------------------------------

GOES = {"concat_dim": "t", "duplicates": "version", "missing": "reserve", "max_bad_files": 1}


@pytest.fixture(scope="module")
def scans(tmp_path_factory):
    """All files, which tests only read."""
    return archives.goes_like(tmp_path_factory.mktemp("goes"))


def goes(scans, some=range(60)):
    """Return files, and by era those that count."""
    number = {f: int(Path(f).name.split("_s")[1][:4]) for f in scans}
    files = [f for f in scans if number[f] in some]
    kept = [f for f in files if "_s0050_" not in f and not f.endswith("_c000101.nc")]
    eras = {
        0: [f for f in kept if number[f] < 31],
        1: [f for f in kept if 31 <= number[f] < 45],
        2: [f for f in kept if number[f] >= 45],
    }
    return files, kept, eras


@pytest.mark.ci
def test_goes_the_refusal_names_each_era_to_the_file(scans):
    files, _, eras = goes(scans)
    with pytest.raises(CombineError, match="is encoded differently") as caught:
        icevirt.plan(files, **grouped(GOES))
    found = caught.value.facts["eras"]
    assert (found.count, found.dimension) == (3, "t")
    for era in found.eras:
        mine = eras[era.number]
        ends = Path(era.first).name, Path(era.last).name
        assert (era.files, ends) == (len(mine), (Path(mine[0]).name, Path(mine[-1]).name))
    assert [[str(change) for change in era.changes] for era in found.eras] == [
        [],
        ["/C02: shuffle added", "/C13: shuffle added"],
        ["/C02: scale_factor 0.01 → 0.02"],
    ]
    assert (found.eras[1].first_label, found.eras[1].since) == ("2000-01-01T17:10:00", 0)
    (absence,) = found.absences
    assert (absence.variable, absence.era, absence.places) == ("/C13", 0, 2)
    assert [Path(url).name[:27] for url in absence.examples] == [
        "OR_ABI-L2-MCMIPF_s0020_c000", "OR_ABI-L2-MCMIPF_s0021_c000",
    ]  # fmt: skip


@pytest.mark.ci
def test_goes_eras_are_groups_that_read_as_xarray_reads_the_files(scans, repo_path):
    files, kept, eras = goes(scans)
    report = icevirt.build(files, repo_path, **grouped(GOES, on_mismatch="eras"))
    assert report.eras == 3
    assert [Path(bad.url).name[17:22] for bad in report.bad_files] == ["s0050"]
    assert any("1 file left out" in text and "c000101" in text for text in report.findings)
    assert any("/C13 has no file at 2 of 31" in text for text in report.findings)
    for array in report.arrays:
        assert not array.references.native
        assert array.references.virtual or array.path.endswith(("/t", "/x", "/y"))
    found = as_one(repo_path, report)
    assert_same(found, by_xarray(kept, "t"))
    assert np.isnan(found.C13.sel(t=["2000-01-01T15:20", "2000-01-01T15:30"]).values).all()
    assert not (found.C13.values == 0).any()
    assert not np.isnan(found.DQF.values).any()
    assert_raw(repo_path, eras, "t")
    versions = list(icevirt.Repository.open(repo_path).ancestry(branch="main"))
    assert len(versions) == 2  # one commit on the initial one


@pytest.mark.ci
def test_goes_steps_that_no_file_holds_never_read_as_good_quality(scans, repo_path):
    """Two scans are missing and one is cut off; the first flag, 0, means "good"."""
    files, kept, _ = goes(scans)
    report = icevirt.build(files, repo_path, **grouped(GOES, on_mismatch="eras", spacing="10min"))
    found = as_one(repo_path, report)
    every = xr.date_range("2000-01-01T12:00", periods=60, freq="10min", unit="us")
    xr.testing.assert_equal(found.load(), by_xarray(kept, "t").reindex(t=every))
    missing = found.DQF.isel(t=[33, 34, 50]).values
    assert np.isnan(missing).all()


@pytest.mark.ci
def test_goes_holes_are_an_era_where_they_are_not_reserved(scans, repo_path):
    files, _, _ = goes(scans, range(18, 34))
    report = icevirt.build(
        files, repo_path, concat_dim="t", combine_options={"on_mismatch": "eras"}
    )
    assert report.eras == 3
    with xr.open_dataset(repo_path, engine="icevirt", group="era_1") as second:
        assert second.attrs["icevirt_era_changes"] == "since era_0: /C13: absent"
        assert second.sizes["t"] == 2
    assert_same(as_one(repo_path, report), by_xarray(files, "t"))  # scans 20 and 21 within era_0


@pytest.mark.ci
def test_goes_each_era_says_what_it_is_and_opens_by_the_official_client(scans, repo_path):
    files, _, eras = goes(scans, range(29, 47))
    report = icevirt.build(files, repo_path, **grouped(GOES, on_mismatch="eras"))
    mark = xr.open_dataset(repo_path, engine="icevirt").attrs["icevirt_eras"]
    assert (mark["groups"], mark["contiguous"]) == (["era_0", "era_1", "era_2"], True)
    store = official(repo_path).readonly_session("main").store
    for number, mine in eras.items():
        group = f"era_{number}"
        theirs = xr.open_zarr(store, group=group, consolidated=False, mask_and_scale=False)
        raw = xr.open_mfdataset(
            mine, combine="nested", concat_dim="t", data_vars="minimal", coords="minimal",
            compat="equals", join="exact", mask_and_scale=False,
        )  # fmt: skip
        xr.testing.assert_equal(theirs.load(), raw.load())
        ours = xr.open_dataset(
            repo_path, engine="icevirt", group=group, decode_times=MICROSECONDS,
            authorize_virtual_chunk_access=report.containers,
        )  # fmt: skip
        assert ours.attrs["icevirt_era"] == number
        assert ours.attrs["icevirt_era_files"] == len(mine)
        kept = {k: v for k, v in ours.attrs.items() if not k.startswith("icevirt_era")}
        ours.attrs = kept
        assert_same(ours, by_xarray(mine, "t"))


# -- D: ERA5-like ----------------------------------------------------------------------------------


@pytest.mark.parametrize("grid", [(4, 5), (40, 50)], ids=["small", "chunks that divide no year"])
def test_era5_every_year_is_a_group_and_all_of_them_one_dataset(tmp_path, repo_path, grid):
    files = archives.era5_like(tmp_path, drift=True, grid=grid)
    with pytest.raises(CombineError, match="scale_factor") as caught:
        icevirt.build(files, repo_path, concat_dim="time")
    eras = caught.value.facts["eras"]
    assert eras.count == 3
    assert eras.eras[1].changes[0].what.startswith("scale_factor 0.019 → 0.02; add_offset")
    assert eras.eras[2].first_label == "2021-01-01"
    assert 'combine_options={"on_mismatch": "eras"}' in str(caught.value)
    _, groups, native, floats = eras.choices
    assert (groups.groups, groups.bytes_stored) == (3, 0)
    assert native.max_error == pytest.approx(0.01, rel=0.1)  # half of a scale
    assert "float_variables=['/t2m']" in floats.option
    assert floats.max_error is None
    small = grid == (4, 5)  # the scan read its values already
    assert floats.bytes_stored == (0 if small else 1096 * grid[0] * grid[1] * 8)
    report = icevirt.build(
        files, repo_path, concat_dim="time", combine_options={"on_mismatch": "eras"}
    )
    found = as_one(repo_path, report)
    assert found.sizes["time"] == 365 + 366 + 365
    assert_same(found, by_xarray(files, "time"))
    assert_raw(repo_path, {n: [file] for n, file in enumerate(files)}, "time")


# -- others ----------------------------------------------------------------------------------------


@pytest.mark.ci
def test_days_of_other_chunks_lie_between_those_of_their_neighbours(tmp_path, repo_path):
    """IMERG-like: nested groups, days 20 to 24 in other chunks, a variable that begins on day 30."""
    files = archives.imerg_like(tmp_path, range(17, 33))
    report = icevirt.build(
        files,
        repo_path,
        concat_dim="time",
        combine_options={"missing": "reserve", "on_mismatch": "eras"},
        group="/imerg",
    )
    assert report.eras == 2
    expected = by_xarray(files[:-3], "time", group="Grid")  # quality is in none of these
    found = as_one(repo_path, report, group="/imerg/Grid").isel(time=slice(0, 13))
    assert_same(found.drop_vars("quality"), expected)
    tree = xr.open_datatree(
        repo_path, engine="icevirt", eras="concat", group="/imerg", decode_times=MICROSECONDS,
        authorize_virtual_chunk_access=report.containers,
    )  # fmt: skip
    assert [node.path for node in tree.subtree] == ["/", "/Grid"]
    rain = tree["Grid/precipitation"].load()
    assert not (rain.values == 0).any()
    assert rain.sizes["time"] == 16
    late = by_xarray(files[-3:], "time", group="Grid")
    xr.testing.assert_equal(tree["Grid/quality"][-3:].load(), late["quality"])
    assert np.isnan(tree["Grid/quality"][:-3].values).all()


def days(folder, scales, **options):
    folder.mkdir(exist_ok=True)
    return [
        write_day(folder / f"day{n:02d}.nc", n, scale=scale, **options)
        for n, scale in enumerate(scales, 1)
    ]


@pytest.mark.ci
def test_single_files_that_deviate_are_named_and_put_back_in_their_place(tmp_path, repo_path):
    files = days(tmp_path / "in", [0.01, 0.01, 0.02, 0.01, 0.01, 0.02, 0.01])
    with pytest.raises(CombineError) as caught:
        icevirt.plan(files, concat_dim="time", scan_options={"drop_variables": "time_bnds"})
    eras = caught.value.facts["eras"]
    assert [(run.first[-8:], run.files, run.inside) for run in eras.apart] == [
        ("day03.nc", 1, 0), ("day06.nc", 1, 0),
    ]  # fmt: skip
    report = icevirt.build(
        files,
        repo_path,
        concat_dim="time",
        scan_options={"drop_variables": "time_bnds"},
        combine_options={"on_mismatch": "eras"},
    )
    found = as_one(repo_path, report)
    assert_same(found, by_xarray(files, "time", drop_variables="time_bnds"))
    assert found.time.to_index().is_monotonic_increasing


def test_times_that_count_from_other_dates_are_one_coordinate(tmp_path, repo_path):
    (tmp_path / "in").mkdir()
    files = [
        write_day(
            tmp_path / "in" / f"{n}.nc", n, scale=0.01 * (1 + n // 3),
            units=f"hours since 2001-01-{1 + n:02d}",
        )
        for n in range(1, 5)
    ]  # fmt: skip
    options = {"concat_dim": "time", "drop_variables": "time_bnds"}
    report = icevirt.build(files, repo_path, **grouped(options, on_mismatch="eras"))
    found = as_one(repo_path, report)
    assert_same(found, by_xarray(files, "time", drop_variables="time_bnds"))
    assert found.time.encoding["units"] == "hours since 2001-01-02"


def test_a_fixed_field_and_variables_in_files_of_their_own_are_in_each_group(tmp_path, repo_path):
    def write(name, year, values, **attributes):
        path = tmp_path / f"{name}_{year}.nc"
        with netCDF4.Dataset(path, "w") as file:
            file.createDimension("x", 3)
            dims = ("x",)
            if year != "fixed":
                file.createDimension("time", None)
                time = file.createVariable("time", "i4", ("time",))
                time.units = "days since 2000-01-01"
                time[:] = [365 * year]
                dims = ("time", "x")
            variable = file.createVariable(name, "i2", dims)
            variable.set_auto_maskandscale(False)
            variable.setncatts(attributes)
            variable[:] = values
        return str(path)

    files = [
        write(name, year, [[year, 2, 3]], scale_factor=1.0 + (year > 1))
        for name in ("tas", "pr")
        for year in range(4)
    ]
    files.append(write("height", "fixed", [7, 8, 9]))
    report = icevirt.build(
        files, repo_path, concat_dim="time", combine_options={"on_mismatch": "eras"}
    )
    assert report.eras == 2
    expected = xr.merge(
        [by_xarray(files[:4], "time"), by_xarray(files[4:8], "time"), xr.open_dataset(files[8])]
    )
    xr.testing.assert_equal(as_one(repo_path, report).load(), expected)


def test_a_cube_of_starts_and_leads_is_put_together_along_the_starts(tmp_path, repo_path):
    """The service that makes forecasts packs them otherwise since the second start."""
    nested = []
    for init in (1, 2, 3):
        nested.append([])
        for lead in (0, 6):
            path = tmp_path / f"fc_i{init}_l{lead:02d}.nc"
            values = np.arange(20.0).reshape(4, 5) + 100 * init + lead
            xr.Dataset({"t2m": (("y", "x"), values, {"units": "K"})}).to_netcdf(
                path,
                encoding={"t2m": {
                    "dtype": "i4", "scale_factor": 0.5 if init == 1 else 0.25, "zlib": True,
                    "chunksizes": (2, 5), "_FillValue": -1,
                }},
            )  # fmt: skip
            nested[-1].append(str(path))
    report = icevirt.build(
        [file for files in nested for file in files], repo_path, combine_options={"on_mismatch": "eras", "labels": {"init": r"regex:_i([0-9])_", "lead": r"regex:_l([0-9]+)\.nc"}}, concat_dim=("init", "lead"),
    )  # fmt: skip
    expected = xr.open_mfdataset(
        nested, combine="nested", concat_dim=["init", "lead"], combine_attrs="override",
        compat="equals", join="exact", data_vars="all", coords="minimal",
    ).assign_coords(init=[1, 2, 3], lead=[0, 6]).transpose("init", "lead", ...)  # fmt: skip
    found = as_one(repo_path, report)
    assert report.eras == 2
    xr.testing.assert_equal(found.load(), expected.load())
    assert found.t2m.dtype == expected.t2m.dtype


def test_files_that_decode_alike_are_no_group(tmp_path, repo_path):
    files = days(tmp_path / "in", [0.01] * 3)
    report = icevirt.build(
        files,
        repo_path,
        concat_dim="time",
        scan_options={"drop_variables": "time_bnds"},
        combine_options={"on_mismatch": "eras"},
    )
    assert (report.eras, {array.path.count("/") for array in report.arrays}) == (1, {1})
    assert_same(as_one(repo_path, report), by_xarray(files, "time", drop_variables="time_bnds"))


def test_the_same_build_again_finds_itself(tmp_path, repo_path):
    files = days(tmp_path / "in", [0.01, 0.02])
    options = {"concat_dim": "time", "on_mismatch": "eras", "drop_variables": "time_bnds"}
    first = icevirt.build(files, repo_path, **grouped(options))
    again = icevirt.build(files, repo_path, **grouped(options))
    assert again.already_built
    assert again.eras == first.eras == 2
    third = days(tmp_path / "in", [0.01, 0.02, 0.02])
    grown = icevirt.build(third, repo_path, mode="w", **grouped(options))
    found = as_one(repo_path, grown)
    assert_same(found, by_xarray(third, "time", drop_variables="time_bnds"))


def test_an_unknown_rule_is_refused_before_any_work(repo_path):
    for call in (icevirt.plan, functools.partial(icevirt.build, repo=repo_path)):
        with pytest.raises(InvalidInputError, match=r"on_mismatch='split'.*refuse, native, eras"):
            call("nothing.nc", combine_options={"on_mismatch": "split"})


# -- the command -----------------------------------------------------------------------------------


def test_plan_prints_the_eras_also_when_it_refuses(tmp_path):
    files = days(tmp_path / "in", [0.01, 0.01, 0.02])
    line = ["plan", *files, "--concat-dim", "time", "--drop-variable", "time_bnds", "-q"]
    output = CliRunner().invoke(main.app, [item for item in line if item != "-q"])
    assert output.exit_code == 1
    assert "2 eras along time" in output.stdout
    assert "from era_0: /packed: scale_factor 0.01 → 0.02" in output.stdout
    assert "icevirt: /packed is encoded differently" in output.stderr
    assert "--on-mismatch eras" in output.stderr
    as_json = CliRunner().invoke(main.app, [*line, "-o", "json"])
    assert as_json.exit_code == 1
    found = json.loads(as_json.stdout)
    assert [(era["name"], era["files"]) for era in found["eras"]] == [("era_0", 2), ("era_1", 1)]
    planned = CliRunner().invoke(main.app, [*line, "--on-mismatch", "eras", "-o", "json"])
    assert planned.exit_code == 0
    assert json.loads(planned.stdout)["eras"]["count"] == 2


def test_eras_that_are_not_one_dataset_open_by_the_call_that_is_printed(tmp_path, in_process):
    for n, units in enumerate(("mm/day", "kg m-2 s-1")):
        xr.Dataset(
            {"pr": (("time", "x"), np.full((1, 3), n, "f4"), {"units": units})},
            {"time": ("time", [float(n)], {"units": "days since 2000-01-01"})},
        ).to_netcdf(tmp_path / f"{n}.nc")
    files = sorted(map(str, tmp_path.glob("*.nc")))
    for _ in range(2):  # the second finds what the first built
        report = icevirt.build(
            files,
            str(tmp_path / "repo"),
            concat_dim="time",
            combine_options={"on_mismatch": "eras"},
        )
        assert not report.opens_as_one
        imported, call = opening(report).split("\n", 1)
        assert imported == "import xarray as xr"
        pasted = eval(call.partition("\n")[2], {"xr": xr})
        for tree in (report.open(), pasted, icevirt.open(report.repo)):
            found = {name: tree[f"/{name}"].pr.units for name in tree.children}
            assert found == {"era_0": "mm/day", "era_1": "kg m-2 s-1"}
