"""Which variables get a dimension that they do not have: by rules, held against xarray."""

import json
from functools import partial

import h5py
import netCDF4
import numpy as np
import pytest
import xarray as xr

import icevirt
from grouping import grouped
from icevirt.errors import CombineError, InvalidInputError
from icevirt.planning.combine.options import CombineSpec
from planning.runs_and_days import (
    by_xarray,
    days,
    dims,
    opened,
    planned,
    recorded,
    runs,
    stacked,
    write,
)

LARGE = 160  # squared, more than the 64 KiB that are compared in any case


pytestmark = [pytest.mark.ci, pytest.mark.usefixtures("in_process")]


# -- the rules, and xarray's -----------------------------------------------------------------------

ALONG_A_NEW_ONE = {
    "nothing said": (None, "all"),
    "all": ("all", "all"),
    "names restrict": (["field", "mask"], ["field", "mask"]),
    "one name": ("field", ["field"]),
    "by path, for the dimension": ({"run": ["/field"]}, ["field"]),
}


@pytest.mark.parametrize(("ours", "theirs"), ALONG_A_NEW_ONE.values(), ids=ALONG_A_NEW_ONE)
def test_a_new_dimension_goes_to_what_xarray_gives_it(tmp_path, repo_path, ours, theirs):
    spec = {"run": 1} if isinstance(theirs, list) else {}
    files = [write(tmp_path / f"{n}.nc", **{"run": n, **spec}) for n in (1, 2)]
    report = stacked(files, repo_path, data_vars=ours)
    found = opened(repo_path, report).drop_vars("run")
    xr.testing.assert_identical(found, by_xarray(files, "run", theirs))


ALONG_AN_EXISTING_ONE = {
    "nothing said": (None, "minimal", {}),
    "minimal": ("minimal", "minimal", {}),
    "names extend": (["mask", "number"], ["mask", "number"], {"n": LARGE}),
    "all": ("all", "all", {}),
    "all of NetCDF-3": ("all", "all", {"layout": "NETCDF3_CLASSIC", "n": LARGE}),
    "all, of steps one by one": ({"time": "all"}, "all", {"steps": 1, "n": LARGE}),
}


@pytest.mark.parametrize(
    ("ours", "theirs", "spec"), ALONG_AN_EXISTING_ONE.values(), ids=ALONG_AN_EXISTING_ONE
)
def test_an_existing_dimension_goes_to_what_xarray_gives_it(
    tmp_path, repo_path, ours, theirs, spec
):
    """Along several steps of a file, one and the same chunk is referenced for each."""
    unlike = {} if theirs == "minimal" else {"mask": 2, "number": 8}
    files = [
        write(tmp_path / "a.nc", day=0, **spec),
        write(tmp_path / "b.nc", day=1, **{**spec, **unlike}),
    ]
    report = icevirt.build(files, repo_path, concat_dim="time", combine_options={"data_vars": ours})
    xr.testing.assert_identical(opened(repo_path, report), by_xarray(files, "time", theirs))


@pytest.mark.ci
def test_steps_that_share_a_chunk_lie_in_several_manifests(tmp_path, repo_path, monkeypatch):
    monkeypatch.setattr("icevirt.api.choices.CombineSpec", partial(CombineSpec, max_references=3))
    files = [
        write(tmp_path / f"{n}.nc", day=n, steps=5, n=LARGE, mask=n + 1, number=n) for n in (0, 1)
    ]
    report = icevirt.build(
        files, repo_path, concat_dim="time", combine_options={"data_vars": ["mask", "number"]}
    )
    assert next(each.manifests for each in report.arrays if each.path == "/mask") > 1
    theirs = by_xarray(files, "time", ["mask", "number"])
    xr.testing.assert_identical(opened(repo_path, report), theirs)


