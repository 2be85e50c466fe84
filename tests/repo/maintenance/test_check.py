"""`check` finds nothing in sound repositories, and each kind of damage by its code."""

import json
from dataclasses import replace

import icechunk
import numpy as np
import pytest
import zarr

from icevirt.ids import INITIAL_SNAPSHOT_ID, ObjectId8, ObjectId12
from icevirt.model.chunks import ChunkTable, Locations
from icevirt.model.snapshot import ManifestFile
from icevirt.model.strings import Strings
from icevirt.repo.maintenance.check import check
from icevirt.storage.local import LocalStorage
from icevirt.versioning.invariants import of_repo_info
from icevirt.wire import header
from icevirt.wire import snapshot as snapshot_file
from icevirt.wire import transaction_log as log_file
from icevirt.wire.header import FileKind
from icevirt.wire.manifests import manifest as manifest_file
from icevirt.wire.manifests.encoding import LocationCompression, LocationEncoding
from icevirt.wire.repo_info import file as repo_file


@pytest.fixture
def root(tmp_path):
    """A repository that the official client wrote: split, native and inline chunks, two commits."""
    path = str(tmp_path / "repo")
    config = icechunk.RepositoryConfig.default()
    config.inline_chunk_threshold_bytes = 16
    config.manifest = icechunk.ManifestConfig(
        splitting=icechunk.ManifestSplittingConfig.from_dict(
            {
                icechunk.ManifestSplitCondition.AnyArray(): {
                    icechunk.ManifestSplitDimCondition.Axis(0): 2
                }
            }
        )
    )
    repo = icechunk.Repository.create(icechunk.local_filesystem_storage(path), config)
    session = repo.writable_session("main")
    group = zarr.create_group(session.store)
    array = group.create_array("a", shape=(4, 2), chunks=(1, 1), dtype="i8", compressors=None)
    array[:] = np.arange(8).reshape(4, 2)
    big = group.create_array("deep/big", shape=(4,), chunks=(4,), dtype="i8", compressors=None)
    big[:] = np.arange(4)
    session.commit("first")
    session = repo.writable_session("main")
    zarr.open_group(session.store)["a"][3, 1] = 99
    session.commit("second")
    return LocalStorage(path)


def codes(root):
    """Return the codes of all problems."""
    return {problem.code for problem in check(root).problems}


def test_nothing_is_wrong_with_what_the_official_client_writes(root):
    """Two commits, split manifests, native and inline chunks."""
    report = check(root)
    assert report.problems == ()
    assert report.ok
    assert (report.snapshots, report.manifests, report.references) == (
        3,
        4,
        12,
    )  # a chunk of zeros is not written


# -- damage of `repo` ------------------------------------------------------------------------


def tip_of(root):
    """Return main's tip."""
    return repo_file.decode(root.get("repo")).branches["main"]


def edit_repo(root, **changes):
    """Write the repo info again with other fields."""
    info = repo_file.decode(root.get("repo"))
    made = {name: change(info) for name, change in changes.items()}
    root.put("repo", repo_file.encode(info._replace(**made)))


def later(info):
    """Date the newest entry far in the future."""
    return (info.latest_updates[0]._replace(updated_at=2**52), *info.latest_updates[1:])


def earlier(info):
    """Let a snapshot be older than its parent."""
    tip = info.branches["main"]
    return {**info.snapshots, tip: replace(info.snapshots[tip], flushed_at=1)}


REPO = {
    "an entry in the future": ({"latest_updates": later}, "future"),
    "the log turned round": (
        {
            "latest_updates": lambda info: tuple(
                entry._replace(backup_path=None) for entry in info.latest_updates[::-1]
            )
        },
        "time-order",
    ),
    "a snapshot older than its parent": ({"snapshots": earlier}, "time-order"),
    "a deleted tag that exists": (
        {
            "tags": lambda info: {"v1": info.branches["main"]},
            "deleted_tags": lambda info: frozenset({"v1"}),
        },
        "tag-reused",
    ),
    "another message": (
        {
            "snapshots": lambda info: {
                key: replace(each, message="!") for key, each in info.snapshots.items()
            }
        },
        "summary",
    ),
}


