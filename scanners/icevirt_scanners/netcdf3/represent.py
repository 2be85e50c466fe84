"""Choose how a variable is represented: stored whole, as a block, or record by record.

Values are read in bounded pieces and converted to little-endian.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from icevirt.archive.joining import SMALL, STEP, Fact
from icevirt.archive.scanned import FactsBeside, ScannedArray
from icevirt.errors import ScanError
from icevirt.model.attributes import Attributes
from icevirt.model.chunks import ChunkTable
from icevirt.model.json import JSON
from icevirt.scan.contract import ByteSource
from icevirt.scan.policy import Policy
from icevirt_scanners import blocks
from icevirt_scanners.context import ScanContext
from icevirt_scanners.encoding import GZIP, PIECE, bytes_codec, hashed, spelt, squeezed
from icevirt_scanners.netcdf3.header import fill_of
from icevirt_scanners.netcdf3.layout import PlacedVariable

_NEAR = 64 * 1024  # bytes between two runs that are read through rather than skipped
_REFERENCE = 16  # bytes of a run that is not worth a reference


def represent(placed: PlacedVariable, attributes: Attributes, context: ScanContext) -> ScannedArray:
    """Return the scanned array.

    Raises:
        UnsupportedError: Its values must be stored, and are too large for that.
    """
    policy = context.options.policy_of(placed.path)
    if _wants_whole(placed, context, policy):
        return _stored(placed, attributes, context)
    represented = _natively if policy is Policy.native else _referenced
    array = represented(placed, attributes, context)
    wanted = context.wanted(array)
    if Fact.values in wanted:
        return replace(
            array, beside=context.values_of(lambda: _stored(placed, attributes, context))
        )
    if Fact.digest in wanted:
        return replace(array, beside=FactsBeside(digest=_digest(placed, context.source)))
    return array


def _referenced(
    placed: PlacedVariable, attributes: Attributes, context: ScanContext
) -> ScannedArray:
    lead, rest = ((), placed.shape) if placed.contiguous else ((1,), placed.shape[1:])
    chunk = (*lead, *blocks.grid_of_block(rest, placed.kind.size))
    table = blocks.virtual(placed.path, *_references(placed, chunk), context)
    codecs = (bytes_codec(placed.kind.dtype, "big" if placed.kind.size > 1 else "little"),)
    return _array(placed, attributes, chunk, codecs, table, whole=False)


def _array(
    placed: PlacedVariable,
    attributes: Attributes,
    chunk: tuple[int, ...],
    codecs: tuple[JSON, ...],
    table: ChunkTable,
    *,
    whole: bool,
    **more: Any,
) -> ScannedArray:
    kind = placed.kind
    return ScannedArray(
        path=placed.path,
        dimension_names=placed.dimensions,
        shape=placed.shape,
        chunk_shape=chunk,
        data_type=kind.data_type,
        codecs=codecs,
        fill_value=spelt(fill_of(placed.variable.attributes, kind), kind.dtype),
        attributes=attributes,
        references=table,
        whole=whole,
        contiguous=not whole,
        **more,
    )


def _wants_whole(placed: PlacedVariable, context: ScanContext, policy: Policy) -> bool:
    if policy is Policy.reference:
        return False
    if not placed.shape or policy is Policy.inline:
        return True
    affordable = placed.nbytes <= context.budget.left
    if placed.is_coordinate:
        return affordable
    if not placed.contiguous and placed.run < STEP:
        # a reference to each crumb would take about as much room as the crumbs
        small = placed.nbytes <= SMALL or placed.run <= _REFERENCE
        return small and affordable
    return False


def _stored(placed: PlacedVariable, attributes: Attributes, context: ScanContext) -> ScannedArray:
    """Read the values as one chunk; those of coordinates, and single ones, are labels too.

    Raises:
        UnsupportedError: They are too large for that.
    """
    if context.options.policy_of(placed.path) is Policy.inline and placed.nbytes > SMALL:
        raise context.refusal(
            placed.path,
            f"a variable with the policy 'inline' has more than {SMALL} bytes",
            do='Use the policy "native", which stores it in chunks.',
            nbytes=placed.nbytes,
        )
    context.budget.spend(placed.nbytes, variable=placed.path, cause="stored whole")
    found = _read(placed, context.source)
    ndim = len(placed.shape)
    table = ChunkTable.empty(ndim)
    if found.size:
        table = ChunkTable.inlined(index=np.zeros((1, ndim), np.int64), chunks=[found.tobytes()])
    more: dict[str, Any] = {}
    if placed.is_coordinate or (found.size == 1 and found.dtype.kind in "iuf"):
        more = {"labels": found.tobytes(), "labels_dtype": found.dtype.str}
    chunk = tuple(max(n, 1) for n in placed.shape)
    digest = hashed(placed.kind.data_type, placed.shape, [found.tobytes()])
    codecs = (bytes_codec(placed.kind.dtype),)
    return _array(placed, attributes, chunk, codecs, table, whole=True, digest=digest, **more)


def _natively(placed: PlacedVariable, attributes: Attributes, context: ScanContext) -> ScannedArray:
    """Read the values and store them in the chunks that a block of them would have."""
    cause = "its policy is 'native'"
    context.budget.spend(placed.nbytes, variable=placed.path, cause=cause)
    context.tell(placed.path, "stored-natively", cause)
    found = _read(placed, context.source)
    chunk = blocks.grid_of_block(placed.shape, placed.kind.size)
    index = blocks.all_chunks(tuple(n // edge for n, edge in zip(placed.shape, chunk, strict=True)))
    runs = found.reshape(len(index), -1) if found.size else ()  # a chunk is a run of the block
    table = ChunkTable.inlined(index=index, chunks=[squeezed(run.tobytes()) for run in runs])
    codecs = (bytes_codec(placed.kind.dtype), GZIP)
    return _array(placed, attributes, chunk, codecs, table, whole=False)


def _references(
    placed: PlacedVariable, chunk: tuple[int, ...]
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Return index, offset and length of all chunks."""
    size = placed.kind.size
    if placed.contiguous:
        return blocks.block_chunks(placed.shape, chunk, size, placed.begin)
    inner, offset, length = blocks.block_chunks(placed.shape[1:], chunk[1:], size, placed.begin)
    row = np.arange(placed.rows, dtype=np.int64)
    index = np.column_stack([np.repeat(row, len(inner)), np.tile(inner, (placed.rows, 1))])
    offsets = placed.stride * row[:, None] + offset
    return index, offsets.reshape(-1), np.tile(length, placed.rows)


