"""Programs written for icechunk run with `icevirt.icechunk`, and say what they say with icechunk.

`tests/docs/test_api_table.py` compares all names, and runs one longer program with both.
"""

import asyncio
import json
import pickle
import re
import subprocess
import sys
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread

import icechunk as official
import numpy as np
import pytest
import zarr

import icevirt.icechunk as ours
from icevirt import errors

PAGE = Path(__file__).parents[2] / "docs" / "icechunk-programs.md"


@pytest.mark.ci
def test_the_code_of_the_page_runs(capsys):
    first, second = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    exec(first, {})
    assert capsys.readouterr().out.startswith("no-changes-to-commit cannot commit, no changes made")
    more = (
        "from icechunk.session import Session; from icechunk._icechunk_python import PySession\n"
        "assert Session is PySession is icechunk.Session\n"
        "print(icechunk.dask.store_dask.__module__)"
    )
    ran = subprocess.run(
        [sys.executable, "-c", second + more], capture_output=True, text=True, check=True
    )
    assert ran.stdout == "icevirt.icechunk\nicevirt.icechunk.dask\n"


def test_it_is_not_put_in_the_place_of_a_package_that_is_in_use():
    with pytest.raises(errors.InvalidInputError, match="imported already"):
        ours.install()


def everything(ice, path):
    """Return what a client sees: messages, and values by version."""
    repo = ice.Repository.open(ice.local_filesystem_storage(path))
    found = {}
    for info in repo.ancestry(branch="main"):
        store = repo.readonly_session(snapshot_id=info.id).store
        root = zarr.open_group(store, mode="r") if info.parent_id else {}
        found[info.message] = {name: root[name][:].tolist() for name in root}
    return int(repo.spec_version), repo.list_tags(), found


@pytest.mark.parametrize("version", [1, 2, None])
def test_both_clients_write_what_was_created_here(tmp_path, version):
    """`spec_version=1` makes a repository of the V1 format."""
    path = str(tmp_path / "repo")
    made = ours.Repository.create(ours.local_filesystem_storage(path), spec_version=version)
    for number, ice in enumerate((ours, official, ours)):
        repo = made if not number else ice.Repository.open(ice.local_filesystem_storage(path))
        session = repo.writable_session("main")
        root = zarr.group(session.store)
        root.create_array(f"a{number}", data=np.arange(8) * number, chunks=(3,))
        session.commit(f"commit {number}", metadata={"by": ice.__name__})
        repo.create_tag(f"v{number}", repo.lookup_branch("main"))
    assert everything(ours, path) == everything(official, path)
    assert everything(ours, path)[0] == (version or 2)


def seen(call):
    """Return what a caller can see of an error: its class, its kind, and what it is besides."""
    try:
        call()
    except (ours.IcechunkError, official.IcechunkError) as error:
        again = pickle.loads(pickle.dumps(error))
        same = (type(again), str(again), again.kind) == (type(error), str(error), error.kind)
        return type(error).__name__, error.kind, isinstance(error, KeyError), same
    return "succeeded"


def failures(ice, path):
    """Return what fails, by what was tried."""
    storage = ice.local_filesystem_storage(path)
    missing = ice.local_filesystem_storage(path + "-missing")
    repo = ice.Repository.create(storage)
    first = repo.lookup_branch("main")
    ahead, behind = repo.writable_session("main"), repo.writable_session("main")
    zarr.group(ahead.store, attributes={"a": 1})
    zarr.group(behind.store, attributes={"a": 2})
    ahead.commit("ahead")
    calls = {
        "open": lambda: ice.Repository.open(missing),
        "config": lambda: ice.Repository.fetch_config(missing),
        "branch": lambda: repo.lookup_branch("nope"),
        "session": lambda: repo.readonly_session(tag="nope"),
        "id": lambda: repo.readonly_session(snapshot_id="not an id"),
        "snapshot": lambda: repo.lookup_snapshot("1CECHNKREP0F1RSTCMTG"),
        "commit": lambda: behind.commit("behind"),
        "rebase": lambda: behind.rebase(ice.ConflictDetector()),
        "again": lambda: repo.writable_session("main").commit("nothing"),
        "reset": lambda: repo.reset_branch("main", first, from_snapshot_id=first),
        "tag": lambda: [repo.create_tag("t", first) for _ in range(2)],
        "main": lambda: repo.delete_branch("main"),
        "move": lambda: repo.rearrange_session("main").move("/nope", "/there"),
    }
    return {name: seen(call) for name, call in calls.items()}


