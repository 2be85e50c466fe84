"""Sources on servers: what a glob or folder names, what a scan of them sees, how many requests."""

from datetime import UTC, datetime

import h5py
import netCDF4
import numpy as np
import obstore
import pytest
import xarray as xr

import icevirt
from builds.support import tables_of
from icevirt.errors import (
    InvalidInputError,
    NotFoundError,
    ScanError,
    StaleReferenceError,
)
from icevirt.objects.opening import open_source
from icevirt.objects.source_lists.listing import find_changes, list_sources
from icevirt.scan.contract import ScannerOptions
from icevirt.scan.registry import scan
from icevirt.tasks.scan_file import attempt
from servers import azurite
from servers.faults import weak_etag, without

pytestmark = pytest.mark.servers


@pytest.fixture
def s3_env(s3, monkeypatch):
    """Let the environment say how the server is reached, as for a build on a cluster."""
    for name, value in environment(s3).items():
        monkeypatch.setenv(name, value)
    return s3


def environment(s3):
    return {
        "AWS_ENDPOINT_URL": s3.endpoint,
        "AWS_ALLOW_HTTP": "true",
        "AWS_REGION": "us-east-1",
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
    }


@pytest.fixture
def bucket(s3_env):
    """Some objects below the place."""
    store = s3_env.store()
    for name in NAMES:
        obstore.put(store, name, name.encode())
    return s3_env


NAMES = [
    "a/f1.nc",
    "a/f2.nc",
    "a/f10.nc",
    "a/notes.txt",
    "a/.hidden.nc",
    "a/deep/er/g.h5",
    "a/.cache/x.nc",
    "b c/ü%#.nc",
    "top.nc",
]


def names(place, *sources):
    files = list_sources([f"{place.url}/{source}" for source in sources])
    return [file.url.removeprefix(place.url + "/") for file in files]


LISTS = {
    "a file": (["top.nc"], ["top.nc"]),
    "a file without the usual suffix": (["a/notes.txt"], ["a/notes.txt"]),
    "a folder": (["a"], ["a/deep/er/g.h5", "a/f1.nc", "a/f2.nc", "a/f10.nc"]),
    "a folder with a slash": (["a/deep/"], ["a/deep/er/g.h5"]),
    "a glob in natural order": (["a/f*.nc"], ["a/f1.nc", "a/f2.nc", "a/f10.nc"]),
    "one character": (["a/f?.nc"], ["a/f1.nc", "a/f2.nc"]),
    "a glob of folders": (["*/*/er/*"], ["a/deep/er/g.h5"]),
    "folders crossed": (["**/*.h5"], ["a/deep/er/g.h5"]),
    "everything": (["**"], ["a/deep/er/g.h5", "a/f1.nc", "a/f2.nc", "a/f10.nc", "a/notes.txt", "b%20c/%C3%BC%25%23.nc", "top.nc"]),
    "hidden files when asked for": (["a/.h*"], ["a/.hidden.nc"]),
    "a name that URLs encode": (["b%20c/%C3%BC%25%23.nc"], ["b%20c/%C3%BC%25%23.nc"]),
    "named twice": (["a/f2.nc", "a/f*.nc"], ["a/f2.nc", "a/f1.nc", "a/f10.nc"]),
}  # fmt: skip


@pytest.mark.parametrize(("sources", "expected"), LISTS.values(), ids=LISTS.keys())
def test_what_urls_of_a_bucket_name(bucket, sources, expected):
    assert names(bucket, *sources) == expected


def test_globs_of_buckets_and_directories_agree(bucket, tmp_path):
    for name in NAMES:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(name.encode())
    for pattern in ("a", "a/*", "**", "**/*.nc", "a/**/*.h5", "*/f*", "a/.*", "[ab]*/*1*.nc"):
        local = [
            file.url.removeprefix(f"file://{tmp_path}/")
            for file in list_sources([str(tmp_path / pattern)])
        ]
        assert names(bucket, pattern) == local, pattern


NOTHING = {
    "no such file": ("none.nc", InvalidInputError),
    "a folder without files of the kind": ("a/.cache/none/", InvalidInputError),
    "a glob that matches nothing": ("a/*.zarr", InvalidInputError),
}


@pytest.mark.parametrize(("source", "error"), NOTHING.values(), ids=NOTHING.keys())
def test_what_names_nothing_is_reported(bucket, source, error):
    with pytest.raises(error):
        names(bucket, source)


def test_files_that_changed_since_are_named(bucket):
    files = list_sources([bucket.url])
    assert not find_changes(files)
    obstore.put(bucket.store(), "a/f2.nc", b"other")
    obstore.delete(bucket.store(), "top.nc")
    assert sorted(find_changes(files)) == [f"{bucket.url}/a/f2.nc", f"{bucket.url}/top.nc"]


def test_the_folders_marker_is_no_file(bucket):
    obstore.put(bucket.store(), "a", b"")
    assert "a" not in names(bucket, "**")


def test_web_servers_are_not_listed(http_server):
    for end in ("data/", "data/*.nc", ""):
        with pytest.raises(InvalidInputError, match="cannot be listed"):
            list_sources([f"{http_server.url}/{end}"])


