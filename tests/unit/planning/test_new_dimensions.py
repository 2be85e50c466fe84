"""Files lie along a dimension that none has by labels: listed, or taken from name or content."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from icevirt.errors import CombineError, InvalidInputError
from icevirt.planning.axes.new_dimensions import dimension_of_nest, new_dimension, places_of_nest
from unit.planning.scanned_facts import File, coord, data, facts_of, label, step

DAYS = "days since 2000-01-01"


def along(labels, *files, name="member"):
    return new_dimension(facts_of(*files), name, labels)


def named(*names):
    return [step(name, 1.0) for name in names]


@settings(max_examples=15)
@given(st.lists(st.integers(-5, 5) | st.sampled_from(["a", "b"]), min_size=1, max_size=8))
def test_listed_labels_keep_their_order_and_equal_ones_share_a_cell(labels):
    files = named(*(f"f{n}" for n in range(len(labels))))
    if len({type(each) for each in labels}) > 1:
        labels = [str(each) for each in labels]
    found = along(labels, *files)
    known = list(dict.fromkeys(labels))
    assert found.values.tolist() == known
    assert found.values[found.cell].tolist() == labels
    rows = np.arange(len(files))[::2]
    some = found.take(rows)
    assert some.values[some.cell].tolist() == labels[::2]
    assert some.count == len(set(labels[::2]))


@pytest.mark.parametrize(
    ("names", "values", "cells"),
    [
        (("r10", "r9", "r010"), [9, 10], [1, 0, 1]),
        (("r1.5", "r-1", "r2"), [-1.0, 1.5, 2.0], [1, 0, 2]),
        (("rb", "ra", "r1"), ["1", "a", "b"], [2, 1, 0]),
    ],
    ids=["whole numbers", "numbers", "texts"],
)
def test_labels_in_names_are_numbers_where_all_are_and_sorted(names, values, cells):
    found = along("regex:/r([^/]*)$", *named(*names))
    assert (found.values.tolist(), found.cell.tolist()) == (values, cells)
    assert found.axis.name(0) == values[0]


def test_labels_are_attributes_of_files():
    files = [step(f"f{n}", 1.0, attrs={"run": run}) for n, run in enumerate(("b", "a"))]
    assert along("attribute:run", *files).values.tolist() == ["a", "b"]
    with pytest.raises(CombineError, match="no global attribute 'run'") as caught:
        along("attribute:run", files[0], step("x", 1.0))
    assert caught.value.facts["file"].endswith("/x")


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (["a"], "1 labels for 2 files"),
        (["a", 1.5], None),
        ([None, "b"], "all strings, all integers, all numbers or all dates"),
        ("regex:[", "not a regular expression"),
        ("regex:(a)(b)", "exactly one group"),
        ("regex:a", "exactly one group"),
        ("names", "neither a list nor a source"),
        ("attribute:", "neither a list nor a source"),
    ],
)
def test_labels_must_be_one_for_each_file(labels, message):
    files = named("a", "b")
    if message is None:
        assert along(labels, *files).values.tolist() == ["a", "1.5"]
        return
    with pytest.raises(InvalidInputError, match=message):
        along(labels, *files)


def test_a_file_without_a_label_is_named():
    with pytest.raises(CombineError, match="does not match") as caught:
        along("regex:r([0-9])", *named("r1", "x"))
    assert caught.value.facts["file"].endswith("/x")


@pytest.mark.parametrize("name", ["time", "x", "t"])
def test_a_dimension_or_variable_of_the_files_is_not_new(name):
    with pytest.raises(CombineError, match=r"the files already have (this one|a variable)"):
        along(["a"], *named("a"), name=name)


@pytest.mark.parametrize(
    ("others", "message"),
    [
        (step("b", 1.0), "it has no variable 'member'"),
        (step("b", 1.0, member=data("x", [1, 2, 3])), "/member has more than one value"),
        (step("b", 1.0, member=coord("n", [1, 2])), "/member has 2 values"),
        (step("b", 1.0, member=label(1.5)), "or data types"),
        (step("b", 1.0, member=label(-1, _FillValue=np.int64(-1))), "/member is missing there"),
    ],
)
def test_a_variable_of_labels_has_one_value_in_each_file(others, message):
    fill = {"_FillValue": np.int64(-1)} if "missing" in message else {}
    with pytest.raises(CombineError, match=message):
        along("variable:member", step("a", 1.0, member=label(7, **fill)), others)


def test_times_that_count_from_several_dates_are_brought_to_one():
    files = [
        step("a", 1.0, start=label(5, units=DAYS)),
        step("b", 1.0, start=label(2, units="days since 2000-01-02")),
    ]
    found = along("variable:start", *files, name="init")
    assert found.values.tolist() == [3, 5]
    assert found.cell.tolist() == [1, 0]
    assert found.attributes.values == {"units": DAYS}
    assert found.label_variable == "/start"
    assert found.variable is None
    assert along("variable:init", step("a", 1.0, init=label(5)), name="init").variable == "/init"


@pytest.mark.parametrize(
    ("units", "message"),
    [
        ("hours", "different units"),
        ("hours since 2000-01-01T00:30", "different units, calendars"),
    ],
)
def test_times_that_have_no_common_count_are_refused(units, message):
    files = [
        step("a", 1.0, start=label(5, units=DAYS)),
        step("b", 1.0, start=label(2, units=units, calendar="noleap")),
    ]
    with pytest.raises(CombineError, match=message):
        along("variable:start", *files, name="init")


def test_labels_that_are_packed_are_ordered_by_what_they_mean():
    files = [step(n, 1.0, z=label(v, scale_factor=-1.0)) for n, v in (("a", 1), ("b", 3))]
    assert along("variable:z", *files, name="height").values.tolist() == [3, 1]


# -- nested lists --------------------------------------------------------------------------------


def test_nested_files_lie_where_their_lists_say():
    facts = facts_of(*named("a", "b", "c", "d"))
    nest = {url: divmod(at, 2) for at, url in enumerate(facts.files.url)}
    assert places_of_nest(facts, ["m", "n"], nest).tolist() == [[0, 0], [0, 1], [1, 0], [1, 1]]
    assert places_of_nest(facts, ["m"], None).tolist() == [[0], [1], [2], [3]]


def test_nested_files_may_have_listed_labels():
    facts = facts_of(*named("a", "b", "c"))
    found = dimension_of_nest(facts, "m", np.array([2, 0, 0]), ["x", "y", "z"])
    assert found.values.tolist() == ["x", "z"]  # nothing lies at y
    assert found.cell.tolist() == [1, 0, 0]
    assert dimension_of_nest(facts, "m", np.array([0, 1, 2]), None).values is None
    for labels in (["x"], "regex:(.)"):
        with pytest.raises(InvalidInputError, match="one label for each of the 3 positions"):
            dimension_of_nest(facts, "m", np.array([2, 0, 0]), labels)
    with pytest.raises(CombineError, match="already have this one"):
        dimension_of_nest(facts, "time", np.array([0, 1, 2]), None)


def test_a_variable_deep_in_groups_is_found_by_name_and_by_path():
    files = [File(n, {"/b/c/run": label(9), "/a/run": label(at)}) for at, n in enumerate("ab")]
    assert along("variable:run", *files).label_variable == "/a/run"
    assert along("variable:/b/c/run", *files).values.tolist() == [9]