def test_each_dimension_has_its_own_rule(tmp_path, repo_path):
    nest = [
        [write(tmp_path / f"{r}{d}.nc", r, d, number=10 * r, mask=d + 1) for d in (0, 1)]
        for r in (1, 2)
    ]
    report = icevirt.build(
        nest, repo_path, concat_dim=["member", "time"], combine_options={"combine": "nested", "data_vars": {"member": ["field", "number"], "time": ["mask"]}},
    )  # fmt: skip
    ours = opened(repo_path, report)
    inner = [by_xarray(row, "time", ["mask"]) for row in nest]
    theirs = xr.concat(
        inner, "member", data_vars=["field", "number"], coords="minimal", compat="equals",
        join="exact", combine_attrs="override",
    )  # fmt: skip
    assert ours.mask.dims == ("time", "y", "x")
    assert ours.number.dims == ("member",)
    xr.testing.assert_identical(ours, theirs)


def test_several_new_dimensions_go_to_all_data(tmp_path, repo_path):
    nest = [[write(tmp_path / f"{a}{b}.nc", 10 * a + b) for b in (1, 2)] for a in (1, 2, 3)]
    names = ["start", "member"]
    report = icevirt.build(nest, repo_path, concat_dim=names, combine_options={"combine": "nested"})
    theirs = xr.combine_nested(
        [[xr.open_dataset(path, decode_coords="all") for path in row] for row in nest],
        concat_dim=names, data_vars="all", coords="minimal", compat="equals", join="exact",
        combine_attrs="override",
    ).transpose(*names, ...).load()  # fmt: skip
    xr.testing.assert_identical(opened(repo_path, report), theirs)


def test_one_file_gets_the_new_dimension_as_many_do(tmp_path):
    files = runs(tmp_path)
    assert dims(stacked(files[:1])) == dims(stacked(files))


def test_a_variable_that_tells_labels_has_their_dimension_alone(tmp_path):
    files = [write(tmp_path / f"{n}.nc", n, number=n) for n in (1, 2)]
    made = dims(
        icevirt.plan(
            files,
            concat_dim="run",
            combine_options={"labels": "variable:number", "data_vars": "field"},
        )
    )
    assert made["number"] == made["run"] == ("run",)


# -- what is a coordinate ----------------------------------------------------------------------


def test_coordinates_of_the_dataset_and_of_groups_are_found(tmp_path):
    """xarray lists some in the attributes of the dataset; names are looked up towards the root."""
    path = str(tmp_path / "a.nc")
    with netCDF4.Dataset(path, "w") as file:
        file.coordinates = "height"
        file.createDimension("x", 2)
        for name in ("height", "lat", "loose"):
            file.createVariable(name, "f4", ("x",))[:] = 1
        inner = file.createGroup("a").createGroup("b")
        for name in ("data", "far"):
            inner.createVariable(name, "f4", ("x",))[:] = 1
        file["a"].createVariable("near", "f4", ("x",))[:] = 1
        inner["data"].coordinates = "near lat ../../a/b/far"
    made = dims(stacked([path]))
    got = {name for name, names in made.items() if names == ("run", "x")}
    assert got == {"loose", "a/b/data"}


def test_text_that_names_a_dimension_is_its_coordinate(tmp_path):
    path = str(tmp_path / "a.nc")
    with netCDF4.Dataset(path, "w") as file:
        file.createDimension("station", 2)
        file.createDimension("length", 3)
        names = np.array([list("abc"), list("def")], "S1")
        for name in ("station", "owner"):
            file.createVariable(name, "S1", ("station", "length"))[:] = names
    made = dims(stacked([path]))
    assert made["station"][:1] == ("station",)
    assert made["owner"][:2] == ("run", "station")


def test_dimension_scales_of_plain_hdf5_are_coordinates(tmp_path):
    path = str(tmp_path / "a.h5")
    with h5py.File(path, "w") as file:
        file["scale"] = np.arange(3.0)
        file["scale"].make_scale("scale")
        file["data"], file["loose"] = np.ones(3), np.ones(5)
        file["data"].dims[0].attach_scale(file["scale"])
    made = dims(stacked([path]))
    assert made["scale"] == ("scale",)
    assert made["data"] == ("run", "scale")
    assert made["loose"][0] == "run"


