"""V1 repositories are read, written, and refuse what only V2 can do; the official client agrees.

icechunk 1.1.21, which knows only V1, read and continued by hand what these tests write.
"""

import asyncio
import pickle

import icechunk
import numpy as np
import pytest
import zarr

from icevirt.api.dataset.target import Target
from icevirt.errors import (
    AlreadyExistsError,
    ConflictError,
    FormatError,
    InvalidInputError,
    RebaseFailedError,
    RefNotFoundError,
    SnapshotNotFoundError,
    StorageError,
)
from icevirt.model.chunks import ChunkTable
from icevirt.model.config.containers import VirtualChunkContainer, local_filesystem_store
from icevirt.model.repo_info import RepoAvailability
from icevirt.repo.commits.build_commit import BuildCommit
from icevirt.repo.history.types import RepoStatus
from icevirt.repo.repository import Repository
from icevirt.repo.summary import summary
from icevirt.storage.protocol import LostRace
from icevirt.versioning.merge.conflicts import (
    BasicConflictSolver,
    ConflictDetector,
    VersionSelection,
)
from icevirt.wire import config_yaml
from repo.faults.faulty import deaths
from repo.support import array_json, group_json
from repo.v1.clients import NAMES, commit, in_memory, official, one, unpacked

SETS = "new_groups new_arrays deleted_groups deleted_arrays updated_groups updated_arrays".split()


@pytest.fixture(params=NAMES)
def path(request, repo_path):
    unpacked(request.param, repo_path)
    return repo_path


@pytest.fixture
def ours(path):
    return Repository.open(path)


# -- reading --------------------------------------------------------------------------------------


def test_refs_and_history(ours, path):
    theirs = official(path)
    assert (ours.spec_version, Repository.fetch_spec_version(path)) == (1, 1)
    assert Repository.exists(path)
    assert ours.list_branches() == theirs.list_branches() == {"main", "dev"}
    assert ours.list_tags() == theirs.list_tags() == {"v1"}
    assert ours.lookup_tag("v1") == theirs.lookup_tag("v1")
    for branch in ("main", "dev"):
        assert ours.lookup_branch(branch) == theirs.lookup_branch(branch)
        pairs = zip(ours.ancestry(branch=branch), theirs.ancestry(branch=branch), strict=True)
        for mine, other in pairs:
            for name in ("id", "parent_id", "written_at", "message", "metadata"):
                assert getattr(mine, name) == getattr(other, name)


def test_values_and_references(ours, path):
    theirs = official(path)
    for branch in ("main", "dev"):
        session, store = ours.readonly_session(branch), theirs.readonly_session(branch).store
        mine, other = zarr.open_group(session.store, mode="r"), zarr.open_group(store, mode="r")
        assert (
            dict(mine.members(max_depth=None)).keys() == dict(other.members(max_depth=None)).keys()
        )
        for name, array in other.members(max_depth=None):
            if isinstance(array, zarr.Array) and name != "virtual":
                assert np.array_equal(mine[name][...], array[...])
        listed = asyncio.run(_chunks(store, "/virtual"))
        table = session.array_table("/virtual")
        columns = (table.index.tolist(), table.offset.tolist(), table.length.tolist())
        assert sorted(zip(*columns, strict=True)) == listed
    assert summary(ours).arrays


async def _chunks(store, path):
    return sorted(
        [
            (coords[row].tolist(), int(offsets[row]), int(lengths[row]))
            async for coords, kinds, _, offsets, lengths, _ in store.array_chunk_iterator(path)
            for row in range(len(kinds))
        ]
    )


def test_differences(ours, path):
    theirs = official(path)
    history = [s.id for s in ours.ancestry(branch="main")]
    which = {"from_snapshot_id": history[-1], "to_snapshot_id": history[0]}
    mine, other = ours.diff(**which), theirs.diff(**which)
    assert [set(getattr(mine, name)) for name in SETS] == [getattr(other, name) for name in SETS]
    assert {k: v.tolist() for k, v in mine.updated_chunks.items()} == other.updated_chunks


