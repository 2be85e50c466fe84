"""Each setting of a configuration does what it does in the official client, or stands in a table."""

import asyncio
import pickle
import re
from pathlib import Path

import icechunk as official
import numpy as np
import pytest
import zarr

import icevirt
import icevirt.icechunk as ours
from icevirt.connect import stores
from icevirt.connect.credentials import keywords
from icevirt.connect.stores import bucket_of
from icevirt.errors import ConfigurationError, InvalidInputError, StorageError
from icevirt.icechunk._shims.unused_settings import UNUSED, find_unused
from icevirt.repo import storage_settings
from icevirt.storage.memory import MemoryStorage
from icevirt.storage.protocol import LostRace
from servers.places import BUCKET

CLIENTS = pytest.mark.parametrize("client", [official, ours], ids=["official", "icevirt"])


def s3(client, strict, **more):
    keys = {"access_key_id": "a", "secret_access_key": "b", "region": "us-east-1"}
    where = {"bucket": BUCKET, "prefix": "repo", "endpoint_url": strict.place.endpoint}
    return client.s3_storage(**where, **keys, allow_http=True, force_path_style=True, **more)


def write(repo, message="written", chunks=2):
    session = repo.writable_session("main")
    how = {"chunks": (2,), "dtype": "i4", "compressors": None, "overwrite": True}
    array = zarr.create_array(session.store, name="a", shape=(2 * chunks,), **how)
    array[:] = np.arange(2 * chunks)
    session.commit(message)


def seen(strict, header):
    """Return the values of a header by method and kind of object."""
    found = {}
    for request in strict.rules.requests:
        kind = re.sub(rf"^/{BUCKET}/repo/|[/?].*$", "", request.target) or "listing"
        found.setdefault((request.method, kind), set()).add(request.headers.get(header))
    return found


CLASSES = {
    "all": {"storage_class": "STANDARD_IA"},
    "chunks": {"chunks_storage_class": "ONEZONE_IA"},
    "each": {
        "storage_class": "STANDARD_IA",
        "metadata_storage_class": "GLACIER_IR",
        "chunks_storage_class": "ONEZONE_IA",
    },
}


@pytest.mark.parametrize("case", CLASSES)
def test_storage_classes_reach_the_server_as_those_of_the_official_client(strict_s3, case):
    found = []
    for client in (official, ours):
        strict_s3.rules.requests.clear()
        settings = client.StorageSettings(**CLASSES[case])
        config = client.RepositoryConfig(storage=settings, inline_chunk_threshold_bytes=0)
        repo = client.Repository.create(s3(client, strict_s3), config, check_clean_root=False)
        write(repo)
        write(client.Repository.open(s3(client, strict_s3)))
        of_puts = seen(strict_s3, "x-amz-storage-class").items()
        found.append({kind: classes for (method, kind), classes in of_puts if method == "PUT"})
        strict_s3.cloud.move(f"{BUCKET}/repo", f"{BUCKET}/done-{client.__name__}")
    assert found[0] == found[1]
    assert len(found[0]) == 6


def test_builds_store_what_the_configuration_says(strict_s3, tmp_path):
    import xarray as xr

    xr.Dataset({"v": ("x", np.arange(4.0))}).to_netcdf(tmp_path / "a.nc", engine="h5netcdf")
    settings = ours.StorageSettings(metadata_storage_class="GLACIER_IR")
    storage = s3(ours, strict_s3)
    ours.Repository.create(storage, ours.RepositoryConfig(storage=settings))
    strict_s3.rules.requests.clear()
    icevirt.build([str(tmp_path / "a.nc")], storage, executor="in-process")
    found = seen(strict_s3, "x-amz-storage-class")
    assert found["PUT", "manifests"] == found["PUT", "snapshots"] == {"GLACIER_IR"}
    assert found["PUT", "repo"] == {None}


@CLIENTS
def test_bytes_of_chunks_are_kept_up_to_a_size(strict_s3, client):
    config = client.RepositoryConfig(
        caching=client.CachingConfig(num_bytes_chunks=20), inline_chunk_threshold_bytes=0
    )
    repo = client.Repository.create(s3(client, strict_s3), config)
    write(repo, chunks=10)
    array = zarr.open_array(repo.readonly_session("main").store, path="a", mode="r")
    strict_s3.rules.requests.clear()
    for _ in range(5):
        assert array[:4].tolist() == [0, 1, 2, 3]
    assert len(strict_s3.rules.requests) == 2
    for _ in range(2):
        array[:]
    assert len(strict_s3.rules.requests) > 2 + 10


