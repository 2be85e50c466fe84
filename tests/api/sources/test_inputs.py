"""Lists of sources name what they say they name, and whatever is wrong in them has a line."""

import csv
import gzip
import hashlib
import io
import json
import os
import sys
from datetime import UTC, datetime
from pathlib import Path

import h5py
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import orc

import icevirt
from builds.support import opened_by_both, write_day, write_days
from icevirt.api.sources.inputs import Inputs
from icevirt.archive.sources import SourceFile
from icevirt.errors import IcevirtError, InvalidInputError, NotFoundError
from icevirt.objects.source_lists.listing import list_sources


@pytest.fixture
def days(tmp_path):
    return write_days(tmp_path / "archive")


def stated(days):
    """Return rows as a tool would write them."""
    facts = [os.stat(day) for day in days]
    return [
        {"url": Path(day).as_uri(), "size": each.st_size, "mtime": each.st_mtime, "more": "x"}
        for day, each in zip(days, facts, strict=True)
    ]


def text(days, path):
    path = path.with_suffix(".txt")
    path.write_text("# granules\n\n" + "\r\n".join(days))
    return path


def jsonl(days, path):
    path = path.with_suffix(".jsonl")
    path.write_text("".join(json.dumps(row) + "\n" for row in stated(days)))
    return path


def table(days, path, delimiter=","):
    path = path.with_suffix(".csv" if delimiter == "," else ".tsv")
    rows = stated(days)
    with open(path, "w", newline="", encoding="utf-8-sig") as file:
        writer = csv.DictWriter(file, rows[0].keys(), delimiter=delimiter)
        writer.writeheader()
        writer.writerows(rows)
    return path


def parquet(days, path):
    path = path.with_suffix(".parquet")
    rows = [
        {"path": row["url"], "size": row["size"], "last_modified": int(row["mtime"] * 1e9)}
        for row in stated(days)
    ]
    found = pa.Table.from_pylist(rows)
    moments = found["last_modified"].cast(pa.timestamp("ns", "UTC"))
    pq.write_table(found.set_column(2, "last_modified", moments), path)
    return path


def packed(days, path):
    plain = table(days, path)
    path = plain.with_name(plain.name + ".gz")
    path.write_bytes(gzip.compress(plain.read_bytes()))
    return path


def item(day, **assets):
    return {
        "type": "Feature",
        "id": Path(day).stem,
        "assets": assets or {"thumb": {"href": "x.png"}, "nc": {"href": day, "roles": ["data"]}},
    }


def collection(days, path):
    path = path.with_suffix(".json")
    found = [item(os.path.relpath(days[0], path.parent))]
    found += [item(Path(day).as_uri()) for day in days[1:]]
    path.write_text(json.dumps({"type": "FeatureCollection", "features": found}))
    return path


def items(days, path):
    path = path.with_suffix(".ndjson")
    media = {"nc": {"href": days[0], "type": "application/x-netcdf"}, "x": {"href": "x.xml"}}
    found = [item(days[0], **media), *(item(day) for day in days[1:])]
    path.write_text("\n".join(map(json.dumps, found)))
    return path


KINDS = {
    "text with a comment": text,
    "JSON lines": jsonl,
    "CSV with a byte order mark": table,
    "TSV": lambda days, path: table(days, path, "\t"),
    "Parquet": parquet,
    "packed CSV": packed,
    "a collection of STAC items": collection,
    "STAC items a line": items,
}


@pytest.mark.parametrize("make", KINDS.values(), ids=KINDS.keys())
def test_a_list_stands_for_its_files(make, days, tmp_path):
    days = [days[2], days[0], days[1]]
    path = make(days, tmp_path / "list")
    assert tuple(Inputs(f"@{path}").files()) == list_sources(days)


def test_lists_and_files_stand_in_the_order_given(days, tmp_path):
    first = text(days[2:], tmp_path / "list")
    output = pa.table({"url": [days[0], days[2]]})
    found = Inputs([days[1], f"@{first}", output]).files()
    assert tuple(found) == list_sources([days[1], days[2], days[0]])
    assert tuple(Inputs(output.to_pandas()).files()) == list_sources([days[0], days[2]])


def test_a_list_on_stdin_is_read_once(days, monkeypatch):
    lines = io.BytesIO("\n".join(days).encode())
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(lines))
    inputs = Inputs("-")
    assert tuple(inputs.files()) == list_sources(days)
    write_day(days[1], 1, steps=2)
    assert tuple(inputs.files()) == list_sources(days)


