"""Tables and facts in the width that there is."""

from io import StringIO

import pytest
from rich.console import Console, Group

from icevirt.archive.reports.build import AxisSummary, Progress
from icevirt.display.blocks import Facts, list_lines, paste_lines, table_of
from icevirt.display.progress import _describe


def drawn(what, width):
    out = StringIO()
    Console(file=out, width=width, color_system=None).print(what)
    return [line.rstrip() for line in out.getvalue().splitlines()]


def small_table():
    table = table_of(("array", "type", "shape", "stored"), right=("stored",))
    table.add_row("/t2m", "float32", "24 × 10 × 20", "")
    table.add_row("/time", "int64", "24", "192 B")
    return table


def test_a_table_that_does_not_fit_becomes_cards():
    assert drawn(small_table(), 60) == [
        "array  type     shape         stored",
        "/t2m   float32  24 × 10 × 20",
        "/time  int64    24             192 B",
    ]
    assert drawn(small_table(), 25) == [
        "/t2m",
        "  type float32",
        "  shape 24 × 10 × 20",
        "/time",
        "  type int64 · shape 24",
        "  stored 192 B",
    ]


def test_long_facts_keep_their_column():
    shown = drawn(Facts({"memory": "about 2.5 KiB in a task, beside its process", "x": ""}), 34)
    assert shown == ["  memory  about 2.5 KiB in a task,", "          beside its process", "  x"]


def test_lines_to_paste_are_never_broken_and_others_are_indented():
    long = f"    authorize_virtual_chunk_access=['file:///{'a' * 60}/'],"
    out = StringIO()
    Console(file=out, width=40, color_system=None).print(
        Group(
            *paste_lines("Open it", long),
            *list_lines("Notes", ["a note that is longer than the line it is on"]),
        ),
        crop=False,
    )
    assert out.getvalue().splitlines()[1:3] == ["Open it", long]
    assert [line for line in out.getvalue().splitlines() if "note" in line or "is on" in line] == [
        "  a note that is longer than the line it",
        "  is on",
    ]


RATES = {
    "few": (2, 8.0, "2/90 files, 0.25/s"),
    "hundreds": (3400, 10.0, "3,400/90 files, 340/s"),
    "millions": (12_345_678, 10.0, "12,345,678/90 files, 1.2 M/s"),
}


@pytest.mark.parametrize(("done", "took", "said"), RATES.values(), ids=RATES)
def test_rates_are_printed_for_people(done, took, said):
    step = Progress(phase="scan", done=done, total=90, unit="files", seconds=took)
    assert _describe(step).startswith(said)


def test_a_bar_counts_references_and_the_time_that_is_left():
    step = Progress(
        phase="write", done=10, total=610, unit="tasks", references=7_654_321, seconds=5.0
    )
    assert _describe(step) == ("10/610 tasks, 2/s, 7.7 M references, 1.5 M/s, 5 min 00 s left")


def test_labels_that_have_no_order_leave_their_ends_out():
    assert str(AxisSummary(dimension="x", steps=3)) == "3 steps"
