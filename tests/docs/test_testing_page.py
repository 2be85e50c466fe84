"""The table of claims leads to tests that exist, and leaves out no folder of tests."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "testing.md").read_text()
NAMED = {
    name.rstrip("/")
    for row in re.findall(r"^\|[^|]+\|[^|]+\|([^|]+)\|$", PAGE, re.MULTILINE)
    for name in re.findall(r"`((?:[\w.]+/)*[\w.]+/?)`", row)
}


def test_what_the_table_names_is_there():
    assert len(NAMED) > 30
    assert not [name for name in NAMED if not (ROOT / "tests" / name).exists()]


def test_every_folder_of_tests_stands_in_the_table():
    folders = {path.parent.relative_to(ROOT / "tests") for path in ROOT.glob("tests/**/test_*.py")}
    covered = {str(each) for path in map(Path, NAMED) for each in (path, path.parent)}
    assert not [
        str(folder) for folder in folders if not {str(folder), *map(str, folder.parents)} & covered
    ]
