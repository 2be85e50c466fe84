"""A build's commit: whole or not at all, once, and nobody else's work is lost by it."""

import os

import icechunk
import numpy as np
import pytest
import zarr

from icevirt.errors import (
    AlreadyExistsError,
    BuildError,
    ConflictError,
    InvalidInputError,
    ReadOnlyError,
    RefNotFoundError,
)
from icevirt.ids import INITIAL_SNAPSHOT_ID, ObjectId8
from icevirt.model.config.document import SplitRule
from icevirt.model.repo_info import RepoAvailability
from icevirt.model.snapshot import ManifestRef
from icevirt.model.updates import RepoInitialized
from icevirt.repo.assets import Assets
from icevirt.repo.commits import pending_commit
from icevirt.repo.commits.build_commit import BUILD_ID, BuildCommit, find_build
from icevirt.repo.history.types import RepoStatus
from icevirt.repo.repository import Repository
from icevirt.storage.local import LocalStorage
from icevirt.storage.memory import MemoryStorage
from icevirt.versioning.merge.build_merge import BuiltArray
from icevirt.versioning.merge.kept_nodes import Claim
from repo.faults.faulty import deaths
from repo.support import array_json, group_json, sound

ROOT = str(INITIAL_SNAPSHOT_ID)


def publish(storage, **build):
    return BuildCommit(storage=storage, **build).publish()


def built(storage, source, build_id="b1", path="/data/a", windows=2):
    """Write manifests as executors would; return the arguments that publish them."""
    assets, node = Assets(storage), ObjectId8.of_content(build_id.encode(), path.encode())
    refs, files = [], []
    for window in range(windows):
        table = source.table(range(4)).take(np.arange(window * 2, window * 2 + 2))
        info = assets.put_manifest({node: table})
        refs.append(ManifestRef(object_id=info.id, extents=table.extents()))
        files.append(info)
    return {
        "branch": "main",
        "message": f"build {build_id}",
        "metadata": {BUILD_ID: build_id},
        "groups": {"/": group_json(title="built"), "/data": group_json()},
        "arrays": {path: BuiltArray(array_json(), node, refs)},
        "manifest_files": files,
        "containers": [source.container],
        "split_rules": [SplitRule(path_regex=f"^{path}$", num_chunks=((0, 2),))],
    }


def whole_group(storage, group):
    """Return the claim of a build that follows one which made all that the group holds."""
    held = Repository.open(storage).readonly_session("main").snapshot
    own = (node for node in held.nodes if node.path == group)
    return Claim(
        group=group,
        replaces=True,
        made={node.path: node for node in (*own, *held.below(group))},
    )


def kinds(repo):
    return [type(update.kind).__name__ for update in repo.ops_log()]


# -- where there is no repository ------------------------------------------------------------------


def test_a_build_into_nothing_is_one_commit_on_a_new_repository(repo_path, source, official):
    storage = LocalStorage(repo_path)
    snapshot = publish(storage, **built(storage, source))
    repo = Repository.open(repo_path)
    assert [s.id for s in repo.ancestry(branch="main")] == [snapshot, ROOT]
    assert kinds(repo) == ["NewCommit", "RepoInitialized"]
    other = official()
    assert [s.id for s in other.ancestry(branch="main")] == [snapshot, ROOT]
    ours, theirs = list(repo.ops_log()), list(other.ops_log())
    assert [u.backup_path for u in ours] == [u.backup_path for u in theirs]
    assert os.listdir(f"{repo_path}/overwritten") == [ours[1].backup_path]
    before = repo.head.backup(ours[1].backup_path)
    assert [type(update.kind) for update in before.latest_updates] == [RepoInitialized]
    group = zarr.open_group(other.readonly_session("main").store, mode="r")
    np.testing.assert_array_equal(group["data/a"][:], source.values[:48])
    assert group.attrs["title"] == "built"
    assert list(other.config.virtual_chunk_containers) == [source.prefix]
    diff = other.diff(from_snapshot_id=ROOT, to_branch="main")
    assert diff.updated_chunks == {"/data/a": [[0], [1], [2], [3]]}


