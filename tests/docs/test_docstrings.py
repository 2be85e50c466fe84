"""The examples in the docstrings of the most used functions run, in the order of a first day."""

import doctest
import re
import sys

import pytest

import icevirt
from docs.transcripts import DOCS

ORDER = (
    *("plan", "build", "open", "info", "append", "log", "diff", "verify", "update", "undo", "redo"),
    *("status", "source", "export", "scan_file", "scan_files", "catalog_view", "Repository"),
    *("Session", "to_html", "ops_log", "relocate", "materialize", "check", "maintain", "reset"),
)
NEW_FILES = {"append": 2004, "update": 2005}  # what each finds in the archive of the tutorial
OPTIONS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


@pytest.mark.ci
def test_examples_of_docstrings_print_what_they_show(tmp_path, monkeypatch, in_process):
    monkeypatch.chdir(tmp_path)
    page = (DOCS / "first-dataset.md").read_text()
    names = {"__name__": "__main__"}
    exec(re.findall(r"^```python\n(.*?)^```", page, re.MULTILINE | re.DOTALL)[0], names)
    parser, runner = doctest.DocTestParser(), doctest.DocTestRunner(optionflags=OPTIONS)
    for name in ORDER:
        if name in NEW_FILES:
            names["write_year"](NEW_FILES[name])
        text = getattr(icevirt, name).__doc__
        test = parser.get_doctest(text, {"icevirt": icevirt}, name, name, 0)
        assert test.examples
        found = runner.run(test, out=sys.stdout.write)
        assert not found.failed, name
