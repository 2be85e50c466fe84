"""Write references that a table holds: rows are sorted into blocks, blocks become manifests.

Each array is cut into cells, regular boxes of chunks; the references of a cell are one manifest.
A block of one cell is a compressed Arrow stream in which locations are numbers. Nothing loops over
rows. The bytes of a manifest follow from the rows of its cell, in whatever order they come, and its
id covers them: a task that runs twice writes the same object again.
"""

from __future__ import annotations

import math
import pickle
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute
from numpy.typing import NDArray

from icevirt.archive.plan import MAX_REFERENCES
from icevirt.errors import InvalidInputError
from icevirt.ids import ObjectId12
from icevirt.model import indices
from icevirt.model.chunks import (
    END_SECOND,
    FARTHEST,
    FIRST_SECOND,
    ChunkTable,
    ChunkType,
    Locations,
)
from icevirt.model.config.containers import first_uncovered
from icevirt.model.config.document import RepositoryConfig
from icevirt.model.snapshot import ArrayNode, Boxes, Extents, ManifestRef
from icevirt.model.strings import Strings
from icevirt.objects.locations import check_locations
from icevirt.planning.schedule.write_tasks import window_of
from icevirt.repo.assets import Assets
from icevirt.repo.reader import ArrayReader
from icevirt.storage.protocol import Storage
from icevirt.versioning import chunk_tables
from icevirt.versioning.manifest_splitting import SplitGrid, grid_of
from icevirt.wire.manifests.distinct_rows import first_uses
from icevirt.wire.manifests.encoding import ManifestEncoding

COLUMNS: dict[str, str] = {
    "path": "string",
    "index": "array<bigint>",
    "location": "string",
    "offset": "bigint",
    "length": "bigint",
}
"""Columns that rows must have, and their types as Spark writes them."""

OPTIONAL: dict[str, str] = {"kind": "string", "etag": "string", "last_modified": "timestamp"}
"""Columns that rows may have."""


def cut_of(
    config: RepositoryConfig,
    path: str,
    num_chunks: Sequence[int],
    dimension_names: tuple[str | None, ...] | None,
) -> tuple[SplitGrid, bool]:
    """Return how an array's references are divided into manifests, and whether that is a new rule.

    Raises:
        InvalidInputError: A rule of the repository is not understood.
    """
    grid = grid_of(
        config.splitting_document,
        path=path,
        num_chunks=tuple(num_chunks),
        dimension_names=dimension_names,
    )
    if all(count <= 1 for count in grid.counts):
        steps = window_of(tuple(num_chunks), 0, MAX_REFERENCES)
        cut = SplitGrid(tuple(num_chunks), tuple(max(step, 1) for step in steps))
        if any(count > 1 for count in cut.counts):
            return cut, True
    return grid, False


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetArray:
    """An array, and how its references are divided into manifests."""

    node: ArrayNode
    grid: SplitGrid
    is_cut: bool  # here, so that the repository has to know

    @classmethod
    def of(cls, node: ArrayNode, config: RepositoryConfig) -> TargetArray:
        """Cut an array as the repository says; where it says nothing, so that manifests are small.

        Raises:
            InvalidInputError: A rule of the repository is not understood.
        """
        grid, is_cut = cut_of(config, node.path, node.num_chunks, node.dimension_names)
        return cls(node=node, grid=grid, is_cut=is_cut)

    def reaching(self, ref: ManifestRef) -> NDArray[np.int64]:
        """Return the cells in which a manifest can have references."""
        box = Boxes.of((ref,), len(self.node.num_chunks))
        return self.grid.cells_under(box.low[0].tolist(), box.high[0].tolist())

    def in_cell(self, cell: int) -> tuple[ManifestRef, ...]:
        """Return the manifests that can have references in a cell."""
        counts = self.grid.counts
        steps = np.array(self.grid.steps, np.int64)
        low = np.array(np.unravel_index(cell, counts), np.int64).reshape(len(counts)) * steps
        boxes = Boxes.of(self.node.manifests, len(counts))
        meets = np.all((boxes.low < low + steps) & (boxes.high > low), axis=1)
        return tuple(self.node.manifests[at] for at in np.flatnonzero(meets).tolist())

    def rewritten(self, cells: Iterable[int]) -> tuple[frozenset[int], frozenset[ObjectId12]]:
        """Return the cells that have to be written where some are, and manifests that then go.

        A manifest that reaches into several cells, because the array was cut otherwise, is taken
        apart in all of them.
        """
        under = [
            (ref.object_id, frozenset(self.reaching(ref).tolist())) for ref in self.node.manifests
        ]
        done: frozenset[int] = frozenset(cells)
        while True:
            gone = [(key, reach) for key, reach in under if not done.isdisjoint(reach)]
            now = done.union(*(reach for _, reach in gone))
            if now == done:
                return done, frozenset(key for key, _ in gone)
            done = now


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenCell:
    """What became of a cell."""

    path: str
    cell: int
    written: int = 0  # references that came
    manifest_id: ObjectId12 | None = None  # None: nothing is in the cell
    size_bytes: int = 0
    num_chunk_refs: int = 0
    extents: Extents = ()


