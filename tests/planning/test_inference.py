"""Where no dimension is named, files follow one another along those whose labels differ."""

import netCDF4
import numpy as np
import pytest
import xarray as xr

import icevirt
from builds.support import (
    assert_same_dataset,
    expected_dataset,
    official,
    opened,
    write_day,
    write_days,
)
from icevirt.api.sources import inputs
from icevirt.errors import CombineError
from icevirt.objects.source_lists.listing import list_sources

pytestmark = pytest.mark.usefixtures("in_process")


def write(path, y, x, *, grid="deg"):
    """Write one tile of a map."""
    data = np.add.outer(100.0 * np.asarray(y), x)
    xr.Dataset(
        {"height": (("y", "x"), data, {"units": "m"}), "mask": ("z", [1, 2])},
        {"y": np.asarray(y, float), "x": ("x", np.asarray(x, float), {"units": grid})},
    ).to_netcdf(path)
    return str(path)


def test_days_follow_one_another_along_time(tmp_path, repo_path):
    days = write_days(tmp_path / "archive", 4)
    assert icevirt.plan(days).concat_dim == ("time",)
    icevirt.build([days[2], days[0], days[3], days[1]], repo_path)
    assert_same_dataset(opened(repo_path), expected_dataset(days, "time"))
    again = icevirt.build([days[2], days[0], days[3], days[1]], repo_path)
    assert again.already_built


def test_times_that_differ_by_their_date_only_differ(tmp_path):
    """The same numbers count from other dates."""
    units = ("hours since 2001-01-01", "hours since 2002-01-01")
    days = [
        write_day(tmp_path / f"day{number}.nc", 0, units=each) for number, each in enumerate(units)
    ]
    assert icevirt.plan(days).concat_dim == ("time",)


def test_tiles_follow_one_another_along_both_coordinates(tmp_path, repo_path):
    tiles = [
        write(tmp_path / f"t{a}{b}.nc", [2 * a, 2 * a + 1], [3 * b, 3 * b + 1, 3 * b + 2])
        for a in range(2)
        for b in range(3)
    ]
    made = icevirt.plan(tiles)
    assert set(made.concat_dim) == {"y", "x"}
    report = icevirt.build(tiles, repo_path)
    expected = xr.combine_by_coords(
        [xr.open_dataset(tile) for tile in tiles], join="outer", data_vars="minimal",
        coords="minimal", compat="override", combine_attrs="override",
    )  # fmt: skip
    xr.testing.assert_identical(opened(repo_path).load(), expected.load())
    assert official(repo_path).readonly_session("main")
    assert report.files_scanned == 6


def test_a_file_between_that_differs_otherwise_is_refused(tmp_path):
    """What is inferred from two files holds for all, or there is no plan."""
    tiles = [write(tmp_path / f"t{n}.nc", [n], [0, 1]) for n in range(3)]
    assert icevirt.plan(tiles).concat_dim == ("y",)
    write(tmp_path / "t1.nc", [1], [7, 8])
    with pytest.raises(CombineError, match=r"/x.*differ"):
        icevirt.plan(tiles)


def test_nothing_is_inferred_from_files_of_the_same_coordinates(tmp_path):
    same = [write(tmp_path / f"t{n}.nc", [0, 1], [0, 1]) for n in range(2)]
    with pytest.raises(CombineError, match="no dimension to concatenate along"):
        icevirt.plan(same)


@pytest.mark.parametrize("tolerance", [1e-1, {"x": 1e-1}], ids=["of all", "of one"])
def test_coordinates_within_the_tolerance_say_nothing(tolerance, tmp_path):
    tiles = [write(tmp_path / f"t{n}.nc", [n], np.array([0, 1]) + n * 1e-2) for n in range(3)]
    made = icevirt.plan(tiles, combine_options={"tolerance": tolerance})
    assert made.concat_dim == ("y",)


@pytest.mark.ci
def test_rounding_says_nothing_and_the_error_gives_the_tolerance_that_holds(tmp_path):
    tiles = [write(tmp_path / f"t{n}.nc", [n], np.array([0, 1]) + n * 1.5e-9) for n in range(3)]
    with pytest.raises(CombineError, match=r"/x .*differ between files") as caught:
        icevirt.plan(tiles)
    assert caught.value.fixes[0].flags == ("--tolerance", "x=4e-09")
    assert icevirt.plan(tiles, combine_options={"tolerance": {"x": 4e-9}}).concat_dim == ("y",)


DAYS = {
    "cdo -a": ((20000101.5, 20000102.5), "f8", {"units": "day as %Y%m%d.%f"}),
    "numbers of days": ((20000101, 20000102), "i4", {}),
    "seconds since the epoch": ((946684800, 946684860), "i8", {"units": "s"}),
    "Julian days": ((2451545.0, 2451545.0 + 1 / 24), "f8", {"units": "d"}),
    "nanoseconds": ((946684800 * 10**9, 946684800 * 10**9 + 1), "i8", {}),
    "in 32 bits": ((20000102, 20000104), "f4", {}),
}


