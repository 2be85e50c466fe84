"""Read the values of variables in bounded pieces, and convert them to little-endian."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from icevirt.errors import ScanError
from icevirt.scan.contract import ByteSource
from icevirt_scanners.cf import FILL
from icevirt_scanners.encoding import PIECE, hashed
from icevirt_scanners.netcdf3.header import Attribute, Kind
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


def shown(attributes: Sequence[Attribute], tell: Callable[[str, str], None]) -> dict[str, Any]:
    """Return the attributes of the file or of a variable; ``tell`` takes code and message."""
    found: dict[str, Any] = {}
    for attribute in attributes:
        name = attribute.name.decode("utf-8", "backslashreplace")
        if name in found:  # netCDF finds the first one
            tell("attribute-left-out", f"attribute {name!r}: another attribute has this name")
            continue
        if attribute.kind.text:
            found[name] = _text(attribute.raw, name, tell)
        else:
            values = np.frombuffer(attribute.raw, attribute.kind.stored)
            values = values.astype(attribute.kind.dtype)
            found[name] = values[0] if values.size == 1 else values
    return found


def _text(raw: bytes, name: str, tell: Callable[[str, str], None]) -> str:
    text = raw.replace(b"\0", b"")
    try:
        return text.decode()
    except UnicodeDecodeError:
        tell("attribute-latin1", f"attribute {name!r} is not UTF-8")
        return text.decode("latin-1")


def fill_of(attributes: Sequence[Attribute], kind: Kind) -> Any:
    """Return what netCDF reads where nothing was written: ``_FillValue``, or the type's default."""
    for attribute in attributes:
        if attribute.name == FILL.encode() and attribute.kind == kind:
            values = np.frombuffer(attribute.raw, kind.stored).astype(kind.dtype)
            if values.size == 1:
                return values[0]
    return np.array(kind.default_fill, kind.dtype)[()]
