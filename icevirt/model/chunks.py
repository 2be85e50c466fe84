"""Hold the chunk references of one array as columns, for scanners, manifests and sessions.

No Python object per chunk exists: a table of a million references is a handful of numpy arrays. A
manifest is a file of such tables. Spec: "Chunk Manifest Files".
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import IntEnum
from operator import lt
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from icevirt.errors import FormatError
from icevirt.ids import ObjectId8, ObjectId12
from icevirt.model import indices
from icevirt.model.strings import Strings

FARTHEST = 1 << 62
"""Bytes that no object has; the sum of an offset and a length stays within 64 bits."""
_FEW = 64  # rows that Python compares faster than numpy


FIRST_SECOND, END_SECOND = 1, 1 << 32
"""Between which times of modification in references lie, in seconds since 1970: the file is not
newer. 0 says that no time is known, so that a file of that very second, or before, has 1."""


class ChunkType(IntEnum):
    """The storage kind of a chunk; names and numbers are icechunk's."""

    uninitialized = 0
    native = 1
    virtual = 2
    inline = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Locations:
    """The distinct objects that virtual references point into, with the checksum of each."""

    url: Strings  # (m,) absolute URLs
    etag: Strings  # (m,) "" where there is none
    last_modified: NDArray[np.uint32]  # (m,) seconds since 1970, 0 where there is none

    def __post_init__(self) -> None:
        if not len(self.url) == len(self.etag) == len(self.last_modified):
            raise ValueError("url, etag and last_modified differ in length")
        self.last_modified.flags.writeable = False

    @classmethod
    def none(cls) -> Locations:
        """Return the empty set of locations, the same one every time."""
        return _NO_LOCATIONS

    @classmethod
    def one(cls, url: str, *, etag: str = "", last_modified: int = 0) -> Locations:
        """Return the single location ``url``; ``last_modified`` in whole seconds, rounded up."""
        return cls(
            url=Strings.of([url]),
            etag=Strings.of([etag]) if etag else _NO_TEXT,
            last_modified=np.array([last_modified], np.uint32),
        )

    @classmethod
    def join(cls, parts: Sequence[Locations]) -> Locations:
        """Return several sets of locations, one behind the other."""
        filled = [part for part in parts if len(part)]
        if len(filled) < 2:
            return filled[0] if filled else _NO_LOCATIONS
        return cls(
            url=Strings.join([part.url for part in parts]),
            etag=Strings.join([part.etag for part in parts]),
            last_modified=np.concatenate([part.last_modified for part in parts]),
        )

    def __len__(self) -> int:
        return len(self.url)

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Locations)
            and self.url == other.url
            and self.etag == other.etag
            and np.array_equal(self.last_modified, other.last_modified)
        )

    __hash__ = None  # type: ignore[assignment]

    def are_only(self, url: str) -> bool:
        """Say whether there is no location but this one."""
        if len(self.url.starts) == 2:
            return self.url.data.tobytes() == url.encode()
        return all(each == url for each in self.url)

    def has_two_checksums(self) -> bool:
        """Say whether an object has an etag and a time, of which a manifest holds the etag."""
        if not len(self.etag.data):
            return False
        return bool(self.last_modified[self.etag.lengths > 0].any())

    def take(self, rows: NDArray[np.integer]) -> Locations:
        """Return the given rows, in their order."""
        return Locations(
            url=self.url[rows], etag=self.etag[rows], last_modified=self.last_modified[rows]
        )

    def part(self, low: int, high: int) -> Locations:
        """Return the rows from one up to another, which share their bytes with these."""
        return Locations(
            url=self.url.part(low, high),
            etag=self.etag.part(low, high),
            last_modified=self.last_modified[low:high],
        )

    def __add__(self, other: Locations) -> Locations:
        return Locations.join([self, other])


