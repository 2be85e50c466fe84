"""Chunks that no manifest needs are found range by range as they are all at once."""

import pytest

from icevirt.ids import ObjectId12
from icevirt.repo import layout
from icevirt.repo.assets import Assets
from icevirt.repo.maintenance.garbage_collection import sweep_chunks
from icevirt.storage.local import LocalStorage
from icevirt.storage.memory import MemoryStorage
from icevirt.tasks.collect import ChunksTask, SweepTask, list_chunks, ranges_of, sweep
from icevirt.versioning.id_columns import column

LATER = 1 << 60
EDGES = [bytes(12), b"\x40" + bytes(11), b"\x3f" + b"\xff" * 11, b"\xff" * 12]


@pytest.mark.parametrize("count", [1, 2, 4, 7, 1000])
@pytest.mark.parametrize("kind", ["disk", "memory"])
def test_ranges_hold_each_chunk_once(tmp_path, kind, count):
    storage = LocalStorage(tmp_path) if kind == "disk" else MemoryStorage()
    ids = [*map(ObjectId12, EDGES), *(ObjectId12.of_content(bytes([n])) for n in range(60))]
    for key in ids:
        storage.put(layout.chunk(key), b"xx")
    needed = sorted(map(bytes, ids[::3]))
    storage.put("lists/0", b"".join(needed))
    ranges = ranges_of(count)
    empty = list_chunks(ChunksTask(repo=storage, manifests=(), path="lists/1", ranges=ranges))
    assert set(empty.cuts) == {0}
    found = []
    for first, stop in ranges:
        low = sum(key < first for key in needed)
        high = sum(key < stop for key in needed) if stop else len(needed)
        lists = (("lists/0", low, high), ("lists/1", 0, 0))
        found.append(
            sweep(
                SweepTask(
                    repo=storage, ids=(first, stop), lists=lists, older_than=LATER, dry_run=True
                )
            )
        )
    whole = sweep_chunks(Assets(storage), column(needed), LATER, dry_run=False)
    gone = len(ids) - len(needed)
    assert (whole.number, whole.freed, whole.refused, whole.reasons) == (gone, 2 * gone, 0, ())
    assert sum(each.number for each in found) == gone
    assert sum(each.freed for each in found) == 2 * gone
    assert {info.path for info in storage.list("chunks")} == {
        layout.chunk(ObjectId12(key)) for key in needed
    }
