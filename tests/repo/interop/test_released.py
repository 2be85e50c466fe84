"""Repositories written by released icechunk wheels are read, and written on, as the official client does."""

import asyncio
import zipfile
from pathlib import Path

import icechunk
import pytest
import zarr

from icevirt.repo.repository import Repository
from icevirt.repo.summary import summary
from repo.support import group_json

FIXTURES = Path(__file__).parents[3] / "fixtures" / "icechunk"
V2 = ("v2-by-2.0.0", "v2-by-2.3.0", "upgraded-by-2.3.0")
SETS = (
    "new_groups",
    "new_arrays",
    "deleted_groups",
    "deleted_arrays",
    "updated_groups",
    "updated_arrays",
)


@pytest.fixture(params=V2)
def path(request, tmp_path):
    with zipfile.ZipFile(FIXTURES / f"{request.param}.zip") as packed:
        packed.extractall(tmp_path)
    return str(tmp_path)


@pytest.fixture
def both(path):
    return Repository.open(path), icechunk.Repository.open(icechunk.local_filesystem_storage(path))


def test_refs_and_history(both):
    ours, theirs = both
    assert ours.list_branches() == theirs.list_branches()
    assert ours.list_tags() == theirs.list_tags()
    for branch in ours.list_branches():
        for mine, other in zip(
            ours.ancestry(branch=branch), theirs.ancestry(branch=branch), strict=True
        ):
            for name in ("id", "parent_id", "written_at", "message", "metadata"):
                assert getattr(mine, name) == getattr(other, name)


def test_the_ops_log(both):
    ours, theirs = both
    for mine, other in zip(ours.ops_log(), theirs.ops_log(), strict=True):
        assert type(mine.kind).__name__ == type(other.kind).__name__
        assert (mine.updated_at, mine.backup_path) == (other.updated_at, other.backup_path)


def test_references_of_every_array(both):
    ours, theirs = both

    async def listed(store, path):
        found = []
        async for batch in store.array_chunk_iterator(path):
            coords, kinds, _, offsets, lengths, inline = batch
            for row in range(len(kinds)):
                size = len(inline[row]) if row in inline else int(lengths[row])
                found.append((coords[row].tolist(), int(kinds[row]), int(offsets[row]), size))
        return sorted(found)

    for branch in ours.list_branches():
        session, store = ours.readonly_session(branch), theirs.readonly_session(branch).store
        for node in session.snapshot.arrays():
            table = session.array_table(node.path)
            offset = table.offset * (table.kind != 3)
            columns = (
                table.index.tolist(),
                table.kind.tolist(),
                offset.tolist(),
                table.length.tolist(),
            )
            mine = sorted(zip(*columns, strict=True))
            assert mine == asyncio.run(listed(store, node.path)), node.path
    assert summary(ours).arrays


def test_differences_between_all_versions(both):
    ours, theirs = both
    history = [s.id for s in ours.ancestry(branch="main")]
    for newer in range(len(history)):
        for older in range(newer + 1, len(history)):
            which = {"from_snapshot_id": history[older], "to_snapshot_id": history[newer]}
            mine, other = ours.diff(**which), theirs.diff(**which)
            assert [set(getattr(mine, name)) for name in SETS] == [
                getattr(other, name) for name in SETS
            ]
            assert {k: v.tolist() for k, v in mine.updated_chunks.items()} == other.updated_chunks
            assert list(mine.moved_nodes) == other.moved_nodes


def test_both_commit_on_top(both, path):
    ours, _ = both
    before = [s.id for s in ours.ancestry(branch="main")]
    session = ours.writable_session("main")
    session.add_group("/by/icevirt", group_json())
    made = session.commit("ours")
    theirs = icechunk.Repository.open(icechunk.local_filesystem_storage(path))
    writable = theirs.writable_session("main")
    zarr.create_group(writable.store, path="official")
    last = writable.commit("theirs")
    assert [s.id for s in ours.ancestry(branch="main")] == [last, made, *before]
    assert ours.readonly_session("main").find("/by/icevirt") is not None
