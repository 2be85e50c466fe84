"""Names and attributes change before files are combined, and what is wrong in one is refused."""

import json

import numpy as np
import pytest
import xarray as xr
from hypothesis import given, settings
from hypothesis import strategies as st

from icevirt.archive.schema import ArraySchema
from icevirt.errors import CombineError, InvalidInputError
from icevirt.model.attributes import Attributes
from icevirt.planning.axes.new_dimensions import new_dimension
from icevirt.planning.edits.checked_names import refuse_unknown_edits, refuse_void_options
from icevirt.planning.edits.file_edits import (
    FileChanges,
    FileEdit,
    LabelEdits,
    convert,
    facts_of_file,
    read_recorded,
    statement,
)
from icevirt.planning.edits.renames import apply_edits, with_label_edits
from unit.planning.scanned_facts import File, coord, data, facts_of, label, spec, step

NOTHING = FileEdit()


def edit(**changes):
    return FileEdit.of(FileChanges(**changes))


def changed(files, *edits, option="attrs", of=None):
    """Return the facts of files with edits; each file has the first one unless ``of`` says."""
    which = np.zeros(len(files), int) if of is None else np.array(of)
    return apply_edits(facts_of(*files), edits, which, option=option)


def held(facts, file=0):
    """Return the schemas of a file's variables by path."""
    arrays = facts.arrays
    rows = np.flatnonzero(arrays.file == file).tolist()
    return {arrays.path[at]: ArraySchema.loads(arrays.schema[at]) for at in rows}


def attrs(facts, path, file=0):
    return dict(held(facts, file)[path].attributes.values)


# -- names ----------------------------------------------------------------------------------------

NAMES = ("t", "u", "time", "x")


@settings(max_examples=8)
@given(st.dictionaries(st.sampled_from(NAMES), st.sampled_from([*NAMES, "new", "other"])))
def test_names_change_as_in_xarray(rename):
    """Variables and dimensions alike; where xarray refuses, this does too."""
    file = File("a", {"t": data(("time", "x"), [[1.0]]), "u": data("x", [1.0]),
                      "time": coord("time", [1.0]), "x": coord("x", [1.0])})  # fmt: skip
    dataset = xr.Dataset({n: (v.dims, v.values) for n, v in file.variables.items()})
    try:
        wanted = dataset.rename(rename)
    except (ValueError, UserWarning):  # the latter where a dimension would be there twice
        with pytest.raises((CombineError, InvalidInputError)):
            changed([file], edit(rename=rename))
        return
    found = held(changed([file], edit(rename=rename)))
    assert {path: each.dimension_names for path, each in found.items()} == {
        f"/{name}": each.dims for name, each in wanted.variables.items()
    }


def test_the_name_in_the_file_stays_known():
    found = changed([step("a", 1.0), step("b", 2.0)], edit(rename={"t": "tas"}), NOTHING, of=[0, 1])
    assert [found.arrays.path[at] for at in range(4)] == ["/tas", "/time", "/t", "/time"]
    assert [found.arrays.own_path[at] for at in range(4)] == ["/t", "/time", "/t", "/time"]


def test_the_name_in_the_file_stays_known_when_a_variable_is_renamed_again():
    once = changed([step("a", 1.0)], edit(rename={"t": "tas"}))
    again = apply_edits(once, [edit(rename={"tas": "air"})], np.zeros(1, int))
    assert (again.arrays.path[0], again.arrays.own_path[0]) == ("/air", "/t")


@pytest.mark.parametrize(
    ("name", "text", "wanted"),
    [
        ("coordinates", "lat lon", "y lon"),
        ("coordinates", "/lat  g/lat", "/y  g/y"),
        ("bounds", "lat", "y"),
        ("grid_mapping", "crs: lat lon", "crs: y lon"),
        ("cell_measures", "area: lat", "area: y"),
        ("ancillary_variables", "latitude lat", "latitude y"),
        ("title", "lat", "lat"),
    ],
)
def test_attributes_that_name_variables_follow(name, text, wanted):
    file = File("a", {"v": data("x", [1], attrs={name: text}), "lat": data("x", [1]),
                      "/g/lat": data("x", [1]), "lon": data("x", [1])})  # fmt: skip
    found = changed([file], edit(rename={"lat": "y"}))
    assert attrs(found, "/v") == {name: wanted}
    assert "/g/y" in held(found)


