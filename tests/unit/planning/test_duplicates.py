"""Of files that hold the same steps, a rule keeps one; without a rule they are refused."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from icevirt.errors import CombineError
from icevirt.planning.axes.duplicates import describe_duplicates, remedy, settle_duplicates
from icevirt.planning.axes.new_dimensions import new_dimension
from unit.planning.scanned_facts import File, coord, data, facts_of, plan, step


def kept(files, rule, *dims):
    """Return the names of the files that a rule keeps, and those that it leaves out."""
    found = settle_duplicates(facts_of(*files), dims or ("time",), rule, ())
    assert found.refused is None
    return [files[at].name for at in found.kept], {
        each.url[-len("aa") :]: each.kept[-len("aa") :] for each in found.left_out
    }


@settings(max_examples=20)
@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(0, 2), st.integers(0, 9)), min_size=1,
             max_size=9),
    st.sampled_from(["first", "last", "newest", "version"]),
)  # fmt: skip
def test_one_file_of_each_step_is_kept(found, rule):
    """As a loop over all pairs says."""
    files = [
        step(f"v{version}_{at}", time, modified=modified)
        for at, (time, modified, version) in enumerate(found)
    ]
    better = {
        "first": lambda at: -at,
        "last": lambda at: at,
        "newest": lambda at: (found[at][1], found[at][2], at),
        "version": lambda at: (found[at][2], at),
    }[rule]
    wanted = [
        at
        for at in range(len(found))
        if all(better(at) >= better(o) for o in range(len(found)) if found[o][0] == found[at][0])
    ]
    assert settle_duplicates(facts_of(*files), ("time",), rule, ()).kept.tolist() == wanted


def test_numbers_in_names_are_compared_as_numbers():
    files = [step(name, 1.0) for name in ("v9", "v10", "v8")]
    assert settle_duplicates(facts_of(*files), ("time",), "version", ()).kept.tolist() == [1]


def test_files_of_other_variables_are_no_duplicates():
    """They merge."""
    files = [step("aa", 1.0), step("ab", 1.0, t=None, u=data("time", [1.0])), step("ac", 2.0)]
    assert kept(files, "newest") == (["aa", "ab", "ac"], {})


def test_files_of_the_coordinate_alone_are_no_duplicates():
    files = [File(name, {"time": coord("time", [1.0])}) for name in ("aa", "ab")]
    assert kept(files, "newest") == (["aa", "ab"], {})


def test_a_missing_label_is_equal_to_none():
    files = [step(name, float("nan")) for name in ("aa", "ab")]
    assert kept(files, "newest") == (["aa", "ab"], {})


def test_the_refusal_names_step_files_and_remedies():
    days = {"units": "days since 2000-01-01"}
    files = [
        step(f"a{n}", 0.0, 1.0, time=coord("time", [n // 2 * 2.0, n // 2 * 2.0 + 1.0], **days))
        for n in range(4)
    ]
    error = settle_duplicates(facts_of(*files), ("time",), "refuse", ()).refused
    assert "2 files hold the same variables at the same step" in str(error)
    assert "time=2000-01-01 to 2000-01-02" in str(error)
    assert "1 other steps have the same problem" in str(error)
    assert error.facts["files"] == [each.url for each in files[:2]]
    assert '{"combine": "nested"}' in str(error)


def test_files_of_one_label_of_a_new_dimension_are_duplicates():
    facts = facts_of(*(step(name, 1.0) for name in ("r1-aa", "r1-ab", "r2-aa")))
    new = [new_dimension(facts, "run", "regex:r([0-9])")]
    assert settle_duplicates(facts, ("time",), "last", new).kept.tolist() == [1, 2]
    error = settle_duplicates(facts, ("time",), "refuse", new).refused
    assert error.facts["step"] == {"run": "1", "time": "1.0"}
    assert "nested" not in str(error)


def test_a_rule_needs_the_coordinate():
    files = [File(name, {"t": data("time", [1.0])}) for name in ("aa", "ab")]
    with pytest.raises(CombineError, match="cannot compare steps"):
        kept(files, "newest")
    assert settle_duplicates(facts_of(*files), ("time",), "refuse", ()).kept.tolist() == [0, 1]


def test_the_plan_says_what_was_left_out():
    files = [step("a", 1.0), step("b", 1.0), step("c", 2.0), step("d", 2.0)]
    made = plan(files, duplicates="first")
    (note,) = describe_duplicates(made.left_out, "first")
    assert note in made.notes
    assert note.startswith("2 files left out because other files hold the same steps")
    assert note.endswith(": b (kept: a), d (kept: c)")
    assert describe_duplicates((), "first") == []


def test_the_remedy_names_the_variables_that_one_file_lacks():
    facts = facts_of(step("a", 1.0), step("b", 1.0, u=data("time", [1.0])), step("c", 1.0))
    assert "--drop-variable /u" in remedy(facts, (0, 1), ["time"]).in_flags("")
    assert remedy(facts, (0, 2), ["time"]).startswith("Leave one of them out, or choose one")