def test_files_on_servers_are_believed_and_nobody_is_asked(tmp_path):
    """There is no such bucket."""
    path = tmp_path / "list.csv"
    path.write_text(
        "URL,Size,ETag,Last_Modified\n"
        "s3://nowhere/a b.nc,7,abc,2024-01-02T03:04:05.678Z\n"
        's3://nowhere/b.nc,8,"""def""",\n'
        'https://nowhere.test/c.nc,9,W/"weak",1704164645.5\n'
        's3://nowhere/d.nc,9,,"Tue, 02 Jan 2024 03:04:05 GMT"\n'
    )
    moment = 1704164645_000000000
    assert tuple(Inputs(f"@{path}").files()) == (
        SourceFile(url="s3://nowhere/a%20b.nc", size=7, etag='"abc"', last_modified=moment),
        SourceFile(url="s3://nowhere/b.nc", size=8, etag='"def"'),
        SourceFile(url="https://nowhere.test/c.nc", size=9, last_modified=moment),
        SourceFile(url="s3://nowhere/d.nc", size=9, last_modified=moment),
    )


def inventory(folder, kind, rows):
    """Write an S3 Inventory as AWS lays it out, and return its manifest."""
    (folder / "2024").mkdir(parents=True)
    (folder / "data").mkdir()
    if kind in ("Parquet", "ORC"):
        names = ["bucket", "key", "is_latest", "is_delete_marker", "size", "last_modified_date"]
        columns = dict(zip([*names, "e_tag"], zip(*rows, strict=True), strict=True))
        moments = [datetime.fromisoformat(each) for each in columns["last_modified_date"]]
        columns["last_modified_date"] = pa.array(moments, pa.timestamp("ms", "UTC"))
        table, sink = pa.table({k: pa.array(v) for k, v in columns.items()}), io.BytesIO()
        pq.write_table(table, sink) if kind == "Parquet" else orc.write_table(table, sink)
        raw, name = sink.getvalue(), f"1.{kind.lower()}"
    else:
        sink = io.StringIO()
        words = [
            [str(v).lower() if isinstance(v, bool) else str(v).replace(" ", "+") for v in row]
            for row in rows
        ]
        csv.writer(sink, quoting=csv.QUOTE_ALL).writerows(words)
        raw, name = gzip.compress(sink.getvalue().encode()), "1.csv.gz"
    (folder / "data" / name).write_bytes(raw)
    manifest = folder / "2024" / "manifest.json"
    manifest.write_text(
        json.dumps(
            {
                "sourceBucket": "archive",
                "destinationBucket": "arn:aws:s3:::reports",
                "fileFormat": kind,
                "fileSchema": "Bucket, Key, IsLatest, IsDeleteMarker, Size, LastModifiedDate, ETag",
                "files": [{"key": f"inv/data/{name}", "MD5checksum": hashlib.md5(raw).hexdigest()}],
            }
        )
    )
    return manifest


NOON = datetime(2024, 1, 1, 12, tzinfo=UTC).isoformat()
LISTED = [
    ("archive", "in/a b.nc", True, False, 5, NOON, "e1"),
    ("archive", "in/a b.nc", False, False, 4, NOON, "e0"),
    ("archive", "in/read.me", True, False, 4, NOON, "e0"),
    ("archive", "in/gone.nc", True, True, 0, NOON, "e0"),
    ("archive", "in/c.nc", True, False, 6, NOON, "e2"),
]


@pytest.mark.parametrize("kind", ["CSV", "ORC", "Parquet"])
def test_an_inventory_stands_for_the_newest_versions_of_its_data_files(kind, tmp_path):
    manifest = inventory(tmp_path / "inv", kind, LISTED)
    found = Inputs(f"@{manifest}").files()
    assert [(f.url, f.size, f.etag) for f in found] == [
        ("s3://archive/in/a%20b.nc", 5, '"e1"'),
        ("s3://archive/in/c.nc", 6, '"e2"'),
    ]
    assert {f.last_modified for f in found} == {1704110400_000000000}


