"""Convert times with different units and reference dates to one of each, without loss.

A time is exact if xarray decodes the same instant before and after: see `instants`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from icevirt.archive.times import TimeUnits
from icevirt.planning.times.instants import (
    NO_TIME,
    Count,
    InexactError,
    Times,
    decoded_times,
    is_missing,
    is_near,
)
from icevirt.planning.times.references import REFORM
from icevirt.planning.times.units import MICROSECOND

_FINEST = float(1 << 63)  # nanoseconds
_DOUBLE = 1 << 53  # whole numbers that a double holds


def encoded_times(
    times: Times, target: TimeUnits, dtype: np.dtype[Any], fill: float | None
) -> NDArray[Any]:
    """Return numbers that count ``target``, the nearest ones where there is no exact one."""
    apart, after = times.microseconds - target.origin, times.rest
    if target.nanosecond:
        less, after = np.divmod(after - target.nanosecond, MICROSECOND)
        apart = apart + less
    per = target.step // MICROSECOND
    if dtype.kind == "f":
        parts, unit = apart, max(per, 1)
        whole, rest = np.divmod(parts, unit)
        new = whole + (rest + after / MICROSECOND) / unit
        new = (new if per else new * MICROSECOND).astype(dtype)
    elif per:
        new = (apart // per).astype(dtype)
    else:
        with np.errstate(over="ignore"):
            new = (apart * MICROSECOND + after).astype(dtype)
    if times.there.all():
        return new
    none = fill if fill is not None else (np.nan if dtype.kind == "f" else NO_TIME)
    return np.where(times.there, new, np.asarray(none).astype(dtype))


def is_lost(
    new: NDArray[Any], times: Times, target: TimeUnits, fill: float | None
) -> NDArray[np.bool_]:
    """Say which times xarray would not decode from the numbers that they became."""
    try:
        back = decoded_times(new, target, missing=() if fill is None else (fill,))
    except InexactError:
        return np.ones(new.shape, np.bool_)
    lost = (back.microseconds != times.microseconds) | (back.rest != times.rest)
    if new.dtype.kind != "f":
        # cftime gets doubles
        by_cftime = ~is_near(back.microseconds)
        by_cftime |= np.abs(np.where(times.there, new, 0) * float(target.step)) >= _FINEST
        lost |= (np.abs(new) > _DOUBLE) & (by_cftime | (not target.is_fine))
        if not times.there.all():
            lost |= by_cftime  # which cannot decode what means "no time"
    found: NDArray[np.bool_] = times.there & (lost | ~back.there)
    return found


def converted(
    values: NDArray[Any],
    source: Count,
    target: TimeUnits,
    *,
    dtype: np.dtype[Any],
    times: Times,
    missing: Sequence[float | int] = (),
    fill: float | None = None,
) -> tuple[NDArray[Any], NDArray[np.bool_]]:
    """Return times in the units of ``target``, and which of them have no exact value there.

    Args:
        values: Numbers, any shape.
        source: What they count.
        target: What they shall count.
        dtype: What they become.
        times: As they decode.
        missing: Numbers that say "no time"; NaN always does.
        fill: What says so in the result.

    Raises:
        InexactError: A date lies before 1582-10-15, and the calendars agree only from then on.
    """
    if source.calendar != target.calendar:
        _refuse_reform(values, times, source.calendar, target.calendar)
    new = encoded_times(times, target, dtype, fill)
    lost = is_lost(new, times, target, fill)
    same = np.broadcast_to(
        (source.step == target.step)
        & (source.origin == target.origin)
        & (source.nanosecond == target.nanosecond),
        new.shape,
    )
    if same.any():
        # what counts alike decodes alike, to the last digit
        kept = _in_type(values, dtype, missing, fill)
        if kept is not None:
            new = np.where(same, kept, new)
            lost &= ~same
    return new, lost


def recoded(
    values: NDArray[Any],
    source: TimeUnits,
    target: TimeUnits,
    *,
    dtype: np.dtype[Any] | None = None,
    missing: Sequence[float | int] = (),
    fill: float | None = None,
) -> NDArray[Any]:
    """Return the times of one file in the units of ``target``; see `converted`.

    Raises:
        InexactError: A time has no exact value there: it is between two numbers, or too large.
    """
    times = decoded_times(values, source, missing=missing)
    dtype = values.dtype if dtype is None else dtype
    new, lost = converted(
        values, source, target, dtype=dtype, times=times, missing=missing, fill=fill
    )
    if lost.any():
        raise InexactError(
            f"{values[lost].flat[0]} {source.text} has no exact value in {target.text}"
        )
    return new


def _in_type(
    values: NDArray[Any], dtype: np.dtype[Any], missing: Sequence[float | int], fill: float | None
) -> NDArray[Any] | None:
    """Return numbers in a wider type of their kind; None where a number could be another one."""
    wider = values.dtype.kind == dtype.kind and values.dtype.itemsize <= dtype.itemsize
    if not wider:
        return None
    gone = is_missing(values, missing)
    if fill is None or not gone.any():
        return values.astype(dtype)
    new = values.astype(dtype)
    new[gone] = fill
    return None if is_missing(new, (fill,))[~gone].any() else new


def _refuse_reform(values: NDArray[Any], times: Times, one: str, other: str) -> None:
    early = times.there & (times.microseconds < REFORM)
    if early.any():
        raise InexactError(
            f"{values[early].flat[0]} is a date before 1582-10-15, where the calendars {one!r} and"
            f" {other!r} differ"
        )
