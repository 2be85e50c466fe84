"""The glossary is short, sorted, and names modules that exist."""

from __future__ import annotations

import re
from importlib.util import find_spec
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "glossary.md"
ROW = re.compile(r"^\| (?P<term>[a-z ]+) \| (?P<meaning>.+) \| `(?P<module>icevirt[\w.]*)` \|$")
ROWS = [match for line in PAGE.read_text().splitlines() if (match := ROW.match(line))]
MOST = 25


def test_the_glossary_has_few_terms_in_order():
    lines = [line for line in PAGE.read_text().splitlines() if line.startswith("|")]
    terms = [row["term"] for row in ROWS]
    assert len(terms) == len(lines) - 2, "a row that is not | term | meaning | `module` |"
    assert 0 < len(terms) <= MOST
    assert terms == sorted(set(terms))


@pytest.mark.parametrize("row", ROWS, ids=[row["term"] for row in ROWS])
def test_a_term_has_a_short_definition_and_a_module(row):
    assert find_spec(row["module"]) is not None
    assert 1 <= len(re.findall(r"\.(?: |$)", row["meaning"])) <= 2
