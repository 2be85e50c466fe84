"""Many files are scanned into a catalog without a repository, and built from it."""

import errno
import json
import os
from pathlib import Path

import pytest

import icevirt
from builds.support import opened, spoil
from grouping import grouped
from icevirt.errors import (
    AlreadyExistsError,
    FormatError,
    InvalidInputError,
    NotFoundError,
    ScanError,
)
from icevirt.tasks import scan as scanning


def test_the_report_counts_what_the_files_hold(days, catalog):
    report = icevirt.scan_files(days, catalog, concat_dim="time")
    alone = [icevirt.scan_file(day, concat_dim="time") for day in days]
    assert report.ok
    assert (report.files, report.files_scanned, report.files_reused) == (3, 3, 0)
    assert report.bytes == sum(os.stat(day).st_size for day in days)
    assert report.references.total == sum(
        len(array.references) for file in alone for array in file.arrays
    )
    assert {array.path: array.files for array in report.arrays} == {
        array.path: 3 for array in alone[0].arrays
    }
    assert [array.path for array in report.arrays] == sorted(a.path for a in alone[0].arrays)
    packed = next(array for array in report.arrays if array.path == "/packed")
    assert (packed.shapes, packed.schemas, packed.references.virtual) == (1, 1, 12)


def test_a_scan_goes_on_where_another_was_and_a_build_starts_from_it(days, catalog, repo_path):
    icevirt.scan_files(days[:2], catalog, concat_dim="time")
    report = icevirt.scan_files(Path(days[0]).parent, catalog, concat_dim="time")
    assert (report.files_scanned, report.files_reused) == (1, 2)
    built = icevirt.build(days, repo_path, concat_dim="time", catalog=catalog)
    assert (built.files_scanned, built.files_reused) == (0, 3)
    assert opened(repo_path).sizes["time"] == 12


def test_bad_files_are_reported_and_decide_the_status(days, catalog, run):
    was = spoil(days[1])
    scan = ("scan", *days, "--catalog", catalog, "--concat-dim", "time")
    status, output, _ = run(*scan, "--output", "json", "--quiet")
    report = json.loads(output)
    assert (status, report["ok"], report["files"]) == (1, False, 3)
    assert [(bad["url"], bad["code"]) for bad in report["bad_files"]] == [
        (Path(days[1]).as_uri(), "scan")
    ]
    assert [array["files"] for array in report["arrays"]] == [2] * len(report["arrays"])
    status, output, _ = run(*scan, "--max-bad-files", "34%")
    assert status == 0
    assert output.startswith(f"Scanned file://{catalog}\n")
    assert "1 of 1 allowed" in output
    assert "day2.nc" in output
    status, output, _ = run(*scan)
    assert status == 1
    assert output.startswith("Too many bad files")
    Path(days[1]).write_bytes(was)
    status, output, _ = run(*scan, "--output", "json")
    assert (status, json.loads(output)["files_reused"]) == (0, 2)


def test_a_scan_of_nothing_but_bad_files_is_no_success(days, catalog, run):
    for day in days:
        spoil(day)
    status, output, _ = run("scan", *days, "--catalog", catalog, "--max-bad-files", 3, "-o", "json")
    assert status == 1
    assert (json.loads(output)["bytes"], json.loads(output)["arrays"]) == (0, [])


def test_one_file_is_shown_without_a_catalog(days, run):
    status, output, _ = run("scan", days[0], "--concat-dim", "time")
    assert status == 0
    assert output.startswith(Path(days[0]).as_uri())


