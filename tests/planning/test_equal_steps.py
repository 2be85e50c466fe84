"""Files are placed by their labels as xarray places them, and equal labels are never both kept."""

import h5py
import netCDF4
import numpy as np
import pytest
import xarray as xr

import icevirt
from archives.random_proposals import change_call
from builds.support import opened
from builds.xarray_answer import combined
from grouping import grouped
from icevirt.errors import CombineError, InvalidInputError
from long_forms import crossed

CALM = {"data_vars": "minimal", "coords": "minimal", "join": "exact", "compat": "override"}


pytestmark = [pytest.mark.ci, pytest.mark.usefixtures("in_process")]


def write(
    path, steps, value, *, variable="v", dims=("time",), units="days since 2000-01-01", **how
):
    """Write a file of some steps along each dimension; all of its data are one value."""
    steps = steps if isinstance(steps, tuple) else (steps,)
    with netCDF4.Dataset(path, "w") as file:
        file.createDimension("x", 6)
        for name, labels in zip(dims, steps, strict=True):
            file.createDimension(name, None)
            made = file.createVariable(
                name, how.get("dtype", "f8"), (name,), fill_value=how.get("fill")
            )
            made.set_auto_mask(False)
            if name == "time":
                made.units, made.calendar = units, "standard"
            made[:] = labels
        shape = (*map(len, steps), 6)
        edges = (*[1] * len(dims), 6)
        data = file.createVariable(variable, "f4", (*dims, "x"), zlib=True, chunksizes=edges)
        data[:] = np.full(shape, value)
        file.createVariable("small", "f4", dims[:1])[:] = np.full(shape[0], value)
    return str(path)


def write_texts(path, labels, value, kind):
    """Write a file whose coordinate is text, or what HDF5 has in its place."""
    if not kind.startswith(("fixed", "enum")):
        form = "NETCDF3_CLASSIC" if kind.endswith("NetCDF-3") else "NETCDF4"
        with netCDF4.Dataset(path, "w", format=form) as file:
            for name, length in (("site", None), ("x", 6), ("letters", 5)):
                file.createDimension(name, length)
            if kind == "strings":
                file.createVariable("site", str, ("site",))[:] = np.array(labels, object)
            else:
                texts = netCDF4.stringtochar(np.array(labels, "S5"))
                file.createVariable("site", "S1", ("site", "letters"))[:] = texts
            how = {"zlib": True, "chunksizes": (1, 6)} if form == "NETCDF4" else {}
            data = file.createVariable("v", "f4", ("site", "x"), **how)
            data[:] = np.full((len(labels), 6), value)
        return str(path)
    with h5py.File(path, "w") as file:
        if kind == "enum":
            raw = np.array(["abcdef".index(label[0]) for label in labels], "i1")
            members = h5py.enum_dtype({name: at for at, name in enumerate("abcdef")}, "i1")
            site = file.create_dataset("site", data=raw, dtype=members, maxshape=(None,))
        else:
            site = file.create_dataset("site", data=np.array(labels, "S5"), maxshape=(None,))
        site.make_scale("site")
        file.create_dataset("x", data=np.arange(6.0)).make_scale("x")
        data = file.create_dataset(
            "v", data=np.full((len(labels), 6), value, "f4"), chunks=(1, 6), maxshape=(None, 6),
            compression=4,
        )  # fmt: skip
        for axis, name in enumerate(("site", "x")):
            data.dims[axis].attach_scale(file[name])
    return str(path)


def built(files, tmp_path, **how):
    repo = str(tmp_path / "repo")
    icevirt.build(files, repo, **grouped({"concat_dim": "time", **how}))
    return opened(repo).load()


def order_of(plan):
    """Return the numbers that files have as names, in the order of the dataset."""
    return [int(url.rsplit("/", 1)[1].removesuffix(".nc")) for url in plan.files.url]


def in_order(files, dimension="time"):
    return combined(files, combine="nested", concat_dim=dimension, **CALM)


def by_coords(files):
    return combined(files, combine="by_coords", **CALM)


# -- one and the same step -------------------------------------------------------------------------


@pytest.fixture
def same(tmp_path):
    """Three files of one and the same step."""
    return [write(tmp_path / f"run_v{n}.nc", [0.0], n) for n in (9, 10, 2)]


