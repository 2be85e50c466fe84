"""Arrays get dimensions that they lack by rules, as in xarray, and never by their values."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from icevirt.archive.plan import ArrayMode
from icevirt.errors import CombineError, InvalidInputError
from icevirt.planning.axes.axis import AxisPlacement
from icevirt.planning.combine.data_vars import (
    DimensionRules,
    Kept,
    data_vars_of,
    gets,
    refuse_unknown_dimensions,
    refuse_unknown_names,
)
from icevirt.planning.combine.unlike_files import Unequal, remedy
from unit.planning.scanned_facts import ZLIB, coord, data, label, plan, shown, step

RUNS = {"labels": {"run": ["a", "b"]}}


def two(**more):
    """Two files of the same steps, which differ in a run."""
    return [
        step(name, 0.0, 1.0, u=data("x", [at, 1, 2]), area=data("x", [1, 1, 1]), **more)
        for at, name in enumerate("ab")
    ]


def dims(files=None, *along, **options):
    """Return the dimensions of the arrays of a plan by name."""
    files = files or two()
    made = plan(files, *(along or ("run",)), **{**RUNS, **options})
    return {name: each.dims for name, each in shown(made, files).variables.items()}


def test_a_new_dimension_goes_to_all_data_variables():
    """And to no coordinate."""
    found = dims()
    assert found["t"] == ("run", "time", "x")
    assert found["u"] == found["area"] == ("run", "x")
    assert found["time"] == ("time",)
    assert found["run"] == ("run",)


@pytest.mark.parametrize(
    ("asked", "wanted"),
    [
        ({"run": ("t", "u")}, {"t", "u"}),
        ({"": ("t", "/u")}, {"t", "u"}),
        ({"run": ("all",)}, {"t", "u", "area"}),
        ({"run": ("minimal", "u", "t")}, {"t", "u"}),
    ],
)
def test_data_vars_say_what_gets_it(asked, wanted):
    found = dims(data_vars=asked)
    assert {name for name, each in found.items() if "run" in each} == {*wanted, "run"}


def test_a_dimension_of_the_files_goes_to_what_is_named():
    """It is repeated for each of a file's steps, as in ``xarray.concat``."""
    files = [step("a", 0.0, 1.0, u=data("x", [1, 2, 3])), step("b", 2.0, u=data("x", [4, 5, 6]))]
    made = plan(files, data_vars={"time": ("u",)})
    (u,) = (each for each in made.arrays if each.path == "/u")
    assert (u.shape, u.mode) == ((3, 3), ArrayMode.concat)
    assert u.references.virtual == u.expected == 3
    assert shown(made, files)["u"].values.tolist() == [[1, 2, 3], [1, 2, 3], [4, 5, 6]]


def test_an_array_that_gets_two_dimensions_is_repeated_for_each_pair_of_steps():
    levels = {
        "level": coord("level", [1.0, 2.0, 3.0]),
        "z": data(("level", "time"), np.ones((3, 2))),
    }
    file = step("a", 0.0, 1.0, u=data("x", [1, 2, 3]), **levels)
    made = plan([file], "level", "time", data_vars={"level": ("u", "t"), "time": ("u",)})
    (u,) = (each for each in made.arrays if each.path == "/u")
    assert u.shape == (3, 2, 3)
    assert u.references.virtual == u.expected == 6


def test_what_does_not_get_it_must_be_equal():
    """The error says what to paste."""
    with pytest.raises(CombineError, match=r"/u does not have the dimension 'run'") as caught:
        dims(data_vars={"run": ("t",)})
    assert '"data_vars": ["t", "u"]}' in str(caught.value)


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"level": ("t",)}, "dimensions that are not in concat_dim"),
        ({"run": ("nothing",)}, "variables that no file has"),
        ({"run": ("time", "t")}, "/time is a dimension coordinate"),
    ],
)
def test_rules_name_what_is_there(asked, message):
    with pytest.raises(InvalidInputError, match=message):
        dims(data_vars=asked)


def test_a_dimension_that_nothing_gets_is_refused():
    with pytest.raises(CombineError, match="no variable gets the dimension 'run'"):
        dims(data_vars={"run": ("minimal",)})


def test_the_next_build_keeps_what_the_last_one_made():
    """Whatever the default says; words that are passed now count more."""
    kept = Kept(dimensions={"/t": ("run", "time", "x"), "/area": ("x",)})
    assert dims(kept=kept)["area"] == ("x",)
    assert dims(kept=kept)["u"] == ("run", "x")  # which the last build had not
    assert dims(kept=kept, data_vars={"run": ("all",)})["area"] == ("run", "x")
    files = [step(n, 0.0, area=data("x", [at, 1, 1])) for at, n in enumerate("ab")]
    with pytest.raises(CombineError, match='"allow_changes": True'):
        plan(files, "run", kept=kept, **RUNS)


