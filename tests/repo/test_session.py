"""Sessions are isolated, see their own changes, and commit them whole."""

import json
import pickle
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import zarr

from icevirt.errors import (
    AlreadyExistsError,
    ConflictError,
    InvalidInputError,
    NodeNotFoundError,
    ReadOnlyError,
    RefNotFoundError,
    SessionStateError,
)
from icevirt.ids import ObjectId12
from icevirt.model.chunks import ChunkTable, ChunkType
from icevirt.model.config.document import SplitRule
from icevirt.model.snapshot import ArrayNode, GroupNode
from icevirt.repo.repository import Repository
from icevirt.versioning.merge.conflicts import ConflictDetector
from repo.support import array_json, group_json


@pytest.fixture
def session(repo, source):
    """A writable session on a commit that holds /g and /g/a, four chunks of the source."""
    begun = repo.writable_session("main")
    begun.add_group("/g", group_json(kind="data"))
    begun.add_array("/g/a", array_json(), source.table(range(4)))
    begun.commit("base")
    return repo.writable_session("main")


# -- reading ---------------------------------------------------------------------------------------


def test_references_answer_in_the_order_of_the_request(session, source):
    found = session.references("/g/a", np.array([[3], [0], [3], [2]]))
    assert found.kind.tolist() == [ChunkType.virtual] * 4
    assert found.offset.tolist() == [144, 0, 144, 96]
    assert found.length.tolist() == [48] * 4
    assert {found.locations.url[int(row)] for row in found.source} == {source.url}
    assert set(found.locations.last_modified.tolist()) == {1_600_000_000}


def test_a_chunk_that_was_never_written_is_uninitialized(repo, session):
    session.delete_chunks("/g/a", np.array([[1]]))
    for state in (session, repo.readonly_session(snapshot_id=session.commit("delete"))):
        found = state.references("/g/a", np.array([[1], [2], [70]]))
        assert found.kind.tolist() == [
            ChunkType.uninitialized,
            ChunkType.virtual,
            ChunkType.uninitialized,
        ]
        assert len(state.array_table("/g/a")) == 3


def test_no_request_has_an_answer_too(session):
    assert len(session.references("/g/a", np.zeros((0, 1), int))) == 0


@pytest.mark.parametrize("index", [np.zeros(3, int), np.zeros((3, 2), int)], ids=["flat", "2-d"])
def test_indices_must_fit_the_array(session, index):
    with pytest.raises(InvalidInputError, match=r"\(k, 1\)"):
        session.references("/g/a", index)


def test_lookups_across_many_manifests_agree_with_the_whole_table(repo, source):
    repo.config.add_split_rules([SplitRule(path_regex=None, num_chunks=((0, 3), (1, 4)))])
    session = repo.writable_session("main")
    rng = np.random.default_rng(0)
    index = np.argwhere(rng.random((20, 30)) < 0.4)
    kinds = rng.random(len(index)) < 0.3
    session.add_array("/a", array_json((20, 30), (1, 1)), source.table(index[kinds], per_chunk=1))
    chunks = [bytes([n % 256, 0, 0, 0]) for n in range(int((~kinds).sum()))]
    session.set_chunks("/a", ChunkTable.of_inline(index=index[~kinds], chunks=chunks))
    session.commit("a")
    session = repo.writable_session("main")
    assert len(session.array("/a").manifests) == 56
    session.set_chunks("/a", source.table([[5, 5], [0, 0]], per_chunk=1))
    whole = session.array_table("/a")
    wanted = rng.integers(0, (22, 32), (500, 2))
    found = session.references("/a", wanted)
    rows = whole.rows_of(wanted)
    assert (found.kind > 0).tolist() == (rows >= 0).tolist()
    for at, row in enumerate(rows.tolist()):
        if row < 0:
            continue
        assert (found.kind[at], found.length[at]) == (whole.kind[row], whole.length[row])
        if found.kind[at] == ChunkType.inline:
            ours = found.inline[int(found.offset[at]) :][: int(found.length[at])]
            theirs = whole.inline[int(whole.offset[row]) :][: int(whole.length[row])]
            assert ours.tobytes() == theirs.tobytes()
        else:
            assert found.offset[at] == whole.offset[row]
            assert found.locations.url[int(found.source[at])] == source.url


def test_a_name_that_is_no_array_is_said(session):
    with pytest.raises(NodeNotFoundError):
        session.references("/nothing", np.zeros((1, 1), int))
    with pytest.raises(InvalidInputError, match="group"):
        session.array_table("/g")


def test_a_session_does_not_see_what_others_commit(repo, session, source):
    reader = repo.readonly_session("main")
    session.add_array("/later", array_json(), source.table([[0]]))
    assert reader.find("/later") is None
    session.commit("later")
    assert reader.find("/later") is None
    assert repo.readonly_session("main").find("/later") is not None


