"""The steps of a build one by one: scan, combine, write, open; each says what it holds."""

import html
import re
from html.parser import HTMLParser

import netCDF4
import numpy as np
import pytest
import xarray as xr

import icevirt
from builds.support import assert_same_dataset, expected_dataset, write_days
from icevirt.archive.reports.build import (
    ArraySummary,
    BadFile,
    BadFiles,
    BuildReport,
    Readers,
    ReferenceCounts,
)
from icevirt.errors import CombineError, InvalidInputError, PlanChangedError

pytestmark = pytest.mark.usefixtures("in_process")

HOSTILE = "<script>alert(1)</script>\x1b[2J"


@pytest.fixture
def days(tmp_path):
    return write_days(tmp_path / "archive")


@pytest.fixture
def archive(days, tmp_path):
    return icevirt.scan_files(days, tmp_path / "catalog", concat_dim="time")


def test_the_steps_make_what_a_build_makes(archive, days, tmp_path):
    plan = archive.combine()
    report = plan.write(tmp_path / "repo", message="2024")
    assert report.files_scanned == 0
    whole = icevirt.build(days, tmp_path / "whole", concat_dim="time")
    assert [(a.path, a.shape, a.references) for a in report.arrays] == [
        (a.path, a.shape, a.references) for a in whole.arrays
    ]
    with report.open() as found:
        assert_same_dataset(found.load(), expected_dataset(days, "time"))
    (last, _) = icevirt.Repository.open(tmp_path / "repo").ancestry(branch="main")
    assert last.message == "2024"


def test_an_opened_report_reads_nothing_but_what_was_built(archive, tmp_path):
    """Its snapshot and its prefixes, whatever is committed later."""
    report = archive.combine(group="g").write(tmp_path / "repo")
    later = icevirt.build(
        str(tmp_path / "archive" / "*.nc"),
        tmp_path / "repo",
        concat_dim="time",
        group="g",
        mode="w",
        commit_options={"allow_changes": True},
        scan_options={"drop_variables": "packed"},
    )
    assert later.snapshot_id != report.snapshot_id
    with report.open(chunks=None) as found, later.open() as after:
        assert "packed" in found
        assert "packed" not in after
    with pytest.raises(icevirt.errors.UnauthorizedError):
        report.open(authorize_virtual_chunk_access=[]).load()


def test_a_plan_is_written_as_it_was_shown_or_not_at_all(archive, days, tmp_path):
    plan = archive.combine()
    with netCDF4.Dataset(days[0], "r+") as file:
        file["mask"][:] = 9
    with pytest.raises((PlanChangedError, CombineError, icevirt.errors.SourcesChangedError)):
        plan.write(tmp_path / "repo")
    assert not (tmp_path / "repo" / "snapshots").exists()


def test_files_that_come_later_are_not_in_a_plan(tmp_path):
    write_days(tmp_path / "archive")
    archive = icevirt.scan_files(tmp_path / "archive", tmp_path / "catalog", concat_dim="time")
    plan = archive.combine()
    (tmp_path / "archive" / "broken.nc").write_bytes(b"nothing")
    assert plan.write(tmp_path / "repo").files_reused == archive.files


def test_a_plan_says_what_it_would_change(archive, days, tmp_path):
    icevirt.build(days[:2], tmp_path / "repo", concat_dim="time")
    plan = archive.combine()
    assert plan.difference is None
    found = plan.changes(tmp_path / "repo")
    assert found.snapshot_id
    assert found.stopping == ()
    assert found == archive.combine(repo=tmp_path / "repo").difference
    report = plan.write(tmp_path / "repo", mode="w")
    assert not report.already_built


def test_options_of_a_step_are_those_of_the_call(archive):
    with pytest.raises(InvalidInputError, match="missing='fill'"):
        archive.combine("time", missing="fill")
    with pytest.raises(InvalidInputError, match=r"'mesage'.*'message'"):
        archive.combine("time").write("nowhere", mesage="x")
    renamed = archive.combine("time", rename={"packed": "tas"})
    assert "/tas" in [array.path for array in renamed.arrays]
    assert "/packed" in [array.path for array in archive.combine("time").arrays]


def test_icevirt_plan_is_the_same_object(days, tmp_path):
    plan = icevirt.plan(days, concat_dim="time")
    assert isinstance(plan, icevirt.BuildPlan)
    assert plan.write(tmp_path / "repo", branch="main").snapshot_id


LINES = {
    "archive": r"<ScannedArchive \d files  \d arrays  [\d.]+ KiB>",
    "plan": r"<BuildPlan \d files along time \([^()]+\)  \d arrays  [\d,]+ references  \d notes?>",
    "report": r"<BuildReport main@\w{6}  \d files  \d arrays  [\d,]+ references  \d notes?>",
}


