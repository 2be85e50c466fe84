"""Compare values that two libraries read, whatever Python types they return."""

from __future__ import annotations

from typing import Any

import numpy as np

_NUMBERS = "biufc"
_TEXTS = "SUTO"
_SHOWN = 60  # characters of a value in a message


def same_values(one: np.ndarray[Any, Any], other: np.ndarray[Any, Any]) -> bool | None:
    """Say whether arrays hold the same values; None where their types cannot be compared.

    Numbers are equal by value (NaN equals NaN), texts by their characters without the NULs that pad
    them, structures field by field, opaque bytes and times of one unit by their bytes.
    """
    if one.shape != other.shape:
        return False
    if one.dtype.kind in _NUMBERS and other.dtype.kind in _NUMBERS:
        return bool(np.array_equal(one, other, equal_nan=True))
    if one.dtype.names is not None and other.dtype.names is not None:
        return _same_fields(one, other)
    if one.dtype.kind in _TEXTS and other.dtype.kind in _TEXTS:
        return _texts(one) == _texts(other)
    times = one.dtype.kind in "mM" and one.dtype == other.dtype  # NaT is not equal to itself
    opaque = "V" in (one.dtype.kind, other.dtype.kind)
    if times or (opaque and one.dtype.itemsize == other.dtype.itemsize):
        return one.tobytes() == other.tobytes()
    return None


def _same_fields(one: np.ndarray[Any, Any], other: np.ndarray[Any, Any]) -> bool | None:
    if one.dtype.names != other.dtype.names:
        return False
    answers = [same_values(one[name], other[name]) for name in one.dtype.names or ()]
    if False in answers:
        return False
    return None if None in answers else True


def _texts(values: np.ndarray[Any, Any]) -> list[str]:
    return [_text(value).rstrip("\0") for value in values.reshape(-1).tolist()]


def _text(value: object) -> str:
    if isinstance(value, bytes):
        return value.decode("utf-8", errors="surrogateescape")
    return "" if value is None else str(value)


def first_difference(
    one: np.ndarray[Any, Any], other: np.ndarray[Any, Any]
) -> dict[str, Any] | None:
    """Return where arrays differ first and what they hold there, as facts of an error."""
    if one.shape != other.shape or one.dtype.names != other.dtype.names or same_values(one, other):
        return None
    if one.dtype.names is not None:
        pairs = zip(one.flat, other.flat, strict=True)
        unlike = np.array([a.tobytes() != b.tobytes() for a, b in pairs]).reshape(one.shape)
    else:
        unlike = np.asarray(one != other)
        if one.dtype.kind in "fc":
            unlike &= ~(np.isnan(one) & np.isnan(other))
    if not unlike.any():
        return None
    at = tuple(int(each) for each in np.unravel_index(int(np.argmax(unlike)), one.shape))
    return {"index": list(at), "first_value": _show(one[at]), "other_value": _show(other[at])}


def _show(value: Any) -> Any:
    plain = value.item() if isinstance(value, np.generic) else value
    return plain if isinstance(plain, int | float | complex) else repr(plain)[:_SHOWN]
