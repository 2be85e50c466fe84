"""What a reader of the specification alone would get wrong, and other clients would suffer from."""

import asyncio
import dataclasses
import json
import os
import unicodedata
from datetime import UTC, datetime

import icechunk
import numpy as np
import pytest
import zarr
from zarr.core.buffer import cpu

import icevirt
from icevirt.archive.plan import MAX_REFERENCES
from icevirt.errors import FormatError, InvalidInputError
from icevirt.ids import INITIAL_SNAPSHOT_ID, ObjectId12
from icevirt.model.chunks import ChunkTable, Locations
from icevirt.model.config.containers import ObjectStoreConfig, VirtualChunkContainer
from icevirt.model.config.document import RepositoryConfig, SplitRule
from icevirt.model.transaction_log import TransactionLog
from icevirt.planning.schedule.write_tasks import window_of
from icevirt.repo import layout
from icevirt.repo.repository import Repository
from icevirt.wire import snapshot as snapshot_file
from icevirt.wire import transaction_log as log_file
from icevirt.wire.repo_info import file as repo_file
from repo.support import array_json, group_json, sound

ROOT = str(INITIAL_SNAPSHOT_ID)


# -- a new repository ------------------------------------------------------------------------


def test_the_first_snapshot_and_its_log_are_those_of_the_official_client(repo, tmp_path):
    """No root group, a mark that says what it is, and a log: diffs and rebases fetch it."""
    theirs = str(tmp_path / "theirs")
    icechunk.Repository.create(icechunk.local_filesystem_storage(theirs))
    other = Repository.open(theirs)
    ours, expected = (
        snapshot_file.decode(each.storage.get(layout.snapshot(INITIAL_SNAPSHOT_ID)))
        for each in (repo, other)
    )
    assert dataclasses.replace(ours, flushed_at=expected.flushed_at) == expected
    assert ours.nodes == ()
    assert ours.metadata == {"__icechunk": {"is_root": True}}
    for each in (repo, other):
        raw = each.storage.get(layout.transaction_log(INITIAL_SNAPSHOT_ID))
        assert log_file.decode(raw) == TransactionLog(id=INITIAL_SNAPSHOT_ID)


# -- facts of others in `repo` ---------------------------------------------------------------


def test_what_is_not_ours_survives_every_change_of_the_repo_info(repo, source):
    """Dropped logs of expired snapshots would be collected as garbage, and diffs go wrong."""
    pruned = ObjectId12(b"expired-snap")
    session = repo.writable_session("main")
    session.add_array("/a", array_json(), source.table(range(4)))
    tip = session.commit("a")
    info = repo_file.decode(repo.storage.get("repo"))
    key = info.branches["main"]
    before = info._replace(
        config={**info.config, "news": {"deep": [1, None, "x"]}},
        enabled_feature_flags=(4, 77),
        disabled_feature_flags=(99,),
        extra=b"statistics",
        snapshots={
            **info.snapshots,
            key: dataclasses.replace(info.snapshots[key], pruned_ancestor_tx_logs=(pruned,)),
        },
    )
    repo.storage.put("repo", repo_file.encode(before))
    again = Repository.open(repo.storage)
    again.create_branch("dev", tip)
    again.create_tag("v1", tip)
    again.set_metadata({"a": 1})
    again.config.add_split_rules([SplitRule(path_regex="^/a$", num_chunks=((0, 2),))])
    again.save_config()
    session = again.writable_session("main")
    session.add_group("/b", group_json())
    session.commit("b")
    session = again.writable_session("main")
    session.add_group("/c", group_json())
    session.amend("b and c")
    after = repo_file.decode(again.storage.get("repo"))
    assert after.config["news"] == {"deep": [1, None, "x"]}
    assert (after.enabled_feature_flags, after.disabled_feature_flags) == ((4, 77), (99,))
    assert after.extra == b"statistics"
    assert after.snapshots[key].pruned_ancestor_tx_logs == (pruned,)


# -- manifests -------------------------------------------------------------------------------


