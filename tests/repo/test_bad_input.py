"""Each public method called wrongly: an error of ours, that says what to do, and that pickles.

One row for each mistake. A method that is in no row has to say in HARMLESS why it cannot go wrong.
"""

import pickle
from datetime import UTC, datetime

import numpy as np
import pytest

import icevirt
from icevirt import errors
from icevirt.model.chunks import ChunkTable
from icevirt.repo.repository import Repository
from repo.support import array_json, group_json

ROOT = "1CECHNKREP0F1RSTCMT0"
NOWHERE = "0" * 20
FUTURE = datetime(2200, 1, 1, tzinfo=UTC)
TABLE = ChunkTable.empty(1)
INVALID, NO_REF, NO_SNAPSHOT = (
    errors.InvalidInputError,
    errors.RefNotFoundError,
    errors.SnapshotNotFoundError,
)
EXISTS, STATE, READ_ONLY = (
    errors.AlreadyExistsError,
    errors.SessionStateError,
    errors.ReadOnlyError,
)
NO_NODE = errors.NodeNotFoundError

# method, what is odd, how it is called with `it`, the error
CLASS_METHODS = [
    ("create", "a number", lambda r: Repository.create(5), INVALID),
    ("create", "no path", lambda r: Repository.create(""), INVALID),
    ("create", "one is there", lambda r: Repository.create(r.storage), EXISTS),
    ("create", "a mapping as config", lambda r: Repository.create("x", {"a": 1}), INVALID),
    ("create", "no policy", lambda r: Repository.open(r.storage, on_stale="no"), INVALID),
    ("open", "nothing", lambda r: Repository.open(None), INVALID),
    ("open", "an unknown URL", lambda r: Repository.open("ftp://host/x"), INVALID),
    (
        "open",
        "none is there",
        lambda r: Repository.open(f"{r.storage.url}/no"),
        errors.RepositoryNotFoundError,
    ),
    ("open", "a mapping as config", lambda r: Repository.open(r.storage, {"a": 1}), INVALID),
    (
        "open",
        "a mapping as config, and prefixes",
        lambda r: Repository.open(r.storage, {"a": 1}, ["file:///x/"]),
        INVALID,
    ),
    ("open", "an empty prefix", lambda r: Repository.open(r.storage, None, ""), INVALID),
    ("open", "a number of prefixes", lambda r: Repository.open(r.storage, None, 5), INVALID),
    ("open_or_create", "a number", lambda r: Repository.open_or_create(5), INVALID),
    ("exists", "a number", lambda r: Repository.exists(5), INVALID),
    ("fetch_config", "a number", lambda r: Repository.fetch_config(5), INVALID),
    ("fetch_spec_version", "a number", lambda r: Repository.fetch_spec_version(5), INVALID),
]
REPOSITORY = [
    ("reopen", "a mapping as config", lambda r: r.reopen({"a": 1}), INVALID),
    ("readonly_session", "no version", lambda r: r.readonly_session(), INVALID),
    ("readonly_session", "two versions", lambda r: r.readonly_session("main", tag="t"), INVALID),
    ("readonly_session", "no such branch", lambda r: r.readonly_session("no"), NO_REF),
    ("readonly_session", "a number", lambda r: r.readonly_session(5), NO_REF),
    ("readonly_session", "no such tag", lambda r: r.readonly_session(tag="no"), NO_REF),
    ("readonly_session", "no id", lambda r: r.readonly_session(snapshot_id="no"), NO_SNAPSHOT),
    (
        "readonly_session",
        "an unknown id",
        lambda r: r.readonly_session(snapshot_id=NOWHERE),
        NO_SNAPSHOT,
    ),
    (
        "readonly_session",
        "a number as id",
        lambda r: r.readonly_session(snapshot_id=5),
        NO_SNAPSHOT,
    ),
    (
        "readonly_session",
        "a time as text",
        lambda r: r.readonly_session("main", as_of="2020"),
        INVALID,
    ),
    (
        "readonly_session",
        "a time and a tag",
        lambda r: r.readonly_session(tag="t", as_of=FUTURE),
        INVALID,
    ),
    (
        "readonly_session",
        "a time before all",
        lambda r: r.readonly_session("main", as_of=datetime(1990, 1, 1, tzinfo=UTC)),
        NO_SNAPSHOT,
    ),
    ("writable_session", "no such branch", lambda r: r.writable_session("no"), NO_REF),
    ("writable_session", "nothing", lambda r: r.writable_session(None), NO_REF),
    ("rearrange_session", "no such branch", lambda r: r.rearrange_session("no"), NO_REF),
    (
        "transaction",
        "no such branch",
        lambda r: r.transaction("no", message="x").__enter__(),
        NO_REF,
    ),
    ("transaction", "no message", lambda r: r.transaction("main", message=5).__enter__(), INVALID),
    ("lookup_branch", "no such branch", lambda r: r.lookup_branch("no"), NO_REF),
    ("lookup_tag", "no such tag", lambda r: r.lookup_tag("no"), NO_REF),
    ("lookup_snapshot", "no id", lambda r: r.lookup_snapshot("no"), NO_SNAPSHOT),
    ("lookup_snapshot", "a number", lambda r: r.lookup_snapshot(5), NO_SNAPSHOT),
    ("create_branch", "it is there", lambda r: r.create_branch("main", ROOT), EXISTS),
    ("create_branch", "a number", lambda r: r.create_branch(5, ROOT), INVALID),
    ("create_branch", "no such snapshot", lambda r: r.create_branch("b", NOWHERE), NO_SNAPSHOT),
    ("create_tag", "it is there", lambda r: r.create_tag("t", ROOT), EXISTS),
    ("create_tag", "a number", lambda r: r.create_tag(5, ROOT), INVALID),
    ("create_tag", "no such snapshot", lambda r: r.create_tag("b", NOWHERE), NO_SNAPSHOT),
    ("delete_branch", "main", lambda r: r.delete_branch("main"), INVALID),
    ("delete_branch", "no such branch", lambda r: r.delete_branch("no"), NO_REF),
    ("delete_tag", "no such tag", lambda r: r.delete_tag("no"), NO_REF),
    ("reset_branch", "no such branch", lambda r: r.reset_branch("no", ROOT), NO_REF),
    ("reset_branch", "no such snapshot", lambda r: r.reset_branch("main", NOWHERE), NO_SNAPSHOT),
    (
        "reset_branch",
        "it is elsewhere",
        lambda r: r.reset_branch("main", ROOT, from_snapshot_id=ROOT),
        errors.ConflictError,
    ),
    ("ancestry", "no version", lambda r: list(r.ancestry()), INVALID),
    ("ancestry_graph", "no such branch", lambda r: r.ancestry_graph(branch="no"), NO_REF),
    ("diff", "no versions", lambda r: r.diff(), INVALID),
    (
        "diff",
        "backwards",
        lambda r: r.diff(from_branch="main", to_snapshot_id=ROOT),
        INVALID,
    ),
    ("list_manifest_files", "no id", lambda r: r.list_manifest_files("no"), NO_SNAPSHOT),
    ("inspect_snapshot", "a number", lambda r: r.inspect_snapshot(5), NO_SNAPSHOT),
    ("inspect_manifest", "a number", lambda r: r.inspect_manifest(5), errors.NotFoundError),
    ("inspect_transaction_log", "no id", lambda r: r.inspect_transaction_log("no"), NO_SNAPSHOT),
    ("set_metadata", "no JSON", lambda r: r.set_metadata({"a": object()}), INVALID),
    ("set_metadata", "a number", lambda r: r.set_metadata(5), INVALID),
    ("update_metadata", "not a number", lambda r: r.update_metadata({"a": float("nan")}), INVALID),
    (
        "set_default_commit_metadata",
        "a set",
        lambda r: r.set_default_commit_metadata({"a": {1}}),
        INVALID,
    ),
    ("set_status", "text", lambda r: r.set_status("read_only"), INVALID),
    ("set_status", "text inside", lambda r: r.set_status(icevirt.RepoStatus("read_only")), INVALID),
    ("set_feature_flag", "unknown feature", lambda r: r.set_feature_flag("no", True), INVALID),
    ("set_feature_flag", "text", lambda r: r.set_feature_flag("create_tag", "yes"), INVALID),
    ("save_config", "no JSON", lambda r: unsaveable(r).save_config(), INVALID),
    ("expire_snapshots", "a time as text", lambda r: r.expire_snapshots("2020"), INVALID),
    ("garbage_collect", "a time as text", lambda r: r.garbage_collect("2020"), INVALID),
    ("garbage_collect", "the future", lambda r: r.garbage_collect(FUTURE), INVALID),
    ("trim_ops_log", "a time as text", lambda r: r.trim_ops_log("2020"), INVALID),
    ("trim_ops_log", "the future", lambda r: r.trim_ops_log(FUTURE), INVALID),
    (
        "rewrite_manifests",
        "no such branch",
        lambda r: r.rewrite_manifests("x", branch="no"),
        NO_REF,
    ),
    (
        "rewrite_manifests",
        "no message",
        lambda r: r.rewrite_manifests(None, branch="main"),
        INVALID,
    ),
    (
        "rewrite_manifests",
        "no such way",
        lambda r: r.rewrite_manifests("x", branch="main", commit_method="no"),
        INVALID,
    ),
]
SESSION = [
    ("commit", "nothing", lambda w: w.commit("x"), STATE),
    ("commit", "no message", lambda w: changed(w).commit(None), INVALID),
    ("commit", "no JSON", lambda w: changed(w).commit("x", {"a": object()}), INVALID),
    ("commit", "no solver", lambda w: changed(w).commit("x", rebase_with="ours"), INVALID),
    ("amend", "nothing", lambda w: w.amend("x"), STATE),
    ("amend", "no message", lambda w: changed(w).amend(None), INVALID),
    ("flush", "no message", lambda w: changed(w).flush(None), INVALID),
    ("rebase", "no solver", lambda w: changed(w).rebase("ours"), INVALID),
    ("merge", "no fork", lambda w: w.merge(w), STATE),
    ("merge", "a number", lambda w: w.merge(5), STATE),
    ("move", "in a writable session", lambda w: w.move("/a", "/b"), STATE),
    ("get_node_id", "nothing there", lambda w: w.get_node_id("/no"), NO_NODE),
    ("get_node_id", "a number", lambda w: w.get_node_id(5), INVALID),
    ("node", "nothing there", lambda w: w.node("/no"), NO_NODE),
    ("find", "two dots", lambda w: w.find("/a/../b"), INVALID),
    ("array", "a group", lambda w: w.array("/g"), INVALID),
    ("array_table", "nothing there", lambda w: w.array_table("/no"), NO_NODE),
    ("references", "one dimension", lambda w: w.references("/a", np.zeros(3, int)), INVALID),
    ("references", "fractions", lambda w: w.references("/a", np.zeros((3, 1))), INVALID),
    ("refs_table", "nothing there", lambda w: w.refs_table("/no"), NO_NODE),
    ("source_of", "outside", lambda w: w.source_of("/a", [999]), INVALID),
    ("source_of", "no place", lambda w: w.source_of("/a"), INVALID),
    ("chunk_type", "a group", lambda w: w.chunk_type("/g", [0]), INVALID),
    ("chunk_type", "two dimensions", lambda w: w.chunk_type("/a", [0, 0]), INVALID),
    ("chunk_type", "text", lambda w: w.chunk_type("/a", "x"), INVALID),
    ("chunk_type", "a fraction", lambda w: w.chunk_type("/a", [0.5]), INVALID),
    ("chunk_type", "ragged", lambda w: w.chunk_type("/a", [[1], [1, 2]]), INVALID),
    ("chunk_coordinates", "a group", lambda w: w.chunk_coordinates("/g"), INVALID),
    ("shift_array", "two dimensions", lambda w: w.shift_array("/a", [1, 1]), INVALID),
    ("shift_array", "text", lambda w: w.shift_array("/a", "x"), INVALID),
    ("shift_array", "nothing there", lambda w: w.shift_array("/no", [1]), NO_NODE),
    (
        "reindex_array",
        "outside",
        lambda w: changed(w).reindex_array("/a", lambda at: [99]),
        INVALID,
    ),
    (
        "reindex_array",
        "two dimensions",
        lambda w: changed(w).reindex_array("/a", lambda at: [0, 0]),
        INVALID,
    ),
    ("reindex_array", "text", lambda w: changed(w).reindex_array("/a", lambda at: "x"), INVALID),
    ("reindex_array", "a number", lambda w: changed(w).reindex_array("/a", lambda at: 0), INVALID),
    ("reindex_array", "no function", lambda w: changed(w).reindex_array("/a", 5), INVALID),
    ("add_group", "no metadata", lambda w: w.add_group("/x", b"{}"), INVALID),
    ("add_group", "no JSON", lambda w: w.add_group("/x", b"\xff"), INVALID),
    ("add_group", "an array is there", lambda w: w.add_group("/a", group_json()), EXISTS),
    ("add_group", "two dots", lambda w: w.add_group("/x/../y", group_json()), INVALID),
    ("add_array", "a group is there", lambda w: w.add_array("/g", array_json(), TABLE), EXISTS),
    ("add_array", "metadata of a group", lambda w: w.add_array("/n", group_json(), TABLE), INVALID),
    (
        "add_array",
        "two dimensions",
        lambda w: w.add_array("/n", array_json(), ChunkTable.empty(2)),
        INVALID,
    ),
    ("add_array", "a list", lambda w: w.add_array("/n", array_json(), [1]), INVALID),
    ("set_metadata", "nothing there", lambda w: w.set_metadata("/no", array_json()), NO_NODE),
    ("set_metadata", "of a group", lambda w: w.set_metadata("/a", group_json()), INVALID),
    ("set_chunks", "a list", lambda w: w.set_chunks("/a", [1]), INVALID),
    ("set_chunk", "outside", lambda w: w.set_chunk("/a", [99], b"x"), INVALID),
    ("set_chunk", "two dimensions", lambda w: w.set_chunk("/a", [0, 0], b"x"), INVALID),
    ("set_chunk", "no bytes", lambda w: w.set_chunk("/a", [0], b""), INVALID),
    ("set_chunk", "text", lambda w: w.set_chunk("/a", [0], "x"), INVALID),
    ("delete", "a number", lambda w: w.delete(5), INVALID),
    ("delete_chunks", "outside", lambda w: w.delete_chunks("/a", np.array([[99]])), INVALID),
    ("delete_chunks", "one dimension", lambda w: w.delete_chunks("/a", [0]), INVALID),
]
READ_ONLY_SESSION = [
    ("commit", "read-only", lambda s: s.commit("x"), READ_ONLY),
    ("amend", "read-only", lambda s: s.amend("x"), READ_ONLY),
    ("flush", "read-only", lambda s: s.flush("x"), READ_ONLY),
    ("rebase", "read-only", lambda s: s.rebase(icevirt.ConflictDetector()), READ_ONLY),
    ("fork", "read-only", lambda s: s.fork(), READ_ONLY),
    ("merge", "read-only", lambda s: s.merge(), READ_ONLY),
    ("move", "read-only", lambda s: s.move("/a", "/b"), READ_ONLY),
    ("discard_changes", "read-only", lambda s: s.discard_changes(), READ_ONLY),
    ("shift_array", "read-only", lambda s: s.shift_array("/a", [1]), READ_ONLY),
    ("reindex_array", "read-only", lambda s: s.reindex_array("/a", lambda at: None), READ_ONLY),
    ("add_group", "read-only", lambda s: s.add_group("/x", group_json()), READ_ONLY),
    ("set_chunk", "read-only", lambda s: s.set_chunk("/a", [0], b"x"), READ_ONLY),
    ("delete", "read-only", lambda s: s.delete("/a"), READ_ONLY),
]
REARRANGE_SESSION = [
    ("fork", "rearranging", lambda x: x.fork(), STATE),
    ("set_chunk", "rearranging", lambda x: x.set_chunk("/a", [0], b"x"), STATE),
    ("move", "nothing there", lambda x: x.move("/no", "/b"), NO_NODE),
    ("move", "onto something", lambda x: x.move("/a", "/g"), EXISTS),
    ("move", "into itself", lambda x: x.move("/g", "/g/x"), INVALID),
    ("move", "into no group", lambda x: x.move("/a", "/q/x"), INVALID),
    ("move", "a number", lambda x: x.move(5, "/x"), INVALID),
    ("move", "the root", lambda x: x.move("/", "/x"), INVALID),
]
FORK = [
    ("commit", "a fork", lambda f: f.commit("x"), STATE),
    ("amend", "a fork", lambda f: f.amend("x"), STATE),
    ("flush", "a fork", lambda f: f.flush("x"), STATE),
    ("rebase", "a fork", lambda f: f.rebase(icevirt.ConflictDetector()), STATE),
]
ROWS = {
    "repository": CLASS_METHODS + REPOSITORY,
    "session": SESSION,
    "read-only session": READ_ONLY_SESSION,
    "rearrange session": REARRANGE_SESSION,
    "fork": FORK,
}
NAMED = {
    f"{owner}.{method}: {odd}": (owner, call, error)
    for owner, rows in ROWS.items()
    for method, odd, call, error in rows
}
HARMLESS = {
    "takes nothing": {
        "all_virtual_chunk_locations",
        "chunk_storage_stats",
        "copy_changes",
        "default_commit_metadata",
        "disabled_feature_flags",
        "enabled_feature_flags",
        "feature_flags",
        "get_metadata",
        "get_status",
        "history",
        "inspect_repo_info",
        "list_branches",
        "list_tags",
        "ops_log",
        "status",
    },
    "tested with what it works on": {"upgrade"},
}


