"""Translate byte orders, fill values and CF's ``_FillValue`` for readers of zarr.

xarray requires one value of the variable's dtype, and a number; on text it refuses to open the
whole dataset. Files hold others: two values, a double on a float variable, characters. Values that
affect decoding are never dropped quietly: those move to ``missing_value``, which xarray reads the
same way, and the scan reports it; text is recorded unchanged, for the icevirt engine.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np

from icevirt.model.attributes import FILL, MISSING, Attributes
from icevirt.model.json import JSON

GZIP: JSON = {"name": "gzip", "configuration": {"level": 1}}  # a core codec of zarr v3
_QUIET = {2: 0x7E00, 4: 0x7FC00000, 8: 0x7FF8000000000000}


@lru_cache(256)
def bytes_codec(dtype: np.dtype[Any], endian: str = "little") -> JSON:
    """Return the array-to-bytes codec of fixed-size values stored in the given order."""
    if dtype.kind in "SVb" and dtype.names is None:
        return {"name": "bytes"}
    return {"name": "bytes", "configuration": {"endian": endian}}


def spell(value: Any, dtype: np.dtype[Any]) -> JSON:  # noqa: PLR0911 - a case, a line
    """Spell a scalar as zarr v3 spells fill values."""
    if dtype.names:
        return {name: spell(value[name], dtype[name]) for name in dtype.names}
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


def squeeze(data: bytes) -> bytes:
    """Compress with `GZIP`; the same bytes every time."""
    return gzip.compress(data, 1, mtime=0)


def vlen_bytes(texts: Sequence[bytes]) -> bytes:
    """Encode byte strings as the codecs ``vlen-utf8`` and ``vlen-bytes`` do."""
    parts = [len(texts).to_bytes(4, "little")]
    for text in texts:
        parts += (len(text).to_bytes(4, "little"), text)
    return b"".join(parts)


PIECE = 32 * 1024 * 1024  # bytes of values read at a time where they are only looked at


def hash_values(data_type: JSON, shape: tuple[int, ...], pieces: Iterable[Any]) -> str:
    """Hash the values, given in pieces as little-endian buffers, under their type and shape."""
    total = hashlib.blake2b(digest_size=16)
    total.update(repr((data_type, shape)).encode())
    for piece in pieces:
        total.update(piece)
    return total.hexdigest()


_NUMBERS = "iufcb"  # kinds of dtypes


def default_fill(dtype: np.dtype[Any]) -> float:
    """Return what netCDF reads where no number was written and no fill value given."""
    if dtype.kind == "f":
        return 9.969209968386869e36  # 15 * 2**119, exact in both sizes
    limits, wide = np.iinfo(dtype), dtype.itemsize == 8
    return int(limits.max) - wide if dtype.kind == "u" else int(limits.min) + 1 + wide


def with_fit_fill(
    shown: dict[str, Any], dtype: np.dtype[Any], tell: Callable[[str, str], None]
) -> Attributes:
    """Return the attributes with a ``_FillValue`` that fits the variable's dtype, or without.

    Args:
        shown: Attributes as read.
        dtype: Of the variable; object for strings.
        tell: Takes the code and message of a warning.
    """
    given = shown.get(FILL)
    if isinstance(given, str) and dtype.kind in "OS":
        tell("fill-value-moved", f"_FillValue {given!r} of text became missing_value")
        moved = Attributes.of({MISSING: given, **_without_fill(shown)})
        was, now = Attributes.of(shown).values, moved.values
        return replace(
            moved, replaced={key: (was.get(key), now.get(key)) for key in (FILL, MISSING)}
        )
    return Attributes.of(_with_fit_number(shown, dtype, tell) if FILL in shown else shown)


def _with_fit_number(
    shown: dict[str, Any], dtype: np.dtype[Any], tell: Callable[[str, str], None]
) -> dict[str, Any]:
    given = shown[FILL]
    rest = _without_fill(shown)
    fitted = _fit(given, dtype)
    if fitted is not None:
        if fitted.dtype != np.asarray(given).dtype:
            tell("fill-value-cast", f"_FillValue {given!r} was cast to {fitted.dtype}")
        return {**shown, FILL: fitted}
    joins = _is_number(given) and given.size and _is_number(rest.get(MISSING, given))
    if not joins or dtype.kind not in _NUMBERS:
        tell(
            "fill-value-left-out",
            f"_FillValue {given!r} is left out: readers of zarr take a number there, and only on"
            " variables of numbers",
        )
        return rest
    tell("fill-value-moved", f"_FillValue {given!r} became part of missing_value")
    both = [np.atleast_1d(each) for each in (rest.get(MISSING), given) if each is not None]
    missing = np.unique(np.concatenate(both))
    return {**rest, MISSING: missing if missing.size > 1 else missing[0]}


def _without_fill(shown: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in shown.items() if name != FILL}


def _is_number(value: Any) -> bool:
    return isinstance(value, np.ndarray | np.generic) and value.dtype.kind in _NUMBERS


def _fit(given: Any, dtype: np.dtype[Any]) -> np.generic | None:
    """Return ``given`` as one value of ``dtype``, None where that is not exactly possible."""
    if not (isinstance(given, np.generic) and _is_number(given)) or dtype.kind not in _NUMBERS:
        return None
    if given.dtype == dtype:
        return given
    if given.dtype.kind == "c" and dtype.kind != "c":
        return _fit(given.real, dtype) if given.imag == 0 else None
    with np.errstate(all="ignore"):
        if dtype.kind in "iub" and given.dtype.kind == "f" and not np.isfinite(given):
            return None
        cast: np.generic = given.astype(dtype)
        back = cast.astype(given.dtype) if dtype.kind != "c" else cast
    same = back == given or (back != back and given != given)  # noqa: PLR0124 - both are NaN
    return cast if same else None
