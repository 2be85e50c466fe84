"""Many files are scanned into a catalog without a repository, and what is in it can be asked for."""

import contextlib
import errno
import json
import os
import sys
from pathlib import Path

import pytest

import icevirt
from icevirt.api import scan as scan_module
from icevirt.cli import main
from icevirt.errors import (
    AlreadyExistsError,
    FormatError,
    InvalidInputError,
    NotFoundError,
    ScanError,
)
from icevirt.spark import scanning

from .support import opened, without_spark, write_days


@pytest.fixture
def days(tmp_path, monkeypatch):
    without_spark(monkeypatch)
    monkeypatch.setattr(scan_module, "spark_or_local", lambda *_, **__: contextlib.nullcontext())
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


# -- the view ------------------------------------------------------------------------------------


@pytest.fixture
def view(days, catalog):
    icevirt.scan_files(days, catalog, concat_dim="time")
    return icevirt.catalog_view(catalog)


def test_the_references_are_those_of_the_files(view, days):
    """Row by row, inline bytes too."""
    found = {}
    for row in view.references().read_all().to_pylist():
        found.setdefault((row["file"], row["path"]), []).append(row)
    for day in days:
        scanned = icevirt.scan_file(day, concat_dim="time")
        for array in scanned.arrays:
            rows = found.pop((scanned.source.url, array.path), [])
            table = array.references
            assert [row["index"] for row in rows] == table.index.tolist()
            assert [row["length"] for row in rows] == table.length.tolist()
            for number, row in enumerate(rows):
                offset = int(table.offset[number])
                if row["kind"] == "virtual":
                    assert (row["url"], row["offset"]) == (scanned.source.url, offset)
                    assert row["data"] is None
                    moment = scanned.source.last_modified // 1000
                    assert round(row["last_modified"].timestamp() * 1e6) == moment
                else:
                    assert row["kind"] == "inline"
                    assert (row["url"], row["offset"], row["etag"]) == (None, None, None)
                    assert row["data"] == bytes(table.inline[offset:][: row["length"]])
    assert not found


def test_both_kinds_of_references_are_there(view):
    kinds = set(view.references().read_all()["kind"].to_pylist())
    assert kinds == {"virtual", "inline"}


def test_one_array_is_read_alone(view):
    found = view.references("packed").read_all()
    assert set(found["path"].to_pylist()) == {"/packed"}
    assert len(found) == 12
    assert view.references("/nope").read_all().num_rows == 0
    assert set(view.arrays("packed").read_all()["path"].to_pylist()) == {"/packed"}


def test_files_are_told_with_what_went_wrong(days, catalog):
    spoil(days[1])
    icevirt.scan_files(days, catalog, concat_dim="time")
    rows = {Path(row["url"]).name: row for row in rows_of(catalog, "files")}
    assert [(name, row["status"], row["code"]) for name, row in sorted(rows.items())] == [
        ("day1.nc", "ok", None),
        ("day2.nc", "corrupt", "scan"),
        ("day3.nc", "ok", None),
    ]
    assert "day2.nc" in rows["day2.nc"]["error"]
    assert rows["day1.nc"]["error"] is None
    assert rows["day1.nc"]["scanner"] == "hdf5"
    assert rows["day1.nc"]["size"] == os.stat(days[0]).st_size
    assert rows["day1.nc"]["seconds"] > 0
    assert rows["day1.nc"]["scanned_at"].timestamp() > os.stat(days[0]).st_mtime - 1


def rows_of(catalog, table, **how):
    return getattr(icevirt.catalog_view(catalog, **how), table)().read_all().to_pylist()


def test_global_attributes_of_every_file_are_there(view):
    found = [row for row in view.attributes().read_all().to_pylist() if row["path"] == "/"]
    assert [(row["value"], row["dtype"]) for row in found if row["name"] == "title"] == [
        ("made for tests", None)
    ] * 3
    days = [row for row in found if row["name"] == "day"]
    assert [(row["value"], row["dtype"]) for row in days] == [("1", "i4"), ("2", "i4"), ("3", "i4")]


