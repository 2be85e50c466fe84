"""The official client as oracle: every metadata file, written again by icevirt, tells it the same.

A repository with everything in it is made by the official client; then each file is decoded and
encoded here, and the official client is asked all its questions again.
"""

import asyncio
import dataclasses
import datetime as dt
import shutil

import icechunk
import numpy as np
import pytest
import zarr

from icevirt.ids import ObjectId8, ObjectId12
from icevirt.model.chunks import ChunkTable, Locations
from icevirt.model.snapshot import ArrayNode, ManifestFile, ManifestRef
from icevirt.model.strings import Strings
from icevirt.wire import snapshot, transaction_log
from icevirt.wire.manifests import manifest
from icevirt.wire.manifests.encoding import LocationCompression, LocationEncoding
from icevirt.wire.repo_info import file

FILES, PER_FILE, BYTES = 12, 100, 40
# rows of each virtual array: one is long enough for the official client to train a dictionary
ROWS = {"virtual": 1200, "virtual-b": 30, "deep-b": 30, "deep/b": 30}


@pytest.fixture(scope="module")
def archive(tmp_path_factory):
    """Source files of 1,000 numbers each."""
    folder = tmp_path_factory.mktemp("archive")
    for n in range(FILES):
        numbers = np.arange(n * 1000, n * 1000 + 1000, dtype="<i4")
        (folder / f"f{n:03d}.nc").write_bytes(numbers.tobytes())
    return folder


def opened(root, archive):
    return icechunk.Repository.open(
        icechunk.local_filesystem_storage(str(root)),
        authorize_virtual_chunk_access={
            f"file://{archive}/": icechunk.credentials.LocalFileSystemAccess
        },
    )


@pytest.fixture(scope="module")
def original(archive, tmp_path_factory):
    """A repository of the official client with every kind of reference, update and history."""
    root = tmp_path_factory.mktemp("official")
    config = icechunk.RepositoryConfig.default()
    store = icechunk.local_filesystem_store(str(archive))
    config.set_virtual_chunk_container(icechunk.VirtualChunkContainer(f"file://{archive}/", store))
    icechunk.Repository.create(icechunk.local_filesystem_storage(str(root)), config)
    repo = opened(root, archive)
    session = repo.writable_session("main")
    group = zarr.group(session.store)
    plain = {"compressors": None, "filters": None}
    for name, n in ROWS.items():
        group.create_array(
            name, shape=(n, 10), chunks=(1, 10), dtype="<i4", dimension_names=("t", None), **plain
        )
        session.store.set_virtual_refs_arr(
            name,
            (n, 1),
            [f"file://{archive}/f{i // PER_FILE:03d}.nc" for i in range(n)],
            (np.arange(n) % PER_FILE * BYTES).astype(np.uint64),
            np.full(n, BYTES, np.uint64),
            checksum=dt.datetime.now(dt.UTC) + dt.timedelta(seconds=2),
        )
    group.create_array("deep/inline", shape=(10,), chunks=(1,), dtype="f4")[:] = np.arange(10)
    group.create_array("native", shape=(4000,), chunks=(1000,), dtype="f8")[:] = np.arange(4000)
    group.create_array("scalar", shape=(), dtype="f8")[...] = 3.25
    session.commit("first", metadata={"k": [1, -2, 2.5, None, {"a": "b"}], "é": 2**40})
    repo.create_tag("v1", repo.lookup_branch("main"))
    repo.create_branch("dev", repo.lookup_branch("main"))
    repo.create_tag("gone", repo.lookup_branch("main"))
    repo.delete_tag("gone")
    change(repo, "main", 1)
    session = repo.rearrange_session("main")
    session.move("/deep/inline", "/moved")
    session.commit("moved")
    change(repo, "dev", 2)
    session = repo.writable_session("dev")
    zarr.open_group(session.store)["native"][:10] = 3
    session.amend("amended")
    repo.set_metadata({"x": 1})
    repo.set_feature_flag("move_node", setting=True)
    return root


def change(repo, branch, value):
    session = repo.writable_session(branch)
    zarr.open_group(session.store)["native"][:10] = value
    return session.commit(f"native is {value}")


def answers(repo, root, names):
    """Ask the official client everything it can tell; manifests by the names they have here."""
    output = {
        "repo": repo.inspect_repo_info(),
        "ops": [(str(u.kind), u.updated_at, u.backup_path) for u in repo.ops_log()],
        "tags": repo.list_tags(),
        "diff": repr(repo.diff(from_tag="v1", to_branch="main")),
        "status": str(repo.get_status()),
    }
    for path in (root / "snapshots").iterdir():
        output[f"snapshot {path.name}"] = repo.inspect_snapshot(path.name)
        output[f"files {path.name}"] = sorted(
            (names.get(f.id, f.id), f.num_chunk_refs) for f in repo.list_manifest_files(path.name)
        )
    for path in (root / "transactions").iterdir():
        output[f"log {path.name}"] = repo.inspect_transaction_log(path.name)
    for path in (root / "manifests").iterdir():
        found = repo.inspect_manifest(path.name)
        output[f"manifest {names.get(path.name, path.name)}"] = found["arrays"]
    for branch in repo.list_branches():
        output[f"values {branch}"] = values(repo.readonly_session(branch))
        output[f"history {branch}"] = [
            (s.id, s.parent_id, s.message, s.written_at, s.metadata)
            for s in repo.ancestry(branch=branch)
        ]
    return clean(output, names)


