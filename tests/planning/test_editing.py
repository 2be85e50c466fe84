"""Names and attributes of files are changed before they are combined, as xarray would."""

from dataclasses import replace

import netCDF4
import numpy as np
import pytest
import xarray as xr
import zarr

import icevirt
from builds.support import (
    assert_same_dataset,
    expected_dataset,
    opened,
    write_day,
    write_days,
)
from grouping import grouped
from icevirt import errors
from icevirt.planning.edits.file_edits import FileEdit
from icevirt.planning.edits.renames import apply_edits
from planning.test_combine import data, file, time
from planning.test_routes import planned, written

pytestmark = [pytest.mark.ci, pytest.mark.usefixtures("in_process")]


def with_other_names(path, **names):
    """Rename variables, or dimensions with their coordinates, in a file."""
    with xr.open_dataset(path, decode_cf=False) as file:
        renamed = file.load().rename(names)
        unlimited = [names.get(name, name) for name in file.encoding["unlimited_dims"]]
    renamed.encoding["unlimited_dims"] = unlimited
    for variable in renamed.variables.values():
        if "_FillValue" not in variable.attrs:
            variable.encoding["_FillValue"] = None
    renamed.to_netcdf(path, engine="netcdf4")
    return path


@pytest.fixture
def days(tmp_path):
    return write_days(tmp_path / "days")


def loaded(days):
    """Return what xarray makes of the files, which are free to be changed afterwards."""
    with expected_dataset(days, "time") as found:
        return found.load()


def zarr_attributes(repo):
    """Return the attributes of all nodes by path."""
    group = zarr.open_group(icevirt.Repository.open(repo).readonly_session("main").store, mode="r")
    return {"": dict(group.attrs)} | {
        path: dict(node.attrs) for path, node in group.members(max_depth=None)
    }


def built(files, tmp_path, **how):
    report = icevirt.build(files, tmp_path / "repo", concat_dim="time", **grouped(how))
    return opened(str(tmp_path / "repo")), report


NAMES = {"packed": "tas", "mask": "land", "x": "lon", "y": "lat"}


def test_names_of_variables_and_dimensions_change_as_in_xarray(days, tmp_path):
    found, _ = built(days, tmp_path, rename=NAMES)
    assert_same_dataset(found, expected_dataset(days, "time").rename(NAMES))


def test_a_dimension_that_one_file_calls_otherwise_is_combined(days, tmp_path):
    """The coordinate too, which orders the files: the odd one is given first."""
    wanted = loaded(days)
    odd = with_other_names(days[2], time="t")
    found, _ = built([odd, *days[:2]], tmp_path, rename={"t": "time"})
    xr.testing.assert_identical(found.load(), wanted)


def test_a_variable_that_one_file_calls_otherwise_is_combined(days, tmp_path):
    wanted = loaded(days)
    with_other_names(days[1], packed="tas")
    found, _ = built(days, tmp_path, rename={"tas": "packed"})
    assert_same_dataset(found, wanted)


def test_two_names_are_exchanged(days, tmp_path):
    """Each is read from where the other one's name leads."""
    for day in days:
        with netCDF4.Dataset(day, "a") as file:
            file.createVariable("other", "f4", ("time", "y", "x"), zlib=True)[:] = 7
    names = {"packed": "other", "other": "packed"}
    found, _ = built(days, tmp_path, rename=names)
    assert_same_dataset(found, expected_dataset(days, "time").rename(names))


def exchange(file):
    """Exchange two variables in one file only."""
    if file.url.endswith("day2.nc"):
        return icevirt.FileChanges(rename={"packed": "other", "other": "packed"})
    return None


