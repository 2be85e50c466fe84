"""The page about the steps of a build is true: its code runs, and names options that there are."""

import re
from pathlib import Path

import pytest

from builds.support import assert_same_dataset, expected_dataset, write_days
from icevirt.api.commit_options import BY_KEYWORD

PAGE = (Path(__file__).parents[2] / "docs" / "steps.md").read_text()


@pytest.mark.usefixtures("in_process")
def test_the_code_of_the_page_builds(tmp_path, monkeypatch):
    files = write_days(tmp_path / "archive")
    monkeypatch.chdir(tmp_path)
    (code,) = re.findall(r"^```python\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    names = {}
    exec(code, names)
    with names["ds"] as found:
        assert_same_dataset(found.load(), expected_dataset(files, "time"))


def test_the_page_names_every_option_object():
    for keyword, options in BY_KEYWORD.items():
        assert f"| `icevirt.{options.__name__}` | `{keyword}` | `[{keyword}]` |" in PAGE