def values(session):
    group = zarr.open_group(session.store, mode="r")
    arrays = {path: node for path, node in group.members(max_depth=None) if hasattr(node, "shape")}
    return {path: array[...].tolist() for path, array in sorted(arrays.items())}


def clean(output, names):
    """Leave out who wrote a file and how large it is; give manifests their original names."""
    match output:
        case dict():
            skip = ("header", "size_bytes", "compression")
            found = {key: clean(value, names) for key, value in output.items() if key not in skip}
            if "manifests" in found:  # ordered by id, and the ids are others
                found["manifests"].sort(key=str)
            return found
        case list() | tuple():
            return [clean(item, names) for item in output]
        case str():
            return names.get(output, output)
        case _:
            return output


def rewritten(root, into, how):
    """Write every metadata file of a repository again; return old manifest names by new."""
    shutil.copytree(root, into)
    for path in (into / "transactions").iterdir():
        path.write_bytes(transaction_log.encode(transaction_log.decode(path.read_bytes())))
    made = {}
    for path in list((into / "manifests").iterdir()):
        found = manifest.decode(path.read_bytes())
        made[found.id] = manifest.encode(found.arrays, locations=how)
        path.unlink()
        (into / "manifests" / str(made[found.id].id)).write_bytes(made[found.id].raw)
    for path in (into / "snapshots").iterdir():
        path.write_bytes(snapshot.encode(with_manifests(snapshot.decode(path.read_bytes()), made)))
    path = into / "repo"
    path.write_bytes(file.encode(file.decode(path.read_bytes())))
    return {str(new.id): str(old) for old, new in made.items()}


def with_manifests(value, made):
    def node(each):
        if not isinstance(each, ArrayNode):
            return each
        refs = (r._replace(object_id=made[r.object_id].id) for r in each.manifests)
        return each._replace(manifests=tuple(refs))

    files = (
        info._replace(id=made[info.id].id, size_bytes=len(made[info.id].raw))
        for info in value.manifest_files
    )
    return dataclasses.replace(
        value, nodes=tuple(map(node, value.nodes)), manifest_files=tuple(files)
    )


@pytest.mark.ci
@pytest.mark.parametrize("how", LocationEncoding)
def test_a_repository_written_again_answers_as_before(original, archive, tmp_path, how):
    names = rewritten(original, tmp_path / "again", LocationCompression(encoding=how))
    before = answers(opened(original, archive), original, {})
    after = answers(opened(tmp_path / "again", archive), tmp_path / "again", names)
    assert after == before


def test_the_official_client_commits_on_top_and_leaves_other_manifests_alone(
    original, archive, tmp_path
):
    root = tmp_path / "again"
    rewritten(original, root, LocationCompression())
    repo = opened(root, archive)
    before = {path.name for path in (root / "manifests").iterdir()}
    tip = change(repo, "main", 7)
    used = {info.id for info in repo.list_manifest_files(tip)}
    assert len(used - before) == 1
    assert zarr.open_group(repo.readonly_session("main").store, mode="r")["native"][0] == 7
    newest = file.decode((root / "repo").read_bytes())
    assert str(newest.branches["main"]) == tip


@pytest.mark.ci
def test_the_official_client_expires_and_collects_what_icevirt_wrote(original, archive, tmp_path):
    root = tmp_path / "again"
    rewritten(original, root, LocationCompression())
    repo = opened(root, archive)
    now = dt.datetime.now(dt.UTC)
    before = values(repo.readonly_session("main"))
    assert repo.expire_snapshots(now)
    pruned = file.decode((root / "repo").read_bytes())
    assert any(info.pruned_ancestor_tx_logs for info in pruned.snapshots.values())
    (root / "repo").write_bytes(file.encode(pruned))  # pruned logs survive a rewrite
    again = opened(root, archive)
    assert again.inspect_repo_info() == {
        **repo.inspect_repo_info(),
        "header": again.inspect_repo_info()["header"],
    }
    again.garbage_collect(now)
    assert values(opened(root, archive).readonly_session("main")) == before


def test_a_manifest_of_many_kinds_is_read_row_by_row(original, archive, tmp_path):
    """Virtual with a time, inline and native in one array, with several arrays in one file."""
    root = tmp_path / "mixed"
    shutil.copytree(original, root)
    tip = file.decode((root / "repo").read_bytes()).branches["main"]
    path = root / "snapshots" / str(tip)
    found = snapshot.decode(path.read_bytes())
    array, other = found.node("/virtual"), found.node("/virtual-b")
    table = mixed_table(archive, root)
    made = manifest.encode({array.id: table, other.id: table, ObjectId8(bytes(8)): table})
    (root / "manifests" / str(made.id)).write_bytes(made.raw)
    ref = ManifestRef(object_id=made.id, extents=table.extents())
    changed = tuple(
        node._replace(manifests=(ref,)) if node in (array, other) else node for node in found.nodes
    )
    info = ManifestFile(id=made.id, size_bytes=len(made.raw), num_chunk_refs=made.num_chunk_refs)
    path.write_bytes(
        snapshot.encode(
            dataclasses.replace(found, nodes=changed, manifest_files=(*found.manifest_files, info))
        )
    )
    session = opened(root, archive).readonly_session("main")
    group = zarr.open_group(session.store, mode="r")
    for name in ("virtual", "virtual-b"):
        assert group[name][:30, :].tolist() == expected_rows()


