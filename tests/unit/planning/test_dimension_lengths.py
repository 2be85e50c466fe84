"""Characters are padded without a word, and other dimensions to the longest of all variables."""

import numpy as np
import pytest

from icevirt.archive import kinds
from icevirt.archive.joining import dimensions_of_texts
from icevirt.errors import CombineError
from icevirt.planning.combine.dimension_lengths import FullLengths, kinds_of, with_texts_alike
from unit.planning.scanned_facts import data, facts_of, plan, step


def texts(*values, width, dim):
    """Return a variable of texts, a row of characters each."""
    rows = np.array(values, f"S{width}").view("S1").reshape(-1, width)
    return data(("time", dim), rows, chunks=None, fill="")


@pytest.mark.parametrize(
    ("arrays", "wanted"),
    [
        ([(("x", "n"), True)], {"n"}),
        ([(("x", "n"), True), (("n",), False)], set()),
        ([(("n", "m"), True), (("x", "n"), True)], {"m"}),
        ([(("x", None), True), ((), True)], set()),
    ],
    ids=["of texts", "of numbers, too", "not the last one", "without a name"],
)
def test_a_dimension_counts_characters_if_nothing_else_has_it(arrays, wanted):
    assert dimensions_of_texts(arrays) == wanted


def test_texts_get_the_name_of_the_longest():
    files = [
        step("a", 1.0, n=texts("Rom", width=3, dim="string3")),
        step("b", 2.0, n=texts("Berlin", width=6, dim="string6")),
    ]
    facts = with_texts_alike(facts_of(*files))
    (made,) = (each for each in plan(files).arrays if each.path == "/n")
    assert made.shape == (2, 6)
    assert made.schema.dimension_names == ("time", "string6")
    assert made.schema.fill_value == ""
    assert len(facts.arrays.schema.values) < len(facts_of(*files).arrays.schema.values)


def test_texts_of_one_length_stay_as_they_are():
    files = [step(n, at, n=texts("Rom", width=3, dim="string3")) for at, n in enumerate("ab")]
    facts = facts_of(*files)
    assert with_texts_alike(facts) is facts


def test_a_padded_variable_is_as_long_as_the_dimension_of_the_group():
    def v(length, **more):
        return data(("time", "z"), np.ones((1, length)), chunks=None, **more)

    files = [step("a", 1.0, v=v(2), only=v(2)), step("b", 2.0, v=v(5))]
    made = plan(files, pad=("z",), missing="reserve")
    assert {each.path: each.shape for each in made.arrays if each.path in ("/v", "/only")} == {
        "/v": (2, 5),
        "/only": (2, 5),
    }


def test_what_is_stored_once_cannot_be_shorter_than_a_padded_dimension():
    def v(length):
        return data(("time", "z"), np.ones((1, length)), chunks=None)

    files = [step("a", 1.0, v=v(2), depth=data(("z",), [1.0, 2.0])), step("b", 2.0, v=v(5))]
    with pytest.raises(
        CombineError, match="depth has 2 steps along 'z', which is padded to 5"
    ) as no:
        plan(files, pad=("z",), missing="reserve")
    (fix,) = no.value.fixes
    assert fix.flags == ("--drop-variable", "/depth")


@pytest.mark.parametrize("table", [1 << 26, 0], ids=["looked up", "sorted"])
def test_kinds_are_found_once(monkeypatch, table):
    monkeypatch.setattr(kinds, "_TABLE", table)
    arrays = facts_of(
        step("a", 1.0, t=None), step("b", 2.0, 3.0, t=None), step("c", 4.0, t=None)
    ).arrays
    found = {(arrays.path.values[k.path], arrays.shape.values[k.shape]) for k in kinds_of(arrays)}
    assert found == {("/time", "[1]"), ("/time", "[2]")}
    assert len(kinds_of(arrays)) == 2


def test_lengths_are_of_one_group():
    file = {"g/v": data(("z",), np.ones(3)), "v": data(("z",), np.ones(2))}
    found = FullLengths.of(facts_of(step("a", 1.0, **file)), ("z",))
    assert found.lengths == {("/", "z"): 2, ("/g", "z"): 3}


def test_an_index_within_files_is_refused_where_files_follow_one_another():
    attrs = {"instance_dimension": "time"}
    files = [step(n, at, i=data(("obs",), [0, 0], attrs=attrs)) for at, n in enumerate("ab")]
    with pytest.raises(CombineError, match="numbers the steps along 'time' within its own file"):
        plan(files)