def test_an_inventory_that_lost_or_changed_a_data_file_is_refused(tmp_path):
    manifest = inventory(tmp_path / "inv", "CSV", LISTED)
    (data,) = (tmp_path / "inv" / "data").iterdir()
    data.write_bytes(gzip.compress(b"other"))
    with pytest.raises(InvalidInputError, match="does not match its manifest"):
        Inputs(f"@{manifest}")
    data.unlink()
    with pytest.raises(NotFoundError, match="not beside its manifest"):
        Inputs(f"@{manifest}")
    manifest.write_text(manifest.read_text().replace('"CSV"', '"Avro"'))
    with pytest.raises(InvalidInputError, match="CSV, ORC or Parquet"):
        Inputs(f"@{manifest}")


@pytest.mark.parametrize("cut", [0, 3, 100, -1])
def test_a_damaged_inventory_in_orc_is_reported_with_its_file(cut, tmp_path):
    manifest = inventory(tmp_path / "inv", "ORC", LISTED)
    (data,) = (tmp_path / "inv" / "data").iterdir()
    data.write_bytes(data.read_bytes()[:cut])
    output = json.loads(manifest.read_text())
    del output["files"][0]["MD5checksum"]
    manifest.write_text(json.dumps(output))
    with pytest.raises(InvalidInputError, match=r"1\.orc"):
        Inputs(f"@{manifest}")


def write_parts(folder):
    """Write two files whose values are too many to be copied, and one that refers to both."""
    folder.mkdir()
    layout = h5py.VirtualLayout((2, 4000), "f8")
    for part in range(2):
        with h5py.File(folder / f"part{part}.h5", "w") as file:
            file["v"] = np.arange(4000.0)[None] + part
        layout[part] = h5py.VirtualSource(f"part{part}.h5", "v", (1, 4000))[0]
    with h5py.File(folder / "all.h5", "w") as file:
        file.create_virtual_dataset("v", layout)
    return sorted(map(str, folder.iterdir()))


@pytest.mark.parametrize("seconds", [0, -5, 0.5], ids=["1970", "before 1970", "within a second"])
@pytest.mark.parametrize("way", ["files", "list", "virtual dataset"])
def test_files_of_the_first_second_of_1970_are_built_and_their_changes_are_noticed(
    seconds, way, tmp_path, in_process
):
    """Images and read-only media have such files; nobody can touch them there."""
    whole, *parts = write_parts(tmp_path / "in")
    for each in (whole, *parts):
        os.utime(each, (seconds, seconds))
    sources = [whole] if way == "virtual dataset" else parts
    if way == "list" and seconds >= 0:
        sources = [f"@{table(parts, tmp_path / 'list')}"]
    dim = None if way == "virtual dataset" else "phony_dim_0"
    repo = tmp_path / "repo"
    report = icevirt.build(
        sources, repo, concat_dim=dim, combine_options={"combine": "nested"} if dim else {}
    )
    held = opened_by_both(repo, report)
    np.testing.assert_array_equal(held["v"], np.arange(4000.0) + np.array([[0], [1]]))
    for each in parts:
        os.utime(each)
    with report.open() as dataset, pytest.raises(icevirt.errors.StaleReferenceError):
        dataset.load()


BAD = {
    "a size that is none": ("l.csv", "url,size\n{0},1\n{0},big", "size.*'list': .*|line=3"),
    "a size below zero": ("l.csv", "url,size\n{0},-1", "line=2"),
    "another size": ("l.csv", "url,size\n{0},1", "line=2.*size_listed=1"),
    "another time": ("l.csv", "url,mtime\n{0},17", "line=2.*last_modified_listed=17"),
    "a time that is none": ("l.csv", "url,mtime\n{0},yesterday", "line=2.*yesterday"),
    "a time before 1970": ("l.csv", "url,mtime\n{0},1960-01-01", "line=2"),
    "a directory with a size": ("l.csv", "url,size\n{1},1", "line=2"),
    "no column of URLs": ("l.csv", "name,size\n{0},1", "columns=\\['name', 'size'\\]"),
    "a short line": ("l.csv", "url,size\n{0}", "line=2"),
    "a quote that never ends": ("l.csv", 'url,size\n"{0},1', "damaged"),
    "an empty table": ("l.csv", "url,size\n", "is empty"),
    "empty text": ("l.txt", "# nothing\n", "is empty"),
    "a file that is not there": ("l.txt", "{0}\n{0}.nope", "line=2"),
    "a file elsewhere that has no plain URL": ("l.csv", "url,size,etag\ns3://b/../a,1,e", "line=2"),
    "no JSON": ("l.jsonl", '{{"url": "{0}"}}\n{{"url": ', "line=2"),
    "JSON without a URL": ("l.jsonl", '{{"size": 1}}', "line=1.*size"),
    "a JSON number for a URL": ("l.jsonl", '{{"url": 7}}', "line=1"),
    "an etag that is a number": ("l.jsonl", '{{"url": "{0}", "etag": 7}}', "line=1"),
    "a size that is true": ("l.jsonl", '{{"url": "{0}", "size": true}}', "line=1"),
    "text that is called Parquet": ("l.parquet", "{0}", "damaged"),
    "text that is called packed": ("l.txt.gz", "{0}", "damaged"),
    "references for a list": ("l.json", '{{"version": 1, "refs": {{}}}}', "without @"),
    "an item without assets": ("l.json", '{{"type": "Feature"}}', "no assets"),
    "an item with two of the role": (
        "l.json",
        '{{"type": "Feature", "assets": {{"a": {{"roles": ["data"]}}, "b": {{"roles": ["data"]}}}}}}',
        "line=1.*there=\\['a', 'b'\\]",
    ),
    "an item with no data": (
        "l.json",
        '{{"type": "Feature", "assets": {{"a": {{"href": "a.png"}}}}}}',
        "--asset",
    ),
    "an asset without an href": (
        "l.json",
        '{{"type": "Feature", "assets": {{"a": {{"roles": ["data"]}}}}}}',
        "no href",
    ),
    "features that are no list": ("l.json", '{{"type": "FeatureCollection"}}', "line=1"),
}


