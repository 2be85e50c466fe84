"""A catalog whose tables somebody changed: a value in a column, a table for another, bytes cut."""

import io
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

INTEGERS = (None, -1, 0, 1, 7, 2**31 - 1, 2**62)
BYTES = (None, b"", b"\0", b"\xff" * 4, b"\xff" * 8, b"\xff" * 4096, b"[]")
TEXTS = (
    None,
    "",
    "\0",
    "..",
    "/../../etc",
    "[" * 100_000,
    "[]",
    "{}",
    "null",
    "1e999",
    "[-1]",
    "[1e99]",
    f"[{2**70}]",
    '["a"]',
    '[{"path": "/../x"}]',
    '[{"path": 1, "message": 2, "values": 3, "dtypes": 4}]',
)
HOSTILE = {
    pa.int32(): (None, -1, 1, 7, 2**31 - 1),
    pa.int64(): INTEGERS,
    pa.float64(): (None, -1.0, float("nan"), float("inf")),
    pa.string(): TEXTS,
    pa.binary(): BYTES,
}


def tables_of(catalog, table):
    """Return the paths of a catalog's tables of a kind."""
    return sorted(Path(catalog, table).glob("*.parquet"))


def columns_of(path):
    """Return names and types of a table's columns."""
    return [(field.name, field.type) for field in pq.read_schema(path)]


def with_value(path, column, value, *, row=0):
    """Give one row of a table another value."""
    table = pq.read_table(path)
    at = table.column_names.index(column)
    values = table[column].to_pylist()
    values[row] = value
    changed = table.set_column(at, table.schema.field(at), pa.array(values, table.schema.types[at]))
    _write(path, changed)


def with_type(path, column, kind):
    """Give a column another type, of as many missing values."""
    table = pq.read_table(path)
    at = table.column_names.index(column)
    _write(path, table.set_column(at, pa.field(column, kind), pa.nulls(len(table), kind)))


def with_rows(path, rows):
    """Give a table some of its rows, in an order, repeated or not."""
    _write(path, pq.read_table(path).take(pa.array(rows, pa.int64())))


def _write(path, table):
    sink = io.BytesIO()
    pq.write_table(table, sink, compression="zstd")
    Path(path).write_bytes(sink.getvalue())
