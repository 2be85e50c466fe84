"""The tutorials, and pages like them, are true: followed in order, they print what they show."""

import json
import logging
import re
import shutil
import sys
import urllib.request
from pathlib import Path

import pytest

from docs.transcripts import DOCS, follow, same
from icevirt.objects.source_access import SourceAccess

FIRST = (DOCS / "first-dataset.md").read_text()
MAKE = re.findall(r"^```python\n(.*?)^```", FIRST, re.MULTILINE | re.DOTALL)[0]


@pytest.fixture
def tutorial(tmp_path, monkeypatch, run, in_process):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "make_archive", raising=False)
    Path("make_archive.py").write_text(MAKE)
    names = {"__name__": "__main__"}
    return lambda page: follow(page, run, tmp_path, names)


@pytest.mark.ci
def test_the_first_dataset_and_its_growth_are_as_the_pages_show(tutorial):
    tutorial("first-dataset.md")
    shutil.copytree("repo", "as-built")
    tutorial("sessions.md")
    shutil.rmtree("repo")
    Path("as-built").rename("repo")
    tutorial("reading.md")
    tutorial("growing-archive.md")
    tutorial("other-readers.md")
    tutorial("coming-from.md")


def test_the_credentials_of_the_page_are_such(monkeypatch):
    page = (DOCS / "credentials.md").read_text()
    names = {}
    for block in re.findall(r"^```python\n(.*?)^```", page, re.MULTILINE | re.DOTALL):
        exec(block, names)
        assert len(SourceAccess.of(names["access"]).grants) == 1
    assert "..." not in repr(names["mine"])


def test_an_archive_in_a_bucket_is_as_the_page_shows(tutorial, tmp_path, s3_server, monkeypatch):
    for name, value in {
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
        "AWS_REGION": "us-east-1",
        "AWS_ENDPOINT_URL": s3_server,
        "AWS_ALLOW_HTTP": "true",
    }.items():
        monkeypatch.setenv(name, value)
    request = urllib.request.Request(f"{s3_server}/my-bucket", method="PUT")
    urllib.request.urlopen(request).close()
    exec(MAKE, {"__name__": "__main__"})
    tutorial("bucket-archive.md")


def test_the_log_handler_of_the_page_on_large_builds_writes_json():
    (code,) = re.findall(
        r"^```python\n(.*?)^```", (DOCS / "scale.md").read_text(), re.MULTILINE | re.DOTALL
    )
    log, names = logging.getLogger("icevirt"), {}
    level = log.level
    exec(code, names)
    try:
        record = log.makeRecord("icevirt", logging.INFO, "", 0, "begun", (), None)
        assert json.loads(names["handler"].format(record))["message"] == "begun"
    finally:
        log.removeHandler(names["handler"])
        log.setLevel(level)


def test_what_differs_from_run_to_run_is_not_compared():
    assert same("scan 0.1 s, 12.0 KiB  \n") == same("scan 2.5 s, 1.3 MiB")
    assert same("3 files") != same("4 files")
