"""The page on the catalog is true: its code runs, its tables name every column and no other."""

import re
from pathlib import Path

import pytest

from builds.support import write_days
from icevirt.archive import catalog
from icevirt.archive.catalog_view import TABLES
from icevirt.objects.source_access import SourceAccess

PAGE = (Path(__file__).parents[2] / "docs" / "catalog.md").read_text()


@pytest.mark.ci
@pytest.mark.spark
def test_the_code_runs_from_top_to_bottom(spark, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_days(tmp_path / "archive", 11)
    (tmp_path / "archive" / "bad.nc").write_text("no NetCDF")
    blocks = list(re.finditer(r"^```python\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL))
    assert len(blocks) == 5
    names = {}
    for block in blocks:
        above = "\n" * PAGE[: block.start(1)].count("\n")  # for the lines of a traceback
        exec(compile(above + block[1], "docs/catalog.md", "exec"), names)
    assert len(SourceAccess.of(names["access"]).grants) == 4


@pytest.mark.parametrize("table", TABLES)
def test_every_column_of_the_view_is_described(table):
    section = PAGE.partition(f"### {table}\n")[2].partition("###")[0]
    rows = re.findall(r"^\| (`.*?) \| (.*?) \|", section, re.MULTILINE)
    described = [name for cell, _ in rows for name in re.findall(r"`(\w+)`", cell)]
    assert sorted(described) == sorted(name for name, _ in TABLES[table])


def test_the_version_is_that_of_the_schema():
    assert f'{{"icevirt_catalog": {catalog.VERSION}}}' in PAGE
