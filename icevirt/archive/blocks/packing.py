"""Pack chunk references of many files into one row, for the catalog and for shuffles.

A block holds the references of one array in a run of files. Rows of a file are contiguous. Where a
file's references fill a box that begins at chunk 0, the box replaces all their indices. Offsets are
stored as the gap to the end of the previous chunk, which is 0 in most files and compresses away.
References into a scanned file itself carry no URL, only the number of the file; references into
other files (a scanned file of references has such) number the targets that the block lists.

An archive of small files has mostly blocks of a few references each. Unpacked end to end as columns
of bytes, a thousand of them take as long as one.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import lru_cache
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from icevirt.errors import FormatError
from icevirt.model.chunks import ChunkTable, ChunkType, Locations
from icevirt.model.indices import extents
from icevirt.model.strings import Strings, gather


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """References of one array in a run of files, unpacked; ``file`` says whose each row is."""

    file: NDArray[np.int32]  # (n,) row of the file in its catalog part
    index: NDArray[np.uint32]  # (n, ndim) in the file's own chunk grid
    kind: NDArray[np.uint8]  # (n,) ChunkType: virtual or inline
    offset: NDArray[np.uint64]  # (n,) in the file, or in ``data`` for inline rows
    length: NDArray[np.uint64]  # (n,)
    data: NDArray[np.uint8]  # bytes of the inline rows
    source: NDArray[np.uint32]  # (n,) 0: the file itself, else one more than the row in ``targets``
    targets: Locations  # other files

    def __len__(self) -> int:
        return len(self.file)


@dataclass(frozen=True, slots=True, kw_only=True)
class PackedBlock:
    """A block as columns of bytes; the fields are columns of the catalog's ``refs`` table."""

    ndim: int
    files: bytes  # i4 (m,) rows of the files
    counts: bytes  # u4 (m,) references of each file
    boxes: bytes | None  # u4 (m, ndim) grid of each file, where all are dense
    index: bytes | None  # u4 (n, ndim) otherwise
    kinds: bytes | None  # u1 (n,) None: all virtual
    gaps: bytes  # i8 (n,), bytes transposed
    lengths: bytes  # u8 (n,), bytes transposed
    data: bytes
    sources: bytes | None = None  # u4 (n,) None: all references lie in the files themselves
    targets: bytes | None = None  # `pack_targets`

    @property
    def nbytes(self) -> int:
        """Bytes of all columns."""
        columns = (getattr(self, name) for name in COLUMNS)
        return sum(len(column) for column in columns if column is not None)


def pack(
    files: Sequence[int], tables: Sequence[ChunkTable], urls: Sequence[str] | None = None
) -> PackedBlock:
    """Pack the tables of one array, one per file; tables hold virtual and inline rows only.

    ``urls`` are those of the files; without them all references are taken to lie in them.
    """
    if len(tables) == 1 and not len(tables[0].inline) and urls is not None:
        return _pack_one(files[0], tables[0], urls[0])
    ndim = tables[0].ndim
    counts = np.array([len(table) for table in tables], np.uint32)
    boxes = _find_boxes(tables)
    dense = all(box is not None for box in boxes)
    kind = np.concatenate([table.kind for table in tables])
    length = np.concatenate([table.length for table in tables])
    offset = np.concatenate([table.offset for table in tables])
    ends = np.cumsum([0, *(len(table.inline) for table in tables)])
    if ends[-1]:  # inline rows move to where their bytes will lie
        base = np.repeat(ends[:-1].astype(np.uint64), counts)
        offset += np.where(kind == ChunkType.inline, base, np.uint64(0))
    index = np.concatenate([table.index for table in tables])
    return PackedBlock(
        ndim=ndim,
        files=np.asarray(files, "<i4").tobytes(),
        counts=counts.astype("<u4").tobytes(),
        boxes=np.array(boxes, "<u4").tobytes() if dense else None,
        index=None if dense else index.astype("<u4").tobytes(),
        kinds=None if bool(np.all(kind == ChunkType.virtual)) else kind.tobytes(),
        **pack_columns(offset, length),
        data=b"".join(table.inline.tobytes() for table in tables),
        **_number_targets(tables, urls),
    )


