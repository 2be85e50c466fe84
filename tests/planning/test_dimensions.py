"""Files placed along several dimensions at once, existing and new, held against xarray."""

import itertools

import netCDF4
import numpy as np
import pytest
import xarray as xr

import icevirt
from builds.support import opened_by_both
from fixtures import archives
from grouping import grouped
from icevirt.errors import CombineError, InvalidInputError

CUBE = {"init": r"regex:fc_(\d+)_", "lead": r"regex:_f(\d+)_", "member": r"regex:_m(\d+)\."}


pytestmark = pytest.mark.usefixtures("in_process")


@pytest.fixture(scope="module")
def forecast(tmp_path_factory):
    """Files of a forecast, which tests only read."""
    return archives.forecast_like(tmp_path_factory.mktemp("forecast"))


def shapes(plan):
    """Return the shape and dimensions of each array."""
    return {each.path: (each.schema.dimension_names, each.shape) for each in plan.arrays}


# -- a forecast: start time × lead × member, a file each -------------------------------------------


def labelled(path):
    """Open a file of the forecast and give it the labels of its name."""
    parts = path.rsplit("/", 1)[1].removesuffix(".nc").split("_")
    init, lead, member = int(parts[1]), int(parts[2][1:]), int(parts[3][1:])
    return xr.open_dataset(path).expand_dims(init=[init], lead=[lead], member=[member])


def test_a_forecast_is_a_cube_placed_by_coordinate_and_not_by_arrival(tmp_path, repo_path):
    files = [path for path in archives.forecast_like(tmp_path) if "f012" not in path]
    report = icevirt.build(
        files[::-1], repo_path, concat_dim=list(CUBE), combine_options={"labels": CUBE}
    )
    ours = opened_by_both(repo_path, report)
    nested = [
        [
            [labelled(str(tmp_path / f"fc_{init}_f{lead:03d}_m{member:02d}.nc")) for member in (1, 2, 3)]
            for lead in (0, 6)
        ]
        for init in (20240101, 20240102)
    ]  # fmt: skip
    theirs = xr.combine_nested(
        nested, concat_dim=list(CUBE), join="exact", data_vars="minimal", coords="minimal",
        compat="equals", combine_attrs="override",
    ).load()  # fmt: skip
    xr.testing.assert_equal(ours, theirs)
    by_coords = xr.combine_by_coords(
        list(map(labelled, files)), join="exact", data_vars="minimal", coords="minimal",
        compat="equals", combine_attrs="override",
    ).load()  # fmt: skip
    xr.testing.assert_equal(ours, by_coords)
    assert ours.t2m.dims == ("init", "lead", "member", "lat", "lon")
    assert ours.lat.dims == ("lat",)
    assert report.references.virtual == len(files) == 12


@pytest.mark.ci
def test_a_lead_that_is_missing_is_refused_by_its_labels_or_reads_as_missing(forecast, repo_path):
    with pytest.raises(CombineError, match=r"/t2m is missing at 1 of 18 file positions") as caught:
        icevirt.build(forecast, repo_path, concat_dim=list(CUBE), combine_options={"labels": CUBE})
    assert caught.value.facts["missing"] == ["init=20240102, lead=12, member=2"]
    report = icevirt.build(
        forecast,
        repo_path,
        concat_dim=list(CUBE),
        combine_options={"labels": CUBE, "missing": "reserve"},
    )
    ours = opened_by_both(repo_path, report)
    theirs = xr.merge(list(map(labelled, forecast)), join="outer", compat="no_conflicts").load()
    xr.testing.assert_equal(ours, theirs)
    assert np.isnan(ours.t2m.sel(init=20240102, lead=12, member=2).values).all()
    assert any("init=20240102, lead=12, member=2" in text for text in report.findings)


