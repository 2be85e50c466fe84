"""The page on tables is true: its code runs, and it names every column and no other."""

import re
from pathlib import Path

import pytest

from builds.support import write_days
from icevirt.tasks.table_query import TABLES

PAGE = (Path(__file__).parents[2] / "docs" / "spark-tables.md").read_text()


@pytest.mark.ci
def test_the_code_runs_from_top_to_bottom(spark, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_days(tmp_path / "archive", 3)
    blocks = list(re.finditer(r"^```python\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL))
    assert len(blocks) == 5
    names = {}
    for block in blocks:
        above = "\n" * PAGE[: block.start(1)].count("\n")  # for the lines of a traceback
        exec(compile(above + block[1], "docs/spark-tables.md", "exec"), names)


@pytest.mark.parametrize("table", TABLES)
def test_every_column_is_described(table):
    section = PAGE.partition(f"### `{table}`\n")[2].partition("\n##")[0]
    rows = re.findall(r"^\| `(\w+)` \| (.*?) \|", section, re.MULTILINE)
    assert rows == list(TABLES[table])
