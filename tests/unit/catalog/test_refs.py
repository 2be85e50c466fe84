"""References are read back array by array, and a part is fetched once however many arrays it has."""

import functools
import io

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from icevirt.archive import catalog
from icevirt.archive.blocks.packing import PackedBlock, pack, unpack
from icevirt.archive.facts import FileColumns
from icevirt.catalog import references
from icevirt.errors import FormatError, ObjectNotFoundError
from icevirt.model.chunks import ChunkTable, Locations
from icevirt.model.strings import Strings
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


def at_most(size, monkeypatch):
    """Let parts of more bytes not be small, whatever they hold."""
    monkeypatch.setattr(references, "_SMALL", size)
    monkeypatch.setattr(references, "_TOGETHER", size)


@pytest.mark.parametrize("small", [-1, 1 << 20], ids=["by array", "at once"])
@pytest.mark.parametrize("encoded", [references.encode, in_one_group], ids=["now", "at first"])
def test_each_array_reads_its_own_blocks_back(encoded, small, monkeypatch):
    at_most(small, monkeypatch)
    reader = references.RefsReader(catalog_of(p=encoded(ROWS)))
    for path in ("/a", "/b", LONG, "/é", "/none"):
        assert list(reader.blocks("p", path)) == [b for name, b in ROWS if name == path]


def test_a_part_without_arrays_has_no_blocks():
    assert list(references.RefsReader(catalog_of(p=references.encode([]))).blocks("p", "/a")) == []


def groups_of(raw):
    """How many rows there are in each row group."""
    output = pq.ParquetFile(pa.BufferReader(raw)).metadata
    return [output.row_group(number).num_rows for number in range(output.num_row_groups)]


SIZE = block(1).nbytes


@pytest.mark.parametrize(
    ("shared", "rows"),
    [(0, [2, 1, 1, 1]), (2 * SIZE, [2, 2, 1]), (10 * SIZE, [5])],
    ids=["of each array", "of two blocks", "of all"],
)
def test_small_arrays_share_row_groups_and_equal_references_are_equal_bytes(
    shared, rows, monkeypatch
):
    monkeypatch.setattr(references, "_SHARED", shared)
    raw = references.encode(ROWS)
    assert raw == references.encode(list(ROWS))
    assert groups_of(raw) == rows
    for small in (-1, 1 << 20):
        at_most(small, monkeypatch)
        reader = references.RefsReader(catalog_of(p=raw))
        for path in ("/a", "/b", LONG, "/é", "/none"):
            assert list(reader.blocks("p", path)) == [b for name, b in ROWS if name == path]


@pytest.fixture
def no_part_is_small(monkeypatch):
    monkeypatch.setattr(references, "_SMALL", -1)
    monkeypatch.setattr(references, "_SHARED", 0)


def test_no_row_group_of_another_array_is_decoded(monkeypatch, no_part_is_small):
    decoded = []
    read = pq.ParquetFile.read_row_group
    monkeypatch.setattr(
        pq.ParquetFile,
        "read_row_group",
        lambda file, number, **how: decoded.append(number) or read(file, number, **how),
    )
    reader = references.RefsReader(
        catalog_of(p=references.encode([row for row in ROWS if row[0] != LONG]))
    )
    list(reader.blocks("p", "/b"))
    assert decoded == [1]


def test_a_part_is_fetched_once_however_many_arrays_are_read():
    parts = {f"p{n}": references.encode(ROWS) for n in range(3)}
    storage = catalog_of(**parts)
    reader = references.RefsReader(storage)
    for path, _ in ROWS:
        for part in parts:
            assert list(reader.blocks(part, path))
    assert storage.read == [catalog.path_of("refs", part) for part in parts]


def test_the_parts_used_last_are_kept_within_the_budget(no_part_is_small):
    raw = references.encode(ROWS)
    storage = catalog_of(a=raw, b=raw, c=raw)
    reader = references.RefsReader(storage, budget=2 * references._Part.of(raw, "").size)
    for part in "abacab":
        list(reader.blocks(part, "/a"))
    assert storage.read == [catalog.path_of("refs", part) for part in "abcb"]


def test_a_part_beyond_the_budget_is_read_all_the_same():
    storage = catalog_of(a=references.encode(ROWS))
    reader = references.RefsReader(storage, budget=0)
    assert list(reader.blocks("a", "/b")) == list(reader.blocks("a", "/b")) == [block(3)]
    assert len(storage.read) == 1


PATHS = ("/a", "/b", "/c")