def _pack_one(file: int, table: ChunkTable, url: str) -> PackedBlock:
    """Pack the table of one file as `pack` does: of thousands of arrays each has one."""
    (box,) = _find_boxes([table])
    kinds = table.kind.tobytes()
    virtual = len(table) * bytes([ChunkType.virtual])
    return PackedBlock(
        ndim=table.ndim,
        files=file.to_bytes(4, "little"),
        counts=len(table).to_bytes(4, "little"),
        boxes=None if box is None else np.array(box, "<u4").tobytes(),
        index=None if box is not None else table.index.astype("<u4").tobytes(),
        kinds=None if kinds == virtual else kinds,
        **pack_columns(table.offset, table.length),
        data=b"",
        **_number_targets([table], [url]),
    )


def pack_alike(
    files: Sequence[int],
    tables: Sequence[ChunkTable],
    offset: NDArray[np.uint64],
    length: NDArray[np.uint64],
) -> Iterator[PackedBlock]:
    """Pack arrays whose files refer into themselves and have chunks of the same indices.

    Args:
        files: As `pack` takes them.
        tables: Of each array in one of the files, of as many rows each.
        offset: (files, arrays, rows) Of each file.
        length: (files, arrays, rows) Of each file.
    """
    count, rows = len(files), len(tables[0])
    numbers = np.asarray(files, "<i4").tobytes()
    counts = np.full(count, rows, "<u4").tobytes()
    columns = (each.swapaxes(0, 1).reshape(len(tables), -1) for each in (offset, length))
    found = zip(tables, _find_boxes(tables), *_turn_columns(*columns), strict=True)
    for table, box, gaps, lengths in found:
        yield PackedBlock(
            ndim=table.ndim,
            files=numbers,
            counts=counts,
            boxes=np.array([box] * count, "<u4").tobytes() if box is not None else None,
            index=None if box is not None else table.index.astype("<u4").tobytes() * count,
            kinds=None,
            gaps=gaps.tobytes(),
            lengths=lengths.tobytes(),
            data=b"",
        )


def _turn_columns(
    offset: NDArray[np.uint64], length: NDArray[np.uint64]
) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """Return (..., 8, n) columns for (..., n) offsets and lengths; zstd makes little of them."""
    end = offset + length  # wraps only where the sum of a reference does
    gaps = np.array(offset, "<u8", order="C")
    gaps[..., 1:] -= end[..., :-1]
    return _transpose(gaps), _transpose(np.ascontiguousarray(length, "<u8"))


def _transpose(column: NDArray[np.generic]) -> NDArray[np.uint8]:
    """Put equal bytes of all rows together; zstd halves such columns."""
    octets = column.view(np.uint8).reshape(*column.shape, column.itemsize)
    return np.ascontiguousarray(octets.swapaxes(-1, -2))


def pack_columns(offset: NDArray[np.uint64], length: NDArray[np.uint64]) -> dict[str, bytes]:
    """Return the columns for offsets and lengths."""
    gaps, lengths = _turn_columns(offset, length)
    return {"gaps": gaps.tobytes(), "lengths": lengths.tobytes()}


def _number_targets(tables: Sequence[ChunkTable], urls: Sequence[str] | None) -> dict[str, bytes]:
    """Number the targets of references that leave their file, each once."""
    owned = zip(tables, urls or (), strict=urls is not None)
    if all(table.locations.are_only(own) for table, own in owned):
        return {}
    numbers: dict[tuple[str, str, int], int] = {}  # of a few targets, which many files may share
    held, column, count = list[Locations](), list[NDArray[np.uint32]](), 0
    for table, own in zip(tables, urls or (), strict=urls is not None):
        places = table.locations
        if len(places) > _MANY or _lead_away(tables, places, own):
            codes = np.arange(count + 1, count + len(places) + 1)
            held.append(places)
            count += len(places)
        else:
            codes = np.zeros(len(places), np.int64)
            keys = zip(places.url, places.etag, places.last_modified.tolist(), strict=True)
            for row, key in enumerate(keys):
                if key[0] != own and key not in numbers:
                    count += 1
                    numbers[key] = count
                    held.append(places.take(np.array([row])))
                codes[row] = 0 if key[0] == own else numbers[key]
        virtual = table.kind == ChunkType.virtual
        row_of = np.where(virtual, table.source.astype(np.int64), -1)
        column.append(np.append(codes, 0).astype(np.uint32)[row_of])
    return {
        "sources": np.concatenate(column).astype("<u4").tobytes(),
        "targets": pack_targets(Locations.join(held)),
    }


