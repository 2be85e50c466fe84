"""Say what a caller wants to see of a repository: which table, which version, which chunks.

The columns of tables have types in Arrow and in Spark; docs/spark-tables.md says what they mean.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from icevirt.errors import InvalidInputError
from icevirt.model import paths

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


type ChunkRange = tuple[int, int | None]
"""The first chunk along a dimension, and the one behind the last; None: up to the end."""

type ChunksLike = str | Sequence[int | slice | None] | None
"""Chunk indices, one entry for each dimension: ``"0:10, 5, :"`` or ``[slice(0, 10), 5, None]``."""

WITHOUT_ARRAYS = ("snapshots", "ops_log")
"""Tables that show history."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TableQuery:
    """What is to be shown; make it with `of`."""

    table: str
    branch: str | None = None
    tag: str | None = None
    snapshot_id: str | None = None
    array: str | None = None  # canonical path of an array, or of a group that holds arrays
    box: tuple[ChunkRange, ...] | None = None

    @classmethod
    def of(
        cls,
        table: str,
        *,
        branch: str | None = None,
        tag: str | None = None,
        snapshot_id: str | None = None,
        array: str | None = None,
        chunks: ChunksLike = None,
    ) -> TableQuery:
        """Check what a caller passed; the version is the tip of ``main`` unless one is named.

        Raises:
            InvalidInputError: There is no such table, or arguments do not fit it or each other.
        """
        if table not in TABLES:
            raise InvalidInputError(
                "a repository has no such table",
                do=f"Name one of {', '.join(TABLES)}.",
                table=table,
            )
        named = {"branch": branch, "tag": tag, "snapshot_id": snapshot_id}
        given = {name: value for name, value in named.items() if value is not None}
        if len(given) > 1:
            raise InvalidInputError(
                "more than one version was given",
                do="Pass one of branch, tag and snapshot_id, or none for the branch main.",
                **given,
            )
        if table == "ops_log" and given:
            raise InvalidInputError(
                "the ops log is that of the whole repository",
                do="Leave out branch, tag and snapshot_id.",
                **given,
            )
        if table in WITHOUT_ARRAYS and not array is chunks is None:
            raise InvalidInputError(
                "this table does not show arrays", do="Leave out array and chunks.", table=table
            )
        if table == "arrays" and chunks is not None:
            raise InvalidInputError(
                "the table of arrays counts all chunks of an array",
                do="Leave out chunks, or count the rows of the table of references.",
                table=table,
            )
        if chunks is not None and array is None:
            raise InvalidInputError(
                "chunks need the array that they belong to",
                do="Pass array as well.",
                chunks=str(chunks),
            )
        return cls(
            table=table,
            branch="main" if not given and table != "ops_log" else branch,
            tag=tag,
            snapshot_id=snapshot_id,
            array=None if array is None else paths.canonical(array),
            box=None
            if chunks is None
            else tuple(map(_range, chunks.split(",") if isinstance(chunks, str) else chunks)),
        )


def _range(entry: object) -> ChunkRange:
    try:
        low, high = _read_range(entry)
    except (TypeError, ValueError):
        low, high = -1, None
    if low < 0 or (high is not None and high < low):
        raise InvalidInputError(
            "this is not a range of chunks",
            do='Pass a number or a range for each dimension, counted from 0: "0:10, 5, :".',
            entry=str(entry),
        )
    return low, high


def _read_range(entry: object) -> ChunkRange:
    match entry:
        case None:
            return 0, None
        case str():
            low, colon, high = (part.strip() for part in entry.partition(":"))
            if not colon:
                return int(low), int(low) + 1
            return int(low or 0), int(high) if high else None
        case slice(start=start, stop=stop, step=None | 1):
            return int(start or 0), None if stop is None else int(stop)
        case int():
            return entry, entry + 1
        case _:
            raise ValueError(entry)
