"""Tables and facts in the width that there is."""

from io import StringIO

from rich.console import Console

from icevirt.display.blocks import facts, table_of


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
    shown = drawn(facts({"memory": "about 2.5 KiB in a task, beside its process", "x": ""}), 34)
    assert shown == ["  memory  about 2.5 KiB in a task,", "          beside its process", "  x"]