def write_step(path, *, init, hour, number, x=6, **more):
    """Write a field of one time, with its start time and member as scalar variables."""
    with netCDF4.Dataset(path, "w") as file:
        for name, length in (("time", 1), ("x", x)):
            file.createDimension(name, length)
        time = file.createVariable("time", "f8", ("time",))
        time.units = "hours since 2024-01-01"
        time[:] = [hour]
        start = file.createVariable("reftime", "i4", ())
        start.units, start.standard_name = (
            f"hours since 2024-01-{init:02d}",
            "forecast_reference_time",
        )
        start[...] = 0
        file.createVariable("realization", "i2", ())[...] = number
        file.createVariable("drag", "f4", ())[...] = 0.5 * number
        file.createVariable("mask", "i1", ("x",))[:] = np.arange(x) % 2
        field = file.createVariable("field", "f4", ("time", "x"), zlib=True, fill_value=-9.0)
        field[:] = np.arange(x) + 1000 * init + 10 * hour + 100 * number
        for name, value in more.items():
            file.createVariable(name, "f4", ())[...] = value
    return str(path)


def write_steps(folder, *, inits=(1, 2), hours=(0, 6, 12), numbers=(1, 2)):
    """Write a file for every start, time and member."""
    return [
        write_step(folder / f"{a}_{b}_{c}.nc", init=a, hour=b, number=c)
        for b, a, c in itertools.product(hours, inits, numbers)
    ]


def test_labels_are_given_by_variables_whose_times_count_from_different_dates(tmp_path, repo_path):
    """New dimensions around one that the files have; what tells labels has their dimension."""
    files = write_steps(tmp_path)
    report = icevirt.build(
        files,
        repo_path,
        concat_dim=["init", "realization", "time"],
        combine_options={
            "labels": {"init": "variable:reftime", "realization": "variable:realization"}
        },
    )
    ours = opened_by_both(repo_path, report)
    start = np.array(["2024-01-01", "2024-01-02"], "M8[ns]")
    np.testing.assert_array_equal(ours.init.values, start)
    np.testing.assert_array_equal(ours.reftime.values, start)
    assert ours.realization.values.tolist() == [1, 2]
    assert ours.realization.dtype == "i2"
    dims = {name: each.dims for name, each in ours.variables.items()}
    assert dims == {
        "init": ("init",),
        "realization": ("realization",),
        "time": ("time",),
        "reftime": ("init",),
        "drag": ("init", "realization"),
        "mask": ("init", "realization", "x"),
        "field": ("init", "realization", "time", "x"),
    }
    for path in files:
        theirs = xr.open_dataset(path)
        mine = ours.sel(init=theirs.reftime, realization=theirs.realization, time=theirs.time)
        np.testing.assert_array_equal(mine.field.values, theirs.field.values)
        assert mine.drag == theirs.drag
        np.testing.assert_array_equal(mine.mask.values, theirs.mask.values)
    assert ours.init.attrs["standard_name"] == "forecast_reference_time"


def test_a_variable_with_several_values_tells_no_label(tmp_path):
    files = write_steps(tmp_path, hours=(0,))
    for name, output in (("mask", "more than one value"), ("absent", "has no variable")):
        with pytest.raises(CombineError, match=output):
            icevirt.plan(
                files, concat_dim=["init", "member"],
                combine_options={"labels": {"init": "variable:reftime", "member": f"variable:{name}"}},
            )  # fmt: skip


# -- tiles: several dimensions that the files have -------------------------------------------------


def write_tile(path, rows, columns, *, bump=0):
    """Write a tile of a map: two coordinates, a field, a variable along each of them."""
    with netCDF4.Dataset(path, "w") as file:
        file.createDimension("y", len(rows))
        file.createDimension("x", len(columns))
        file.createVariable("y", "f8", ("y",))[:] = rows
        file.createVariable("x", "f8", ("x",))[:] = columns
        field = file.createVariable("field", "i4", ("y", "x"), zlib=True, chunksizes=(2, 3),
                                    fill_value=-1)  # fmt: skip
        field[:] = 100 * np.array(rows)[:, None] + np.array(columns)
        height = file.createVariable("height", "f4", ("y",), zlib=True, chunksizes=(2,))
        height[:] = np.array(rows) * 2 + bump
        file.createVariable("projection", "i4", ())[...] = 7
    return str(path)


def write_tiles(folder, skip=()):
    """Write 2 × 3 tiles, the last ones short, in no order."""
    cuts = {"y": ([0, 1, 2, 3], [4, 5, 6]), "x": (range(6), range(6, 9), range(9, 13))}
    tiles = [
        write_tile(folder / f"tile{a}{b}.nc", cuts["y"][a], cuts["x"][b])
        for a, b in itertools.product((0, 1), (0, 1, 2))
        if (a, b) not in skip
    ]
    return tiles[::2] + tiles[1::2][::-1]