def test_time_travel_and_snapshots_by_id(ours):
    newest, older = list(ours.ancestry(branch="main"))[:2]
    session = ours.readonly_session("main", as_of=older.written_at)
    assert session.snapshot_id == older.id
    assert ours.lookup_snapshot(newest.id).parent_id == older.id
    assert next(ours.ancestry(snapshot_id=older.id)).id == older.id
    with pytest.raises(SnapshotNotFoundError):
        ours.readonly_session(snapshot_id="1CECHNKREP0F1RSTCMT1")


def test_a_session_reads_only_what_it_needs(path):
    """Not every branch, tag and snapshot: each is an object of its own."""
    storage = in_memory(path)
    read = []
    real = storage.get_versioned
    storage.get_versioned = lambda key: (read.append(key), real(key))[1]
    Repository.open(storage).readonly_session("main")
    assert not [key for key in read if "dev" in key or "tag." in key]
    assert sum(key.startswith("snapshots/") for key in read) == 1


# -- writing --------------------------------------------------------------------------------------


def test_the_official_client_reads_what_is_committed(ours, path):
    session = ours.writable_session("main")
    group = zarr.open_group(session.store)
    group["inline"][1, 1] = 77
    group["deep/native"][5] = 3
    new = group.create_array("new", shape=(20,), chunks=(6,), dtype="i4", dimension_names=["x"])
    new[:] = np.arange(20)
    before = ours.lookup_branch("main")
    made = session.commit("by icevirt", metadata={"a": 1.5, "é": [None, {"x": True}]})
    theirs = official(path)
    newest, older = list(theirs.ancestry(branch="main"))[:2]
    assert (newest.id, newest.parent_id, older.id) == (made, before, before)
    assert newest.metadata == {"a": 1.5, "é": [None, {"x": True}]}
    read = zarr.open_group(theirs.readonly_session("main").store, mode="r")
    assert read["inline"][1, 1] == 77
    assert read["deep/native"][4:7].tolist() == [1.5, 3, 1.5]
    assert read["new"][:].tolist() == list(range(20))
    assert read["new"].metadata.dimension_names == ("x",)
    change = theirs.diff(from_snapshot_id=before, to_snapshot_id=made)
    assert change.new_arrays == {"/new"}
    assert change.updated_chunks["/inline"] == [[1, 1]]
    session = theirs.writable_session("main")
    zarr.open_group(session.store)["new"][0] = 9
    last = session.commit("theirs")
    assert [s.id for s in ours.ancestry(branch="main")][:3] == [last, made, before]
    assert zarr.open_group(ours.readonly_session("main").store, mode="r")["new"][0] == 9


def test_every_file_that_is_written_has_the_byte_of_v1(ours, path):
    before = {found.path for found in ours.storage.list()}
    session = ours.writable_session("main")
    session.add_array("/a", array_json(), one(1))
    session.commit("more")
    written = {found.path for found in ours.storage.list()} - before
    kinds = {name.split("/")[0] for name in written}
    assert kinds == {"snapshots", "manifests", "transactions"}
    assert {ours.storage.get(name)[36] for name in written} == {1}