# -- values only refuse ----------------------------------------------------------------------------


def test_values_that_happen_to_be_equal_change_nothing(tmp_path):
    """Not of small variables, nor of text and scalars, whatever tomorrow's files hold."""
    today = dims(stacked([write(tmp_path / f"{n}.nc") for n in "ab"]))
    unlike = {"mask": 2, "flag": 3, "number": 8, "name": "another"}
    tomorrow = dims(stacked([write(tmp_path / "a.nc"), write(tmp_path / "b.nc", **unlike)]))
    assert today == tomorrow
    assert today["mask"] == ("run", "y", "x")
    assert today["number"] == today["name"] == ("run",)
    assert today["lat"] == today["area"] == ("y", "x")


UNEQUAL = {
    "without an existing dimension": (days, "mask", {}, {"concat_dim": "time"}, ["mask"]),
    "a large one": (days, "mask", {"n": LARGE}, {"concat_dim": "time"}, ["mask"]),
    "a text": (days, "name", {}, {"concat_dim": "time"}, ["name"]),
    "a large coordinate": (runs, "lat", {"n": LARGE}, {}, ["all", "lat"]),
    "a large measure of NetCDF-3": (
        runs, "area", {"n": LARGE, "layout": "NETCDF3_CLASSIC"}, {}, ["all", "area"],
    ),
    "what was not named": (
        runs, "mask", {"n": LARGE}, {"data_vars": ["field", "flag"]}, ["field", "flag", "mask"],
    ),
}  # fmt: skip


@pytest.mark.parametrize(("files", "name", "spec", "how", "remedy"), UNEQUAL.values(), ids=UNEQUAL)
def test_unequal_values_are_refused_with_what_to_paste(tmp_path, files, name, spec, how, remedy):
    made = files(tmp_path, **spec)
    value = "another" if name == "name" else 8
    where = {"day": 1} if files is days else {"run": 1}
    write(made[1], **where, **spec, **{name: value})
    plan = partial(stacked, made) if files is runs else partial(planned, made)
    with pytest.raises(CombineError, match=f"/{name} does not have .* differ between") as caught:
        plan(**how)
    facts = caught.value.facts
    assert facts["variable"] == f"/{name}"
    assert {facts["first"], facts["other"]} == {f"file://{path}" for path in made}
    assert facts["first_value"] != facts["other_value"]
    if name in ("mask", "lat", "area"):
        assert facts["index"] == [0, 1]
        assert (facts["first_value"], facts["other_value"]) == (1.0, 8.0)
    assert f'combine_options={{"data_vars": {json.dumps(remedy)}}}' in str(caught.value)
    flags = [" ".join(each.flags) for each in caught.value.fixes]
    assert any(" ".join(f"--data-vars {word}" for word in remedy) in each for each in flags)
    again = plan(**{**how, "data_vars": remedy})
    assert dims(again)[name][0] in ("time", "run")


def test_of_several_dimensions_the_one_is_named_along_which_files_differ(tmp_path):
    nest = [[write(tmp_path / f"{r}{d}.nc", r, d, mask=d + 1) for d in (0, 1)] for r in (1, 2)]
    how = {"concat_dim": ["member", "time"], "combine": "nested"}
    with pytest.raises(CombineError, match=r'"data_vars": \{"time": \["mask"\]\}') as caught:
        icevirt.build(nest, tmp_path / "repo", **grouped(how))
    assert "/mask" in str(caught.value)
    made = icevirt.plan(nest, **grouped(how, data_vars={"time": ["mask"]}))
    assert dims(made)["mask"] == ("member", "time", "y", "x")


