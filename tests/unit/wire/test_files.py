"""The small files: what is written reads back, and says what the official client needs."""

import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings

from icevirt.errors import FormatError, InvalidInputError
from icevirt.ids import INITIAL_SNAPSHOT_ID, ObjectId8, ObjectId12
from icevirt.model.repo_info import (
    OpsLogEntry,
    RepoAvailability,
    RepoInfo,
    SnapshotSummary,
    StatusRecord,
)
from icevirt.model.snapshot import ArrayNode, GroupNode, ManifestFile, Snapshot
from icevirt.model.transaction_log import Move, NodeType, TransactionLog
from icevirt.model.updates import NewCommit, RepoInitialized
from icevirt.wire import snapshot, transaction_log
from icevirt.wire.flatbuffer.builder import build
from icevirt.wire.flatbuffer.reader import FlatBufferReader
from icevirt.wire.flatbuffer.schema import (
    REPO,
    REPO_STATUS,
    SNAPSHOT,
    TRANSACTION_LOG,
    U64,
    Field,
    Table,
    Vector,
)
from icevirt.wire.header import FileKind, pack, unpack
from icevirt.wire.repo_info import file
from unit.wire.wire_values import repo_infos, snapshots, transaction_logs

A, B, C = (ObjectId12(bytes([n]) * 12) for n in (1, 2, 3))
NODE = ObjectId8(b"12345678")


def row_by_row(table):
    """Return the table with its columns as ordinary vectors: the obvious, slow way to read."""
    fields = (
        Field(field.name, Vector(field.kind.of), required=field.required, default=field.default)
        if isinstance(field.kind, Vector) and field.kind.columnar
        else field
        for field in table.fields
    )
    return Table(table.name, tuple(fields))


SLOW_REPO = row_by_row(REPO)


def raw_values(raw, kind, table):
    return FlatBufferReader(unpack(raw, kind)[1]).root(table)


def without_arrays(log):
    return dataclasses.replace(log, updated_chunks={})


# -- both ways ------------------------------------------------------------------------------------


@given(snapshots)
def test_a_snapshot_reads_back(value):
    assert snapshot.decode(snapshot.encode(value)) == value


@given(repo_infos())
@settings(max_examples=30)
def test_a_repo_info_reads_back(value):
    assert file.decode(file.encode(value)) == value


@given(transaction_logs())
def test_a_transaction_log_reads_back(value):
    found = transaction_log.decode(transaction_log.encode(value))
    assert without_arrays(found) == without_arrays(value)
    assert {k: v.tolist() for k, v in found.updated_chunks.items()} == {
        k: v.tolist() for k, v in value.updated_chunks.items()
    }


@given(snapshots)
@settings(max_examples=20)
def test_equal_values_make_equal_bytes(value):
    copy = dataclasses.replace(value, metadata=dict(reversed(value.metadata.items())))
    assert snapshot.encode(copy) == snapshot.encode(value)


# -- snapshots ------------------------------------------------------------------------------------


def group(path):
    return GroupNode(id=NODE, path=path, user_data=b"{}")


def small_snapshot(*nodes, **more):
    return Snapshot(id=A, nodes=nodes, flushed_at=1, message="m", **more)


def test_nodes_stand_in_the_byte_order_of_their_paths():
    """Component order would make /a-b and /a/b vanish in the official client."""
    raw = snapshot.encode(small_snapshot(group("/a/b"), group("/a-b"), group("/a")))
    nodes = raw_values(raw, FileKind.snapshot, SNAPSHOT)["nodes"]
    assert [node["path"] for node in nodes] == ["/a", "/a-b", "/a/b"]


def test_a_scalar_array_has_an_empty_shape_v2_and_not_none():
    """That shape_v2 is there is what says V2."""
    node = ArrayNode(
        id=NODE, path="/a", user_data=b"{}", shape=(), num_chunks=(), dimension_names=None
    )
    nodes = raw_values(snapshot.encode(small_snapshot(node)), FileKind.snapshot, SNAPSHOT)["nodes"]
    tag, data = nodes[0]["node_data"]
    assert (tag, data["shape_v2"], data["shape"], data["dimension_names"]) == (1, [], [], None)