_NO_TEXT = Strings.empty(1)
_NO_LOCATIONS = Locations(
    url=Strings.empty(0), etag=Strings.empty(0), last_modified=np.zeros(0, np.uint32)
)
_NO_IDS, _NO_BYTES = np.zeros((0, 12), np.uint8), np.zeros(0, np.uint8)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ChunkTable:
    """Chunk references of one array, a row each, sorted by ``index``, no index twice.

    What ``source`` and ``offset`` mean follows ``kind``: a virtual row is ``length`` bytes at
    ``offset`` of ``locations[source]``; a native row the same of the chunk object
    ``chunk_ids[source]``; an inline row is ``inline[offset:offset + length]`` (``source`` is 0).
    The table takes ownership of its arrays and makes them read-only.
    """

    index: NDArray[np.uint32]  # (n, ndim) chunk coordinates
    kind: NDArray[np.uint8]  # (n,) ChunkType
    source: NDArray[np.uint32]  # (n,)
    offset: NDArray[np.uint64]  # (n,) bytes
    length: NDArray[np.uint64]  # (n,) bytes
    locations: Locations = field(default_factory=Locations.none)
    chunk_ids: NDArray[np.uint8] = field(default_factory=lambda: _NO_IDS)  # (m, 12)
    inline: NDArray[np.uint8] = field(default_factory=lambda: _NO_BYTES)  # (bytes,)

    def __post_init__(self) -> None:
        n = len(self.index)
        if self.index.ndim != 2:
            raise ValueError(f"index has {self.index.ndim} dimensions, not 2")
        for name, dtype in _DTYPES.items():
            column = getattr(self, name)
            if column.dtype != dtype:
                raise ValueError(f"{name} is {column.dtype}, not {dtype}")
            if name in _ROWS and len(column) != n:
                raise ValueError(f"{name} has {len(column)} rows, index has {n}")
            column.setflags(write=False)

    # -- making ------------------------------------------------------------------------------

    @classmethod
    def empty(cls, ndim: int) -> ChunkTable:
        """Return the table of an array none of whose chunks was ever written."""
        return cls(
            index=np.zeros((0, ndim), np.uint32),
            kind=np.zeros(0, np.uint8),
            source=np.zeros(0, np.uint32),
            offset=np.zeros(0, np.uint64),
            length=np.zeros(0, np.uint64),
        )

    @classmethod
    def virtual(
        cls,
        *,
        index: NDArray[np.integer],
        offset: NDArray[np.integer],
        length: NDArray[np.integer],
        locations: Locations,
        source: NDArray[np.integer] | None = None,
    ) -> ChunkTable:
        """Make a table of virtual references in any order; ``source`` defaults to location 0."""
        return cls.in_order(
            index=index, offset=offset, length=length, locations=locations, source=source
        ).sort()

    @classmethod
    def in_order(
        cls,
        *,
        index: NDArray[np.integer],
        offset: NDArray[np.integer],
        length: NDArray[np.integer],
        locations: Locations,
        source: NDArray[np.integer] | None = None,
    ) -> ChunkTable:
        """Make a table of virtual references as they come: ordered, or to be cut into `part`."""
        n = len(index)
        return cls(
            index=np.ascontiguousarray(index, np.uint32),
            kind=np.full(n, ChunkType.virtual, np.uint8),
            source=np.zeros(n, np.uint32) if source is None else source.astype(np.uint32),
            offset=offset.astype(np.uint64),
            length=length.astype(np.uint64),
            locations=locations,
        )

    @classmethod
    def of_inline(cls, *, index: NDArray[np.integer], chunks: Sequence[bytes]) -> ChunkTable:
        """Make a table of inline chunks, in any order, from their encoded bytes."""
        length = np.array([len(chunk) for chunk in chunks], np.uint64)
        offset = np.zeros(len(chunks), np.uint64)
        if len(chunks) > 1:
            np.cumsum(length[:-1], out=offset[1:])
        return cls(
            index=np.ascontiguousarray(index, np.uint32),
            kind=np.full(len(chunks), ChunkType.inline, np.uint8),
            source=np.zeros(len(chunks), np.uint32),
            offset=offset,
            length=length,
            inline=np.frombuffer(b"".join(chunks), np.uint8),
        ).sort()

    @classmethod
    def concatenate(cls, tables: Sequence[ChunkTable]) -> ChunkTable:
        """Join tables of one array whose indices do not meet; locations and ids are appended."""
        if len(tables) == 1:
            return tables[0]
        source, offset = [], []
        places = ids = inline = 0
        for table in tables:
            source.append(table.source)
            offset.append(table.offset)
            if places or ids:
                shift = np.zeros(4, np.int64)
                shift[ChunkType.virtual], shift[ChunkType.native] = places, ids
                source[-1] = (table.source + shift[table.kind]).astype(np.uint32)
            if inline:
                moved = np.where(table.kind == ChunkType.inline, inline, 0).astype(np.uint64)
                offset[-1] = table.offset + moved
            places += len(table.locations)
            ids += len(table.chunk_ids)
            inline += len(table.inline)
        return cls(
            index=np.concatenate([table.index for table in tables]),
            kind=np.concatenate([table.kind for table in tables]),
            source=np.concatenate(source),
            offset=np.concatenate(offset),
            length=np.concatenate([table.length for table in tables]),
            locations=Locations.join([table.locations for table in tables]),
            chunk_ids=np.concatenate([table.chunk_ids for table in tables]),
            inline=np.concatenate([table.inline for table in tables]),
        ).sort()

    # -- asking ------------------------------------------------------------------------------

    def __len__(self) -> int:
        return len(self.index)

    def __eq__(self, other: object) -> bool:
        """Two tables are equal when every column is, locations and blobs included."""
        return (
            isinstance(other, ChunkTable)
            and self.locations == other.locations
            and all(np.array_equal(getattr(self, name), getattr(other, name)) for name in _DTYPES)
        )

    __hash__ = None  # type: ignore[assignment]

    @property
    def ndim(self) -> int:
        """Number of array dimensions."""
        return int(self.index.shape[1])

    def count(self, kind: ChunkType) -> int:
        """Return how many rows are of this kind."""
        return int(np.count_nonzero(self.kind == int(kind)))

    def extents(self) -> tuple[tuple[int, int], ...]:
        """Return the tight bounding box of the indices: (first, last + 1) for each dimension."""
        return indices.extents(self.index)

    def rows_of(self, index: NDArray[np.integer]) -> NDArray[np.int64]:
        """Find the row of each chunk index, shape (k, ndim); -1 where the table has none.

        A dense table is answered by arithmetic, a sparse one by binary search over scalar keys.
        """
        wanted = np.asarray(index, np.int64).reshape(len(index), self.ndim)
        if not len(self):
            return np.full(len(wanted), -1, np.int64)
        box = np.array(self.extents(), np.int64).reshape(-1, 2)
        low, size = box[:, 0], box[:, 1] - box[:, 0]
        inside = np.all((wanted >= low) & (wanted < box[:, 1]), axis=1)
        strides = _strides(size)
        key = ((wanted - low) * strides).sum(axis=1)
        if len(self) == math.prod(size.tolist()):
            return np.where(inside, key, -1)
        keys = ((self.index.astype(np.int64) - low) * strides).sum(axis=1)
        row = np.minimum(np.searchsorted(keys, key), len(self) - 1)
        found: NDArray[np.int64] = np.where(inside & (keys[row] == key), row, -1)
        return found

    # -- changing: each returns a new table ---------------------------------------------------

    def sort(self) -> ChunkTable:
        """Return the table with its rows in lexicographic order of ``index``.

        Raises:
            ValueError: An index occurs twice.
        """
        n = len(self)
        if n < 2:
            return self
        if self.ndim == 0:
            raise ValueError("a 0-d array has one chunk")
        if n <= _FEW:
            rows = self.index.tolist()
            if all(map(lt, rows, rows[1:])):
                return self
        step = indices.least_step(self.index)
        table = self if step >= 0 else self.take(np.lexsort(self.index.T[::-1]))
        if step == 0 or (step < 0 and indices.least_step(table.index) == 0):
            same = np.all(table.index[1:] == table.index[:-1], axis=1)
            raise ValueError(f"chunk {tuple(table.index[int(np.argmax(same))].tolist())} twice")
        return table

    def take(self, rows: NDArray[np.integer] | NDArray[np.bool_]) -> ChunkTable:
        """Return the given rows (or those where a mask is true); shared columns stay whole."""
        return replace(self, index=self.index[rows], **{n: getattr(self, n)[rows] for n in _ROWS})

    def part(self, low: int, high: int) -> ChunkTable:
        """Return the virtual rows from one up to another, which share their columns with these.

        Locations are those from the first that they use up to the last.
        """
        if (low, high) == (0, len(self)):
            return self
        source, locations = self.source[low:high], self.locations
        if low == high:
            locations = Locations.none()
        elif len(locations) > 1:
            first, last = int(np.minimum.reduce(source)), int(np.maximum.reduce(source))
            source, locations = source - np.uint32(first), locations.part(first, last + 1)
        return ChunkTable(
            index=self.index[low:high],
            kind=self.kind[low:high],
            source=source,
            offset=self.offset[low:high],
            length=self.length[low:high],
            locations=locations,
        )

    def reindex(self, index: NDArray[np.integer]) -> ChunkTable:
        """Return the same references, each row at another index; their order is kept."""
        return replace(self, index=np.ascontiguousarray(index, np.uint32))

    def shift(self, by: Sequence[int]) -> ChunkTable:
        """Return the table with ``by`` (one number per dimension) added to every index."""
        moved = self.index.astype(np.int64) + np.asarray(by, np.int64).reshape(1, -1)
        if len(moved) and (moved.min(initial=0) < 0 or moved.max(initial=0) > 0xFFFFFFFF):
            raise ValueError(f"shifting by {tuple(by)} leaves the range of uint32")
        return replace(self, index=moved.astype(np.uint32))