def test_groups_follow_too():
    file = step("a", 1.0, lat=data("x", [1, 2, 3]), attrs={"coordinates": "lat", "n": 1})
    found = changed([file], edit(rename={"lat": "y"}, attrs={"/": {"n": 2, "title": "new"}}))
    (group,) = found.groups_of(0)
    assert group.attributes.values == {"coordinates": "y", "n": 2, "title": "new"}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"rename": {"t": "time"}}, "two variables of a file would get one name: /time"),
        ({"rename": {"x": "time"}}, "dimension 'time' twice"),
    ],
)
def test_two_things_never_get_one_name(change, message):
    with pytest.raises(CombineError, match=message):
        changed([step("a", 1.0)], edit(**change))


def test_variables_are_dropped_by_name_and_path():
    file = step("a", 1.0, u=data("x", [1, 2, 3]))
    assert [*held(changed([file], edit(drop_variables="u")))] == ["/t", "/time"]
    assert [*held(changed([file], edit(drop_variables=["/t", "time"])))] == ["/u"]


# -- what a function may return -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"rename": {"a": ""}}, "not a valid new name"),
        ({"rename": {"a": "b/c"}}, "not a valid new name"),
        ({"rename": {"a": 1}}, "names must be strings"),
        ("words", "must return FileChanges or None"),
    ],
)
def test_changes_that_are_none_are_refused(changes, message):
    with pytest.raises(InvalidInputError, match=message):
        FileEdit.of(changes if isinstance(changes, str) else FileChanges(**changes))


def test_an_edit_is_a_value():
    one, same = (edit(rename={"t": "u"}, attrs={"u": {"n": np.float32(1)}}) for _ in range(2))
    assert one == same
    assert hash(one) == hash(same)
    assert one
    assert not FileEdit.of(None)
    assert one.new_path("/g/t") == "/g/u"
    assert json.loads(one.choose_attributes("/g/u")["n"]) == [1.0, "f4"]
    both = edit(attrs={"u": {"n": 1, "m": 1}, "/g/u": {"n": 2}})
    assert both.choose_attributes("/g/u") == {"n": "[2, null]", "m": "[1, null]"}
    assert read_recorded({"attrs": [["u", "n", "[1, null]"]], "preprocess": "a:b"}) == (
        FileEdit(attrs=(("u", "n", "[1, null]"),)),
        "a:b",
    )
    assert read_recorded(None) == (NOTHING, "")


def test_a_function_sees_names_and_attributes_and_cannot_change_them():
    facts = facts_of(step("a", 1.0, attrs={"run": 1}, u=data("x", [1, 2, 3], attrs={"units": "K"})))
    seen = facts_of_file(facts, 0, np.arange(3))
    assert seen.url == "file:///data/a"
    assert seen.attrs == {"run": 1}
    u = seen.variables["/u"]
    assert (u.dims, u.shape, u.dtype, dict(u.attrs)) == (("x",), (3,), "int64", {"units": "K"})
    with pytest.raises(TypeError):
        u.attrs["units"] = "m"


# -- attributes -----------------------------------------------------------------------------------


def test_attributes_are_set_and_removed():
    file = step("a", 1.0, u=data("x", [1, 2, 3], attrs={"long_name": "old", "n": np.float32(1)}))
    found = changed([file], edit(attrs={"u": {"long_name": None, "n": 2.5, "new": [1, 2]}}))
    assert attrs(found, "/u") == {"n": 2.5, "new": [1, 2]}
    assert held(found)["/u"].attributes.dtypes["n"] == "f4"  # as in the file


@pytest.mark.parametrize(
    ("name", "value", "known", "kind", "wanted"),
    [
        ("n", 2, "i2", "float32", (2, "i2")),
        ("n", 70_000, "i2", "float32", (70_000, None)),
        ("n", [1, 2], "f4", "float32", ([1.0, 2.0], "f4")),
        ("n", "text", "i2", "float32", ("text", None)),
        ("n", 1, None, "float32", (1, None)),
        ("_Unsigned", True, None, "int8", ("true", None)),
        ("units", 1, None, "int8", ("1", None)),
        ("_FillValue", -1, None, "int16", (-1, "i2")),
        ("missing_value", [1, 2], "i1", "int16", ([1, 2], "i1")),
        ("missing_value", 300, "i1", "int16", (300, "i2")),
    ],
)
def test_a_value_keeps_the_type_of_the_file_where_it_fits(name, value, known, kind, wanted):
    assert convert("/v", name, value, known, kind) == wanted