def _lead_away(tables: Sequence[ChunkTable], places: Locations, own: str) -> bool:
    """Say whether a block is of one table, of which no reference lies in the file itself."""
    raw = own.encode()
    if len(tables) == 1 and len(places) <= _FEW and raw not in places.url.data.tobytes():
        return True
    alike = np.flatnonzero(places.url.lengths == len(raw))
    return len(tables) == 1 and not places.url.begin_with(raw, alike).any()


_FEW = 64  # rows that are looked at as bytes
_MANY = 64  # targets of a table: the objects of a store, which no other file shares


def pack_targets(targets: Locations) -> bytes:
    """Return targets as columns: how many, lengths of URLs and etags, times, and all texts.

    Before them is a zero, with which no JSON begins: so older catalogs have them.
    """
    columns = (targets.url.lengths, targets.etag.lengths, targets.last_modified)
    return b"".join(
        [
            b"\0" + len(targets).to_bytes(4, "little"),
            *(column.astype("<u4").tobytes() for column in columns),
            targets.url.data.tobytes(),
            targets.etag.data.tobytes(),
        ]
    )


def unpack_targets(raw: bytes) -> Locations:
    """Undo `pack_targets`. Raises `FormatError`."""
    if raw[:1] != b"\0":
        rows = json.loads(raw or b"[]")
        return Locations(
            url=Strings.of(row[0] for row in rows),
            etag=Strings.of(row[1] for row in rows),
            last_modified=np.array([row[2] for row in rows], np.uint32),
        )
    count, raw = int.from_bytes(raw[1:5], "little"), raw[5:]
    numbers = np.frombuffer(raw[: 12 * count], "<u4")
    texts = np.frombuffer(raw, np.uint8)[12 * count :]
    urls, etags, times = (numbers[at * count : (at + 1) * count] for at in range(3))
    cut = int(urls.sum(dtype=np.int64))
    if len(numbers) != 3 * count or len(texts) != cut + int(etags.sum(dtype=np.int64)):
        raise _error_cut_short(count, len(raw))
    url, etag = Strings(texts[:cut], _ends(urls)), Strings(texts[cut:], _ends(etags))
    if not texts.tobytes().isascii():
        try:
            _ = [*url, *etag]
        except UnicodeDecodeError as error:
            raise _error_cut_short(count, len(raw)) from error
    return Locations(url=url, etag=etag, last_modified=times.astype(np.uint32))


def _ends(lengths: NDArray[np.uint32]) -> NDArray[np.int64]:
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths, dtype=np.int64)])


def _find_boxes(tables: Sequence[ChunkTable]) -> list[tuple[int, ...] | None]:
    """Return the grid that each table fills from chunk 0 on, or None.

    Files that are alike share an index, which is looked at once.
    """
    found: dict[int, tuple[int, ...] | None] = {}
    for table in {id(table.index): table for table in tables}.values():
        index = table.index
        few = len(index) <= _FEW
        found[id(index)] = _box_of_few(index.shape, index.tobytes()) if few else _find_box(index)
    return [found[id(table.index)] for table in tables]


@lru_cache(1024)
def _box_of_few(shape: tuple[int, int], index: bytes) -> tuple[int, ...] | None:
    """Return the box of an index of few rows, which many arrays have."""
    return _find_box(np.frombuffer(index, np.uint32).reshape(shape))


def _find_box(index: NDArray[np.uint32]) -> tuple[int, ...] | None:
    box = extents(index)
    high = tuple(end for _, end in box)
    fills = not any(low for low, _ in box) and math.prod(high) == len(index)
    return high if fills else None


COLUMNS = tuple(field.name for field in fields(PackedBlock) if field.name != "ndim")
"""Those of a packed block that are bytes."""