def test_branches_and_tags(ours, path):
    tip = ours.lookup_branch("main")
    root = [s.id for s in ours.ancestry(branch="main")][-1]
    ours.create_branch("new one", root)
    ours.reset_branch("new one", tip, from_snapshot_id=root)
    ours.create_tag("t", tip)
    ours.create_tag("gone", tip)
    ours.delete_tag("gone")
    ours.delete_branch("dev")
    theirs = official(path)
    assert theirs.list_branches() == ours.list_branches() == {"main", "new one"}
    assert theirs.list_tags() == ours.list_tags() == {"v1", "t"}
    assert (theirs.lookup_branch("new one"), theirs.lookup_tag("t")) == (tip, tip)
    for name in ("t", "gone", "deleted"):
        with pytest.raises(AlreadyExistsError):
            ours.create_tag(name, tip)
        with pytest.raises(icechunk.AlreadyExistsError):
            theirs.create_tag(name, tip)
    with pytest.raises(AlreadyExistsError):
        ours.create_branch("new one", tip)
    with pytest.raises(RefNotFoundError):
        ours.lookup_branch("dev")
    with pytest.raises(RefNotFoundError):
        ours.delete_tag("gone")
    with pytest.raises(ConflictError):
        ours.reset_branch("new one", root, from_snapshot_id=root)
    with pytest.raises(SnapshotNotFoundError):
        ours.create_tag("nowhere", "1CECHNKREP0F1RSTCMT1")
    theirs.create_branch("dev", tip)
    assert ours.lookup_branch("dev") == tip


@pytest.mark.parametrize("name", ["a/b", "é", "a~b", "a#b", "50%"])
def test_names_that_the_official_client_refuses_or_fails_on_are_refused(path, name):
    repo = Repository.open(path)
    for create in (repo.create_branch, repo.create_tag):
        with pytest.raises(InvalidInputError, match="of this name"):
            create(name, repo.lookup_branch("main"))


def test_escaped_names_that_are_there_are_read(path):
    theirs = official(path)
    tip = theirs.lookup_branch("main")
    theirs.create_branch("é~", tip)
    repo = Repository.open(path)
    assert repo.list_branches() == {"main", "dev", "é~"}
    session = repo.writable_session("é~")
    session.add_group("/here", group_json())
    made = session.commit("more")
    assert theirs.lookup_branch("é~") == repo.lookup_branch("é~") == made != tip


def test_a_second_session_conflicts_and_rebases(ours, path):
    first, second = ours.writable_session("main"), ours.writable_session("main")
    first.add_group("/first", group_json())
    second.add_group("/second", group_json())
    first.commit("first")
    with pytest.raises(ConflictError):
        second.commit("second")
    second.commit("second", rebase_with=ConflictDetector())
    assert {"/first", "/second"} <= {n.path for n in ours.readonly_session("main").snapshot.nodes}
    assert [s.message for s in official(path).ancestry(branch="main")][:2] == ["second", "first"]


def test_a_commit_of_the_official_client_is_rebased_on(ours, path):
    session = ours.writable_session("main")
    session.set_chunks("/deep/native", _native(3))
    theirs = official(path).writable_session("main")
    zarr.open_group(theirs.store)["deep/native"][0] = 8
    theirs.commit("theirs")
    session.commit("ours", rebase_with=ConflictDetector())
    again = ours.writable_session("main")
    again.set_chunks("/deep/native", _native(0))
    theirs = official(path).writable_session("main")
    zarr.open_group(theirs.store)["deep/native"][0] = 9
    theirs.commit("theirs")
    with pytest.raises(RebaseFailedError):
        again.commit("ours", rebase_with=ConflictDetector())
    again.commit(
        "ours", rebase_with=BasicConflictSolver(on_chunk_conflict=VersionSelection.UseOurs)
    )
    read = zarr.open_group(official(path).readonly_session("main").store, mode="r")["deep/native"]
    assert (read[0], read[3000]) == (4, 4)


def _native(at):
    return ChunkTable.of_inline(index=np.array([[at]]), chunks=[np.full(1000, 4.0).tobytes()])


def test_a_flushed_snapshot_is_there_by_id(ours, path):
    session = ours.writable_session("main")
    session.add_group("/aside", group_json())
    made = session.flush("aside")
    ours.create_tag("aside", made)
    assert official(path).lookup_tag("aside") == made


