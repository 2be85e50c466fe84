"""Repositories written by released clients, read field by field as the official client reads them.

`fixtures/icechunk/generate.py` made them; the installed client is the oracle.
"""

import asyncio
import zipfile
from datetime import UTC, datetime, timedelta
from pathlib import Path

import icechunk
import pytest

from icevirt.ids import ObjectId12
from icevirt.model.chunks import ChunkType
from icevirt.model.snapshot import ArrayNode
from icevirt.wire import snapshot, transaction_log
from icevirt.wire.header import SIZE
from icevirt.wire.manifests import manifest
from icevirt.wire.repo_info import file as repo_info

FIXTURES = Path(__file__).parents[3] / "fixtures" / "icechunk"
GOLDEN = sorted(path.stem for path in FIXTURES.glob("*.zip"))
WITH_REPO_FILE = [name for name in GOLDEN if not name.startswith("v1")]
NODE_SETS = transaction_log.NODE_SETS


@pytest.fixture(scope="module")
def golden(tmp_path_factory):
    """Unpack a repository by name, once."""
    roots = {}

    def unpacked(name):
        if name not in roots:
            roots[name] = tmp_path_factory.mktemp(name)
            with zipfile.ZipFile(FIXTURES / f"{name}.zip") as packed:
                packed.extractall(roots[name])
        return roots[name]

    return unpacked


def official(root):
    return icechunk.Repository.open(icechunk.local_filesystem_storage(str(root)))


def when(microseconds):
    moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=microseconds)
    return moment.strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def snapshots_of(root):
    paths = sorted((root / "snapshots").iterdir())
    return {path.name: snapshot.decode(path.read_bytes()) for path in paths}


def test_every_release_is_represented():
    assert len(GOLDEN) == 5


@pytest.mark.parametrize("name", GOLDEN)
def test_snapshots_are_read_as_the_official_client_reads_them(golden, name):
    root = golden(name)
    repo = official(root)
    for file, found in snapshots_of(root).items():
        output = repo.inspect_snapshot(file)
        assert (str(found.id), found.message) == (output["id"], output["commit_message"])
        assert (found.metadata, when(found.flushed_at)) == (
            output["metadata"],
            output["flushed_at"],
        )
        nodes = {node["path"]: node for node in output["nodes"]}
        assert {node.path for node in found.nodes} == nodes.keys()
        for node in found.nodes:
            check_node(node, nodes[node.path])
        files = {(str(f.id), f.size_bytes, f.num_chunk_refs) for f in found.manifest_files}
        assert files == {
            (f.id, f.size_bytes, f.num_chunk_refs) for f in repo.list_manifest_files(file)
        }


def check_node(node, output):
    assert str(node.id) == output["id"]
    assert output["node_type"] == ("array" if isinstance(node, ArrayNode) else "group")
    if isinstance(node, ArrayNode):
        dims = [(dim["array_length"], dim["num_chunks"]) for dim in output["shape"]]
        assert list(zip(node.shape, node.num_chunks, strict=True)) == dims
        names = tuple(dim.get("name") for dim in output["shape"])
        assert (node.dimension_names or (None,) * len(node.shape)) == names
        refs = [
            {"id": str(r.object_id), "extents": [list(e) for e in r.extents]}
            for r in node.manifests
        ]
        assert refs == output["manifest_refs"]


@pytest.mark.parametrize("name", GOLDEN)
def test_chunk_references_are_those_the_official_client_iterates(golden, name):
    root = golden(name)
    repo = official(root)
    seen = 0
    for file, found in snapshots_of(root).items():
        store = repo.readonly_session(snapshot_id=file).store
        for node in found.arrays():
            ours = rows_of(root, node)
            assert ours == asyncio.run(official_rows(store, node.path)), (file, node.path)
            seen += len(ours)
    assert seen > 3 * 1100


def rows_of(root, node):
    rows = {}
    for ref in node.manifests:
        raw = (root / "manifests" / str(ref.object_id)).read_bytes()
        table = manifest.decode(raw).arrays[node.id]
        assert table.extents() == ref.extents
        for row in range(len(table)):
            rows[tuple(table.index[row].tolist())] = row_of(table, row)
    return rows


def row_of(table, row):
    kind = ChunkType(int(table.kind[row]))
    start, size = int(table.offset[row]), int(table.length[row])
    if kind == ChunkType.inline:
        return (kind, table.inline[start : start + size].tobytes())
    source = int(table.source[row])
    if kind == ChunkType.virtual:
        return (kind, table.locations.url[source], start, size)
    return (kind, str(ObjectId12(table.chunk_ids[source].tobytes())), start, size)