def _read(placed: PlacedVariable, source: ByteSource) -> np.ndarray[Any, Any]:
    """Read all values."""
    flat = b"".join(piece.tobytes() for piece in _pieces(placed, source))
    return np.frombuffer(flat, placed.kind.dtype).reshape(placed.shape)


def _digest(placed: PlacedVariable, source: ByteSource) -> str:
    """Hash type, shape and values, as all scanners do, without holding more than a piece."""
    return hashed(
        placed.kind.data_type,
        placed.shape,
        (piece.view(np.uint8) for piece in _pieces(placed, source)),
    )


def _pieces(placed: PlacedVariable, source: ByteSource) -> Iterator[np.ndarray[Any, Any]]:
    """Yield the values in their order, flat and little-endian."""
    for raw in _raw(placed, source):
        yield np.frombuffer(raw, placed.kind.stored).astype(placed.kind.dtype)


def _raw(placed: PlacedVariable, source: ByteSource) -> Iterator[Any]:
    if placed.contiguous:
        yield from _block(placed.begin, placed.nbytes, source)
    elif placed.stride - placed.run <= _NEAR:
        yield from _through(placed, source)
    else:
        for row in range(placed.rows):
            yield from _block(placed.begin + row * placed.stride, placed.run, source)


def _block(begin: int, length: int, source: ByteSource) -> Iterator[bytes]:
    for at in range(0, length, PIECE):
        yield _exactly(begin + at, min(PIECE, length - at), source)


def _through(placed: PlacedVariable, source: ByteSource) -> Iterator[Any]:
    """Read several records at once, and pick out this variable's part of each."""
    most = max(1, PIECE // placed.stride)
    for first in range(0, placed.rows, most):
        rows = min(most, placed.rows - first)
        span = (rows - 1) * placed.stride + placed.run
        raw = _exactly(placed.begin + first * placed.stride, span, source)
        filled = np.frombuffer(raw.ljust(rows * placed.stride, b"\0"), np.uint8)
        yield np.ascontiguousarray(filled.reshape(rows, placed.stride)[:, : placed.run]).reshape(-1)


def _exactly(at: int, length: int, source: ByteSource) -> bytes:
    raw = source.read(at, length)
    if len(raw) != length:
        raise ScanError(
            "the file became shorter while it was read",
            do="Scan it again when it no longer changes.",
            file=source.file.url,
            offset=at,
            length=length,
        )
    return raw
