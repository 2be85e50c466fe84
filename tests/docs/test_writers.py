"""The page on what programs write has a row for each program, from a run of pinned versions."""

import re
import tomllib
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"
WRITERS = tomllib.loads((DOCS / "writers.toml").read_text())
ROWS = [line for line in (DOCS / "writers.md").read_text().splitlines() if "<br>" in line]


def test_each_writer_has_a_row_and_each_row_a_writer():
    assert len(WRITERS) >= 40
    assert [row.removeprefix("| ").partition("<br>")[0] for row in ROWS] == list(WRITERS)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[2:].partition("<br>")[0])
def test_no_value_of_any_writer_reads_differently(row):
    one, three, advice = row.rstrip(" |").split(" | ")[-3:]
    for verdict in (one, three):
        assert re.match(r"equal|refused: |-$", verdict)
    assert ("`--" in one + three) == advice.startswith("add what the error prints")


@pytest.mark.parametrize("entry", WRITERS.values(), ids=WRITERS)
def test_packages_are_pinned_or_of_a_release_of_debian(entry):
    source, _, packages = entry["from"].partition(": ")
    pin = {"PyPI": "==", "npm": "@", "Debian": ""}[source]
    assert all(pin in each for each in packages.split())
    assert "icevirt" not in entry.get("program", "")
