"""What icevirt commits the official client reads, and what that commits icevirt reads back."""

import json
import os
from datetime import timedelta

import icechunk
import numpy as np
import pytest
import zarr

from icevirt.ids import INITIAL_SNAPSHOT_ID
from icevirt.model.chunks import ChunkTable, ChunkType
from icevirt.model.config.document import SplitRule
from icevirt.repo.history.types import UpdateType
from icevirt.repo.repository import Repository
from repo.support import array_json, group_json

ROOT = str(INITIAL_SNAPSHOT_ID)


def committed(repo, source) -> str:
    """Commit an array of each kind of reference."""
    session = repo.writable_session("main")
    session.add_group("/", group_json(title="all kinds"))
    session.add_array("/deep/er/virtual", array_json(), source.table(range(4)))
    inline = ChunkTable.of_inline(
        index=np.array([[1], [3]]), chunks=[b"\1\0\0\0" * 12, b"\2\0\0\0" * 12]
    )
    session.add_array("/inline", array_json(), inline)
    session.add_array("/native", array_json(), ChunkTable.empty(1))
    session.config.document["inline_chunk_threshold_bytes"] = 4
    session.set_chunk("/native", [2], b"\3\0\0\0" * 12)
    session.add_array(
        "/scalar",
        array_json((), ()),
        ChunkTable.of_inline(index=np.zeros((1, 0)), chunks=[b"\4\0\0\0"]),
    )
    return session.commit("all kinds", {"who": "icevirt", "n": [1, None, {"x": 2.5}]})


def test_values_of_every_kind_of_reference(repo, source, official):
    committed(repo, source)
    group = zarr.open_group(official().readonly_session("main").store, mode="r")
    assert group.attrs["title"] == "all kinds"
    np.testing.assert_array_equal(group["deep/er/virtual"][:], source.values[:48])
    np.testing.assert_array_equal(group["inline"][:], np.repeat([-1, 1, -1, 2], 12))
    np.testing.assert_array_equal(group["native"][:], np.repeat([-1, -1, 3, -1], 12))
    assert group["scalar"][()] == 4


def test_history_and_metadata(repo, source, official):
    snapshot = committed(repo, source)
    theirs, ours = list(official().ancestry(branch="main")), list(repo.ancestry(branch="main"))
    assert [s.id for s in theirs] == [s.id for s in ours] == [snapshot, ROOT]
    assert (
        [s.message for s in theirs]
        == [s.message for s in ours]
        == ["all kinds", "Repository initialized"]
    )
    assert [s.written_at for s in theirs] == [s.written_at for s in ours]
    assert [s.parent_id for s in theirs] == [s.parent_id for s in ours] == [ROOT, None]
    assert theirs[0].metadata == ours[0].metadata == {"who": "icevirt", "n": [1, None, {"x": 2.5}]}


def test_the_ops_log(repo, source, official):
    snapshot = committed(repo, source)
    ours, theirs = list(repo.ops_log()), list(official().ops_log())
    assert [u.kind for u in ours][1] == UpdateType.RepoInitialized()
    assert ours[0].kind == UpdateType.NewCommit("main", snapshot)
    assert ours[0].kind.new_snap_id == snapshot == theirs[0].kind.new_snap_id
    assert [u.updated_at for u in ours] == [u.updated_at for u in theirs]
    assert [u.backup_path for u in ours] == [u.backup_path for u in theirs]
    assert sorted(os.listdir(f"{repo.storage.get.__self__._root}/overwritten")) == [
        ours[1].backup_path
    ]


def same_diff(ours, theirs):
    for name in (
        "new_groups",
        "new_arrays",
        "deleted_groups",
        "deleted_arrays",
        "updated_groups",
        "updated_arrays",
    ):
        assert set(getattr(ours, name)) == set(getattr(theirs, name)), name
    assert {k: v.tolist() for k, v in ours.updated_chunks.items()} == theirs.updated_chunks
    assert list(ours.moved_nodes) == theirs.moved_nodes