@pytest.mark.parametrize(("name", "content", "output"), BAD.values(), ids=BAD.keys())
def test_what_is_wrong_in_a_list_is_reported_with_its_line(
    name, content, output, days, tmp_path, in_process
):
    path = tmp_path / name
    path.write_text(content.format(days[0], Path(days[0]).parent))
    with pytest.raises(IcevirtError, match=output) as caught:
        icevirt.build(f"@{path}", tmp_path / "repo", concat_dim="time")
    assert str(path) in str(caught.value)
    assert not (tmp_path / "repo").exists()


def test_bytes_that_are_no_text_are_reported_with_their_line(tmp_path):
    path = tmp_path / "list.txt"
    path.write_bytes(b"a.nc\n\xff\xfe.nc\n")
    with pytest.raises(InvalidInputError, match=r"UTF-8.*line=2"):
        Inputs(f"@{path}")


def test_a_list_that_is_not_there_is_reported(tmp_path):
    with pytest.raises(NotFoundError, match=r"\./@name"):
        Inputs(f"@{tmp_path}/none.csv")


def test_a_file_whose_name_begins_as_a_list_is_named_by_a_path(days, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    os.rename(days[0], "@a.nc")
    (file,) = Inputs("./@a.nc").files()
    assert (file,) == tuple(Inputs(Path("@a.nc")).files())


def test_an_asset_is_chosen_by_name(days, tmp_path):
    both = {
        "low": {"href": days[0], "roles": ["data"]},
        "high": {"href": days[1], "roles": ["data"], "file:size": os.stat(days[1]).st_size},
    }
    path = tmp_path / "items.json"
    path.write_text(json.dumps(item(days[0], **both)))
    assert tuple(Inputs(f"@{path}", asset="high").files()) == list_sources(days[1])
    with pytest.raises(InvalidInputError, match=r"no such asset.*asset='mid'"):
        Inputs(f"@{path}", asset="mid")


@pytest.mark.parametrize(
    ("own", "href", "found"),
    [
        ("https://stac.test/items/a.json", "../a.nc", "https://stac.test/a.nc"),
        ("s3://bucket/items/a.json", "./a.nc", "s3://bucket/items/a.nc"),
        ("s3://bucket/items/a.json", "https://other.test/a.nc", "https://other.test/a.nc"),
    ],
)
def test_a_relative_href_is_resolved_against_the_item(own, href, found, tmp_path):
    from icevirt.objects.source_lists.items import row_of_item

    output = item("", nc={"href": href, "roles": ["data"]})
    output["links"] = [{"rel": "self", "href": own}]
    assert row_of_item(output, None, "-", 1).url == found


def test_a_build_from_a_list_equals_one_from_the_files(days, tmp_path, in_process):
    path = parquet(days, tmp_path / "list")
    ours = icevirt.build(f"@{path}", tmp_path / "a", concat_dim="time")
    theirs = icevirt.build(days, tmp_path / "b", concat_dim="time")
    assert (ours.references, ours.arrays) == (theirs.references, theirs.arrays)
