"""Read parts of a catalog as the tables of its view, one part at a time.

Only the latest row of each file counts; it is found without Python objects per file.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from icevirt.archive import catalog
from icevirt.archive.blocks.packing import Block, unpack
from icevirt.archive.catalog_view import TABLES
from icevirt.archive.schema import ArraySchema
from icevirt.catalog.lookup import rows_forgotten
from icevirt.catalog.parquet import read_table
from icevirt.catalog.parts import complete_parts
from icevirt.catalog.references import RefsReader
from icevirt.model.chunks import ChunkType
from icevirt.storage.protocol import Storage

_TIME = pa.timestamp("us", "UTC")
_TYPES: dict[str, Any] = {
    "string": pa.string(),
    "int64": pa.int64(),
    "float64": pa.float64(),
    "binary": pa.binary(),
    "time": _TIME,
    "strings": pa.list_(pa.string()),
    "integers": pa.list_(pa.int64()),
}
_DDL = {
    "int64": "bigint",
    "float64": "double",
    "time": "timestamp",
    "strings": "array<string>",
    "integers": "array<bigint>",
}
_MICRO = 1000  # nanoseconds


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PartView:
    """A part of a catalog, and which of its files count."""

    catalog: Storage
    name: str
    scanned_at: int  # microseconds since 1970
    rows: NDArray[np.int32]  # of the files that count, ascending

    @property
    def scan(self) -> str:
        """The identity of the scan that wrote it."""
        return catalog.scan_of(self.name)

    def batches(self, table: str, path: str | None = None) -> Iterator[pa.RecordBatch]:
        """Yield the rows of one of `TABLES`; of arrays and references only those at ``path``."""
        if len(self.rows):
            yield from _BATCHES[table](self, path)

    def read(self, table: str, columns: list[str]) -> Any:
        """Read columns of a stored table for the files that count."""
        path = catalog.path_of(table, self.name)
        found: Any = read_table(self.catalog, path, ["row", *columns])
        return found.filter(pa.array(np.isin(found["row"].to_numpy(), self.rows)))


def newest(storage: Storage, scan: str | None = None) -> list[PartView]:
    """Return the parts of a catalog, each with the files that no later part describes again.

    A file that was scanned with several options counts once for each of them. ``scan`` takes one.
    """
    times = complete_parts(storage)
    names = sorted(
        (name for name in times if scan is None or catalog.scan_of(name) == scan),
        key=lambda name: (times[name], name),
    )
    forgotten = [each for time in rows_forgotten(storage) for each in time]
    rows = _last(storage, names, forgotten)
    return [
        PartView(catalog=storage, name=name, scanned_at=times[name], rows=each)
        for name, each in zip(names, rows, strict=True)
    ]


def _last(
    storage: Storage, names: Sequence[str], forgotten: Sequence[tuple[str, int]]
) -> list[NDArray[np.int32]]:
    """Return for each part, in the order in which they were written, the rows that count."""
    tables = [_file_rows(storage, name, number) for number, name in enumerate(names)]
    if not tables:
        return []
    found = pa.concat_tables(tables)
    part, row = found["part"].to_numpy(), found["row"].to_numpy()
    file = found["file"].combine_chunks().dictionary_encode().indices.to_numpy()
    # what was tried again, or will be, gives way even within one tick of the storage's clock
    numbers = {name: number for number, name in enumerate(names)}
    gone = [numbers[name] << 32 | row for name, row in forgotten if name in numbers]
    counts = ~np.isin(part.astype(np.int64) << 32 | row, gone)
    order = np.lexsort((row, part, counts, file))
    last = order[np.flatnonzero(np.diff(file[order], append=-1))]
    kept = np.zeros(len(file), np.bool_)
    kept[last] = True
    return [np.sort(row[kept & (part == number)]) for number in range(len(names))]


def _file_rows(storage: Storage, name: str, number: int) -> pa.Table:
    table: Any = read_table(storage, catalog.path_of("files", name), ["url", "row"])
    scan = catalog.scan_of(name)
    return pa.table(
        {
            "file": pc.binary_join_element_wise(pa.scalar(scan), table["url"], " "),
            "row": table["row"],
            "part": pa.array(np.full(len(table), number, np.int32)),
        }
    )


def schema(table: str) -> pa.Schema:
    """Return the Arrow schema of a table of the view."""
    return pa.schema([(name, _TYPES[kind]) for name, kind in TABLES[table]])


def ddl(table: str) -> str:
    """Return the schema of a table of the view as Spark writes it."""
    return ", ".join(f"`{name}` {_DDL.get(kind, kind)}" for name, kind in TABLES[table])


def _batch(table: str, columns: dict[str, Any]) -> pa.RecordBatch:
    wanted = schema(table)
    arrays = [
        column if isinstance(column, pa.Array) else pa.array(column, field.type)
        for field, column in ((field, columns[field.name]) for field in wanted)
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=wanted)


def _files(part: PartView, _: str | None) -> Iterator[pa.RecordBatch]:
    plain = ["url", "size", "status", "scanner", "scanner_version", "findings"]
    plain += ["seconds", "requests", "bytes_fetched", "time_limit", "memory_limit"]
    empty = ["etag", "code", "error", "signature"]  # where there is none
    found = part.read("files", [*plain, *empty, "last_modified", "left_out"])
    count = len(found)
    yield _batch(
        "files",
        {
            "scan": [part.scan] * count,
            **{name: found[name].combine_chunks() for name in plain},
            **{name: [text or None for text in found[name].to_pylist()] for name in empty},
            "last_modified": _times(found["last_modified"].to_numpy() // _MICRO),
            "left_out": [json.loads(text) for text in found["left_out"].to_pylist()],
            "scanned_at": _times(np.full(count, part.scanned_at)),
        },
    )


def _times(micros: NDArray[np.int64]) -> Any:
    return pa.array(micros.astype("M8[us]"), mask=micros == 0).cast(_TIME)


def _attributes(part: PartView, _: str | None) -> Iterator[pa.RecordBatch]:
    found = part.read("files", ["url", "groups"])
    rows = [
        (part.scan, url, group["path"], name, _text(value), group["dtypes"].get(name))
        for url, text in zip(found["url"].to_pylist(), found["groups"].to_pylist(), strict=True)
        for group in json.loads(text)
        for name, value in group["values"].items()
    ]
    names = schema("attributes").names
    columns = zip(*rows, strict=True) if rows else [()] * len(names)
    yield _batch("attributes", dict(zip(names, map(list, columns), strict=True)))


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _arrays(part: PartView, path: str | None) -> Iterator[pa.RecordBatch]:
    counts = ["virtual", "inline", "virtual_bytes", "inline_bytes"]
    found = part.read("arrays", ["path", "schema", "shape", *counts])
    if path is not None:
        found = found.filter(pa.array([each == path for each in found["path"].to_pylist()]))
    files = part.read("files", ["url"])
    urls = dict(zip(files["row"].to_pylist(), files["url"].to_pylist(), strict=True))
    schemas = [_parse(text) for text in found["schema"].to_pylist()]
    yield _batch(
        "arrays",
        {
            "scan": [part.scan] * len(found),
            "url": [urls[row] for row in found["row"].to_pylist()],
            "path": found["path"].combine_chunks(),
            "shape": [json.loads(text) for text in found["shape"].to_pylist()],
            **{name: [each[name] for each in schemas] for name in _parse(None)},
            **{name: found[name].combine_chunks() for name in counts},
        },
    )


@lru_cache(1024)
def _parse(text: str | None) -> dict[str, Any]:
    """Return what a schema says, by the names of the view's columns."""
    names = ("data_type", "chunk_shape", "dimension_names", "codecs", "fill_value", "attributes")
    if text is None:
        return dict.fromkeys(names)
    found = ArraySchema.loads(text)
    return {
        "data_type": json.dumps(found.data_type),
        "chunk_shape": found.chunk_shape,
        "dimension_names": found.dimension_names,
        "codecs": json.dumps(found.codecs),
        "fill_value": json.dumps(found.fill_value),
        "attributes": json.dumps(dict(found.attributes.values), ensure_ascii=False),
    }