def test_errors_are_those_of_the_official_client(tmp_path):
    official.set_logs_filter("error")
    assert failures(ours, str(tmp_path / "a")) == failures(official, str(tmp_path / "b"))


def test_a_lost_manifest_is_not_taken_for_chunks_that_were_never_written(tmp_path):
    """`NotFoundError` is a `KeyError`, from which zarr makes fill values."""
    repo = ours.Repository.create(
        str(tmp_path), ours.RepositoryConfig(inline_chunk_threshold_bytes=0)
    )
    session = repo.writable_session("main")
    zarr.create_array(session.store, name="a", data=np.arange(4), chunks=(2,))
    session.commit("written")
    for path in (tmp_path / "manifests").iterdir():
        path.unlink()
    again = ours.Repository.open(str(tmp_path))
    array = zarr.open_array(again.readonly_session("main").store, path="a", mode="r")
    with pytest.raises(ours.IcechunkError) as caught:
        array[:]
    assert not isinstance(caught.value, KeyError)


def test_what_is_asynchronous_there_is_so_here():
    async def run():
        inner = ours.Storage.new_in_memory()
        assert isinstance(inner, ours.Storage)
        assert not isinstance(inner, ours.testing.LatencyStorage)
        storage = ours.testing.LatencyStorage(inner, write_latency_ms=1)
        assert isinstance(storage, ours.Storage)
        repo = await ours.Repository.create_async(storage=storage)
        session = await repo.writable_session_async("main")
        zarr.create_array(session.store, name="a", data=np.arange(4), chunks=(2,))
        await session.commit_async("written", allow_empty=False)
        return (
            [c async for c in session.chunk_coordinates("/a")],
            [info.message async for info in repo.async_ancestry(branch="main")],
            await repo.list_branches_async(),
        )

    chunks, messages, branches = asyncio.run(run())
    assert (chunks, len(messages), branches) == ([(0,), (1,)], 2, {"main"})


class Redirecting(BaseHTTPRequestHandler):
    """Redirects twice, then to a bucket."""

    def do_GET(self):
        step = int(self.path[1:] or 0)
        self.send_response(302)
        target = f"/{step + 1}" if step < 2 else "s3://bucket/some/prefix?region=us-east-1"
        self.send_header("Location", target)
        self.end_headers()

    def log_message(self, *_args):
        pass


def test_a_redirect_leads_to_a_storage_and_no_credentials_to_it(monkeypatch):
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "not-for-strangers")
    with HTTPServer(("127.0.0.1", 0), Redirecting) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_port}/"
        assert str(ours.redirect_storage(url)) == str(official.redirect_storage(url))
        found = ours.redirect_storage(url).resolve()
        server.shutdown()
    later = ours.redirect_storage("http://127.0.0.1:1/x")  # nobody answers
    with pytest.raises(ours.StorageError) as caught:
        ours.Repository.open(later)
    assert caught.value.kind == "bad-redirect"
    assert found.url == "s3://bucket/some/prefix"
    assert found._bucket.credentials == ours.s3_anonymous_credentials()


class Mumbling(BaseHTTPRequestHandler):
    """Answers with something that is not HTTP."""

    def do_GET(self):
        """Answer."""
        self.wfile.write(b"SSH-2.0\r\n\r\n")

    def log_message(self, *_args):
        """Say nothing."""


def test_a_redirect_shows_no_secret_and_takes_none():
    shown = ours.redirect_storage("https://host.invalid/x?token=SECRET")
    for text in (repr(shown), str(shown), shown._repr_html_()):
        assert "host.invalid/x" in text
        assert "SECRET" not in text
    for url in ("https://user:SECRET@host.invalid/x", "https://SECRET@host.invalid?a=b"):
        with pytest.raises(errors.InvalidInputError, match="user name") as caught:
            ours.redirect_storage(url)
        assert "SECRET" not in str(caught.value)
    assert ours.redirect_storage("https://host.invalid?to=a@b")


