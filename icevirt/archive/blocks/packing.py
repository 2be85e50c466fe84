"""Pack chunk references of many files into one row, for the catalog and for shuffles.

A block holds the references of one array in a run of files. Rows of a file are contiguous. Where a
file's references fill a box that begins at chunk 0, the box replaces all their indices. Offsets are
stored as the gap to the end of the previous chunk, which is 0 in most files and compresses away.
References into a scanned file itself carry no URL, only the number of the file; references into
other files (a scanned file of references has such) number the targets that the block lists.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import NDArray

from icevirt.model.chunks import ChunkTable, ChunkType, Locations


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
    targets: bytes | None = None  # JSON: [[url, etag, last modified], ...]

    @property
    def nbytes(self) -> int:
        """Bytes of all columns."""
        columns = (getattr(self, field.name) for field in fields(self))
        return sum(len(column) for column in columns if isinstance(column, bytes))


def pack(
    files: Sequence[int], tables: Sequence[ChunkTable], urls: Sequence[str] | None = None
) -> PackedBlock:
    """Pack the tables of one array, one per file; tables hold virtual and inline rows only.

    ``urls`` are those of the files; without them all references are taken to lie in them.
    """
    ndim = tables[0].ndim
    counts = np.array([len(table) for table in tables], np.uint32)
    boxes = _boxes(tables)
    dense = all(box is not None for box in boxes)
    kind = np.concatenate([table.kind for table in tables])
    length = np.concatenate([table.length for table in tables])
    offset = _blob_offsets(tables, counts, kind)
    index = np.concatenate([table.index for table in tables])
    return PackedBlock(
        ndim=ndim,
        files=np.asarray(files, "<i4").tobytes(),
        counts=counts.astype("<u4").tobytes(),
        boxes=np.array(boxes, "<u4").tobytes() if dense else None,
        index=None if dense else index.astype("<u4").tobytes(),
        kinds=None if bool(np.all(kind == ChunkType.virtual)) else kind.tobytes(),
        **packed_columns(offset, length),
        data=b"".join(table.inline.tobytes() for table in tables),
        **_targets(tables, urls),
    )


def packed_columns(offset: NDArray[np.uint64], length: NDArray[np.uint64]) -> dict[str, bytes]:
    """Return the columns for offsets and lengths; zstd makes little of them."""
    return {
        "gaps": _transpose(_gaps(offset, length)),
        "lengths": _transpose(length.astype("<u8")),
    }


def _targets(tables: Sequence[ChunkTable], urls: Sequence[str] | None) -> dict[str, bytes]:
    """Number the targets of references that leave their file, each once."""
    owned = zip(tables, urls or (), strict=urls is not None)
    if all(table.locations.are_only(own) for table, own in owned):
        return {}
    numbers: dict[tuple[str, str, int], int] = {}
    column = []
    for table, own in zip(tables, urls or (), strict=urls is not None):
        held = table.locations
        keys = zip(held.url, held.etag, held.last_modified.tolist(), strict=True)
        codes = [0 if key[0] == own else numbers.setdefault(key, len(numbers) + 1) for key in keys]
        virtual = table.kind == ChunkType.virtual
        row = np.where(virtual, table.source.astype(np.int64), -1)
        column.append(np.array([*codes, 0], np.uint32)[row])
    return {
        "sources": np.concatenate(column).astype("<u4").tobytes(),
        "targets": json.dumps(list(numbers)).encode(),
    }


def _boxes(tables: Sequence[ChunkTable]) -> list[tuple[int, ...] | None]:
    """Return the box of each table; files that are alike share an index."""
    shared = {id(table.index): table for table in tables}
    found = {key: _box(table) for key, table in shared.items()}
    return [found[id(table.index)] for table in tables]


def _box(table: ChunkTable) -> tuple[int, ...] | None:
    """Return the grid that the table fills from chunk 0 on, or None."""
    extents = table.extents()
    volume = 1
    for low, high in extents:
        if low:
            return None
        volume *= high
    return tuple(high for _, high in extents) if volume == len(table) else None


def _blob_offsets(
    tables: Sequence[ChunkTable], counts: NDArray[np.uint32], kind: NDArray[np.uint8]
) -> NDArray[np.uint64]:
    """Return the offsets of all rows, inline ones moved to where their bytes will lie."""
    offset = np.concatenate([table.offset for table in tables])
    ends = np.cumsum([0, *(len(table.inline) for table in tables)])
    if ends[-1]:
        base = np.repeat(ends[:-1].astype(np.uint64), counts)
        offset += np.where(kind == ChunkType.inline, base, np.uint64(0))
    return offset


def _gaps(offset: NDArray[np.uint64], length: NDArray[np.uint64]) -> NDArray[np.int64]:
    end = offset + length  # wraps only where the sum of a reference does
    gaps = offset.copy()
    gaps[1:] -= end[:-1]
    return gaps.view(np.int64)


def _transpose(column: NDArray[np.generic]) -> bytes:
    """Put equal bytes of all rows together; zstd halves such columns."""
    return np.ascontiguousarray(
        column.view(np.uint8).reshape(len(column), column.itemsize).T
    ).tobytes()
