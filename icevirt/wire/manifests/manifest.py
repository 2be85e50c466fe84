"""Read and write manifests: chunk references of arrays, as one immutable file.

Spec: "Chunk Manifest Files". The id is a digest of the content, and nothing else varies, so equal
tables make equal files: a task that runs twice writes the same object twice.

References are written as a block of records per kind, then what they share: locations, etags and
inline chunks, because references point forward. Each distinct location is written once, as a string
or compressed with a dictionary. Because equal locations share one string and whole files are
compressed, strings are nearly always smaller and faster; the dictionary pays in the memory of
readers that keep manifests decompressed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING

import numpy as np
import zstandard
from numpy.typing import NDArray

from icevirt.errors import InvalidInputError, ZeroLengthError
from icevirt.ids import ObjectId8, ObjectId12
from icevirt.model.chunks import ChunkTable, ChunkType, Locations, Manifest
from icevirt.model.indices import ascends, counts_up
from icevirt.model.strings import Bytes, Places, Strings
from icevirt.wire import header
from icevirt.wire.flatbuffer.builder import (
    BLOCK,
    Builder,
    Pool,
    Records,
    Rows,
    Tail,
    append_pool,
    vector_blocks,
)
from icevirt.wire.flatbuffer.schema import CHUNK_REF, MANIFEST
from icevirt.wire.header import FileKind
from icevirt.wire.manifests.encoding import DEFAULT_LOCATIONS, LocationCompression, LocationEncoding
from icevirt.wire.manifests.open_manifest import MAX_LOCATION, Dictionary, OpenManifest

if TYPE_CHECKING:
    pass


_RANGE = frozenset({"index", "offset", "length"})
_TIME = "checksum_last_modified"
_SHARED = ("location", "compressed_location", "checksum_etag", "inline")
# The fields that the records of each kind store.
_KINDS = (
    _RANGE | {"chunk_id"},
    frozenset({"index", "inline"}),
    *(
        _RANGE | checksum | {location}
        for location in ("location", "compressed_location")
        for checksum in ({"checksum_etag"}, {_TIME}, set())
    ),
)
_NATIVE, _INLINE, _VIRTUAL = range(3)
_CHECKSUMS = 3


def write_table(tail: Tail, table: ChunkTable, dictionary: Dictionary | None, level: int) -> int:
    """Append an array's references and return where their vector stands."""
    return _References(tail, table, _compress(table.locations, dictionary, level)).start


@dataclass(frozen=True, slots=True)
class _Block:
    """The records of one kind, and where they stand."""

    records: Records
    count: int
    at: int


