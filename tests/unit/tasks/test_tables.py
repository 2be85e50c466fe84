"""The tables of a repository say what its sessions say, whatever a share of them holds."""

import json
from collections import Counter
from dataclasses import dataclass, replace

import numpy as np
import pytest

import icevirt
from icevirt.errors import FormatError, InvalidInputError, NodeNotFoundError
from icevirt.model.chunks import ChunkTable, Locations
from icevirt.model.config.containers import VirtualChunkContainer, local_filesystem_store
from icevirt.model.config.document import RepositoryConfig, SplitRule
from icevirt.model.strings import Strings
from icevirt.spark.data_source import Pushed
from icevirt.storage.constructors import storage_of
from icevirt.tasks.table_query import COUNTED, TableQuery, schema
from icevirt.tasks.table_rows import narrow, plan_shares, rows_of


def zarr_json(shape, chunks, names=None):
    document = {
        "zarr_format": 3,
        "node_type": "array",
        "shape": shape,
        "data_type": "float32",
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": chunks}},
        "chunk_key_encoding": {"name": "default", "configuration": {"separator": "/"}},
        "fill_value": 0.0,
        "codecs": [{"name": "bytes", "configuration": {"endian": "little"}}],
        "attributes": {"units": "K"},
        "storage_transformers": [],
    }
    if names is not None:
        document["dimension_names"] = names
    return json.dumps(document).encode()


@pytest.fixture
def repo(tmp_path):
    """All kinds of chunks, in manifests of five steps each; one location is relative."""
    config = RepositoryConfig()
    config.set_virtual_chunk_container(
        VirtualChunkContainer("file:///data/", local_filesystem_store("/data/"), name="here")
    )
    config.add_split_rules([SplitRule(path_regex="/t$", num_chunks=((0, 5),))])
    made = icevirt.Repository.create(str(tmp_path / "repo"), config)
    session = made.writable_session("main")
    files = Locations(
        url=Strings.of(["file:///data/a.nc", "vcc://here/b.nc", "file:///data/b.nc"]),
        etag=Strings.of(['"1"', "", '"2"']),
        last_modified=np.array([0, 1_700_000_000, 0], np.uint32),
    )
    index = np.stack(np.unravel_index(np.arange(24), (12, 2)), axis=1)
    table = ChunkTable.virtual(
        index=index,
        offset=np.arange(24) * 100,
        length=np.full(24, (1 << 40) + 1),
        source=np.arange(24) % 3,
        locations=files,
    )
    session.add_array("/g/t", zarr_json([12, 20], [1, 10], ["time", None]), table)
    session.add_array("/scalar", zarr_json([], []), ChunkTable.empty(0))
    session.set_chunk("/scalar", (), b"1234")
    session.add_array("/empty", zarr_json([4], [4]), ChunkTable.empty(1))
    session.add_array("/native", zarr_json([400], [200]), ChunkTable.empty(1))
    session.set_chunk("/native", (1,), bytes(800))
    session.commit("all kinds", {"by": "test"})
    return made


def rows(repo, table, *, at_most=100, **options):
    query = TableQuery.of(table, **options)
    found = [
        batch
        for share in plan_shares(storage_of(repo.storage.url), query, at_most=at_most)
        for batch in rows_of(share)
    ]
    assert all(batch.schema.equals(schema(table)) for batch in found)
    return [row for batch in found for row in batch.to_pylist()]


def test_references_are_those_of_a_session(repo):
    session = repo.readonly_session("main")
    found = rows(repo, "references")
    for path in ("/g/t", "/native", "/scalar", "/empty"):
        own = [row for row in found if row["path"] == path]
        theirs = session.refs_table(path).to_pylist()
        for one, other in zip(own, theirs, strict=True):
            inline = one["kind"] == "inline"
            assert one["offset"] == (None if inline else other["offset"])
            names = ("index", "kind", "location", "length", "etag", "last_modified")
            assert [one[name] for name in names] == [other[name] for name in names]
    manifests = {info.id for info in repo.list_manifest_files(session.snapshot_id)}
    assert {row["manifest_id"] for row in found} == manifests


@pytest.mark.parametrize("at_most", [1, 2, 100])
def test_a_share_is_a_manifest_or_several(repo, at_most):
    shares = plan_shares(storage_of(repo.storage.url), TableQuery.of("references"), at_most=at_most)
    pieces = [piece.manifest for share in shares for piece in share.pieces]
    assert len(shares) == min(at_most, 5)
    assert len(pieces) == len(set(pieces)) == 5
    assert len(rows(repo, "references", at_most=at_most)) == 26


