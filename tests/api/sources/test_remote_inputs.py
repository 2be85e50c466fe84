"""Lists of files in a bucket: nobody is asked before the scan, and the scan finds what changed."""

import json
from pathlib import Path

import obstore
import pyarrow as pa
import pytest

import icevirt
from builds.support import write_days
from icevirt.api.sources.inputs import Inputs
from icevirt.errors import ScanError, SourcesChangedError
from icevirt.tasks.write_manifests import run_write
from long_forms import cases

pytestmark = pytest.mark.servers


@pytest.fixture
def bucket(s3_proxy, monkeypatch, tmp_path, in_process):
    """Three days in a bucket, and the table of them as a listing would make it."""
    for name, value in {
        "AWS_ENDPOINT_URL": s3_proxy.place.endpoint,
        "AWS_ALLOW_HTTP": "true",
        "AWS_REGION": "us-east-1",
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
    }.items():
        monkeypatch.setenv(name, value)
    put(s3_proxy, *write_days(tmp_path / "archive"))
    return s3_proxy


def put(bucket, *paths):
    for path in paths:
        obstore.put(bucket.direct.store(), Path(path).name, Path(path).read_bytes())


def listed(bucket, *names):
    """Return the table, with an etag or a time or both."""
    rows = [
        {
            "url": f"{bucket.place.url}/{one['path']}",
            "size": one["size"],
            "etag": one["e_tag"].strip('"'),
            "last_modified": one["last_modified"].timestamp(),
        }
        for page in obstore.list(bucket.direct.store())
        for one in page
        if one["path"].endswith(".nc")
    ]
    rows.sort(key=lambda row: row["url"])
    return pa.Table.from_pylist([{name: row[name] for name in names} for row in rows])


COLUMNS = [
    ("url", "size", "etag", "last_modified"),
    ("url", "size", "etag"),
    ("url", "size", "last_modified"),
    ("url",),
]


@pytest.mark.parametrize("columns", COLUMNS)
def test_a_bucket_is_asked_for_what_a_table_does_not_say(bucket, columns):
    output = listed(bucket, *columns)
    bucket.rules.requests.clear()
    files = Inputs(output).files()
    assert len(files) == 3
    assert bool(bucket.rules.requests) == (columns == ("url",))


@pytest.mark.parametrize("columns", cases(COLUMNS, COLUMNS[0], COLUMNS[-1]))
def test_a_table_of_a_bucket_builds_what_the_folder_builds(bucket, columns, tmp_path):
    output = listed(bucket, *columns)
    ours = icevirt.build(output, tmp_path / "a", concat_dim="time")
    theirs = icevirt.build(bucket.place.url, tmp_path / "b", concat_dim="time")
    assert (ours.arrays, ours.containers) == (theirs.arrays, theirs.containers)
    checked = icevirt.verify(
        str(tmp_path / "a"), full=True, authorize_virtual_chunk_access=ours.containers
    )
    assert checked.ok


@pytest.mark.parametrize("columns", [("url", "size", "etag"), ("url", "size", "last_modified")])
def test_a_file_that_is_not_what_the_list_says_is_bad(bucket, columns, tmp_path):
    output = listed(bucket, *columns)
    if "etag" in columns:
        path = Path(write_days(tmp_path / "archive", 1, scale=0.5)[0])
        put(bucket, path)
        assert output["size"][0].as_py() == path.stat().st_size  # or the size would tell it
    else:
        moments = pa.array([1.7e9, *output["last_modified"].to_pylist()[1:]])
        output = output.set_column(2, "last_modified", moments)
    with pytest.raises(ScanError, match=r"1 of 3 files.*changed after it was listed"):
        icevirt.build(output, tmp_path / "repo", concat_dim="time")
    assert not (tmp_path / "repo").exists()


def test_a_file_that_changes_while_a_build_runs_is_scanned_again_where_asked(
    bucket, tmp_path, in_process
):
    output = listed(bucket, "url", "size", "etag")
    in_process.before[run_write] = lambda: put(
        bucket, *write_days(tmp_path / "archive", 1, steps=2)
    )
    with pytest.raises(SourcesChangedError, match=r"1 of 3.*day1\.nc"):
        icevirt.build(output, tmp_path / "a", concat_dim="time")
    put(bucket, *write_days(tmp_path / "archive", 1))
    report = icevirt.build(
        listed(bucket, "url", "size", "etag"),
        tmp_path / "a",
        concat_dim="time",
        commit_options={"rescan_changed": True},
    )
    time = next(array for array in report.arrays if array.path == "/time")
    assert time.shape == (10,)


def test_lists_lie_in_buckets_too(bucket):
    names = listed(bucket, "url")["url"].to_pylist()
    store = bucket.direct.store()
    obstore.put(store, "list.txt", "\n".join(names[1:]).encode())
    items = [
        {"type": "Feature", "assets": {"a": {"href": f"../{Path(name).name}", "roles": ["data"]}}}
        for name in names
    ]
    obstore.put(store, "stac/items.ndjson", "\n".join(map(json.dumps, items)).encode())
    for path, expected in (("list.txt", names[1:]), ("stac/items.ndjson", names)):
        found = Inputs(f"@{bucket.place.url}/{path}").files()
        assert [file.url for file in found] == expected


@pytest.mark.parametrize("most", [2000, 1], ids=["a listing a branch", "one listing"])
def test_large_folders_are_listed_side_by_side(bucket, monkeypatch, most):
    from icevirt.objects.source_lists import remote_listing
    from icevirt.objects.source_lists.listing import list_sources

    store = bucket.direct.store()
    for name in ("in/deep/a/1.nc", "in/deep/a/b/2.nc", "in/deep/c d/3.nc", "in/deep/4.nc"):
        obstore.put(store, name, name.encode())
    url = f"{bucket.place.url}/in"
    expected = list_sources(url)
    assert len(expected) == 4
    monkeypatch.setattr(remote_listing, "_FEW", 1)
    monkeypatch.setattr(remote_listing, "_MOST", most)
    bucket.rules.requests.clear()
    assert list_sources(url) == expected
    listings = [each for each in bucket.rules.requests if "list-type=2" in each.target]
    assert len(listings) == (5 if most > 1 else 4)  # whole, two levels; two branches, or whole
    assert list_sources(f"{url}/**/*.nc") == expected