def test_two_names_are_exchanged_in_one_file_of_several(days, tmp_path):
    """In one window then, references of one array come from two."""
    for day in days:
        with xr.open_dataset(day, mask_and_scale=False) as file:
            packed = file["packed"].load()
        with netCDF4.Dataset(day, "a") as file:
            how = {"zlib": True, "shuffle": True, "chunksizes": (1, 5, 6), "fill_value": -999}
            other = file.createVariable("other", "i2", ("time", "y", "x"), **how)
            other.setncatts({k: v for k, v in packed.attrs.items() if k != "_FillValue"})
            other.set_auto_maskandscale(False)
            other[:] = packed.values + 500
    parts = [xr.open_dataset(day, mask_and_scale=False).load() for day in days]
    parts[1] = parts[1].rename(packed="other", other="packed")
    wanted = xr.concat(parts, "time", data_vars="minimal", combine_attrs="override", join="exact")
    built(days, tmp_path, preprocess=exchange)
    found = opened(str(tmp_path / "repo"), mask_and_scale=False)
    for name in ("packed", "other"):
        np.testing.assert_array_equal(found[name], wanted[name])


def test_attributes_that_name_variables_name_them_as_they_are_called_now(tmp_path):
    path = write_day(tmp_path / "day.nc", 1)
    with netCDF4.Dataset(path, "a") as file:
        file["packed"].coordinates = "area lat lon"
        file["packed"].cell_measures = "area: area"
        file["packed"].grid_mapping = "crs"
        file["time"].bounds = "time_bnds"
        for name in ("area", "lat", "lon"):
            file.createVariable(name, "f4", ("y", "x"))[:] = 1
        file.createVariable("crs", "i4", ())
    rename = {"area": "cell_area", "crs": "proj", "time_bnds": "tb", "lat": "latitude"}
    icevirt.build(path, tmp_path / "repo", combine_options={"rename": rename})
    found = opened(str(tmp_path / "repo"), decode_coords="all")
    assert found["packed"].encoding["coordinates"] == "cell_area latitude lon"
    assert found["packed"].encoding["cell_measures"] == "area: cell_area"
    assert found["packed"].encoding["grid_mapping"] == "proj"
    assert found["time"].encoding["bounds"] == "tb"
    assert {"cell_area", "latitude", "lon", "proj", "tb"} <= set(found.coords)


LISTS = (
    *("coordinates", "bounds", "climatology", "ancillary_variables", "geometry"),
    *("node_coordinates", "node_count", "part_node_count", "interior_ring"),
)
NAMING = {
    **dict.fromkeys(LISTS, ("old  other\told", "new  other\tnew")),
    "grid_mapping": ("old: other old", "new: other new"),
    "cell_measures": ("old : old", "old : new"),
    "formula_terms": ("old: old ps: other", "old: new ps: other"),
}


@pytest.mark.parametrize(("name", "texts"), NAMING.items(), ids=NAMING)
def test_every_attribute_that_names_a_variable_follows_it(name, texts, tmp_path):
    with netCDF4.Dataset(tmp_path / "file.nc", "w") as file:
        for variable in ("old", "other", "data"):
            file.createVariable(variable, "f4", ())
        file["data"].setncattr(name, texts[0])
    icevirt.build(
        tmp_path / "file.nc", tmp_path / "repo", combine_options={"rename": {"old": "new"}}
    )
    found = zarr_attributes(tmp_path / "repo")
    assert found["data"][name] == texts[1]


def test_a_name_in_an_attribute_is_that_of_the_nearest_variable(tmp_path):
    with netCDF4.Dataset(tmp_path / "file.nc", "w") as file:
        file.coordinates = "lat aux"
        for group in (file, file.createGroup("a"), file.createGroup("b")):
            group.createVariable("data", "f4", ()).coordinates = "lat /a/lat aux"
            group.createVariable("lat", "f4", ())
        file.createVariable("aux", "f4", ())
    icevirt.build(
        tmp_path / "file.nc",
        tmp_path / "repo",
        combine_options={"rename": {"/a/lat": "y", "aux": "z"}},
    )
    found = zarr_attributes(tmp_path / "repo")
    output = {path: found[path]["coordinates"] for path in ("data", "a/data", "b/data")}
    assert output == {"data": "lat /a/y z", "a/data": "y /a/y z", "b/data": "lat /a/y z"}
    assert found[""]["coordinates"] == "lat z"


