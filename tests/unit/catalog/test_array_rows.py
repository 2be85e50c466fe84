"""Rows that files have in common are held once, and read back as if each had been written."""

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from icevirt.archive import catalog
from icevirt.catalog.array_rows import ArrayRows
from icevirt.catalog.parquet import encode_table

NAMES = [name for name, _ in catalog.ARRAYS]


def said(path, labels=None, nbytes=7):
    return (path, "{}", "[1]", labels, "<i8" if labels else "", "", 1, 0, nbytes, 0)


def read_back(rows):
    table = pq.read_table(pa.BufferReader(encode_table(rows.columns(), catalog.ARRAYS, "a-b")))
    assert table.schema.metadata == {b"icevirt_run": b"a-b"}
    assert [(field.name, str(field.type)) for field in table.schema] == [
        (name, kind.replace("float64", "double")) for name, kind in catalog.ARRAYS
    ]
    return [tuple(row[name] for name in NAMES) for row in table.to_pylist()]


@pytest.mark.parametrize("files", [1, 50], ids=["few rows", "rows that repeat"])
def test_rows_read_back(files):
    rows, wanted = ArrayRows(), []
    alike = [said("/a"), said("/b"), said("/b")]
    numbers = [rows.say(row) for row in alike]
    for file in range(files):
        own = said("/time", bytes([file]) * 8, 3)
        rows.add(file, [rows.say(own)])
        rows.add(file, numbers, [file, 2**40, 0])
        bytes_of = zip(alike, [file, 2**40, 0], strict=True)
        wanted += [(file, *own), *((file, *row[:8], size, row[9]) for row, size in bytes_of)]
    assert read_back(rows) == wanted
    assert [*zip(*rows.columns().values(), strict=True)] == wanted
    assert rows.columns()["path"][:2][1] == "/a"


def test_there_may_be_none():
    assert read_back(ArrayRows()) == []


def test_texts_are_stored_once_however_many_rows_have_them():
    rows, sizes = ArrayRows(), []
    number = rows.say((("/a"), "x" * 10_000, *said("/a")[2:]))
    for count in (100, 10_000):
        rows.add(0, [number] * count)
        sizes.append(len(encode_table(rows.columns(), catalog.ARRAYS)))
    assert sizes[1] < sizes[0] + 1000