def test_files_of_one_and_the_same_step_are_refused_by_name(same, tmp_path):
    """With the step as a date, and both remedies."""
    with pytest.raises(
        CombineError, match=r"3 files hold .* step along 'time': time=2000-01-01 "
    ) as e:
        icevirt.build(same, tmp_path / "repo", concat_dim="time")
    assert e.value.facts["files"] == [f"file://{path}" for path in same]
    assert 'combine_options={"duplicates": "newest"}' in str(e.value)
    nested = ("--concat-dim", "time", "--combine", "nested")
    assert e.value.fixes[0].flags == nested, "what keeps all files comes first"


@pytest.mark.parametrize(("rule", "kept"), [("version", 1), ("first", 0), ("last", 2)])
def test_a_rule_chooses_among_files_of_one_and_the_same_step(same, tmp_path, rule, kept):
    xr.testing.assert_identical(
        built(same, tmp_path, duplicates=rule), xr.open_dataset(same[kept]).load()
    )


def test_nested_files_follow_one_another_in_the_order_given(same, tmp_path):
    """As in xarray's `combine_nested`, whatever their coordinate says."""
    xr.testing.assert_equal(built(same, tmp_path, combine="nested"), in_order(same))


SAME = {
    "several steps a file": lambda d: [write(d / f"{n}.nc", [3.0, 4.0], n) for n in (1, 2)],
    "among other steps": lambda d: [write(d / f"{n}.nc", [[1.0], [2.0], [2.0]][n], n) for n in range(3)],
    "counted from other dates": lambda d: [
        write(d / "a.nc", [31.0], 1),
        write(d / "b.nc", [0.0], 2, units="days since 2000-02-01"),
    ],
    "in other units": lambda d: [
        write(d / "a.nc", [1.0], 1),
        write(d / "b.nc", [24.0], 2, units="hours since 2000-01-01"),
    ],
    "a rounding error apart": lambda d: [
        write(d / "a.nc", [0.1 + 0.2], 1),
        write(d / "b.nc", [0.3], 2),
    ],
    "zero and minus zero": lambda d: [
        write(d / f"{n}.nc", [value], n, dims=("level",))
        for n, value in enumerate((0.0, -0.0))
    ],
    "along two dimensions": lambda d: [
        write(d / f"{n}.nc", ([time], [level]), 0, dims=("time", "level"))
        for n, (time, level) in enumerate([(0.0, 1.0), (0.0, 2.0), (1.0, 1.0), (0.0, 2.0)])
    ],
    "values that are stored only": lambda d: [
        _without(write(d / f"{n}.nc", [1.0], 5), "v") for n in (1, 2)
    ],
}  # fmt: skip


def _without(path, name):
    with xr.open_dataset(path, decode_cf=False) as file:
        kept = file.drop_vars(name).load()
    kept.to_netcdf(path, engine="netcdf4", unlimited_dims=["time"])
    return path


@pytest.mark.parametrize("make", SAME.values(), ids=SAME)
def test_equal_steps_are_refused_however_they_are_written(make, tmp_path):
    """And a rule leaves one file of each step."""
    files = make(tmp_path)
    with xr.open_dataset(files[0]) as first:
        dimensions = [name for name in ("time", "level") if name in first.dims]
    with pytest.raises(CombineError, match="2 files hold the same variables at the same step"):
        icevirt.plan(files, concat_dim=dimensions)
    how = {"concat_dim": dimensions, "duplicates": "last"}
    left = icevirt.plan(files, **grouped(how, missing="reserve")).left_out
    assert [each.kept for each in left] == [f"file://{files[-1]}"]


def test_the_step_that_is_twice_is_reported_along_every_dimension(tmp_path):
    files = SAME["along two dimensions"](tmp_path)
    with pytest.raises(CombineError, match=r"time=2000-01-01, level=2\.0") as caught:
        icevirt.plan(files, concat_dim=["time", "level"])
    assert caught.value.facts["step"] == {"time": "2000-01-01", "level": "2.0"}


def test_steps_closer_than_a_microsecond_are_not_one(tmp_path):
    """Lasers count faster than the clock of a date."""
    files = [write(tmp_path / f"{n}.nc", [n * 1e-7], n, units="seconds since 2000-01-01")
             for n in range(3)]  # fmt: skip
    assert built(files, tmp_path)["v"][:, 0].values.tolist() == [0, 1, 2]