class _References:
    """The references of one array: laid out when this is made, written when the file is."""

    def __init__(self, tail: Tail, table: ChunkTable, locations: _Compressed) -> None:
        self._table = table
        self._kind = _kinds(table, locations)
        self.start = tail.add(4 + 4 * len(table), self._vector, align=4)
        self._blocks: dict[int, _Block] = {}
        for number, count in enumerate(np.bincount(self._kind).tolist()):
            if count:
                fields = _KINDS[number]
                records = Records.of(CHUNK_REF, fields, "index", table.ndim)
                at = tail.add(count * records.stride, partial(self._records, number))
                self._blocks[number] = _Block(records, count, at)
        self._places = {  # where the rows of shared columns stand
            name: self._share(tail, name, numbers, locations)
            for name in _SHARED
            if (numbers := [number for number in self._blocks if name in _KINDS[number]])
        }

    # -- laying out ------------------------------------------------------------------------------

    def _share(
        self, tail: Tail, name: str, kinds: Sequence[int], locations: _Compressed
    ) -> NDArray[np.uint32]:
        """Append the rows of a shared column that are used; return where each row stands."""
        table = self._table
        if name == "inline":
            return append_pool(tail, Pool.of(table.inline, *_inline(table))).astype(np.uint32)
        columns: dict[str, Strings | _Compressed] = {
            "location": table.locations.url,
            "compressed_location": locations,
            "checksum_etag": table.locations.etag,
        }
        shared = columns[name]
        used = _by_first_use(self._sources(kinds))
        start, end = shared.starts[:-1][used], shared.starts[1:][used]
        places = np.zeros(len(shared.starts) - 1, np.uint32)
        # kept until the file is written: there may be millions
        number = np.int32 if len(shared.data) < 1 << 30 else np.int64
        length = np.subtract(end, start, dtype=number)
        places[used] = append_pool(tail, Pool.of(shared.data, start, length))
        return places

    def _sources(self, kinds: Sequence[int]) -> NDArray[np.uint32]:
        """Return the sources of the records of these kinds, in the order of the records."""
        source = self._table.source
        if self._blocks[kinds[0]].count == len(source):
            return source
        return np.concatenate([source[self._kind == number] for number in kinds])

    # -- writing ---------------------------------------------------------------------------------

    def _vector(self) -> Iterator[Bytes]:
        return vector_blocks(self.start, len(self._table), self._tables())

    def _tables(self) -> Iterator[Places]:
        """Yield where the table of each row stands."""
        at = {number: block.at for number, block in self._blocks.items()}
        for low in range(0, len(self._kind), BLOCK):
            kind = self._kind[low : low + BLOCK]
            if len(self._blocks) == 1:
                (only,) = self._blocks.values()
                yield only.records.places(only.at + only.records.stride * low, len(kind))
                continue
            found = np.empty(len(kind), np.int64)
            for number, block in self._blocks.items():
                rows = np.flatnonzero(kind == number)
                found[rows] = block.records.places(at[number], len(rows))
                at[number] += block.records.stride * len(rows)
            yield found

    def _records(self, number: int) -> Iterator[Bytes]:
        block = self._blocks[number]
        return block.records.blocks(block.at, block.count, self._rows(number))

    def _rows(self, number: int) -> Iterator[Rows]:
        """Yield the rows of a kind."""
        table, fields, done = self._table, _KINDS[number], 0
        shared = [name for name in _SHARED if name in fields]
        for low in range(0, len(table), BLOCK):
            rows: slice | Places = slice(low, low + BLOCK)
            if len(self._blocks) > 1:
                rows = low + np.flatnonzero(self._kind[rows] == number)
            source = table.source[rows]
            if number == _INLINE:
                source = np.arange(done, done + len(source), dtype=np.uint32)
                done += len(source)
            if len(source):
                yield Rows(
                    count=len(source),
                    index=table.index[rows],
                    columns=_columns(table, fields, rows),
                    targets={name: self._places[name][source] for name in shared},
                )


def _columns(
    table: ChunkTable, fields: frozenset[str], rows: slice | Places
) -> dict[str, NDArray[np.generic]]:
    """Return the columns that records of these fields hold themselves."""
    own = [name for name in ("offset", "length") if name in fields]
    found: dict[str, NDArray[np.generic]] = {name: getattr(table, name)[rows] for name in own}
    if "chunk_id" in fields:
        found["chunk_id"] = table.chunk_ids[table.source[rows]]
    if _TIME in fields:
        found[_TIME] = table.locations.last_modified[table.source[rows]]
    return found


def _kinds(table: ChunkTable, locations: _Compressed) -> NDArray[np.uint8]:
    """Return the kind of each row's record, a number of ``_KINDS``.

    Raises:
        InvalidInputError: A row is of no kind, or its source is not there.
    """
    if len(table) and table.count(ChunkType.virtual) == len(table):
        _check_sources(table.source, len(table.locations), "no location")
        kinds = _virtual_kinds(table, locations)
        one = int(kinds.min()) == int(kinds.max())
        return np.full(len(table), kinds[0], np.uint8) if one else kinds[table.source]
    kind = np.full(len(table), len(_KINDS), np.uint8)
    kind[table.kind == ChunkType.inline] = _INLINE
    native, virtual = (table.kind == each for each in (ChunkType.native, ChunkType.virtual))
    if native.any():
        _check_sources(table.source[native], len(table.chunk_ids), "no chunk")
        kind[native] = _NATIVE
    if virtual.any():
        source = table.source[virtual]
        _check_sources(source, len(table.locations), "no location")
        kind[virtual] = _virtual_kinds(table, locations)[source]
    if int(kind.max()) == len(_KINDS):
        raise InvalidInputError("a reference is neither native nor virtual nor inline")
    return kind