def test_differences(repo, source, official):
    """A history with every kind of change, half of it written by the official client."""
    tips = [ROOT, committed(repo, source)]
    session = repo.writable_session("main")
    session.set_metadata("/inline", array_json((60,), (12,)))
    session.set_chunks(
        "/inline", ChunkTable.of_inline(index=np.array([[4]]), chunks=[b"\5\0\0\0" * 12])
    )
    session.set_metadata("/deep", group_json(changed=True))
    session.delete("/native")
    session.add_array("/new", array_json(), source.table([[2]]))
    session.delete_chunks("/deep/er/virtual", np.array([[0]]))
    tips.append(session.commit("changes"))
    theirs = official().writable_session("main")
    group = zarr.open_group(theirs.store)
    group["new"][0:12] = 9
    group.create_group("later/on")
    del group["scalar"]
    tips.append(theirs.commit("theirs"))
    theirs = official().writable_session("main")
    group = zarr.open_group(theirs.store)
    del group["later"]
    group["inline"].resize((24,))
    tips.append(theirs.commit("theirs again"))
    repo, other = Repository.open(repo.storage), official()
    for first in range(len(tips)):
        for last in range(first + 1, len(tips)):
            which = {"from_snapshot_id": tips[first], "to_snapshot_id": tips[last]}
            same_diff(repo.diff(**which), other.diff(**which))


def test_our_status_before_is_the_diff_after(repo, source, official):
    session = repo.writable_session("main")
    session.add_array("/a/b", array_json(), source.table(range(4)))
    status = session.status()
    session.commit("x")
    same_diff(status, official().diff(from_snapshot_id=ROOT, to_branch="main"))


def test_a_commit_on_top_by_the_official_client_reads_back(repo, source, official):
    committed(repo, source)
    theirs = official().writable_session("main")
    group = zarr.open_group(theirs.store)
    group["deep/er/virtual"][12:24] = 77
    group.create_array("theirs", shape=(10, 10), chunks=(3, 3), dtype="f4", fill_value=0)[:] = 1
    snapshot = theirs.commit("theirs", {"k": 1})
    session = repo.readonly_session("main")
    assert session.snapshot_id == snapshot
    table = session.array_table("/deep/er/virtual")
    assert table.index.tolist() == [[0], [1], [2], [3]]
    assert table.kind.tolist() == [2, 3, 2, 2]
    found = session.references("/deep/er/virtual", np.array([[1], [3]]))
    assert found.kind.tolist() == [ChunkType.inline, ChunkType.virtual]
    assert (
        found.inline[found.offset[0] : found.offset[0] + found.length[0]].tobytes()
        == b"\x4d\0\0\0" * 12
    )
    assert found.locations.url[int(found.source[1])] == source.url
    assert int(found.offset[1]) == 144
    assert len(session.array_table("/theirs")) == 16
    assert session.array("/theirs").num_chunks == (4, 4)


def test_turns_of_both_writers_keep_the_history(repo, source, official):
    committed(repo, source)
    for turn in range(3):
        theirs = official().writable_session("main")
        zarr.open_group(theirs.store)["inline"][0] = turn
        theirs.commit(f"theirs {turn}")
        ours = repo.writable_session("main")
        ours.set_metadata("/", group_json(title="all kinds", turn=turn))
        ours.commit(f"ours {turn}")
    expected = [
        "ours 2",
        "theirs 2",
        "ours 1",
        "theirs 1",
        "ours 0",
        "theirs 0",
        "all kinds",
        "Repository initialized",
    ]
    assert [s.message for s in repo.ancestry(branch="main")] == expected
    assert [s.message for s in official().ancestry(branch="main")] == expected
    assert len(list(repo.ops_log())) == len(list(official().ops_log())) == 8
    group = zarr.open_group(official().readonly_session("main").store, mode="r")
    assert (group.attrs["turn"], group["inline"][0]) == (2, 2)


def test_branches_tags_status_and_metadata_of_each_are_seen_by_the_other(repo, source, official):
    snapshot = committed(repo, source)
    repo.create_branch("dev", snapshot)
    repo.create_tag("v1", snapshot)
    repo.create_tag("gone", ROOT)
    repo.delete_tag("gone")
    repo.set_metadata({"a": {"b": [1, "x", None]}})
    other = official()
    other.create_branch("theirs", ROOT)
    other.create_tag("t1", snapshot)
    other.reset_branch("dev", ROOT)
    assert other.list_branches() == repo.list_branches() == {"main", "dev", "theirs"}
    assert other.list_tags() == repo.list_tags() == {"v1", "t1"}
    assert other.lookup_branch("dev") == repo.lookup_branch("dev") == ROOT
    assert other.lookup_tag("v1") == repo.lookup_tag("v1") == snapshot
    assert other.get_metadata() == repo.get_metadata() == {"a": {"b": [1, "x", None]}}
    with pytest.raises(icechunk.IcechunkError):
        other.create_tag("gone", ROOT)
    other.update_metadata({"more": 1})
    assert repo.metadata["more"] == 1
    other.set_status(
        icechunk.RepoStatus(
            icechunk.RepoAvailability.read_only, limited_availability_reason="moving"
        )
    )
    assert repo.status.limited_availability_reason == "moving"
    assert [type(u.kind).__name__ for u in repo.ops_log()] == [
        type(u.kind).__name__ for u in official().ops_log()
    ]