def test_files_of_a_web_server_are_named_and_looked_at_again(http_server):
    http_server.files.put("data/a.nc", b"CDF")
    http_server.files.put("data/b.nc", b"CDF")
    urls = [f"{http_server.url}/data/{name}.nc" for name in "ab"]
    files = list_sources(urls)
    assert [(file.url, file.size) for file in files] == [(url, 3) for url in urls]
    assert not find_changes(files)
    http_server.files.put("data/a.nc", b"CDG")
    del http_server.files.objects["data/b.nc"]
    assert list(find_changes(files)) == urls
    with pytest.raises(NotFoundError):
        list_sources(urls[1:])


def test_listings_and_answers_of_azure_say_the_same(azure, monkeypatch):
    for name, value in {
        "AZURE_STORAGE_ACCOUNT_NAME": azurite.ACCOUNT,
        "AZURE_STORAGE_ACCOUNT_KEY": azurite.KEY,
        "AZURE_STORAGE_ENDPOINT": azure.endpoint,
        "AZURE_ALLOW_HTTP": "true",
    }.items():
        monkeypatch.setenv(name, value)
    for name in ("a.nc", "b c.nc"):
        obstore.put(azure.store(), f"d/{name}", name.encode())
    files = list_sources([f"{azure.url}/d/*.nc"])
    for file, body in zip(files, (b"a.nc", b"b c.nc"), strict=True):
        with open_source(file.url) as source:
            assert source.read(0, 9) == body
            assert (source.file.size, source.file.last_modified) == (file.size, file.last_modified)
    assert not find_changes(files)
    obstore.put(azure.store(), "d/a.nc", b"A.nc")
    assert list(find_changes(files)) == [f"{azure.url}/d/a.nc"]


# -- one source ------------------------------------------------------------------------------


@pytest.fixture
def large(http_server):
    body = np.random.default_rng(1).integers(0, 256, 9_000_001, np.uint8).tobytes()
    http_server.files.put("data/a.bin", body)
    return http_server, body


def test_reads_are_those_of_the_file(large):
    server, body = large
    source = open_source(server.url + "/data/a.bin")
    places = np.random.default_rng(2).integers(0, len(body) + 100, (60, 2))
    lengths = (places[:, 1] % 70_000).tolist()
    for offset, length in [
        *zip(places[:, 0].tolist(), lengths, strict=True),
        (0, 0),
        (0, 5_000_000),
        (len(body) - 3, 100),
        (len(body), 1),
        (65535, 2),
        (0, len(body) + 10),
    ]:
        assert source.read(offset, length) == body[offset : offset + length]
    source.check_unchanged()
    assert source.file.size == len(body)
    assert source.requests < 20


@pytest.mark.parametrize(("size", "requests"), [(100, 1), (3_600_000, 2), (30_000_000, 13)])
def test_a_small_file_takes_few_requests_wherever_it_is_read(size, requests, http_server):
    """Those of the beginning and of the rest: every answer says whether it is still the same."""
    body = np.random.default_rng(1).integers(0, 256, size, np.uint8).tobytes()
    http_server.files.put("data/a.bin", body)
    with open_source(http_server.url + "/data/a.bin") as source:
        for offset in np.random.default_rng(2).integers(0, size, 200).tolist():
            assert source.read(offset, 1000) == body[offset : offset + 1000]
        source.check_unchanged()
    assert source.requests <= requests
    assert source.bytes_fetched < 2 * size + 100