@pytest.mark.parametrize(
    ("name", "value", "kind"),
    [
        ("_FillValue", 70_000, "int16"),
        ("_FillValue", "x", "int16"),
        ("missing_value", [], "float32"),
        ("scale_factor", "2", "int16"),
        ("scale_factor", True, "int16"),
        ("units", ["K"], "int16"),
        ("calendar", 360, "int16"),
    ],
)
def test_what_decodes_to_nothing_is_refused(name, value, kind):
    with pytest.raises(InvalidInputError, match=name):
        convert("/v", name, value, None, kind)


def test_infinities_and_nan_are_words():
    value, dtype = convert("/v", "_FillValue", "NaN", None, "float32")
    assert dtype == "f4"
    assert Attributes.of({"_FillValue": np.float32("nan")}).values["_FillValue"] == value


@pytest.mark.parametrize(
    ("one", "other", "alike"),
    [
        ({"units": "days since 2000-01-01"}, {"units": "day since 2000-1-1 0:0"}, True),
        ({"units": "days since 2000-01-01"}, {"units": "hours since 2000-01-01"}, False),
        ({"units": "K"}, {"units": "k"}, False),
        ({"units": "K"}, {}, False),
        ({"calendar": "gregorian"}, {}, True),
        ({"calendar": "noleap"}, {"calendar": "NOLEAP"}, True),
        ({"scale_factor": np.float64(2)}, {"scale_factor": [2.0]}, True),
        ({"scale_factor": np.float64(0.1)}, {"scale_factor": np.float32(0.1)}, False),
        ({"_Unsigned": "True"}, {"_Unsigned": "true"}, True),
        ({"flag_values": [1, 2]}, {"flag_values": [1, 3]}, False),
    ],
)
def test_what_an_attribute_says_counts_and_not_its_spelling(one, other, alike):
    name = next(iter(one))
    meanings = [statement(Attributes.of(each), name) for each in (one, other)]
    assert (meanings[0] == meanings[1]) is alike


@pytest.mark.parametrize(
    ("before", "name", "value", "remedy"),
    [
        (("days since 2000-01-01", "days since 2001-01-01"), "units", "days since 1990-01-01",
         "times with different reference dates are converted exactly"),
        (("K", "C"), "units", "K", "correct only these with preprocess"),
        ((1.0, 2.0), "scale_factor", 3.0, "correct only these with preprocess"),
    ],
)  # fmt: skip
def test_files_that_mean_different_things_cannot_get_one_meaning(before, name, value, remedy):
    files = [step(f"f{n}", n, v=data("time", [1], attrs={name: b})) for n, b in enumerate(before)]
    with pytest.raises(CombineError, match=f"attrs would set {name}=.* different values") as caught:
        changed(files, edit(attrs={"v": {name: value}}))
    assert (caught.value.facts["first"][-2:], caught.value.facts["other"][-2:]) == ("f0", "f1")
    assert remedy in str(caught.value)


def test_a_function_may_correct_what_files_spell_differently():
    """Where no reader computes with it."""
    files = [step(f"f{n}", n, v=data("time", [1], attrs={"units": u})) for n, u in enumerate("KC")]
    found = changed(files, edit(attrs={"v": {"units": "m"}}), option="preprocess")
    assert attrs(found, "/v", 1) == {"units": "m"}
    packed = [
        step(f"f{n}", n, v=data("time", [1], attrs={"scale_factor": s}))
        for n, s in enumerate((1.0, 2.0))
    ]
    with pytest.raises(CombineError, match="preprocess would set scale_factor") as caught:
        changed(packed, edit(attrs={"v": {"scale_factor": 3.0}}), option="preprocess")
    assert "Let the function look at" in caught.value.do


def test_bounds_that_repeat_the_units_of_their_coordinate_get_the_new_ones():
    old = "days since 2000-01-01"

    def file(own):
        return step("a", 1.0, time=coord("time", [1.0], units=old, bounds="edges"),
                    edges=data(("time", "nv"), [[0.0, 1.0]], attrs=own))  # fmt: skip

    new = edit(attrs={"time": {"units": "days since 1990-01-01"}})
    assert attrs(changed([file({"units": old})], new), "/edges") == {
        "units": "days since 1990-01-01"
    }
    assert attrs(changed([file({})], new), "/edges") == {}
    with pytest.raises(InvalidInputError, match="its bounds /edges have different units"):
        changed([file({"units": "hours since 2000-01-01"})], new)