async def official_rows(store, path):
    rows = {}
    async for batch in store.array_chunk_iterator(path):
        coords, kinds, locations, offsets, lengths, inline = batch
        for row, index in enumerate(coords.tolist()):
            kind = ChunkType(int(kinds[row]))
            if kind == ChunkType.inline:
                rows[tuple(index)] = (kind, bytes(inline[row]))
            else:
                place = (locations[row], int(offsets[row]), int(lengths[row]))
                rows[tuple(index)] = (kind, *place)
    return rows


@pytest.mark.parametrize("name", GOLDEN)
def test_checksums_are_those_that_were_set(golden, name):
    """Rows 0 to 99 have none, the next hundred an etag, the next a time; and so on."""
    root = golden(name)
    first = next(s for s in snapshots_of(root).values() if s.message == "first")
    node = first.node("/virtual")
    raw = (root / "manifests" / str(node.manifests[0].object_id)).read_bytes()
    table = manifest.decode(raw).arrays[node.id]
    seconds = int(datetime(2024, 1, 2, 3, 4, 5, tzinfo=UTC).timestamp())
    wanted = [("", 0), ("an-etag", 0), ("", seconds)]
    for row in range(len(table)):
        source = table.source[row]
        found = (table.locations.etag[source], int(table.locations.last_modified[source]))
        assert found == wanted[row // 100 % 3]
    assert len(table.locations) == 11


@pytest.mark.parametrize("name", GOLDEN)
def test_transaction_logs_are_read_as_the_official_client_reads_them(golden, name):
    root = golden(name)
    repo = official(root)
    for path in sorted((root / "transactions").iterdir()):
        found, output = (
            transaction_log.decode(path.read_bytes()),
            repo.inspect_transaction_log(path.name),
        )
        for sets in NODE_SETS:
            assert {str(node) for node in getattr(found, sets)} == set(output[sets])
        assert path.name == str(found.id)
        chunks = {each["node_id"]: each["chunks"] for each in output["updated_chunks"]}
        assert {str(k): v.tolist() for k, v in found.updated_chunks.items()} == chunks
        moves = {(move["from"], move["to"]) for move in output["moved_nodes"]}
        assert {(move.from_path, move.to_path) for move in found.moved_nodes} == moves


@pytest.mark.parametrize("name", WITH_REPO_FILE)
def test_the_repo_info_is_read_as_the_official_client_reads_it(golden, name):
    root = golden(name)
    repo = official(root)
    found, output = repo_info.decode((root / "repo").read_bytes()), repo.inspect_repo_info()
    assert {name: str(i) for name, i in found.branches.items()} == output["branches"]
    assert {name: str(i) for name, i in found.tags.items()} == output["tags"]
    assert sorted(found.deleted_tags) == sorted(output["deleted_tags"])
    snapshots = {each["id"]: each for each in output["snapshots"]}
    assert {str(i) for i in found.snapshots} == snapshots.keys()
    for info in found.snapshots.values():
        each = snapshots[str(info.id)]
        parent = None if info.parent_id is None else str(info.parent_id)
        assert (parent, info.message) == (each.get("parent_id"), each["message"])
        assert (when(info.flushed_at), info.metadata) == (each["flushed_at"], each["metadata"])
    assert dict(found.metadata or {}) == repo.get_metadata()
    ops = [(update.updated_at, update.backup_path) for update in repo.ops_log()]
    ours = [(when(update.updated_at), update.backup_path) for update in found.latest_updates]
    assert ours == [(at.strftime("%Y-%m-%dT%H:%M:%S.%fZ"), path) for at, path in ops]


def test_an_upgraded_repository_holds_files_of_both_versions(golden):
    root = golden("upgraded-by-2.3.0")
    versions = {path.read_bytes()[SIZE - 3] for path in (root / "snapshots").iterdir()}
    assert versions == {1, 2}


def test_a_location_dictionary_of_the_official_client_is_among_them(golden):
    """Otherwise the tests above would not have read one."""
    output = [
        official(root).inspect_manifest(path.name)["compression"]["uses_location_compression"]
        for root in [golden("v2-by-2.3.0")]
        for path in (root / "manifests").iterdir()
    ]
    assert any(output)


@pytest.mark.parametrize("name", GOLDEN)
def test_every_file_survives_being_written_again(golden, name):
    root = golden(name)
    codecs = {"snapshots": snapshot, "transactions": transaction_log}
    for folder, codec in codecs.items():
        for path in (root / folder).iterdir():
            once = codec.encode(codec.decode(path.read_bytes()))
            assert codec.encode(codec.decode(once)) == once
    for path in (root / "manifests").iterdir():
        found = manifest.decode(path.read_bytes())
        made = manifest.encode(found.arrays)
        assert manifest.decode(made.raw).arrays == found.arrays