class Busy(MemoryStorage):
    """Another writer is always faster."""

    tries = 0

    def put_if(self, path, body, *, was, after=None):
        if path == "repo" and was is not None:
            self.tries += 1
            return LostRace()
        return super().put_if(path, body, was=was, after=after or {})


@pytest.mark.parametrize("most", [1, 3])
def test_an_update_is_tried_as_often_as_the_configuration_says(most):
    retries = icevirt.StorageRetriesSettings(max_tries=most, initial_backoff_ms=0)
    config = icevirt.RepositoryConfig(
        repo_update_retries=icevirt.RepoUpdateRetryConfig(default=retries)
    )
    repo = icevirt.Repository.create(storage := Busy(), config)
    with pytest.raises(StorageError, match="before every attempt") as caught:
        repo.create_tag("t", repo.lookup_branch("main"))
    assert caught.value.facts["tries"] == storage.tries == most


@CLIENTS
@pytest.mark.parametrize("is_persisted", [True, False])
def test_repo_holds_as_many_updates_as_the_configuration_says(client, is_persisted):
    config = client.RepositoryConfig(num_updates_per_repo_info_file=3)
    storage = client.in_memory_storage()
    repo = client.Repository.create(storage, config if is_persisted else None)
    repo = client.Repository.open(storage, None if is_persisted else config)
    for number in range(6):
        repo.create_tag(f"t{number}", repo.lookup_branch("main"))
    assert len(repo.inspect_repo_info()["latest_updates"]) == 3
    assert len([*repo.ops_log()]) == 7


def test_headers_go_along_unless_they_have_to_be_signed(strict_s3):
    config = ours.RepositoryConfig(storage=ours.StorageSettings(storage_class="STANDARD_IA"))
    write(ours.Repository.create(s3(ours, strict_s3, headers={"x-team": "1"}), config))
    assert {each for values in seen(strict_s3, "x-team").values() for each in values} == {"1"}
    strict_s3.rules.requests.clear()
    storage = s3(ours, strict_s3, write_headers={"X-Amz-Meta-Team": "a"})
    write(pickle.loads(pickle.dumps(ours.Repository.open(storage))), "again")
    found = seen(strict_s3, "x-amz-meta-team")
    assert {each for (how, _), values in found.items() if how == "PUT" for each in values} == {"a"}
    with pytest.raises(InvalidInputError, match="only if they are signed"):
        s3(ours, strict_s3, write_headers={"X-Amz-Storage-Class": "STANDARD_IA"})
    kept = ours.tigris_storage(
        bucket="b", prefix="p", anonymous=True, region="auto", headers={"x-team": "1"}
    )
    assert {"x-tigris-consistent", "x-team"} <= {*dict(kept._bucket.options.headers)}


def test_readers_pay_where_they_say_so(strict_s3, monkeypatch):
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "a")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "b")
    prefix = f"s3://{BUCKET}/files/"
    for name, options in {"records it": {"requester_pays": True}, "does not": {}}.items():
        where = {"endpoint_url": strict_s3.place.endpoint, "allow_http": True, "region": "eu"}
        store = icevirt.s3_store(**where, force_path_style=True, **options)
        config = icevirt.RepositoryConfig()
        config.set_virtual_chunk_container(icevirt.VirtualChunkContainer(prefix, store))
        strict_s3.cloud._set(f"{BUCKET}/files/a", None)
        access = {(prefix, strict_s3.place.endpoint): "requester-pays"}
        repo = icevirt.Repository.create(icevirt.in_memory_storage(), config, access)
        session = repo.writable_session("main")
        array = zarr.create_array(session.store, name="a", shape=(2,), chunks=(2,), dtype="i4")
        session.store.set_virtual_ref("a/c/0", f"{prefix}a", offset=0, length=8)
        strict_s3.rules.requests.clear()
        with pytest.raises(StorageError):
            array[:]
        payers = {each.headers.get("x-amz-request-payer") for each in strict_s3.rules.requests}
        assert payers == {"requester"}, name