def test_tiles_of_a_map_are_placed_by_both_coordinates(tmp_path, repo_path):
    files = write_tiles(tmp_path)
    report = icevirt.build(files, repo_path, concat_dim=["y", "x"])
    ours = opened_by_both(repo_path, report)
    theirs = xr.combine_by_coords(
        [xr.open_dataset(path) for path in files], join="outer", data_vars="minimal",
        coords="minimal", compat="override", combine_attrs="override",
    ).load()  # fmt: skip
    np.testing.assert_array_equal(ours.field.values, theirs.field.values)
    assert ours.field.shape == (7, 13)
    assert ours.height.dims == ("y",)
    np.testing.assert_array_equal(ours.height.values, np.arange(7) * 2)
    assert ours.projection.dims == ()


def test_a_tile_that_is_missing_is_a_hole(tmp_path, repo_path):
    files = write_tiles(tmp_path, skip={(0, 1)})
    with pytest.raises(CombineError, match="/field is missing at 1 of 6 file positions") as caught:
        icevirt.build(files, repo_path, concat_dim=["y", "x"])
    assert caught.value.facts["missing"] == ["y=0.0, x=6.0"]
    report = icevirt.build(
        files, repo_path, concat_dim=["y", "x"], combine_options={"missing": "reserve"}
    )
    ours = opened_by_both(repo_path, report)
    assert np.isnan(ours.field.values[:4, 6:9]).all()
    assert not np.isnan(np.delete(ours.field.values, np.s_[6:9], axis=1)).any()


def test_what_tiles_repeat_must_be_alike(tmp_path, repo_path):
    """A variable along one dimension only is in every tile of a row."""
    files = write_tiles(tmp_path)
    write_tile(tmp_path / "tile01.nc", [0, 1, 2, 3], range(6, 9), bump=1)
    with pytest.raises(CombineError, match="/height"):
        icevirt.build(files, repo_path, concat_dim=["y", "x"])


def test_a_dimension_without_coordinate_needs_labels_or_nesting(tmp_path):
    files = write_tiles(tmp_path)
    for path in files:
        with netCDF4.Dataset(path, "r+") as file:
            file.renameVariable("x", "other")
    with pytest.raises(CombineError, match="positions of files along 'x' are unknown"):
        icevirt.plan(files, concat_dim=["y", "x"])


# -- what is asked for -----------------------------------------------------------------------------

WRONG = {
    "a dimension twice": ({"concat_dim": ["a", "a"]}, "several different names"),
    "no names": ({"concat_dim": [1]}, "must be a name"),
    "labels of no dimension": ({"concat_dim": ["a", "b"], "labels": {"c": "regex:(.)"}}, "'c'"),
    "labels for one of several": (
        {"concat_dim": ["a", "b"], "labels": "regex:(.)"},
        "names several",
    ),
}


@pytest.mark.parametrize(("how", "output"), WRONG.values(), ids=WRONG.keys())
def test_what_is_asked_wrongly_is_refused_before_anything_is_scanned(tmp_path, how, output):
    with pytest.raises(InvalidInputError, match=output):
        icevirt.build(tmp_path, tmp_path / "repo", **grouped(how))
    assert not list(tmp_path.iterdir())


# -- nested lists ----------------------------------------------------------------------------------


def test_nested_lists_say_where_files_lie(tmp_path, repo_path):
    """As xarray's combine="nested": no coordinate is looked at, new dimensions need no labels."""
    names = [[f"fc_2024010{a}_f000_m0{b}.nc" for b in (3, 1)] for a in (2, 1)]
    archives.forecast_like(tmp_path)
    files = [[str(tmp_path / name) for name in row] for row in names]
    report = icevirt.build(
        files, repo_path, concat_dim=["init", "member"], combine_options={"combine": "nested"}
    )
    ours = opened_by_both(repo_path, report)
    theirs = xr.combine_nested(
        [[xr.open_dataset(path) for path in row] for row in files],
        concat_dim=["init", "member"], join="exact", data_vars="all", coords="minimal",
        compat="equals", combine_attrs="override",
    ).transpose("init", "member", ...).load()  # fmt: skip
    xr.testing.assert_equal(ours, theirs)
    assert "init" not in ours.coords


