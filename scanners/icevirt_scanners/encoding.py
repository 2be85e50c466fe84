"""Translate byte orders and fill values to zarr's spelling."""

from __future__ import annotations

import base64
import gzip
import hashlib
import math
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from icevirt.model.json import JSON

GZIP: JSON = {"name": "gzip", "configuration": {"level": 1}}  # a core codec of zarr v3
_QUIET = {2: 0x7E00, 4: 0x7FC00000, 8: 0x7FF8000000000000}


@lru_cache(256)
def bytes_codec(dtype: np.dtype[Any], endian: str = "little") -> JSON:
    """Return the array-to-bytes codec of fixed-size values stored in the given order."""
    if dtype.kind in "SVb" and dtype.names is None:
        return {"name": "bytes"}
    return {"name": "bytes", "configuration": {"endian": endian}}


def spelt(value: Any, dtype: np.dtype[Any]) -> JSON:  # noqa: PLR0911 - a case, a line
    """Spell a scalar as zarr v3 spells fill values."""
    if dtype.names:
        return {name: spelt(value[name], dtype[name]) for name in dtype.names}
    if dtype.kind in "biu":
        return value.item()  # type: ignore[no-any-return]
    if dtype.kind in "mM":
        return int(value.astype(np.int64))
    if dtype.kind == "f":
        return _float(value)
    if dtype.kind == "c":
        return [_float(value.real), _float(value.imag)]
    if dtype.kind == "U":
        return str(value)
    return base64.standard_b64encode(bytes(value)).decode()


def _float(value: Any) -> JSON:
    number = float(value)
    if math.isfinite(number):
        return number
    if math.isinf(number):
        return "Infinity" if number > 0 else "-Infinity"
    size = value.dtype.itemsize
    bits = int(value.view(f"u{size}"))
    return "NaN" if bits == _QUIET[size] else f"0x{bits:0{2 * size}x}"


def squeezed(data: bytes) -> bytes:
    """Compress with `GZIP`; the same bytes every time."""
    return gzip.compress(data, 1, mtime=0)


def vlen_bytes(texts: Sequence[bytes]) -> bytes:
    """Encode byte strings as the codecs ``vlen-utf8`` and ``vlen-bytes`` do."""
    parts = [len(texts).to_bytes(4, "little")]
    for text in texts:
        parts += (len(text).to_bytes(4, "little"), text)
    return b"".join(parts)


PIECE = 32 * 1024 * 1024  # bytes of values read at a time where they are only looked at


def hashed(data_type: JSON, shape: tuple[int, ...], pieces: Iterable[Any]) -> str:
    """Hash the values, given in pieces as little-endian buffers, under their type and shape."""
    total = hashlib.blake2b(digest_size=16)
    total.update(repr((data_type, shape)).encode())
    for piece in pieces:
        total.update(piece)
    return total.hexdigest()