def test_rewritten_manifests(ours, path):
    before = zarr.open_group(ours.readonly_session("main").store, mode="r")["inline"][:]
    ours.rewrite_manifests("again", branch="main")
    read = zarr.open_group(official(path).readonly_session("main").store, mode="r")["inline"]
    assert np.array_equal(read[:], before)


def test_the_configuration_is_saved_where_the_official_client_looks(ours, path):
    config = icechunk.RepositoryConfig.default()
    config.set_virtual_chunk_container(
        icechunk.VirtualChunkContainer("s3://bucket/theirs/", icechunk.s3_store(region="us-east-1"))
    )
    storage = icechunk.local_filesystem_storage(path)
    icechunk.Repository.open(storage, config=config).save_config()
    ours.config.set_virtual_chunk_container(
        VirtualChunkContainer("file:///data/", local_filesystem_store("/data"))
    )
    ours.config.inline_chunk_threshold_bytes = 7
    ours.save_config()
    config = official(path).config
    assert config.virtual_chunk_containers.keys() == {"s3://bucket/theirs/", "file:///data/"}
    assert config.inline_chunk_threshold_bytes == 7
    reopened = Repository.open(path)
    assert reopened.config == ours.config == Repository.fetch_config(path)
    assert reopened.config.virtual_chunk_containers.keys() == config.virtual_chunk_containers.keys()


def test_sessions_and_repositories_pickle(ours):
    again = pickle.loads(pickle.dumps(ours))
    session = again.writable_session("main")
    fork = pickle.loads(pickle.dumps(session.fork()))
    fork.add_array("/a", array_json(), one(1))
    session.merge(fork)
    made = session.commit("by a fork")
    assert ours.storage.get(f"snapshots/{made}")[36] == 1


# -- what only V2 can do --------------------------------------------------------------------------


def amend(repo):
    session = repo.writable_session("main")
    session.add_group("/x", group_json())
    session.amend("instead")


def build(repo):
    facts = {"branch": "main", "message": "", "groups": {}, "arrays": {}, "manifest_files": []}
    BuildCommit(storage=repo.storage, **facts).publish()


def rectilinear(repo):
    grid = {"name": "rectilinear", "configuration": {"kind": "inline", "chunk_shapes": [[40, 8]]}}
    session = repo.writable_session("main")
    with zarr.config.set({"array.rectilinear_chunks": True}):
        session.add_array("/r", array_json(chunk_grid=grid), ChunkTable.empty(1))
        session.commit("rectilinear")


ONLY_V2 = {
    "amend": amend,
    "build": build,
    "plan of a build": lambda repo: Target.look(repo.storage, branch="main", group="/", mode="w"),
    "rectilinear grids": rectilinear,
    "moves": lambda repo: repo.rearrange_session("main"),
    "ops log": lambda repo: list(repo.ops_log()),
    "metadata": lambda repo: repo.get_metadata(),
    "setting metadata": lambda repo: repo.set_metadata({"a": 1}),
    "updating metadata": lambda repo: repo.update_metadata({"a": 1}),
    "status": lambda repo: repo.status,
    "setting status": lambda repo: repo.set_status(RepoStatus(RepoAvailability.read_only)),
    "feature flags": lambda repo: repo.feature_flags(),
    "setting a feature flag": lambda repo: repo.set_feature_flag("create_tag", False),
    "rewriting by amending": lambda repo: repo.rewrite_manifests(
        "x", branch="main", commit_method="amend"
    ),
}


@pytest.mark.parametrize("act", ONLY_V2.values(), ids=ONLY_V2.keys())
def test_what_only_v2_can_do_names_the_upgrade_as_the_remedy(act, tmp_path):
    unpacked(NAMES[1], tmp_path)
    repo = Repository.open(tmp_path)
    before = repo.lookup_branch("main"), repo.list_tags()
    with pytest.raises(FormatError, match="V1") as caught:
        act(repo)
    assert "upgrade_icechunk_repository" in caught.value.do
    assert (repo.lookup_branch("main"), repo.list_tags()) == before
    assert official(tmp_path).lookup_branch("main") == before[0]


