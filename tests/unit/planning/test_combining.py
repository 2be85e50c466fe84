"""Combined files hold what xarray makes of the same files in memory."""

import itertools

import numpy as np
import pytest
import xarray as xr
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from icevirt.archive.plan import ArrayMode
from icevirt.errors import CombineError
from icevirt.planning.eras.group_plan import combine_eras
from unit.planning.scanned_facts import (
    coord,
    data,
    facts_of,
    label,
    names,
    plan,
    shown,
    spec,
    step,
)

JOINED = {"data_vars": "minimal", "coords": "minimal", "compat": "override", "join": "outer"}


def opened(file):
    """Return a file as xarray opens it, without decoding."""
    return xr.Dataset({name: (each.dims, each.values) for name, each in file.variables.items()})


@settings(max_examples=15)
@given(st.permutations(range(9)), st.lists(st.integers(1, 8), max_size=4))
def test_files_along_one_dimension_are_sorted_as_by_xarray(order, cuts):
    edges = sorted({0, 9, *cuts})
    runs = [range(low, high) for low, high in itertools.pairwise(edges)]
    files = [step(f"f{n}", *run) for n, run in enumerate(runs)]
    given_order = [files[n] for n in order if n < len(files)]
    made = shown(plan(given_order), given_order)
    wanted = xr.combine_by_coords([opened(each) for each in given_order], **JOINED)
    xr.testing.assert_equal(made, wanted.reset_coords().drop_indexes(list(wanted.indexes)))


@settings(max_examples=8)
@given(
    st.lists(st.integers(0, 30), min_size=2, max_size=6, unique=True),
    st.lists(st.integers(0, 30), min_size=1, max_size=4, unique=True),
    st.randoms(),
)
def test_boxes_of_two_dimensions_lie_where_xarray_puts_them(times, members, random):
    assume(len(times) > 1)
    files = [
        step(f"f{m}-{t}", t, t + 0.5, member=coord("member", [m]), v=box(t, m))
        for t in times
        for m in members
    ]
    assume(all(abs(a - b) >= 1 for a in times for b in times if a != b))
    random.shuffle(files)
    made = shown(plan(files, "member", "time", data_vars={"member": ("minimal",)}), files)
    wanted = xr.combine_by_coords([opened(each) for each in files], **JOINED)
    np.testing.assert_array_equal(made["v"], wanted["v"].transpose("member", "time"))
    np.testing.assert_array_equal(made["member"], sorted(members))
    np.testing.assert_array_equal(made["t"], wanted["t"])


def box(t, m):
    return data(("member", "time"), np.array([[100 * m + t, 100 * m + t + 0.5]]), chunks=(1, 1))


@settings(max_examples=6)
@given(st.lists(st.lists(st.integers(-9, 9), max_size=3), min_size=2, max_size=5))
def test_nested_files_are_concatenated_in_the_order_given(values):
    """Whatever their coordinates say."""
    assume(all(values))
    files = [step(f"f{n}", *each) for n, each in enumerate(values)]
    made = shown(plan(files, combine="nested"), files)
    wanted = xr.concat([opened(each) for each in files], "time", **JOINED)
    np.testing.assert_array_equal(made["t"], wanted["t"])
    np.testing.assert_array_equal(made["time"], wanted["time"])


@pytest.mark.parametrize("labels", [["b", "a", "c"], [3, 1, 2], [0.5, -1.0, 7.0]])
def test_files_are_stacked_along_a_new_dimension_in_the_order_of_the_list(labels):
    files = [step(f"f{n}", 0.0, 1.0, v=data("x", [n, n + 1, n + 2])) for n in range(3)]
    made = shown(plan(files, "member", labels={"member": labels}), files)
    wanted = xr.concat(
        [opened(each).set_coords("time") for each in files],
        xr.Variable("member", labels),
        coords="minimal",
        data_vars="all",
        compat="override",
        join="override",
    )
    for name in ("t", "v", "member", "time"):
        np.testing.assert_array_equal(made[name], wanted[name])


