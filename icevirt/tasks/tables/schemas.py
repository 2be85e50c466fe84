"""Name the columns of the tables of a repository, and their types in Arrow and in Spark.

docs/spark-tables.md says what each column means.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa

TIME = pa.timestamp("us", "UTC")
_TYPES: dict[str, Any] = {
    "string": pa.string(),
    "bigint": pa.int64(),
    "timestamp": TIME,
    "array<int>": pa.list_(pa.field("element", pa.int32())),
    "array<bigint>": pa.list_(pa.field("element", pa.int64())),
    "array<string>": pa.list_(pa.field("element", pa.string())),
}

_OBJECT = (("location", "string"), ("etag", "string"), ("last_modified", "timestamp"))
_COUNTS = (("references", "bigint"), ("bytes", "bigint"))

TABLES: dict[str, tuple[tuple[str, str], ...]] = {
    "references": (
        ("path", "string"),
        ("index", "array<int>"),
        ("kind", "string"),
        ("location", "string"),
        ("offset", "bigint"),
        ("length", "bigint"),
        ("etag", "string"),
        ("last_modified", "timestamp"),
        ("manifest_id", "string"),
    ),
    "locations": (_OBJECT[0], *_COUNTS),
    "files": (*_OBJECT, *_COUNTS),
    "arrays": (
        ("path", "string"),
        ("shape", "array<bigint>"),
        ("chunk_shape", "array<bigint>"),
        ("dimension_names", "array<string>"),
        ("data_type", "string"),
        ("attributes", "string"),
        ("virtual", "bigint"),
        ("native", "bigint"),
        ("inline", "bigint"),
        ("bytes", "bigint"),
    ),
    "snapshots": (
        ("snapshot_id", "string"),
        ("parent_id", "string"),
        ("written_at", "timestamp"),
        ("message", "string"),
        ("metadata", "string"),
    ),
    "ops_log": (
        ("updated_at", "timestamp"),
        ("kind", "string"),
        ("details", "string"),
        ("backup_path", "string"),
    ),
}
"""The columns of each table, and their types as Spark writes them."""

COUNTED = {"locations": ("location",), "files": ("location", "etag", "last_modified")}
"""Tables that count references, and the columns by which they do."""


def schema(table: str) -> pa.Schema:
    """Return the Arrow schema of a table."""
    return pa.schema([(name, _TYPES[kind]) for name, kind in TABLES[table]])


def ddl(table: str) -> str:
    """Return the schema of a table as Spark writes it."""
    return ", ".join(f"`{name}` {kind}" for name, kind in TABLES[table])


def batch(table: str, columns: dict[str, Any]) -> pa.RecordBatch:
    """Return rows of a table from its columns, which are Arrow arrays or what makes them."""
    wanted = schema(table)
    arrays = [
        column if isinstance(column, pa.Array) else pa.array(column, field.type)
        for field, column in ((field, columns[field.name]) for field in wanted)
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=wanted)


def lists(values: Any, starts: Any) -> Any:
    """Return a column of lists of 32-bit numbers."""
    return pa.ListArray.from_arrays(pa.array(starts), values, type=_TYPES["array<int>"])