def _check_sources(source: NDArray[np.uint32], count: int, nowhere: str) -> None:
    if int(source.max()) >= count:
        raise InvalidInputError(f"a reference points to {nowhere}", source=int(source.max()))


def _virtual_kinds(table: ChunkTable, locations: _Compressed) -> NDArray[np.uint8]:
    """Return the kind of virtual references to each location."""
    kinds = np.full(len(table.locations), _VIRTUAL + 2, np.uint8)
    kinds[table.locations.last_modified > 0] = _VIRTUAL + 1
    if len(table.locations.etag.data):
        kinds[table.locations.etag.lengths > 0] = _VIRTUAL  # one is enough, an etag is better
    kinds[locations.hidden] += np.uint8(_CHECKSUMS)
    return kinds


def _inline(table: ChunkTable) -> tuple[Places, Places]:
    """Return starts and lengths of inline chunks. Raises ``InvalidInputError``."""
    rows = table.kind == ChunkType.inline
    start, length = table.offset[rows].astype(np.int64), table.length[rows].astype(np.int64)
    if int(start.min()) < 0 or int((start + length).max()) > len(table.inline):
        raise InvalidInputError("an inline reference lies outside the inline bytes")
    return start, length


def _by_first_use(source: NDArray[np.uint32]) -> slice | Places:
    """Return the distinct sources in the order they are used first."""
    if counts_up(source):  # as most do: chunks of a file follow one another
        return slice(0, int(source[-1]) + 1)
    first = np.full(int(source.max()) + 1, len(source), np.int64)
    first[source[::-1]] = np.arange(len(source) - 1, -1, -1)  # the earliest is assigned last
    used = np.argsort(first, kind="stable")
    return used[: int(np.count_nonzero(first < len(source)))]


MIN_SAMPLE = 8  # bytes; when half of the samples are shorter, they are not worth it


def train_dictionary(
    tables: Sequence[ChunkTable], settings: LocationCompression
) -> Dictionary | None:
    """Return the dictionary to compress the locations of these tables with."""
    virtual = sum(table.count(ChunkType.virtual) for table in tables)
    if settings.encoding is LocationEncoding.plain or virtual < max(settings.min_num_chunks, 1):
        return None
    samples = _samples(tables, settings.dictionary_max_training_samples)
    if 2 * sum(len(sample) < MIN_SAMPLE for sample in samples) >= len(samples):
        return None
    dictionary = Dictionary.train(samples, settings.dictionary_max_size_bytes)
    if dictionary is None or settings.encoding is not LocationEncoding.smaller:
        return dictionary
    level, joined = settings.compression_level, b"".join(samples)
    starts = np.cumsum([0, *map(len, samples)])
    frames, _ = dictionary.compress(np.frombuffer(joined, np.uint8), starts, level)
    whole = zstandard.ZstdCompressor(level=level).compress(joined)
    return dictionary if len(frames) < len(whole) else None


@dataclass(frozen=True, slots=True)
class _Compressed:
    """Those locations of a table that are written as frames, end to end; the others are empty."""

    hidden: NDArray[np.bool_]  # (m,) whether a location is a frame
    data: Bytes
    starts: Places  # (m + 1,)


def _compress(locations: Locations, dictionary: Dictionary | None, level: int) -> _Compressed:
    """Compress the locations that a reader accepts compressed."""
    url, places = locations.url, np.zeros(len(locations) + 1, np.int64)
    if dictionary is None:
        return _Compressed(np.zeros(len(url), np.bool_), np.zeros(0, np.uint8), places)
    lengths = url.lengths
    hidden = (lengths > 0) & (lengths <= MAX_LOCATION)
    rows = np.flatnonzero(hidden)
    chosen = url if len(rows) == len(url) else url[rows]
    data, starts = dictionary.compress(chosen.data, chosen.starts, level)
    places[rows + 1] = np.diff(starts)
    return _Compressed(hidden, data, np.cumsum(places))