@dataclass(frozen=True, slots=True)
class BinaryColumn:
    """A column of bytes: those of all rows end to end, of a missing one none."""

    data: NDArray[np.uint8]
    starts: NDArray[np.int64]  # (k + 1,)
    there: NDArray[np.bool_]  # (k,)

    @classmethod
    def of(cls, values: Sequence[bytes | None]) -> BinaryColumn:
        """Make a column."""
        raw = [value or b"" for value in values]
        starts = np.cumsum([0, *map(len, raw)])
        data = raw[0] if len(raw) == 1 else b"".join(raw)
        there = np.array([value is not None for value in values], np.bool_)
        return cls(np.frombuffer(data, np.uint8), starts, there)

    @classmethod
    def missing(cls, rows: int) -> BinaryColumn:
        """Return a column of which no row is there."""
        return cls(np.zeros(0, np.uint8), np.zeros(rows + 1, np.int64), np.zeros(rows, np.bool_))

    @property
    def sizes(self) -> NDArray[np.int64]:
        """Bytes of each row."""
        return self.starts[1:] - self.starts[:-1]

    def part(self, low: int, high: int) -> BinaryColumn:
        """Return some rows."""
        first, last = self.starts[low], self.starts[high]
        return BinaryColumn(
            self.data[first:last], self.starts[low : high + 1] - first, self.there[low:high]
        )

    def numbers(self, dtype: str) -> NDArray[np.generic]:
        """Return what all rows hold as numbers."""
        if len(self.data) % np.dtype(dtype).itemsize:
            raise _error_cut_short(len(self.there), len(self.data))
        return self.data.view(dtype)