def test_the_official_client_commits_on_top_and_windows_stay(repo_path, source, official):
    storage = LocalStorage(repo_path)
    first = publish(storage, **built(storage, source))
    theirs = official().writable_session("main")
    zarr.open_group(theirs.store)["data/a"][0] = 5
    repo = Repository.open(repo_path)
    last = theirs.commit("one chunk")
    before = {m.id for m in repo.list_manifest_files(first)}
    after = {m.id for m in repo.list_manifest_files(last)}
    assert (len(before), len(after), len(before & after)) == (2, 2, 1)


@pytest.mark.ci
def test_killed_at_any_call_there_is_no_repository_or_the_whole_one(source):
    count = 0
    for storage in deaths(
        lambda storage: publish(storage, **built(storage, source)), MemoryStorage
    ):
        count += 1
        if Repository.exists(storage):
            repo = Repository.open(storage)
            assert kinds(repo) == ["NewCommit", "RepoInitialized"]
            assert len(repo.readonly_session("main").array_table("/data/a")) == 4
            assert sound(storage)
        snapshot = publish(storage, **built(storage, source))
        assert sound(storage)
        assert [s.id for s in Repository.open(storage).ancestry(branch="main")] == [snapshot, ROOT]
    assert count > 15


@pytest.mark.parametrize("found", ["notes.txt", "refs/branch.dev/ref.json", "data/x"])
def test_a_root_that_holds_something_else_is_left_alone(repo_path, source, found):
    storage = LocalStorage(repo_path)
    arguments = built(storage, source)
    storage.put(found, b"precious")
    with pytest.raises(AlreadyExistsError, match="not a repository"):
        publish(storage, **arguments)
    assert not Repository.exists(repo_path)


def test_a_new_repository_has_main_only(source):
    storage = MemoryStorage()
    with pytest.raises(RefNotFoundError, match="main"):
        publish(storage, **{**built(storage, source), "branch": "dev"})
    assert not Repository.exists(storage)


# -- where there is one ----------------------------------------------------------------------------


@pytest.fixture
def storage():
    """A repository that holds /other."""
    made = MemoryStorage()
    session = Repository.create(made).writable_session("main")
    session.add_group("/other", group_json(by="hand"))
    session.commit("by hand")
    return made


def test_config_and_commit_are_one_update(storage, source):
    publish(storage, **built(storage, source))
    repo = Repository.open(storage)
    assert kinds(repo)[:3] == ["NewCommit", "ConfigChanged", "NewCommit"]
    assert list(repo.config.virtual_chunk_containers) == [source.prefix]
    assert repo.config.splitting_document[0][0] == {"path_matches": {"regex": "^/data/a$"}}
    assert {node.path for node in repo.readonly_session("main").snapshot.nodes} == {
        "/",
        "/other",
        "/data",
        "/data/a",
    }


@pytest.mark.ci
def test_killed_at_any_call_the_repository_is_as_before_or_as_after(source):
    def make():
        made = MemoryStorage()
        session = Repository.create(made).writable_session("main")
        session.add_group("/other", group_json())
        session.commit("by hand")
        return made

    states = set()
    for storage in deaths(lambda storage: publish(storage, **built(storage, source)), make):
        repo = Repository.open(storage)
        history = [s.message for s in repo.ancestry(branch="main")]
        states.add(history[0])
        assert history[-2:] == ["by hand", "Repository initialized"]
        assert bool(repo.config.virtual_chunk_containers) == (history[0] == "build b1")
        assert sound(storage)
        publish(storage, **built(storage, source))
        assert sound(storage)
        assert [s.message for s in repo.ancestry(branch="main")] == ["build b1", *history[-2:]]
        assert len(list(repo.ops_log())) == 4
    assert states == {"by hand", "build b1"}


