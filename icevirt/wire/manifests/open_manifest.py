"""Read references of manifests: all of an array, or only those that are requested.

Spec: "Chunk Manifest Files". References are ordered by index, so bisection finds them. All about a
reference, its index too, is checked when it is decoded. A chunk is said to be absent only after the
order of all references was checked. So a lookup answers what decoding the whole manifest would, or
raises; damage of references that are not requested may stay unseen.

The fields of a row decide its kind; if it has several, the official reader's precedence holds:
chunk_id, compressed_location, location, inline. A location that a million rows share is read once.
Compressed locations are complete zstd frames, which declare their size, made with a trained
dictionary; the official reader takes locations of up to 1,024 bytes.
"""

from __future__ import annotations

from contextlib import suppress
from functools import cached_property
from math import ceil
from typing import TYPE_CHECKING

import numpy as np
import zstandard
from numpy.typing import NDArray

from icevirt.ids import ObjectId8, ObjectId12
from icevirt.model.chunks import FARTHEST, ChunkTable, ChunkType, Locations, Manifest
from icevirt.model.strings import Bytes, Places, Strings, StringsWithin, gather
from icevirt.wire import header
from icevirt.wire.flatbuffer.reader import (
    FlatBufferReader,
    Payload,
    Span,
    Tables,
    array,
    check_order,
    reading,
    text,
)
from icevirt.wire.flatbuffer.schema import ARRAY_MANIFEST, CHUNK_REF, MANIFEST, Damage
from icevirt.wire.header import FileKind
from icevirt.wire.manifests.distinct_rows import equal_ranges, first_uses, looks_distinct

if TYPE_CHECKING:
    from icevirt.wire.manifests.index_search import IndexSearch


MAX_LOCATION = 1024
_MAGIC = 0xFD2FB528
MAX_RATIO = 64  # a frame of a location is never shorter than a 64th of the longest
ALWAYS_ALLOWED = 1 << 20  # bytes
_SHORTEST = 6  # magic, descriptor, a byte of size or window
_ID_SIZES = np.array([0, 1, 2, 4])


class Dictionary:
    """A trained dictionary, ready to use."""

    def __init__(self, trained: bytes) -> None:
        self.trained = trained
        try:
            self._dictionary = zstandard.ZstdCompressionDict(
                trained, dict_type=zstandard.DICT_TYPE_FULLDICT
            )
        except (ValueError, zstandard.ZstdError) as error:
            raise Damage(f"not a zstd dictionary: {error}", 0) from None

    @classmethod
    def train(cls, samples: list[bytes], size: int) -> Dictionary | None:
        """Train on samples, always to the same result; None when they do not give a dictionary."""
        total = sum(map(len, samples))
        if not total or min(map(len, samples)) < 1:
            return None
        # as the official client does with short samples
        enough: list[bytes | bytearray | memoryview] = [*samples] * ceil(size / total)
        try:
            return cls(zstandard.train_dictionary(size, enough).as_bytes())
        except zstandard.ZstdError:
            return None

    def decompress(self, frames: Bytes, starts: Places) -> tuple[Bytes, Places]:
        """Return the contents of frames that lie end to end, in the same way. Raises ``Damage``."""
        if len(starts) == 1:
            return np.zeros(0, np.uint8), starts
        content_sizes(frames, starts[:-1], np.diff(starts))
        try:
            reader = zstandard.ZstdDecompressor(dict_data=self._dictionary)
            made = reader.multi_decompress_to_buffer(_segments(frames, starts))
        except zstandard.ZstdError as error:
            raise Damage(f"a compressed location is damaged: {error}", 0) from None
        return _join(made)

    def compress(self, data: Bytes, starts: Places, level: int) -> tuple[Bytes, Places]:
        """Return a frame for each string; strings and frames lie end to end."""
        if len(starts) == 1:
            return np.zeros(0, np.uint8), starts
        writer = zstandard.ZstdCompressor(level=level, dict_data=self._dictionary)
        return _join(writer.multi_compress_to_buffer(_segments(data, starts)))