def test_every_manifest_has_its_row_with_its_exact_size(repo, source, official):
    """Rows in the order of ids: official readers fetch that many bytes, and search by halving."""
    repo.config.add_split_rules([SplitRule(path_regex=None, num_chunks=((0, 1),))])
    repo.save_config()
    session = repo.writable_session("main")
    for path in ("/a", "/b"):
        session.add_array(path, array_json((480,)), source.table(range(40)))
    session.commit("80 manifests")
    session = repo.writable_session("main")
    session.set_chunks("/a", source.table([[7], [30]]))
    session.delete("/b")
    session.commit("some anew, half of them gone")
    snapshot = repo.readonly_session("main").snapshot
    sizes = {info.path: info.size for info in repo.storage.list("manifests")}
    ids = [info.id for info in snapshot.manifest_files]
    assert ids == sorted({ref.object_id for ref in snapshot.node("/a").manifests})
    assert len(ids) == 40
    for info in snapshot.manifest_files:
        assert info.size_bytes == sizes[layout.manifest(info.id)]
    theirs = official().writable_session("main")
    zarr.open_array(theirs.store, path="a")[12:24] = 5
    theirs.commit("on top")
    assert sound(repo.storage)


def test_nothing_is_committed_that_a_snapshot_does_not_list(repo, source):
    """An official writer that comes next would die of it."""
    session = repo.writable_session("main")
    session.add_array("/a", array_json(), source.table(range(4)))
    session.commit("a")
    snapshot = repo.readonly_session("main").snapshot
    bad = dataclasses.replace(snapshot, manifest_files=())
    repo.storage.put(layout.snapshot(snapshot.id), snapshot_file.encode(bad))
    session = Repository.open(repo.storage).writable_session("main")
    session.add_group("/b", group_json())
    with pytest.raises(FormatError, match="does not list"):
        session.commit("b")
    assert repo.lookup_branch("main") == str(snapshot.id)


def test_no_manifest_has_a_million_tables():
    """GDAL refuses those; a reference is a table."""
    for grid in [(10_000_000,), (1000, 1000, 100), (1, 10**9), (2, 600_000)]:
        assert np.prod(window_of(grid, 0, MAX_REFERENCES)) <= 500_000


# -- source files ----------------------------------------------------------------------------


@pytest.fixture
def half_past(repo, source):
    """A source that was modified in the middle of a second, and an array over it."""
    os.utime(source.path, ns=(0, 1_600_000_000_500_000_000))
    session = repo.writable_session("main")
    session.add_array("/a", array_json(), ChunkTable.empty(1))
    return session


def test_a_time_within_a_second_is_rounded_so_that_the_official_client_reads(
    half_past, source, official
):
    """It compares whole seconds, and takes a file that is newer for another one."""
    columns = np.arange(4, dtype="u8") * 48, np.full(4, 48, "u8")
    modified = datetime.fromtimestamp(1_600_000_000.5, UTC)
    half_past.store.set_virtual_refs_arr("a", (4,), [source.url] * 4, *columns, checksum=modified)
    half_past.commit("rounded up")
    values = zarr.open_array(official().readonly_session("main").store, path="a", mode="r")[:]
    np.testing.assert_array_equal(values, source.values[:48])


def test_a_time_that_is_cut_off_is_what_the_official_client_refuses(half_past, source, official):
    """The test above would be worth nothing otherwise."""
    table = ChunkTable.virtual(
        index=np.arange(4)[:, None],
        offset=np.arange(4) * 48,
        length=np.full(4, 48),
        locations=Locations.one(source.url, last_modified=1_600_000_000),
    )
    half_past.set_chunks("/a", table)
    half_past.commit("cut off")
    theirs = zarr.open_array(official().readonly_session("main").store, path="a", mode="r")
    with pytest.raises(icechunk.IcechunkError):
        theirs[:]


