"""Tables and facts in the width that there is."""

from io import StringIO

from rich.console import Console, Group

from icevirt.display.blocks import Facts, list_lines, paste_lines, table_of


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