def _samples(tables: Sequence[ChunkTable], count: int) -> list[bytes]:
    """Return evenly spaced locations: the same ones for the same tables, always."""
    total = sum(len(table.locations) for table in tables)
    wanted = np.unique(np.linspace(0, total - 1, min(count, total)).astype(int)).tolist()
    samples, base, done = list[bytes](), 0, 0
    for table in tables:
        url = table.locations.url
        while done < len(wanted) and wanted[done] < base + len(url):
            samples.append(url[wanted[done] - base].encode())
            done += 1
        base += len(url)
    # those that are too long to be compressed teach nothing
    return [sample for sample in samples if len(sample) <= MAX_LOCATION]


# Manifest.compression_algorithm. Its default is 1, so that 0 must be stored.
_PLAIN, _ZSTD = 0, 1


@dataclass(frozen=True, slots=True, kw_only=True)
class EncodedManifest:
    """A manifest file and the facts a snapshot records about it."""

    id: ObjectId12
    raw: bytes
    num_chunk_refs: int


def encode(
    arrays: Mapping[ObjectId8, ChunkTable],
    *,
    level: int = 3,
    locations: LocationCompression = DEFAULT_LOCATIONS,
    spec_version: int = header.SPEC_VERSION,
) -> EncodedManifest:
    """Return the manifest of these tables; arrays without references are left out.

    V1 knows no dictionaries of locations.

    Raises:
        InvalidInputError: Rows are out of order, a reference points nowhere, or there are more
            references than fit one file.
    """
    stored = {node: arrays[node] for node in sorted(arrays) if len(arrays[node])}
    dictionary = train_dictionary(list(stored.values()), locations) if spec_version > 1 else None
    values = {
        "id": bytes(ObjectId12.SIZE),  # not known yet
        "arrays": [{"node_id": node, "refs": table} for node, table in stored.items()],
        "location_dictionary": dictionary.trained if dictionary else None,
        "compression_algorithm": _ZSTD if dictionary else _PLAIN,
    }
    small = Builder().root(MANIFEST, values)
    tail = Tail(len(small.out))
    for place, table in small.open:
        check(table)
        at = write_table(tail, table, dictionary, locations.compression_level)
        small.link(place, at)
    id_at = small.root_field(MANIFEST, "id")
    start, after = bytes(small.out[:id_at]), id_at + ObjectId12.SIZE
    parts = chain([np.frombuffer(small.out, np.uint8)[after:]], tail.blocks())
    rest = header.compress(parts, tail.end - after, level, checksum=False)
    digest = ObjectId12.of_content(start + bytes(ObjectId12.SIZE), rest)
    head = header.head(FileKind.manifest, spec_version)
    raw = header.with_raw_start(head, start + digest, rest)
    return EncodedManifest(id=digest, raw=raw, num_chunk_refs=sum(map(len, stored.values())))


def decode(raw: bytes) -> Manifest:
    """Read a manifest. Raises ``FormatError``."""
    return OpenManifest(raw).decode()


def check(table: ChunkTable) -> None:
    """Make sure that every reader would find each reference of the table.

    Raises:
        InvalidInputError: One it would not.
    """
    if not ascends(table.index):
        raise InvalidInputError("chunk indices are not in ascending order", do="Sort the table.")


def refuse_empty(table: ChunkTable) -> None:
    """Refuse new references to no bytes; those that are stored are written again as they are.

    Raises:
        InvalidInputError: There is one, which no reader could read.
    """
    if len(table) and int(table.length.min()) == 0:
        row = int(np.argmin(table.length))
        raise ZeroLengthError(
            "a reference to no bytes",
            do="Leave chunks that are not stored out of the table.",
            index=tuple(table.index[row].tolist()),
        )