# -- adding nodes ----------------------------------------------------------------------------------


def test_missing_parents_are_added(repo):
    session = repo.writable_session("main")
    session.add_array("x/y/z", array_json(), ChunkTable.empty(1))
    kinds = {node.path: type(node) for node in session.snapshot.nodes}
    assert kinds == {"/": GroupNode, "/x": GroupNode, "/x/y": GroupNode, "/x/y/z": ArrayNode}


def test_metadata_is_kept_byte_for_byte(session):
    odd = json.dumps(json.loads(array_json()), indent=7).encode()
    session.add_array("/odd", odd, ChunkTable.empty(1))
    session.commit("odd")
    assert session.snapshot.node("/odd").user_data == odd


def test_a_group_that_agrees_merges_quietly(session):
    before = session.node("/g")
    session.add_group("/g", group_json(kind="data"))
    assert session.node("/g") == before
    assert not session.has_uncommitted_changes
    session.add_group("/g", group_json(more=1))
    assert json.loads(session.node("/g").user_data)["attributes"] == {"kind": "data", "more": 1}
    assert session.status().updated_groups == {"/g"}


OCCUPIED = {
    "a group that contradicts": lambda s: s.add_group("/g", group_json(kind="other")),
    "a group over an array": lambda s: s.add_group("/g/a", group_json()),
    "an array over an array": lambda s: s.add_array("/g/a", array_json(), ChunkTable.empty(1)),
    "an array over a group": lambda s: s.add_array("/g", array_json(), ChunkTable.empty(1)),
}


@pytest.mark.parametrize("action", OCCUPIED.values(), ids=OCCUPIED.keys())
def test_what_is_there_is_not_overwritten(session, action):
    with pytest.raises(AlreadyExistsError):
        action(session)
    assert not session.has_uncommitted_changes


def test_nothing_lies_below_an_array(session):
    with pytest.raises(InvalidInputError, match="below an array"):
        session.add_group("/g/a/deeper/still", group_json())


BAD_METADATA = {
    "no JSON": b"{",
    "not UTF-8": b'{"a": "\xff"}',
    "bare NaN": array_json(fill_value=float("nan")),
    "bare Infinity": array_json(attributes={"valid_max": float("inf")}),
    "a dtype that does not exist": array_json(data_type="nonsense"),
    "a codec that does not exist": array_json(codecs=[{"name": "nonsense"}]),
    "a shape beyond 63 bits": array_json((2**63,), (2**62,)),
    "more chunks than u32": array_json((2**40,), (1,)),
    "more names than dimensions": array_json(dimension_names=["a", "b"]),
    "chunk keys with dots": array_json(
        chunk_key_encoding={"name": "default", "configuration": {"separator": "."}}
    ),
    "v2 chunk keys": array_json(chunk_key_encoding={"name": "v2"}),
    "zarr v2": b'{"zarr_format": 2, "shape": [1]}',
    "a group": group_json(),
    "an unknown grid": array_json(chunk_grid={"name": "spiral"}),
    "a list": b"[]",
}


@pytest.mark.parametrize("document", BAD_METADATA.values(), ids=BAD_METADATA.keys())
def test_metadata_that_others_could_not_read_is_refused(session, document):
    with pytest.raises(InvalidInputError):
        session.add_array("/bad", document, ChunkTable.empty(1))
    assert not session.has_uncommitted_changes


def test_references_outside_every_container_name_the_remedy(session, source, tmp_path):
    other = source.table([[0]])
    elsewhere = ChunkTable.virtual(
        index=other.index,
        offset=other.offset,
        length=other.length,
        locations=type(other.locations).one("file:///else/where/x.nc"),
    )
    with pytest.raises(InvalidInputError) as caught:
        session.set_chunks("/g/a", elsewhere)
    assert (
        'VirtualChunkContainer("file:///else/where/", local_filesystem_store("/else/where/"))'
        in str(caught.value)
    )


def test_a_reference_of_no_bytes_is_refused(session, source):
    table = ChunkTable.of_inline(index=np.array([[0]]), chunks=[b""])
    with pytest.raises(InvalidInputError, match="no bytes"):
        session.set_chunks("/g/a", table)


def test_a_chunk_outside_the_grid_is_refused(session, source):
    with pytest.raises(InvalidInputError, match="outside"):
        session.set_chunks("/g/a", source.table([[4]]))
    with pytest.raises(InvalidInputError, match="outside"):
        session.delete_chunks("/g/a", np.array([[-1]]))
    with pytest.raises(InvalidInputError, match="outside"):
        session.add_array("/b", array_json(), source.table([[9]]))


# -- changing --------------------------------------------------------------------------------------