@settings(max_examples=8)
@given(st.lists(st.sampled_from(["t", "u"]), min_size=2, max_size=6), st.randoms())
def test_files_of_different_variables_merge_at_each_step(held, random):
    """And where a file is missing, nothing is made up: it is refused."""
    files = [
        step(
            f"{name}{at}", at, **({} if name == "t" else {"t": None, "u": data("time", [at * 1.0])})
        )
        for at in range(3)
        for name in sorted(set(held))
    ]
    random.shuffle(files)
    made = shown(plan(files), files)
    wanted = xr.combine_by_coords([opened(each) for each in files], **JOINED)
    for name in set(held):
        np.testing.assert_array_equal(made[name], wanted[name])
    if len(set(held)) == 2:
        with pytest.raises(CombineError, match=r"missing at 1 of 3 file positions along 'time'"):
            plan(files[1:])


def test_a_variable_without_the_dimension_is_stored_once():
    """From the first file, and a note says where some files lack it."""
    files = [step("a", 2.0, mask=data("x", [1, 2, 3])), step("b", 1.0)]
    made = plan(files)
    (mask,) = (each for each in made.arrays if each.path == "/mask")
    assert (mask.mode, mask.shape) == (ArrayMode.once, (3,))
    assert shown(made, files)["mask"].values.tolist() == [1, 2, 3]
    assert "/mask is in 1 of 2 files and stored once" in made.notes


@pytest.mark.parametrize(
    ("other", "message"),
    [
        (data("x", [1, 2, 4]), "values differ between files"),
        (data("x", [1, 2, 3], digest=""), "the scan did not compare them"),
        (data("x", [1, 2]), r"grids of variable /mask differ along x"),
        (data("x", [1.0, 2.0, 3.0]), "encoded differently"),
    ],
    ids=["other values", "unknown values", "other length", "other type"],
)
def test_a_variable_without_the_dimension_must_be_equal(other, message):
    files = [step("a", 1.0, mask=data("x", [1, 2, 3])), step("b", 2.0, mask=other)]
    with pytest.raises(CombineError, match=message) as caught:
        plan(files)
    assert {caught.value.facts["first"][-1], caught.value.facts["other"][-1]} == {"a", "b"}


def test_groups_take_attributes_by_the_policy_and_the_files_place_below_a_group():
    files = [step("a", 1.0, attrs={"title": "one", "run": 7}), step("b", 2.0, attrs={"run": 7})]
    made = plan(files, combine_attrs="drop_conflicts", group="/ocean")
    assert sorted(each.path for each in made.arrays) == ["/ocean/t", "/ocean/time"]
    assert b'"run": 7' in made.groups["/ocean"]
    with pytest.raises(CombineError, match="attributes differ"):
        plan([files[0], step("b", 2.0, attrs={"run": 8})], combine_attrs="identical")


def test_equal_columns_of_arrays_are_held_once():
    """A million files have the same rows in each variable."""
    files = [step(f"f{n}", n, u=data(("time", "x"), np.ones((1, 3)))) for n in range(3)]
    t, time, u = plan(files).arrays
    assert t.files is u.files is time.files
    assert t.starts is u.starts


@pytest.mark.parametrize(
    ("dims", "options", "message"),
    [
        ((), {}, "2 files but no dimension"),
        (("level",), {}, "no variable has the dimension 'level'"),
        (("time", "level"), {}, "no variable has the dimension 'level'"),
    ],
)
def test_a_dimension_must_be_there(dims, options, message):
    files = [step("a", 1.0), step("b", 2.0)]
    with pytest.raises(CombineError, match=message):
        combine_eras(facts_of(*files), spec(*dims, **options))


def test_labels_that_a_variable_holds_become_its_coordinate():
    files = [step(name, 0.0, member=label(at)) for name, at in (("a", 5), ("b", 3), ("c", 9))]
    made = plan(files, "member", labels={"member": "variable:member"})
    assert names(made) == ["b", "a", "c"]
    assert shown(made, files)["member"].values.tolist() == [3, 5, 9]
