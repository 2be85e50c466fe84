"""Decode and encode packed values and enumerations, and prove that nothing is lost on the way.

Decoding is xarray's own (``mask_and_scale``): a value survives if xarray shows the very same number
from the packing of the array as from that of the file.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from icevirt.model.attributes import ENUMERATION, FLAGS, Attributes, members_of, restore

PACKING = ("scale_factor", "add_offset", "_FillValue", "missing_value", "_Unsigned")
"""Attributes by which one and the same value is stored as another number (CF 8.1, NUG)."""


OWN = (*PACKING, *FLAGS, ENUMERATION)
"""What an array says of its own numbers, whatever files say of theirs."""

_SCALES = ("scale_factor", "add_offset")


@dataclass(frozen=True, slots=True, kw_only=True)
class LostValues:
    """Values that another packing cannot hold."""

    count: int
    maximum_error: float  # NaN where a missing value has no counterpart
    first: float  # one of them, as the file means it


def packing_of(attributes: Attributes) -> dict[str, Any]:
    """Return the attributes that pack, with the dtypes of the file."""
    shown = dict(attributes.values)
    for name, (was, now) in attributes.replaced.items():
        if shown.get(name) == now:
            shown.pop(name, None)
            if was is not None:
                shown[name] = was
    return restore(packing_in(shown), attributes.dtypes)


def packing_in(shown: Mapping[str, Any]) -> dict[str, Any]:
    """Return the attributes that pack."""
    return {name: value for name, value in shown.items() if name in PACKING}


def texts_in(packing: Mapping[str, Any]) -> dict[str, str]:
    """Return the scales and offsets that are no numbers."""
    kinds = {name: np.asarray(packing[name]).dtype.kind for name in _SCALES if name in packing}
    return {name: str(packing[name]) for name, kind in kinds.items() if kind not in "iufb"}


def same_packing(one: dict[str, Any], other: dict[str, Any]) -> bool:
    """Say whether attributes pack alike, dtypes included; NaN is like NaN."""

    def key(value: Any) -> Any:
        if isinstance(value, np.generic | np.ndarray):
            return np.asarray(value).dtype.str, np.asarray(value).tobytes()
        return type(value).__name__, value

    return {n: key(v) for n, v in one.items()} == {n: key(v) for n, v in other.items()}


def decode(values: NDArray[Any], packing: dict[str, Any]) -> NDArray[Any]:
    """Return what packed numbers mean, in the dtype that xarray gives them.

    Texts in the place of numbers say nothing: no library decodes by them.
    """
    from xarray import SerializationWarning, Variable
    from xarray.conventions import decode_cf_variable

    packing = {name: value for name, value in packing.items() if name not in texts_in(packing)}
    if not packing:
        return values
    dims = tuple(f"d{axis}" for axis in range(values.ndim))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SerializationWarning)  # several values mean "missing"
        shown = decode_cf_variable(
            "values", Variable(dims, values, dict(packing)), decode_times=False
        )
        return np.asarray(shown.values)


def repack(
    values: NDArray[Any], dtype: np.dtype[Any], packing: dict[str, Any]
) -> NDArray[Any] | LostValues:
    """Pack decoded values anew, if every one of them survives exactly.

    Args:
        values: As `decoded` returns them.
        dtype: Of the packed values.
        packing: Attributes of the array that they are packed for.
    """
    packed = _pack(values, dtype, packing)
    again = decode(packed, packing)
    wrong = ~same_numbers(values, again)
    if not wrong.any():
        return packed
    both = wrong & np.isfinite(values) & np.isfinite(again)
    error = np.abs(values[both].astype(np.float64) - again[both].astype(np.float64))
    return LostValues(
        count=int(wrong.sum()),
        maximum_error=float(error.max()) if both.any() else float("nan"),
        first=float(values[wrong][0]),
    )


def _pack(values: NDArray[Any], dtype: np.dtype[Any], packing: dict[str, Any]) -> NDArray[Any]:
    scale, offset = packing.get("scale_factor"), packing.get("add_offset")
    if scale is None and offset is None and not (values.dtype.kind == "f" and dtype.kind in "iu"):
        numbers = values
    else:
        numbers = values.astype(np.float64)
        numbers = numbers - (0.0 if offset is None else float(np.asarray(offset).reshape(-1)[0]))
        numbers = numbers / (1.0 if scale is None else float(np.asarray(scale).reshape(-1)[0]))
    missing = np.isnan(values) if values.dtype.kind == "f" else np.zeros(values.shape, np.bool_)
    fill = packing.get("_FillValue", packing.get("missing_value"))
    with np.errstate(invalid="ignore", over="ignore"):
        if dtype.kind in "iu":
            whole = np.rint(numbers) if numbers.dtype.kind == "f" else numbers
            # what is out of range wraps, and unsigned numbers in signed ones are meant to
            held = np.where(missing, 0, whole).astype(np.int64).astype(dtype)
        else:
            held = np.asarray(numbers).astype(dtype)
    if fill is not None:
        first = np.asarray(fill).reshape(-1)[0]
        held[missing] = first.astype(dtype) if isinstance(first, np.generic) else first
    return held


def same_numbers(one: NDArray[Any], other: NDArray[Any]) -> NDArray[np.bool_]:
    """Say for each value whether both are one number, NaN being NaN and -0 not 0."""
    common = np.result_type(one.dtype, other.dtype)
    kinds = one.dtype.kind + other.dtype.kind
    with np.errstate(invalid="ignore", over="ignore"):
        same: NDArray[np.bool_] = one.astype(common) == other.astype(common)
        if kinds == "ff":
            same &= np.signbit(one) == np.signbit(other)
            same |= np.isnan(one) & np.isnan(other)
        elif "f" in kinds:  # large whole numbers are no exact floats
            real, whole = (one, other) if kinds[0] == "f" else (other, one)
            same &= real.astype(whole.dtype) == whole
    return same


class NoMemberError(Exception):
    """A number that has no counterpart; the message says why."""


def can_renumber(one: Any, other: Any) -> bool:
    """Say whether two enumerations, as `members_of` returns them, name single numbers."""
    return all(isinstance(each, Mapping) and "enum" in each for each in (one, other))


def renumber(values: NDArray[Any], source: Attributes, target: Attributes) -> NDArray[Any]:
    """Return the numbers by which ``target`` names what ``source`` names by these.

    Numbers without a name stay, if they have none there either.

    Raises:
        NoMemberError: There is no such number.
    """
    theirs, mine = members_of(source), members_of(target)
    if theirs == mine or not can_renumber(theirs, mine):
        return values
    given, wanted = _number_names(theirs), _number_names(mine)
    names = {number: name for name, number in given.items()}
    there, where = np.unique(values, return_inverse=True)
    made = [_renumber(int(number), names, wanted) for number in there.tolist()]
    dtype = np.min_scalar_type(max(made, default=0)) if min(made, default=0) >= 0 else np.int64
    counted = np.array(made, np.result_type(dtype, values.dtype))[where]
    return counted.reshape(values.shape)


def _number_names(members: Any) -> dict[str, int]:
    return {str(name): int(number) for name, number in members["enum"].items()}


def _renumber(number: int, names: Mapping[int, str], wanted: Mapping[str, int]) -> int:
    name = names.get(number)
    if name is None and number not in wanted.values():
        return number
    if name is None:
        raise NoMemberError(f"{number} has no name in the file, and one in the dataset")
    if name not in wanted:
        raise NoMemberError(f"the dataset has no number for {name!r}, {number} in the file")
    return wanted[name]