AT_ONCE = 500_000
"""Rows that are gathered before they are sorted into blocks."""

pc: Any = pyarrow.compute  # whose stubs know too few kinds of arrays
_TEXTS = ("path", "location", "kind", "etag")
_SHOWN = 10  # arrays and containers in a message


@dataclass(frozen=True, slots=True, kw_only=True)
class ReferenceBlock:
    """Some references of one cell of an array."""

    array: int  # its number among the targets
    cell: int
    payload: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Incoming:
    """Where rows go, and which locations they may name."""

    targets: tuple[TargetArray, ...]
    prefixes: tuple[str, ...]  # of locations that a container covers

    def blocks(self, batches: Iterator[pa.RecordBatch]) -> Iterator[ReferenceBlock]:
        """Yield the rows in blocks.

        Args:
            batches: Columns of `targets.COLUMNS`, and some of `targets.OPTIONAL`.

        Raises:
            InvalidInputError: A row has no place in an array, or names bytes that no reader would
                find; the first is named.
        """
        numbers = {target.node.path: number for number, target in enumerate(self.targets)}
        held: list[pa.RecordBatch] = []
        for batch in batches:
            held.append(batch)
            if sum(each.num_rows for each in held) >= AT_ONCE:
                yield from self._sort(pa.Table.from_batches(held), numbers)
                held = []
        if sum(each.num_rows for each in held):
            yield from self._sort(pa.Table.from_batches(held), numbers)

    def _sort(self, rows: Any, numbers: Mapping[str, int]) -> Iterator[ReferenceBlock]:
        checked = _Checked(rows)
        bad = first_uncovered(checked.urls, self.prefixes)
        if bad is not None:
            raise checked.error(
                int(_flags(pc.equal(rows["location"], bad)).argmax()),
                "no virtual chunk container of the repository covers a location",
                do="Pass containers=[icevirt.VirtualChunkContainer(url_prefix, store)] for it.",
                containers=list(self.prefixes)[:_SHOWN],
            )
        check_locations(checked.urls)
        paths = rows["path"].combine_chunks().dictionary_encode()
        codes = paths.indices.to_numpy(zero_copy_only=False)
        for code, path in enumerate(paths.dictionary.to_pylist()):
            own = np.flatnonzero(codes == code)
            canonical = path if path.startswith("/") else f"/{path}"
            if canonical not in numbers:
                raise checked.error(
                    int(own[0]),
                    "the repository has no such array",
                    do="Pass its metadata as arrays=..., or write the arrays first with zarr or"
                    " xarray.",
                    there=[*numbers][:_SHOWN],
                )
            number = numbers[canonical]
            target = self.targets[number]
            index = checked.index(own, target)
            cell = target.grid.cells_of(index)
            order = np.argsort(cell, kind="stable")
            cuts = np.flatnonzero(np.diff(cell[order])) + 1
            for some in np.split(order, cuts):
                payload = checked.pack(own[some], index[some])
                yield ReferenceBlock(array=number, cell=int(cell[some[0]]), payload=payload)


