"""Rows of references become the manifests that a session would write, or errors that name a row."""

import datetime as dt
import json
from functools import partial
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import icevirt
from icevirt.errors import AlreadyExistsError, BuildError, ConflictError, InvalidInputError
from icevirt.model.chunks import ChunkTable, Locations
from icevirt.model.config.containers import (
    VirtualChunkContainer,
    local_filesystem_store,
    prefixes_of,
)
from icevirt.model.config.document import RepositoryConfig, SplitRule
from icevirt.model.snapshot import ManifestFile
from icevirt.repo.commits.build_commit import with_settings
from icevirt.repo.commits.reference_commit import ReferenceCommit
from icevirt.storage.memory import MemoryStorage
from icevirt.tasks import references as incoming_module
from icevirt.tasks.references import CellWriter, Incoming, TargetArray, write_cells
from icevirt.wire.manifests.encoding import ManifestEncoding

SHAPE, CHUNKS = (12, 4), (1, 2)
CONTAINER = VirtualChunkContainer("file:///data/", local_filesystem_store("/data/"))


def zarr_json(shape=SHAPE, chunks=CHUNKS):
    return json.dumps(
        {
            "zarr_format": 3,
            "node_type": "array",
            "shape": shape,
            "data_type": "float32",
            "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": chunks}},
            "chunk_key_encoding": {"name": "default", "configuration": {"separator": "/"}},
            "fill_value": 0.0,
            "codecs": [{"name": "bytes", "configuration": {"endian": "little"}}],
            "attributes": {},
            "storage_transformers": [],
        }
    ).encode()


def repository(step=None):
    config = RepositoryConfig()
    config.set_virtual_chunk_container(CONTAINER)
    if step:
        config.add_split_rules([SplitRule(path_regex=None, num_chunks=((0, step),))])
    made = icevirt.Repository.create(MemoryStorage(), config)
    session = made.writable_session("main")
    session.add_array("/a", zarr_json(), ChunkTable.empty(2))
    session.add_array("/b/c", zarr_json((), ()), ChunkTable.empty(0))
    session.commit("arrays")
    return made


def row(index, file="x", offset=8, length=8, path="/a", **more):
    return {
        "path": path,
        "index": [*index],
        "location": f"file:///data/{file}.nc",
        "offset": offset,
        "length": length,
        **more,
    }


SCHEMA = pa.schema(
    [
        ("path", pa.string()),
        ("index", pa.list_(pa.int64())),
        ("location", pa.string()),
        ("offset", pa.int64()),
        ("length", pa.int64()),
    ]
)
MORE = [("etag", pa.string()), ("last_modified", pa.timestamp("us", "UTC"))]


def batches(rows, size=1000, more=False):
    schema = pa.schema([*SCHEMA, *MORE]) if more else SCHEMA
    for low in range(0, len(rows), size):
        yield pa.RecordBatch.from_pylist(rows[low : low + size], schema=schema)


def targets_of(repo, config=None):
    session = repo.readonly_session("main")
    return tuple(
        TargetArray.of(node, config or session.config) for node in session.snapshot.arrays()
    )


def written(repo, rows, *, targets=None, size=1000, more=False):
    """Do what the tasks do, in this process."""
    targets = targets_of(repo) if targets is None else targets
    prefixes = prefixes_of(repo.readonly_session("main").config.virtual_chunk_containers.values())
    sorting = Incoming(targets=targets, prefixes=prefixes)
    blocks = {}
    for block in sorting.blocks(batches(rows, size, more)):
        blocks.setdefault((block.array, block.cell), []).append(block.payload)
    writer = CellWriter(repo=repo.storage, level=1, encoding=ManifestEncoding())
    return [*write_cells(writer, targets, blocks)]