def _segments(data: Bytes, starts: Places) -> zstandard.BufferWithSegments:
    pairs = np.stack([starts[:-1], np.diff(starts)], axis=1).astype("<u8")
    return zstandard.BufferWithSegments(data.tobytes(), pairs.tobytes())


def _join(made: zstandard.BufferWithSegmentsCollection) -> tuple[Bytes, Places]:
    """Return what the library made, end to end, and where each begins."""
    parts = [made[row].tobytes() for row in range(len(made))]
    return np.frombuffer(b"".join(parts), np.uint8), np.cumsum([0, *map(len, parts)])


def content_sizes(data: Bytes, at: Places, length: Places) -> NDArray[np.int64]:
    """Return the size that the header of every frame declares, a possible one. Raises ``Damage``.

    The decoder would take the memory that a header asks for, so it is read here first.
    """
    size = _read_declared(data, at, length)
    if int(size.max()) > MAX_LOCATION or int(size.min()) < 1:
        raise Damage("a location of an impossible length", int(np.argmax(size)))
    if int(size.sum()) > max(ALWAYS_ALLOWED, MAX_RATIO * int(length.sum())):
        raise Damage("locations decompress to an impossible size", 0)
    return size


def _read_declared(frames: Bytes, at: Places, length: Places) -> NDArray[np.int64]:
    if int(length.min()) < _SHORTEST:
        raise Damage("a compressed location is cut short", int(np.argmin(length)))
    magic = _little_endian(frames, at, 4)
    descriptor = frames[at + 4].astype(np.int64)
    single = descriptor >> 5 & 1
    flag = descriptor >> 6
    width = np.where(flag == 0, single, 1 << flag)  # 0: no size is declared
    place = at + 5 + (1 - single) + _ID_SIZES[descriptor & 3]
    if bool((magic != _MAGIC).any() or (width == 0).any() or (place + width > at + length).any()):
        raise Damage("a compressed location is not a frame with a declared size", 0)
    size = np.full(len(at), MAX_LOCATION + 1)  # wide sizes are of no location
    for size_of, base in ((1, 0), (2, 256), (4, 0)):
        rows = np.flatnonzero(width == size_of)
        size[rows] = _little_endian(frames, place[rows], size_of) + base
    return size


def _little_endian(data: Bytes, at: Places, width: int) -> NDArray[np.int64]:
    found: NDArray[np.int64] = data[at[:, None] + np.arange(width)] @ (1 << 8 * np.arange(width))
    return found


type Rows = Places | slice  # a slice: all of them

_WORTH_KEEPING = 3  # strings are read where they stand when the payload is not much more than they
_FEW_FRAMES = 1 << 10  # decompressed in a millisecond
_WIDTH = 4  # of the length before each string
_BLOCK = 1 << 18  # stays in the processor's cache
# field, what a row that has it is; later ones win
_KINDS = (
    ("inline", ChunkType.inline),
    ("location", ChunkType.virtual),
    ("compressed_location", ChunkType.virtual),
    ("chunk_id", ChunkType.native),
)


def read_table(locator: LocationReader, span: Span) -> tuple[ChunkTable, bool]:
    """Read one array's references; say too whether that is all there is. Raises ``Damage``."""
    if not span.count:
        return ChunkTable.empty(0), True
    refs = Tables(locator.payload, span, CHUNK_REF)
    index = refs.coordinates("index")
    check_order(index)
    return _table(locator, refs, index), not refs.stores_from(CHUNK_REF.slots["extra"])


def read_rows(locator: LocationReader, span: Span, rows: Places) -> ChunkTable:
    """Read some of an array's references, one or more, given in order. Raises ``Damage``."""
    refs = Tables(locator.payload, span.start + 4 * rows, CHUNK_REF)
    return _table(locator, refs, refs.coordinates("index"))