def test_a_file_that_is_missing_in_nested_lists_is_a_hole(forecast, repo_path):
    nest = [[forecast[0], None], [forecast[3], forecast[4]]]
    how = {"concat_dim": ["init", "member"], "combine": "nested"}
    with pytest.raises(CombineError, match="missing at 1 of 4 file positions"):
        icevirt.build(nest, repo_path, **grouped(how))
    report = icevirt.build(
        nest, repo_path, **grouped(how, missing="reserve", labels={"member": ["a", "b"]})
    )
    ours = opened_by_both(repo_path, report)
    assert ours.member.values.tolist() == ["a", "b"]
    assert np.isnan(ours.t2m.values[0, 1]).all()


def test_nested_tiles_need_no_coordinate(tmp_path, repo_path):
    files = sorted(write_tiles(tmp_path))
    for path in files:
        with netCDF4.Dataset(path, "r+") as file:
            file.renameVariable("x", "other")
    report = icevirt.build(
        [files[:3], files[3:]],
        repo_path,
        concat_dim=["y", "x"],
        combine_options={"combine": "nested"},
    )
    ours = opened_by_both(repo_path, report)
    np.testing.assert_array_equal(ours.field.values, 100 * np.arange(7)[:, None] + np.arange(13))
    np.testing.assert_array_equal(ours.other.values, np.arange(13))


def test_the_order_given_holds_where_it_is_asked_for(tmp_path, repo_path):
    files = write_steps(tmp_path, inits=(1,), numbers=(1,))
    report = icevirt.build(
        files[::-1], repo_path, concat_dim="time", combine_options={"combine": "nested"}
    )
    ours = opened_by_both(repo_path, report)
    assert ours.time.values.tolist() == sorted(ours.time.values.tolist(), reverse=True)


WRONGLY_NESTED = {
    "flat": (lambda files: files[:2], {}, "one level of lists"),
    "too deep": (lambda files: [[[files[0]]]], {}, "one level of lists"),
    "one file twice": (lambda files: [[files[0], files[0]]], {}, "2 nested sources are 1 files"),
    "labels given by files": (
        lambda files: [files[:2]], {"labels": {"member": CUBE["member"]}}, "a list with one label for each",
    ),
}  # fmt: skip


@pytest.mark.parametrize(
    ("nest", "how", "output"), WRONGLY_NESTED.values(), ids=WRONGLY_NESTED.keys()
)
def test_wrong_nests_are_refused(forecast, repo_path, nest, how, output):
    with pytest.raises(InvalidInputError, match=output):
        icevirt.build(
            nest(forecast),
            repo_path,
            concat_dim=["init", "member"],
            **grouped(how, combine="nested"),
        )


# -- steps that no file holds ----------------------------------------------------------------------


def write_times(path, values, *, units="hours since 2024-01-01", kind="f8", **chunks):
    """Write a field, text-free, at some times, with bounds."""
    with netCDF4.Dataset(path, "w") as file:
        file.createDimension("time", None)
        for name, length in (("x", chunks.get("width", 6)), ("nv", 2)):
            file.createDimension(name, length)
        time = file.createVariable("time", kind, ("time",))
        time.units, time.bounds = units, "time_bnds"
        time[:] = values
        bounds = file.createVariable("time_bnds", "f8", ("time", "nv"))
        bounds[:] = np.array(values)[:, None] + np.array([-3.0, 3.0])
        field = file.createVariable(
            "field", "i2", ("time", "x"), zlib=True, fill_value=-1,
            chunksizes=(chunks.get("edge", 1), chunks.get("width", 6)),
        )  # fmt: skip
        field[:] = 10 * np.array(values)[:, None] + np.arange(chunks.get("width", 6)) % 7
    return str(path)