# -- the configuration -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("prefix", "kind", "options"),
    [
        ("file:///data/", "local_file_system", "/data"),
        ("s3://bucket/", "s3", {"region": "eu-west-1", "anonymous": True}),
        ("s3://minio/", "s3_compatible", {"endpoint_url": "http://localhost:9000"}),
        ("tigris://bucket/", "tigris", {}),
        ("gs://bucket/", "gcs", {}),
        ("az://container/", "azure", {"account": "a"}),
        ("https://host/dir/", "http", {}),
    ],
)
def test_containers_of_every_kind_are_spelled_as_the_official_client_does(
    repo_path, prefix, kind, options
):
    """It ignores the others without a word, and finds no container when a chunk is read."""
    if kind in ("s3", "s3_compatible", "tigris"):
        options = {"allow_http": False, "force_path_style": False, **options}
        options = {"anonymous": False, "requester_pays": False, **options}
    config = RepositoryConfig()
    config.set_virtual_chunk_container(
        VirtualChunkContainer(prefix, ObjectStoreConfig(kind, options), "mine")
    )
    Repository.create(repo_path, config)
    storage = icechunk.local_filesystem_storage(repo_path)
    found = icechunk.Repository.open(storage).config.virtual_chunk_containers
    assert list(found) == [prefix]
    assert found[prefix].name == "mine"


@pytest.mark.parametrize("prefix", ["file:///data", "s3://bucket", "/data/", "s3://"])
def test_a_container_whose_prefix_is_no_folder_is_refused(prefix):
    with pytest.raises(InvalidInputError, match="ends in '/'"):
        VirtualChunkContainer(prefix, ObjectStoreConfig("s3", {}))


def test_unsafe_settings_that_the_official_client_persisted_are_kept_and_not_spread(
    repo_path, tmp_path, source
):
    """It stores those of a local disk; a copy on an object store would lose commits by them."""
    config = icechunk.RepositoryConfig.default()
    config.set_virtual_chunk_container(
        icechunk.VirtualChunkContainer(
            source.prefix, icechunk.local_filesystem_store(str(source.path.parent))
        )
    )
    icechunk.Repository.create(icechunk.local_filesystem_storage(repo_path), config)
    theirs = Repository.open(repo_path)
    assert theirs.config.document["storage"]["unsafe_use_conditional_update"] is False
    fresh = Repository.create(tmp_path / "fresh", source.config())
    fresh.save_config()
    assert fresh.head.read().info.config["storage"] is None


# -- paths -----------------------------------------------------------------------------------


def test_odd_paths_of_the_official_client_are_read_and_none_is_lost(repo, official):
    """It takes nearly any: nothing is normalised, and what it wrote is there after our commit."""
    odd = ["x", "x//y", "end ", "zarr.json", "a-b", "a", "a/b", "arr", "arr/child"]
    odd += ["é", unicodedata.normalize("NFD", "é")]
    session = official().writable_session("main")
    for path in odd:
        document = array_json() if path.startswith("arr") else group_json(path=path)
        value = cpu.Buffer.from_bytes(document)
        asyncio.run(session.store.set(f"{path}/zarr.json", value))
    session.commit("odd")
    ours = repo.writable_session("main")
    assert {node.path for node in ours.snapshot.nodes} == {f"/{path}" for path in odd}
    ours.add_group("/later", group_json())
    ours.commit("on top")
    store = official().readonly_session("main").store

    async def written(path):
        return await store.get(f"{path}/zarr.json", cpu.buffer_prototype)

    for path in odd:
        document = json.loads(asyncio.run(written(path)).to_bytes())
        assert document["attributes"].get("path", path) == path


def test_names_are_distinguished_by_their_bytes(repo, official):
    """Two spellings of one letter are two groups, for both clients."""
    names = ["é", unicodedata.normalize("NFD", "é")]
    session = repo.writable_session("main")
    for name in names:
        session.add_group(f"/{name}", group_json(name=name))
    session.commit("two")
    theirs = zarr.open_group(official().readonly_session("main").store, mode="r")
    assert [theirs[name].attrs["name"] for name in names] == names
    ours = zarr.open_group(
        icevirt.Repository.open(repo.storage).readonly_session("main").store, mode="r"
    )
    assert [ours[name].attrs["name"] for name in names] == names