class _Checked:
    """Rows, whose columns are checked when this is made."""

    def __init__(self, rows: Any) -> None:
        self._rows = rows
        for name in _TEXTS:
            if name in rows.column_names:
                _refuse_no_text(name, rows[name].combine_chunks())
        if "kind" in rows.column_names:
            others = _flags(pc.fill_null(pc.not_equal(rows["kind"], "virtual"), False))
            self._refuse(
                others,
                "only virtual references can be written",
                do="Leave out native and inline chunks: df.where(\"kind = 'virtual'\").",
            )
        for name in COLUMNS:
            self._refuse(_flags(pc.is_null(rows[name])), f"a reference has no {name}")
        self.offset = self._bytes("offset", 0)
        self.length = self._bytes("length", 1)
        location = rows["location"].combine_chunks().dictionary_encode()
        self.urls = strings_of(location.dictionary)
        codes = location.indices.to_numpy(zero_copy_only=False)
        self._refuse(self.urls.lengths[codes] == 0, "a reference has no location")
        self._seconds = self._times()

    def _bytes(self, name: str, least: int) -> NDArray[np.uint64]:
        found = self._rows[name].to_numpy()
        self._refuse(
            (found < least) | (found >= FARTHEST),
            f"the {name} of a reference is not a possible number of bytes",
            do="Correct the row; a chunk that was never written has no row.",
        )
        return np.asarray(found.astype(np.uint64))

    def _times(self) -> NDArray[np.uint32]:
        """Return times of modification in whole seconds, rounded up; 0 is none."""
        if "last_modified" not in self._rows.column_names:
            return np.zeros(self._rows.num_rows, np.uint32)
        given: Any = self._rows["last_modified"].combine_chunks()
        missing = _flags(pc.is_null(given))
        micros = given.cast(pa.timestamp("us", given.type.tz)).view(pa.int64()).fill_null(0)
        seconds = -(-micros.to_numpy() // 1_000_000)
        self._refuse(
            ~missing & ((seconds < 0) | (seconds >= END_SECOND)),
            "the time of modification of a reference cannot be stored",
            do="References hold whole seconds from 1970 to 2106.",
        )
        return np.where(missing, 0, np.maximum(seconds, FIRST_SECOND)).astype(np.uint32)

    def index(self, rows: NDArray[np.int64], target: TargetArray) -> NDArray[np.uint32]:
        """Return the chunks of some rows, shape (k, ndim), which lie in the array's grid."""
        ndim = len(target.node.num_chunks)
        lists: Any = self._rows["index"].combine_chunks().take(pa.array(rows))
        wrong = _flags(pc.not_equal(pc.list_value_length(lists), ndim))
        what = "a chunk index does not have the array's number of dimensions"
        self._refuse(wrong, what, rows=rows, num_chunks=target.node.num_chunks)
        flat = pc.list_flatten(lists)
        if flat.null_count:
            row = _flags(pc.is_null(flat)).reshape(-1, ndim).any(axis=1)
            self._refuse(row, "a chunk index has a null", rows=rows)
        index = flat.to_numpy().reshape(len(rows), ndim)
        outside = np.any((index < 0) | (index >= np.array(target.node.num_chunks)), axis=1)
        self._refuse(
            outside,
            "a chunk lies outside the array's chunk grid",
            do="Correct the row, or resize the array first.",
            rows=rows,
            num_chunks=target.node.num_chunks,
        )
        return np.asarray(index.astype(np.uint32))

    def pack(self, rows: NDArray[np.int64], index: NDArray[np.uint32]) -> bytes:
        """Return some rows as a block."""
        taken: Any = pa.array(rows)
        location = self._rows["location"].combine_chunks().take(taken).dictionary_encode()
        etag: Any = pa.nulls(len(rows), pa.string())
        if "etag" in self._rows.column_names:
            etag = self._rows["etag"].combine_chunks().take(taken)
        columns: dict[str, Any] = {
            **{f"i{axis}": index[:, axis] for axis in range(index.shape[1])},
            "location": location,
            "offset": self.offset[rows],
            "length": self.length[rows],
            "etag": pc.fill_null(etag, "").dictionary_encode(),
            "last_modified": self._seconds[rows],
        }
        table: Any = pa.table(columns)
        sink = pa.BufferOutputStream()
        options = pa.ipc.IpcWriteOptions(compression="zstd")
        with pa.ipc.new_stream(sink, table.schema, options=options) as writer:
            writer.write_table(table)
        return bytes(sink.getvalue())

    def error(self, row: int, what: str, *, do: str = "", **facts: Any) -> InvalidInputError:
        """Return the error of a row, which it names."""
        names = [name for name in COLUMNS if name in self._rows.column_names]
        shown = self._rows.select(names).slice(row, 1).to_pylist()[0]
        return InvalidInputError(what, do=do or "Correct the row.", **shown, **facts)

    def _refuse(
        self,
        bad: NDArray[np.bool_],
        what: str,
        *,
        do: str = "",
        rows: NDArray[np.int64] | None = None,
        **facts: Any,
    ) -> None:
        if bad.any():
            first = int(bad.argmax())
            raise self.error(first if rows is None else int(rows[first]), what, do=do, **facts)


def _refuse_no_text(name: str, column: Any) -> None:
    """Refuse bytes that are no text, of which Spark makes strings: no client would read them."""
    try:
        column.validate(full=True)
    except pa.ArrowInvalid:
        for raw in column.cast(pa.binary()).to_pylist():
            try:
                (raw or b"").decode()
            except UnicodeDecodeError:
                raise InvalidInputError(
                    f"the {name} of a reference is not UTF-8",
                    do="Decode the column in Spark: decode(column, 'ISO-8859-1').",
                    **{name: raw},
                ) from None
        raise


def _flags(column: Any) -> NDArray[np.bool_]:
    """Return a column of truth values, which has no nulls."""
    found: NDArray[np.bool_] = column.to_numpy(zero_copy_only=False).astype(np.bool_)
    return found


def strings_of(column: Any) -> Strings:
    """Return an Arrow column of strings without nulls, without Python strings."""
    large = column.cast(pa.large_string())
    if not len(large):
        return Strings.empty(0)
    _, places, data = large.buffers()
    starts = np.frombuffer(places, np.int64)[large.offset : large.offset + len(large) + 1]
    raw = np.frombuffer(data, np.uint8) if data is not None else np.zeros(0, np.uint8)
    return Strings(raw[starts[0] : starts[-1]].copy(), starts - starts[0])


@dataclass(frozen=True, slots=True, kw_only=True)
class CellWriter:
    """Where manifests go, and what is there."""

    repo: Storage
    level: int
    encoding: ManifestEncoding

    @property
    def assets(self) -> Assets:
        """Reads and writes objects of the repository, as it is configured."""
        return Assets(self.repo, level=self.level, manifests=self.encoding)

    def write(self, target: TargetArray, cell: int, payloads: Sequence[bytes]) -> WrittenCell:
        """Write the references of blocks over those that the cell has.

        Raises:
            InvalidInputError: Two rows are for one chunk.
            FormatError: Existing manifests hold facts of a newer client, which would be lost.
        """
        new = _join(target, payloads)
        assets = self.assets
        before = ArrayReader(assets, target.node).table_to_rewrite(target.in_cell(cell))
        if len(before):
            inside = indices.inside(before.index, target.grid.num_chunks)
            own = np.flatnonzero(inside)
            own = own[target.grid.cells_of(before.index[own]) == cell]
            before = before.take(own)
        table = chunk_tables.compact(chunk_tables.overlay(before, new))
        if not len(table):
            return WrittenCell(path=target.node.path, cell=cell)
        virtual = np.flatnonzero(table.kind == ChunkType.virtual)
        if len(virtual):  # locations in the order of first use, whatever the table was made of
            first, number = first_uses(table.source[virtual])
            source = table.source.copy()
            source[virtual] = number
            places = table.locations.take(table.source[virtual][first])
            table = replace(table, source=source, locations=places)
        file = assets.put_manifest({target.node.id: table})
        return WrittenCell(
            path=target.node.path,
            cell=cell,
            written=len(new),
            manifest_id=file.id,
            size_bytes=file.size_bytes,
            num_chunk_refs=file.num_chunk_refs,
            extents=table.extents(),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class RestTask:
    """A cell to which nothing came, whose references lie in manifests that go."""

    writer: CellWriter
    target: TargetArray
    cell: int


def write_rest(task: RestTask) -> WrittenCell:
    """Write the references of a cell that has to be written though nothing came."""
    return task.writer.write(task.target, task.cell, ())


def write_cells(
    writer: CellWriter,
    targets: Sequence[TargetArray],
    blocks: Mapping[tuple[int, int], Sequence[bytes]],
) -> Iterator[WrittenCell]:
    """Write cells, one at a time.

    Args:
        writer: Where to.
        targets: The arrays.
        blocks: By number of the array and cell.
    """
    for (array, cell), payloads in sorted(blocks.items()):
        yield writer.write(targets[array], cell, payloads)


def _join(target: TargetArray, payloads: Sequence[bytes]) -> ChunkTable:
    """Return the rows of blocks, in order; each distinct object is there once."""
    ndim = len(target.node.num_chunks)
    if not payloads:
        return ChunkTable.empty(ndim)
    tables = [pa.ipc.open_stream(payload).read_all() for payload in payloads]
    rows: Any = pa.concat_tables(tables).unify_dictionaries().combine_chunks()
    count = rows.num_rows
    index = np.empty((count, ndim), np.uint32)
    for axis in range(ndim):
        index[:, axis] = rows[f"i{axis}"].to_numpy()
    order = np.lexsort(index.T[::-1]) if ndim else np.arange(count)
    index = np.ascontiguousarray(index[order])
    _refuse_twice(target.node.path, index, order, rows)
    urls, etags = (rows[name].combine_chunks() for name in ("location", "etag"))
    url, etag = (each.indices.to_numpy().astype(np.int64)[order] for each in (urls, etags))
    seconds = rows["last_modified"].to_numpy()[order].astype(np.int64)
    _, pair = first_uses(url * (int(etag.max(initial=0)) + 1) + etag)
    first, source = first_uses(pair * (int(seconds.max(initial=0)) + 1) + seconds)
    return ChunkTable(
        index=index,
        kind=np.full(count, ChunkType.virtual, np.uint8),
        source=source.astype(np.uint32),
        offset=rows["offset"].to_numpy()[order],
        length=rows["length"].to_numpy()[order],
        locations=Locations(
            url=strings_of(urls.dictionary)[url[first]],
            etag=strings_of(etags.dictionary)[etag[first]],
            last_modified=seconds[first].astype(np.uint32),
        ),
    )


def _refuse_twice(
    path: str, index: NDArray[np.uint32], order: NDArray[np.int64], rows: Any
) -> None:
    same = np.all(index[1:] == index[:-1], axis=1)
    if not same.any():
        return
    at = int(same.argmax())
    two = [
        {name: rows[name][int(row)].as_py() for name in ("location", "offset", "length")}
        for row in order[at : at + 2]
    ]
    raise InvalidInputError(
        "two references are for the same chunk",
        do="Leave one of them out, or give them different indices.",
        path=path,
        index=index[at].tolist(),
        first=two[0],
        second=two[1],
    )


def send_blocks(
    incoming: bytes, tasks: int, batches: Iterator[pa.RecordBatch]
) -> Iterator[tuple[int, bytes]]:
    """Yield rows in blocks, each with the number of the task that writes its cell.

    Args:
        incoming: An `Incoming`, pickled.
        tasks: How many there are.
        batches: Of rows.
    """
    sorting: Incoming = pickle.loads(incoming)  # noqa: S301  # made by the driver
    counts = (math.prod(target.grid.counts) for target in sorting.targets)
    first = [0, *accumulate(counts)]  # number of each array's first cell
    for block in sorting.blocks(batches):
        yield (first[block.array] + block.cell) % tasks, pickle.dumps(block)


def write_blocks(
    work: tuple[CellWriter, Sequence[TargetArray]], rows: Sequence[bytes]
) -> tuple[WrittenCell, ...]:
    """Write the cells of blocks that `send_blocks` made."""
    blocks: dict[tuple[int, int], list[bytes]] = defaultdict(list)
    for row in rows:
        block: ReferenceBlock = pickle.loads(row)  # noqa: S301  # made by `send_blocks`
        blocks[block.array, block.cell].append(block.payload)
    return tuple(write_cells(*work, blocks))