# -- kills ----------------------------------------------------------------------------------------


def committed(storage):
    repo = Repository.open(storage)
    session = repo.writable_session("main")
    session.add_array("/a", array_json(), one(5))
    session.commit("killed")


def test_a_commit_killed_at_any_call_leaves_the_old_or_the_new_state(tmp_path):
    unpacked(NAMES[1], tmp_path)
    before = [s.id for s in Repository.open(tmp_path).ancestry(branch="main")]
    for storage in deaths(committed, lambda: in_memory(tmp_path)):
        repo = Repository.open(storage)
        history = [s.id for s in repo.ancestry(branch="main")]
        assert history == before or history[1:] == before
        there = repo.readonly_session("main").find("/a") is not None
        assert there == (history != before)
        commit(repo, "/next")
        assert repo.readonly_session("main").find("/next") is not None


def saved(storage):
    repo = Repository.open(storage)
    repo.config.inline_chunk_threshold_bytes = 7
    repo.save_config()
    tip = repo.lookup_branch("main")
    repo.create_tag("t", tip)
    repo.delete_tag("t")
    repo.create_branch("b", tip)
    repo.delete_branch("b")


def test_small_changes_killed_at_any_call_leave_a_repository(tmp_path):
    unpacked(NAMES[1], tmp_path)
    for storage in deaths(saved, lambda: in_memory(tmp_path)):
        repo = Repository.open(storage)
        assert repo.list_tags() <= {"v1", "t"}
        assert repo.config.inline_chunk_threshold_bytes in (None, 7)
        commit(repo)


class Forgetful:
    """A storage that loses the answer to one write of a branch, and what happens then."""

    def __init__(self, storage, applied, then):
        self.storage, self.applied, self.then = storage, applied, then

    def __getattr__(self, name):
        return getattr(self.storage, name)

    def put_if(self, path, body, *, was, **more):
        if not path.startswith("refs/") or self.then is None:
            return self.storage.put_if(path, body, was=was, **more)
        then, self.then = self.then, None
        if self.applied:
            self.storage.put_if(path, body, was=was, **more)
        then()
        return LostRace(perhaps_first_written=True)


@pytest.mark.parametrize("applied", [True, False])
def test_a_commit_whose_answer_got_lost_is_made_once(applied, tmp_path):
    """Others committed on top of it, or instead of it."""
    storage = in_memory(unpacked(NAMES[1], tmp_path))
    before = [s.id for s in Repository.open(storage).ancestry(branch="main")]
    others = []

    def then():
        others.append(commit(Repository.open(storage), "/theirs", "theirs"))

    repo = Repository.open(Forgetful(storage, applied, then))
    made = commit(repo, "/ours", "ours", rebase_with=ConflictDetector())
    history = [s.id for s in Repository.open(storage).ancestry(branch="main")]
    assert history == ([*others, made] if applied else [made, *others]) + before


class InBucket:
    """A storage that says it is in a bucket."""

    url = "s3://bucket/repo"

    def __init__(self, storage):
        self.storage = storage

    def __getattr__(self, name):
        return getattr(self.storage, name)


def test_settings_of_a_disk_are_refused_in_a_bucket(tmp_path):
    """By them the official client overwrites branches without asking."""
    storage = InBucket(in_memory(unpacked(NAMES[1], tmp_path)))
    document = {"storage": {"unsafe_use_conditional_update": False}}
    storage.put("config.yaml", config_yaml.dumps(document))
    repo = Repository.open(storage)
    for act in (commit, Repository.upgrade):
        with pytest.raises(StorageError, match="commits would be lost"):
            act(repo)
    repo.config.storage = None
    repo.save_config()
    made = commit(repo)
    repo.upgrade()
    assert Repository.open(storage).lookup_branch("main") == made
