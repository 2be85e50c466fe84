"""Axes with equal steps have a place for each step, also for those that no file holds."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from icevirt.errors import CombineError, InvalidInputError
from icevirt.planning.axes.axis import spacing_of
from icevirt.planning.axes.coordinates import coordinate_of
from icevirt.planning.axes.placement import steps_of
from unit.planning.scanned_facts import DAYS, File, coord, facts_of, plan, shown, step

SECONDS = {"units": "seconds since 2000-01-01"}


def steps(spacing, *labels, kind="f8", **attrs):
    """Return the steps of files, which are in their order."""
    files = [File(f"f{n}", {"time": coord("time", np.array(each, kind), **attrs)})
             for n, each in enumerate(labels)]  # fmt: skip
    facts = facts_of(*files)
    held = coordinate_of(facts, "time", np.arange(len(files)))
    return steps_of(held, facts.files.url, spacing, dimension="time")


@settings(max_examples=15)
@given(
    st.lists(st.integers(0, 40), min_size=1, max_size=8, unique=True),
    st.sampled_from([("1D", 1), ("2D", 2), ("12h", 0.5)]),
    st.sampled_from(["f8", "i4", "f4"]),
    st.booleans(),
)
def test_steps_lie_at_equal_distances_and_hold_the_labels_of_files(at, spacing, kind, falls):
    text, days = spacing
    if kind == "i4" and days < 1:
        days, text = 1, "24h"
    labels = [value * days for value in sorted(at, reverse=falls)]
    found = steps(text, *([each] for each in labels), kind=kind, **DAYS)
    sign = -1 if falls and len(at) > 1 else 1
    wanted = [labels[0] + n * sign * days for n in range(max(at) - min(at) + 1)]
    assert found.values.tolist() == wanted
    assert found.values[found.begins].tolist() == labels
    assert sorted({*wanted} - {*labels}) == sorted(found.values[found.absent].tolist())


def test_numbers_of_files_are_kept_where_they_are_off_by_a_rounding_error():
    found = steps(0.1, [0.0, 0.1], [0.30000000000000004])
    assert found.values.tolist() == [0.0, 0.1, 0.2, 0.30000000000000004]
    assert found.describe("x") == "1 of 4 steps along 'x' have no file and read as missing: 0.2"


@pytest.mark.parametrize(
    ("spacing", "labels", "more", "message"),
    [
        ("1D", [[0.0], [1.5]], DAYS, "not a whole number of steps"),
        ("1D", [[0.0, 2.0], [3.0]], DAYS, "missing within the file"),
        (1, [[0], [2]], {"kind": "f8", "scale_factor": 0.1}, "it is packed"),
        (1, [[0.0], []], {}, "is empty in a file"),
        ("12h", [[0], [1]], {**DAYS, "kind": "i4"}, "no exact value in the data type of /time"),
        (
            "1s",
            [[2**24], [2**24 + 2]],
            {**SECONDS, "kind": "f4"},
            "no exact value in the data type",
        ),
        (0.5, [[0], [2]], {"kind": "i4"}, "not a whole number of steps"),
    ],
    ids=["between steps", "hole in a file", "packed", "empty", "integers", "f4", "halves"],
)
def test_an_axis_that_is_not_regular_is_refused(spacing, labels, more, message):
    with pytest.raises(CombineError, match=message):
        steps(spacing, *labels, **more)


def test_labels_of_times_are_dates_in_errors():
    with pytest.raises(CombineError) as caught:
        steps("2D", [0.0], [2.0], [5.0], **DAYS)
    assert caught.value.facts["label"].startswith("2000-01-06")
    assert caught.value.facts["first_label"].startswith("2000-01-01")


def test_a_spacing_far_too_small_is_refused():
    with pytest.raises(InvalidInputError, match="so small that time would have"):
        steps(1e-9, [0.0], [1.0])
    with pytest.raises(InvalidInputError, match="without time units must be a number"):
        steps("1h", [0.0], [1.0])


@pytest.mark.parametrize("given", ["6h", "1D", "h", " 30 min ", 0.25, "0.25", 3])
def test_a_spacing_is_a_duration_or_a_number(given):
    assert spacing_of(given) in (given, float(given) if not str(given).strip()[-1].isalpha() else 0)


@pytest.mark.parametrize("given", ["0h", 0, -1, "month", "1y", None, [], float("nan"), "inf"])
def test_what_is_no_spacing_is_refused(given):
    with pytest.raises(InvalidInputError, match="spacing must be"):
        spacing_of(given)


@settings(max_examples=10)
@given(st.lists(st.integers(0, 12), min_size=2, max_size=5, unique=True))
def test_a_plan_reserves_missing_steps_of_all_variables(days):
    files = [step(f"f{day}", day, time=coord("time", [float(day)], **DAYS)) for day in days]
    made = plan(files, spacing={"time": "1D"})
    found = shown(made, files)
    low, high = min(days), max(days)
    assert found["time"].values.tolist() == list(range(low, high + 1))
    there = [int(value) for value in found["t"].values[:, 0] if not np.isnan(value)]
    assert there == sorted(days)
    missing = high - low + 1 - len(days)
    assert any(f"{missing} of {high - low + 1} steps" in note for note in made.notes) == bool(
        missing
    )


def test_texts_and_files_without_labels_have_no_steps():
    files = [File(name, {"time": coord("time", [name])}) for name in "ab"]
    with pytest.raises(CombineError, match="cannot be made regular: it has no numeric"):
        plan(files, spacing={"time": "1D"})


# -- what refusals propose -------------------------------------------------------------------------


@settings(max_examples=20)
@given(st.lists(st.integers(0, 60), min_size=2, max_size=8, unique=True), st.integers(2, 7))
def test_the_spacing_that_a_refusal_proposes_fits_and_no_wider_one_does(at, wrong):
    labels = [float(value) for value in sorted(at)]
    try:
        steps(f"{wrong}D", *([each] for each in labels), **DAYS)
    except CombineError as error:
        fixes = error.fixes
    else:
        return
    assert fixes[-1].without == ("--spacing=time",)
    (spacing,) = (each.arguments["combine_options"]["spacing"]["time"] for each in fixes[:-1])
    found = steps(spacing, *([each] for each in labels), **DAYS)
    assert found.values[found.begins].tolist() == labels
    assert fixes[0].price.startswith(f"{len(found.absent)} of {len(found.values)} steps")
    days = int(spacing.removesuffix("d"))
    assert days == np.gcd.reduce(np.diff(np.array(labels, int)))


def test_no_spacing_is_proposed_where_few_steps_would_have_a_file_or_files_have_gaps():
    for labels in ([[0.0], [1.0], [5000.5]], [[0.0, 2.0], [3.0]]):
        with pytest.raises(CombineError) as caught:
            steps("2D", *labels, **DAYS)
        assert [each.without for each in caught.value.fixes] == [("--spacing=time",)]
