"""Every archive of the catalog builds with the command of the README, or with one that its error names.

What is built then is what was built before, down to the references (``frozen.py``).
"""

import importlib
import json
import os
import re
from pathlib import Path

import pytest

from archives.archive import CATALOG, built, differences
from archives.frozen import FILE, contents
from archives.page import line, page
from long_forms import cases

for each in sorted(Path(__file__).parent.glob("*.py")):
    if each.stem != "conftest" and not each.stem.startswith("test_"):
        importlib.import_module(f"archives.{each.stem}")

PAGE = Path(__file__).parents[2] / "docs" / "archives.md"
NAMES = [each.name for each in CATALOG]
LINES: dict[str, str] = {}
FROZEN = json.loads(FILE.read_text())
HELD: dict[str, dict[str, str]] = {}


@pytest.mark.ci
@pytest.mark.parametrize("name", cases(NAMES, *(each.name for each in CATALOG if each.often)))
def test_an_archive_builds_and_equals_xarray(name, tmp_path, run):
    made = next(each for each in CATALOG if each.name == name)
    (tmp_path / "in").mkdir()
    made.make(tmp_path / "in")
    outcome = built(run, made, tmp_path)
    if made.refused:
        assert outcome.dataset is None, f"{name} is built: {outcome.steps}"
        assert re.search(made.refused, outcome.why), outcome.why
    else:
        assert outcome.dataset is not None, f"{outcome.steps[-1]} was refused:\n{outcome.why}"
        theirs = made.oracle(sorted(map(str, (tmp_path / "in").glob(made.files or "*"))))
        assert not (found := differences(outcome.dataset, theirs, attrs=made.attrs)), found
        HELD[name] = contents(tmp_path / "repo")
        if not os.environ.get("ICEVIRT_WRITE_PAGE"):
            assert HELD[name] == FROZEN[name]
    LINES[name] = line(name, outcome)


@pytest.mark.ci
def test_the_page_says_what_this_run_found():
    if len(LINES) == len(CATALOG) and os.environ.get("ICEVIRT_WRITE_PAGE"):
        PAGE.write_text(page(LINES))
        FILE.write_text(json.dumps(HELD, indent=0, sort_keys=True) + "\n")
    there = PAGE.read_text()
    missing = [each for each in LINES.values() if each not in there]
    assert not missing, "the page is old: just archives"
    assert len(LINES) < len(CATALOG) or there == page(LINES), "the page is old: just archives"