def mixed_table(archive, root):
    chunk = ObjectId12(b"a chunk file")
    (root / "chunks").mkdir(exist_ok=True)
    (root / "chunks" / str(chunk)).write_bytes(np.arange(100, 200, dtype="<i4").tobytes())
    rows = np.arange(10)
    virtual = ChunkTable.virtual(
        index=np.stack([rows * 3, rows * 0], axis=1),
        offset=rows * BYTES,
        length=np.full(10, BYTES),
        source=rows % 2,
        locations=Locations(
            url=Strings.of([f"file://{archive}/f00{n}.nc" for n in range(2)]),
            etag=Strings.empty(2),
            last_modified=np.array([0, 2**31], np.uint32),
        ),
    )
    inline = ChunkTable.of_inline(
        index=np.stack([rows * 3 + 1, rows * 0], axis=1),
        chunks=[np.full(10, n, "<i4").tobytes() for n in rows],
    )
    native = dataclasses.replace(
        virtual.shift([2, 0]),
        kind=np.full(10, 1, np.uint8),
        source=np.zeros(10, np.uint32),
        locations=Locations.none(),
        chunk_ids=np.frombuffer(chunk, np.uint8).reshape(1, 12).copy(),
    )
    return ChunkTable.concatenate([virtual, inline, native])


def expected_rows():
    rows = []
    for n in range(10):
        begin = n % 2 * 1000 + n * 10
        rows += [list(range(begin, begin + 10)), [n] * 10]
        rows.append(list(range(100 + n * 10, 110 + n * 10)))
    return rows


@pytest.mark.parametrize("level", [1, 3])
def test_a_manifest_larger_than_the_window_of_its_frame_is_read_whole(
    original, archive, tmp_path, level
):
    """100,000 references are 8 MB: the frame then has a window of its own, and many blocks."""
    root = tmp_path / "large"
    shutil.copytree(original, root)
    n = 100_000
    tip = file.decode((root / "repo").read_bytes()).branches["main"]
    path = root / "snapshots" / str(tip)
    found = snapshot.decode(path.read_bytes())
    rows = np.arange(n)
    table = ChunkTable.virtual(
        index=np.stack([rows, rows * 0], axis=1),
        offset=rows % PER_FILE * BYTES,
        length=np.full(n, BYTES),
        source=rows % FILES,
        locations=Locations(
            url=Strings.of(f"file://{archive}/f{i:03d}.nc" for i in range(FILES)),
            etag=Strings.empty(FILES),
            last_modified=np.full(FILES, 2**32 - 1, np.uint32),
        ),
    )
    array = found.node("/virtual")
    made = manifest.encode({array.id: table}, level=level)
    (root / "manifests" / str(made.id)).write_bytes(made.raw)
    large = array._replace(
        shape=(n, 10),
        num_chunks=(n, 1),
        user_data=array.user_data.replace(b"1200", str(n).encode()),
        manifests=(ManifestRef(object_id=made.id, extents=table.extents()),),
    )
    nodes = tuple(large if node == array else node for node in found.nodes)
    info = ManifestFile(id=made.id, size_bytes=len(made.raw), num_chunk_refs=n)
    files = (*found.manifest_files, info)
    changed = dataclasses.replace(found, nodes=nodes, manifest_files=files)
    path.write_bytes(snapshot.encode(changed))
    session = opened(root, archive).readonly_session("main")
    output = asyncio.run(columns(session.store, "/virtual"))
    assert np.array_equal(output[0], table.index)
    assert output[1] == [f"file://{archive}/f{i % FILES:03d}.nc" for i in range(n)]
    assert np.array_equal(output[2], table.offset)
    assert np.array_equal(output[3], table.length)
    last = zarr.open_group(session.store, mode="r")["virtual"][n - 1]
    begin = (n - 1) % FILES * 1000 + (n - 1) % PER_FILE * 10
    assert last.tolist() == list(range(begin, begin + 10))


async def columns(store, path):
    """Return all indices, locations, offsets and lengths that the official client iterates."""
    batches = [batch async for batch in store.array_chunk_iterator(path)]
    index = np.concatenate([batch[0] for batch in batches])
    order = np.lexsort(index.T[::-1])
    locations = [location for batch in batches for location in batch[2]]
    return (
        index[order],
        [locations[row] for row in order],
        np.concatenate([batch[3] for batch in batches])[order],
        np.concatenate([batch[4] for batch in batches])[order],
    )
