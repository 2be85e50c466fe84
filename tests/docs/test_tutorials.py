"""The tutorials, and pages like them, are true: followed in order, they print what they show."""

import asyncio
import json
import logging
import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import icevirt
from builds.support import write_days
from docs import shell
from docs.transcripts import DOCS, follow, same
from icevirt.objects.source_access import SourceAccess
from servers.processes import free_port

FIRST = (DOCS / "first-dataset.md").read_text()
MAKE = re.findall(r"^```python\n(.*?)^```", FIRST, re.MULTILINE | re.DOTALL)[0]


@pytest.fixture
def tutorial(tmp_path, monkeypatch, run, in_process):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "make_archive", raising=False)
    Path("make_archive.py").write_text(MAKE)
    names = {"__name__": "__main__"}
    return lambda page, *part: follow(page, run, tmp_path, names, *part)


def costs_are_as_the_page_says(run):
    page = (DOCS / "performance.md").read_text()
    (block,) = (t for language, t in shell.blocks(DOCS / "performance.md") if language == "bash")
    shown = "".join(run(*words)[1] for words in shell.calls(block))
    found = dict(re.findall(r"^  (one map|one series|reads|stores) +(.*)$", shown, re.MULTILINE))
    assert [found[name].partition(" of ")[0] for name in found] == [
        "at most 2 requests, 28.1 KiB",
        "at most 37 requests, 1012.5 KiB",
        "1012.5 KiB",
        "1012.5 KiB, before compression",
    ]
    assert "twin: 73 requests, 1012.5 KiB" in shown
    said = " ".join(page.split())
    assert "A map of those chunks is 73 requests and 1012.5 KiB" in said
    assert "one map is at most 2 requests and 28.1 KiB" in said
    assert "at most 37 requests and 1012.5 KiB. To store `tas` reads 1012.5 KiB" in said


@pytest.mark.ci
def test_the_first_dataset_and_its_growth_are_as_the_pages_show(tutorial, run):
    tutorial("first-dataset.md")
    costs_are_as_the_page_says(run)
    shutil.copytree("repo", "as-built")
    tutorial("sessions.md", "# Writing to a repository yourself", "## In asynchronous programs")
    shutil.rmtree("repo")
    Path("as-built").rename("repo")
    tutorial("reading.md", "# Reading")
    tutorial("readers.md", "## zarr, and icechunk's own client", "## zarrs")
    tutorial("readers.md", "## By references of kerchunk", "## JavaScript")
    tutorial("growing-archive.md")
    tutorial("coming-from.md", "## From kerchunk", "## kerchunk's references, in and out")


@pytest.mark.ci
def test_a_forecast_of_grib_is_as_the_page_shows(tutorial):
    tutorial("grib.md")


def test_status_metadata_and_flags_of_a_repository_are_as_the_page_shows(tutorial, tmp_path):
    tutorial("sessions.md", "## Status, metadata, feature flags")
    write_days(tmp_path / "archive", 1)
    repo = icevirt.Repository.create("closed")
    repo.set_status(icevirt.RepoStatus(availability=icevirt.RepoAvailability.read_only))
    for call in (icevirt.build, icevirt.append):
        with pytest.raises(icevirt.ReadOnlyError):
            call("archive", "closed", concat_dim="time")


@pytest.mark.ci
def test_asynchronous_programs_are_as_the_page_shows(tutorial, tmp_path):
    write_days(tmp_path / "archive", 3)
    tutorial("sessions.md", "## In asynchronous programs", "## Status, metadata, feature flags")

    async def at_once():
        builds = (asyncio.to_thread(icevirt.build, "archive", f"at-once-{n}") for n in range(3))
        return await asyncio.gather(*builds)

    assert [report.references.total for report in asyncio.run(at_once())] == [17, 17, 17]


def test_the_credentials_of_the_page_are_such(monkeypatch):
    page = (DOCS / "credentials.md").read_text()
    names = {}
    for block in re.findall(r"^```python\n(.*?)^```", page, re.MULTILINE | re.DOTALL):
        exec(block, names)
        assert len(SourceAccess.of(names["access"]).grants) == 1
    assert "..." not in repr(names["mine"])


@pytest.fixture
def bucket(tmp_path, monkeypatch):
    """The server that the page starts, on a port that is free, and the environment that it sets."""
    page = (DOCS / "bucket-archive.md").read_text()
    (block,) = re.findall(r"^```bash\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    script = block.replace("4566", str(free_port())).replace("pip install", "true")
    shell = f'PATH={Path(sys.executable).parent}:"$PATH"\n{script}\nenv > after\n'
    with (
        (tmp_path / "said").open("w") as said,
        subprocess.Popen(
            ["bash", "-ec", shell], cwd=tmp_path, stdout=said, stderr=said, start_new_session=True
        ) as started,
    ):
        try:
            assert started.wait() == 0, (tmp_path / "said").read_text()
            after = (tmp_path / "after").read_text()
            for name, value in re.findall(r"^(AWS_\w+)=(.*)$", after, re.MULTILINE):
                monkeypatch.setenv(name, value)
            yield
        finally:
            os.killpg(started.pid, signal.SIGTERM)


@pytest.mark.ci
@pytest.mark.usefixtures("bucket")
def test_an_archive_in_a_bucket_is_as_the_page_shows(tutorial):
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
