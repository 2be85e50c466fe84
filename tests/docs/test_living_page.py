"""The page on archives that live is true: its code runs."""

import re
from pathlib import Path

import pytest

from builds.support import opened, write_day, write_days

PAGE = (Path(__file__).parents[2] / "docs" / "living.md").read_text()


@pytest.mark.usefixtures("in_process")
def test_the_code_of_the_page_runs_and_a_dry_run_looks_like_it_says(tmp_path, monkeypatch, run):
    monkeypatch.chdir(tmp_path)
    write_days(tmp_path / "archive", 3)
    block = re.findall(r"^```python\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)[0]
    exec(compile(block, "docs/living.md", "exec"), {})
    write_day(tmp_path / "archive" / "day4.nc", 4)
    write_day(tmp_path / "archive" / "odd.nc", 5, nx=9)
    _, output, _ = run("update", "repo", "--dry-run")
    (shown,) = re.findall(r"^  \+.*$", PAGE, re.MULTILINE)
    assert shown in output
    assert opened("repo").sizes["time"] == 12
