"""One variable of many files: its files in their order, and what they must agree in."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from icevirt.archive.facts import by_path
from icevirt.errors import CombineError
from icevirt.planning.axes.placement import as_given, place_files
from icevirt.planning.combine.variables import members_of, place_in_cells
from unit.planning.scanned_facts import ZLIB, File, coord, data, facts_of, spec, step

PACKED = {"scale_factor": 0.5, "_FillValue": np.int16(-1)}


def members(files, *dims, pad=(), rules=None):
    """Return the variables of files by path, placed by their labels."""
    facts = facts_of(*files)
    asked = spec(*(dims or ("time",)), pad=pad, **(rules or {}))
    cells = place_files(facts, asked.concat_dim, {}, {})
    found = members_of(facts, cells, asked)
    return {each.path: each for each in found}


def v(values=(1.0, 2.0), dims=("time", "x"), **changes):
    return data(dims, np.array([values], "f4"), **changes)


@settings(max_examples=15)
@given(st.lists(st.lists(st.sampled_from("abc"), unique=True), max_size=8))
def test_rows_of_each_array_are_found_in_their_order(held):
    files = [File(f"f{n}", {name: v() for name in each}) for n, each in enumerate(held)]
    facts = facts_of(*files)
    order = facts.arrays.path
    for path, rows in by_path(facts):
        assert rows.tolist() == [at for at in range(len(order)) if order[at] == path]
    assert sum(len(rows) for _, rows in by_path(facts)) == sum(map(len, held))


@settings(max_examples=15)
@given(st.lists(st.integers(0, 50), min_size=1, max_size=8, unique=True))
def test_files_of_a_variable_are_in_the_order_of_their_cells(times):
    found = members([step(f"f{n}", at) for n, at in enumerate(times)])["/t"]
    if len(times) > 1:
        assert found.rows.tolist() == [2 * n for n in np.argsort(times)]
        assert found.cell[:, 0].tolist() == list(range(len(times)))
    assert found.shapes.tolist() == [[1, 3]] * len(times)
    assert found.lengths.tolist() == [[1]] * len(times)
    assert found.schema.chunk_shape == (1, 3)
    assert not found.is_incomplete


def test_the_schema_is_of_a_file_that_keeps_its_chunks():
    """Where the scan read the values of others, they are stored like these chunks."""
    files = [step("a", 1.0, v=v(chunks=None)), step("b", 2.0, v=v())]
    found = members(files)["/v"]
    assert found.whole.tolist() == [True, False]
    assert found.schema.chunk_shape == (1, 2)
    assert found.whole_schema.chunk_shape is None


UNLIKE = {
    "data type": (data(("time", "x"), [[1, 2]]), "data type"),
    "scale": (v(attrs={"scale_factor": 2.0}), "attribute scale_factor"),
    "codec": (v(codecs=ZLIB[:1]), "codecs"),
    "chunk shape": (v(chunks=(1, 1)), "chunk shape"),
    "fill value": (v(fill=9), "fill value"),
    "units": (v(attrs={"units": "K"}), "attribute units"),
    "dimensions": (v(dims=("time", "y")), "dimension names"),
}


@pytest.mark.parametrize(("other", "what"), UNLIKE.values(), ids=UNLIKE)
def test_files_that_decode_differently_are_refused(other, what):
    files = [step("a", 1.0, v=v()), step("b", 2.0, v=other)]
    with pytest.raises(CombineError, match=rf"/v is encoded differently.*{what}") as caught:
        members(files)
    assert caught.value.facts["first"].endswith("a")
    assert caught.value.facts["other"].endswith("b")


@pytest.mark.parametrize(
    "level", [{"level": 9}, {"level": 4, "acceleration": 2}], ids=["level", "acceleration"]
)
def test_what_only_an_encoder_uses_may_differ(level):
    other = (ZLIB[0], {"name": "numcodecs.zlib", "configuration": level})
    assert members([step("a", 1.0, v=v()), step("b", 2.0, v=v(codecs=other))])["/v"].alike.all()


@pytest.mark.parametrize(
    ("rules", "other", "permitted"),
    [
        ({"on_mismatch": "native"}, v(chunks=(1, 1)), True),
        ({"on_mismatch": "native"}, v(attrs={"scale_factor": 2.0}), True),
        ({"float_variables": ("v",)}, v(attrs={"scale_factor": 2.0}), True),
        ({"float_variables": ("/u",)}, v(attrs={"scale_factor": 2.0}), False),
        ({"on_mismatch": "native"}, v(attrs={"units": "K"}), False),
        ({"chunk_grid": "rectilinear"}, v(chunks=(2, 2)), True),
        ({"chunk_grid": "rectilinear"}, v(chunks=(2, 1)), False),
    ],
)
def test_rules_permit_what_can_be_stored(rules, other, permitted):
    files = [step("a", 1.0, v=v()), step("b", 2.0, v=other)]
    if permitted:
        assert len(members(files, rules=rules)["/v"].rows) == 2
        return
    with pytest.raises(CombineError, match="encoded differently"):
        members(files, rules=rules)


def test_values_count_as_most_of_them_are_packed():
    """By volume, not by files."""
    packed = {"attrs": {"scale_factor": 2.0}}
    files = [
        step("a", 1.0, v=v()),
        step("b", 2.0, v=v()),
        step(
            "c", *range(3, 9), v=data(("time", "x"), np.ones((6, 2), "f4"), chunks=(1, 2), **packed)
        ),
    ]
    found = members(files, rules={"on_mismatch": "native"})["/v"]
    assert found.schema.attributes.values == {"scale_factor": 2.0}
    assert found.alike.tolist() == [False, False, True]


@pytest.mark.parametrize("along", ["x", "y"])
def test_grids_may_differ_only_along_padded_dimensions(along):
    files = [step("a", 1.0, v=v()), step("b", 2.0, v=v((1.0, 2.0, 3.0), chunks=(1, 2)))]
    if along == "y":
        with pytest.raises(CombineError, match=r"differ along x") as caught:
            members(files, pad=(along,))
        assert caught.value.facts["first_shape"] == {"time": 1, "x": 2}
        assert caught.value.facts["other_shape"] == {"time": 1, "x": 3}
        assert caught.value.fixes[0].arguments == {"combine_options": {"pad": ["y", "x"]}}
        return
    found = members(files, pad=(along,))["/v"]
    assert found.ragged == (1,)
    assert found.is_incomplete


def test_a_variable_that_lacks_the_dimension_gets_no_padding():
    files = [step("a", 1.0, m=data("y", [1, 2])), step("b", 2.0, m=data("y", [1, 2, 3]))]
    with pytest.raises(CombineError, match="grids of variable /m differ along y") as caught:
        members(files, pad=("y",))
    given = {"data_vars": ["m"], "pad": ["y"]}
    assert caught.value.fixes[0].arguments == {"combine_options": given}


def test_a_dimension_twice_is_refused():
    square = data(("time", "time"), [[1.0]])
    with pytest.raises(CombineError, match="concatenated dimension twice"):
        members([step("a", 1.0, v=square), step("b", 2.0, v=square)])


def test_two_files_of_one_box_are_refused_unless_they_hold_the_same():
    same = [step("a", 1.0, v=v()), step("b", 1.0, v=v(), u=v())]
    assert members(same)["/v"].again.tolist() == [False, True]
    for other in (v((1.0, 9.0)), v(digest="")):
        with pytest.raises(CombineError, match=r"two files overlap along 'time': both hold /v"):
            members([same[0], step("b", 1.0, v=other, u=v())])


def test_values_that_the_scan_read_may_be_in_several_files_of_a_box():
    """They are compared where they are written; other lengths are refused."""
    two = coord("time", [1.0])
    found = members([step("a", 1.0), step("b", 1.0, t=None, u=v(), time=two)])["/time"]
    assert found.cell.tolist() == [[0], [0]]
    assert not found.again.any()


def test_variables_of_equal_files_share_their_cells():
    facts = facts_of(*(step(f"f{n}", n, u=v()) for n in range(3)))
    asked = spec("time")
    cells = as_given(facts, ["time"])
    t, time, u = members_of(facts, cells, asked)
    assert t.cell is time.cell is u.cell
    by_labels = place_files(facts, ["time"], {}, {})
    assert place_in_cells(t, by_labels).along == by_labels.axes
    assert place_in_cells(t, by_labels).cell is t.cell


def test_axes_without_a_name_are_called_by_number():
    files = [
        step("a", 1.0, v=v(dims=("time", None))),
        step("b", 2.0, v=v((1, 2, 3), ("time", None))),
    ]
    with pytest.raises(CombineError, match=r"encoded differently|differ along axis 1"):
        members(files)
    nameless = [
        step(n, 1.0, v=v(w, ("time", None), chunks=(1, 2)))
        for n, w in (("a", (1, 2)), ("b", (1, 2, 3)))
    ]
    with pytest.raises(CombineError, match="differ along axis 1"):
        members(nameless)