def test_a_snapshot_without_manifests_says_so_in_the_v2_field():
    values = raw_values(snapshot.encode(small_snapshot()), FileKind.snapshot, SNAPSHOT)
    assert (values["manifest_files"], values["manifest_files_v2"]) == ([], [])
    assert values["parent_id"] is None


def test_manifest_files_ascend_by_id():
    """The official client searches them by halves since 2.2.1."""
    files = tuple(ManifestFile(id=i, size_bytes=1, num_chunk_refs=1) for i in (C, A, B))
    raw = snapshot.encode(small_snapshot(manifest_files=files))
    rows = raw_values(raw, FileKind.snapshot, SNAPSHOT)["manifest_files_v2"]
    assert [row["id"] for row in rows] == [A, B, C]


def v1_snapshot(**changes):
    values = {
        "id": A,
        "parent_id": B,
        "nodes": [
            {
                "id": NODE,
                "path": "/a",
                "user_data": b"{}",
                "node_data": (
                    1,
                    {
                        # lengths 10 and 0, chunks of 4 and of 0
                        "shape": [bytes([10, *[0] * 7, 4, *[0] * 7]), bytes(16)],
                        "manifests": [],
                    },
                ),
            }
        ],
        "flushed_at": 5,
        "message": "m",
        "metadata": [{"name": "k", "value": b"\x81\xa1a\x01"}],
        "manifest_files": [bytes(C) + bytes(4) + bytes([7, *[0] * 7]) + bytes([9, *[0] * 7])],
        **changes,
    }
    raw = bytearray(pack(FileKind.snapshot, build(SNAPSHOT, values)))
    raw[36] = 1
    return bytes(raw)


def test_a_v1_snapshot_is_read_with_its_own_fields():
    found = snapshot.decode(v1_snapshot())
    assert found.parent_id == B
    assert found.metadata == {"k": {"a": 1}}
    assert found.manifest_files == (ManifestFile(id=C, size_bytes=7, num_chunk_refs=9),)
    assert (found.nodes[0].shape, found.nodes[0].num_chunks) == ((10, 0), (3, 0))


@pytest.mark.parametrize("paths", [("a",), ("/a", "/a"), ("",)])
def test_nodes_without_a_place_of_their_own_are_refused(paths):
    nodes = [{"id": NODE, "path": path, "user_data": b"", "node_data": (2, {})} for path in paths]
    with pytest.raises(FormatError):
        snapshot.decode(v1_snapshot(nodes=nodes))


# -- repo info ------------------------------------------------------------------------------------

ROOT_INFO = SnapshotSummary(id=B, parent_id=None, flushed_at=1, message="root")
CHILD = SnapshotSummary(id=A, parent_id=B, flushed_at=2, message="child")
GRANDCHILD = SnapshotSummary(id=C, parent_id=A, flushed_at=3, message="grandchild")


def small_repo(**changes):
    return RepoInfo(
        **{
            "branches": {"main": C},
            "tags": {},
            "snapshots": {i.id: i for i in (ROOT_INFO, CHILD, GRANDCHILD)},
            "status": StatusRecord(availability=RepoAvailability.online, set_at=1),
            "latest_updates": (
                OpsLogEntry(kind=NewCommit("main", C), updated_at=2),
                OpsLogEntry(
                    kind=RepoInitialized(),
                    updated_at=1,
                    backup_path="repo.30729294865234.S0CHS5WSF158RN937BP0",
                ),
            ),
            **changes,
        }
    )


def test_only_the_root_has_no_parent_and_row_0_is_a_parent():
    """An absent parent_offset means row 0; the root says -1."""
    raw = file.encode(small_repo())
    rows = raw_values(raw, FileKind.repo_info, SLOW_REPO)["snapshots"]
    assert [(row["id"], row["parent_offset"]) for row in rows] == [(A, 1), (B, -1), (C, 0)]
    found = file.decode(raw).snapshots
    assert (found[C].parent_id, found[B].parent_id) == (A, None)


def test_refs_and_tags_ascend_by_name():
    raw = file.encode(
        small_repo(
            branches={"z": A, "main": C, "é": B},
            tags={"b": A, "a": B},
            deleted_tags=frozenset({"z", "b", "é"}),
        )
    )
    values = raw_values(raw, FileKind.repo_info, SLOW_REPO)
    assert [ref["name"] for ref in values["branches"]] == ["main", "z", "é"]
    assert [ref["name"] for ref in values["tags"]] == ["a", "b"]
    assert values["deleted_tags"] == ["b", "z", "é"]