def test_attributes_are_set_and_removed_and_keep_their_types(days, tmp_path):
    with netCDF4.Dataset(days[1], "a") as file:
        del file["packed"].units
    attrs = {
        "packed": {"units": "K", "scale_factor": 0.01, "level": 3},
        "/": {"title": "set", "day": None},
    }
    found, _ = built(days, tmp_path, attrs=attrs)
    wanted = expected_dataset([days[0], days[2]], "time")
    assert found["packed"].attrs["units"] == "K"
    assert found["packed"].attrs["level"] == 3
    assert found.attrs["title"] == "set"
    assert "day" not in found.attrs
    ours = found["packed"].encoding["scale_factor"]
    assert (type(ours), ours) == (
        type(wanted["packed"].encoding["scale_factor"]),
        wanted["packed"].encoding["scale_factor"],
    )


def by_title(file):
    """Change what a file calls things by what it says of itself."""
    variable = file.variables["/packed"] if "/packed" in file.variables else file.variables["/tas"]
    assert variable.dims == ("time", "y", "x")
    assert variable.shape == (4, 5, 6)
    assert variable.dtype == "int16"
    day = int(file.attrs["day"])
    return icevirt.FileChanges(
        rename={"tas": "packed"} if "/tas" in file.variables else {},
        drop_variables=["mask"],
        attrs={"/": {"title": f"day {day}"}},
    )


def test_a_function_says_it_for_each_file(days, tmp_path):
    wanted = loaded(days).drop_vars("mask").assign_attrs(title="day 1")
    with_other_names(days[1], packed="tas")
    found, _ = built(days, tmp_path, preprocess=by_title)
    xr.testing.assert_identical(found.load(), wanted)


def test_a_function_is_named_as_in_a_recipe(days, tmp_path, monkeypatch):
    (tmp_path / "archive_rules.py").write_text(
        "import icevirt\n"
        "def tidy(file):\n"
        '    return icevirt.FileChanges(drop_variables="time_bnds", attrs={"/": {"day": None}})\n'
    )
    monkeypatch.syspath_prepend(tmp_path)
    found, _ = built(days, tmp_path, preprocess="archive_rules:tidy")
    assert "time_bnds" not in found
    assert "day" not in found.attrs


def fails(file):
    raise ValueError(file.url)


REFUSED = {
    "a name that no file has": ({"rename": {"packd": "tas"}}, "Did you mean 'packed'"),
    "two names become one": ({"rename": {"x": "z", "y": "z"}}, "the same name"),
    "a name that is there": ({"rename": {"packed": "mask"}}, "two variables of a file"),
    "a dimension twice": ({"rename": {"x": "y"}}, "dimension 'y' twice|two variables of a file"),
    "a path for a name": ({"rename": {"packed": "/g/tas"}}, "a slash separates names"),
    "an attribute of nothing": ({"attrs": {"nothing": {"a": 1}}}, "no file has a variable"),
    "no function": ({"preprocess": "nowhere:f"}, "cannot be imported"),
    "no name": ({"preprocess": "nowhere"}, "package.module:function"),
    "a function that fails": ({"preprocess": fails}, r"preprocess failed .*day1\.nc"),
    "a function that returns a dataset": ({"preprocess": lambda f: 1}, "must return FileChanges"),
    "a function that renames what is scanned": (
        {"preprocess": lambda f: icevirt.FileChanges(rename={"t": "time"})},
        '"rename": {"t": "time"}',
    ),
}


@pytest.mark.parametrize(("how", "message"), REFUSED.values(), ids=REFUSED)
def test_what_cannot_be_meant_is_refused(how, message, days, tmp_path):
    with pytest.raises((errors.InvalidInputError, errors.CombineError), match=message):
        built(days, tmp_path, **how)