def test_arrays_are_told_as_zarr_spells_them(view, days):
    (array, *rest) = view.arrays("/packed").read_all().to_pylist()
    scanned = icevirt.scan_file(days[0], concat_dim="time").array("/packed")
    assert len(rest) == 2
    assert (array["shape"], array["chunk_shape"]) == ([4, 5, 6], [1, 5, 6])
    assert array["dimension_names"] == ["time", "y", "x"]
    assert json.loads(array["data_type"]) == scanned.data_type
    assert json.loads(array["codecs"]) == list(scanned.codecs)
    assert json.loads(array["fill_value"]) == scanned.fill_value
    assert json.loads(array["attributes"]) == dict(scanned.attributes.values)
    assert array["virtual"] == 4
    whole = view.arrays("/time").read_all().to_pylist()[0]
    assert whole["chunk_shape"] is None


def test_what_was_scanned_again_counts_once(days, catalog):
    was = spoil(days[1])
    icevirt.scan_files(days, catalog, concat_dim="time")
    Path(days[1]).write_bytes(was)
    write_days(Path(days[0]).parent, 1, steps=2)
    icevirt.scan_files(days, catalog, concat_dim="time")
    assert [row["status"] for row in rows_of(catalog, "files")] == ["ok"] * 3
    packed = [row for row in rows_of(catalog, "references") if row["path"] == "/packed"]
    assert len(packed) == 10
    assert sum(row["virtual"] for row in rows_of(catalog, "arrays")) == sum(
        row["kind"] == "virtual" for row in rows_of(catalog, "references")
    )


def test_scans_with_other_options_are_told_apart(view, days, catalog):
    icevirt.scan_files(days[:1], catalog, concat_dim="time", drop_variables="mask")
    both = icevirt.catalog_view(catalog)
    assert len(both.scans) == 2
    other = next(each for each in both.scans if each not in view.scans)
    assert both.scans[other]["options"]["drop_variables"] == ["mask"]
    assert both.scans[other]["scanners"]["hdf5"]
    assert len(rows_of(catalog, "files")) == 4
    alone = rows_of(catalog, "files", scan=other)
    assert [row["left_out"] for row in alone] == [["/mask"]]
    with pytest.raises(InvalidInputError, match="no such scan"):
        icevirt.catalog_view(catalog, scan="nope")


def test_a_catalog_that_is_none_is_refused(tmp_path, days):
    with pytest.raises(NotFoundError, match="no such catalog"):
        icevirt.catalog_view(tmp_path / "none")
    with pytest.raises(AlreadyExistsError, match="no catalog"):
        icevirt.catalog_view(tmp_path / "archive")
    assert not (tmp_path / "none").exists()


def test_references_into_other_files_name_those(tmp_path, days, catalog):
    """A file of references is scanned to references into what it refers to."""
    references = {
        ".zgroup": '{"zarr_format": 2}',
        "a/.zarray": json.dumps(
            {
                "zarr_format": 2,
                "shape": [2, 4],
                "chunks": [1, 4],
                "dtype": "<i2",
                "compressor": None,
                "filters": None,
                "fill_value": 0,
                "order": "C",
            }
        ),
        "a/.zattrs": '{"_ARRAY_DIMENSIONS": ["n", "m"]}',
        "a/0.0": [str(tmp_path / "archive" / "raw1.bin"), 8, 8],
        "a/1.0": [str(tmp_path / "archive" / "raw2.bin"), 0, 8],
    }
    for name in ("raw1.bin", "raw2.bin"):
        (tmp_path / "archive" / name).write_bytes(bytes(16))
    path = tmp_path / "archive" / "refs.json"
    path.write_text(json.dumps({"version": 1, "refs": references}))
    report = icevirt.scan_files(path, catalog)
    assert report.ok, report.bad_files
    rows = [row for row in rows_of(catalog, "references") if row["path"] == "/a"]
    assert {row["file"] for row in rows} == {path.as_uri()}
    assert [(Path(row["url"]).name, row["offset"], row["index"]) for row in rows] == [
        ("raw1.bin", 8, [0, 0]),
        ("raw2.bin", 0, [1, 0]),
    ]
    assert all(row["last_modified"] for row in rows)


@pytest.mark.spark
def test_spark_sees_the_same_rows(spark, view):
    for table in ("files", "arrays", "attributes", "references"):
        frame = view.dataframe(spark, table)
        ours = getattr(view, table)().read_all()
        assert frame.columns == ours.column_names
        theirs = frame.toArrow().select(ours.column_names)
        key = [(name, "ascending") for name in ("file", "path", "name", "url", "offset")]
        keys = [each for each in key if each[0] in ours.column_names]
        theirs, ours = (each.sort_by(keys).to_pylist() for each in (theirs, ours))
        assert theirs == ours
    assert view.dataframe(spark, "references", "packed").count() == 12
    with pytest.raises(InvalidInputError, match="no such table"):
        view.dataframe(spark, "refs")


