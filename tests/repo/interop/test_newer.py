"""What newer clients stored is not lost by what icevirt writes: it says so and leaves it alone."""

import numpy as np
import pytest

from icevirt.errors import FormatError
from icevirt.repo import layout
from icevirt.repo.repository import Repository
from icevirt.wire.flatbuffer.builder import build
from icevirt.wire.flatbuffer.reader import FlatBufferReader
from icevirt.wire.flatbuffer.schema import SNAPSHOT, TRANSACTION_LOG, Table
from icevirt.wire.header import FileKind, pack, unpack
from repo.support import array_json, group_json
from unit.wire.test_manifest import slowly
from unit.wire.test_newer import newer, written


@pytest.fixture
def two(repo, source):
    """A repository of two arrays; the manifest of /new holds what icevirt has no column for."""
    session = repo.writable_session("main")
    for path in ("/new", "/old"):
        session.add_array(path, array_json(), source.table(range(4)))
    session.commit("two")
    key = repo.readonly_session("main").array("/new").manifests[0].object_id
    path = layout.manifest(key)
    values = slowly(repo.storage.get(path))
    (rows,) = values["arrays"]
    rows["refs"][2]["extra"] = b"statistics"
    raw = written(rows["refs"], each={"node_id": rows["node_id"]}, id=key)
    repo.storage.put(path, raw)
    return Repository.open(repo.storage), key


def change(session, source, path):
    session.set_chunks(path, source.table([[0]]))
    return session.commit("changed")


def test_references_with_unknown_facts_are_read_and_kept(two, source):
    repo, key = two
    before = repo.storage.get(layout.manifest(key))
    change(repo.writable_session("main"), source, "/old")
    session = repo.readonly_session("main")
    assert len(session.array_table("/new")) == 4
    assert [ref.object_id for ref in session.array("/new").manifests] == [key]
    assert repo.storage.get(layout.manifest(key)) == before


def test_references_with_unknown_facts_are_not_rewritten(two, source):
    """By no way that leads to another manifest, and before anything is visible."""
    repo, key = two
    tip = repo.lookup_branch("main")
    shrunk = repo.writable_session("main")
    shrunk.set_metadata("/new", array_json((24,)))
    deleted = repo.writable_session("main")
    deleted.delete_chunks("/new", np.array([[1]]))
    for attempt in (
        lambda: change(repo.writable_session("main"), source, "/new"),
        lambda: shrunk.commit("smaller"),
        lambda: deleted.commit("a chunk less"),
        lambda: repo.rewrite_manifests("all anew", branch="main"),
    ):
        with pytest.raises(FormatError, match="Upgrade icevirt") as refused:
            attempt()
        assert refused.value.facts["manifest"] == str(key)
        assert repo.lookup_branch("main") == tip


def test_an_array_with_unknown_facts_may_be_deleted(two):
    """Whoever deletes means all of it."""
    repo, _ = two
    session = repo.writable_session("main")
    session.delete("/new")
    session.commit("gone")
    assert [node.path for node in repo.readonly_session("main").snapshot.arrays()] == ["/old"]


def grown(raw, kind, table: Table, **more):
    """The file, its root with one more field."""
    values = FlatBufferReader(unpack(raw, kind)[1]).root(table)
    return pack(kind, build(newer(table), {**values, "news": 1, **more}))


def test_nothing_is_committed_onto_a_snapshot_of_a_newer_client(two, source):
    repo, _ = two
    tip = repo.readonly_session("main").snapshot
    path = layout.snapshot(tip.id)
    repo.storage.put(path, grown(repo.storage.get(path), FileKind.snapshot, SNAPSHOT))
    again = Repository.open(repo.storage)
    assert len(again.readonly_session("main").array_table("/old")) == 4
    manifests = {info.path for info in repo.storage.list("manifests")}
    with pytest.raises(FormatError, match="newer client"):
        change(again.writable_session("main"), source, "/old")
    assert {info.path for info in repo.storage.list("manifests")} == manifests
    assert again.lookup_branch("main") == str(tip.id)


def test_a_commit_whose_log_holds_unknown_facts_is_not_amended(repo):
    session = repo.writable_session("main")
    session.add_group("/a", group_json())
    tip = session.commit("one")
    path = layout.transaction_log(repo.readonly_session("main").snapshot.id)
    repo.storage.put(path, grown(repo.storage.get(path), FileKind.transaction_log, TRANSACTION_LOG))
    again = Repository.open(repo.storage)
    session = again.writable_session("main")
    session.add_group("/b", group_json())
    with pytest.raises(FormatError, match="Commit instead"):
        session.amend("two")
    assert again.lookup_branch("main") == tip
    session = again.writable_session("main")
    session.add_group("/b", group_json())
    session.commit("two")