def test_files_of_one_step_and_other_variables_are_merged(tmp_path):
    files = [write(tmp_path / f"{name}.nc", [1.0, 2.0], 7, variable=name) for name in ("a", "b")]
    xr.testing.assert_equal(built(files, tmp_path), by_coords(files))


# -- the order of steps ----------------------------------------------------------------------------

PLACED = {
    "out of order": [[5.0, 6.0], [1.0, 2.0], [3.0]],
    "falling": [[2.0, 1.0], [6.0, 5.0], [4.0, 3.0]],
    "a step twice inside a file": [[3.0, 3.0, 4.0], [1.0, 2.0]],
}


@pytest.mark.parametrize("steps", PLACED.values(), ids=PLACED)
def test_files_are_placed_as_xarray_places_them(steps, tmp_path):
    files = [write(tmp_path / f"{n}.nc", each, n) for n, each in enumerate(steps)]
    xr.testing.assert_equal(built(files, tmp_path), by_coords(files))


DISORDER = {
    "not sorted inside a file": ([[1.0, 3.0, 2.0], [4.0]], {}, "not sorted"),
    "falling where others rise": ([[1.0, 2.0], [4.0, 3.0], [5.0, 6.0]], {}, "not sorted"),
    "NaN": ([[1.0], [np.nan]], {}, "NaN or its fill value"),
    "NaN beside the date that is counted from": ([[0.0], [np.nan]], {}, "NaN or its fill value"),
    "NaN twice": ([[np.nan], [np.nan], [1.0]], {}, "NaN or its fill value"),
    "a fill value": ([[1], [-99]], {"dtype": "i4", "fill": -99}, "NaN or its fill value"),
}


@pytest.mark.parametrize(("steps", "how", "message"), DISORDER.values(), ids=DISORDER)
def test_steps_without_an_order_are_refused(steps, how, message, tmp_path):
    """Also with a rule, which chooses among equal steps only."""
    files = [write(tmp_path / f"{n}.nc", each, n, **how) for n, each in enumerate(steps)]
    for rule in ("refuse", "last"):
        with pytest.raises(CombineError, match=message) as caught:
            icevirt.plan(files, concat_dim="time", combine_options={"duplicates": rule})
        assert ".nc" in str(caught.value.facts)
    nested = icevirt.plan(files, concat_dim="time", combine_options={"combine": "nested"})
    assert order_of(nested) == [*range(len(files))]


OVERLAPPING = {
    "some steps in both": [[1.0, 2.0, 3.0], [3.0, 4.0]],
    "one first step, other ends": [[1.0, 2.0], [1.0, 2.0, 3.0]],
    "one file within another": [[1.0, 4.0, 9.0], [4.0]],
}


@pytest.mark.parametrize("steps", OVERLAPPING.values(), ids=OVERLAPPING)
def test_files_that_overlap_in_part_are_refused_without_a_rule(steps, tmp_path):
    files = [write(tmp_path / f"{n}.nc", each, n) for n, each in enumerate(steps)]
    with pytest.raises(CombineError, match="overlap along 'time': both hold") as caught:
        icevirt.plan(files, concat_dim="time")
    assert '{"duplicates": "newest"}' in str(caught.value)
    made = built(files, tmp_path, duplicates="last")
    held = [xr.open_dataset(path).load() for path in files]
    kept = held[0].isel(time=~np.isin(held[0].time, held[1].time))
    xr.testing.assert_equal(made, xr.concat([kept, held[1]], "time").sortby("time"))
    nested = icevirt.plan(files, concat_dim="time", combine_options={"combine": "nested"})
    assert order_of(nested) == [*range(len(files))]


def test_steps_of_one_file_lie_between_those_of_another(tmp_path):
    """As where a later file fills a gap."""
    files = [write(tmp_path / f"{n}.nc", each, n) for n, each in enumerate([[1.0, 9.0], [4.0]])]
    held = [xr.open_dataset(path).load() for path in files]
    xr.testing.assert_equal(
        built(files, tmp_path), xr.concat(held, "time", data_vars="minimal").sortby("time")
    )


def test_an_overlap_is_reported_in_dates(tmp_path):
    steps = [[0.0, 1.0, 2.5], [1.0]]
    files = [write(tmp_path / f"{n}.nc", each, n) for n, each in enumerate(steps)]
    with pytest.raises(CombineError) as caught:
        icevirt.plan(files, concat_dim="time")
    assert caught.value.facts["first_range"] == ["2000-01-01", "2000-01-03T12:00:00"]