def test_other_names_are_another_build(days, tmp_path):
    """The same call again is the same; a function may do something else today."""
    repo = tmp_path / "repo"
    icevirt.build(days, repo, concat_dim="time", combine_options={"rename": {"packed": "a"}})
    again = {"concat_dim": "time", "mode": "w"}
    assert icevirt.build(days, repo, **grouped(again, rename={"packed": "a"})).already_built
    with pytest.raises(errors.PlanChangedError, match="1 variable vanished: /a"):
        icevirt.build(days, repo, **grouped(again, rename={"packed": "b"}))
    drops = {"packed"}
    rule = lambda file: icevirt.FileChanges(drop_variables=drops)  # noqa: E731
    icevirt.build(days, repo, **grouped(again, preprocess=rule, allow_changes=True))
    drops.clear()
    report = icevirt.build(days, repo, **grouped(again, preprocess=rule))
    assert not report.already_built
    assert "/packed" in {array.path for array in report.arrays}


@pytest.mark.parametrize("names", [NAMES, {"time": "t"}], ids=["other names", "the dimension"])
def test_a_dataset_of_other_names_is_verified(names, days, tmp_path):
    """By where its chunks lie, and against what the files call them."""
    dimension = names.get("time", "time")
    icevirt.build(days, tmp_path / "repo", concat_dim=dimension, combine_options={"rename": names})
    prefix = f"file://{tmp_path}/days/"
    report = icevirt.verify(
        tmp_path / "repo", full=True, references=True, authorize_virtual_chunk_access=[prefix]
    )
    assert report.ok
    assert report.checked.chunks == 13


def labelled(file):
    """Tell the day of a file, which its attributes know."""
    return icevirt.FileChanges(labels={"day": int(file.attrs["day"])}, drop_variables="time_bnds")


def test_a_function_tells_labels_of_a_new_dimension(days, tmp_path):
    repo = str(tmp_path / "repo")
    call = {"concat_dim": ["day", "time"], "labels": {"day": "preprocess"}, "missing": "reserve"}
    for day, path in enumerate(days, 1):
        write_day(path, 1)
        with netCDF4.Dataset(path, "a") as file:
            file.day = np.int32(10 * day)
            file["packed"].set_auto_maskandscale(False)
            file["packed"][:] = file["packed"][:] + day
    icevirt.build(days, repo, **grouped(call, preprocess=labelled))
    found = opened(repo)
    assert found["day"].values.tolist() == [10, 20, 30]
    for number, path in enumerate(days):
        with xr.open_dataset(path) as wanted:
            np.testing.assert_array_equal(found["packed"][number], wanted["packed"])


LABELS = {
    "nobody tells them": ({"labels": {"day": "preprocess"}}, "needs a preprocess function"),
    "nobody asked": (
        {"preprocess": labelled, "labels": {"day": "attribute:day"}},
        "are not set to",
    ),
    "a file tells none": (
        {"preprocess": lambda file: None, "labels": {"day": "preprocess"}},
        r"returns no label along 'day'.*day1\.nc",
    ),
}


@pytest.mark.parametrize(("how", "message"), LABELS.values(), ids=LABELS)
def test_labels_that_are_not_reported_are_refused(how, message, days, tmp_path):
    with pytest.raises((errors.InvalidInputError, errors.CombineError), match=message):
        icevirt.build(days, tmp_path / "repo", concat_dim=["day", "time"], **grouped(how))


def test_an_array_with_two_names_is_found_on_both_ways():
    """Straight from the catalog, or by a shuffle; two arrays have each other's name in one file."""

    def elsewhere(array):
        return replace(
            array, references=replace(array.references, offset=array.references.offset + 50)
        )

    files = [
        file(
            n,
            lambda u: data(u, 2, path="/a"),
            lambda u: elsewhere(data(u, 2, path="/b")),
            time([2 * n, 2 * n + 1]),
        )
        for n in range(7)
    ]

    swap = FileEdit(rename=(("a", "b"), ("b", "a")))

    def change(facts):
        return apply_edits(facts, [FileEdit(), swap], np.arange(7) % 2)

    catalog, plan = planned(files, change=change, max_references=3)
    direct = written(catalog, plan, shuffled=False)
    assert any(path.startswith("manifests/") for path in direct)
    assert written(catalog, plan, shuffled=True) == direct
    straight = planned(files, max_references=3)
    assert written(*straight, shuffled=False).keys() != direct.keys()