def test_the_newest_update_stands_first():
    """The official client takes its time for that of the repository."""
    rows = raw_values(file.encode(small_repo()), FileKind.repo_info, SLOW_REPO)["latest_updates"]
    assert [row["updated_at"] for row in rows] == [2, 1]


@pytest.mark.parametrize(
    "changes",
    [
        {"branches": {"other": C}},
        {"tags": {"t": INITIAL_SNAPSHOT_ID}},
        {"snapshots": {C: GRANDCHILD}},
        {
            "latest_updates": (
                OpsLogEntry(
                    kind=RepoInitialized(),
                    updated_at=1,
                    backup_path="repo.30729294865234.S0CHS5WSF158RN937BP0",
                ),
            )
        },
    ],
    ids=["no main", "a tag to nowhere", "a parent nowhere", "a backup of the newest update"],
)
def test_what_would_end_the_official_clients_process_is_not_written(changes):
    with pytest.raises(InvalidInputError):
        file.encode(small_repo(**changes))


@pytest.mark.parametrize(
    "name",
    [
        "../repo",
        "overwritten/repo.30729294865234.S0CHS5WSF158RN937BP0",
        "repo.30729294865234.S0CHS5WSF158RN937BP0/../../x",
        "repo.1.S0CHS5WSF158RN937BP0",
        "repo.30729294865234.S0CHS5WSF158RN937BP0\n",
        "repo.30729294865234.S0CHS5WSF158RN937BPU",
    ],
)
def test_only_names_of_backups_are_read_as_such(name):
    """A path out of the folder would be read, or deleted."""
    newest, oldest = small_repo().latest_updates
    bad = (newest, oldest._replace(backup_path=name))
    for changes in ({"latest_updates": bad}, {"repo_before_updates": name}):
        with pytest.raises(FormatError, match="not the name of a backup"):
            file.decode(file.encode(small_repo(**changes)))


def test_an_empty_name_of_a_backup_is_not_taken_for_none():
    _, payload = unpack(file.encode(small_repo()), FileKind.repo_info)
    count = (40).to_bytes(4, "little")
    assert payload.count(count + b"repo.") == 1
    payload = payload.replace(count + b"repo.", bytes(4) + b"repo.")
    with pytest.raises(FormatError, match="not the name of a backup"):
        file.decode(pack(FileKind.repo_info, payload))


def test_no_pruned_logs_are_an_absent_vector():
    """The official writer never stores an empty one."""
    empty = dataclasses.replace(ROOT_INFO, pruned_ancestor_tx_logs=())
    raw = file.encode(small_repo(snapshots={A: CHILD, B: empty, C: GRANDCHILD}))
    rows = raw_values(raw, FileKind.repo_info, SLOW_REPO)["snapshots"]
    assert rows[1]["pruned_ancestor_tx_logs"] is None


def repo_values():
    return raw_values(file.encode(small_repo()), FileKind.repo_info, SLOW_REPO)


def damaged_repo(change):
    values = repo_values()
    change(values)
    return pack(FileKind.repo_info, build(SLOW_REPO, values))


def set_in(*path, to):
    def change(values):
        for step in path[:-1]:
            values = values[step]
        values[path[-1]] = to

    return change


@pytest.mark.parametrize(
    "change",
    {
        "a branch to no row": set_in("branches", 0, "snapshot_index", to=3),
        "a parent in no row": set_in("snapshots", 0, "parent_offset", to=3),
        "a parent before the first row": set_in("snapshots", 0, "parent_offset", to=-2),
        "a snapshot twice": set_in("snapshots", 0, "id", to=C),
        "a configuration that is a list": set_in("config", to=b"\x00\x28\x01"),
        "a configuration of junk": set_in("config", to=b"\xff" * 9),
    }.values(),
)
def test_what_would_end_the_official_clients_process_is_not_read(change):
    with pytest.raises(FormatError):
        file.decode(damaged_repo(change))


def test_an_availability_of_the_future_takes_no_writes():
    raw = damaged_repo(set_in("status", "availability", to=2))
    assert file.decode(raw).status.availability is RepoAvailability.read_only


