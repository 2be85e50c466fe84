"""Divide a table among tasks, and show the share of each as Arrow record batches.

The driver knows nodes and manifests of a snapshot, and reads no manifest.
Counts by file and by array are sums over a task's own manifests; the caller adds up those of all.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import asdict, dataclass, replace
from enum import Enum
from itertools import batched, islice
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from icevirt.access.references import names_of, places_of
from icevirt.errors import FormatError, InvalidInputError, UnsupportedError
from icevirt.escaping import escape_json
from icevirt.ids import ObjectId8, ObjectId12
from icevirt.model.chunks import ChunkTable, ChunkType
from icevirt.model.snapshot import (
    ArrayNode,
    Extents,
    Snapshot,
    chunk_shape,
    document_of,
)
from icevirt.model.strings import Strings
from icevirt.planning import containers
from icevirt.repo.assets import Assets
from icevirt.repo.repository import Repository
from icevirt.storage.protocol import Storage
from icevirt.tasks.table_query import (
    COUNTED,
    TIME,
    WITHOUT_ARRAYS,
    ChunkRange,
    TableQuery,
    batch,
    schema,
)
from icevirt.threads import Threads
from icevirt.versioning import chunk_tables
from icevirt.versioning.manifest_splitting import along_arrays

_AHEAD = 2  # manifests that are fetched while one is looked at


@dataclass(frozen=True, slots=True, kw_only=True)
class PieceArray:
    """An array, some of whose references are in a manifest."""

    node_id: ObjectId8
    path: str
    ndim: int
    extents: Extents  # () covers everything


@dataclass(frozen=True, slots=True, kw_only=True)
class ManifestPiece:
    """What is wanted of one manifest."""

    manifest: ObjectId12
    references: int  # that it holds, as the snapshot says
    arrays: tuple[PieceArray, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TableShare:
    """What one task shows of a table."""

    table: str
    assets: Assets  # of the repository
    version: ObjectId12  # the snapshot
    named: tuple[tuple[str, str], ...] = ()  # (url_prefix, name) of containers
    box: tuple[ChunkRange, ...] | None = None
    pieces: tuple[ManifestPiece, ...] = ()
    described: tuple[ArrayNode, ...] = ()  # whose metadata it shows; without their manifests

    def tables(self) -> Iterator[tuple[ObjectId12, PieceArray, ChunkTable]]:
        """Yield the references that a reader sees, by manifest and array.

        A few more manifests are fetched meanwhile.

        Raises:
            FormatError: They are of an array with another number of dimensions.
        """
        with Threads(_AHEAD, "icevirt-table") as pool:

            def fetch(piece: ManifestPiece) -> tuple[ManifestPiece, Future[bytes]]:
                return piece, pool.submit(self.assets.manifest_file, piece.manifest)

            left = iter(self.pieces)
            waiting = [fetch(piece) for piece in islice(left, _AHEAD)]
            try:
                while waiting:
                    piece, raw = waiting.pop(0)
                    body = raw.result()
                    del raw
                    waiting += [fetch(each) for each in islice(left, 1)]
                    manifest = self.assets.decode_manifest(piece.manifest, body)
                    for array in piece.arrays:
                        table = manifest.arrays.get(array.node_id)
                        if table is not None and len(table := self._clip(array, table)):
                            yield piece.manifest, array, table
            finally:
                for _, raw in waiting:
                    raw.cancel()

    def _clip(self, array: PieceArray, table: ChunkTable) -> ChunkTable:
        """Return the references of an array in a manifest that a reader sees, inside the box."""
        if not len(table):
            return table
        if table.ndim != array.ndim:
            raise FormatError(
                "a manifest does not fit the array that refers to it",
                do="Run `icevirt check` and restore the file from a copy.",
                path=array.path,
                dimensions=array.ndim,
                found=table.ndim,
            )
        low = np.zeros(table.ndim, np.int64)
        high = np.full(table.ndim, 1 << 32, np.int64)
        if array.extents:
            low, high = np.array(array.extents, np.int64).T
        for axis, (first, last) in enumerate(self.box or ()):
            low[axis] = max(low[axis], first)
            high[axis] = high[axis] if last is None else min(high[axis], last)
        box = np.array(table.extents(), np.int64).reshape(-1, 2)
        if np.all(box[:, 0] >= low) and np.all(box[:, 1] <= high):
            return table
        return table.take(np.all((table.index >= low) & (table.index < high), axis=1))


MOST_PARTITIONS = 10_000
"""A partition of Spark is one manifest where there are no more than so many."""


def plan_shares(storage: Storage, query: TableQuery, *, at_most: int) -> tuple[TableShare, ...]:
    """Divide a table among at most so many tasks, a manifest each or several.

    Raises:
        RepositoryNotFoundError: There is no repository.
        RefNotFoundError, SnapshotNotFoundError: No such version.
        NodeNotFoundError: There is no such array.
        InvalidInputError: Chunks are asked for without one array, or with another
            number of dimensions.
    """
    repo = Repository.open(storage)
    if query.table == "ops_log":
        repo.head.read_v2("the ops log")
        return (TableShare(table=query.table, assets=repo.assets, version=ObjectId12(bytes(12))),)
    session = repo.readonly_session(query.branch, tag=query.tag, snapshot_id=query.snapshot_id)
    whole = TableShare(
        table=query.table,
        assets=repo.assets,
        version=session.snapshot.id,
        named=names_of(session.config.virtual_chunk_containers),
        box=query.box,
    )
    if query.table in WITHOUT_ARRAYS:
        return (whole,)
    arrays = _arrays(session.snapshot, query)
    pieces = _pieces(session.snapshot, arrays, query.box)
    shares = [replace(whole, pieces=run) for run in _runs(pieces, at_most)]
    if query.table == "arrays":
        bare = tuple(node._replace(manifests=()) for node in arrays)
        shares[:1] = [replace(shares[0] if shares else whole, described=bare)]
    return tuple(shares)


def narrow(
    shares: Sequence[TableShare], keep: Callable[[ManifestPiece, PieceArray], bool]
) -> tuple[TableShare, ...]:
    """Return shares without what need not be read; one of which nothing is left goes."""
    found = []
    for share in shares:
        kept = (
            replace(piece, arrays=tuple(each for each in piece.arrays if keep(piece, each)))
            for piece in share.pieces
        )
        if pieces := tuple(piece for piece in kept if piece.arrays):
            found.append(replace(share, pieces=pieces))
    return tuple(found)


def _arrays(snapshot: Snapshot, query: TableQuery) -> tuple[ArrayNode, ...]:
    if query.array is None:
        return tuple(snapshot.arrays())
    node = snapshot.node(query.array)
    if isinstance(node, ArrayNode):
        if query.box is not None and len(query.box) != len(node.num_chunks):
            raise InvalidInputError(
                "the ranges of chunks are not as many as the array has dimensions",
                do="Pass a number or a range for each dimension, ':' for all of one.",
                array=node.path,
                num_chunks=node.num_chunks,
                ranges=len(query.box),
            )
        return (node,)
    if query.box is not None:
        raise InvalidInputError(
            "chunks need one array, and this is a group",
            do="Pass the path of an array, or leave out chunks.",
            array=query.array,
        )
    return tuple(each for each in snapshot.below(node.path) if isinstance(each, ArrayNode))


def _pieces(
    snapshot: Snapshot, arrays: Sequence[ArrayNode], box: tuple[ChunkRange, ...] | None
) -> tuple[ManifestPiece, ...]:
    """Return the manifests in which there are chunks of the arrays inside the box.

    Those that refer to the same files are next to one another: a task then counts a file for all
    its arrays, and returns one row for it.
    """
    found: dict[ObjectId12, list[PieceArray]] = {}
    for node in arrays:
        for ref in node.manifests:
            sides = zip(ref.extents, box, strict=True) if box is not None and ref.extents else ()
            if all(
                first < high and (last is None or last > low)
                for (low, high), (first, last) in sides
            ):
                piece = PieceArray(
                    node_id=node.id,
                    path=node.path,
                    ndim=len(node.num_chunks),
                    extents=ref.extents,
                )
                found.setdefault(ref.object_id, []).append(piece)
    return tuple(
        ManifestPiece(
            manifest=key,
            references=0 if (info := snapshot.manifest(key)) is None else info.num_chunk_refs,
            arrays=tuple(found[key]),
        )
        for key in along_arrays(arrays)
        if key in found
    )


def _runs(pieces: Sequence[ManifestPiece], at_most: int) -> Iterator[tuple[ManifestPiece, ...]]:
    """Yield runs of manifests with about as many references each."""
    if len(pieces) <= at_most:
        yield from ((piece,) for piece in pieces)
        return
    ends = np.cumsum([piece.references + 1 for piece in pieces])
    share = -(-int(ends[-1]) // at_most)
    number = (ends - 1) // share
    cuts = np.flatnonzero(np.diff(number)) + 1
    for run in np.split(np.arange(len(pieces)), cuts):
        yield tuple(pieces[at] for at in run.tolist())


def snapshot_rows(share: TableShare) -> Iterator[pa.RecordBatch]:
    """Yield a row for each snapshot from a version back to the first, newest first."""
    repo = Repository.open(share.assets.storage)
    rows = (
        {
            "snapshot_id": info.id,
            "parent_id": info.parent_id,
            "written_at": info.written_at,
            "message": info.message,
            "metadata": escape_json(dict(info.metadata)),
        }
        for info in repo.ancestry(snapshot_id=str(share.version))
    )
    return _batches("snapshots", rows)


def operation_rows(share: TableShare) -> Iterator[pa.RecordBatch]:
    """Yield a row for each operation on the repository, newest first."""

    def text_of(value: Any) -> str:  # times and words, which JSON has no type for
        return value.name if isinstance(value, Enum) else str(value)

    rows = (
        {
            "updated_at": update.updated_at,
            "kind": type(update.kind).__name__,
            "details": escape_json(asdict(update.kind), default=text_of),
            "backup_path": update.backup_path,
        }
        for update in Repository.open(share.assets.storage).ops_log()
    )
    return _batches("ops_log", rows)


def _batches(table: str, rows: Iterator[dict[str, Any]]) -> Iterator[pa.RecordBatch]:
    names = schema(table).names
    for some in batched(rows, 4096):
        yield batch(table, {name: [row[name] for row in some] for name in names})


_HELD = 1 << 20  # rows that are gathered before they are added up


def count_rows(share: TableShare) -> Iterator[pa.RecordBatch]:
    """Yield a row for each file, with its virtual references and their bytes in the share."""
    held: list[pa.RecordBatch] = []
    rows = left = 0
    for _, _, table in share.tables():
        if table.count(ChunkType.virtual):
            held.append(_count(share, table))
            rows += held[-1].num_rows
            if rows > left + _HELD and len(held) > 1:
                held = _add_up(share.table, held).to_batches()
                rows = left = sum(each.num_rows for each in held)
    if held:
        yield from _add_up(share.table, held).to_batches(max_chunksize=ROWS)


def _add_up(table: str, rows: Sequence[pa.RecordBatch]) -> pa.Table:
    keys = COUNTED[table]
    grouped: Any = pa.Table.from_batches(rows).group_by([*keys], use_threads=False)
    found = grouped.aggregate([("references", "sum"), ("bytes", "sum")])
    columns = [found[key] for key in keys] + [found["references_sum"], found["bytes_sum"]]
    return pa.table(columns, schema=schema(table))


def _count(share: TableShare, table: ChunkTable) -> pa.RecordBatch:
    """Return the objects that a table refers to, each of its locations once."""
    virtual = table.kind == ChunkType.virtual
    source, length = table.source, table.length
    if not virtual.all():
        source, length = source[virtual], length[virtual]
    count = np.bincount(source, minlength=len(table.locations))
    used = np.flatnonzero(count)
    # halves of 32 bits add up exactly as floats
    low, high = (
        np.bincount(source, half.astype(np.float64), len(count)).astype(np.int64)
        for half in (length & np.uint64(0xFFFFFFFF), length >> np.uint64(32))
    )
    places = table.locations if len(used) == len(count) else table.locations.take(used)
    columns: dict[str, Any] = {
        "location": strings(containers.absolute(places.url, share.named)),
        "references": pa.array(count[used]),
        "bytes": pa.array((low + (high << 32))[used]),
    }
    if share.table == "files":
        rows = pa.array(np.arange(len(places)), mask=places.etag.lengths == 0)
        columns["etag"] = strings(places.etag).take(rows)
        columns["last_modified"] = times(places.last_modified)
    return batch(share.table, columns)


_COUNTS = (ChunkType.virtual, ChunkType.native, ChunkType.inline)


def array_rows(share: TableShare) -> Iterator[pa.RecordBatch]:
    """Yield a row for each array that the share describes or counts references of.

    One that it only counts has no more columns than its path.
    """
    counts: dict[str, list[int]] = defaultdict(lambda: [0] * (len(_COUNTS) + 1))
    for _, array, table in share.tables():
        own = counts[array.path]
        for at, kind in enumerate(_COUNTS):
            own[at] += table.count(kind)
        own[-1] += int(table.length.sum())
    facts = {node.path: _describe(node) for node in share.described}
    rows = [
        {"path": path}
        | facts.get(path, {})
        | {kind.name: number for kind, number in zip(_COUNTS, counts[path], strict=False)}
        | {"bytes": counts[path][-1]}
        for path in {**facts, **counts}
    ]
    if rows:
        names = schema("arrays").names
        yield batch("arrays", {name: [row.get(name) for row in rows] for name in names})


def _describe(node: ArrayNode) -> dict[str, Any]:
    document = document_of(node)
    names, data_type = node.dimension_names, document["data_type"]
    return {
        "shape": list(node.shape),
        "chunk_shape": chunk_shape(node),
        "dimension_names": None if names is None else list(names),
        "data_type": data_type if isinstance(data_type, str) else escape_json(data_type),
        "attributes": escape_json(document.get("attributes") or {}),
    }


ROWS = 1 << 15
"""Of a batch; a location has up to a KiB."""

_MOST = (1 << 31) - 1
_NAMES: Any = pa.array([kind.name for kind in ChunkType])


def reference_rows(share: TableShare) -> Iterator[pa.RecordBatch]:
    """Yield a row for each reference, by manifest and array in the order of the chunks."""
    for manifest, array, table in share.tables():
        yield from _rows(share, array.path, str(manifest), table)


def _rows(
    share: TableShare, path: str, manifest: str, table: ChunkTable
) -> Iterator[pa.RecordBatch]:
    if len(table) and int(table.index.max(initial=0)) > _MOST:
        raise UnsupportedError(
            "a chunk index is too large for Spark's type int",
            do="Read the references of this array with `session.refs_table(path)`.",
            path=path,
            largest=int(table.index.max()),
        )
    table = chunk_tables.compact(table)
    places, source = places_of(table, share.assets, share.named)
    url, etag = strings(places.url), strings(places.etag)
    no_etag = places.etag.lengths == 0
    modified, of_index = places.last_modified, schema("references").field("index").type
    for low in range(0, len(table), ROWS):
        part = slice(low, min(low + ROWS, len(table)))
        at, kind = source[part], table.kind[part]
        inline = kind == ChunkType.inline
        count = len(at)
        steps: Any = pa.array(np.arange(count + 1, dtype=np.int32) * table.ndim)
        numbers: Any = pa.array(table.index[part].reshape(-1).astype(np.int32))
        yield batch(
            "references",
            {
                "path": repeat(path, count),
                "index": pa.ListArray.from_arrays(steps, numbers, type=of_index),
                "kind": _NAMES.take(pa.array(kind)),
                "location": url.take(pa.array(at, mask=inline)),
                "offset": pa.array(table.offset[part].astype(np.int64), mask=inline),
                "length": pa.array(table.length[part].astype(np.int64)),
                "etag": etag.take(pa.array(at, mask=no_etag[at])),
                "last_modified": times(modified[at]),
                "manifest_id": repeat(manifest, count),
            },
        )


def strings(column: Strings) -> Any:
    """Return a column of strings as Arrow has it."""
    buffers = pa.py_buffer(column.starts), pa.py_buffer(column.data)
    large = pa.LargeStringArray.from_buffers(len(column), *buffers)
    return large.cast(pa.string()) if len(column.data) <= _MOST else large


def times(seconds: NDArray[np.integer]) -> Any:
    """Return times in whole seconds since 1970 as Arrow has them; 0 is none."""
    micros = seconds.astype(np.int64) * 1_000_000
    return pa.array(micros.astype("M8[us]"), mask=seconds == 0).cast(TIME)


def repeat(text: str, count: int) -> Any:
    """Return a column of equal strings."""
    one: Any = pa.array([text])
    return one.take(pa.array(np.zeros(count, np.int8)))


_ROWS: Mapping[str, Callable[[TableShare], Iterator[pa.RecordBatch]]] = {
    "references": reference_rows,
    "locations": count_rows,
    "files": count_rows,
    "arrays": array_rows,
    "snapshots": snapshot_rows,
    "ops_log": operation_rows,
}


def rows_of(share: TableShare) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a share.

    Raises:
        FormatError: A manifest, or the metadata of an array, is damaged.
        StorageError: The repository cannot be read.
    """
    return _ROWS[share.table](share)
