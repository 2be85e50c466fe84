"""Convert virtual references that users set, under icechunk's names, to chunk tables.

Icechunk returns a list of the references that failed; here a reference that cannot be stored raises
an error.

URLs of an archive differ in numbers before an ending that all have. Equal strings have equal bytes
there, so bytes that all differ prove that all URLs do, without hashing any; equal bytes prove
nothing.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import pairwise

import numpy as np
from numpy.typing import ArrayLike, NDArray

from icevirt.errors import ChunkIndexError, InvalidInputError, check_time
from icevirt.model.chunks import (
    END_SECOND,
    FARTHEST,
    FIRST_SECOND,
    ChunkTable,
    ChunkType,
    Locations,
)
from icevirt.model.strings import Strings, bytes_at
from icevirt.versioning import chunk_tables

_ROWS_AT_ONCE = 1 << 14
_SAMPLED_ROWS = 64  # strings that show which ending all have
_WORD = 8  # bytes
_WINDOWS = (2 * _WORD, _WORD)  # bytes that are looked at
_FACTORS = np.array([0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9], np.uint64)

type _Word = NDArray[np.uint64]


def surely_differ(strings: Strings) -> bool:
    """Say whether bytes near their ends prove that no two strings are equal."""
    count, lengths = len(strings), strings.lengths
    if count < 2:
        return True
    skipped, shortest = _common_ending(strings), int(lengths.min())
    size = next((size for size in _WINDOWS if size + skipped <= shortest), 0)
    if not size:
        return False
    return _all_ascend(strings, skipped, size) or _keys_differ(strings, skipped, size)


def _common_ending(strings: Strings) -> int:
    """Return the size of the ending that some of the strings have in common, in bytes."""
    rows = np.unique(np.linspace(0, len(strings) - 1, _SAMPLED_ROWS).astype(np.int64))
    some = strings[rows]
    raw, starts = some.data.tobytes(), some.starts.tolist()
    backwards = [raw[low:high][::-1] for low, high in pairwise(starts)]
    first, last = min(backwards), max(backwards)
    differ = (at for at, (a, b) in enumerate(zip(first, last, strict=False)) if a != b)
    return next(differ, min(len(first), len(last)))


def _all_ascend(strings: Strings, skipped: int, size: int) -> bool:
    """Say for each string whether its bytes sort behind the bytes of the string before it."""
    last: tuple[_Word, ...] | None = None
    for words in _blocks(strings, skipped, size):
        if not _ascend(words) or (last is not None and not _ascend(_row_pair(last, words))):
            return False
        last = tuple(word[-1:] for word in words)
    return True


def _keys_differ(strings: Strings, skipped: int, size: int) -> bool:
    """Say whether numbers made of the bytes and the length of each string all differ."""
    keys = strings.lengths.view(np.uint64) * _FACTORS[-1]
    low = 0
    for words in _blocks(strings, skipped, size):
        rows = keys[low : low + len(words[0])]
        for word, factor in zip(words, _FACTORS, strict=False):
            rows += word * factor
        low += len(rows)
    keys.sort()
    return not bool((keys[1:] == keys[:-1]).any())


def _blocks(strings: Strings, skipped: int, size: int) -> Iterator[tuple[_Word, ...]]:
    """Yield ``size`` bytes of strings, as words that compare as the bytes do."""
    data, starts, first = strings.data, strings.starts, skipped + size
    for low in range(1, len(strings) + 1, _ROWS_AT_ONCE):
        words = bytes_at(data, starts[low : low + _ROWS_AT_ONCE] - first, size).view(">u8")
        yield tuple(words[:, axis].astype(np.uint64) for axis in range(words.shape[1]))


def _row_pair(last: tuple[_Word, ...], words: tuple[_Word, ...]) -> tuple[_Word, ...]:
    return tuple(np.concatenate([a, b[:1]]) for a, b in zip(last, words, strict=True))


def _ascend(words: tuple[_Word, ...]) -> bool:
    """Say whether each row is larger than the one before."""
    larger = np.zeros(len(words[0]) - 1, np.bool_)
    equal = ~larger
    for word in words:
        larger |= equal & (word[1:] > word[:-1])
        equal &= word[1:] == word[:-1]
    return bool(larger.all())


type ChecksumLike = str | datetime | None
"""An etag, or when the object was last modified; a time has a zone."""

_SAMPLE = 1000  # locations that tell whether it is worth while to look whether all differ

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class VirtualChunkSpec:
    """One chunk: where it is in the array, and where its bytes are."""

    index: Sequence[int]
    location: str
    offset: int
    length: int
    etag_checksum: str | None = None
    last_updated_at_checksum: datetime | None = None

    def __post_init__(self) -> None:
        """Refuse a time that does not say which instant it means."""
        if self.last_updated_at_checksum is not None:
            check_time("last_updated_at_checksum", self.last_updated_at_checksum)

    @property
    def checksum(self) -> ChecksumLike:
        """The stronger of the two checksums."""
        return self.etag_checksum or self.last_updated_at_checksum


def table_of(chunks: Sequence[VirtualChunkSpec], ndim: int) -> ChunkTable:
    """Return the references as a table.

    Raises:
        InvalidInputError: An index has another number of dimensions, or occurs twice; a location
            could not be read.
    """
    bad = next((chunk for chunk in chunks if len(chunk.index) != ndim), None)
    if bad is not None:
        raise ChunkIndexError(
            "a chunk's index does not have the array's number of dimensions",
            index=tuple(bad.index),
            ndim=ndim,
        )
    places, source = _distinct(
        [(chunk.location, *checksum_parts(chunk.checksum)) for chunk in chunks]
    )
    offset = _bytes("offset", [chunk.offset for chunk in chunks])
    length = _bytes("length", [chunk.length for chunk in chunks])
    index = np.array([tuple(c.index) for c in chunks], np.int64).reshape(len(chunks), ndim)
    try:
        return ChunkTable.virtual(
            index=index, offset=offset, length=length, locations=places, source=source
        )
    except ValueError as error:
        raise InvalidInputError(f"these references do not fit together: {error}") from error


def table_of_grid(
    shape: Sequence[int],
    locations: Sequence[str],
    offsets: ArrayLike,
    lengths: ArrayLike,
    *,
    codes: ArrayLike | None = None,
    arr_offset: Sequence[int] | None = None,
    checksum: ChecksumLike | Sequence[ChecksumLike] = None,
) -> ChunkTable:
    """Return the references of a box of chunks given in C order; empty locations are left out.

    Raises:
        InvalidInputError: The columns are not as long as the box is large; a location could not
            be read.
    """
    offset, length = _bytes("offset", offsets), _bytes("length", lengths)
    places, source = _places(locations, checksum, codes)
    count = math.prod(shape)
    if not count == len(source) == len(offset) == len(length):
        raise InvalidInputError(
            "the references do not fill the box of chunks",
            do="Pass one location (or code), offset and length for each chunk, in C order.",
            chunks=count,
            locations=len(source),
            offsets=len(offset),
            lengths=len(length),
        )
    table = ChunkTable(
        index=_box(shape, arr_offset),
        kind=np.full(count, ChunkType.virtual, np.uint8),
        source=source,
        offset=offset,
        length=length,
        locations=places,
    )
    empty = places.url.lengths == 0
    return chunk_tables.compact(table.take(~empty[source])) if empty.any() else table


def _box(shape: Sequence[int], origin: Sequence[int] | None) -> NDArray[np.uint32]:
    """Return the indices of a box of chunks, in C order."""
    first = (0,) * len(shape) if origin is None else tuple(origin)
    if len(first) != len(shape) or not all(
        0 <= low <= low + size <= 1 << 32 for low, size in zip(first, shape, strict=False)
    ):
        raise InvalidInputError(
            "not a valid box of chunks",
            shape=tuple(shape),
            arr_offset=None if origin is None else first,
        )
    index = np.empty((*shape, len(shape)), np.uint32)
    for axis, (low, size) in enumerate(zip(first, shape, strict=True)):
        along = np.arange(low, low + size, dtype=np.uint32)
        index[..., axis] = along.reshape(-1, *(1,) * (len(shape) - axis - 1))
    return index.reshape(math.prod(shape), len(shape))


def _places(
    locations: Sequence[str],
    checksum: ChecksumLike | Sequence[ChecksumLike],
    codes: ArrayLike | None,
) -> tuple[Locations, NDArray[np.uint32]]:
    """Return the distinct places, and the number of each chunk's."""
    if checksum is None or isinstance(checksum, str | datetime):  # one for all locations
        url, number = _distinct_urls(locations)
        etag, seconds = checksum_parts(checksum)
        places = Locations(
            url=url,
            etag=Strings.of([etag] * len(url)) if etag else Strings.empty(len(url)),
            last_modified=np.full(len(url), seconds, np.uint32)
            if seconds
            else np.zeros(len(url), np.uint32),  # takes no memory until it is written to
        )
    else:
        if len(checksum) != len(locations):
            raise InvalidInputError(
                "the number of checksums differs from the number of locations",
                do="Pass one for each location, or a single one for all.",
                checksums=len(checksum),
                locations=len(locations),
            )
        pairs = zip(locations, checksum, strict=True)
        places, number = _distinct([(url, *checksum_parts(each)) for url, each in pairs])
    if codes is None:
        return places, number
    given, count = np.asarray(codes).ravel(), len(locations)
    if given.size and (given.dtype.kind not in "iu" or given.min() < 0 or given.max() >= count):
        raise InvalidInputError(
            "codes must be indices into locations",
            do="Count the locations from 0; for chunks to leave out, use the index of an empty "
            "location.",
            locations=count,
        )
    return places, number[given if given.size else given.astype(np.intp)]


