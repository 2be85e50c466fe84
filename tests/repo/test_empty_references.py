"""References to no bytes, which other clients could store: all goes on, and one command mends them.

No rule for new references is applied to those that are there.
"""

from datetime import UTC, datetime

import icechunk
import numpy as np
import pytest
import xarray as xr
import zarr

import icevirt
from icevirt.errors import InvalidInputError, RefNotFoundError, StorageError
from icevirt.model.chunks import ChunkTable, ChunkType
from icevirt.repo.maintenance.check import check
from icevirt.repo.repository import Repository
from repo.support import array_json

EMPTY = 1  # the chunk


def table_of(kind, source, assets) -> ChunkTable:
    whole = source.table(range(4))
    length = np.where(np.arange(4) == EMPTY, 0, whole.length).astype(np.uint64)
    columns = {name: getattr(whole, name) for name in ("index", "source", "offset")}
    columns |= {"kind": whole.kind, "length": length, "locations": whole.locations}
    if kind is ChunkType.inline:
        chunks = [bytes(n) for n in length.tolist()]
        return ChunkTable.of_inline(index=whole.index, chunks=chunks)
    if kind is ChunkType.native:
        key = np.frombuffer(assets.put_chunk(bytes(4 * 48)), np.uint8)
        columns |= {"kind": np.full(4, kind, np.uint8), "chunk_ids": key.reshape(1, 12).copy()}
    return ChunkTable(**columns)


@pytest.fixture(params=[ChunkType.virtual, ChunkType.native, ChunkType.inline], ids=str)
def kind(request):
    return request.param


@pytest.fixture(params=[1, 2], ids=lambda version: f"V{version}")
def stored(request, kind, repo_path, source) -> Repository:
    """A repository of which another client wrote an array with such a reference."""
    Repository.create(repo_path, source.config(), spec_version=request.param)
    repo = Repository.open(repo_path, authorize_virtual_chunk_access=[source.prefix])
    session = repo.writable_session("main")
    session.add_array("/a", array_json(dimension_names=["x"]), ChunkTable.empty(1))
    session._change().put(session.array("/a"), table_of(kind, source, session.assets))
    session.commit("by another client")
    return repo


def read(repo, box=slice(None)):
    return zarr.open_array(repo.readonly_session("main").store, path="a", mode="r")[box]


def write(session):
    zarr.open_array(session.store, path="a", mode="r+")[36:48] = 7


def go_on(repo):
    """Everything that writes references again."""
    session = repo.writable_session("main")
    write(session)
    yield session.commit("another chunk")
    yield repo.rewrite_manifests("again", branch="main")
    session = repo.writable_session("main")
    zarr.open_array(session.store, path="a", mode="r+").resize((60,))
    yield session.commit("longer")
    early, late = repo.writable_session("main"), repo.writable_session("main")
    write(late)
    early.add_array("/b", array_json(), ChunkTable.empty(1))
    early.commit("beside it")
    yield late.commit("after it", rebase_with=icevirt.ConflictDetector())
    session = repo.writable_session("main")
    session.shift_array("/a", (0,))
    yield session.commit("moved by nothing")
    fork = (session := repo.writable_session("main")).fork()
    write(fork)
    session.merge(fork)
    yield session.commit("by a fork", allow_empty=True)


def test_everything_goes_on_beside_such_a_reference(stored, official):
    for _ in go_on(stored):
        assert read(stored, slice(36, 48)).tolist() == [7] * 12
        with pytest.raises(StorageError, match="no bytes"):
            read(stored)
    stored.expire_snapshots(datetime.now(UTC))
    stored.garbage_collect(datetime.now(UTC))
    assert read(stored, slice(36, 48)).tolist() == [7] * 12
    theirs = official().readonly_session("main").store
    assert zarr.open_array(theirs, path="a", mode="r")[36:48].tolist() == [7] * 12
    with pytest.raises(icechunk.IcechunkError, match="length 0"):
        zarr.open_array(theirs, path="a", mode="r")[:]


def test_reading_names_it_and_the_command_that_mends_it(stored, repo_path, source):
    session = stored.readonly_session("main")
    ways = {
        "zarr": lambda: zarr.open_array(session.store, path="a", mode="r")[:],
        "bytes": lambda: session.store.get_sync(f"a/c/{EMPTY}"),
        "engine": xr.open_dataset(
            repo_path, engine="icevirt", authorize_virtual_chunk_access=[source.prefix]
        )["a"].load,
        "a session with changes": lambda: read_changed(stored),
        "a write of a part": lambda: write_part(stored),
    }
    for name, way in ways.items():
        with pytest.raises(StorageError, match=r"no bytes.*--drop-empty") as caught:
            way()
        facts = caught.value.facts
        assert (facts["variable"], facts["chunk"]) == ("/a", [EMPTY]), name
    assert read(stored, slice(12)).shape == (12,)
    assert session.store.get_sync(f"a/c/{EMPTY + 1}") is not None


def read_changed(repo):
    session = repo.writable_session("main")
    write(session)
    return zarr.open_array(session.store, path="a", mode="r")[:]


def write_part(repo):
    session = repo.writable_session("main")
    zarr.open_array(session.store, path="a", mode="r+")[12:14] = 7


def test_check_finds_it_and_one_command_mends_it(stored, repo_path, official):
    problems = check(repo_path).problems
    assert [problem.code for problem in problems] == ["zero-length"]
    assert f"chunk [{EMPTY}]" in problems[0].what
    assert "--drop-empty" in problems[0].what
    with pytest.raises(RefNotFoundError):
        check(repo_path, drop_empty="nothing")
    mended = check(repo_path, drop_empty="main")
    assert mended.ok  # the older version has it still, which is said
    assert [(problem.code, problem.advice) for problem in mended.problems] == [
        ("zero-length", True)
    ]
    assert read(stored, slice(12, 24)).tolist() == [-1] * 12
    theirs = official().readonly_session("main").store
    assert zarr.open_array(theirs, path="a", mode="r")[12:24].tolist() == [-1] * 12
    tip = stored.lookup_branch("main")
    assert check(repo_path, drop_empty="main").ok
    assert stored.lookup_branch("main") == tip  # there was nothing to do


def test_a_new_reference_must_have_bytes(repo, source):
    session = repo.writable_session("main")
    session.add_array("/a", array_json(), ChunkTable.empty(1))
    for kind in (ChunkType.virtual, ChunkType.native, ChunkType.inline):
        with pytest.raises(InvalidInputError, match="no bytes"):
            session.set_chunks("/a", table_of(kind, source, session.assets))