@pytest.mark.parametrize("sources", [["a.nc", "b.nc"], ["@list.txt"], ["-"]])
def test_many_files_need_a_catalog(sources, run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    status, output, error = run("scan", *sources)
    assert (status, output) == (2, "")
    assert "--catalog" in error
    assert list(tmp_path.iterdir()) == []


BAD = {
    "no such file": ({"sources": "none.nc"}, NotFoundError),
    "no such list": ({"sources": "@none.txt"}, NotFoundError),
    "no sources": ({"sources": []}, InvalidInputError),
    "no such scanner": ({"scanner": "nobody"}, InvalidInputError),
    "a share that is none": ({"max_bad_files": "many"}, InvalidInputError),
    "a memory that workers do not share": (
        {"catalog": icevirt.in_memory_storage()},
        InvalidInputError,
    ),
}


@pytest.mark.parametrize(("how", "error"), BAD.values(), ids=BAD.keys())
def test_bad_input_leaves_nothing_behind(how, error, days, tmp_path):
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(error):
        icevirt.scan_files(
            **grouped({"sources": days, "catalog": str(tmp_path / "catalog"), **how})
        )
    assert sorted(tmp_path.rglob("*")) == before


def test_a_directory_that_is_no_catalog_is_refused(days, tmp_path):
    with pytest.raises(AlreadyExistsError, match="something else"):
        icevirt.scan_files(days, tmp_path / "archive")


def test_a_name_that_no_file_has_is_reported(days, catalog):
    with pytest.raises(InvalidInputError, match=r"no file has this variable.*pakced"):
        icevirt.scan_files(days, catalog, scan_options={"variables": "pakced"})


@pytest.mark.ci
@pytest.mark.spark
def test_files_are_scanned_on_spark(spark, tmp_path, nemo_files):
    report = icevirt.scan_files(nemo_files, tmp_path / "catalog", concat_dim="time_counter")
    assert report.ok
    assert report.files_scanned == 3


# -- builds of what a catalog was scanned for -------------------------------------------------------


@pytest.mark.ci
def test_a_build_without_sources_takes_all_files_of_the_catalog_in_their_order(
    days, catalog, tmp_path, run
):
    assert run("scan", days[2], days[0], "--catalog", catalog, "-q")[0] == 0
    assert run("scan", days[1], "--catalog", catalog, "-q")[0] == 0
    wrong = run("build", "--catalog", catalog, tmp_path / "repo", "--concat-dim", "x", "-q")
    assert wrong[0] == 1
    assert "along 'x'" in wrong[2]
    words = ("--catalog", catalog, "-o", "json")
    status, out, _ = run("build", *words, tmp_path / "repo")
    report = json.loads(out)
    assert (status, report["files_reused"], report["files_scanned"]) == (0, 3, 0)
    icevirt.build([days[2], days[0], days[1]], str(tmp_path / "named"), concat_dim="time")
    ours, theirs = (opened(str(tmp_path / name)).load() for name in ("repo", "named"))
    assert ours.identical(theirs)
    assert run("plan", *words)[0] == 0


def test_a_build_without_sources_finishes_a_scan_that_was_killed(
    days, catalog, tmp_path, monkeypatch
):
    """What was asked for counts, and not what was reached."""
    attempt = scanning.attempt

    def killed(file, *how):
        if file.url.endswith("day3.nc"):
            raise KeyboardInterrupt
        return attempt(file, *how)

    with monkeypatch.context() as until:
        until.setattr(scanning, "attempt", killed)
        with pytest.raises(KeyboardInterrupt):
            icevirt.scan_files(days, catalog, concat_dim="time")
    report = icevirt.build(None, str(tmp_path / "repo"), concat_dim="time", catalog=catalog)
    assert (report.files_scanned, report.files_reused) == (1, 2)
    assert opened(str(tmp_path / "repo")).sizes["time"] == 12


def test_a_build_without_sources_leaves_out_no_bad_file_unasked(days, catalog, tmp_path):
    was = spoil(days[1])
    assert not icevirt.scan_files(days, catalog, concat_dim="time").ok
    asked = {"concat_dim": "time", "catalog": catalog}
    with pytest.raises(ScanError, match="1 of 3 files"):
        icevirt.build(None, str(tmp_path / "repo"), **grouped(asked))
    Path(days[1]).write_bytes(was)
    report = icevirt.build(None, str(tmp_path / "repo"), **grouped(asked))
    assert (report.files_scanned, report.files_reused) == (1, 2)
    os.remove(days[2])
    with pytest.raises(NotFoundError, match=r"day3\.nc"):
        icevirt.build(None, str(tmp_path / "other"), **grouped(asked))


def test_a_build_needs_sources_or_a_catalog_that_was_scanned(catalog, tmp_path, run):
    assert run("build", tmp_path / "repo")[0] == 2
    assert run("build", "archive/*.nc", "--catalog", catalog)[0] == 2
    assert run("plan")[0] == 2
    with pytest.raises(InvalidInputError, match="neither"):
        icevirt.build(None, str(tmp_path / "repo"))
    with pytest.raises(NotFoundError, match="no such catalog"):
        icevirt.build(None, str(tmp_path / "repo"), catalog=catalog)
    assert not (tmp_path / "repo").exists()


@pytest.mark.parametrize("share", ["101%", "inf%", "nan%", "x%"])
def test_a_share_of_bad_files_is_at_most_all(days, catalog, share):
    with pytest.raises(InvalidInputError, match=f"max_bad_files='{share}'"):
        icevirt.scan_files(days, catalog, scan_options={"max_bad_files": share})


@pytest.mark.parametrize("table", ["files", "arrays", "refs", "asked"])
def test_a_damaged_table_is_reported_and_mended_as_the_error_says(days, catalog, tmp_path, table):
    icevirt.scan_files(days, catalog, concat_dim="time")
    damaged = next(Path(catalog, table).iterdir())
    whole = damaged.read_bytes()
    for bytes_left in (b"", whole[: len(whole) // 2], whole[:-30] + bytes(30)):
        damaged.write_bytes(bytes_left)
        with pytest.raises(FormatError, match=damaged.name):
            icevirt.build(None, str(tmp_path / "repo"), concat_dim="time", catalog=catalog)
    assert not (tmp_path / "repo").exists()
    if table != "asked":
        Path(catalog, "files", damaged.name).unlink()
    report = icevirt.build(days, str(tmp_path / "repo"), concat_dim="time", catalog=catalog)
    assert report.files_scanned == (0 if table == "asked" else 1)
    assert opened(str(tmp_path / "repo")).sizes["time"] == 12


def test_a_file_that_may_not_be_read_is_unreadable_and_not_corrupt(days, catalog, monkeypatch):
    """Whoever runs the tests may be one who may read everything, so the system call refuses."""
    opened_by = os.open

    def refuses(path, *how, **more):
        if str(path).endswith("day2.nc"):
            raise PermissionError(errno.EACCES, "Permission denied", path)
        return opened_by(path, *how, **more)

    with monkeypatch.context() as until:
        until.setattr(os, "open", refuses)
        report = icevirt.scan_files(
            days, catalog, concat_dim="time", scan_options={"max_bad_files": 1}
        )
    (bad,) = report.bad_files
    assert "Permission denied" in bad.error
    files = icevirt.catalog_view(catalog).files().read_pandas().set_index("url")
    assert files.status[bad.url] == "unreadable"
    assert sorted(files.status) == ["ok", "ok", "unreadable"]


def test_what_a_command_did_with_a_catalog_is_said_in_words(days, catalog, tmp_path, run):
    icevirt.scan_files(days, catalog)
    out = tmp_path / "files.parquet"
    printed = run("catalog", catalog, "--table", "files", "--to", out)[1]
    assert printed == f"3 rows of the table files written to {out}\n"
    assert run("catalog", catalog, "--forget", days[0])[1] == "1 scan of 1 file forgotten\n"
    status, _, error = run("catalog", catalog, "--forget", days[0])
    assert status == 1
    assert f"icevirt catalog file://{catalog} --table files --to files.parquet" in error


def test_a_scan_with_too_many_bad_files_says_how_to_go_on(days, catalog, run):
    spoil(days[1])
    status, printed, _ = run("scan", *days, "--catalog", catalog)
    assert status == 1
    advice = "To go on without them, scan and build with --max-bad-files 1."
    assert printed.endswith(f"{advice}\n")
    status, printed, _ = run("scan", *days, "--catalog", catalog, "--max-bad-files", 1)
    assert (status, advice in printed) == (0, False)