# -- texts -----------------------------------------------------------------------------------------

TEXTS = ["strings", "characters", "characters of NetCDF-3", "fixed", "enum"]


@pytest.mark.parametrize("kind", TEXTS)
def test_texts_order_files_as_in_xarray(kind, tmp_path):
    labels = [["cc"], ["a", "bbbbb"], ["d", "e"]]
    files = [write_texts(tmp_path / f"{n}.nc", each, n, kind) for n, each in enumerate(labels)]
    found = built(files, tmp_path, concat_dim="site")
    wanted = by_coords(files)
    if kind == "fixed":  # netCDF4 shows them as strings
        wanted["site"] = wanted["site"].astype("S5")
    xr.testing.assert_equal(found, wanted)
    assert found["v"][:, 0].values.tolist() == [1, 1, 0, 2, 2]


RULES = {
    "same step along 'site'": [["a"], ["a"]],
    "not sorted": [["a", "c", "b"], ["d"]],
    "overlap along 'site'": [["a", "c"], ["b", "c"]],
}


@pytest.mark.parametrize(("kind", "message"), crossed(TEXTS, RULES))
def test_texts_follow_the_rules_of_numbers(kind, message, tmp_path):
    labels = RULES[message]
    files = [write_texts(tmp_path / f"{n}.nc", each, n, kind) for n, each in enumerate(labels)]
    with pytest.raises(CombineError, match=message):
        icevirt.plan(files, concat_dim="site")
    nested = icevirt.plan(files, concat_dim="site", combine_options={"combine": "nested"})
    assert order_of(nested) == [*range(len(files))]


def test_texts_are_not_made_regular(tmp_path):
    files = [write_texts(tmp_path / f"{label}.nc", [label], 1, "strings") for label in "ab"]
    with pytest.raises(CombineError, match="no numeric coordinate"):
        icevirt.plan(files, concat_dim="site", combine_options={"spacing": 1})


# -- options that do nothing -----------------------------------------------------------------------


@pytest.mark.parametrize(
    "how", [{"duplicates": "newest"}, {"spacing": "1D"}], ids=["duplicates", "regular"]
)
def test_what_looks_at_coordinates_is_refused_where_files_are_nested(how, same):
    with pytest.raises(InvalidInputError, match=f"{next(iter(how))} cannot be used with combine"):
        icevirt.plan(same, concat_dim="time", **grouped(how, combine="nested"))


def test_a_rule_is_refused_where_nothing_tells_the_steps(tmp_path):
    files = [_without(write(tmp_path / f"{n}.nc", [1.0], n), "time") for n in (1, 2)]
    with pytest.raises(CombineError, match="duplicates cannot compare steps"):
        icevirt.plan(files, concat_dim="time", combine_options={"duplicates": "newest"})
    assert len(icevirt.plan(files, concat_dim="time").files) == 2


@pytest.mark.parametrize("is_shared", [True, False])
def test_files_of_equal_steps_lie_beside_each_other_by_dates_that_they_share(is_shared, tmp_path):
    """Parts of an image, of two cycles: names tell the time of each part, and that of its cycle."""
    files = [
        write(
            tmp_path / f"FCI_2023120114{cycle}{part}17_OPE_2023120114{cycle}80{made}_00{cycle}_{part}.nc",
            [3 * part, 3 * part + 1, 3 * part + 2], 10 * cycle + part, dims=("y",),
        )
        for cycle in (2, 3) for part in (1, 2) for made in [7 if is_shared else part]
    ]  # fmt: skip
    with pytest.raises(CombineError, match="at the same step along 'y'") as caught:
        icevirt.build(files, tmp_path / "repo")
    first = caught.value.fixes[0]
    assert ("labels" in first.arguments["combine_options"]) == is_shared
    if is_shared:
        icevirt.build(files, tmp_path / "repo", **change_call({}, first))
        found = opened(tmp_path / "repo")
        theirs = [xr.concat([*map(xr.open_dataset, files[at : at + 2])], "y") for at in (0, 2)]
        assert found.time.dt.strftime("%H%M%S").values.tolist() == ["142807", "143807"]
        np.testing.assert_array_equal(found.v.values, np.stack([each.v.values for each in theirs]))
        np.testing.assert_array_equal(found.y.values, theirs[0].y.values)