@pytest.mark.parametrize(("changes", "code"), REPO.values(), ids=REPO.keys())
def test_damage_of_the_repo_info_is_found(root, changes, code):
    """Each row by its code."""
    edit_repo(root, **changes)
    assert code in codes(root)


def test_what_our_own_writer_refuses_is_found_in_files_of_others(root):
    """Official writers die of a newest entry with a backup, and of a repository without main."""
    info = repo_file.decode(root.get("repo"))
    top = info.latest_updates[0]._replace(backup_path=info.latest_updates[1].backup_path)
    bad = info._replace(
        latest_updates=(top, *info.latest_updates[1:]),
        branches={"other": ObjectId12(b"unknown-snap")},
    )
    found = {problem.code for problem in of_repo_info(bad, now=top.updated_at)}
    assert found == {"backup-of-newest", "no-main", "dangling-ref"}


# -- damage of a snapshot --------------------------------------------------------------------


def edit_snapshot(root, edit):
    """Write the tip's snapshot again with other nodes or manifest rows."""
    path = f"snapshots/{tip_of(root)}"
    root.put(path, snapshot_file.encode(edit(snapshot_file.decode(root.get(path)))))


def on_array(change):
    """Change the node of the array /a."""

    def edit(snapshot):
        nodes = tuple(change(n) if n.path == "/a" else n for n in snapshot.nodes)
        return replace(snapshot, nodes=nodes)

    return edit


def first_ref(change):
    """Change the first manifest of the array /a."""
    return on_array(
        lambda node: node._replace(manifests=(change(node.manifests[0]), *node.manifests[1:]))
    )