@pytest.mark.parametrize("table", COUNTED)
@pytest.mark.parametrize("at_most", [1, 100])
def test_counts_are_those_of_the_references(repo, table, at_most):
    """Added up over shares, bytes of more than a float holds exactly."""
    names = COUNTED[table]
    wanted, found = Counter(), Counter()
    size = Counter()
    for row in rows(repo, "references"):
        if row["kind"] == "virtual":
            key = tuple(row[name] for name in names)
            wanted[key] += 1
            size[key] += row["length"]
    sizes = Counter()
    for row in rows(repo, table, at_most=at_most):
        key = tuple(row[name] for name in names)
        found[key] += row["references"]
        sizes[key] += row["bytes"]
    assert found == wanted
    assert sizes == size
    assert len(found) == {"locations": 2, "files": 3}[table]
    if at_most == 1:
        assert len(rows(repo, table, at_most=1)) == len(found)


def test_arrays_are_described_and_counted(repo):
    found = {row["path"]: row for row in rows(repo, "arrays", at_most=1)}
    assert found["/g/t"] == {
        "path": "/g/t",
        "shape": [12, 20],
        "chunk_shape": [1, 10],
        "dimension_names": ["time", None],
        "data_type": "float32",
        "attributes": '{"units": "K"}',
        "virtual": 24,
        "native": 0,
        "inline": 0,
        "bytes": 24 * ((1 << 40) + 1),
    }
    kinds = {path: (row["virtual"], row["native"], row["inline"]) for path, row in found.items()}
    assert kinds["/scalar"] == (0, 0, 1)
    assert kinds["/native"] == (0, 1, 0)
    assert kinds["/empty"] == (0, 0, 0)
    assert found["/scalar"]["shape"] == []
    several = rows(repo, "arrays", at_most=100)
    assert sum(row["virtual"] for row in several) == 24
    assert sum(row["shape"] is not None for row in several) == 4


def test_an_array_and_ranges_of_chunks_decide_which_manifests_are_read(repo):
    storage = storage_of(repo.storage.url)

    def pieces(**options):
        shares = plan_shares(storage, TableQuery.of("references", **options), at_most=100)
        return sum(len(share.pieces) for share in shares)

    assert pieces(array="/g") == pieces(array="g/t") == 3
    assert pieces(array="/g/t", chunks="0:5, :") == 1
    assert pieces(array="/g/t", chunks="4:6, 1") == 2
    assert pieces(array="/g/t", chunks="11, :") == 1
    assert pieces(array="/empty") == 0
    found = rows(repo, "references", array="/g/t", chunks=(slice(4, 6), 1))
    assert [row["index"] for row in found] == [[4, 1], [5, 1]]
    found = rows(repo, "references", array="/g/t", chunks=(None, slice(1, None)))
    assert [row["index"] for row in found] == [[at, 1] for at in range(12)]


def test_history_is_that_of_the_repository(repo):
    found = rows(repo, "snapshots")
    infos = list(repo.ancestry(branch="main"))
    assert [row["snapshot_id"] for row in found] == [info.id for info in infos]
    assert [row["written_at"] for row in found] == [info.written_at for info in infos]
    assert json.loads(found[0]["metadata"]) == {"by": "test"}
    assert len(rows(repo, "snapshots", snapshot_id=infos[-1].id)) == 1
    repo.create_tag("v1", infos[0].id)
    log = rows(repo, "ops_log")
    assert [row["kind"] for row in log] == ["TagCreated", "NewCommit", "RepoInitialized"]
    assert json.loads(log[0]["details"])["name"] == "v1"
    assert [row["updated_at"] for row in log] == [update.updated_at for update in repo.ops_log()]
    assert rows(repo, "references", tag="v1") == rows(repo, "references")


def test_an_older_version_is_shown(repo):
    first = list(repo.ancestry(branch="main"))[-1].id
    assert rows(repo, "references", snapshot_id=first) == []
    assert rows(repo, "arrays", snapshot_id=first) == []


BAD = {
    "no such table": ({"table": "refs"}, "no such table"),
    "two versions": ({"table": "references", "branch": "main", "tag": "v"}, "more than one"),
    "a version of the log": ({"table": "ops_log", "branch": "main"}, "whole repository"),
    "arrays of the history": ({"table": "snapshots", "array": "/a"}, "does not show arrays"),
    "chunks of all arrays": ({"table": "references", "chunks": "0"}, "need the array"),
    "chunks of the counts": ({"table": "arrays", "array": "/a", "chunks": "0"}, "counts all"),
    "a step": ({"table": "references", "array": "/a", "chunks": (slice(0, 9, 2),)}, "not a range"),
    "a negative chunk": ({"table": "references", "array": "/a", "chunks": "-1"}, "not a range"),
    "a word": ({"table": "references", "array": "/a", "chunks": "0:x"}, "not a range"),
    "backwards": ({"table": "references", "array": "/a", "chunks": "5:2"}, "not a range"),
}