def test_a_scan_tells_what_it_took_also_of_a_bad_file(http_server, nemo_files):
    """In its row of the catalog."""
    with open(nemo_files[0], "rb") as file:
        body = file.read()
    http_server.files.put("data/good.nc", body)
    http_server.files.put("data/bad.nc", body[: len(body) // 2])
    files = list_sources([f"{http_server.url}/data/{name}.nc" for name in ("good", "bad")])
    outcomes = [attempt(file, ScannerOptions(concat_dim="time_counter")) for file in files]
    assert [outcome.error is None for outcome in outcomes] == [True, False]
    rows = tables_of(outcomes).files
    assert all(0 < requests < 20 for requests in rows["requests"])
    assert all(0 < fetched < 2 * len(body) for fetched in rows["bytes_fetched"])
    local = attempt(list_sources(nemo_files[0])[0], ScannerOptions())
    assert (local.requests, local.bytes_fetched) == (0, 0)


def test_a_large_file_is_not_taken_whole(http_server):
    http_server.files.put("data/a.bin", bytes(40_000_000))
    source = open_source(http_server.url + "/data/a.bin")
    for offset in range(0, 40_000_000, 5_000_000):
        source.read(offset, 100)
    assert source.bytes_fetched < 20_000_000


def test_a_file_that_changes_between_two_requests_is_noticed(large):
    server, body = large
    source = open_source(server.url + "/data/a.bin")
    server.files.put("data/a.bin", body[::-1])
    with pytest.raises(StaleReferenceError, match="during the scan") as caught:
        source.read(5_000_000, 10)
    for name in ("opened", "found"):
        facts = caught.value.facts[name]
        assert facts["size"] == len(body)
        assert datetime.fromisoformat(facts["last_modified"]).tzinfo == UTC
    with pytest.raises(StaleReferenceError):
        source.check_unchanged()


def test_a_file_whose_changes_nobody_would_notice_is_refused(large):
    server, _ = large
    server.rules.add(without("etag", "last-modified"))
    with pytest.raises(ScanError, match="go unnoticed"):
        open_source(server.url + "/data/a.bin")


def test_a_weak_etag_is_not_recorded(large):
    server, _ = large
    server.rules.add(weak_etag())
    file = open_source(server.url + "/data/a.bin").file
    assert (file.etag, file.last_modified_seconds) == ("", int(server.files.modified))


def test_a_file_that_is_not_there(http_server):
    with pytest.raises(NotFoundError):
        open_source(http_server.url + "/data/none.nc")


@pytest.fixture(scope="module")
def samples(tmp_path_factory):
    """Files of several kinds: much metadata, little, NetCDF-3."""
    root = tmp_path_factory.mktemp("samples")
    with h5py.File(root / "dense.h5", "w") as file:
        for number in range(100):
            file.create_dataset(f"v{number}", data=np.arange(50.0), chunks=(5,))
    for number, start in enumerate((0, 10), 1):
        write(root / f"nc{number}.nc", start)
    with netCDF4.Dataset(root / "classic.nc", "w", format="NETCDF3_CLASSIC") as file:
        file.createDimension("x", 1000)
        file.createVariable("v", "f4", ("x",))[:] = np.arange(1000)
    return root


def write(path, start):
    with netCDF4.Dataset(path, "w") as file:
        file.createDimension("time", None)
        file.createDimension("x", 100)
        time = file.createVariable("time", "f8", ("time",))
        time.units = "days since 2000-01-01"
        time[:] = start + np.arange(10)
        v = file.createVariable("v", "f4", ("time", "x"), zlib=True, chunksizes=(1, 100))
        v[:] = np.random.default_rng(start).random((10, 100), np.float32)


@pytest.mark.parametrize("name", ["dense.h5", "nc1.nc", "classic.nc"])
def test_a_scan_over_the_network_is_that_of_the_local_file(http_server, samples, name):
    http_server.files.put(f"data/{name}", (samples / name).read_bytes())
    with open_source(http_server.url + f"/data/{name}") as source:
        far = scan(source, ScannerOptions())
    near = scan(open_source(samples / name), ScannerOptions())
    assert source.requests <= 8
    assert [array.path for array in far.arrays] == [array.path for array in near.arrays]
    for one, other in zip(far.arrays, near.arrays, strict=True):
        for column in ("index", "offset", "length", "kind"):
            np.testing.assert_array_equal(
                getattr(one.references, column), getattr(other.references, column)
            )
        if len(one.references.locations):
            assert one.references.locations.etag[0] == http_server.files.etags[f"data/{name}"]


# -- builds ----------------------------------------------------------------------------------


@pytest.mark.spark
def test_a_build_from_a_bucket_reads_what_the_files_hold(
    s3_env, samples, tmp_path, spark, monkeypatch
):
    for name, value in environment(s3_env).items():  # the executors' one
        monkeypatch.setitem(spark.sparkContext.environment, name, value)
    for name in ("nc1.nc", "nc2.nc"):
        obstore.put(s3_env.store(), f"files/{name}", (samples / name).read_bytes())
    report = icevirt.build(
        f"{s3_env.url}/files/nc*.nc", str(tmp_path / "repo"), concat_dim="time", executor=spark
    )
    with (
        xr.open_mfdataset(
            sorted(samples.glob("nc?.nc")),
            combine="nested",
            concat_dim="time",
            data_vars="minimal",
            coords="minimal",
            compat="equals",
            join="exact",
            engine="netcdf4",
        ) as expected,
        xr.open_dataset(
            tmp_path / "repo",
            engine="icevirt",
            authorize_virtual_chunk_access=report.containers,
        ) as found,
    ):
        xr.testing.assert_identical(found.load(), expected.load())


@pytest.mark.ci
@pytest.mark.spark
def test_a_build_from_a_web_server_reads_what_the_files_hold(http_server, samples, tmp_path, spark):
    urls = []
    for name in ("nc1.nc", "nc2.nc"):
        http_server.files.put(f"data/{name}", (samples / name).read_bytes())
        urls.append(f"{http_server.url}/data/{name}")
    report = icevirt.build(urls, str(tmp_path / "repo"), concat_dim="time", executor=spark)
    opened = xr.open_dataset(
        tmp_path / "repo", engine="icevirt", authorize_virtual_chunk_access=report.containers
    )
    with opened, xr.open_dataset(samples / "nc2.nc", engine="netcdf4") as second:
        np.testing.assert_array_equal(opened["v"].values[10:], second["v"].values)
    http_server.files.put("data/nc1.nc", (samples / "nc2.nc").read_bytes())
    with pytest.raises(StaleReferenceError):
        xr.open_dataset(
            tmp_path / "repo", engine="icevirt", authorize_virtual_chunk_access=report.containers
        )["v"].load()