def _table(locator: LocationReader, refs: Tables, index: NDArray[np.uint32]) -> ChunkTable:
    rows = _TableColumns(locator, refs)
    locations = rows.virtual()
    if not isinstance(locations.url, StringsWithin):  # which keep the payload for all columns
        index = index.copy()
        rows.copy()
    table = ChunkTable(
        chunk_ids=rows.native(),
        locations=locations,
        inline=rows.inline(),
        index=index,
        kind=rows.kind,
        source=rows.source,
        offset=rows.offset,
        length=rows.length,
    )
    for name, column in (("offset", table.offset), ("length", table.length)):
        if int(column.max()) >= FARTHEST:
            raise Damage(f"the {name} of a reference is larger than any object", 0)
    return table


class _TableColumns:
    """The columns of one array's table, filled in kind by kind."""

    def __init__(self, locator: LocationReader, refs: Tables) -> None:
        self._locator = locator
        self._refs = refs
        kind = np.zeros(len(self._refs), np.uint8)
        for name, value in _KINDS:
            if (places := self._refs.places(name)) is None:
                continue
            kind[:] = value if isinstance(places, range) else np.where(places != 0, value, kind)
        if not kind.all():
            raise Damage("a reference is neither native nor virtual nor inline", 0)
        self.kind = kind
        self.source = np.zeros(len(refs), np.uint32)
        self.offset: NDArray[np.uint64] = refs.numbers("offset", 8).astype(np.uint64, copy=False)
        self.length: NDArray[np.uint64] = refs.numbers("length", 8).astype(np.uint64, copy=False)

    def copy(self) -> None:
        """Copy the columns that may still lie in the payload."""
        self.offset, self.length = self.offset.copy(), self.length.copy()

    def native(self) -> Bytes:
        """Return the ids of chunk objects, one for each native row."""
        if (places := self._refs.places("chunk_id")) is None:
            return np.zeros((0, 12), np.uint8)
        rows = np.flatnonzero(self.kind == ChunkType.native)
        self.source[rows] = np.arange(len(rows))
        found: Bytes = self._locator.payload.bytes[array(places)[rows][:, None] + np.arange(12)]
        return found

    def virtual(self) -> Locations:
        """Return the distinct locations of virtual rows."""
        virtual = self.kind == ChunkType.virtual
        if not virtual.any():
            return Locations.none()
        rows = slice(None) if virtual.all() else np.flatnonzero(virtual)
        locations, self.source[rows] = self._locator.read(self._refs, rows)
        return locations

    def inline(self) -> Bytes:
        """Return the bytes of inline rows, end to end."""
        if (found := self._refs.vectors("inline", 1)) is None:
            return np.zeros(0, np.uint8)
        present, start, count = found
        rows = np.arange(len(self._refs)) if present is None else present
        keep = self.kind[rows] == ChunkType.inline
        rows, start, count = rows[keep], array(start)[keep], count[keep]
        payload = self._locator.payload
        if int(count.sum()) > payload.size:
            raise Damage("inline chunks overlap", int(start[0]))
        data, starts = gather(payload.bytes, start, count)
        self.copy()
        self.offset[rows], self.length[rows] = starts[:-1], count
        return data