def test_an_array_that_shrinks_drops_what_is_outside(repo, session):
    session.set_metadata("/g/a", array_json((20,), (12,)))
    session.commit("shrink")
    session = repo.writable_session("main")
    assert session.array_table("/g/a").index.tolist() == [[0], [1]]
    session.set_metadata("/g/a", array_json((48,), (12,)))
    session.commit("grow")
    assert repo.readonly_session("main").array_table("/g/a").index.tolist() == [[0], [1]]


def test_an_array_that_shrinks_and_grows_in_one_session_shows_what_it_will_commit(repo, session):
    session.set_metadata("/g/a", array_json((20,), (12,)))
    assert session.array_table("/g/a").index.tolist() == [[0], [1]]
    assert session.references("/g/a", np.array([[1], [3]])).kind.tolist() == [2, 0]


def test_a_node_keeps_its_kind_and_dimensions(session):
    for document in (group_json(), array_json((4, 4), (2, 2))):
        with pytest.raises(InvalidInputError):
            session.set_metadata("/g/a", document)


def test_a_deleted_group_takes_everything_below_along(repo, session):
    session.delete("/g")
    session.delete("/never/was")
    assert session.status().deleted_arrays == {"/g/a"}
    session.commit("delete")
    assert [node.path for node in repo.readonly_session("main").snapshot.nodes] == ["/"]


def test_a_node_deleted_and_added_again_is_another_one(session, source):
    before = session.get_node_id("/g/a")
    session.delete("/g/a")
    session.add_array("/g/a", array_json(), source.table([[1]]))
    assert session.get_node_id("/g/a") != before
    session.commit("again")
    assert session.array_table("/g/a").index.tolist() == [[1]]


def test_what_is_added_and_deleted_again_leaves_no_trace(session, source):
    session.add_array("/tmp", array_json(), ChunkTable.empty(1))
    session.delete("/tmp")
    assert not session.has_uncommitted_changes
    session.add_array("/tmp", array_json(), source.table([[1]]))
    session.delete("/tmp")
    assert session.status().is_empty()
    assert session.has_uncommitted_changes  # as the official client says


def test_discarded_changes_are_gone(session):
    session.delete("/g")
    session.discard_changes()
    assert not session.has_uncommitted_changes
    assert session.find("/g/a") is not None


def test_chunks_above_the_threshold_become_objects(repo, session):
    session.set_chunk("/g/a", [0], b"x" * 512)
    session.set_chunk("/g/a", [1], b"y" * 513)
    session.commit("chunks")
    found = session.references("/g/a", np.array([[0], [1]]))
    assert found.kind.tolist() == [ChunkType.inline, ChunkType.native]
    key = ObjectId12(found.chunk_ids[int(found.source[1])].tobytes())
    assert session.assets.chunk(key, offset=1, length=3) == b"yyy"


def test_a_changed_splitting_applies_to_what_is_touched_only(repo, session, source):
    session.add_array("/b", array_json((40,), (1,)), source.table(range(40), 1))
    session.commit("one manifest each")
    repo.config.add_split_rules([SplitRule(path_regex=None, num_chunks=((0, 2),))])
    session = repo.writable_session("main")
    session.set_chunks("/g/a", source.table([[0]]))
    session.commit("touch a")
    assert [len(node.manifests) for node in session.snapshot.arrays()] == [1, 2]
    assert [ref.extents for ref in session.array("/g/a").manifests] == [((0, 2),), ((2, 4),)]


# -- committing ------------------------------------------------------------------------------------


def test_a_commit_leaves_the_session_read_only_on_its_snapshot(repo, session, source):
    session.add_array("/b", array_json(), source.table([[0]]))
    made = session.commit("b")
    assert (session.snapshot_id, session.read_only, session.branch) == (made, True, None)
    with pytest.raises(ReadOnlyError, match="writable_session"):
        session.delete("/b")
    assert session.find("/b") is not None


def test_nothing_is_committed_only_if_asked_for(repo, session):
    with pytest.raises(SessionStateError, match="allow_empty"):
        session.commit("nothing")
    made = session.commit("nothing", allow_empty=True)
    assert repo.lookup_branch("main") == made


def test_the_second_of_two_commits_conflicts_and_keeps_its_changes(repo, session, source):
    other = repo.writable_session("main")
    other.add_array("/b", array_json(), source.table([[0]]))
    first = other.commit("first")
    session.delete("/g/a")
    with pytest.raises(ConflictError) as caught:
        session.commit("second")
    assert caught.value.facts["actual_parent"] == first
    assert caught.value.facts["expected_parent"] == session.snapshot_id
    assert session.has_uncommitted_changes
    assert repo.lookup_branch("main") == first


