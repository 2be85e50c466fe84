"""Adapt CF's ``_FillValue`` for readers of zarr.

xarray requires one value of the variable's dtype, and a number; on text it refuses to open the
whole dataset. Files hold others: two values, a double on a float variable, characters. Values that
affect decoding are never dropped quietly: those move to ``missing_value``, which xarray reads the
same way, and the scan reports it; text is recorded unchanged, for the icevirt engine.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from icevirt.model.attributes import FILL, Attributes
from icevirt.model.missing_values import MISSING

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
        return _moved_text(shown, given)
    return Attributes.of(_with_fit_number(shown, dtype, tell) if FILL in shown else shown)


def _moved_text(shown: dict[str, Any], given: str) -> Attributes:
    rest = {name: value for name, value in shown.items() if name != FILL}
    moved = Attributes.of({MISSING: given, **rest})
    was = Attributes.of(shown).values
    names = (FILL, MISSING)
    return replace(
        moved, replaced={name: (was.get(name), moved.values.get(name)) for name in names}
    )


def _with_fit_number(
    shown: dict[str, Any], dtype: np.dtype[Any], tell: Callable[[str, str], None]
) -> dict[str, Any]:
    given = shown[FILL]
    rest = {name: value for name, value in shown.items() if name != FILL}
    fitted = _fitted(given, dtype)
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
    return {**rest, MISSING: _joined(rest.get(MISSING), given)}


def _is_number(value: Any) -> bool:
    return isinstance(value, np.ndarray | np.generic) and value.dtype.kind in _NUMBERS


def _fitted(given: Any, dtype: np.dtype[Any]) -> np.generic | None:
    """Return ``given`` as one value of ``dtype``, None where that is not exactly possible."""
    if not (isinstance(given, np.generic) and _is_number(given)) or dtype.kind not in _NUMBERS:
        return None
    if given.dtype == dtype:
        return given
    if given.dtype.kind == "c" and dtype.kind != "c":
        return _fitted(given.real, dtype) if given.imag == 0 else None
    with np.errstate(all="ignore"):
        if dtype.kind in "iub" and given.dtype.kind == "f" and not np.isfinite(given):
            return None
        cast: np.generic = given.astype(dtype)
        back = cast.astype(given.dtype) if dtype.kind != "c" else cast
    same = back == given or (back != back and given != given)  # noqa: PLR0124 - both are NaN
    return cast if same else None


def _joined(missing: Any, given: np.ndarray[Any, Any] | np.generic) -> Any:
    parts = [np.atleast_1d(given)]
    if missing is not None:
        parts.insert(0, np.atleast_1d(missing))
    joined = np.unique(np.concatenate(parts))
    return joined if joined.size > 1 else joined[0]
