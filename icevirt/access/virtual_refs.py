"""Virtual references as a person sets them, with icechunk's names, made into chunk tables.

Unlike icechunk's, nothing here returns a list of what failed: what cannot be stored is an error.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import numpy as np
from numpy.typing import ArrayLike, NDArray

from icevirt.connect import urls
from icevirt.errors import InvalidInputError
from icevirt.model.chunks import ChunkTable, Locations
from icevirt.model.strings import Strings

type ChecksumLike = str | datetime | None
"""An etag, or when the object was last modified; a time without a zone is local."""

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
        raise InvalidInputError(
            "a chunk's index does not have the array's number of dimensions",
            index=tuple(bad.index),
            ndim=ndim,
        )
    places, source = _distinct([(chunk.location, *recorded(chunk.checksum)) for chunk in chunks])
    return _table(
        index=np.array([tuple(c.index) for c in chunks], np.int64).reshape(len(chunks), ndim),
        offset=_bytes("offset", [chunk.offset for chunk in chunks]),
        length=_bytes("length", [chunk.length for chunk in chunks]),
        locations=places,
        source=source,
    )


def table_of_grid(
    shape: Sequence[int],
    locations: Sequence[str],
    offsets: ArrayLike,
    lengths: ArrayLike,
    *,
    arr_offset: Sequence[int] | None = None,
    checksum: ChecksumLike = None,
) -> ChunkTable:
    """Return the references of a box of chunks given in C order; empty locations are left out.

    Raises:
        InvalidInputError: The columns are not as long as the box is large; a location could not
            be read.
    """
    offset, length = _bytes("offset", offsets), _bytes("length", lengths)
    index = np.indices(tuple(shape), np.int64).reshape(len(shape), -1).T
    if not len(index) == len(locations) == len(offset) == len(length):
        raise InvalidInputError(
            "the references do not fill the box of chunks",
            do="Pass one location, offset and length for each chunk, in C order.",
            chunks=len(index),
            locations=len(locations),
            offsets=len(offset),
            lengths=len(length),
        )
    there = np.fromiter((bool(location) for location in locations), np.bool_, len(locations))
    etag, seconds = recorded(checksum)
    places, source = _distinct([(location, etag, seconds) for location in locations if location])
    origin = np.zeros(len(shape), np.int64) if arr_offset is None else np.array(arr_offset)
    return _table(
        index=index[there] + origin,
        offset=offset[there],
        length=length[there],
        locations=places,
        source=source,
    )


def recorded(checksum: ChecksumLike) -> tuple[str, int]:
    """Return a checksum as references carry it: an etag, and whole seconds rounded up.

    Raises:
        InvalidInputError: The time is before 1970 or after 2106.
    """
    match checksum:
        case None:
            return "", 0
        case str():
            return checksum, 0
        case datetime():
            seconds = -((_EPOCH - checksum.astimezone()) // timedelta(seconds=1))
            if not 0 < seconds < 1 << 32:
                raise InvalidInputError("no modification time that can be kept", time=checksum)
            return "", seconds


def _bytes(name: str, numbers: ArrayLike) -> NDArray[np.uint64]:
    given = np.asarray(numbers)
    if given.size and (given.dtype.kind not in "iu" or given.min() < 0):
        raise InvalidInputError("offsets and lengths are whole numbers, at least 0", column=name)
    return given.ravel().astype(np.uint64)


def _table(*, index: NDArray[np.int64], **columns: object) -> ChunkTable:
    try:
        return ChunkTable.virtual(index=index, **columns)  # type: ignore[arg-type]
    except ValueError as error:
        raise InvalidInputError(f"these references do not fit together: {error}") from error


def _distinct(
    places: Sequence[tuple[str, str, int]],
) -> tuple[Locations, NDArray[np.uint32]]:
    """Return the distinct places, and for each given one its number."""
    numbers: dict[tuple[str, str, int], int] = {}
    source = np.fromiter(
        (numbers.setdefault(place, len(numbers)) for place in places), np.uint32, len(places)
    )
    for url, *_ in numbers:
        if url.startswith("file://"):
            urls.local_path(url)  # raises where no reader would follow
    return Locations(
        url=Strings.of(place[0] for place in numbers),
        etag=Strings.of(place[1] for place in numbers),
        last_modified=np.array([place[2] for place in numbers], np.uint32),
    ), source