def checksum_parts(checksum: ChecksumLike) -> tuple[str, int]:
    """Return a checksum as references carry it: an etag, and whole seconds rounded up.

    Raises:
        InvalidInputError: The time is before 1970 or after 2106.
        NaiveTimeError: It has no time zone.
    """
    if not checksum:
        return "", 0
    if isinstance(checksum, str):
        return checksum, 0
    at = check_time("a checksum that is no etag", checksum)
    seconds = -((_EPOCH - at) // timedelta(seconds=1))
    if not 0 <= seconds < END_SECOND:
        raise InvalidInputError(
            "this modification time cannot be stored",
            do="References hold whole seconds from 1970 to 2106.",
            time=checksum,
        )
    return "", max(seconds, FIRST_SECOND)


def _bytes(name: str, numbers: ArrayLike) -> NDArray[np.uint64]:
    given = np.asarray(numbers)
    if given.size and (given.dtype.kind not in "iu" or given.min() < 0):
        raise InvalidInputError("offsets and lengths must be integers of at least 0", column=name)
    if given.size and given.max() >= FARTHEST:  # readers would refuse the whole manifest
        raise InvalidInputError(
            "a virtual reference is larger than any object",
            do=f"Correct the {name}.",
            **{name: int(given.max())},
        )
    return given.ravel().astype(np.uint64)


def _distinct(
    places: Sequence[tuple[str, str, int]],
) -> tuple[Locations, NDArray[np.uint32]]:
    """Return the distinct places, and for each given one its number."""
    distinct, source = _number_distinct(places)
    urls, etags, seconds = zip(*distinct, strict=True) if distinct else ((), (), ())
    url = Strings.of(urls)
    modified = np.array(seconds, np.uint32)
    return Locations(url=url, etag=Strings.of(etags), last_modified=modified), source


def _distinct_urls(given: Sequence[str]) -> tuple[Strings, NDArray[np.uint32]]:
    """Return the distinct URLs in the order they first come, and for each one its number."""
    near, far = given[:_SAMPLE], given[:: len(given) // _SAMPLE + 1]
    if len(set(near)) == len(near) and len(set(far)) == len(far):
        url = Strings.of(given)
        if surely_differ(url):
            return url, np.arange(len(given), dtype=np.uint32)
    distinct, number = _number_distinct(given)
    return Strings.of(distinct), number


def _number_distinct[T](given: Sequence[T]) -> tuple[Sequence[T], NDArray[np.uint32]]:
    """Return the distinct values in the order they first come, and for each one its number."""
    values = np.fromiter(given, object, len(given))
    begins = np.flatnonzero(_differ_from_last(values))
    heads = values[begins].tolist()
    numbers = {value: number for number, value in enumerate(dict.fromkeys(heads))}
    if len(numbers) == len(given):
        return given, np.arange(len(given), dtype=np.uint32)
    number = np.fromiter(map(numbers.__getitem__, heads), np.uint32, len(heads))
    return list(numbers), np.repeat(number, np.diff(begins, append=len(given)))


def _differ_from_last(values: NDArray[np.object_]) -> NDArray[np.bool_]:
    """Say which values begin a run of equal ones: mostly, chunks of a file follow one another."""
    begins = np.ones(len(values), np.bool_)
    places = np.ndarray(len(values), np.intp, buffer=values)  # in memory: each is equal to itself
    np.not_equal(places[1:], places[:-1], out=begins[1:])
    other = np.flatnonzero(begins[1:]) + 1
    if 2 * len(other) > len(values):
        np.not_equal(values[1:], values[:-1], out=begins[1:])  # without copying any of them
    else:
        begins[other] = values[other] != values[other - 1]
    return begins