# -- names that are there -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "near"),
    [
        ({"rename": {"tme": "t2"}}, "time"),
        ({"drop_variables": ["tt"]}, None),
        ({"attrs": {"tas": {"n": 1}}, "rename": {"t": "tass"}}, "tass"),
        ({"attrs": {"/g": {"n": 1}}}, None),
    ],
)
def test_an_edit_of_what_is_not_there_is_refused(change, near):
    facts = facts_of(step("a", 1.0), step("b", 2.0))
    with pytest.raises(InvalidInputError, match="no file has a variable") as caught:
        refuse_unknown_edits(facts, [edit(**change)], np.zeros(2, int), of_each=False)
    if near:
        assert near in caught.value.do
    with pytest.raises(
        InvalidInputError, match=r"preprocess changes .* in files that have no such"
    ):
        refuse_unknown_edits(facts, [edit(**change)], np.zeros(2, int), of_each=True)


def test_an_edit_of_what_some_files_have_is_fine():
    facts = facts_of(step("a", 1.0), step("b", 2.0, u=data("x", [1, 2, 3])))
    there = edit(rename={"u": "w", "x": "lon"}, attrs={"/": {"n": 1}, "w": {"n": 1}})
    refuse_unknown_edits(facts, [there], np.zeros(2, int), of_each=False)
    refuse_unknown_edits(facts, [there, NOTHING], np.array([1, 0]), of_each=True)
    refuse_unknown_edits(
        facts, [edit(attrs={"member": {"n": 1}})], np.zeros(2, int), ["member"], of_each=False
    )


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"pad": ("y",)}, "pad names 'y'"),
        ({"pad": ("time",)}, "pad names 'time'"),
        ({"spacing": {"run": 1.0}}, "positions come from labels"),
        ({"tolerance": {"lat": 1.0}}, "tolerance names 'lat', but no file"),
        ({"tolerance": {"t": 1.0}}, "without a concatenated dimension, and 't' has one"),
        (
            {"float_variables": ("m",)},
            "with a concatenated dimension, and 'm' has none",
        ),
        ({"tolerance": {"*": 1.0}}, None),
        ({"tolerance": {"/m": 1.0}, "pad": ("x",), "spacing": {"time": 1.0}}, None),
        ({"float_variables": ("t",)}, None),
    ],
)
def test_options_concern_something(options, message):
    facts = facts_of(step("a", 1.0, m=data("x", [1, 2, 3])))
    if message is None:
        refuse_void_options(facts, spec("time", **options), ["run"])
        return
    with pytest.raises(InvalidInputError, match=message):
        refuse_void_options(facts, spec("time", **options), ["run"])


# -- attributes of labels -------------------------------------------------------------------------


def labelled(*edits, everywhere=NOTHING, policy="override", **attributes):
    """Return the attributes of a dimension of labels; each file has the next edit."""
    files = [step(f"f{n}", 0.0, run=label(n, **attributes)) for n in range(len(edits))]
    made = new_dimension(facts_of(*files), "run", "variable:run")
    edits_of_labels = LabelEdits(edits=edits, of_file=np.arange(len(edits)), everywhere=everywhere)
    return dict(
        with_label_edits(made, edits_of_labels, np.arange(len(edits)), policy).attributes.values
    )


def test_labels_get_what_files_say_and_then_what_all_say():
    one, other = (edit(attrs={"run": {"title": text, "n": 1}}) for text in "ab")
    assert labelled(one, other) == {"title": "a", "n": 1}
    assert labelled(one, other, policy="drop_conflicts") == {"n": 1}
    assert labelled(one, NOTHING, everywhere=edit(attrs={"run": {"n": 2}})) == {
        "title": "a",
        "n": 2,
    }


def test_labels_cannot_mean_different_things():
    one, other = (edit(attrs={"run": {"units": text}}) for text in ("m", "km"))
    with pytest.raises(
        CombineError, match="different attributes for the labels of 'run'"
    ) as caught:
        labelled(one, other)
    assert "units" in caught.value.do
    with pytest.raises(InvalidInputError, match="have the units of the variable"):
        labelled(one, units="km")


def test_edits_of_labels_follow_their_files():
    edits_of_labels = LabelEdits(edits=(NOTHING,), of_file=np.array([0, 1, 2]), everywhere=NOTHING)
    assert edits_of_labels.take(np.array([2, 0])).of_file.tolist() == [2, 0]
