"""Steps that no file holds are refused, or read as what readers take for "missing"."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from icevirt.errors import CombineError
from icevirt.planning.axes.gaps import can_reserve, missing_value
from unit.planning.scanned_facts import coord, data, label, plan, shown, step

MISSING = {"_FillValue": np.float32(-9)}


def u(at, *, fill=-9.0, attrs=MISSING, **changes):
    """A variable that a file may lack."""
    return data(("time", "x"), np.full((1, 3), at, "f4"), attrs=attrs, fill=fill, **changes)


@settings(max_examples=10)
@given(st.lists(st.booleans(), min_size=2, max_size=7).filter(any))
def test_reserved_steps_read_as_missing_and_all_others_as_in_the_files(held):
    files = [step(f"f{n}", n, u=u(n) if has else None) for n, has in enumerate(held)]
    made = plan(files, missing="reserve")
    wanted = [n if has else -9 for n, has in enumerate(held)]
    assert shown(made, files)["u"].values[:, 0].tolist() == wanted
    assert any("/u has no file at" in note for note in made.notes) != all(held)


def test_the_refusal_names_the_first_steps_and_a_file_that_lacks_the_variable():
    files = [step(f"f{n}", n, u=u(n) if n in (0, 3) else None) for n in range(9)]
    with pytest.raises(
        CombineError, match=r"missing at 7 of 9 file positions along 'time'"
    ) as caught:
        plan(files)
    assert caught.value.facts["missing"] == [f"time={n}.0" for n in (1, 2, 4, 5, 6)]
    assert caught.value.facts["first"].endswith("f1")
    assert '{"missing": "reserve"}' in str(caught.value)


@pytest.mark.parametrize(
    ("variable", "why"),
    [
        (data("time", np.array([1], "i4")), "no _FillValue that its data type can hold"),
        (u(1, fill=0.0, chunks=(1, 1), written=1), "some of its chunks were never written"),
    ],
    ids=["nothing means missing", "unwritten chunks read as something else"],
)
def test_what_cannot_read_as_missing_is_refused(variable, why):
    files = [step("a", 1.0, u=variable), step("b", 2.0)]
    with pytest.raises(CombineError, match=why):
        plan(files, missing="reserve")


def test_a_fill_value_that_no_file_uses_becomes_the_missing_one():
    """HDF5's own is often 0, which is a plausible amount of rain."""
    files = [step("a", 1.0, u=u(1, fill=0.0)), step("b", 2.0)]
    (made,) = (each for each in plan(files, missing="reserve").arrays if each.path == "/u")
    assert made.schema.fill_value == -9.0


@pytest.mark.parametrize(
    ("kind", "attrs", "wanted"),
    [
        ("f4", {}, "NaN"),
        ("f4", {"missing_value": np.float32(np.nan)}, "NaN"),
        ("f4", {"_FillValue": np.float32(1e20), "missing_value": 3.0}, float(np.float32(1e20))),
        ("i2", {}, None),
        ("i2", {"_FillValue": np.int32(70_000)}, None),
        ("i2", {"_FillValue": np.int32(70_000), "missing_value": np.int16(-1)}, -1),
        ("u1", {"_FillValue": np.int8(-1)}, None),
        ("U3", {"_FillValue": "no"}, "no"),
        ("U3", {}, ""),
        ("S1", {"missing_value": " "}, "IA=="),
        ("S2", {"_FillValue": "none"}, ""),  # longer than its texts
        ("S1", {}, ""),
        ("?", {}, None),
    ],
)
def test_the_missing_value_is_one_that_the_data_type_holds(kind, attrs, wanted):
    schema = data("x", np.zeros(1, kind), attrs=attrs).schema
    assert missing_value(schema) == wanted
    assert can_reserve([schema]) == (wanted is not None)


def test_the_length_of_a_missing_step_comes_from_other_variables():
    files = [step("a", 0.0, u=u(0)), step("b", 1.0, 2.0, 3.0), step("c", 4.0, u=u(4))]
    made = shown(plan(files, missing="reserve"), files)
    assert made["u"].values[:, 0].tolist() == [0, -9, -9, -9, 4]


def test_the_length_of_a_missing_step_comes_from_the_group_above_that_has_the_dimension():
    files = [step("a", 0.0, **{"/g/u": u(0)}), step("b", 1.0, 2.0)]
    made = shown(plan(files, missing="reserve"), files)
    assert made["g/u"].values[:, 0].tolist() == [0, -9, -9]


def test_a_step_of_unknown_length_is_refused():
    """Of a variable whose group has a dimension of its own, by its length, and no labels."""
    one = {"/g/u": data(("time", "x"), np.zeros((2, 3), "f4"), attrs=MISSING, fill=-9.0)}
    files = [step("a", 0.0, **one), step("b", 1.0, 2.0)]
    with pytest.raises(CombineError, match="number of steps of /g/u that are missing"):
        plan(files, missing="reserve")


def test_a_file_without_a_group_that_has_labels_leaves_no_gap_there():
    """Labels of the group say which steps it has; a note says which files have none."""
    files = [
        step(name, n, **({"/g/u": u(n), "/g/time": coord("time", [n])} if n != 1.0 else {}))
        for n, name in enumerate("abc")
    ]
    made = plan(files)
    shapes = {each.path: each.shape for each in made.arrays}
    assert shapes == {"/time": (3,), "/t": (3, 3), "/g/u": (2, 3), "/g/time": (2,)}
    assert "1 of 3 files have no steps along 'time' in /g" in made.notes


def test_boxes_of_two_dimensions_are_counted_by_both():
    files = [step(f"m{m}t{t}", t, member=label(m)) for m in range(2) for t in range(3) if m * t < 2]
    with pytest.raises(CombineError, match="missing at 1 of 6") as caught:
        plan(files, "member", "time", labels={"member": "variable:member"})
    assert caught.value.facts["missing"] == ["member=1, time=2.0"]
    assert caught.value.facts["first"] is None
    found = shown(
        plan(files, "member", "time", labels={"member": "variable:member"}, missing="reserve"),
        files,
    )
    assert np.isnan(found["t"].values[1, 2]).all()
    assert not np.isnan(found["t"].values[:, :2]).any()


def test_what_is_missing_can_be_reserved_or_left_out_if_other_data_stays():
    alone = [step("a", 1.0, u=u(1), t=None), step("b", 2.0, t=None)]
    found = {}
    for name, files in (
        ("alone", alone),
        ("among others", [step("a", 1.0, u=u(1)), step("b", 2.0)]),
    ):
        with pytest.raises(CombineError, match="/u is missing at 1 of 2") as caught:
            plan(files)
        found[name] = [each.arguments for each in caught.value.fixes]
    reserve = {"combine_options": {"missing": "reserve"}}
    drop = {"scan_options": {"drop_variables": ["/u"]}}
    assert reserve in found["among others"]
    assert drop in found["among others"]
    assert drop not in found["alone"]


def test_all_variables_that_cannot_be_reserved_are_named_at_once():
    flag = data("time", np.array([1], "i4"))
    files = [step("a", 1.0, u=flag, w=flag), step("b", 2.0)]
    with pytest.raises(CombineError, match="neither can steps of /w") as caught:
        plan(files, missing="reserve")
    drops = [each.arguments["scan_options"]["drop_variables"] for each in caught.value.fixes
             if "scan_options" in each.arguments]  # fmt: skip
    assert drops == [["/u", "/w"]]