@pytest.mark.parametrize("tiles", [1, 2], ids=["one file a step", "tiles"])
@pytest.mark.parametrize(("times", "kind", "attrs"), DAYS.values(), ids=DAYS)
def test_large_labels_of_single_steps_are_no_rounding(
    tmp_path, repo_path, times, kind, attrs, tiles
):
    """Numbers that count no units since a date."""
    files = []
    for step, time in enumerate(times):
        for tile in range(tiles):
            files.append(str(tmp_path / f"s{step}t{tile}.nc"))
            field = np.full((1, 3), 10.0 * step + tile, "f4")
            coords = {
                "time": ("time", np.array([time], kind), attrs),
                "x": np.arange(3.0) + 3 * tile,
            }
            xr.Dataset({"v": (("time", "x"), field)}, coords).to_netcdf(files[-1])
    icevirt.build(files, repo_path)
    opens = [xr.open_dataset(file, decode_times=False) for file in files]
    wanted = xr.combine_by_coords(opens)
    assert_same_dataset(opened(repo_path, decode_times=False), wanted)


@pytest.mark.parametrize("kind", ["i4", "f8"])
def test_days_of_other_tiles_are_not_made_one_day(tmp_path, kind):
    """The first proposal keeps both."""
    for number in range(2):
        held = xr.Dataset(
            {"v": (("time", "x"), np.full((1, 3), number, "f4"))},
            {"time": np.array([20000101 + number], kind), "x": np.arange(3.0) + 3 * number},
        )
        held.to_netcdf(tmp_path / f"{number}.nc")
    with pytest.raises(CombineError) as caught:
        icevirt.plan([str(tmp_path / "*.nc")])
    assert caught.value.fixes[0].flags == ("--missing", "reserve")
    assert not any("tolerance" in str(each) for each in caught.value.fixes)


def test_integers_that_differ_are_no_rounding_beside_a_grid(tmp_path):
    files = []
    for number in range(2):
        files.append(str(tmp_path / f"{number}.nc"))
        held = xr.Dataset(
            {
                "v": (("y", "x"), np.full((1, 2), number, "f4")),
                "x_id": ("x", [10**6, 10**6 + number]),
            },
            {"y": [number * 10.0]},
        )
        held.to_netcdf(files[-1])
    with pytest.raises(CombineError, match="/x_id") as caught:
        icevirt.plan(files, concat_dim="y")
    assert not any("tolerance" in str(each) for each in caught.value.fixes)


def test_all_files_are_compared_where_the_first_and_the_last_say_nothing(tmp_path):
    """As where variables lie in files of their own, and both ends are of one step."""
    files = [write(tmp_path / f"t{n}.nc", [n], [0, 1]) for n in (0, 1)]
    with xr.open_dataset(files[0]) as first:
        first.rename(height="depth").to_netcdf(tmp_path / "z.nc")
    how = {"combine_options": {"missing": "reserve"}}
    assert icevirt.plan([*files, str(tmp_path / "z.nc")], **how).concat_dim == ("y",)


def test_the_last_file_may_be_bad(tmp_path, repo_path):
    days = write_days(tmp_path / "archive", 4)
    with open(days[-1], "r+b") as file:
        file.truncate(500)
    icevirt.build(days, repo_path, scan_options={"max_bad_files": 1})
    assert_same_dataset(opened(repo_path), expected_dataset(days[:3], "time"))


@pytest.mark.parametrize(
    ("first", "second"),
    [(("hours", [0, 6, 12]), ("days", [0.75, 1])), (("m", [0, 500]), ("km", [1, 1.5, 2]))],
    ids=["lead times", "lengths"],
)
def test_labels_in_other_units_lie_beside_each_other(first, second, tmp_path):
    files = []
    for number, (units, steps) in enumerate((first, second)):
        files.append(str(tmp_path / f"f{number}.nc"))
        xr.Dataset(
            {"v": ("step", np.arange(len(steps)) + 10.0 * number)},
            {"step": ("step", np.array(steps, float), {"units": units})},
        ).to_netcdf(files[-1])
    how = {"on_mismatch": "eras"} if "m" in first else {}
    assert icevirt.plan(files, combine_options=how).concat_dim == ("step",)


def test_another_grid_is_no_tile(tmp_path):
    """Rows of one lie between those of the other."""
    files = [write(tmp_path / f"t{n}.nc", (np.arange(n) + 0.5) / n, [0, 1]) for n in (5, 6)]
    with pytest.raises(CombineError, match=r"several grids.* along y \(5, 6\)"):
        icevirt.plan(files)