def changed(session):
    session.set_chunk("/a", [0], b"x" * 48)
    return session


def unsaveable(repo):
    repo.config.document["x"] = object()
    return repo


@pytest.fixture
def owners(repo_path, monkeypatch, tmp_path):
    """One of each kind of object, by the names of the tables."""
    monkeypatch.chdir(tmp_path)
    repo = Repository.create(repo_path)
    session = repo.writable_session("main")
    session.add_group("/g", group_json())
    session.add_array("/a", array_json(), ChunkTable.empty(1))
    repo.create_tag("t", session.commit("x"))
    return {
        "repository": lambda: repo,
        "session": lambda: repo.writable_session("main"),
        "read-only session": lambda: repo.readonly_session("main"),
        "rearrange session": lambda: repo.rearrange_session("main"),
        "fork": lambda: repo.writable_session("main").fork(),
    }


@pytest.mark.parametrize(("owner", "call", "error"), NAMED.values(), ids=NAMED.keys())
def test_a_mistake_is_reported_with_what_to_do(owners, owner, call, error):
    it = owners[owner]()
    with pytest.raises(error) as caught:
        call(it)
    found = caught.value
    assert isinstance(found, error)
    assert found.code == error.code, "a handler would do something else"
    assert found.what
    assert found.do.endswith((".", ")")), "the message says what to do, as a sentence"
    copy = pickle.loads(pickle.dumps(found))
    assert (type(copy), str(copy)) == (type(found), str(found))


@pytest.mark.parametrize("kind", [icevirt.Repository, icevirt.Session, icevirt.ForkSession])
def test_every_public_method_is_in_a_table(kind):
    output = {method for rows in ROWS.values() for method, *_ in rows}
    output |= {method for methods in HARMLESS.values() for method in methods}
    public = {n for n in dir(kind) if not n.startswith("_") and callable(getattr(kind, n))}
    assert public - output == set()


def test_the_tables_name_methods_that_exist():
    kinds = (icevirt.Repository, icevirt.Session, icevirt.ForkSession)
    output = {method for rows in ROWS.values() for method, *_ in rows}
    output |= {method for methods in HARMLESS.values() for method in methods}
    assert {
        method for method in output if not any(hasattr(kind, method) for kind in kinds)
    } == set()