SNAPSHOT = {
    "wrong shape": (on_array(lambda node: node._replace(shape=(5, 2))), "grid"),
    "wrong names": (on_array(lambda node: node._replace(dimension_names=("x", "y"))), "grid"),
    "no JSON": (on_array(lambda node: node._replace(user_data=b"{")), "metadata"),
    "a group's metadata": (
        on_array(lambda n: n._replace(user_data=json.dumps({"node_type": "group"}).encode())),
        "metadata",
    ),
    "two nodes with one id": (
        lambda s: replace(s, nodes=tuple(n._replace(id=s.nodes[0].id) for n in s.nodes)),
        "node-id",
    ),
    "overlapping manifests": (
        first_ref(lambda ref: ref._replace(extents=((0, 3), (0, 2)))), "overlap",
    ),
    "loose extents": (first_ref(lambda ref: ref._replace(extents=((0, 2), (0, 9)))), "extents"),
    "a manifest that is not listed": (lambda s: replace(s, manifest_files=()), "manifest-row"),
    "a manifest that nobody uses": (
        lambda s: replace(
            s,
            manifest_files=(
                *s.manifest_files,
                ManifestFile(id=ObjectId12(b"\xff" * 12), size_bytes=1, num_chunk_refs=1),
            ),
        ),
        "unused-manifest",
    ),
    "a wrong size": (
        lambda s: replace(
            s, manifest_files=tuple(i._replace(size_bytes=7) for i in s.manifest_files)
        ),
        "size",
    ),
    "a wrong count": (
        lambda s: replace(
            s, manifest_files=tuple(i._replace(num_chunk_refs=7) for i in s.manifest_files)
        ),
        "count",
    ),
    "a node that no log tells of": (
        lambda s: replace(s, nodes=(*s.nodes, s.nodes[0]._replace(id=ObjectId8(b"12345678"),
                                                      path="/new"))),
        "log",
    ),
    "a node below an array": (
        lambda s: replace(s, nodes=(*s.nodes, s.nodes[0]._replace(id=ObjectId8(b"12345678"),
                                                      path="/a/b"))),
        "below-array",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("edit", "code"), SNAPSHOT.values(), ids=SNAPSHOT.keys())
def test_damage_of_a_snapshot_is_found(root, edit, code):
    """Each row by its code."""
    edit_snapshot(root, edit)
    assert code in codes(root)


# -- damage of manifests, chunks and files ------------------------------------------------------


def with_table(root, table):
    """Give the array /a the one manifest that holds this table, properly listed."""
    path = f"snapshots/{tip_of(root)}"
    snapshot = snapshot_file.decode(root.get(path))
    node = snapshot.node("/a")
    encoded = manifest_file.encode({node.id: table})
    root.put(f"manifests/{encoded.id}", encoded.raw)
    ref = node.manifests[0]._replace(object_id=encoded.id, extents=table.extents())
    info = ManifestFile(id=encoded.id, size_bytes=len(encoded.raw), num_chunk_refs=len(table))
    deep = [
        i
        for i in snapshot.manifest_files
        if i.id == snapshot.node("/deep/big").manifests[0].object_id
    ]
    root.put(
        path,
        snapshot_file.encode(
            replace(
                snapshot,
                nodes=tuple(
                    n._replace(manifests=(ref,)) if n.path == "/a" else n for n in snapshot.nodes
                ),
                manifest_files=(*deep, info),
            )
        ),
    )


def virtual(index, url="file:///nowhere/a.nc"):
    """A table of virtual references."""
    return ChunkTable.virtual(
        index=np.array(index),
        offset=np.zeros(len(index)),
        length=np.full(len(index), 8),
        locations=Locations.one(url, last_modified=1),
    )


TABLES = {
    "outside the grid": (virtual([[0, 5]]), "outside"),
    "no container": (virtual([[0, 0]]), "no-container"),
    "across cells of the splitting": (virtual([[1, 0], [2, 0]]), "window"),
}


@pytest.mark.parametrize(("table", "code"), TABLES.values(), ids=TABLES.keys())
def test_damage_of_a_manifest_is_found(root, table, code):
    """Each row by its code."""
    with_table(root, table)
    assert code in codes(root)


def test_a_compressed_location_that_is_damaged_is_found(root):
    """It is decompressed when it is asked for, which `check` does for all."""
    count = 3000
    table = ChunkTable.virtual(
        index=np.stack([np.arange(count), np.zeros(count, np.int64)], axis=1),
        offset=np.zeros(count),
        length=np.full(count, 8),
        source=np.arange(count),
        locations=Locations(
            url=Strings.of(f"file:///nowhere/with/a/long/name/{n:06d}.nc" for n in range(count)),
            etag=Strings.empty(count),
            last_modified=np.zeros(count, np.uint32),
        ),
    )
    with_table(root, table)
    node = snapshot_file.decode(root.get(f"snapshots/{tip_of(root)}")).node("/a")
    name = node.manifests[0].object_id
    how = LocationCompression(encoding=LocationEncoding.dictionary)
    made = manifest_file.encode({node.id: table}, locations=how)
    payload = bytearray(header.unpack(made.raw, FileKind.manifest)[1].replace(made.id, name))
    at = payload.rindex(bytes.fromhex("28B52FFD"))
    payload[at + 9 : at + 15] = b"\xff" * 6
    root.put(f"manifests/{name}", header.pack(FileKind.manifest, payload))
    assert "format" in codes(root)


def test_advice_is_no_damage(root):
    """A legal repository that could be better passes."""
    edit_snapshot(root, SNAPSHOT["a manifest that nobody uses"][0])
    report = check(root)
    assert report.ok
    assert report.problems


@pytest.mark.parametrize(
    "folder", ["snapshots", "manifests", "transactions", "chunks", "overwritten"]
)
def test_a_missing_file_of_any_kind_is_found(root, folder):
    """Nothing that is referred to may be gone."""
    for info in list(root.list(folder)):
        root.delete(info.path)
    assert not check(root).ok


@pytest.mark.parametrize("folder", ["snapshots", "manifests", "transactions"])
def test_a_file_that_holds_another_is_found(root, folder):
    """Names and contents are compared."""
    one, other = [info.path for info in root.list(folder)][:2]
    root.put(one, root.get(other))
    assert "format" in codes(root)


def test_a_log_of_another_commit_is_found(root):
    """A log must tell what its commit did."""
    path = f"transactions/{tip_of(root)}"
    log = log_file.decode(root.get(path))
    root.put(path, log_file.encode(replace(log, new_arrays=frozenset({ObjectId8(b"x" * 8)}))))
    assert "log" in codes(root)
    assert INITIAL_SNAPSHOT_ID in repo_file.decode(root.get("repo")).snapshots
