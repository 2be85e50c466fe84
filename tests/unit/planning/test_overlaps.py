"""Of files that overlap in part, each step comes from the file that a rule prefers."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from icevirt.errors import CombineError, DataLoss
from unit.planning.scanned_facts import File, coord, data, plan, shown, step

RUNS = st.lists(
    st.tuples(st.integers(0, 8), st.lists(st.integers(1, 3), min_size=0, max_size=4)),
    min_size=1, max_size=6,
)  # fmt: skip


def run(name, times, chunk, value):
    """Return a file that says in each value which file and step it is."""
    values = np.array(times, float)
    mean = (values[:, None] * 100 + value + np.zeros((1, 2))).astype("f8")
    return File(
        name,
        {
            "time": coord("time", values),
            "t": data(("time", "x"), mean, chunks=(chunk, 2)),
            "bounds": data(("time",), mean[:, 0].copy(), chunks=None),
        },
    )


@settings(max_examples=30)
@given(RUNS, st.integers(1, 3), st.sampled_from(["first", "last"]), st.booleans())
def test_each_step_is_that_of_the_file_preferred(runs, chunk, rule, falling):
    """As a loop over all steps says, also where runs interleave or lie within one another."""
    sign = -1 if falling else 1
    times = [np.cumsum([first, *more]) * sign for first, more in runs]
    files = [run(f"f{at}", each, chunk, at) for at, each in enumerate(times)]
    wanted = {}
    for at, each in enumerate(times):
        for label in each.tolist():
            if rule == "last" or label not in wanted:
                wanted[label] = at
    found = shown(plan(files, duplicates=rule), files)
    # files of one step each do not say whether labels rise or fall
    order = sorted(wanted, reverse=bool(found["time"][0] > found["time"][-1]))
    assert found["time"].values.tolist() == order
    assert found["t"].values[:, 0].tolist() == [label * 100 + wanted[label] for label in order]
    assert found["bounds"].values.tolist() == found["t"].values[:, 0].tolist()


def test_references_stay_where_cuts_lie_on_the_grid():
    times = [np.arange(0, 8), np.arange(4, 12)]
    files = [run(f"f{at}", each, 2, at) for at, each in enumerate(times)]
    (array,) = (each for each in plan(files, duplicates="last").arrays if each.path == "/t")
    assert array.hybrid is None
    assert array.lengths[:, 0].tolist() == [4, 8]
    assert array.held[:, 0].tolist() == [8, 8]
    made = plan(files, duplicates="first")
    (array,) = (each for each in made.arrays if each.path == "/t")
    assert array.skips[:, 0].tolist() == [0, 4]
    assert "4 steps of 1 file cut along 'time'" in " ".join(made.notes)


def test_a_file_that_is_needed_in_two_places_is_one_file():
    files = [run("f0", np.arange(9), 1, 0), run("f1", np.arange(3, 5), 1, 1)]
    made = plan(files, duplicates="last")
    assert len(made.files) == 2
    (array,) = (each for each in made.arrays if each.path == "/t")
    assert array.files.tolist() == [0, 1, 0]
    assert array.starts[:, 0].tolist() == [0, 3, 5]


def test_a_file_of_another_variable_is_not_cut():
    """One of two months and two of one: it is one share of its variable."""
    whole = File("u", {"time": coord("time", np.arange(4.0)),
                       "u": data(("time",), np.arange(4.0), chunks=(4,))})  # fmt: skip
    files = [step("a", 0.0, 1.0), whole, step("b", 2.0, 3.0)]
    (array,) = (each for each in plan(files).arrays if each.path == "/u")
    assert array.lengths.tolist() == [[4]]
    assert array.hybrid is None
    assert array.skips is None


def test_a_variable_of_another_length_cannot_be_cut():
    files = [run(f"f{at}", np.arange(at, at + 3), 1, at) for at in range(2)]
    files[0].variables["t"] = data(("time", "x"), np.zeros((2, 2)), chunks=(1, 2))
    with pytest.raises(CombineError, match="/t has another length along 'time'"):
        plan(files, duplicates="last")


def test_the_refusal_counts_what_several_files_hold():
    files = [run(f"f{at}", np.arange(at * 2, at * 2 + 4), 1, at) for at in range(3)]
    with pytest.raises(CombineError, match="both hold 2 steps; 4 steps of 3 files") as caught:
        plan(files)
    assert caught.value.facts["both"] == ["2.0", "3.0"]
    assert [each.flags[-1] for each in caught.value.fixes] == [
        "nested", "newest", "version", "first", "last",
    ]  # fmt: skip
    assert caught.value.fixes[1].loss == DataLoss(steps=4, bytes=4 * (16 + 8))


def test_runs_that_overlap_are_divided_into_eras():
    """What counts is settled first."""
    files = [run(f"f{at}", np.arange(at * 2, at * 2 + 4), 1 + (at > 1), at) for at in range(4)]
    made = plan(files, duplicates="last", on_mismatch="eras")
    assert made.eras.count == 2
    lengths = {each.path: each.shape[0] for each in made.arrays if each.path.endswith("/t")}
    assert lengths == {"/era_0/t": 4, "/era_1/t": 6}
    assert "4 steps of 2 files cut" in " ".join(made.notes) or "6 steps" in " ".join(made.notes)


def test_runs_that_overlap_may_leave_steps_out():
    files = [run(f"f{at}", np.arange(3) + first, 1, at) for at, first in enumerate((0, 2, 8))]
    made = plan(files, duplicates="last", spacing={"time": 1}, missing="reserve")
    found = shown(made, files)
    assert found["time"].values.tolist() == [*range(11)]
    assert found["t"].values[:, 0].tolist()[2:5] == [201, 301, 401]


@pytest.mark.parametrize("rule", ["first", "last"])
def test_boxes_are_cut_along_each_dimension(rule):
    """Tiles that share rows, of runs that share steps."""
    files = []
    for at, (first, south) in enumerate([(0, 0), (2, 0), (0, 2), (2, 2)]):
        times, rows = np.arange(first, first + 3), np.arange(south, south + 3)
        values = np.add.outer(times * 100.0, rows) + at / 8
        files.append(
            File(
                f"f{at}",
                {
                    "time": coord("time", times.astype(float)),
                    "lat": coord("lat", rows.astype(float)),
                    "t": data(("time", "lat"), values, chunks=(1, 1)),
                },
            )
        )
    found = shown(plan(files, "time", "lat", duplicates=rule), files)
    wanted = {}
    for at, each in enumerate(files if rule == "last" else files[::-1]):
        number = at if rule == "last" else 3 - at
        for time in each.variables["time"].values.tolist():
            for lat in each.variables["lat"].values.tolist():
                wanted[time, lat] = time * 100 + lat + number / 8
    shape = (5, 5)
    assert (
        found["t"].values.tolist()
        == np.reshape([wanted[key] for key in sorted(wanted)], shape).tolist()
    )