def test_the_ops_log_goes_on_across_overflows(repo_path, official):
    repo = Repository.create(repo_path)
    repo.config.document["num_updates_per_repo_info_file"] = 3
    repo.save_config()
    for turn in range(4):
        repo.create_branch(f"ours{turn}", ROOT)
        official().create_branch(f"theirs{turn}", ROOT)
    assert len(repo.head.read().info.latest_updates) == 3
    ours, theirs = list(repo.ops_log()), list(official().ops_log())
    assert [u.kind.name for u in ours[:8]] == [
        f"{w}{t}" for t in (3, 2, 1, 0) for w in ("theirs", "ours")
    ]
    assert len(ours) == len(theirs) == 10
    assert [u.updated_at for u in ours] == [u.updated_at for u in theirs]
    times = [u.updated_at for u in ours]
    assert times == sorted(set(times), reverse=True)


def test_the_container_and_splitting_we_persist_are_the_official_clients(repo, source, official):
    repo.config.add_split_rules([SplitRule(path_regex="^/a$", num_chunks=((0, 2),))])
    repo.save_config()
    config = official().config
    assert list(config.virtual_chunk_containers) == [source.prefix]
    assert "num_chunks: 2" in str(config.manifest) or "2" in str(config.manifest.splitting)
    assert repo.head.read().info.config["storage"] is None


def test_a_config_of_the_official_client_is_read(repo_path, source):
    config = icechunk.RepositoryConfig.default()
    config.set_virtual_chunk_container(
        icechunk.VirtualChunkContainer(
            source.prefix, icechunk.local_filesystem_store(str(source.path.parent)), name="src"
        )
    )
    config.inline_chunk_threshold_bytes = 7
    icechunk.Repository.create(icechunk.local_filesystem_storage(repo_path), config)
    ours = Repository.open(repo_path)
    assert ours.config.inline_chunk_threshold_bytes == 7
    assert ours.config.get_virtual_chunk_container("src").url_prefix == source.prefix


@pytest.mark.parametrize("axis", [0, 1])
def test_an_official_commit_of_one_chunk_leaves_all_other_manifests(repo, source, official, axis):
    """Windows must survive official writers."""
    repo.config.add_split_rules([SplitRule(path_regex="^/big$", num_chunks=((axis, 4),))])
    repo.save_config()
    session = repo.writable_session("main")
    index = np.argwhere(np.ones((20, 20), bool))
    session.add_array("/big", array_json((20, 20), (1, 1)), source.table(index, per_chunk=1))
    session.add_array("/plain", array_json((20, 20), (1, 1)), source.table(index, per_chunk=1))
    first = session.commit("split")
    before = {m.id: m for m in repo.list_manifest_files(first)}
    assert sorted(m.num_chunk_refs for m in before.values()) == [80] * 5 + [400]
    theirs = official().writable_session("main")
    zarr.open_group(theirs.store)["big"][10, 10] = 5
    after = {m.id: m for m in repo.list_manifest_files(theirs.commit("one chunk"))}
    assert len(before.keys() & after.keys()) == 5
    assert sorted(m.num_chunk_refs for m in after.values()) == [80] * 5 + [400]
    ours = repo.writable_session("main")
    ours.set_chunks("/big", source.table([[0, 0]], per_chunk=1))
    last = {m.id for m in repo.list_manifest_files(ours.commit("ours"))}
    assert len(last & after.keys()) == 5
    values = zarr.open_group(official().readonly_session("main").store, mode="r")["big"][:]
    expected = np.arange(400).reshape(20, 20)
    expected[10, 10], expected[0, 0] = 5, 0
    np.testing.assert_array_equal(values, expected)


def test_as_of_goes_back_in_time(repo, source):
    snapshot = committed(repo, source)
    info = repo.lookup_snapshot(snapshot)
    assert repo.readonly_session("main", as_of=info.written_at).snapshot_id == snapshot
    just_before = info.written_at - timedelta(microseconds=1)
    assert repo.readonly_session("main", as_of=just_before).snapshot_id == ROOT


def test_the_inspection_of_the_official_client_finds_our_name(repo, source, official):
    snapshot = committed(repo, source)
    found = official().inspect_snapshot(snapshot)
    found = json.loads(found) if isinstance(found, str) else found
    assert found["header"]["app_name"] == "icevirt"