def many():
    """A catalog of parts of five files with three arrays, and its files in a mixed order."""
    rng = np.random.default_rng(3)
    parts = {}
    for part in range(7):
        rows = []
        for path in PATHS:
            tables = [
                ChunkTable.virtual(
                    index=np.arange(n)[:, None],
                    offset=rng.integers(0, 1 << 40, n),
                    length=rng.integers(1, 1 << 20, n),
                    locations=Locations.one("file:///x"),
                )
                for n in rng.integers(1, 4, 5)
            ]
            rows += [(path, pack([0, 1], tables[:2])), (path, pack([2, 3, 4], tables[2:]))]
        parts[f"p{part}"] = references.encode(rows)
    order = rng.permutation(35)
    files = FileColumns(
        parts=tuple(sorted(parts)),
        part=(order // 5).astype(np.int32),
        row=(order % 5).astype(np.int32),
        url=Strings.of([f"file:///{n}" for n in order]),
        etag=Strings.empty(35),
        size=np.ones(35, np.int64),
        last_modified=np.ones(35, np.int64),
    )
    return catalog_of(**parts), files


def found(reader, files, path, takes):
    """The references of an array, by place and index."""
    return sorted(
        (place, *index, offset, length)
        for block in reader.locate(files, takes, path)
        for place, index, offset, length in zip(
            block.file.tolist(),
            block.index.tolist(),
            block.offset.tolist(),
            block.length.tolist(),
            strict=True,
        )
    )


held = functools.cache(many)


@functools.cache
def one_by_one(path, places):
    """The same of some places, by the obvious loop."""
    storage, files = held()
    reader = references.RefsReader(storage)
    rows = []
    for place in places:
        for packed in reader.blocks(files.parts[files.part[place]], path):
            block = unpack(packed)
            mine = block.file == files.row[place]
            columns = (block.index[mine, 0], block.offset[mine], block.length[mine])
            rows += [(place, *row) for row in zip(*(c.tolist() for c in columns), strict=True)]
    return sorted(rows)


WAYS = {
    "all parts at once": {},
    "a part at a time": {"_TOGETHER": 0},
    "large parts": {"_SMALL": -1, "_TOGETHER": -1},
    "large parts of many arrays": {"_SMALL": -1},
    "parts of older versions": {"_SHARED": 0},
}


@pytest.mark.parametrize("budget", [0, 1500, 1 << 20], ids=["keeps none", "some", "all"])
@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS.keys())
def test_arrays_are_found_however_many_were_read_before_their_time(way, budget, monkeypatch):
    for name, value in way.items():
        monkeypatch.setattr(references, name, value)
    storage, files = many()
    reader = references.RefsReader(storage, budget=budget)
    some = np.arange(35) % 3 != 0
    for at, path in enumerate(PATHS):
        reader.expect(files, PATHS[at:])
        for takes in (some, ~some, some):
            places = tuple(np.flatnonzero(takes).tolist())
            assert found(reader, files, path, takes) == one_by_one(path, places)


def test_arrays_that_are_expected_are_decoded_with_the_first(monkeypatch):
    storage, files = many()
    reader = references.RefsReader(storage)
    everything = np.ones(35, np.bool_)
    reader.expect(files, PATHS)
    assert found(reader, files, "/a", everything)
    reader.expect(files, ["/b", "/c"])
    monkeypatch.setattr(pq.ParquetFile, "read_row_groups", None)
    assert found(reader, files, "/c", everything)
    reader.expect(files, ["/c"])
    with pytest.raises(FormatError, match="not callable"):
        found(reader, files, "/b", everything)


def test_parts_are_kept_for_the_files_that_are_expected_and_no_others():
    storage, files = many()
    first = files.take(np.flatnonzero(files.part < 2))
    everything, some = np.ones(35, np.bool_), np.ones(len(first), np.bool_)
    reader = references.RefsReader(storage)
    reader.expect(files, PATHS)
    assert found(reader, files, "/a", everything)
    storage.delete_below("refs")
    reader.expect(first, PATHS[1:])
    assert len(found(reader, first, "/b", some)) > 10
    reader.expect(files, PATHS[2:])
    assert len(found(reader, first, "/c", some)) > 10
    with pytest.raises(ObjectNotFoundError):
        found(reader, files, "/b", everything)


@pytest.mark.parametrize("urls", [["s3://a/x"], ["s3://a/x/0", "s3://a/x"], ["s3://a/y", "s3://b"]])
@pytest.mark.parametrize("index", [[], [[0, 0], [0, 1]], [[0, 0], [1, 1]]])
def test_the_table_of_one_file_is_packed_as_those_of_several(urls, index):
    rows = len(index)
    places = {"etag": Strings.empty(len(urls)), "last_modified": np.ones(len(urls), np.uint32)}
    table = ChunkTable.virtual(
        index=np.array(index).reshape(rows, 2),
        offset=np.arange(rows),
        length=np.arange(rows) + 5,
        locations=Locations(url=Strings.of(urls), **places),
        source=np.arange(rows) % len(urls),
    )
    one = unpack(pack([3], [table], ["s3://a/x"]))
    both = unpack(pack([3, 4], [table, table], ["s3://a/x", "s3://a/x"]))
    for name in ("index", "kind", "offset", "length"):
        np.testing.assert_array_equal(getattr(one, name), getattr(both, name)[:rows])
    held = [np.append("s3://a/x", [*each.targets.url])[each.source] for each in (one, both)]
    assert (
        held[0].tolist()
        == held[1][:rows].tolist()
        == [urls[row % len(urls)] for row in range(rows)]
    )
    assert one.file.tolist() == [3] * rows