def test_a_redirect_that_cannot_be_asked_for_is_an_error_of_icevirt():
    with HTTPServer(("127.0.0.1", 0), Mumbling) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        mumbling = f"http://127.0.0.1:{server.server_port}/"
        for url in (mumbling, "http://127.0.0.1:port/x", "http://127.0.0.1:1/a b"):
            with pytest.raises(errors.RedirectError):
                ours.redirect_storage(url).resolve()
        server.shutdown()


SHOWN = [
    "CachingConfig(num_chunk_refs=3)",
    "CompressionConfig(algorithm=ice.CompressionAlgorithm(), level=2)",
    "StorageSettings(storage_class='x', retries=ice.StorageRetriesSettings(max_tries=2))",
    "StorageConcurrencySettings()",
    "ManifestPreloadConfig(max_total_refs=4)",
    "RepositoryConfig(caching=ice.CachingConfig(num_bytes_chunks=5), max_concurrent_decodes=3)",
    "S3Options(region='r', allow_http=True)",
    "ObjectStoreConfig.S3(ice.S3Options(region='r'))",
    "ObjectStoreConfig.InMemory()",
    "VirtualChunkContainer('s3://b/', ice.ObjectStoreConfig.S3(ice.S3Options()), name='n')",
    "in_memory_storage()",
    "local_filesystem_storage('/some/where')",
    "in_memory_storage().default_settings()",
    "local_filesystem_storage('/some/where').default_settings()",
    "Conflict(ice.ConflictType(6), '/a', [[0, 1]])",
    "SpecVersion.current()",
    "supported_spec_versions()",
    "ConflictError('a', 'b')",
    "RebaseFailedError('S', [])",
    "NotFoundError('missing', 'key-not-found')",
]


def test_values_show_themselves_alike():
    official.set_logs_filter("error")
    output = {
        ice.__name__: {each: repr(eval(f"ice.{each}", {"ice": ice})) for each in SHOWN}
        for ice in (ours, official)
    }
    assert output["icevirt.icechunk"] == output["icechunk"]


def test_sections_of_a_configuration_change_in_place():
    for ice in (ours, official):
        config = ice.RepositoryConfig(compression=ice.CompressionConfig(level=1))
        config.compression.level = 7
        config.manifest = ice.ManifestConfig()
        config.manifest.preload = ice.ManifestPreloadConfig()
        config.manifest.preload.max_total_refs = 42
        assert (config.compression.level, config.manifest.preload.max_total_refs) == (7, 42)
        with pytest.raises((TypeError, ValueError)):
            config.compression.level = "high"


def test_a_store_to_read_from_says_so():
    session = ours.Repository.create(ours.in_memory_storage()).readonly_session("main")
    with pytest.raises(ValueError, match="read-only mode") as caught:
        asyncio.run(session.store.delete("a/zarr.json"))
    assert isinstance(caught.value, ours.ReadOnlyError)
    assert caught.value.kind == ours.ErrorKind.READ_ONLY_STORE


def test_storages_are_made_from_options_and_credentials_too():
    options, public = ours.S3Options(anonymous=True), ours.S3Credentials.Anonymous()
    by_options = [
        ours.Storage.new_s3(ours.S3Options(region="r", anonymous=True), "b", "p", public),
        ours.Storage.new_s3_object_store(ours.S3Options(region="r", anonymous=True), "b", "p"),
        ours.Storage.new_r2(options, "b", "p", "account", public),
        ours.Storage.new_r2(options, None, "b/p", "account", public),
        ours.Storage.new_tigris(options, "b", "p", False, public),
        ours.Storage.new_tigris(options, "b", "p", True, public),
        ours.Storage.new_hf(ours.S3Options(region="us-east-1", anonymous=True), "b", "p", "me"),
        ours.Storage.new_gcs("b", "p", ours.GcsCredentials.Anonymous()),
        ours.Storage.new_azure_blob("account", "b", "p", ours.AzureCredentials.Anonymous()),
    ]
    known = {"bucket": "b", "prefix": "p", "anonymous": True}
    by_name = [
        *[ours.s3_storage(region="r", **known)] * 2,
        *[ours.r2_storage(account_id="account", **known)] * 2,
        ours.tigris_storage(**known),
        ours.tigris_storage(use_weak_consistency=True, **known),
        ours.hf_storage(namespace="me", **known),
        ours.gcs_storage(**known),
        ours.azure_storage(account="account", container="b", prefix="p", anonymous=True),
    ]
    for one, other in zip(by_options, by_name, strict=True):
        assert isinstance(one, ours.Storage)
        assert one._bucket == other._bucket
        assert one.url == other.url