def test_a_build_is_committed_once(storage, source):
    first = publish(storage, **built(storage, source))
    session = Repository.open(storage).writable_session("main")
    session.add_group("/later", group_json())
    session.commit("later")
    assert publish(storage, **built(storage, source)) == first
    info = Repository.open(storage).head.read().info
    assert find_build(info, "main", "b1") == first
    assert find_build(info, "main", "b2") is None
    assert find_build(info, "dev", "b1") is None


def test_an_array_that_is_there_is_not_overwritten(storage, source):
    publish(storage, **built(storage, source))
    with pytest.raises(AlreadyExistsError):
        publish(storage, **built(storage, source, "b2"))


def test_a_group_is_replaced_when_asked_for(storage, source):
    publish(storage, **built(storage, source))
    before = Repository.open(storage).readonly_session("main").snapshot
    arguments = built(storage, source, "b2", "/data/b")
    arguments["groups"] = {"/data": group_json(new=True)}
    snapshot = publish(storage, **arguments, claim=whole_group(storage, "/data"))
    repo = Repository.open(storage)
    after = repo.readonly_session("main").snapshot
    assert {node.path for node in after.nodes} == {"/", "/other", "/data", "/data/b"}
    assert after.node("/data").id == before.node("/data").id
    diff = repo.diff(from_snapshot_id=str(before.id), to_snapshot_id=snapshot)
    assert (diff.deleted_arrays, diff.new_arrays, diff.updated_groups) == (
        {"/data/a"},
        {"/data/b"},
        {"/data"},
    )
    assert len(after.manifest_files) == 2


def test_the_same_path_replaced_is_a_new_array(storage, source):
    publish(storage, **built(storage, source))
    publish(storage, **built(storage, source, "b2"), claim=whole_group(storage, "/data"))
    repo = Repository.open(storage)
    diff = repo.diff(from_snapshot_id=ROOT, to_branch="main")
    assert diff.new_arrays == {"/data/a"}


def test_a_node_id_that_is_taken_is_refused(storage, source):
    publish(storage, **built(storage, source))
    arguments = {**built(storage, source), "metadata": {}}
    with pytest.raises(InvalidInputError, match="id of a new array"):
        publish(storage, **arguments, claim=whole_group(storage, "/data"))


def test_a_missing_branch_says_how_to_make_it(storage, source):
    with pytest.raises(RefNotFoundError, match="create_branch"):
        publish(storage, **{**built(storage, source), "branch": "dev"})


def test_a_read_only_repository_is_respected(storage, source):
    Repository.open(storage).set_status(RepoStatus(RepoAvailability.read_only))
    with pytest.raises(ReadOnlyError):
        publish(storage, **built(storage, source))


@pytest.mark.parametrize("damage", ["gone", "cut"])
def test_a_missing_manifest_stops_the_commit(storage, source, damage):
    arguments = built(storage, source)
    path = f"manifests/{arguments['manifest_files'][0].id}"
    storage.delete(path) if damage == "gone" else storage.put(path, b"x")
    with pytest.raises(BuildError, match="manifest"):
        publish(storage, **arguments)
    assert len(list(Repository.open(storage).ancestry(branch="main"))) == 2


def commit_beside(storage, path):
    session = Repository.open(storage).writable_session("main")
    session.add_group(path, group_json(by="another"))
    return session.commit("another")


def test_a_branch_that_moved_elsewhere_is_built_upon(storage, source):
    planned = Repository.open(storage).lookup_branch("main")
    commit_beside(storage, "/elsewhere")
    publish(storage, **built(storage, source), expected_parent=planned)
    nodes = Repository.open(storage).readonly_session("main").snapshot
    assert nodes.find("/elsewhere")
    assert nodes.find("/data/a")


REPLACING, INTO_EMPTY = (Claim(group="/data", replaces=each) for each in (True, False))


def test_a_group_that_came_below_a_replaced_one_meanwhile_stays(storage, source):
    planned = commit_beside(storage, "/data")
    commit_beside(storage, "/data/new")
    publish(storage, **built(storage, source), expected_parent=planned, claim=REPLACING)
    nodes = Repository.open(storage).readonly_session("main").snapshot
    assert nodes.find("/data/new")
    assert nodes.find("/data/a")