def test_missing_steps_of_a_regular_axis_have_their_place(tmp_path, repo_path):
    files = [
        write_times(tmp_path / "b.nc", [30.0, 36.0]),
        write_times(tmp_path / "a.nc", [0.0, 6.0]),
        write_times(tmp_path / "c.nc", [2.0], units="days since 2024-01-01"),
    ]
    report = icevirt.build(files, repo_path, concat_dim="time", combine_options={"spacing": "6h"})
    ours = opened_by_both(repo_path, report)
    theirs = xr.combine_nested(
        [xr.open_dataset(files[at]) for at in (1, 0, 2)], concat_dim="time", join="exact",
        data_vars="minimal", coords="minimal", compat="equals", combine_attrs="override",
    ).load()  # fmt: skip
    every = np.arange(9) * np.timedelta64(6, "h") + np.datetime64("2024-01-01", "ns")
    np.testing.assert_array_equal(ours.time.values, every)
    theirs = theirs.reindex(time=every)
    np.testing.assert_array_equal(ours.field.values, theirs.field.values)
    np.testing.assert_array_equal(ours.time_bnds.values[:2], theirs.time_bnds.values[:2])
    assert np.isnat(ours.time_bnds.values[2:5]).all() or np.isnan(ours.time_bnds.values[2:5]).all()
    assert np.isnan(ours.field.values[[2, 3, 4, 7]]).all()
    output = next(text for text in report.findings if "have no file" in text)
    assert output == (
        "4 of 9 steps along 'time' have no file and read as missing: 2024-01-01T12:00:00, "
        "2024-01-01T18:00:00, 2024-01-02, 2024-01-02T18:00:00"
    )


def test_a_chunk_that_reaches_into_a_gap_is_stored(tmp_path, repo_path):
    """What lies behind the values in the file's chunk is not shown for the missing steps."""
    files = [
        write_times(tmp_path / f"{n}.nc", times, edge=2, width=600_000)
        for n, times in enumerate(([0.0, 6.0, 12.0], [36.0, 42.0], [48.0]))
    ]
    report = icevirt.build(files, repo_path, concat_dim="time", combine_options={"spacing": "6h"})
    ours = opened_by_both(repo_path, report)
    assert (report.references.virtual, report.references.bytes_stored > 0) == (3, True)
    values = ours.field.values[:, :7]
    hours = 6.0 * np.arange(9)[:, None]
    wanted = np.where(np.isin(hours, (18, 24, 30)), np.nan, 10 * hours + np.arange(7))
    np.testing.assert_array_equal(values, wanted)


IRREGULAR = {
    "off the grid": ([[0.0], [7.0]], "6h", {}, "not a whole number of steps"),
    "a gap inside a file": ([[0.0, 12.0], [18.0]], "6h", {}, "missing within the file"),
    "a number for times that fits no unit": ([[0.0], [18.0]], 7, {}, "not a whole number"),
    "steps without end": ([[0.0], [9e6]], "1us", {}, "so small"),
}


@pytest.mark.parametrize(("times", "spacing", "how", "output"), IRREGULAR.values(), ids=IRREGULAR)
def test_what_is_not_regular_is_refused(tmp_path, times, spacing, how, output):
    files = [write_times(tmp_path / f"{n}.nc", each, **how) for n, each in enumerate(times)]
    with pytest.raises((CombineError, InvalidInputError), match=output):
        icevirt.plan(files, concat_dim="time", combine_options={"spacing": spacing})


def test_steps_of_flags_without_missing_value_cannot_be_reserved(tmp_path):
    files = []
    for hour in (0, 12):
        files.append(write_times(tmp_path / f"{hour}.nc", [float(hour)]))
        with netCDF4.Dataset(files[-1], "r+") as file:
            file.createVariable("good", "i1", ("time", "x"), zlib=True, chunksizes=(1, 6))[:] = 0
    with pytest.raises(
        CombineError, match="/good cannot be reserved, because it has no _FillValue"
    ):
        icevirt.plan(files, concat_dim="time", combine_options={"spacing": "6h"})
    report = icevirt.plan(
        files,
        concat_dim="time",
        scan_options={"drop_variables": "good"},
        combine_options={"spacing": {"time": 6.0}},
    )
    assert [each.shape for each in report.arrays if each.path == "/field"] == [(3, 6)]


def test_plain_numbers_are_regular_too(tmp_path, repo_path):
    files = [write_tile(tmp_path / f"{a}.nc", [0.0, 0.25], [a, a + 1, a + 2]) for a in (0, 9)]
    report = icevirt.build(files, repo_path, concat_dim="x", combine_options={"spacing": 1})
    ours = opened_by_both(repo_path, report)
    assert ours.x.values.tolist() == list(range(12))
    assert np.isnan(ours.field.values[:, 3:9]).all()
    assert not np.isnan(ours.field.values[:, 9:]).any()
