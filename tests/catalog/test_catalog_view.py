"""What a catalog holds can be asked for: in Python, by Spark, and on the command line."""

import json
import os
from pathlib import Path

import pyarrow as pa
import pytest

import icevirt
from builds.support import spoil, write_days
from icevirt.errors import (
    AlreadyExistsError,
    InvalidInputError,
    NotFoundError,
)


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
        scanned = icevirt.scan_file(day)
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


def test_files_are_reported_with_what_went_wrong(days, catalog):
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


def test_arrays_are_reported_as_zarr_spells_them(view, days):
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


def test_scans_with_other_options_are_distinguished(view, days, catalog):
    icevirt.scan_files(
        days[:1], catalog, concat_dim="time", scan_options={"drop_variables": "mask"}
    )
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
    with pytest.raises(AlreadyExistsError, match="something else"):
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


def arrow_of(frame):
    """Return the rows of a data frame; Spark 3.5 has no public way."""
    if hasattr(frame, "toArrow"):
        return frame.toArrow()
    return pa.Table.from_batches(frame._collect_as_arrow())


@pytest.mark.ci
@pytest.mark.spark
def test_spark_sees_the_same_rows(spark, view):
    for table in ("files", "arrays", "attributes", "references"):
        frame = view.dataframe(spark, table)
        ours = getattr(view, table)().read_all()
        assert frame.columns == ours.column_names
        theirs = arrow_of(frame).select(ours.column_names)
        key = [(name, "ascending") for name in ("file", "path", "name", "url", "offset")]
        keys = [each for each in key if each[0] in ours.column_names]
        theirs, ours = (each.sort_by(keys).to_pylist() for each in (theirs, ours))
        assert theirs == ours
    assert view.dataframe(spark, "references", "packed").count() == 12
    with pytest.raises(InvalidInputError, match="unknown table"):
        view.dataframe(spark, "refs")


def test_the_command_tells_what_a_catalog_holds(days, catalog, run):
    spoil(days[1])
    report = icevirt.scan_files(days, catalog, concat_dim="time")
    status, output, _ = run("catalog", catalog, "--output", "json")
    found = json.loads(output)
    assert (status, found["files"], len(found["bad_files"])) == (0, 3, 1)
    assert found["references"]["virtual"] == report.references.virtual
    assert found["references"]["inline"] == report.references.inline
    status, output, _ = run("catalog", catalog)
    assert "files       3" in output
    assert "day2.nc" in output


def test_a_table_is_written_as_parquet(days, catalog, run, tmp_path):
    import pyarrow.parquet as pq

    icevirt.scan_files(days, catalog, concat_dim="time")
    path = tmp_path / "references.parquet"
    assert run("catalog", catalog, "--table", "references", "--to", path)[0] == 0
    assert pq.read_table(path).to_pylist() == rows_of(catalog, "references")
    assert sorted(tmp_path.glob("*unfinished*")) == []


@pytest.mark.ci
@pytest.mark.parametrize(
    ("words", "status", "named"),
    [
        (["--table", "files"], 2, "--to"),
        (["--table", "files", "--to", "no/such/place.parquet"], 3, "no/such/place.parquet"),
        (["--table", "files", "--to", "catalog"], 3, "'catalog'"),
        (["--scan", "nope"], 1, "nope"),
    ],
)
def test_what_cannot_be_written_is_reported(words, status, named, days, catalog, run, monkeypatch):
    monkeypatch.chdir(Path(catalog).parent)
    icevirt.scan_files(days, catalog)
    before = sorted(Path().rglob("*"))
    found, output, error = run("catalog", catalog, *words)
    assert (found, output) == (status, "")
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