def test_a_commit_to_a_deleted_branch_says_so(repo, session):
    repo.create_branch("dev", session.snapshot_id)
    begun = repo.writable_session("dev")
    repo.delete_branch("dev")
    begun.delete("/g")
    with pytest.raises(RefNotFoundError):
        begun.commit("x")


def test_metadata_that_is_not_json_is_refused_before_anything_is_written(session):
    session.delete("/g")
    with pytest.raises(InvalidInputError, match="JSON"):
        session.commit("x", {"when": object()})
    assert session.has_uncommitted_changes


def test_default_commit_metadata_goes_into_every_commit(repo):
    repo.set_default_commit_metadata({"author": "me", "k": 1})
    made = repo.writable_session("main").commit("x", {"k": 2}, allow_empty=True)
    assert repo.lookup_snapshot(made).metadata == {"author": "me", "k": 2}


def test_a_read_only_session_pickles_and_a_writable_one_refuses(session, source, repo):
    reader = pickle.loads(pickle.dumps(repo.readonly_session("main")))
    assert len(reader.array_table("/g/a")) == 4
    with pytest.raises(SessionStateError):
        pickle.dumps(session)


def test_a_session_tells_where_it_is(repo, session):
    assert repr(session) == f"<icevirt.Session main@{session.snapshot_id} no uncommitted changes>"
    assert repr(repo.readonly_session("main")).endswith("read-only>")


def test_a_transaction_commits_its_changes_or_drops_them_on_an_error(repo):
    import zarr

    with repo.transaction("main", message="by zarr", metadata={"k": 1}) as store:
        zarr.create_group(store).create_array("x", shape=(4,), chunks=(2,), dtype="i4")[:] = 7

    def fail(store):
        zarr.open_group(store)["x"][:] = 8
        raise RuntimeError

    with pytest.raises(RuntimeError), repo.transaction("main", message="no") as store:
        fail(store)
    assert [s.message for s in repo.ancestry(branch="main")] == [
        "by zarr",
        "Repository initialized",
    ]
    values = zarr.open_array(repo.readonly_session("main").store, path="x", mode="r")[:]
    assert values.tolist() == [7, 7, 7, 7]


def test_authorised_prefixes_reach_the_session(repo, source):
    prefix = source.prefix.rstrip("/")
    folder = source.path.parent
    for given in ([prefix], {prefix: None}, [str(folder)], [folder], folder, source.prefix):
        opened = Repository.open(repo.storage, authorize_virtual_chunk_access=given)
        assert {*opened.readonly_session("main").credentials} == {source.prefix}
    with pytest.raises(InvalidInputError, match="everything"):
        Repository.open(repo.storage, authorize_virtual_chunk_access=[""])


# -- threads -----------------------------------------------------------------------------------------


class Waiting:
    """A storage on which a snapshot is written when another thread has done something."""

    def __init__(self, storage, then):
        self.storage, self.then, self.url = storage, then, storage.url

    def __getattr__(self, name):
        return getattr(self.storage, name)

    def put_if(self, path, body, *, was, after):
        assert any(each.startswith("snapshots/") for each in after)
        with ThreadPoolExecutor(1) as pool:
            pool.submit(self.then).result(10)
        return self.storage.put_if(path, body, was=was, after=after)


@pytest.mark.parametrize("end", ["commit", "amend", "flush"])
def test_what_a_thread_writes_while_another_commits_is_refused(session, repo_path, end):
    """It would be in no snapshot, and nobody would know."""
    session.commit("empty", allow_empty=True)
    heard = []

    def late():
        for act in (
            lambda: zarr.open_group(writing.store)["g/a"].__setitem__(slice(None), 9),
            lambda: writing.set_chunks("/g/a", ChunkTable.empty(1)),
            lambda: writing.commit("another"),
            writing.discard_changes,
        ):
            with pytest.raises(SessionStateError, match="another thread is committing"):
                act()
            heard.append(act)

    storage = Waiting(Repository.open(repo_path).storage, late)
    repo = Repository.open(storage)
    writing = repo.writable_session("main")
    writing.add_group("/h", group_json())
    made = getattr(writing, end)("made")
    assert len(heard) == 4
    assert repo.readonly_session(snapshot_id=made).find("/h") is not None
    with pytest.raises(ReadOnlyError):
        writing.add_group("/i", group_json())


def test_after_a_commit_that_failed_other_threads_write_again(session, repo):
    other = repo.writable_session("main")
    for each, name in ((session, "/h"), (other, "/i")):
        each.add_group(name, group_json())
    other.commit("faster")
    with pytest.raises(ConflictError):
        session.commit("slower")
    with ThreadPoolExecutor(1) as pool:
        pool.submit(session.add_group, "/j", group_json()).result()
    session.commit("again", rebase_with=ConflictDetector())
    assert {"/h", "/i", "/j"} <= {node.path for node in session.snapshot.nodes}