def test_a_project_pays_on_google_cloud_storage(monkeypatch):
    def headers(config=None):
        return dict(bucket_of("gs://b/", config).options.headers)

    monkeypatch.delenv("GOOGLE_CLOUD_QUOTA_PROJECT", raising=False)
    assert headers() == {}
    given = icevirt.gcs_store({"user_project": "one"})
    assert headers(given) == {"x-goog-user-project": "one"}
    monkeypatch.setenv("GOOGLE_CLOUD_QUOTA_PROJECT", "two")
    assert headers() == {"x-goog-user-project": "two"}
    assert headers(given) == {"x-goog-user-project": "one"}
    assert headers(icevirt.gcs_store({"google_skip_signature": "true"})) == {}
    public = icevirt.icechunk.gcs_storage(bucket="b", prefix="p", anonymous=True)
    assert "two" not in str(stores._arguments(public._bucket))
    signed = icevirt.icechunk.gcs_storage(bucket="b", prefix="p", from_env=True)
    assert "two" in str(stores._arguments(signed._bucket))
    with pytest.raises(InvalidInputError, match="GOOGLE_CLOUD_QUOTA_PROJECT=PROJECT"):
        keywords.parse_credentials("requester-pays", "gcs")
    with pytest.raises(InvalidInputError, match="not a way"):
        keywords.parse_credentials("requester-pays", "azure")


def test_timeouts_and_sizes_of_parts_reach_the_library(strict_s3):
    timeouts = ours.StorageTimeoutSettings(
        connect_timeout_ms=1500, read_timeout_ms=2500, operation_attempt_timeout_ms=3500
    )
    settings = ours.StorageSettings(timeouts=timeouts, minimum_size_for_multipart_upload=6 << 20)
    config = ours.RepositoryConfig(storage=settings, inline_chunk_threshold_bytes=0)
    repo = ours.Repository.create(s3(ours, strict_s3), config)
    client = {name: str(value) for name, value in repo.storage._bucket.options.client}
    found = {name: client[name] for name in ("connect_timeout", "read_timeout", "timeout")}
    assert found == {
        "connect_timeout": "0:00:01.500000",
        "read_timeout": "0:00:02.500000",
        "timeout": "0:00:03.500000",
    }
    repo.storage.put("icevirt/large", bytes(7 << 20))
    assert any("uploadId" in each.target for each in strict_s3.rules.requests)


NOT_VALID = {
    "timeouts.read_timeout_ms": [2**63],
    "timeouts.connect_timeout_ms": [10**12],
    "timeouts.operation_attempt_timeout_ms": [2**64],
    "storage_class": ["x\ny", "a b", "\u00e4"],
    "chunks_storage_class": ["x\0"],
    "metadata_storage_class": ["\r\n"],
    "minimum_size_for_multipart_upload": [2**64],
}


@pytest.mark.parametrize("name", NOT_VALID)
def test_a_setting_of_the_storage_that_no_client_obeys_is_refused(name):
    storage = icevirt.s3_storage(bucket="b", prefix="p", region="r", anonymous=True)
    section, _, own = name.rpartition(".")
    for value in NOT_VALID[name]:
        settings = {section: {own: value}} if section else {own: value}
        with pytest.raises(ConfigurationError, match=f"storage.{name}"):
            storage_settings.with_settings(storage, {"storage": settings})


def test_a_repository_does_not_decide_how_much_memory_a_reader_needs():
    root, much = icevirt.in_memory_storage(), 1 << 40
    config = ours.RepositoryConfig(caching=ours.CachingConfig(num_bytes_chunks=much))
    own = icevirt.Repository.create(root, config)
    own.save_config()
    read = icevirt.Repository.open(root)
    assert read.config.caching.num_bytes_chunks == much
    sizes = [each._assets._chunks.limit for each in (own, read)]
    assert sizes == [much, 1 << 30]
    assert icevirt.Repository.open(root, config)._assets._chunks.limit == much
    less = ours.RepositoryConfig(caching=ours.CachingConfig(num_bytes_chunks=5))
    assert icevirt.Repository.open(root, less)._assets._chunks.limit == 5


ACT = {
    *("inline_chunk_threshold_bytes", "num_updates_per_repo_info_file", "repo_update_retries"),
    *("compression", "manifest.splitting", "manifest.virtual_chunk_location_compression"),
    *("virtual_chunk_containers", "caching.num_bytes_chunks", "storage.storage_class"),
    *("storage.metadata_storage_class", "storage.chunks_storage_class"),
    "storage.minimum_size_for_multipart_upload",
    *(f"storage.timeouts.{name}_timeout_ms" for name in ("connect", "read", "operation_attempt")),
}
"""Tested above, or in tests/repo/test_manifest_config.py and its neighbors."""


def places(section, below=""):
    for name in (each for each in dir(section) if not each.startswith("_")):
        value, place = getattr(section, name), f"{below}{name}"
        if place in ACT or place in UNUSED:
            yield place
        elif type(value).__name__.endswith(("Config", "Settings")):
            yield from places(value, f"{place}.")
        elif not callable(value) and name != "previous_file":  # of the Rust client's own making
            yield place