def test_variables_of_labels_get_their_dimension_and_no_other():
    files = [
        step(f"{m}{t}", 0.0, m=label(m), start=label(t * 10)) for m in range(2) for t in range(2)
    ]
    made = plan(
        files, "m", "init", labels={"m": "variable:m", "init": "variable:start"},
        data_vars={"m": ("t",)}, missing="reserve",
    )  # fmt: skip
    found = {name: each.dims for name, each in shown(made, files).variables.items()}
    assert found["m"] == ("m",)
    assert found["start"] == ("init",)


@pytest.mark.parametrize(
    ("codecs", "fine"), [(({"name": "vlen-bytes"},), True), ((ZLIB[1],), False), ((), False)]
)
def test_a_codec_that_takes_no_further_axis_is_refused(codecs, fine):
    files = [step(n, 0.0, u=data("x", [1, 2, 3], codecs=codecs)) for n in "ab"]
    if fine:
        assert dims(files)["u"] == ("run", "x")
        return
    with pytest.raises(CombineError, match="cannot take another axis"):
        dims(files)


def test_a_file_without_the_dimension_has_no_steps_to_repeat_for():
    files = [step("a", 0.0, u=data("x", [1, 2, 3])), step("b", 1.0, u=data("x", [1, 2, 3]))]
    files[1].variables.pop("t")
    files[1].variables.pop("time")
    with pytest.raises(CombineError, match="no variable along 'time', so its steps are unknown"):
        plan(files, data_vars={"time": ("u",)})


@pytest.mark.parametrize("labels", [["low", "high"], [1, 2], [0.5, 2.5]])
def test_labels_are_stored_in_one_chunk(labels):
    made = plan(two(), "run", labels={"run": labels}, group="/g")
    run = made.arrays[-1]
    assert (run.path, run.mode, run.expected) == ("/g/run", ArrayMode.given, 1)
    assert run.values.tolist() == labels
    assert run.schema.data_type == {str: "string", int: "int64", float: "float64"}[type(labels[0])]


# -- words ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "made"),
    [
        (None, {}),
        ("all", {"": ("all",)}),
        (["t", "all"], {"": ("t", "all")}),
        ({"run": "minimal", "time": ["u"]}, {"run": ("minimal",), "time": ("u",)}),
    ],
)
def test_data_vars_are_words_and_names_by_dimension(given, made):
    assert data_vars_of(given) == made


@pytest.mark.parametrize("given", [1, [], [1], "", b"all", {"run": []}, {"run": None}])
def test_what_is_no_data_vars_is_refused(given):
    with pytest.raises(InvalidInputError, match="data_vars must be"):
        data_vars_of(given)


def test_values_never_decide():
    with pytest.raises(InvalidInputError, match="values change from build to build"):
        data_vars_of("different")


names = st.sampled_from(["all", "minimal", "u", "/u", "/all", "v"])


@settings(max_examples=25)
@given(
    st.lists(names, min_size=1, max_size=3),
    st.sampled_from(["/u", "/g/u", "/all", "/v"]),
    st.booleans(),
    st.booleans(),
)
def test_words_and_names_decide_as_a_table_does(words, path, is_new, is_coordinate):
    name = path.rsplit("/", 1)[1]
    named = path in words or (name in words and name not in ("all", "minimal"))
    wanted = named or ("all" in words and not is_coordinate)
    how = {"is_new": is_new, "is_coordinate": is_coordinate}
    assert gets({"time": tuple(words)}, "time", path, **how) == wanted
    assert gets({"run": tuple(words)}, "time", path, **how) == (is_new and not is_coordinate)
    assert gets({"": tuple(words)}, "time", path, **how) == wanted


def test_the_remedy_repeats_what_was_said_for_every_dimension():
    rules = DimensionRules(
        dimensions=("run", "time"), asked={"run": ("t",)}, kept=Kept(data_vars={"time": ("u",)})
    )
    run = AxisPlacement(dimension="run", cell=np.arange(2), count=2, is_new=True)

    def lacking(path):
        return Unequal(array=(path, ("x",)), rows=(0, 1), axis=run)

    assert remedy(rules, [lacking("/v")]) == {"run": ["t", "v"], "time": ["u"]}
    alone = DimensionRules(dimensions=("run",), asked={}, kept=Kept())
    assert remedy(alone, [lacking("/all"), lacking("/g/v")]) == ["all", "/all", "/g/v"]


def test_unknown_names_are_listed():
    with pytest.raises(InvalidInputError, match="no file has") as caught:
        refuse_unknown_names({"": ("t", "/g/t", "x", "all")}, ["/g/t"])
    assert caught.value.facts["unknown"] == ["x"]
    refuse_unknown_dimensions({"": ("x",), "time": ("x",)}, ["time"])
    assert np.all([gets({}, "run", "/t", is_new=True, is_coordinate=False)])
