"""What sessions show of their stores: references, sources of values, the policy for stale files."""

import os
import pickle

import numpy as np
import pytest
import zarr

import icevirt
from access.virtual import VALUES, make
from icevirt.errors import NodeNotFoundError, StaleReferenceError
from icevirt.objects.answers import StaleReferenceWarning


@pytest.fixture
def virtual(tmp_path):
    return make(tmp_path)


def test_references_as_a_table_are_those_of_the_store(virtual):
    session = virtual.open().readonly_session("main")
    table = session.refs_table("/v")
    assert table == session.store.refs_table("/v")
    assert table.num_rows == 4
    with pytest.raises(NodeNotFoundError):
        session.refs_table("/no")


def test_the_source_of_a_value_holds_it(virtual):
    session = virtual.open().readonly_session("main")
    found = session.source_of("/v", (5, 3))
    assert found == session.store.source_of("/v", (5, 3))
    data = virtual.source.read_bytes()[found.offset : found.offset + found.length]
    assert np.frombuffer(data, "<u4").reshape(2, 5)[1, 3] == VALUES[5, 3]


def test_sources_of_uncommitted_references_are_shown_too(virtual):
    session = virtual.open().writable_session("main")
    session.delete_chunks("/v", np.array([[0, 0]]))
    assert session.refs_table("/v").num_rows == 3


@pytest.mark.parametrize("how", ["open", "reopen", "pickle", "open_or_create", "fork"])
def test_the_policy_of_the_repository_is_that_of_its_stores(virtual, how):
    after = virtual.source.stat().st_mtime + 5
    os.utime(virtual.source, (after, after))
    given = {"authorize_virtual_chunk_access": [virtual.prefix], "on_stale": "warn"}
    repo = icevirt.Repository.open(virtual.root, **given)
    session = repo.readonly_session("main")
    if how == "reopen":
        session = repo.reopen().readonly_session("main")
    elif how == "pickle":
        session = pickle.loads(pickle.dumps(repo)).readonly_session("main")
    elif how == "open_or_create":
        repo = icevirt.Repository.open_or_create(virtual.root, **given)
        session = repo.readonly_session("main")
    elif how == "fork":
        session = pickle.loads(pickle.dumps(repo.writable_session("main").fork()))
    assert session.on_stale == session.store.on_stale == "warn"
    with pytest.warns(StaleReferenceWarning):
        found = zarr.open_array(session.store, path="v", mode="r")[:]
    np.testing.assert_array_equal(found, VALUES)
    with pytest.raises(StaleReferenceError):
        zarr.open_array(virtual.store(), path="v", mode="r")[:]