def _references(part: PartView, path: str | None) -> Iterator[pa.RecordBatch]:
    arrays = part.read("arrays", ["path"])
    paths = sorted(set(arrays["path"].to_pylist()))
    files = _PartFiles(part)
    reader = RefsReader(part.catalog, budget=0)
    for each in paths if path is None else [path] if path in paths else []:
        for packed in reader.blocks(part.name, each):
            block = unpack(packed)
            rows = np.flatnonzero(np.isin(block.file, part.rows))
            if len(rows):
                yield _explode(part.scan, each, block, rows, files)


class _PartFiles:
    """URL and checksum of the files of a part, as columns by row."""

    def __init__(self, part: PartView) -> None:
        found = part.read("files", ["url", "etag", "last_modified"])
        at = found["row"].to_numpy()
        self.place = np.zeros(int(at.max()) + 1, np.int64)  # of a row in the columns
        self.place[at] = np.arange(len(at))
        self.url = found["url"].combine_chunks()
        self.etag = pa.array([text or None for text in found["etag"].to_pylist()], pa.string())
        self.micros = found["last_modified"].to_numpy() // _MICRO


def _explode(
    scan: str, path: str, block: Block, rows: NDArray[np.int64], files: _PartFiles
) -> pa.RecordBatch:
    """Return a block with one row for each of some references."""
    own = files.place[block.file[rows]]
    virtual = block.kind[rows] == ChunkType.virtual
    # targets stand behind the files of the part
    targets = block.targets
    source = block.source[rows].astype(np.int64)
    at = np.where(source > 0, len(files.url) + source - 1, own)
    known = pa.concat_arrays([files.url, pa.array(list(targets.url), pa.string())])
    etags = pa.concat_arrays(
        [files.etag, pa.array([text or None for text in targets.etag], pa.string())]
    )
    seconds = targets.last_modified.astype(np.int64)
    micros = np.concatenate([files.micros, seconds * 1_000_000])
    where: Any = pa.array(at, mask=~virtual)
    index = block.index[rows]
    steps = np.arange(len(rows) + 1, dtype=np.int32) * index.shape[1]
    return _batch(
        "references",
        {
            "scan": _repeat(scan, len(rows)),
            "file": files.url.take(own),
            "path": _repeat(path, len(rows)),
            "index": pa.ListArray.from_arrays(
                pa.array(steps), pa.array(index.reshape(-1).astype(np.int64))
            ),
            "kind": pa.array(["inline", "virtual"]).take(virtual.astype(np.int8)),
            "url": known.take(where),
            "offset": pa.array(block.offset[rows].astype(np.int64), mask=~virtual),
            "length": pa.array(block.length[rows].astype(np.int64)),
            "etag": etags.take(where),
            "last_modified": _times(np.where(virtual, micros[at], 0)),
            "data": _inline(block, rows, virtual),
        },
    )


def _repeat(text: str, count: int) -> Any:
    return pa.array([text]).take(np.zeros(count, np.int8))


def _inline(block: Block, rows: NDArray[np.int64], virtual: NDArray[np.bool_]) -> Any:
    """Return the bytes of inline references; blocks hold a few of them, or small ones."""
    if virtual.all():
        return pa.nulls(len(rows), pa.binary())
    data = block.data.tobytes()
    begins, lengths = (column[rows].astype(np.int64) for column in (block.offset, block.length))
    places = zip(virtual.tolist(), begins.tolist(), lengths.tolist(), strict=True)
    cut = [None if there else data[begin : begin + length] for there, begin, length in places]
    return pa.array(cut, pa.binary())


_BATCHES: dict[str, Callable[[PartView, str | None], Iterator[pa.RecordBatch]]] = {
    "files": _files,
    "attributes": _attributes,
    "arrays": _arrays,
    "references": _references,
}