def test_a_dimension_is_proposed_where_none_is_inferred(tmp_path):
    """New names may be those of dimensions, which the person then names, too."""
    tiles = [write(tmp_path / f"t{n}.nc", [n], [0, 1]) for n in range(3)]
    with pytest.raises(CombineError, match="3 files but no dimension") as caught:
        icevirt.plan(tiles, combine_options={"rename": {"x": "lon"}})
    assert [each.flags for each in caught.value.fixes] == [("--concat-dim", "y")]
    options = {"rename": {"x": "lon"}}
    assert icevirt.plan(tiles, concat_dim="y", combine_options=options).concat_dim == ("y",)


@pytest.mark.ci
def test_dimensions_that_change_together_are_refused_as_a_product_with_holes(tmp_path):
    """Nobody can tell whether these are one step of two or two of one; naming one says it."""
    files = [write(tmp_path / f"t{n}.nc", [n], [10 + n]) for n in range(3)]
    with pytest.raises(CombineError, match="missing at 6 of 9 file positions"):
        icevirt.plan(files)
    with pytest.raises(CombineError, match=r"/x.*differ"):
        icevirt.plan(files, concat_dim="y")


def test_a_scan_infers_as_a_build_does(tmp_path, repo_path):
    """What was scanned without a dimension is not scanned again, nor does the build ask for one."""
    days = write_days(tmp_path / "archive", 3)
    catalog = tmp_path / "catalog"
    assert icevirt.scan_files(days, catalog).files_scanned == 3
    assert icevirt.plan(days, catalog=catalog).concat_dim == ("time",)
    assert icevirt.build(days, repo_path, catalog=catalog).files_scanned == 0
    report = icevirt.build(None, tmp_path / "other", catalog=catalog)
    assert report.files_scanned == 0
    assert_same_dataset(opened(tmp_path / "other"), expected_dataset(days, "time"))


def test_groups_may_have_dimensions_of_the_same_name(tmp_path):
    """By the files as by the catalog of a scan that was given one at a time."""
    for number in range(3):
        with netCDF4.Dataset(tmp_path / f"f{number}.nc", "w") as file:
            for group in (file, file.createGroup("g")):
                group.createDimension("time", 2)
                group.createVariable("time", "f8", ("time",))[:] = [2 * number, 2 * number + 1]
                group.createVariable("v", "f4", ("time",))[:] = [number, number]
        icevirt.scan_files(tmp_path / f"f{number}.nc", tmp_path / "catalog")
    assert icevirt.plan(str(tmp_path / "*.nc")).concat_dim == ("time",)
    assert icevirt.plan(None, catalog=tmp_path / "catalog").concat_dim == ("time",)


def test_without_sources_the_files_say_the_dimensions(tmp_path):
    """Whatever their scans were given."""
    tiles = [write(tmp_path / f"t{n}.nc", [n], [10 + n]) for n in range(2)]
    catalog = tmp_path / "catalog"
    for given in (["y", "x"], "y"):
        icevirt.scan_files(tiles, catalog, concat_dim=given)
        plan = icevirt.plan(None, catalog=catalog, combine_options={"missing": "reserve"})
        assert plan.concat_dim == ("y", "x")


def test_files_that_are_scanned_one_by_one_are_built_together(tmp_path, repo_path):
    """The first alone says nothing of its dimension; the build infers it from all of them."""
    days = write_days(tmp_path / "archive", 4)
    for day in days[:2]:
        icevirt.scan_files(day, tmp_path / "catalog")
    assert icevirt.build(None, repo_path, catalog=tmp_path / "catalog").files_scanned == 0
    assert_same_dataset(opened(repo_path), expected_dataset(days[:2], "time"))
    icevirt.scan_files(days[:2], tmp_path / "named", concat_dim="time")
    for day in days[2:]:
        icevirt.scan_files(day, tmp_path / "named")
    report = icevirt.build(None, repo_path, catalog=tmp_path / "named", mode="w")
    assert report.files_scanned == 0
    assert_same_dataset(opened(repo_path), expected_dataset(days, "time"))


def test_sources_are_listed_once(tmp_path, repo_path, monkeypatch):
    days = write_days(tmp_path / "archive", 3)
    listed = []
    monkeypatch.setattr(
        inputs, "list_sources", lambda given: listed.append(given) or list_sources(given)
    )
    icevirt.build(days, repo_path)
    assert len(listed) == 1


def test_dimensions_of_a_list_are_inferred(tmp_path, repo_path):
    days = write_days(tmp_path / "archive", 3)
    (tmp_path / "list.txt").write_text("\n".join(days))
    assert icevirt.plan(f"@{tmp_path}/list.txt").concat_dim == ("time",)