_ROWS = frozenset({"kind", "source", "offset", "length"})
_DTYPES = {
    "index": np.dtype(np.uint32),
    "kind": np.dtype(np.uint8),
    "source": np.dtype(np.uint32),
    "offset": np.dtype(np.uint64),
    "length": np.dtype(np.uint64),
    "chunk_ids": np.dtype(np.uint8),
    "inline": np.dtype(np.uint8),
}


class Manifest(NamedTuple):
    """Chunk tables by node id."""

    id: ObjectId12
    arrays: Mapping[ObjectId8, ChunkTable]
    unkept: tuple[str, ...] = ()  # tables with facts that chunk tables have no column for

    @property
    def num_chunk_refs(self) -> int:
        """References of all arrays together."""
        return sum(len(table) for table in self.arrays.values())

    def refuse_loss(self) -> None:
        """Make sure that writing these references into another manifest loses nothing.

        Raises:
            FormatError: A newer client stored facts that would be lost.
        """
        if self.unkept:
            raise FormatError(
                "a manifest holds fields of a newer client, which rewriting would lose",
                do="Upgrade icevirt to change these arrays; reading them is safe.",
                manifest=str(self.id),
                tables=list(self.unkept),
            )


def _strides(size: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return C-order strides of a box, which must number its chunks in 63 bits."""
    if math.prod(size.tolist()) >= 1 << 63:
        raise ValueError(f"a box of {size.tolist()} chunks has no scalar keys")
    strides = np.ones(len(size), np.int64)
    np.cumprod(size[:0:-1], out=strides[-2::-1]) if len(size) > 1 else None
    return strides
