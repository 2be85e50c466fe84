"""Many files are scanned into a catalog without a repository, and what is in it can be asked for."""

import contextlib
import json
import os
import sys
from pathlib import Path

import pytest

import icevirt
from icevirt.api import scan as scan_module
from icevirt.cli import main
from icevirt.errors import AlreadyExistsError, InvalidInputError, NotFoundError

from .support import opened, without_spark, write_days


@pytest.fixture
def days(tmp_path, monkeypatch):
    without_spark(monkeypatch)
    monkeypatch.setattr(scan_module, "spark_or_local", lambda spark: contextlib.nullcontext())
    return write_days(tmp_path / "archive")


@pytest.fixture
def catalog(tmp_path):
    return str(tmp_path / "catalog")


@pytest.fixture
def run(monkeypatch, capsys):
    """Run the command in this process; return status, stdout and stderr."""

    def command(*words):
        monkeypatch.setattr(sys, "argv", ["icevirt", *map(str, words)])
        with pytest.raises(SystemExit) as stop:
            main.run()
        told = capsys.readouterr()
        return stop.value.code, told.out, told.err

    return command


def spoil(path):
    """Replace a file by what no scanner reads, and return what it was."""
    was = Path(path).read_bytes()
    Path(path).write_bytes(b"nothing that anybody reads")
    return was


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


def test_bad_files_are_told_and_decide_the_status(days, catalog, run):
    was = spoil(days[1])
    scan = ("scan", *days, "--catalog", catalog, "--concat-dim", "time")
    status, told, _ = run(*scan, "--output", "json", "--quiet")
    report = json.loads(told)
    assert (status, report["ok"], report["files"]) == (1, False, 3)
    assert [(bad["url"], bad["code"]) for bad in report["bad_files"]] == [
        (Path(days[1]).as_uri(), "scan")
    ]
    assert [array["files"] for array in report["arrays"]] == [2] * len(report["arrays"])
    status, told, _ = run(*scan, "--max-bad-files", "34%")
    assert status == 0
    assert told.startswith(f"Scanned file://{catalog}\n")
    assert "1 of 1 allowed" in told
    assert "day2.nc" in told
    status, told, _ = run(*scan)
    assert status == 1
    assert told.startswith("Too many bad files")
    Path(days[1]).write_bytes(was)
    status, told, _ = run(*scan, "--output", "json")
    assert (status, json.loads(told)["files_reused"]) == (0, 2)


def test_a_scan_of_nothing_but_bad_files_is_no_success(days, catalog, run):
    for day in days:
        spoil(day)
    status, told, _ = run("scan", *days, "--catalog", catalog, "--max-bad-files", 3, "-o", "json")
    assert status == 1
    assert (json.loads(told)["bytes"], json.loads(told)["arrays"]) == (0, [])


def test_one_file_is_shown_without_a_catalog(days, run):
    status, told, _ = run("scan", days[0], "--concat-dim", "time")
    assert status == 0
    assert told.startswith(Path(days[0]).as_uri())


@pytest.mark.parametrize("sources", [["a.nc", "b.nc"], ["@list.txt"], ["-"]])
def test_many_files_need_a_catalog(sources, run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    status, told, error = run("scan", *sources)
    assert (status, told) == (2, "")
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
        icevirt.scan_files(**{"sources": days, "catalog": str(tmp_path / "catalog"), **how})
    assert sorted(tmp_path.rglob("*")) == before


def test_a_directory_that_is_no_catalog_is_refused(days, tmp_path):
    with pytest.raises(AlreadyExistsError, match="no catalog"):
        icevirt.scan_files(days, tmp_path / "archive")


def test_a_name_that_no_file_has_is_told(days, catalog):
    with pytest.raises(InvalidInputError, match=r"no file has such a variable.*pakced"):
        icevirt.scan_files(days, catalog, variables="pakced")


@pytest.mark.spark
def test_files_are_scanned_on_spark(spark, tmp_path, nemo_files):
    report = icevirt.scan_files(nemo_files, tmp_path / "catalog", concat_dim="time_counter")
    assert report.ok
    assert report.files_scanned == 3