@pytest.mark.parametrize(("given", "match"), BAD.values(), ids=BAD)
def test_what_cannot_be_shown_is_refused(given, match):
    with pytest.raises(InvalidInputError, match=match):
        TableQuery.of(**given)


def test_attributes_that_arrow_has_no_text_for_are_shown(repo):
    session = repo.writable_session("main")
    document = json.loads(zarr_json([4], [4])) | {"attributes": {"half": "\ud800", "é": "\u202e"}}
    session.add_array("/odd", json.dumps(document).encode(), ChunkTable.empty(1))
    session.commit("odd")
    (share,) = plan_shares(repo.storage, TableQuery.of("arrays", array="/odd"), at_most=1)
    (row,) = [row for batch in rows_of(share) for row in batch.to_pylist()]
    assert json.loads(row["attributes"]) == {"half": "\ud800", "é": "\u202e"}
    assert "é" in row["attributes"]
    assert "\u202e" not in row["attributes"]


@pytest.mark.parametrize("table", ["references", "locations", "files", "arrays"])
def test_a_manifest_of_another_array_is_refused(repo, table):
    """Its indices would be shown as those of the array that refers to it."""
    node = repo.readonly_session("main").array("/g/t")
    line = ChunkTable.virtual(
        index=np.arange(2)[:, None],
        offset=np.zeros(2, int),
        length=np.full(2, 8),
        source=np.zeros(2, int),
        locations=Locations.one("file:///data/a.nc"),
    )
    forged = repo.assets.put_manifest({node.id: line}).id
    shares = plan_shares(repo.storage, TableQuery.of(table, array="/g/t"), at_most=9)
    for share in shares:
        pieces = tuple(replace(piece, manifest=forged) for piece in share.pieces)
        with pytest.raises(FormatError, match="does not fit the array"):
            list(rows_of(replace(share, pieces=pieces)))


def test_what_is_not_there_is_refused(repo):
    with pytest.raises(NodeNotFoundError):
        rows(repo, "references", array="/nope")
    with pytest.raises(InvalidInputError, match="not as many"):
        rows(repo, "references", array="/g/t", chunks="0")
    with pytest.raises(InvalidInputError, match="a group"):
        rows(repo, "references", array="/g", chunks="0, 0")


@dataclass(frozen=True)
class EqualTo:
    attribute: tuple
    value: object


@dataclass(frozen=True)
class In(EqualTo):
    pass


@dataclass(frozen=True)
class StringStartsWith(EqualTo):
    pass


@dataclass(frozen=True)
class GreaterThanOrEqual(EqualTo):
    pass


@dataclass(frozen=True)
class LessThan(EqualTo):
    pass


@dataclass(frozen=True)
class Not:
    child: object


PUSHED = {
    "one path": ([EqualTo(("path",), "/g/t")], 3),
    "two paths": ([In(("path",), ("/g/t", "/native"))], 4),
    "a beginning": ([StringStartsWith(("path",), "/n")], 1),
    "the same chunk of all": ([EqualTo(("index",), [0, 0])], 2),
    "later steps": ([GreaterThanOrEqual(("index",), [5, 0]), EqualTo(("path",), "/g/t")], 2),
    "earlier steps": ([LessThan(("index",), [5, 0]), EqualTo(("path",), "/g/t")], 2),
    "not understood": ([Not(EqualTo(("path",), "/g/t")), EqualTo(("kind",), "inline")], 5),
}


@pytest.mark.parametrize(("filters", "left"), PUSHED.values(), ids=PUSHED)
def test_filters_decide_which_manifests_are_read(repo, filters, left):
    """No row that passes is lost: [5, 0] may be the first of a manifest that ends there."""
    pushed = Pushed()
    for each in filters:
        pushed.add(each)
    shares = plan_shares(storage_of(repo.storage.url), TableQuery.of("references"), at_most=100)
    kept = narrow(shares, pushed.keeps)
    assert sum(len(share.pieces) for share in kept) == left


def test_a_chunk_index_that_spark_has_no_type_for_is_refused(repo):
    (share, *_) = plan_shares(
        storage_of(repo.storage.url), TableQuery.of("references", array="/native"), at_most=1
    )
    from icevirt.errors import UnsupportedError
    from icevirt.tasks import table_rows as rows

    far = ChunkTable.of_inline(index=np.array([[1 << 31]]), chunks=[b"x"])
    with pytest.raises(UnsupportedError, match="too large"):
        list(rows._rows(replace(share, pieces=()), "/a", "", far))