def test_options_and_credentials_reach_a_bucket(s3):
    given = s3.options
    options = ours.S3Options(
        region=given["region"],
        endpoint_url=given["endpoint_url"],
        allow_http=True,
        force_path_style=True,
    )
    keys = ours.s3_static_credentials(
        access_key_id=given["access_key_id"], secret_access_key=given["secret_access_key"]
    )
    storage = ours.Storage.new_s3(options, given["bucket"], given["prefix"], keys)
    session = ours.Repository.create(storage).writable_session("main")
    zarr.create_array(session.store, name="a", data=np.arange(4), chunks=(2,))
    session.commit("written")
    theirs = official.Repository.open(s3.official()).readonly_session("main").store
    assert zarr.open_array(theirs, path="a", mode="r")[:].tolist() == [0, 1, 2, 3]


ODD = (
    b'{"zarr_format":3,"node_type":"array","attributes":{},"shape":[2],"data_type":"int32","chunk_grid":'
    b'{"name":"regular","configuration":{"chunk_shape":[1]}},"chunk_key_encoding":{"name":"default",'
    b'"configuration":{"separator":"/"}},"fill_value":0,"codecs":[{"name":"mycodec","configuration":'
    b'{"foo":42}}],"storage_transformers":[{"name":"mine","configuration":{"bar":43}}]}'
)


@pytest.mark.parametrize("ice", [ours, official], ids=["ours", "official"])
def test_unknown_codecs_and_storage_transformers_are_kept_as_given(ice):
    store = ice.Repository.create(ice.in_memory_storage()).writable_session("main").store._store

    async def kept():
        await store.set("a/zarr.json", ODD)
        await store.set("a/c/1", b"coded")
        return json.loads(bytes(await store.get("a/zarr.json"))), bytes(await store.get("a/c/1"))

    document, chunk = asyncio.run(kept())
    assert {**json.loads(ODD), **document} == json.loads(ODD)
    assert chunk == b"coded"


@pytest.mark.parametrize("ice", [ours, official], ids=["ours", "official"])
def test_a_cache_of_zarr_may_stand_before_a_store(ice):
    kind = pytest.importorskip("zarr.experimental.cache_store").CacheStore
    repo = ice.Repository.create(ice.in_memory_storage())
    session = repo.writable_session("main")
    store = kind(session.store, cache_store=zarr.storage.MemoryStore())
    array = zarr.create_array(store, name="a", shape=(4,), chunks=(1,), shards=(2,), dtype="i4")
    array[:] = 5, 6, 7, 8
    array[3] = 9
    assert array[:].tolist() == [5, 6, 7, 9]
    session.commit("through the cache")
    reading = kind(repo.readonly_session("main").store, cache_store=zarr.storage.MemoryStore())
    for _ in range(2):
        assert zarr.open_array(reading, path="a", mode="r")[:].tolist() == [5, 6, 7, 9]
    assert reading.cache_stats()["hits"] > 0


@pytest.mark.parametrize("ice", [ours, official], ids=["ours", "official"])
def test_the_main_branch_cannot_be_deleted_in_the_same_words(ice):
    with pytest.raises(ice.IcechunkError, match="main branch cannot be deleted"):
        ice.Repository.create(ice.in_memory_storage()).delete_branch("main")


@pytest.mark.parametrize("ice", [ours, official], ids=["ours", "official"])
def test_a_session_that_threads_share_merges_into_itself(ice):
    session = ice.Repository.create(ice.in_memory_storage()).writable_session("main")
    zarr.group(session.store)
    session.merge(session)
    session.commit("once")