class LocationReader:
    """Reads locations of one manifest, whose arrays share a payload and a dictionary.

    ``compares`` says whether equal locations are one that do not share a string.
    """

    def __init__(
        self, payload: Payload, algorithm: int, trained: bytes | None, *, compares: bool = True
    ) -> None:
        self.payload = payload
        self.algorithm = algorithm
        self.trained = trained
        self.compares = compares

    @cached_property
    def dictionary(self) -> Dictionary:
        """What decompresses locations, made for the first compressed one."""
        if self.algorithm != 1 or self.trained is None:
            raise Damage("a compressed location, but no dictionary to decompress it", 0)
        return Dictionary(self.trained)

    def read(self, refs: Tables, rows: Rows) -> tuple[Locations, Places]:
        """Return the distinct locations of ``rows`` of the references, and each row's number."""
        url, rank = self._urls(refs, rows)
        etags = _ranges(refs, "checksum_etag", rows)
        etag, etag_rank = (Strings.empty(0), None) if etags is None else self._strings(*etags)
        seconds = None
        if refs.places("checksum_last_modified") is not None:
            seconds = refs.numbers("checksum_last_modified", 4)[rows].astype(np.int64)
        if etag_rank is None and seconds is None:
            nothing = np.zeros(len(url), np.uint32)
            return Locations(url=url, etag=Strings.empty(len(url)), last_modified=nothing), rank
        keys = rank
        for part in (etag_rank, seconds):
            if part is not None:
                # renumber at every step, so that products stay far below 63 bits
                _, keys = first_uses(keys * (int(part.max(initial=0)) + 1) + part)
        first, keys = first_uses(keys)
        count = len(first)
        found = Locations(
            url=url[rank[first]],
            etag=Strings.empty(count) if etag_rank is None else etag[etag_rank[first]],
            last_modified=np.zeros(count, np.uint32)
            if seconds is None
            else seconds[first].astype(np.uint32),
        )
        return found, keys

    def _urls(self, refs: Tables, rows: Rows) -> tuple[Strings, Places]:
        plain = _ranges(refs, "location", rows)
        packed = _ranges(refs, "compressed_location", rows)
        if packed is None:
            assert plain is not None
            return self._strings(*plain)
        hidden = packed[0] != 0  # compressed ones go first
        if plain is None or hidden.all():
            return self._unpack(*packed)
        names, rank = self._strings(*(column[~hidden] for column in plain))
        more, more_rank = self._unpack(*(column[hidden] for column in packed))
        both = np.empty(len(hidden), np.int64)
        both[~hidden], both[hidden] = rank, more_rank + len(names)
        return names + more, both

    def _strings(self, start: Places, length: Places) -> tuple[Strings, Places]:
        """Return the distinct strings among these, and every row's number."""
        first, rank = self._distinct(start, length)
        start, length = _rows(start, first), _rows(length, first)
        if _WORTH_KEEPING * int(length.sum()) > self.payload.size and _stand_apart(
            self.payload.bytes, start, length
        ):
            return StringsWithin(self.payload.bytes, start, length), rank
        return text(*gather(self.payload.bytes, start, length)), rank

    def _unpack(self, start: Places, length: Places) -> tuple[Strings, Places]:
        first, rank = self._distinct(start, length)
        start, length = _rows(start, first), _rows(length, first)
        size = content_sizes(self.payload.bytes, start, length)
        if len(size) > _FEW_FRAMES and _WORTH_KEEPING * int(size.sum()) > self.payload.size:
            return Frames(self.dictionary, self.payload.bytes, start, length), rank
        return text(*self.dictionary.decompress(*gather(self.payload.bytes, start, length))), rank

    def _distinct(self, start: Places, length: Places) -> tuple[Places, Places]:
        """Tell equal ranges by their place, which is cheap, then by their bytes."""
        first, rank = first_uses(start)
        start, length = _rows(start, first), _rows(length, first)
        if int(length.sum()) > self.payload.size:
            raise Damage("strings overlap", int(start[0]))
        if (
            not self.compares
            or len(first) == 1
            or looks_distinct(self.payload.padded, start, length)
        ):
            return first, rank
        again, number = equal_ranges(self.payload.padded, start, length)
        return first[again], number[rank]


class Frames(StringsWithin):
    """Compressed strings, decompressed on first use.

    Damage that only decompression can find raises ``FormatError`` then.
    """

    _dictionary: Dictionary
    _left: int

    def __init__(self, dictionary: Dictionary, around: Bytes, at: Places, size: Places) -> None:
        """Take over frames whose headers were checked."""
        super().__init__(around, at, size)
        vars(self).update(_dictionary=dictionary, _left=_FEW_FRAMES)

    @property
    def lengths(self) -> NDArray[np.int64]:
        """Bytes of each string, shape (n,)."""
        return self._all.lengths

    def _one(self, row: int) -> str:
        vars(self)["_left"] -= 1
        if self._left > 0:
            return self._gather(np.array([row]))[0]
        return self._all[row]  # after so many reads one by one, all are wanted

    def _gather(self, rows: NDArray[np.int64]) -> Strings:
        frames = super()._gather(rows)
        with reading(FileKind.manifest.name):
            return text(*self._dictionary.decompress(frames.data, frames.starts))