def test_the_command_tells_what_a_catalog_holds(days, catalog, run):
    spoil(days[1])
    report = icevirt.scan_files(days, catalog, concat_dim="time")
    status, told, _ = run("catalog", catalog, "--output", "json")
    found = json.loads(told)
    assert (status, found["files"], len(found["bad_files"])) == (0, 3, 1)
    assert found["references"]["virtual"] == report.references.virtual
    assert found["references"]["inline"] == report.references.inline
    status, told, _ = run("catalog", catalog)
    assert "concat_dim=time" in told
    assert "day2.nc" in told


def test_a_table_is_written_as_parquet(days, catalog, run, tmp_path):
    import pyarrow.parquet as pq

    icevirt.scan_files(days, catalog, concat_dim="time")
    path = tmp_path / "references.parquet"
    assert run("catalog", catalog, "--table", "references", "--to", path)[0] == 0
    assert pq.read_table(path).to_pylist() == rows_of(catalog, "references")
    assert sorted(tmp_path.glob("*unfinished*")) == []


@pytest.mark.parametrize(
    ("words", "status", "named"),
    [
        (["--table", "files"], 2, "--to"),
        (["--table", "files", "--to", "no/such/place.parquet"], 1, "no/such/place.parquet"),
        (["--table", "files", "--to", "catalog"], 1, "'catalog'"),
        (["--scan", "nope"], 1, "nope"),
    ],
)
def test_what_cannot_be_written_is_told(words, status, named, days, catalog, run, monkeypatch):
    monkeypatch.chdir(Path(catalog).parent)
    icevirt.scan_files(days, catalog)
    before = sorted(Path().rglob("*"))
    found, told, error = run("catalog", catalog, *words)
    assert (found, told) == (status, "")
    assert named in error
    assert sorted(Path().rglob("*")) == before


@pytest.mark.servers
def test_a_catalog_lies_in_a_bucket_too(days, s3):
    catalog = s3.icevirt()
    assert icevirt.scan_files(days[:2], catalog, concat_dim="time").files_scanned == 2
    assert icevirt.scan_files(days, catalog, concat_dim="time").files_scanned == 1
    view = icevirt.catalog_view(catalog)
    assert view.summary().files == 3
    assert view.references("packed").read_all().num_rows == 12


# -- builds of what a catalog was scanned for -------------------------------------------------------


def test_a_build_without_sources_takes_all_files_of_the_catalog_in_their_order(
    days, catalog, tmp_path, run
):
    assert run("scan", days[2], days[0], "--catalog", catalog, "-q")[0] == 0
    assert run("scan", days[1], "--catalog", catalog, "-q")[0] == 0
    wrong = run("build", "--catalog", catalog, tmp_path / "repo", "--concat-dim", "x", "-q")
    assert wrong[0] == 1
    assert "concat_dim" in wrong[2]
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
        icevirt.build(None, str(tmp_path / "repo"), **asked)
    Path(days[1]).write_bytes(was)
    report = icevirt.build(None, str(tmp_path / "repo"), **asked)
    assert (report.files_scanned, report.files_reused) == (1, 2)
    os.remove(days[2])
    with pytest.raises(NotFoundError, match=r"day3\.nc"):
        icevirt.build(None, str(tmp_path / "other"), **asked)


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
    with pytest.raises(InvalidInputError, match="max_bad_files is"):
        icevirt.scan_files(days, catalog, max_bad_files=share)


@pytest.mark.parametrize("table", ["files", "arrays", "refs", "asked"])
def test_a_damaged_table_is_told_and_mended_as_the_error_says(days, catalog, tmp_path, table):
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
        report = icevirt.scan_files(days, catalog, concat_dim="time", max_bad_files=1)
    (bad,) = report.bad_files
    assert "Permission denied" in bad.error
    files = icevirt.catalog_view(catalog).files().read_pandas().set_index("url")
    assert files.status[bad.url] == "unreadable"
    assert sorted(files.status) == ["ok", "ok", "unreadable"]