def test_rows_become_the_table_that_a_session_reads():
    repo = repository()
    moment = dt.datetime(2024, 1, 1, 12, 0, 0, 500_000, tzinfo=dt.UTC)
    rows = [
        row((3, 1), "y", 7, 9, etag='"e"', last_modified=None),
        row((0, 0), "x", 0, 1 << 40, etag=None, last_modified=moment),
        row((), path="/b/c", etag=None, last_modified=None),
    ]
    cells = written(repo, rows, more=True)
    assert [(cell.path, cell.written, cell.extents) for cell in cells] == [
        ("/a", 2, ((0, 4), (0, 2))),
        ("/b/c", 1, ()),
    ]
    node = repo.readonly_session("main").array("/a")
    table = repo.assets.read_manifest(cells[0].manifest_id).arrays[node.id]
    seconds = int(moment.timestamp()) + 1  # rounded up
    assert table == ChunkTable.virtual(
        index=np.array([[0, 0], [3, 1]]),
        offset=np.array([0, 7]),
        length=np.array([1 << 40, 9]),
        source=np.array([0, 1]),
        locations=Locations.one("file:///data/x.nc", last_modified=seconds)
        + Locations.one("file:///data/y.nc", etag='"e"'),
    )


@given(st.permutations(range(24)), st.integers(1, 30), st.integers(1, 30))
@settings(max_examples=5)
def test_manifests_do_not_depend_on_the_order_of_rows(order, size, at_once):
    """Whatever batches, blocks and attempts there are: the same ids, of the same bytes."""
    rows = [row((at // 2, at % 2), f"f{at // 5}", at * 10) for at in range(24)]
    repo = repository(step=5)
    with pytest.MonkeyPatch.context() as patch:
        wanted = written(repo, rows)
        patch.setattr(incoming_module, "AT_ONCE", at_once)
        found = written(repo, [rows[at] for at in order], size=size)
    assert found == wanted
    assert [cell.written for cell in found] == [10, 10, 4]


WRONG = {
    "outside": (row((12, 0)), "outside the array's chunk grid"),
    "negative": (row((0, -1)), "outside the array's chunk grid"),
    "far outside": (row((1 << 40, 0)), "outside the array's chunk grid"),
    "dimensions": (row((0,)), "number of dimensions"),
    "a hole in the index": (row((0, None)), "has a null"),
    "no index": (row((0, 0)) | {"index": None}, "has no index"),
    "no path": (row((0, 0)) | {"path": None}, "has no path"),
    "no location": (row((0, 0)) | {"location": None}, "has no location"),
    "empty location": (row((0, 0)) | {"location": ""}, "has no location"),
    "negative offset": (row((0, 0), offset=-1), "offset of a reference is not a possible"),
    "enormous offset": (row((0, 0), offset=1 << 62), "offset of a reference is not a possible"),
    "no bytes": (row((0, 0), length=0), "length of a reference is not a possible"),
    "no such array": (row((0, 0), path="/nope"), "no such array"),
    "a group": (row((), path="/b"), "no such array"),
    "no container": (row((0, 0)) | {"location": "s3://b/x.nc"}, "no virtual chunk container"),
}


@pytest.mark.parametrize(("bad", "match"), WRONG.values(), ids=WRONG)
def test_a_wrong_row_is_named(bad, match):
    rows = [row((at, 0)) for at in range(9)]
    rows.insert(5, bad)
    with pytest.raises(InvalidInputError, match=match) as caught:
        written(repository(step=2), rows, size=4)
    facts = caught.value.facts
    assert {name: facts[name] for name in bad} == bad


@pytest.mark.parametrize("name", ["path", "location", "etag"])
def test_bytes_that_are_no_text_are_refused(name):
    """Spark makes strings of any bytes, and no client reads a manifest with them."""
    (rows,) = batches([row((0, 0), etag="e", last_modified=None)] * 2, more=True)
    raw, at = b"file:///data/\xff.nc", rows.schema.get_field_index(name)
    places = pa.py_buffer(np.array([0, 0, len(raw)], np.int32).tobytes())
    wrong = pa.StringArray.from_buffers(2, places, pa.py_buffer(raw))
    sorting = Incoming(targets=targets_of(repository()), prefixes=("file:///data/",))
    with pytest.raises(InvalidInputError, match=f"the {name} of a reference is not UTF-8"):
        list(sorting.blocks(iter([rows.set_column(at, name, wrong)])))


@pytest.mark.parametrize(
    "location",
    ["file:///data/../x", "file:///data/x?sig=CANARY", "file:///data/", "file:///data/a\\b"],
)
def test_a_location_that_no_reader_follows_is_not_written(location):
    with pytest.raises(InvalidInputError, match="URL"):
        written(repository(), [row((0, 0)) | {"location": location}])


def test_kinds_and_times_that_references_cannot_hold_are_refused():
    repo = repository()
    targets = targets_of(repo)
    kinds = pa.RecordBatch.from_pylist(
        [row((0, 0), kind="virtual"), row((1, 0), kind="inline") | {"location": None}],
        schema=pa.schema([*SCHEMA, ("kind", pa.string())]),
    )
    sorting = Incoming(targets=targets, prefixes=("file:///data/",))
    with pytest.raises(InvalidInputError, match="only virtual references"):
        list(sorting.blocks(iter([kinds])))
    old = dt.datetime(1969, 1, 1, tzinfo=dt.UTC)
    with pytest.raises(InvalidInputError, match="time of modification"):
        written(repo, [row((0, 0), etag=None, last_modified=old)], more=True)


def test_the_first_second_of_1970_is_carried_as_the_next_one():
    """References hold 0 where no time is known."""
    repo = repository()
    first = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
    (cell,) = written(repo, [row((0, 0), etag=None, last_modified=first)], more=True)
    (table,) = repo.assets.read_manifest(cell.manifest_id).arrays.values()
    assert table.locations.last_modified.tolist() == [1]


def test_two_rows_for_one_chunk_are_refused_wherever_they_are():
    rows = [row((at, 0)) for at in range(9)] + [row((5, 0), "other", 3, 4)]
    with pytest.raises(InvalidInputError, match="for the same chunk") as caught:
        written(repository(step=2), rows, size=3)
    facts = caught.value.facts
    assert (facts["path"], facts["index"]) == ("/a", [5, 0])
    assert {facts["first"]["location"], facts["second"]["location"]} == {
        "file:///data/x.nc",
        "file:///data/other.nc",
    }


@given(
    st.sets(st.tuples(st.integers(0, 11), st.integers(0, 1))),
    st.sets(st.tuples(st.integers(0, 11), st.integers(0, 1)), min_size=1),
    st.sampled_from([1, 3, 5, None]),
    st.sampled_from([1, 2, 5, 12]),
)
@settings(max_examples=12)
def test_a_commit_leaves_what_a_session_would_leave(there, new, before, after):
    """Chunks that were there stay unless they are replaced, whatever manifests they lie in."""
    ours, theirs = (_with_chunks(there, before) for _ in range(2))
    rows = [row(index, "new", 16) for index in sorted(new)]
    session = theirs.writable_session("main")
    session.set_chunks("/a", _table(new, "new", 16))
    session.commit("new")
    config = RepositoryConfig.from_document(dict(ours.config.document))
    config.add_split_rules([SplitRule(path_regex=None, num_chunks=((0, after),))])
    commit_rows(ours, rows, config=config)
    wanted = theirs.readonly_session("main").array_table("/a")
    session = ours.readonly_session("main")
    assert _comparable(session.array_table("/a")) == _comparable(wanted)
    node = session.array("/a")
    cells = [TargetArray.of(node, config).reaching(ref).tolist() for ref in node.manifests]
    assert all(set(one).isdisjoint(other) for one, other in pairwise(cells))


def _table(indices, file, offset):
    index = np.array(sorted(indices), np.int64).reshape(-1, 2)
    return ChunkTable.virtual(
        index=index,
        offset=np.full(len(index), offset),
        length=np.full(len(index), 8),
        locations=Locations.one(f"file:///data/{file}.nc"),
    )


def _with_chunks(indices, step):
    made = repository(step)
    if indices:
        session = made.writable_session("main")
        session.set_chunks("/a", _table(indices, "old", 8))
        session.commit("old")
    return made


def _comparable(table):
    urls = [table.locations.url[int(at)] for at in table.source]
    return [*zip(table.index.tolist(), urls, table.offset.tolist(), strict=True)]


def commit_rows(repo, rows, *, config=None, meanwhile=None, containers=(), **changes):
    """Do what `icevirt.spark.write_references` does, in this process."""
    from icevirt.execution.local_executors import InProcessExecutor
    from icevirt.spark.writing import _finish

    session = repo.writable_session("main")
    config = config or session.config
    targets = targets_of(repo, config)
    cells = written(repo, rows, targets=targets)
    writer = CellWriter(repo=repo.storage, level=1, encoding=ManifestEncoding())
    by_path = {target.node.path: target for target in targets}
    done = _finish(InProcessExecutor(), writer, by_path, cells)
    files = {
        cell.manifest_id: ManifestFile(
            id=cell.manifest_id, size_bytes=cell.size_bytes, num_chunk_refs=cell.num_chunk_refs
        )
        for array in done
        for cell in array.cells
        if cell.manifest_id is not None
    }
    if meanwhile is not None:
        meanwhile(repo)
    return ReferenceCommit(
        assets=session.assets,
        head=repo.head,
        staging=session.fork().changes,
        config=config,
        branch="main",
        message="rows",
        metadata={},
        arrays={array.target.node.path: array.node for array in done},
        files=tuple(files.values()),
        settings=partial(with_settings, containers=containers, split_rules=()),
    ).publish()


def test_the_same_rows_again_change_nothing():
    repo = repository(step=5)
    rows = [row((at, 0)) for at in range(12)]
    first = commit_rows(repo, rows)
    assert repo.lookup_branch("main") == first
    assert commit_rows(repo, rows) == first
    assert next(info.message for info in repo.ancestry(branch="main")) == "rows"


def test_the_transaction_log_says_which_chunks_were_written(monkeypatch):
    from icevirt.repo.commits import pending_commit

    repo = repository(step=5)
    before = repo.lookup_branch("main")
    after = commit_rows(repo, [row((3, 0)), row((8, 1))])
    found = repo.diff(from_snapshot_id=before, to_snapshot_id=after)
    assert found.updated_chunks["/a"].tolist() == [[3, 0], [8, 1]]
    assert not found.updated_arrays
    monkeypatch.setattr(pending_commit, "MAX_LISTED", 1)
    last = commit_rows(repo, [row((4, 0)), row((9, 1))])
    found = repo.diff(from_snapshot_id=after, to_snapshot_id=last)
    assert found.updated_arrays == {"/a"}
    assert not found.updated_chunks


def test_a_commit_goes_on_top_of_other_arrays_and_not_of_the_same():
    def other(repo):
        session = repo.writable_session("main")
        session.add_array("/z", zarr_json(), ChunkTable.empty(2))
        session.commit("other")

    def same(repo):
        session = repo.writable_session("main")
        session.set_chunks("/a", _table({(0, 0)}, "theirs", 8))
        session.commit("same")

    repo = repository()
    commit_rows(repo, [row((3, 0))], meanwhile=other)
    paths = [node.path for node in repo.readonly_session("main").snapshot.arrays()]
    assert paths == ["/a", "/b/c", "/z"]
    tip = repo.lookup_branch("main")
    with pytest.raises(ConflictError, match="same nodes") as caught:
        commit_rows(repo, [row((3, 1))], meanwhile=same)
    assert caught.value.facts["paths"] == ["/a"]
    assert [info.id for info in repo.ancestry(branch="main")][1] == tip


def test_a_manifest_that_vanished_is_noticed():
    def clean(repo):
        for info in [*repo.storage.list("manifests")]:
            repo.storage.delete(info.path)

    with pytest.raises(BuildError, match="missing or damaged"):
        commit_rows(repository(), [row((3, 0))], meanwhile=clean)


def test_arrays_of_many_chunks_are_cut_where_the_repository_says_nothing():
    repo = repository()
    session = repo.writable_session("main")
    session.add_array("/large", zarr_json((3_000, 2_000), (1, 2)), ChunkTable.empty(2))
    session.commit("large")
    found = {target.node.path: target for target in targets_of(repo)}
    assert (found["/a"].is_cut, found["/a"].grid.counts) == (False, (1, 1))
    assert (found["/large"].is_cut, found["/large"].grid.steps) == (True, (500, 1000))


def test_new_arrays_are_added_once():
    from icevirt.spark.writing import _stage

    repo = repository()
    session = repo.writable_session("main")
    _stage(session, {"/a": zarr_json(), "new": json.loads(zarr_json())}, None, "/")
    assert {node.path for node in session.snapshot.arrays()} == {"/a", "/b/c", "/new"}
    with pytest.raises(AlreadyExistsError):
        _stage(session, {"/a": zarr_json((5,), (1,))}, None, "/")
