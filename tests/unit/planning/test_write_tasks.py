"""Items of a plan cover each chunk of each array once, and share what they know of files."""

import itertools
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from icevirt.archive.plan import ArrayMode, FileRows
from icevirt.planning.edits.file_edits import FileEdit
from icevirt.planning.edits.renames import apply_edits
from icevirt.planning.eras.group_plan import combine_eras
from icevirt.planning.schedule.write_tasks import (
    SHARED_REFERENCES,
    Route,
    balance,
    bundles,
    deal_items,
    drafts,
    manifests_of,
    route_of,
    write_items,
)
from unit.planning.scanned_facts import File, data, facts_of, label, names, plan, spec, step


def grids(count, members=1, **options):
    """A plan of some files in one or two dimensions."""
    files = [
        step(f"m{m}t{t}", t, m=label(m), u=data(("time", "x"), np.ones((1, 3), "f4")))
        for m in range(members)
        for t in range(count)
    ]
    if members == 1:
        return plan(files, **options)
    options["data_vars"] = {"m": ("t", "u")}
    return plan(files, "m", "time", labels={"m": "variable:m"}, **options)


@settings(max_examples=12)
@given(st.integers(1, 8), st.integers(1, 3), st.integers(1, 6))
def test_every_chunk_lies_in_one_window_with_the_files_that_hold_it(count, members, limit):
    made = grids(count, members, max_references=limit)
    seen = Counter()
    for item in drafts(made):
        assert len({id(cut.array) for cut in item.cuts}) == len(item.cuts)
        for cut in item.cuts:
            for chunk in itertools.product(*(range(*side) for side in cut.box)):
                seen[cut.array.path, chunk] += 1
            if cut.array.mode is not ArrayMode.concat:
                continue
            for at in range(len(cut.array.files)):
                begins = cut.array.starts[at]
                low = [begins[n] // cut.array.chunk_shape[a] for n, a in enumerate(cut.array.axes)]
                inside = all(
                    cut.box[a][0] <= low[n] < cut.box[a][1] for n, a in enumerate(cut.array.axes)
                )
                assert (at in cut.of) == inside
    assert set(seen.values()) == {1}
    assert len(seen) == sum(int(np.prod(array.grid)) for array in made.arrays)
    assert manifests_of(made) == sum(1 for _ in drafts(made))


def test_small_arrays_of_the_same_files_share_a_manifest():
    made = grids(4)
    found = [{cut.array.path for cut in item.cuts} for item in drafts(made)]
    assert {"/t", "/u", "/time"} in found


def test_large_arrays_have_manifests_of_their_own():
    many = SHARED_REFERENCES + 1
    wide = data(("time", "x"), np.broadcast_to(np.float32(1), (1, many)), chunks=(1, 1), digest="")
    made = plan([File(f"f{n}", {"w": wide, "u": data("time", [1.0])}) for n in range(2)])
    assert sorted(len(item.cuts) for item in drafts(made)) == [1, 1]
    assert all(item.expected > 0 for item in drafts(made))


def test_items_carry_the_files_that_they_need_and_share_equal_columns():
    made = grids(6, max_references=2)
    items = [*write_items(made)]
    assert [item.number for item in items] == list(range(len(items)))
    for item in items:
        for window in item.windows:
            assert len(window.takes) == len(item.files)
            assert window.takes.any()
            starts = [w.starts for w in item.windows if w.axes == window.axes and len(w.starts)]
            assert all(each is starts[0] for each in starts if np.array_equal(each, starts[0]))
            (array,) = (each for each in made.arrays if each.source_path == window.source_path)
            begins = dict(zip(array.files.tolist(), array.starts.tolist(), strict=True))
            for at in np.flatnonzero(window.takes).tolist():
                row = [*made.files.url].index(item.files.url[at])
                assert window.starts[at].tolist() == begins[row]
    wanted = [names(made)[low:high] for low, high in ((0, 2), (2, 4), (4, 6))]
    held = [[url.rsplit("/", 1)[1] for url in item.files.url] for item in items]
    assert all(each in held for each in wanted)


def test_tasks_take_items_of_one_run_together():
    made = grids(6, max_references=2)
    items = [*drafts(made)]
    order = sorted(items, key=lambda each: each.run)
    rows = FileRows.of(made.files)
    tasks = [*bundles(made, order, rows)]
    assert [task.number for tasks_ in tasks for task in tasks_] == [each.number for each in order]
    for task in tasks:
        assert all(item.files is task[0].files for item in task)


def test_renamed_variables_are_read_under_their_names_in_the_files():
    facts = facts_of(
        step("a", 0.0, u=data("time", [1.0])), step("b", 1.0, u=None, w=data("time", [2.0]))
    )
    made = combine_eras(
        apply_edits(facts, [FileEdit(rename=(("w", "u"),)), FileEdit()], np.array([1, 0])),
        spec("time"),
    )
    (item,) = write_items(made)
    (window,) = (each for each in item.windows if each.source_path == "/u")
    assert {path: mine.tolist() for path, mine in window.reads} == {
        "/u": [True, False],
        "/w": [False, True],
    }
    assert {"/u", "/w"} <= item.paths()
    assert [window.path_in(at) for at in range(2)] == ["/u", "/w"]


def test_hybrid_arrays_carry_what_is_known_of_their_files():
    v = [data(("time", "x"), np.ones((2, 3), "f4"), chunks=(edge, 3)) for edge in (1, 2)]
    files = [step(f"f{n}", 2 * n, 2 * n + 1, t=None, v=v[n]) for n in range(2)]
    made = plan(files, on_mismatch="native", max_references=2)
    found = [w for item in write_items(made) for w in item.windows if w.source_path == "/v"]
    assert [w.hybrid.plain.tolist() for w in found] == [[True], [False]]
    assert not any(w.direct for w in found)


@settings(max_examples=20)
@given(st.integers(1, 30), st.integers(1, 12))
def test_tasks_hold_each_item_once_and_take_about_as_long(count, tasks):
    made = grids(count, max_references=2)
    items = [*drafts(made)]
    piles = balance(made, items, tasks)
    assert len(piles) <= tasks
    assert sorted(i.number for pile in piles for i in pile) == list(range(len(items)))
    runs = [item.run for pile in piles for item in pile]
    assert runs == sorted(runs)
    assert all(piles)
    assert len(deal_items(made, items, 2)) <= 8


@pytest.mark.parametrize("shuffled", [False, True])
def test_files_in_another_order_than_the_catalog_are_shuffled(monkeypatch, shuffled):
    """Where their references would be read again and again."""
    monkeypatch.setattr("icevirt.planning.schedule.write_tasks._FEW_READS", 10)
    made = grids(64, max_references=4)
    rows = np.arange(64)
    part = (rows % 8 if shuffled else rows // 8).astype(np.int32)
    files = replace(made.files, parts=tuple("abcdefgh"), part=part)
    found = route_of(replace(made, files=files))
    assert found.kind is (Route.shuffle if shuffled else Route.direct)
    assert found.describe().startswith("shuffle (each" if shuffled else "direct, no shuffle")
    assert found.windows == sum(len(item.cuts) for item in drafts(made))
