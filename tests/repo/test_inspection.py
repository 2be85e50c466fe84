"""What files say is what the official client says of them, key by key."""

from datetime import UTC, datetime

import icechunk
import numpy as np
import pytest
import zarr

from icevirt.errors import FormatError, NotFoundError, SnapshotNotFoundError
from icevirt.model.chunks import ChunkTable
from icevirt.repo.repository import Repository
from repo.support import array_json, group_json


@pytest.fixture
def busy(repo, source, official):
    """A repository in which both clients did everything that the ops log knows."""
    session = repo.writable_session("main")
    session.add_group("/", group_json(title="x"))
    session.add_array("/v", array_json(), source.table(range(4)))
    inline = ChunkTable.of_inline(index=np.array([[1]]), chunks=[b"\1\0\0\0" * 12])
    session.add_array("/deep/inline", array_json(), inline)
    first = session.commit("ours", {"k": [1, {"a": None}]})
    theirs = official()
    session = theirs.writable_session("main")
    group = zarr.open_group(session.store)
    group.create_array("native", shape=(300, 4), chunks=(100, 4), dtype="f8")[:] = 1.5
    del group["deep"]
    second = session.commit("theirs")
    session = theirs.rearrange_session("main")
    session.move("/native", "/moved")
    session.commit("moved")
    session = theirs.writable_session("main")
    zarr.open_array(session.store, path="v").attrs["a"] = 1
    session.commit("on top")
    for client in (repo, theirs):
        name = type(client).__module__.partition(".")[0]
        client.create_tag(f"{name}-1", first)
        client.create_tag(f"{name}-2", first)
        client.delete_tag(f"{name}-2")
        client.create_branch(f"{name}-1", first)
        client.reset_branch(f"{name}-1", second)
        client.create_branch(f"{name}-2", first)
        client.delete_branch(f"{name}-2")
        client.set_metadata({"who": name})
        client.set_feature_flag("create_tag", True)
        client.set_feature_flag("create_tag", None)
        session = client.writable_session("main")
        zarr.open_array(session.store, path="v").attrs["who"] = name
        session.flush("detached")
        session = client.writable_session("main")
        zarr.open_array(session.store, path="v").attrs["who"] = name
        session.amend("amended")
        client.garbage_collect(datetime(2001, 1, 1, tzinfo=UTC))
    return repo


def test_the_repo_info(busy, official):
    assert busy.inspect_repo_info() == official().inspect_repo_info()


def test_the_repo_info_after_a_change_of_status_and_config(repo, official):
    status = icechunk.RepoStatus(icechunk.RepoAvailability.read_only)
    official().set_status(status)
    official().set_status(icechunk.RepoStatus(icechunk.RepoAvailability.online))
    repo.config.inline_chunk_threshold_bytes = 7
    repo.save_config()
    assert repo.inspect_repo_info() == official().inspect_repo_info()


def test_every_snapshot_and_log(busy, official):
    theirs = official()
    for output in busy.inspect_repo_info()["snapshots"]:
        assert busy.inspect_snapshot(output["id"]) == theirs.inspect_snapshot(output["id"])
        ours = busy.inspect_transaction_log(output["id"])
        assert ours == theirs.inspect_transaction_log(output["id"])


def test_every_manifest(busy, official):
    theirs, seen = official(), 0
    for output in busy.inspect_repo_info()["snapshots"]:
        for file in busy.list_manifest_files(output["id"]):
            ours, other = busy.inspect_manifest(file.id), theirs.inspect_manifest(file.id)
            assert ours["size_bytes"] == file.size_bytes
            assert {**ours, "size_bytes": 0} == {**other, "size_bytes": 0}  # theirs: in memory
            seen += 1
    assert seen > 5


def test_a_manifest_with_compressed_locations(repo, source, official):
    session = repo.writable_session("main")
    session.add_array("/a", array_json((48_000,), (12,)), source.table(np.arange(4000)))
    session.commit("x")
    (file,) = repo.list_manifest_files(repo.lookup_branch("main"))
    ours, theirs = repo.inspect_manifest(file.id), official().inspect_manifest(file.id)
    assert ours["compression"] == theirs["compression"]
    assert ours["total_virtual"] == theirs["total_virtual"] == 4000


def test_a_log_that_expiry_put_together(busy, official):
    for client in (official(), busy):
        client.expire_snapshots(datetime.now(UTC))
    tip = busy.lookup_branch("main")
    ours = Repository.open(busy.storage).inspect_transaction_log(tip)
    assert len(ours["synthetic_composite"]["merged_pruned_ancestor_tx_logs"]) >= 2
    assert ours == official().inspect_transaction_log(tip)
    assert busy.inspect_repo_info() == official().inspect_repo_info()


@pytest.mark.parametrize("bad", ["nope", "0" * 20])
def test_what_is_not_there_is_said(repo, bad):
    for call in (repo.inspect_snapshot, repo.inspect_transaction_log):
        with pytest.raises(SnapshotNotFoundError, match="ancestry"):
            call(bad)
    with pytest.raises(NotFoundError, match="list_manifest_files"):
        repo.inspect_manifest(bad)


def test_the_files_of_a_v1_repository(tmp_path):
    """There is no `repo` to show; snapshots, manifests and logs are as in V2."""
    path = str(tmp_path / "v1")
    storage = icechunk.local_filesystem_storage(path)
    theirs = icechunk.Repository.create(storage, spec_version=1)
    session = theirs.writable_session("main")
    zarr.open_group(session.store).create_array("a", shape=(4,), chunks=(2,), dtype="i4")[:] = 1
    tip = session.commit("x")
    ours = Repository.open(path)
    with pytest.raises(FormatError, match="Upgrade"):
        ours.inspect_repo_info()
    with pytest.raises(FormatError, match="Upgrade"):
        ours.trim_ops_log(datetime.now(UTC))
    assert ours.inspect_snapshot(tip) == theirs.inspect_snapshot(tip)
    assert ours.inspect_transaction_log(tip) == theirs.inspect_transaction_log(tip)
    for file in ours.list_manifest_files(tip):
        found, other = ours.inspect_manifest(file.id), theirs.inspect_manifest(file.id)
        assert {**found, "size_bytes": 0} == {**other, "size_bytes": 0}
    for plain in (True, False):
        assert "x" in str(ours.ancestry_graph(plain=plain))