@dataclass(frozen=True, slots=True)
class PackedBlocks:
    """Packed blocks of one array as columns, a row each."""

    ndim: NDArray[np.int64]  # (k,)
    columns: Mapping[str, BinaryColumn]  # by the names of `COLUMNS`

    @classmethod
    def of(cls, blocks: Sequence[PackedBlock]) -> PackedBlocks:
        """Make the columns."""
        ndim = np.array([block.ndim for block in blocks], np.int64)
        columns = {
            name: BinaryColumn.of([getattr(each, name) for each in blocks]) for name in COLUMNS
        }
        return cls(ndim, columns)

    def __len__(self) -> int:
        return len(self.ndim)

    def part(self, low: int, high: int) -> PackedBlocks:
        """Return some rows."""
        if high - low == len(self):
            return self
        columns = {name: column.part(low, high) for name, column in self.columns.items()}
        return PackedBlocks(self.ndim[low:high], columns)

    def runs(self, references: int) -> Iterator[tuple[int, int]]:
        """Yield runs of blocks of as many axes that hold so many references, or are one block."""
        ends = np.cumsum(self.columns["gaps"].sizes // 8)
        low = 0
        while low < len(self):
            done = int(ends[low - 1]) if low else 0
            high = max(low + 1, int(np.searchsorted(ends, done + references, side="right")))
            other = np.flatnonzero(self.ndim[low:high] != self.ndim[low])
            high = low + int(other[0]) if len(other) else high
            yield low, high
            low = high


def unpack(packed: PackedBlock) -> Block:
    """Undo `pack`. Raises `FormatError`."""
    return unpack_all(PackedBlocks.of([packed]))


def unpack_all(
    packed: PackedBlocks,
    first: NDArray[np.int64] | None = None,
    place: NDArray[np.int32] | None = None,
) -> Block:
    """Unpack blocks of as many axes, the rows of one behind those of the other.

    Args:
        packed: The blocks.
        first: (k,) Numbers that are added to those of the files of each block.
        place: New numbers of the files, by what that makes.

    Raises:
        FormatError: The columns do not fit together.
    """
    block, n = _unpack_rows(packed, first, place)
    columns, offset, source = packed.columns, block.offset, block.source
    if len(block.data):
        moved = np.repeat(columns["data"].starts[:-1], n)
        inline = block.kind == ChunkType.inline
        offset[inline] += moved[inline].astype(np.uint64)
    ends, held, count = np.cumsum(n), list[Locations](), 0
    for at, targets in _read_targets(columns, source, n):
        mine = source[ends[at] - n[at] : ends[at]]
        mine[mine > 0] += np.uint32(count)
        held.append(targets)
        count += len(targets)
    return replace(block, targets=Locations.join(held))


def unpack_each(packed: PackedBlocks, references: int) -> Iterator[Block]:
    """Unpack blocks one by one, in less time than `unpack`: so many references at once.

    Files keep their numbers. Raises `FormatError`.
    """
    for low, high in packed.runs(references):
        some = packed.part(low, high)
        whole, n = _unpack_rows(some, None, None)
        targets = dict(_read_targets(some.columns, whole.source, n))
        data = some.columns["data"].starts.tolist()
        ends = [0, *np.cumsum(n).tolist()]
        for at, (begin, end) in enumerate(pairwise(ends)):
            yield Block(
                file=whole.file[begin:end],
                index=whole.index[begin:end],
                kind=whole.kind[begin:end],
                offset=whole.offset[begin:end],
                length=whole.length[begin:end],
                data=whole.data[data[at] : data[at + 1]],
                source=whole.source[begin:end],
                targets=targets.get(at, Locations.none()),
            )


def _unpack_rows(
    packed: PackedBlocks, first: NDArray[np.int64] | None, place: NDArray[np.int32] | None
) -> tuple[Block, NDArray[np.int64]]:
    """Unpack blocks, and say how many references each has.

    Inline rows and sources count from where their own block begins, and there are no targets yet.
    """
    columns, ndim = packed.columns, int(packed.ndim[0])
    files = columns["files"].numbers("<i4").astype(np.int64)
    counts = columns["counts"].numbers("<u4").astype(np.int64)
    of_files, of_counts = columns["files"].sizes, columns["counts"].sizes
    if (wrong := np.flatnonzero(of_files != of_counts)).size:
        raise FormatError(
            "a packed block of the catalog is damaged",
            do="Delete this part of the catalog and scan again.",
            files=int(of_files[wrong[0]]) // 4,
            counts=int(of_counts[wrong[0]]) // 4,
        )
    if first is not None:
        files += np.repeat(first, columns["files"].sizes // 4)
    file = files.astype(np.int32) if place is None else place[files]
    done = np.concatenate([[0], np.cumsum(counts)])
    n = np.diff(done[columns["counts"].starts // 4])  # references of each block
    length = _straighten(columns["lengths"], n)
    kind = np.full(len(length), ChunkType.virtual, np.uint8)
    _spread(kind, columns["kinds"], n, "u1")
    offset = _sum_gaps(_straighten(columns["gaps"], n), length, n)
    index = np.empty((ndim, int(n.sum())), np.uint32).T  # those of an axis side by side
    _spread(index, columns["index"], n, "<u4", ndim)
    if not columns["index"].there.all():
        _fill_boxes(index, columns, counts, ndim)
    source = np.zeros(len(length), np.uint32)
    _spread(source, columns["sources"], n, "<u4")
    block = Block(
        file=np.repeat(file, counts),
        index=index,
        kind=kind,
        offset=offset,
        length=length,
        data=columns["data"].data,
        source=source,
        targets=Locations.none(),
    )
    return block, n


def _error_cut_short(rows: int, size: int) -> FormatError:
    return FormatError("a packed column of the catalog is cut short", rows=rows, bytes=size)


def _check_sizes(column: BinaryColumn, wanted: NDArray[np.int64]) -> None:
    wrong = np.flatnonzero(column.there & (column.sizes != wanted))
    if len(wrong):
        raise _error_cut_short(int(wanted[wrong[0]]), int(column.sizes[wrong[0]]))


def _straighten(column: BinaryColumn, n: NDArray[np.int64]) -> NDArray[np.uint64]:
    """Put the bytes of each number together again; in a block, equal bytes of all stand so.

    The upper bytes of most columns are zeros, which are not looked at one by one.
    """
    _check_sizes(column, 8 * n)
    if not column.there.all():
        raise _error_cut_short(int(n.sum()), len(column.data))
    out = np.zeros((len(column.data) // 8, 8), np.uint8)
    at = column.starts[:-1] // 8
    for count in np.unique(n[n > 0]).tolist():
        mine = np.flatnonzero(n == count)
        if len(mine) == len(n):
            _turn(column.data.reshape(len(n), 8, count), out.reshape(len(n), count, 8))
        else:
            raw, _ = gather(column.data, column.starts[:-1][mine], 8 * n[mine])
            rows = np.zeros((len(mine), count, 8), np.uint8)
            _turn(raw.reshape(len(mine), 8, count), rows)
            out[at[mine][:, None] + np.arange(count)] = rows
    return out.reshape(-1).view("<u8").view(np.uint64)


def _turn(turned: NDArray[np.uint8], out: NDArray[np.uint8]) -> None:
    """Put bytes of a number beside each other; ``out`` is zeros."""
    for byte in range(8):
        if (column := turned[:, byte]).any():
            out[:, :, byte] = column


def _spread(
    out: NDArray[np.generic], column: BinaryColumn, n: NDArray[np.int64], dtype: str, width: int = 1
) -> None:
    if not column.there.any():
        return
    _check_sizes(column, n * width * np.dtype(dtype).itemsize)
    rows = np.repeat(column.there, n)
    out[rows] = column.numbers(dtype).reshape(np.count_nonzero(rows), *out.shape[1:])


def _sum_gaps(
    gaps: NDArray[np.uint64], length: NDArray[np.uint64], n: NDArray[np.int64]
) -> NDArray[np.uint64]:
    """Return offsets, in the place of gaps: sums of gaps and lengths, for each block anew.

    Sums wrap as they did in `pack`.
    """
    begins = (np.cumsum(n) - n)[n > 0]
    first = gaps[begins]
    gaps[1:] += length[:-1]
    gaps[begins] = first
    if len(begins) > 1:  # what a block adds up to is taken away where the next one begins
        gaps[begins[1:]] -= np.add.reduceat(gaps, begins)[:-1]
    return np.cumsum(gaps, dtype=np.uint64, out=gaps)


def _fill_boxes(
    out: NDArray[np.uint32],
    columns: Mapping[str, BinaryColumn],
    counts: NDArray[np.int64],
    ndim: int,
) -> None:
    files = columns["files"].sizes // 4
    dense = ~columns["index"].there
    _check_sizes(columns["boxes"], 4 * ndim * files)
    mine = np.repeat(dense, files)
    begins, held = (np.cumsum(counts) - counts)[mine], columns["boxes"]
    raw = held.data
    if not dense.all():
        raw = gather(held.data, held.starts[:-1][dense], held.sizes[dense])[0]
    if len(raw) != 4 * ndim * len(begins):
        raise _error_cut_short(len(begins), len(raw))
    boxes = raw.view("<u4").reshape(len(begins), ndim)
    if (boxes.astype(np.int64).prod(axis=1) != counts[mine]).any():
        raise _error_cut_short(len(begins), len(raw))
    distinct, which = boxes[:1], np.zeros(len(boxes), np.intp)
    if (boxes != distinct).any():  # seldom
        distinct, which = np.unique(boxes, axis=0, return_inverse=True)
    for number, box in enumerate(distinct):
        grid = np.indices(tuple(box), np.uint32).reshape(ndim, math.prod(box.tolist()))
        if len(distinct) == 1 and len(out) == begins.size * grid[:1].size:  # as nearly always
            for own, axis in zip(out.T, grid, strict=True):
                own.reshape(len(begins), len(axis))[:] = axis
            return
        members = begins[which.reshape(-1) == number]
        out[members[:, None] + np.arange(len(grid.T))] = grid.T


def _read_targets(
    columns: Mapping[str, BinaryColumn], source: NDArray[np.uint32], n: NDArray[np.int64]
) -> Iterator[tuple[int, Locations]]:
    """Yield the blocks that have targets, with these."""
    targets, ends = columns["targets"], np.cumsum(n)
    for block in np.flatnonzero(columns["sources"].there).tolist():
        raw = targets.data[targets.starts[block] : targets.starts[block + 1]].tobytes()
        found = unpack_targets(raw)
        if int(source[ends[block] - n[block] : ends[block]].max(initial=0)) > len(found):
            raise FormatError(
                "a packed column of the catalog refers to missing targets",
                rows=int(n[block]),
            )
        yield block, found