def test_every_setting_of_the_official_client_acts_or_stands_in_the_table():
    storage = official.StorageSettings(
        concurrency=official.StorageConcurrencySettings(),
        retries=official.StorageRetriesSettings(),
        timeouts=official.StorageTimeoutSettings(),
    )
    config = official.RepositoryConfig(
        caching=official.CachingConfig(), storage=storage, manifest=official.ManifestConfig()
    )
    assert {*places(config)} == ACT | UNUSED.keys()
    page = Path(__file__).parents[2] / "docs" / "icechunk-programs.md"
    rows = [line for line in page.read_text().splitlines() if line.startswith("| `")]
    for place, why in UNUSED.items():
        assert any(f"`{place}`" in row and row.endswith(f"| {why} |") for row in rows), place


def test_what_does_nothing_is_said_to_programs_that_ask(capsys):
    config = ours.RepositoryConfig(
        max_concurrent_requests=3, caching=ours.CachingConfig(num_chunk_refs=5)
    )
    assert {*find_unused(config.document)} == {"max_concurrent_requests", "caching.num_chunk_refs"}
    ours.set_logs_filter("info")
    try:
        ours.Repository.create(ours.in_memory_storage(), config)
    finally:
        ours.set_logs_filter("")
    shown = capsys.readouterr().err
    assert "RepositoryConfig.max_concurrent_requests has no effect" in shown
    assert "RepositoryConfig.caching.num_chunk_refs has no effect" in shown


@CLIENTS
def test_storages_show_how_they_are_reached(client):
    keys = {"access_key_id": "CANARY", "secret_access_key": "CANARY"}
    shown = [
        str(client.hf_storage(bucket="b", prefix="p", namespace="n", **keys)),
        str(client.s3_storage(bucket="b", prefix="p", region="eu-west-1", requester_pays=True)),
    ]
    assert "endpoint_url: https://s3.hf.co/n\nforce_path_style: True" in shown[0]
    assert "region: eu-west-1\nrequester_pays: True" in shown[1]
    assert "CANARY" not in "".join(shown)


@CLIENTS
def test_attributions_and_keys_are_refused_with_the_same_words(client):
    for wrong, words in {
        "a;b": "forbidden character",
        "x" * 129: "longer than",
    }.items():
        with pytest.raises(ValueError, match=words):
            client.Attribution(workload=wrong)
    with pytest.raises(ValueError, match="token characters"):
        client.Attribution(client="a b")
    attribution = client.Attribution(workload="w")
    repo = client.Repository.create(client.in_memory_storage(), attribution=attribution)
    assert pickle.loads(pickle.dumps(repo)).attribution == attribution
    session = repo.writable_session("main")
    with pytest.raises(client.IcechunkError, match="cannot flush a forked session"):
        session.fork().flush("forked")
    assert session.store._is_open
    for ask in (session.store.exists, session.store.getsize):
        with pytest.raises(client.InvalidInputError):
            asyncio.run(ask("foo"))
    zarr.create_group(session.store)
    with pytest.raises(TypeError, match=r"`value` must be a Buffer instance. Got an instance of"):
        asyncio.run(session.store.set("zarr.json", 0))
    with pytest.raises(client.IcechunkError, match="empty prefix"):
        client.s3_storage(bucket="b", prefix="p", legacy_rooted_keys=True)


@CLIENTS
def test_a_box_of_one_chunk_fits_an_array_without_dimensions(client):
    session = client.Repository.create(client.in_memory_storage()).writable_session("main")
    zarr.create_array(session.store, name="a", shape=(), dtype="i4")
    session.store.set_virtual_refs_arr(
        "/a",
        [1],
        ["file:///a/b"],
        np.array([0], "u8"),
        np.array([4], "u8"),
        validate_containers=False,
    )
    assert session.all_virtual_chunk_locations() == ["file:///a/b"]


@CLIENTS
def test_what_is_deprecated_warns_at_the_line_of_the_program(client, tmp_path):
    config, prefix = client.RepositoryConfig.default(), f"{tmp_path.as_uri()}/"
    container = client.VirtualChunkContainer(prefix, client.local_filesystem_store(f"{tmp_path}/"))
    config.set_virtual_chunk_container(container)
    storage = client.local_filesystem_storage(str(tmp_path / "repo"))
    client.Repository.create(storage, config)
    with pytest.warns(DeprecationWarning, match="authorize_virtual_chunk_access") as caught:
        repo = client.Repository.open(storage, authorize_virtual_chunk_access={prefix: None})
    assert [each.filename for each in caught] == [__file__]
    with pytest.warns(DeprecationWarning, match="total_chunks_storage") as caught:
        repo.total_chunks_storage()
    assert [each.filename for each in caught] == [__file__]
