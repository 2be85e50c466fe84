"""Complete arrays whose references another tool made: check references, add the facts of a build.

Values are read through the references: coordinates and arrays that do not align are stored whole,
and arrays that do not follow all concatenated dimensions get a digest. If the values lie in remote
files, none of that happens; a build of several files then reports what is missing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from icevirt.archive.joining import Fact
from icevirt.archive.scanned import FactsBeside, ScannedArray
from icevirt.errors import ScanError
from icevirt.model import paths
from icevirt.model.chunks import ChunkTable, ChunkType
from icevirt.model.json import JSON
from icevirt.scan.contract import ChunkReader
from icevirt.scan.elsewhere import Elsewhere, Targets
from icevirt.scan.values import pieces, read
from icevirt_scanners.context import ScanContext
from icevirt_scanners.encoding import bytes_codec, hash_values, vlen_bytes

WHOLE = -1  # as a length: all of the file
_LAST_CHUNK = 2**32 - 1
_SAME_SIZE = frozenset({"transpose", "bytes", "endian", "numcodecs.shuffle"})
_CHECKSUMS = frozenset(
    {
        *("crc32c", "numcodecs.crc32c", "numcodecs.crc32", "numcodecs.adler32"),
        *("numcodecs.fletcher32", "numcodecs.jenkins_lookup3"),
    }
)
_CHECKSUM = 4  # bytes, of each


@dataclass(frozen=True, kw_only=True)
class GivenArray:
    """An array as the metadata of another tool describes it."""

    scanned: ScannedArray  # without references
    dtype: np.dtype[Any]

    @cached_property
    def grid(self) -> tuple[int, ...]:
        """Number of chunks along each axis."""
        edges = zip(self.scanned.shape, self.scanned.chunk_shape, strict=True)
        return tuple(-(-length // edge) for length, edge in edges)

    @cached_property
    def chunk_size(self) -> int | None:
        """Encoded bytes of each chunk, None where they vary."""
        if self.dtype.hasobject:
            return None
        return _size_of_chunks(self.scanned, self.dtype.itemsize)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReferenceColumns:
    """References of one array in any order: those into files, and those that are bytes."""

    index: NDArray[np.int64]  # (n, ndim) of references into files
    name: NDArray[np.int64]  # (n,) row in ``names``
    names: tuple[str, ...]  # of files, as written
    offset: NDArray[np.int64]  # (n,)
    length: NDArray[np.int64]  # (n,) or WHOLE
    inline_index: NDArray[np.int64]  # (m, ndim)
    inline: tuple[bytes, ...]  # (m,)


def complete(
    given: GivenArray, columns: ReferenceColumns, context: ScanContext, elsewhere: Elsewhere
) -> ScannedArray:
    """Return the array with its references, and beside them the values or digest that are wanted.

    Raises:
        ScanError: A reference leaves its file, a chunk is outside the array or there twice, or it
            has other bytes than its array needs; or values cannot be read.
        UnsupportedError: A file may not be referred to, or values must be stored and are too many.
    """
    targets = elsewhere.targets(columns.names)
    url, dtype = context.source.file.url, given.dtype
    array = replace(given.scanned, references=_table(given, columns, targets, url))
    context.unverifiable |= targets.unverifiable
    if array.references.count(ChunkType.inline):
        nbytes = len(array.references.inline)
        context.budget.spend(nbytes, variable=array.path, cause="given as bytes")
    return with_facts(array, dtype, context, elsewhere)


def with_facts(
    array: ScannedArray, dtype: np.dtype[Any], context: ScanContext, reading: ChunkReader
) -> ScannedArray:
    """Return the array with the values or digest beside it that are wanted.

    Raises:
        ScanError: Values cannot be read.
        UnsupportedError: Values must be stored and are too many.
    """
    if not reading.readable(array.references.locations):
        return array
    wanted = context.choose_facts(array)
    if Fact.values in wanted:
        beside = context.values_of(lambda: _whole(array, dtype, context, reading))
        return replace(array, beside=beside)
    if Fact.digest in wanted:
        return replace(array, beside=FactsBeside(digest=digest_of(array, dtype, reading)))
    return array


def _table(given: GivenArray, columns: ReferenceColumns, targets: Targets, url: str) -> ChunkTable:
    """Make the chunk table, with all references checked; ``url`` is the file that holds them."""
    path = given.scanned.path
    size = targets.size[columns.name] if len(columns.name) else np.zeros(0, np.int64)
    whole = columns.length == WHOLE
    if bool((whole & (size < 0)).any()):
        raise damage_error(url, variable=path, cause="a whole remote file of unknown length")
    length = np.where(whole, size, columns.length)
    outside = (size >= 0) & (columns.offset + length > size)
    if outside.any():
        row = int(np.argmax(outside))
        raise damage_error(
            url,
            variable=path,
            cause="a chunk lies outside its file",
            target=columns.names[int(columns.name[row])],
            offset=int(columns.offset[row]),
            length=int(length[row]),
            size=int(size[row]),
        )
    grid = np.array(given.grid, np.int64)
    for index in (columns.index, columns.inline_index):
        if int(index.max(initial=0)) > _LAST_CHUNK:
            raise damage_error(url, variable=path, cause="more chunks than Icechunk can number")
        beyond = np.any(index >= grid, axis=1)
        if beyond.any():
            chunk = index[int(np.argmax(beyond))].tolist()
            raise damage_error(url, variable=path, cause="a chunk outside the array", chunk=chunk)
    expected = given.chunk_size
    for held in (length, np.array([len(body) for body in columns.inline], np.int64)):
        wrong = held == 0 if expected is None else held != expected
        if wrong.any():
            raise damage_error(
                url,
                variable=path,
                cause="a chunk of another length than its array has",
                length=int(held[int(np.argmax(wrong))]),
                expected=expected,
            )
    try:
        return ChunkTable.concatenate(
            [
                ChunkTable.virtual(
                    index=columns.index,
                    offset=columns.offset,
                    length=length,
                    locations=targets.locations,
                    source=columns.name,
                ),
                ChunkTable.of_inline(index=columns.inline_index, chunks=columns.inline),
            ]
        )
    except ValueError as error:  # a chunk that is there twice
        raise damage_error(url, variable=path, cause=str(error)) from error


def _size_of_chunks(array: ScannedArray, itemsize: int) -> int | None:
    """Return the encoded bytes of each chunk of an array, None where a codec makes that vary.

    Chunks at the edge of an array are as large as all others.
    """
    added = 0
    for codec in array.codecs:
        name = codec.get("name") if isinstance(codec, Mapping) else codec
        if name in _CHECKSUMS:
            added += _CHECKSUM
        elif name not in _SAME_SIZE:
            return None
    return prod(array.chunk_shape) * itemsize + added


def digest_of(array: ScannedArray, dtype: np.dtype[Any], reading: ChunkReader) -> str:
    """Hash type, shape and values, which are read through the references.

    Raises:
        UnsupportedError: They lie in remote files.
    """
    # text is encoded with its count, so that pieces of it would hash to something else
    found = iter([read(array, reading.read)]) if dtype.hasobject else pieces(array, reading.read)
    return hash_values(array.data_type, array.shape, (_buffer(piece, dtype) for piece in found))


def _whole(
    array: ScannedArray, dtype: np.dtype[Any], context: ScanContext, reading: ChunkReader
) -> ScannedArray:
    nbytes = prod(array.shape) * dtype.itemsize
    context.budget.spend(nbytes, variable=array.path, cause="stored whole")
    found = read(array, reading.read)
    raw = bytes(_buffer(found, dtype))
    more: dict[str, Any] = {}
    texts = dtype.hasobject
    labels = found.reshape(-1)
    labels = np.array(labels.tolist()) if texts else labels.astype(dtype.newbyteorder("<"))
    if array.shape or labels.dtype.kind in "iufU":
        more = {"labels": labels.tobytes(), "labels_dtype": labels.dtype.str}
    text: JSON = {"name": "vlen-utf8", "configuration": {}}
    ndim = len(array.shape)
    return replace(
        array,
        chunk_shape=tuple(max(length, 1) for length in array.shape),
        codecs=(text if texts else bytes_codec(dtype),),
        references=ChunkTable.of_inline(index=np.zeros((1, ndim), np.int64), chunks=[raw])
        if found.size
        else ChunkTable.empty(ndim),
        whole=True,
        digest=hash_values(array.data_type, array.shape, [raw]),
        **more,
    )


def _buffer(values: np.ndarray[Any, Any], dtype: np.dtype[Any]) -> Any:
    if dtype.hasobject:
        texts = (text if isinstance(text, bytes) else str(text).encode() for text in values.flat)
        return vlen_bytes(list(texts))
    return np.ascontiguousarray(values, dtype.newbyteorder("<")).reshape(-1).view(np.uint8)


def tell_unverifiable(context: ScanContext) -> None:
    """Warn of referenced files without a checksum, whose changes go unnoticed."""
    if context.unverifiable:
        context.warn(
            paths.ROOT,
            "unverifiable",
            f"{len(context.unverifiable)} referenced files have no checksum; changes of these"
            " files will go unnoticed",
        )


def damage_error(url: str, **facts: Any) -> ScanError:
    """Make the error for a file that is not what it should be."""
    return ScanError(
        "damaged references", do="Create them again, or leave the file out.", file=url, **facts
    )
