"""Times that files count from different dates are brought to one count, each exactly."""

import numpy as np
import pytest
import xarray as xr
from hypothesis import given, settings
from hypothesis import strategies as st

from icevirt.archive.schema import ArraySchema
from icevirt.errors import CombineError
from icevirt.planning.times.recoding import describe_recodings, recode_times
from unit.planning.scanned_facts import File, coord, data, facts_of, plan, shown, step


def since(day, unit="days", **more):
    return {"units": f"{unit} since 2000-01-{day:02}", **more}


def of(*coordinates, **more):
    """Recode the times of files."""
    files = [File(f"f{n}", {"time": each, **more}) for n, each in enumerate(coordinates)]
    return recode_times(facts_of(*files), ["time"])


@settings(max_examples=10)
@given(st.lists(st.tuples(st.integers(1, 28), st.integers(1, 20)), min_size=2, max_size=5))
def test_a_dataset_of_recoded_times_has_the_times_of_its_files(found):
    """As xarray decodes them."""
    files, start = [], 0
    for n, (day, count) in enumerate(found):
        own = np.arange(start, start + count) - day
        start += count
        files.append(step(f"f{n}", *own, time=coord("time", own * 1.0, **since(day))))
    made = plan(files)
    units = {n: {"units": f"days since 2000-01-{day:02}"} for n, (day, _) in enumerate(found)}
    wanted = [
        xr.decode_cf(xr.Dataset({"v": ("time", f.variables["time"].values, units[n])}))["v"].values
        for n, f in enumerate(files)
    ]
    (time,) = (each for each in made.arrays if each.path == "/time")
    attrs = {"units": time.schema.attributes.values["units"]}
    held = xr.decode_cf(xr.Dataset({"v": ("time", shown(made, files)["time"].values, attrs)}))
    np.testing.assert_array_equal(held["v"].values, np.sort(np.concatenate(wanted)))


def test_the_first_reference_date_counts_in_the_finest_unit():
    facts, done = of(coord("time", [1.0], **since(5)), coord("time", [3.0], **since(2, "hours")))
    assert done["/time"].target.text == "hours since 2000-01-05"
    assert [facts.arrays.labels.at(n).tolist() for n in range(2)] == [[24.0], [-69.0]]
    (text,) = facts.arrays.schema.values
    assert ArraySchema.loads(text).attributes.values == {"units": "hours since 2000-01-05"}
    assert [*describe_recodings(done)] == [
        "/time: 2 time units converted to 'hours since 2000-01-05' (float64), every value exactly"
    ]


def test_missing_times_are_the_one_integer_that_no_time_can_be():
    facts, _ = of(*(coord("time", [1, -9], **since(d, _FillValue=np.int64(-9))) for d in (5, 2)))
    assert facts.arrays.labels.at(1).tolist() == [-2, np.iinfo("i8").min]
    (text,) = facts.arrays.schema.values
    assert ArraySchema.loads(text).attributes.values["_FillValue"] == np.iinfo("i8").min


def test_bounds_without_units_follow_their_coordinate():
    edges = coord("time", [[0.0, 1.0]])
    files = [
        File(f"f{day}", {"time": coord("time", [1.0], **since(day, bounds="edges")),
                         "edges": data(("time", "nv"), edges.values, chunks=None)})
        for day in (5, 2)
    ]  # fmt: skip
    _, done = recode_times(facts_of(*files), ["time"])
    assert done["/edges"].target == done["/time"].target
    assert shown(plan(files), files)["edges"].values.tolist() == [[-3.0, -2.0], [0.0, 1.0]]


def test_bounds_that_are_referenced_cannot_follow():
    more = {"edges": data(("time", "nv"), [[0.0, 1.0]])}
    with pytest.raises(CombineError, match="its bounds /edges cannot be recoded"):
        of(*(coord("time", [1.0], **since(day, bounds="edges")) for day in (5, 2)), **more)


def test_bounds_with_units_count_for_themselves_in_the_calendar_of_their_coordinate():
    """CF 7.1: which they need not repeat."""
    noleap = {"calendar": "noleap", "bounds": "edges"}
    files = [
        File(f"f{day}", {"time": coord("time", [1.0], **since(5, **noleap)),
                         "edges": data(("time", "nv"), [[0.0, 1.0]], chunks=None,
                                       attrs=since(day))})
        for day in (5, 2)
    ]  # fmt: skip
    _, done = recode_times(facts_of(*files), ["time"])
    assert [*done] == ["/edges"]
    assert done["/edges"].target.calendar == "noleap"


@pytest.mark.parametrize(
    "other",
    [
        coord("time", [1.0], **since(2, calendar="noleap")),
        coord("time", [1.0], units="K"),
        coord("time", [1.0], **since(2, scale_factor=2.0)),
        data("time", [1.0], attrs=since(2)),
    ],
    ids=["other calendar", "no time", "packed", "referenced"],
)
def test_what_has_no_common_count_stays_for_the_plan_to_refuse(other):
    first = coord("time", [1.0], **since(5))
    if other.chunks is not None:
        first = data("time", [1.0], attrs=since(5))
    facts, done = of(first, other)
    assert done == {}
    with pytest.raises(CombineError):
        plan([File("a", {"time": first}), File("b", {"time": other})])
    assert len(facts.arrays.schema.values) == 2


def test_a_time_without_an_exact_value_is_refused_with_its_file():
    late = coord("time", np.array([2**40]), units="milliseconds since 2000-01-01")
    with pytest.raises(CombineError, match="cannot be converted") as caught:
        of(coord("time", np.array([1]), units="nanoseconds since 2000-01-01"), late,
           coord("time", np.array([2**45]), units="milliseconds since 2000-01-01"))  # fmt: skip
    assert caught.value.facts["file"].endswith("f2")
    assert [each.flags[0] for each in caught.value.fixes] == ["--drop-variable"]


def test_one_file_or_no_dimension_recodes_nothing():
    facts = facts_of(File("a", {"time": coord("time", [1.0], **since(5))}))
    assert recode_times(facts, ["time"]) == (facts, {})
    two = facts_of(*(File(f"{d}", {"time": coord("time", [1.0], **since(d))}) for d in (5, 2)))
    assert recode_times(two, []) == (two, {})


def test_names_of_one_calendar_are_spelled_as_in_the_first_file():
    facts, done = of(
        coord("time", [1.0], **since(5, calendar="gregorian")),
        coord("time", [1.0], **since(5, calendar="standard")),
    )
    assert done["/time"].target.text == "days since 2000-01-05"
    assert len(facts.arrays.schema.values) == 1
    assert '"gregorian"' in facts.arrays.schema.values[0]