@pytest.mark.parametrize(
    ("path", "claim"),
    [
        ("/data", None),
        ("/data/a", REPLACING),
        ("/data/a/below", REPLACING),
        ("/data/new", INTO_EMPTY),
    ],
    ids=["its group", "its array", "below its array", "in the empty group"],
)
def test_a_branch_that_moved_where_the_build_goes_conflicts(storage, source, path, claim):
    planned = Repository.open(storage).lookup_branch("main")
    tip = commit_beside(storage, path)
    with pytest.raises(ConflictError) as caught:
        publish(storage, **built(storage, source), expected_parent=planned, claim=claim)
    assert path in caught.value.facts["paths"]
    assert Repository.open(storage).lookup_branch("main") == tip


def test_a_branch_that_was_reset_conflicts(storage, source):
    repo = Repository.open(storage)
    planned = repo.lookup_branch("main")
    repo.reset_branch("main", ROOT)
    with pytest.raises(ConflictError, match="reset"):
        publish(storage, **built(storage, source), expected_parent=planned)


def test_a_race_lost_at_the_last_moment_is_run_again(storage, source):
    """Somebody commits between this build's reading and its writing of `repo`, twice."""

    class Raced:
        def __init__(self):
            self.url, self.left = storage.url, 2

        def __getattr__(self, name):
            return getattr(storage, name)

        def put_if(self, path, body, *, was, **more):
            if path == "repo" and self.left:
                self.left -= 1
                commit_beside(storage, f"/beside{self.left}")
            return storage.put_if(path, body, was=was, **more)

    publish(Raced(), **built(storage, source))
    repo = Repository.open(storage)
    assert [s.message for s in repo.ancestry(branch="main")][:3] == [
        "build b1",
        "another",
        "another",
    ]
    backups = {info.path.split("/")[1] for info in storage.list("overwritten")}
    assert backups == {u.backup_path for u in repo.ops_log()} - {None}


def test_a_large_build_lists_no_chunks_and_the_official_client_copes(
    repo_path, source, official, monkeypatch
):
    monkeypatch.setattr(pending_commit, "MAX_LISTED", 3)
    storage = LocalStorage(repo_path)
    snapshot = publish(storage, **built(storage, source))
    repo = Repository.open(repo_path)
    assert repo.diff(from_snapshot_id=ROOT, to_branch="main").updated_chunks == {}
    other = official()
    diff = other.diff(from_snapshot_id=ROOT, to_snapshot_id=snapshot)
    assert (diff.new_arrays, diff.updated_chunks) == ({"/data/a"}, {})
    session = other.writable_session("main")
    zarr.open_group(session.store)["data/a"][0] = 1
    session.commit("theirs", rebase_with=icechunk.ConflictDetector())


@pytest.mark.parametrize(
    "extents",
    [(((0, 2),), ((1, 3),)), (((0, 2),), ((2, 5),))],
    ids=["overlapping", "out of the grid"],
)
def test_manifests_that_readers_would_misread_are_refused(storage, source, extents):
    arguments = built(storage, source)
    ((path, array),) = arguments["arrays"].items()
    refs = [
        ManifestRef(object_id=ref.object_id, extents=box)
        for ref, box in zip(array.manifests, extents, strict=True)
    ]
    arguments["arrays"] = {path: array._replace(manifests=refs)}
    with pytest.raises(InvalidInputError, match=r"overlap|out of"):
        publish(storage, **arguments)


def test_metadata_is_checked_before_anything_is_written(storage, source):
    arguments = built(storage, source)
    arguments["groups"] = {
        "/data": b'{"zarr_format": 3, "node_type": "group", "attributes": {"x": NaN}}'
    }
    objects = len(list(storage.list()))
    with pytest.raises(InvalidInputError, match="NaN"):
        publish(storage, **arguments)
    assert len(list(storage.list())) == objects
