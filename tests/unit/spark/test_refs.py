"""References are read back array by array, and a part is fetched once however many arrays it has."""

import io

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from icevirt.archive import catalog
from icevirt.archive.packing import PackedBlock
from icevirt.spark import refs
from icevirt.storage.memory import MemoryStorage

LONG = "/" + "deep/" * 2000  # longer than the statistics that Parquet keeps


def block(number):
    return PackedBlock(
        ndim=1,
        files=bytes([number] * 4),
        counts=b"\x01\0\0\0",
        boxes=None,
        index=b"\0\0\0\0",
        kinds=None,
        gaps=bytes(8),
        lengths=bytes(8),
        data=b"",
    )


ROWS = [("/a", block(1)), ("/a", block(2)), ("/b", block(3)), (LONG, block(4)), ("/é", block(5))]


class Counting(MemoryStorage):
    """Notes what is read."""

    def __init__(self):
        super().__init__()
        self.read = []

    def get(self, path):
        self.read.append(path)
        return super().get(path)


def catalog_of(**parts):
    storage = Counting()
    for name, raw in parts.items():
        storage.put(catalog.path_of("refs", name), raw)
    return storage


def in_one_group(rows):
    """A part as icevirt wrote it at first: one row group, no statistics."""
    types = pa.schema([(name, getattr(pa, kind)()) for name, kind in catalog.REFS])
    made = [{"path": path, **{n: getattr(b, n) for n in b.__slots__}} for path, b in rows]
    sink = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(made, types), sink, write_statistics=False)
    return sink.getvalue()


@pytest.mark.parametrize("small", [-1, 1 << 20], ids=["by array", "at once"])
@pytest.mark.parametrize("encoded", [refs.encode, in_one_group], ids=["now", "at first"])
def test_each_array_reads_its_own_blocks_back(encoded, small, monkeypatch):
    monkeypatch.setattr(refs, "_SMALL", small)
    reader = refs.RefsReader(catalog_of(p=encoded(ROWS)))
    for path in ("/a", "/b", LONG, "/é", "/none"):
        assert list(reader.blocks("p", path)) == [b for name, b in ROWS if name == path]


def test_a_part_without_arrays_has_no_blocks():
    assert list(refs.RefsReader(catalog_of(p=refs.encode([]))).blocks("p", "/a")) == []


def test_equal_references_are_equal_bytes_with_a_row_group_for_each_array():
    raw = refs.encode(ROWS)
    assert raw == refs.encode(list(ROWS))
    assert pq.ParquetFile(pa.BufferReader(raw)).num_row_groups == 4


@pytest.fixture
def no_part_is_small(monkeypatch):
    monkeypatch.setattr(refs, "_SMALL", -1)


def test_no_row_group_of_another_array_is_decoded(monkeypatch, no_part_is_small):
    decoded = []
    read = pq.ParquetFile.read_row_group
    monkeypatch.setattr(
        pq.ParquetFile,
        "read_row_group",
        lambda file, number, **how: decoded.append(number) or read(file, number, **how),
    )
    reader = refs.RefsReader(catalog_of(p=refs.encode([row for row in ROWS if row[0] != LONG])))
    list(reader.blocks("p", "/b"))
    assert decoded == [1]


def test_a_part_is_fetched_once_however_many_arrays_are_read():
    parts = {f"p{n}": refs.encode(ROWS) for n in range(3)}
    storage = catalog_of(**parts)
    reader = refs.RefsReader(storage)
    for path, _ in ROWS:
        for part in parts:
            assert list(reader.blocks(part, path))
    assert storage.read == [catalog.path_of("refs", part) for part in parts]


def test_the_parts_used_last_are_kept_within_the_budget(no_part_is_small):
    raw = refs.encode(ROWS)
    storage = catalog_of(a=raw, b=raw, c=raw)
    reader = refs.RefsReader(storage, budget=2 * len(raw))
    for part in "abacab":
        list(reader.blocks(part, "/a"))
    assert storage.read == [catalog.path_of("refs", part) for part in "abcb"]


def test_a_part_beyond_the_budget_is_read_all_the_same():
    storage = catalog_of(a=refs.encode(ROWS))
    reader = refs.RefsReader(storage, budget=0)
    assert list(reader.blocks("a", "/b")) == list(reader.blocks("a", "/b")) == [block(3)]
    assert len(storage.read) == 1


def test_what_is_decoded_counts_among_what_is_kept():
    """A small part is decoded once for all its arrays, and takes more room than its bytes."""
    raw = refs.encode(ROWS)
    storage = catalog_of(a=raw, b=raw)
    reader = refs.RefsReader(storage, budget=2 * len(raw))
    for part in "abab":
        assert list(reader.blocks(part, "/b"))
    assert len(storage.read) == 4