def test_what_the_scan_did_not_compare_is_compared_by_the_plan(tmp_path):
    """Another file says that it is a coordinate, and its own does not."""
    files = runs(tmp_path, n=LARGE)
    more = []
    for number in (1, 2):
        more.append(str(tmp_path / f"more{number}.nc"))
        with netCDF4.Dataset(more[-1], "w") as file:
            for name in ("y", "x"):
                file.createDimension(name, LARGE)
            file.createVariable("area2", "f4", ("y", "x"))[:] = number
    for path in files:
        with netCDF4.Dataset(path, "r+") as file:
            file["field"].cell_measures = "area: area2"
    both = {"labels": [0, 1, 0, 1], "drop_variables": ["area"]}
    with pytest.raises(CombineError, match=r"/area2 .* values differ") as caught:
        stacked([*files, *more], **both)
    assert '"data_vars": ["all", "area2"]' in str(caught.value)
    made = stacked([*files, *more], **both, data_vars=["all", "area2"])
    assert dims(made)["area2"] == ("run", "y", "x")


WRONG = {
    "a rule that looks at values": ({"data_vars": "different"}, "lets values decide"),
    "no variable of the name": ({"data_vars": ["fild"]}, "no file has.*fild"),
    "a dimension that is not asked for": ({"data_vars": {"time": "all"}}, "not in concat_dim"),
    "no names": ({"data_vars": [1]}, "or names of variables"),
    "nothing at all": ({"data_vars": []}, "or names of variables"),
    "a number": ({"data_vars": 1}, "or names of variables"),
    "the coordinate of a dimension": (
        {"data_vars": ["all", "time"]},
        "/time is a dimension coordinate",
    ),
}


@pytest.mark.parametrize(("how", "printed"), WRONG.values(), ids=WRONG)
def test_what_is_asked_wrongly_is_refused(tmp_path, how, printed):
    with pytest.raises(InvalidInputError, match=printed):
        stacked(runs(tmp_path), **how)


def test_a_dimension_that_nothing_gets_is_refused(tmp_path):
    with pytest.raises(CombineError, match="no variable gets the dimension 'run'"):
        stacked([write(tmp_path / f"{n}.nc") for n in "ab"], data_vars="minimal")


def test_a_file_with_nothing_along_the_dimension_cannot_say_where_its_variable_lies(tmp_path):
    files = days(tmp_path)
    with netCDF4.Dataset(tmp_path / "fixed.nc", "w") as file:
        file.createDimension("x", 3)
        file.createVariable("fixed", "f4", ("x",))[:] = 1
    with pytest.raises(CombineError, match=r"no variable along 'time'.*fixed\.nc"):
        icevirt.plan(
            [*files, str(tmp_path / "fixed.nc")],
            concat_dim="time",
            combine_options={"data_vars": "all"},
        )


# -- what the scan compares, recipes ---------------------------------------------------------------


def test_a_catalog_that_was_scanned_for_a_stack_serves_the_build(tmp_path, repo_path):
    files, catalog = runs(tmp_path, n=LARGE), tmp_path / "catalog"
    how = {"concat_dim": "run", "data_vars": ["field", "flag"], "labels": "regex:run(.)"}
    icevirt.scan_files(files, catalog, **grouped(how))
    how |= {"catalog": catalog}
    report = icevirt.build(None, repo_path, **grouped(how))
    assert report.files_reused == 2
    other = icevirt.plan(None, **grouped({**how, "data_vars": ["field", "flag", "mask"]}))
    assert len(other.files) == 2


