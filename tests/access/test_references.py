"""References as data: in batches as icechunk gives them, as an Arrow table, and for one value."""

import asyncio
import json
import sys
from pathlib import Path

import icechunk
import numpy as np
import pyarrow as pa
import pytest
import xarray as xr
import zarr

from access.virtual import VALUES, make
from icevirt import Repository, in_memory_storage
from icevirt.access.references import chunk_of
from icevirt.errors import InvalidInputError, NodeNotFoundError
from icevirt.model.chunks import ChunkType
from icevirt.model.snapshot import node_of


@pytest.fixture(params=[None, "archive"], ids=["absolute", "named container"])
def virtual(tmp_path, request):
    location = request.param and f"vcc://{request.param}/source.bin"
    return make(tmp_path, name=request.param, location=location)


@pytest.fixture
def mixed(virtual):
    """The array ``v`` with a native and an inline chunk, and one that was never written."""
    session = virtual.open().writable_session("main")
    session.set_chunk("/v", (1, 0), VALUES[2:4].tobytes())
    session.delete_chunks("/v", np.array([[3, 0]]))
    session.config.document["inline_chunk_threshold_bytes"] = 0
    session.set_chunk("/v", (2, 0), VALUES[4:6].tobytes())
    session.commit("mixed")
    return virtual


async def collected(store, *arguments):
    return [batch async for batch in store.array_chunk_iterator(*arguments)]


def same_batch(ours, theirs):
    for one, other in zip(ours, theirs, strict=True):
        if isinstance(other, np.ndarray):
            assert one.dtype == other.dtype
            np.testing.assert_array_equal(one, other)
        else:
            assert one == other


@pytest.mark.parametrize("path", ["/v", "inline", "native"])
@pytest.mark.parametrize("size", [1, 2, 100_000])
def test_batches_are_those_of_the_official_client(mixed, path, size):
    repo = icechunk.Repository.open(icechunk.local_filesystem_storage(str(mixed.root)))
    official = repo.readonly_session("main").store
    ours = asyncio.run(collected(mixed.store(None), path, size))
    theirs = asyncio.run(collected(official, path, size))
    assert len(ours) == len(theirs)
    for one, other in zip(ours, theirs, strict=True):
        same_batch(one, other)