def test_defaults_are_not_stored():
    """As the official builder does; a reader takes an absent field for its default."""
    stored = []
    for availability in (0, 1):
        raw = build(REPO_STATUS, {"availability": availability, "set_at": 1})
        root = int.from_bytes(raw[:4], "little")
        vtable = root - int.from_bytes(raw[root : root + 4], "little")
        stored.append(int.from_bytes(raw[vtable + 4 : vtable + 6], "little") != 0)
    assert stored == [False, True]


# -- transaction logs -----------------------------------------------------------------------------


def test_moves_are_ordered_component_by_component():
    """Unlike the nodes of a snapshot: /a/b comes before /a-b here."""
    moves = tuple(
        Move(from_path="/x", to_path=path, node_id=NODE, node_type=NodeType.group)
        for path in ("/a-b", "/a/b")
    )
    raw = transaction_log.encode(TransactionLog(id=A, moved_nodes=moves))
    rows = raw_values(raw, FileKind.transaction_log, TRANSACTION_LOG)["moved_nodes"]
    assert [row["to"] for row in rows] == ["/a/b", "/a-b"]


def test_a_log_of_nothing_has_every_list():
    raw = transaction_log.encode(TransactionLog(id=A))
    values = raw_values(raw, FileKind.transaction_log, TRANSACTION_LOG)
    del values["id"], values["extra"]
    assert set(map(tuple, values.values())) == {()}


def test_a_log_without_moved_nodes_is_read():
    """V1 logs have no such list."""
    raw = transaction_log.encode(TransactionLog(id=A, new_groups=frozenset({NODE})))
    values = raw_values(raw, FileKind.transaction_log, TRANSACTION_LOG)
    values["moved_nodes"] = None
    again = pack(FileKind.transaction_log, build(TRANSACTION_LOG, values))
    assert transaction_log.decode(again).moved_nodes == ()


def test_an_empty_vector_at_an_odd_place_is_no_crash():
    """Found by random damage: no element, so nothing that could be misaligned."""
    log = TransactionLog(id=A, updated_chunks={NODE: np.zeros((0, 2), np.uint32)})
    payload = bytearray(unpack(transaction_log.encode(log), FileKind.transaction_log)[1])
    payload += bytes(8)
    (reference,) = (at for at in range(len(payload) - 8) if is_last_vector(payload, at))
    payload[reference] += 1
    found = transaction_log.decode(pack(FileKind.transaction_log, bytes(payload)))
    assert len(found.updated_chunks[NODE]) == 0


def is_last_vector(payload, at):
    """Say whether a reference at ``at`` leads to the empty vector at the end of the log."""
    return at % 4 == 0 and at + int.from_bytes(payload[at : at + 4], "little") == len(payload) - 12


def repo_of_the_future():
    """A repo info in which a snapshot's row has a seventh field."""
    rows = SLOW_REPO.by_name["snapshots"].kind.of
    newer = Table(rows.name, (*rows.fields, Field("news", U64)))
    table = Table(
        REPO.name,
        tuple(
            Field(f.name, Vector(newer), required=True) if f.name == "snapshots" else f
            for f in SLOW_REPO.fields
        ),
    )
    values = repo_values()
    values["snapshots"][0]["news"] = 7
    return pack(FileKind.repo_info, build(table, values))


def test_fields_of_a_newer_client_are_read_over_but_never_lost():
    """Dropping pruned_ancestor_tx_logs was such a loss: clients of 2.0 knew no better."""
    found = file.decode(repo_of_the_future())
    assert found.newer_tables == ("SnapshotInfo",)
    assert found._replace(newer_tables=()) == small_repo()
    with pytest.raises(InvalidInputError, match="newer client"):
        file.encode(found._replace(tags={"t": A}))


def test_chunks_that_arrays_change_alike_read_back_as_of_each():
    few, many = (np.array([[n] * 2 for n in range(rows)], np.uint32) for rows in (3, 70))
    kinds = [few, few[:1], few[:, :1], many, few + np.uint32(1)]
    changed = {ObjectId8(n.to_bytes(8, "big")): kinds[n % len(kinds)] for n in range(20)}
    read = transaction_log.decode(
        transaction_log.encode(TransactionLog(id=A, updated_chunks=changed))
    )
    assert read.updated_chunks.keys() == changed.keys()
    for node, index in changed.items():
        np.testing.assert_array_equal(read.updated_chunks[node], index)