def _rows(column: Places, rows: Places) -> Places:
    """Return rows of a column, of which none comes twice; all of them without a copy."""
    return column if len(rows) == len(column) and rows[-1:] == len(rows) - 1 else column[rows]


def _stand_apart(data: Bytes, start: Places, length: Places) -> bool:
    """Say whether strings lie one behind the other, each behind its length, and are ASCII.

    No look at each string is needed for that: every byte above 0x7F between the first and the last
    must belong to one of the lengths.
    """
    if not bool((start[1:] - _WIDTH >= start[:-1] + length[:-1]).all()):
        return False
    in_lengths = np.count_nonzero(length.astype("<u4").view(np.uint8) >= 0x80)
    between = data[int(start[0]) - _WIDTH : int(start[-1] + length[-1])]
    blocks = (between[at : at + _BLOCK] for at in range(0, len(between), _BLOCK))
    return sum(int(np.count_nonzero(block >= 0x80)) for block in blocks) == in_lengths


def _ranges(refs: Tables, name: str, rows: Rows) -> tuple[Places, Places] | None:
    """Return where the strings of a field start (0 where it is absent), and their lengths."""
    if refs.places(name) is None:
        return None
    start, length = refs.spans(name, 1)
    return start[rows], length[rows]


_FILE = FileKind.manifest.name


