"""Read the values of variables in bounded pieces, and convert them to little-endian."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from icevirt.errors import ScanError
from icevirt.scan.contract import ByteSource
from icevirt_scanners.digest import PIECE, hashed
from icevirt_scanners.netcdf3.layout import PlacedVariable

_NEAR = 64 * 1024  # bytes between two runs that are read through rather than skipped


def read(placed: PlacedVariable, source: ByteSource) -> np.ndarray[Any, Any]:
    """Read all values."""
    flat = b"".join(piece.tobytes() for piece in _pieces(placed, source))
    return np.frombuffer(flat, placed.kind.dtype).reshape(placed.shape)


def digest(placed: PlacedVariable, source: ByteSource) -> str:
    """Hash type, shape and values, as all scanners do, without holding more than a piece."""
    return hashed(
        placed.kind.data_type,
        placed.shape,
        (piece.view(np.uint8) for piece in _pieces(placed, source)),
    )


def digest_of(found: np.ndarray[Any, Any], placed: PlacedVariable) -> str:
    """Hash values that were read already."""
    return hashed(placed.kind.data_type, placed.shape, [found.tobytes()])


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