def test_functions_of_credentials_raise_what_programs_catch():
    for call in (
        lambda: ours.s3_credentials(access_key_id="one half"),
        lambda: ours.azure_credentials(access_key="k", sas_token="t"),
        lambda: ours.containers_credentials({"s3://b/": 5}),
    ):
        with pytest.raises(ours.IcechunkError) as caught:
            call()
        assert isinstance(caught.value, ValueError)
        assert caught.value.message


@pytest.mark.parametrize(
    "left_out",
    [(), (0,), (1, 4), (0, 1, 2, 3, 4, 5)],
    ids=["none", "the first", "two", "all"],
)
def test_chunks_that_no_container_covers_are_left_out_and_returned(tmp_path, left_out):
    (tmp_path / "data").mkdir()
    prefix = (tmp_path / "data").as_uri() + "/"
    foreign = "file:///elsewhere/"
    locations = [f"{foreign if n in left_out else prefix}f{n}" for n in range(6)]
    locations[2] = "" if 2 not in left_out else locations[2]
    found = {}
    for ice in (official, ours):
        config = ice.RepositoryConfig.default()
        store = ice.local_filesystem_store(str(tmp_path / "data"))
        config.set_virtual_chunk_container(ice.VirtualChunkContainer(prefix, store))
        repo = ice.Repository.create(ice.in_memory_storage(), config=config)
        session = repo.writable_session("main")
        zarr.create_array(session.store, name="v", shape=(4, 6), chunks=(1, 2), dtype="i4")
        answer = session.store.set_virtual_refs_arr(
            "v",
            chunk_grid_shape=(2, 3),
            arr_offset=(1, 0),
            locations=locations,
            offsets=np.arange(6, dtype=np.uint64),
            lengths=np.full(6, 8, np.uint64),
            validate_containers=True,
        )
        kept = sorted(session.all_virtual_chunk_locations())
        found[ice.__name__] = answer and sorted(map(tuple, answer)), kept
    assert found["icechunk"] == found["icevirt.icechunk"]
    refused = [(1 + n // 3, n % 3) for n in left_out]
    assert found["icechunk"][0] == (refused or None)


def test_an_error_of_covered_locations_is_the_error(tmp_path):
    prefix = tmp_path.as_uri() + "/"
    config = ours.RepositoryConfig.default()
    store = ours.local_filesystem_store(str(tmp_path))
    config.set_virtual_chunk_container(ours.VirtualChunkContainer(prefix, store))
    repo = ours.Repository.create(ours.in_memory_storage(), config=config)
    session = repo.writable_session("main")
    zarr.create_array(session.store, name="v", shape=(2,), chunks=(1,), dtype="i4")
    with pytest.raises(ours.IcechunkError, match="do not fill the box"):
        session.store.set_virtual_refs_arr(
            "v", chunk_grid_shape=(2,), locations=[prefix + "a"], offsets=[0], lengths=[4]
        )


@pytest.mark.parametrize(
    ("locations", "is_kept"),
    [
        (["1", "s3://bucket/a"], False),
        (["s3://bucket/a", "relative/path"], False),
        (["s3://bucket/a", "s3:/b"], False),
        (["s3://bucket/a", "a:"], False),
        (["", "s3://bucket/a"], True),
        (["s3://bucket/a", "s3://bucket/b:"], True),
    ],
)
@pytest.mark.parametrize("ice", [official, ours], ids=["icechunk", "icevirt"])
def test_a_location_that_is_no_url_is_refused_where_containers_are_not_asked(
    ice, locations, is_kept
):
    session = ice.Repository.create(ice.in_memory_storage()).writable_session("main")
    zarr.create_array(session.store, name="v", shape=(2,), chunks=(1,), dtype="i4")

    def write():
        session.store.set_virtual_refs_arr(
            "v",
            chunk_grid_shape=(2,),
            locations=locations,
            offsets=np.zeros(2, np.uint64),
            lengths=np.full(2, 4, np.uint64),
            validate_containers=False,
        )

    if is_kept:
        write()
        assert sorted(session.all_virtual_chunk_locations()) == sorted(filter(None, locations))
        return
    with pytest.raises(ice.IcechunkError):
        write()
    if ice is ours:  # icechunk keeps those before it
        assert session.all_virtual_chunk_locations() == []
