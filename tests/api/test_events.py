"""What a build logs: events with fields, that agree with its report and show no secret."""

import io
import json
import logging
import sys

import pytest

import icevirt
from builds.support import write_days
from icevirt.api import events as phase_clock
from icevirt.api.events import tell
from icevirt.cli.output import ProgressStyle, progress, tell_progress_as
from icevirt.display.events import JsonFormatter
from icevirt.errors import ScanError
from icevirt.redaction import without_secrets
from icevirt.tasks.write_manifests import run_write

pytestmark = pytest.mark.usefixtures("in_process")


@pytest.fixture
def printed():
    """Yield what was logged, as a system that collects JSON lines would read it."""
    out = io.StringIO()
    handler = logging.StreamHandler(out)
    handler.setFormatter(JsonFormatter())
    log = logging.getLogger("icevirt")
    log.addHandler(handler)
    log.setLevel(logging.INFO)
    yield lambda: [json.loads(line) for line in out.getvalue().splitlines()]
    log.removeHandler(handler)
    log.setLevel(logging.NOTSET)


def of(events, name):
    return [event for event in events if event["event"] == name]


def test_a_build_logs_its_phases_with_counts_and_what_it_committed(tmp_path, printed):
    report = icevirt.build(write_days(tmp_path / "in", 3), tmp_path / "repo", concat_dim="time")
    events = printed()
    begun, ended = of(events, "phase-begun"), of(events, "phase-ended")
    assert [each["phase"] for each in begun] == [each["phase"] for each in ended]
    assert {each["phase"] for each in ended} == set(report.seconds)
    for phase, seconds in report.seconds.items():
        mine = sum(each["seconds"] for each in ended if each["phase"] == phase)
        assert mine == pytest.approx(seconds, abs=0.01)
    (scan,) = (each for each in ended if each["phase"] == "scan")
    assert (scan["done"], scan["total"], scan["unit"], scan["files"]) == (3, 3, "files", 3)
    (write,) = (each for each in ended if each["phase"] == "write")
    assert write["done"] == write["total"]
    assert write["references"] == report.references.total
    (build,) = of(events, "build-begun")
    assert (build["files"], build["build_id"]) == (3, report.build_id)
    (committed,) = of(events, "committed")
    assert committed["snapshot_id"] == report.snapshot_id
    assert committed["references"] == report.references.total
    assert committed["manifest_bytes"] == report.manifest_bytes


def test_nothing_is_looked_up_for_a_log_that_nobody_reads(tmp_path, in_process):
    logging.getLogger("icevirt").setLevel(logging.WARNING)
    icevirt.build(write_days(tmp_path / "in", 2), tmp_path / "repo", concat_dim="time")
    logging.getLogger("icevirt").setLevel(logging.NOTSET)
    assert in_process.progress == [None, None]


def test_a_build_that_goes_on_says_what_it_found(tmp_path, printed, in_process):
    days, catalog = write_days(tmp_path / "in", 3), tmp_path / "catalog"

    def die():
        raise KeyboardInterrupt

    in_process.after[run_write] = die
    with pytest.raises(KeyboardInterrupt):
        icevirt.build(days, tmp_path / "repo", concat_dim="time", catalog=catalog)
    (interrupted,) = of(printed(), "build-interrupted")
    assert interrupted["do"] == "run the same again to continue"
    assert not of(printed(), "resumed")
    in_process.after.clear()
    report = icevirt.build(days, tmp_path / "repo", concat_dim="time", catalog=catalog)
    scan, write = of(printed(), "resumed")
    assert (scan["phase"], scan["found"], scan["unit"]) == ("scan", 3, "files")
    assert (write["phase"], write["found"], write["unit"]) == (
        "write", report.manifests, "manifests",
    )  # fmt: skip
    assert of(printed(), "committed")[0]["files_reused"] == 3


def test_files_that_are_left_out_are_named_with_their_error(tmp_path, printed):
    days = write_days(tmp_path / "in", 3)
    with open(days[1], "r+b") as file:
        file.truncate(600)
    icevirt.build(days, tmp_path / "repo", concat_dim="time", scan_options={"max_bad_files": 1})
    (bad,) = of(printed(), "file-left-out")
    assert bad["url"].endswith(days[1])
    assert (bad["level"], bad["code"]) == ("warning", "scan")
    assert "truncated" in bad["error"]
    with pytest.raises(ScanError):
        icevirt.build(days, tmp_path / "other", concat_dim="time")
    (failed,) = of(printed(), "build-failed")
    assert (failed["level"], failed["code"]) == ("error", "scan")
    assert len(of(printed(), "file-left-out")) == 2


def test_long_phases_are_logged_every_few_seconds(printed, monkeypatch):
    now = iter(range(0, 1000, 4))
    monkeypatch.setattr(phase_clock.time, "monotonic", lambda: next(now))
    watch = phase_clock.Clock()
    with watch.phase("scan"):
        for done in range(6):
            step = icevirt.archive.reports.build.Progress(
                phase="scan", done=done, total=5, seconds=done
            )
            watch.step(step)
    assert [each["done"] for each in of(printed(), "progress")] == [2, 5]
    assert of(printed(), "progress")[0]["seconds_left"] == 3


SECRETS = {
    "a password": ("https://me:pass@host/a.nc", "https://host/a.nc"),
    "a token for a user": ("s3://key:hidden@bucket/a", "s3://bucket/a"),
    "a signed query": ("(file='https://h/a.nc?X-Amz-Signature=ab&b=c'). x", "(file='https://h/a.nc?...'). x"),
    "both, in a sentence": ("at http://u@h:80/a?t=1, then", "at http://h:80/a?... then"),
    "an account of Azure is none": ("abfss://c@acc.dfs.core.windows.net/k", None),
    "a key with a question mark is none": ("s3://b/what?.nc", None),
}  # fmt: skip


@pytest.mark.parametrize(("text", "shown"), SECRETS.values(), ids=SECRETS.keys())
def test_no_event_shows_a_secret_of_a_url(text, shown, printed):
    assert without_secrets(text) == (shown or text)
    tell("test", url=text)
    assert printed()[0]["url"] == (shown or text)


def test_a_record_of_another_library_is_a_line_of_json_too(printed):
    try:
        int("line one\nline two")
    except ValueError:
        logging.getLogger("icevirt.other").exception("it %s", "broke")
    (line,) = printed()
    assert (line["event"], line["message"], line["level"]) == ("message", "it broke", "error")
    assert "Traceback" in line["traceback"]


def test_the_program_prints_events_between_its_lines_of_progress(tmp_path, capsys, monkeypatch):
    days = write_days(tmp_path / "in", 2)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: False, raising=False)
    tell_progress_as(ProgressStyle.json)
    try:
        with progress(quiet=False) as listener:
            icevirt.build(days, tmp_path / "repo", concat_dim="time", progress=listener)
    finally:
        tell_progress_as(ProgressStyle.auto)
    lines = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    assert lines[-1]["event"] == "committed"
    steps = [line for line in lines if line["event"] == "progress" and line.get("total")]
    assert all(0 <= step["done"] <= step["total"] for step in steps)
    assert {step["phase"] for step in steps} == {"scan", "write"}
    tell("afterwards")
    assert capsys.readouterr().err == ""