@pytest.mark.parametrize("layout", [None, "NETCDF3_CLASSIC"])
def test_the_scan_compares_what_gets_no_dimension_and_no_other_large_array(tmp_path, layout):
    """Else a scan of large members would read all there is."""
    from icevirt.objects.opening import open_source
    from icevirt.scan import registry
    from icevirt.scan.contract import ScannerOptions

    path = write(tmp_path / "a.nc", n=LARGE, layout=layout)
    rules = {
        (): {"/lat", "/area"},
        (("", ("field", "flag")),): {"/lat", "/area", "/mask"},
        (("run", ("all", "lat")),): {"/area"},
    }
    for data_vars, wanted in rules.items():
        options = ScannerOptions(concat_dim="run", stack=True, data_vars=data_vars)
        with open_source(path) as source:
            arrays = registry.scan(source, options).arrays
        large = {each.path for each in arrays if each.digest and len(each.shape) > 1} - {
            "/time_bnds"
        }
        assert large == wanted


def test_references_of_others_are_compared_too(tmp_path):
    """Kerchunk describes the files, so that values are read through its references."""
    from kerchunk.hdf import SingleHdf5ToZarr

    described = []
    for path in runs(tmp_path, n=LARGE):
        with h5py.File(path, "r+") as file:
            del file["name"]
        described.append(f"{path}.json")
        with open(described[-1], "w") as out:
            json.dump(SingleHdf5ToZarr(path, inline_threshold=0).translate(), out)
    assert dims(stacked(described))["area"] == ("y", "x")
    with netCDF4.Dataset(described[1].removesuffix(".json"), "r+") as file:
        file["area"][0, 1] = 99
    with pytest.raises(CombineError, match=r"/area .* its values differ") as caught:
        stacked(described)
    assert '"data_vars": ["all", "area"]' in str(caught.value)


def test_a_recipe_says_which_variables_get_a_dimension(tmp_path, repo_path):
    from typer.testing import CliRunner

    from icevirt.cli import main

    files, recipe = [*days(tmp_path), write(tmp_path / "d.nc", day=2, mask=3)], tmp_path / "r.toml"
    line = ["plan", *files, "--concat-dim", "time", "--data-vars", "time:mask"]
    done = CliRunner().invoke(main.app, [*line, "--write-recipe", str(recipe)])
    assert done.exit_code == 0, done.output
    assert icevirt.load_recipe(recipe)["combine_options"] == {"data_vars": {"time": ["mask"]}}
    icevirt.build(**icevirt.load_recipe(recipe, call="plan"), repo=repo_path)
    assert recorded(repo_path)["mask"] == ("time", "y", "x")


def test_coordinates_that_a_person_lists_of_the_dataset_are_found(tmp_path):
    attrs = {"/": {"coordinates": "mask number"}}
    found = dims(stacked(runs(tmp_path), attrs=attrs))
    assert [found["mask"], found["number"]] == [("y", "x"), ()]
    assert found["flag"][0] == "run"


def test_what_has_other_lengths_gets_the_dimension_before_its_ends_are_padded(tmp_path, repo_path):
    """An array that is stored once has no ends to pad: its error named pad where pad was given."""
    files = [str(tmp_path / f"{n}.nc") for n in range(2)]
    for n, path in enumerate(files):
        with netCDF4.Dataset(path, "w") as file:
            file.createDimension("time", 2)
            file.createDimension("obs", 2 + n)
            file.createVariable("time", "f8", ("time",))[:] = [2 * n, 2 * n + 1]
            for name, dims in (("field", ("time", "obs")), ("depth", ("obs",))):
                made = file.createVariable(name, "f4", dims, fill_value=-9)
                made[:] = np.broadcast_to(np.arange(2 + n), made.shape)
    with pytest.raises(CombineError) as caught:
        icevirt.build(files, repo_path, concat_dim="time", combine_options={"pad": "obs"})
    pasted = {"data_vars": ["depth"], "pad": ["obs"]}
    assert f"combine_options={json.dumps(pasted)}: " in str(caught.value)
    found = opened(repo_path, icevirt.build(files, repo_path, concat_dim="time", **grouped(pasted)))
    np.testing.assert_array_equal(found["depth"], [[0, 1, np.nan]] * 2 + [[0, 1, 2]] * 2)