class OpenManifest:
    """A manifest whose small tables were read, and whose references were not.

    Raises:
        FormatError: It is damaged.
    """

    def __init__(self, raw: bytes) -> None:
        data, size = header.unpack_array(raw, FileKind.manifest)
        del raw  # which is let go of, unless the caller keeps it
        data.flags.writeable = False
        with reading(_FILE):
            reader = FlatBufferReader(memoryview(data)[:size])
            values = reader.root(MANIFEST)
            self.id = ObjectId12(values["id"])
            self._payload = Payload(data, size)
            how = values["compression_algorithm"], values["location_dictionary"]
            self._locator = LocationReader(self._payload, *how)
            # comparing few locations takes longer than reading them
            self._few = LocationReader(self._payload, *how, compares=False)
            self._unkept = {*reader.newer}
            if values["extra"] is not None:
                self._unkept.add(MANIFEST.name)
            self._spans: dict[ObjectId8, Span] = {}
            left = size // 4
            for each in values["arrays"]:
                node, span = ObjectId8(each["node_id"]), each["refs"]
                left -= span.count
                if left < 0 or node in self._spans:
                    raise Damage("an array is listed twice, or its references are", span.start)
                self._spans[node] = span
                if each["extra"] is not None:
                    self._unkept.add(ARRAY_MANIFEST.name)
        self._searches: dict[ObjectId8, IndexSearch] = {}

    @property
    def num_arrays(self) -> int:
        """Arrays that have references here."""
        return len(self._spans)

    @property
    def num_chunk_refs(self) -> int:
        """References of all arrays together."""
        return sum(span.count for span in self._spans.values())

    @property
    def nbytes(self) -> int:
        """Memory held."""
        return self._payload.size + sum(search.nbytes for search in self._searches.values())

    def decode_array(self, node: ObjectId8) -> ChunkTable | None:
        """Decode the references of one array, if there are some. Raises ``FormatError``."""
        if (span := self._spans.get(node)) is None:
            return None
        with reading(_FILE):
            return read_table(self._locator, span)[0]

    def decode(self) -> Manifest:
        """Decode all references. Raises ``FormatError``."""
        found: dict[ObjectId8, ChunkTable] = {}
        unkept = set(self._unkept)
        with reading(_FILE):
            for node, span in self._spans.items():
                found[node], whole = read_table(self._locator, span)
                if not whole:
                    unkept.add(CHUNK_REF.name)
            return Manifest(id=self.id, arrays=found, unkept=tuple(sorted(unkept)))

    def read_indices(self) -> dict[ObjectId8, NDArray[np.uint32]]:
        """Return the indices of the chunks of each array that has some, ``(n, ndim)`` each.

        All arrays are read together: a manifest may hold thousands with a few references each.

        Raises:
            FormatError: The manifest is damaged.
        """
        filled = {node: span for node, span in self._spans.items() if span.count}
        if not filled:
            return {}
        places = [np.arange(s.start, s.start + 4 * s.count, 4) for s in filled.values()]
        counts = np.array([span.count for span in filled.values()])
        with reading(_FILE):
            refs = Tables(self._payload, np.concatenate(places), CHUNK_REF)
            return dict(zip(filled, refs.coordinates_by_run("index", counts), strict=True))

    def count_compressed(self) -> tuple[int | None, int]:
        """Return the bytes of the dictionary of locations, and how many references use it.

        Raises:
            FormatError: The manifest is damaged.
        """
        used, trained = 0, self._locator.trained
        with reading(_FILE):
            for span in (each for each in self._spans.values() if each.count):
                refs = Tables(self._payload, span, CHUNK_REF)
                if (found := refs.vectors("compressed_location", 1)) is not None:
                    used += len(found[1])
        return None if trained is None else len(trained), used

    def is_proven(self, node: ObjectId8) -> bool:
        """Say whether lookups look at few references of an array, whatever they are to find."""
        search = self._searches.get(node)
        return node not in self._spans or (search is not None and search.is_proven)

    def find(self, node: ObjectId8, wanted: NDArray[np.int64]) -> tuple[Places, ChunkTable]:
        """Look chunks of an array up by their indices, shape (k, ndim).

        Returns:
            Which of the k were found, and a table with a row for each of those.

        Raises:
            FormatError: One is not found and the references are not in order, or one that was
                found is damaged.
        """
        span = self._spans.get(node)
        if span is None or not span.count or not len(wanted):
            return np.zeros(0, np.int64), ChunkTable.empty(wanted.shape[1])
        with reading(_FILE):
            search = self._searches.get(node) or self._search(node, span)
            if not search.is_proven and (found := self._likely(search, span, wanted)) is not None:
                return np.arange(len(wanted)), found
            row = search.rows(wanted)
            there = np.flatnonzero(row >= 0)
            if not len(there):
                return there, ChunkTable.empty(wanted.shape[1])
            found = self._decode_rows(span, row[there])
            if not np.array_equal(found.index, wanted[there]):
                raise Damage("a reference has another number of dimensions than the others", 0)
            return there, found

    def _search(self, node: ObjectId8, span: Span) -> IndexSearch:
        from icevirt.wire.manifests.index_search import IndexSearch  # small ones are decoded whole

        return self._searches.setdefault(node, IndexSearch(self._payload, span))

    def _likely(
        self, search: IndexSearch, span: Span, wanted: NDArray[np.int64]
    ) -> ChunkTable | None:
        """Find chunks without a look at all references; None if that does not find all."""
        with suppress(Damage):  # of those that were looked at: what it is shows by the proof
            if (rows := search.likely_rows(wanted)) is not None:
                found = self._decode_rows(span, rows)
                return found if np.array_equal(found.index, wanted) else None
        return None

    def _decode_rows(self, span: Span, rows: Places) -> ChunkTable:
        """Read rows in any order: each once and in order, as they are read."""
        if bool((rows[1:] > rows[:-1]).all()):
            return read_rows(self._few, span, rows)
        distinct, number = np.unique(rows, return_inverse=True)
        return read_rows(self._few, span, distinct).take(number)