def test_each_step_shows_itself_in_one_line_and_the_next_step_in_a_notebook(archive, tmp_path):
    plan = archive.combine()
    report = plan.write(tmp_path / "repo")
    for name, each, step in (
        ("archive", archive, "archive.combine("),
        ("plan", plan, "plan.write(repo)"),
        ("report", report, "report.open()"),
    ):
        assert re.fullmatch(LINES[name], repr(each))
        assert step in each._repr_html_()
    assert str(plan).startswith("Plan ")
    assert "one after the other along time" in str(plan)


class Tags(HTMLParser):
    """Notes the tags of a document."""

    def __init__(self):
        super().__init__()
        self.seen = set()

    def handle_starttag(self, tag, attrs):
        self.seen.add(tag)
        assert all(name == "style" for name, _ in attrs)


OURS = {"div", "code", "table", "tr", "th", "td", "ul", "li", "pre"}


def tags(html):
    parser = Tags()
    parser.feed(html)
    return parser.seen


def hostile_report():
    array = ArraySummary(
        path="/" + HOSTILE,
        data_type="int8",
        shape=(1,),
        chunk_shape=(1,),
        dimension_names=(HOSTILE,),
        references=ReferenceCounts(virtual=1),
        manifests=1,
        readers=Readers(),
    )
    return BuildReport(
        repo=f"file:///{HOSTILE}",
        branch=HOSTILE,
        group="/" + HOSTILE,
        snapshot_id="1CECHNKREP0F1RSTCMT0",
        build_id="b",
        already_built=False,
        files_scanned=1,
        files_reused=0,
        bad_files=(),
        arrays=(array,),
        manifests=1,
        manifest_bytes=1,
        containers=(),
        findings=(HOSTILE,),
    )


def test_what_files_say_is_no_markup_and_no_control_character():
    bad = BadFiles([BadFile(url=HOSTILE, code=HOSTILE, error=HOSTILE)])
    for each in (hostile_report(), bad):
        drawn = each._repr_html_()
        assert tags(drawn) <= OURS
        assert "\x1b" not in drawn + repr(each)
        assert "&lt;script&gt;" in drawn


def test_names_in_files_are_no_markup(tmp_path):
    with netCDF4.Dataset(tmp_path / "a.nc", "w") as file:
        file.createDimension("x<i>", 3)
        file.createVariable("v<b onclick=1>", "f4", ("x<i>",))[:] = np.arange(3)
    archive = icevirt.scan_files(tmp_path / "a.nc", tmp_path / "catalog")
    plan = archive.combine()
    report = plan.write(tmp_path / "repo")
    summary, scanned = icevirt.info(tmp_path / "repo"), icevirt.scan_file(tmp_path / "a.nc")
    for each in (archive, plan, report, summary, scanned):
        assert tags(each._repr_html_()) <= OURS
        assert "v&lt;b onclick=1&gt;" in each._repr_html_()
        assert len(repr(each).splitlines()) == 1
    repo = icevirt.Repository.open(tmp_path / "repo")
    catalog = icevirt.catalog_view(tmp_path / "catalog")
    for each in (repo, repo.readonly_session("main"), repo.writable_session("main"), catalog):
        assert tags(each._repr_html_()) <= OURS
        assert html.escape(repr(each)) in each._repr_html_()


def test_bad_files_are_a_table_with_what_to_do(days, tmp_path):
    (tmp_path / "archive" / "broken.nc").write_bytes(b"\x89HDF\r\n\x1a\n" + b"0" * 100)
    archive = icevirt.scan_files(
        tmp_path / "archive",
        tmp_path / "catalog",
        concat_dim="time",
        scan_options={"max_bad_files": 1},
    )
    ((url, code, error, remedy),) = archive.bad_files.rows()
    assert url.endswith("broken.nc")
    assert (code, remedy) == ("scan", "repair, replace or remove the file")
    assert "damaged" in error
    assert repr(archive.bad_files).startswith("<1 bad file>\n")
    assert "(1 bad)" in repr(archive)
    assert len(archive.combine().files) == len(days)


def test_a_report_of_a_storage_opens_it(archive, tmp_path):
    storage = icevirt.local_filesystem_storage(str(tmp_path / "repo"))
    with archive.combine().write(storage).open() as found:
        assert isinstance(found, xr.Dataset)


def test_options_of_combine_are_keywords_or_what_build_takes(archive):
    """So that a remedy of an error pastes into either."""
    plan = archive.combine(combine_options={"rename": {"packed": "rain"}})
    assert "/rain" in str(plan)
    assert str(plan) == str(archive.combine(rename={"packed": "rain"}))