def test_a_table_has_a_row_for_each_chunk_that_was_written(mixed):
    store = mixed.store(None)
    table = store.refs_table("/v")
    native = store.source_of("/v", (4, 0)).url
    seconds = -(-mixed.source.stat().st_mtime_ns // 10**9)
    output = table.column("last_modified").cast(pa.int64()).to_pylist()
    assert table.drop(["last_modified"]).to_pylist() == [
        row(0, "virtual", mixed.prefix + "source.bin", 4),
        row(1, "inline", None, 0),
        row(2, "native", native, 0),
    ]
    assert output == [seconds, None, None]
    assert len(store.refs_table("/native")) == 1


def row(n, kind, location, offset):
    return {
        "index": [n, 0],
        "kind": kind,
        "location": location,
        "offset": offset,
        "length": 40,
        "etag": None,
    }


def test_uncommitted_references_are_in_the_table_and_etags_too(virtual):
    session = virtual.open().writable_session("main")
    url = virtual.prefix + "source.bin"
    session.store.set_virtual_ref("v/c/3/0", url, offset=8, length=16, checksum="1-2-3")
    last = session.store.refs_table("v").slice(3).to_pylist()[0]
    assert (last["etag"], last["offset"], last["last_modified"]) == ("1-2-3", 8, None)


def test_arrays_without_chunks_or_dimensions_have_tables_too(virtual):
    session = virtual.open().writable_session("main")
    zarr.create_array(session.store, name="scalar", data=np.array(5.0))
    zarr.create_array(session.store, name="nothing", shape=(4,), dtype="i4")
    assert session.store.refs_table("scalar").to_pylist()[0]["index"] == []
    assert len(session.store.refs_table("nothing")) == 0


def test_without_pyarrow_the_table_says_what_to_install(virtual, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(InvalidInputError, match="pip install pyarrow"):
        virtual.store().refs_table("/v")


# -- one value -------------------------------------------------------------------------------


def test_the_source_of_a_value_holds_it(mixed):
    store = mixed.store(None)
    for y in range(6):
        found = store.source_of("/v", (y, 3))
        assert found.chunk == (y // 2, 0)
        if found.kind != ChunkType.inline:
            body = Path(found.url.removeprefix("file://")).read_bytes()
            chunk = np.frombuffer(body[found.offset :][: found.length], "<u4").reshape(2, 5)
            assert chunk[y % 2, 3] == VALUES[y, 3]
    assert store.source_of("/v", (-1, -1)).kind == ChunkType.uninitialized
    assert store.source_of("/v", (0, 0)).last_modified > 0


def test_a_value_is_found_by_its_labels(tmp_path):
    virtual = make(tmp_path)
    session = virtual.open().writable_session("main")
    coordinates = {"t": xr.date_range("2000-01-01", periods=6), "x": [0.5, 1.5]}
    ds = xr.Dataset({"a": (("t", "x"), np.ones((6, 2)))}, coords=coordinates)
    ds.to_zarr(session.store, group="g", mode="w", encoding={"a": {"chunks": (4, 1)}})
    found = session.store.source_of("g/a", labels={"t": "2000-01-05", "x": 1.5})
    assert found.chunk == (1, 1)
    for labels, output in WRONG.items():
        with pytest.raises(InvalidInputError, match=output):
            session.store.source_of("g/a", labels=dict(labels))


WRONG = {
    (("t", "2000-01-05"),): "each dimension exactly once",
    (("t", "2000-01"), ("x", 0.5)): "not identify exactly one",
    (("t", "2000-01-01"), ("x", 0.7)): "not identify exactly one",
}


def test_a_dimension_without_coordinate_has_no_labels(virtual):
    with pytest.raises(InvalidInputError, match="no labels"):
        virtual.store().source_of("/v", labels={"y": 0, "x": 0})


def test_chunks_of_a_rectilinear_grid_are_found_by_their_edges():
    session = Repository.create(in_memory_storage()).writable_session("main")
    zarr.create_array(session.store, name="v", shape=(8, 8), chunks=(4, 4), dtype="u1")
    document = json.loads(session.node("/v").user_data)
    configuration = {"kind": "inline", "chunk_shapes": [[3, [2, 2], 1], 4]}
    document["chunk_grid"] = {"name": "rectilinear", "configuration": configuration}
    node = node_of("/v", json.dumps(document).encode(), session.node("/v").id)
    assert [chunk_of(node, (at, 0))[0] for at in range(8)] == [0, 0, 0, 1, 1, 2, 2, 3]
    assert [chunk_of(node, (0, at))[1] for at in (0, 3, 4, -1)] == [0, 0, 1, 1]


NOWHERE = {
    "no such array": ({"path": "w", "index": (0, 0)}, NodeNotFoundError),
    "outside": ({"path": "v", "index": (8, 0)}, InvalidInputError),
    "too few numbers": ({"path": "v", "index": (0,)}, InvalidInputError),
    "neither index nor labels": ({"path": "v"}, InvalidInputError),
    "both": ({"path": "v", "index": (0, 0), "labels": {}}, InvalidInputError),
}


@pytest.mark.parametrize(("which", "error"), NOWHERE.values(), ids=NOWHERE.keys())
def test_what_is_nowhere_has_no_source(virtual, which, error):
    with pytest.raises(error):
        virtual.store().source_of(**which)


def test_a_batch_has_rows(virtual):
    with pytest.raises(InvalidInputError, match="at least one row"):
        asyncio.run(collected(virtual.store(), "/v", 0))
