"""Decode the numbers of times to instants as xarray does, and convert them without loss.

It decodes dates between 1677 and 2262 to nanoseconds, of floats toward zero; others, and those of
other calendars, are decoded by cftime, to microseconds. A conversion is exact if xarray decodes the
same instant before and after.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from icevirt.archive.schema import DURATION, MEASURES, TimeStorage, TimeUnits, UnitColumns
from icevirt.planning.times.calendars import MICROSECOND, REFORM, SECOND

_LONGEST = 1 << 62  # microseconds; 146,000 years
_FINEST = float(1 << 63)  # nanoseconds
NO_TIME = int(np.iinfo(np.int64).min)
"""The integer that means "no time" in xarray."""


class InexactError(ValueError):
    """A time has no exact place in the common units; the message says which.

    Attributes:
        at: Which one of the numbers, end to end; for those of several files, whose file.
    """

    def __init__(self, message: str, at: int = 0) -> None:
        super().__init__(message)
        self.at = at


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CountColumns:
    """Units and references, one for each number; `TimeUnits` has one for all."""

    step: NDArray[np.int64]
    origin: NDArray[np.int64]
    nanosecond: NDArray[np.int64]
    calendar: str
    is_fine: bool
    is_one: bool

    @classmethod
    def of(cls, counts: UnitColumns, storage: TimeStorage) -> CountColumns:
        """Return what numbers of one kind count."""
        return cls(
            **{name: getattr(counts, name) for name in ("step", "origin", "nanosecond")},
            **{name: getattr(storage, name) for name in ("calendar", "is_fine", "is_one")},
        )


type Count = TimeUnits | CountColumns
"""What numbers count: one unit and reference, or columns that have those of each number."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Times:
    """Instants as xarray decodes them."""

    microseconds: NDArray[np.int64]  # since 1970-01-01, in their calendar
    rest: NDArray[np.int64]  # nanoseconds after that
    there: NDArray[np.bool_]


def is_missing(values: NDArray[Any], missing: Sequence[float | int]) -> NDArray[np.bool_]:
    """Say which numbers mean "no time"; NaN always does, and the smallest integer of 64 bits."""
    if values.dtype.kind == "f":
        with np.errstate(over="ignore"):
            return np.isnan(values) | np.isin(values, np.array(missing, float).astype(values.dtype))
    limits = np.iinfo(values.dtype)
    marks = [int(n) for n in missing if float(n).is_integer() and limits.min <= n <= limits.max]
    marks += [NO_TIME] * (limits.min == NO_TIME)
    return np.isin(values, np.array(marks, values.dtype))


def decode_times(
    values: NDArray[Any],
    count: Count,
    *,
    missing: Sequence[float | int] = (),
    starts: NDArray[np.int64] | None = None,
) -> Times:
    """Return the instants that xarray decodes from numbers.

    Args:
        values: Whole or real numbers.
        count: What they count.
        missing: Numbers that mean "no time".
        starts: Where the values of each file begin; None where all are of one file. If one time
            of a file is out of the range of nanoseconds, all of them are decoded to microseconds.

    Raises:
        InexactError: One lies further away than microseconds can count.
    """
    there = ~is_missing(values, missing)
    if count.calendar.startswith(MEASURES):  # which are no instants
        none = np.zeros(values.shape, np.int64)
        return Times(microseconds=none, rest=none, there=there)
    if values.dtype.kind != "f":
        return _of_integers(np.where(there, values, 0), count, there)
    there &= np.isfinite(values)
    known = np.where(there, values, 0).astype(np.float64)
    _refuse_far(known, count)
    if count.calendar == DURATION:
        return _of_long(known, count, there, starts)
    coarse, none = _round(known, count), np.zeros(known.shape, np.int64)
    if not count.is_fine:
        return Times(microseconds=coarse, rest=none, there=there)
    product = known * count.step
    is_fine = (np.abs(product) < _FINEST) & is_near(coarse)
    _refuse_two_references(known, is_fine, count)
    is_fine = ~_any_of_file(~is_fine, starts)
    whole, rest = _carry(np.where(is_fine, product, 0).astype(np.int64), count)
    return Times(
        microseconds=np.where(is_fine, whole + count.origin, coarse),
        rest=np.where(is_fine, rest, 0),
        there=there,
    )


def _of_integers(known: NDArray[Any], count: Count, there: NDArray[np.bool_]) -> Times:
    _refuse_far(known, count)
    numbers = known.astype(np.int64)
    micro, nano = np.divmod(np.asarray(count.step, np.int64), MICROSECOND)
    whole, rest = _carry(numbers * nano, count)
    microseconds = numbers * micro + whole + count.origin
    near = is_near(microseconds)
    if count.calendar == DURATION:
        _refuse_long(known, near)
    elif count.is_fine:
        _refuse_two_references(known, near | ~there, count)
    return Times(microseconds=microseconds, rest=rest, there=there)


def _any_of_file(found: NDArray[np.bool_], starts: NDArray[np.int64] | None) -> NDArray[np.bool_]:
    """Say for each number whether something is true of any of its file."""
    if starts is None or not len(starts):
        return np.full(found.shape, found.any())
    sizes = np.diff(np.append(starts, len(found)))
    of_file = np.logical_or.reduceat(found, starts[sizes > 0])
    return np.repeat(of_file, sizes[sizes > 0])


def _of_long(
    known: NDArray[np.float64],
    count: Count,
    there: NDArray[np.bool_],
    starts: NDArray[np.int64] | None,
) -> Times:
    """Return durations of floats: of seconds, of a thousandth while one of a file has a part."""
    step = np.broadcast_to(np.asarray(count.step, np.int64), known.shape)
    _refuse_long(known, np.abs(known * step) < _FINEST)
    unit = np.minimum(step, SECOND)
    number = known * (step // unit)
    while (finer := _any_of_file((number % 1 > 0) & (unit > 1), starts)).any():
        number = np.where(finer, number * 1000, number)
        unit = np.where(finer, unit // 1000, unit)
    whole, rest = np.divmod(number.astype(np.int64) * unit, MICROSECOND)
    return Times(microseconds=whole, rest=rest, there=there)


def _refuse_long(known: NDArray[Any], is_short: NDArray[np.bool_]) -> None:
    if not is_short.all():
        at = int(np.argmin(is_short))
        raise InexactError(f"{known.flat[at]} is longer than 64 bits of nanoseconds", at)


def _carry(
    nanoseconds: NDArray[np.int64], count: Count
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return nanoseconds after those of the reference, as microseconds and a rest."""
    whole, rest = np.divmod(nanoseconds, MICROSECOND)
    more, rest = np.divmod(rest + count.nanosecond, MICROSECOND)
    return whole + more, rest


def is_near(microseconds: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Say which times nanoseconds of 64 bits reach."""
    near: NDArray[np.bool_] = np.abs(microseconds) < _FINEST / MICROSECOND - 1
    return near


def _refuse_two_references(known: NDArray[Any], is_near: NDArray[np.bool_], count: Count) -> None:
    """Refuse what xarray counts from one date by pandas, and from another one by cftime.

    Raises:
        InexactError: A time is beyond nanoseconds, so that xarray asks cftime.
    """
    if count.is_one or is_near.all():
        return
    at = int(np.argmin(is_near))
    raise InexactError(
        f"{known.flat[at]} is a date before 1677 or after 2262, for which xarray reads the"
        " reference date in another way",
        at,
    )


def _refuse_far(known: NDArray[Any], count: Count) -> None:
    with np.errstate(over="ignore"):  # infinity is far too
        away = np.abs(known.astype(np.float64)) * (np.asarray(count.step) / MICROSECOND)
        far = away + np.abs(count.origin) > _LONGEST
    if far.any():
        at = int(np.argmax(far))
        raise InexactError(f"{known.flat[at]} is out of range", at)


def _round(known: NDArray[np.float64], count: Count) -> NDArray[np.int64]:
    """Return microseconds since 1970-01-01, the nearest ones."""
    step = np.asarray(count.step, np.int64)
    if (step % MICROSECOND).any():  # cftime knows no nanoseconds
        return np.rint(known * (step / MICROSECOND)).astype(np.int64) + count.origin
    # whole units and the rest apart: a product of the two would lose the last digits
    micro = step // MICROSECOND
    whole = np.floor(known)
    part = (known - whole) * micro
    rest = np.rint(part)
    counted: NDArray[np.int64] = whole.astype(np.int64) * micro + rest.astype(np.int64)
    # cftime rounds to whole seconds what is less than a microsecond away from them
    within, is_coarse = counted % 1_000_000, step >= SECOND
    counted -= is_coarse & (within == 1) & (part < rest)
    counted += is_coarse & (within == 999_999) & (part > rest)
    return counted + count.origin


def microseconds(
    values: NDArray[Any], units: TimeUnits, *, missing: Sequence[float | int] = ()
) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Return times since 1970-01-01 in the nearest microseconds, and which are there at all.

    Raises:
        InexactError: One lies further away than microseconds can count.
    """
    there = ~is_missing(values, missing)
    if values.dtype.kind == "f":
        there &= np.isfinite(values)
        known = np.where(there, values, 0).astype(np.float64)
        _refuse_far(known, units)
        return _round(known, units), there
    return _of_integers(np.where(there, values, 0), units, there).microseconds, there


_DOUBLE = 1 << 53  # whole numbers that a double holds


def encode_times(
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
        back = decode_times(new, target, missing=() if fill is None else (fill,))
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


def convert(
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
    if target.calendar.startswith(MEASURES):
        times_as_many = np.asarray(source.step // target.step, dtype)
        with np.errstate(over="ignore"):
            new = values.astype(dtype) * times_as_many
        far = np.abs(values.astype(np.float64) * times_as_many) >= _FINEST
        return new, far & (dtype.kind != "f")
    if source.calendar != target.calendar:
        early = times.there & (times.microseconds < REFORM)
        if early.any():
            raise InexactError(
                f"{values[early].flat[0]} is a date before 1582-10-15, where the calendars"
                f" {source.calendar!r} and {target.calendar!r} differ"
            )
    new = encode_times(times, target, dtype, fill)
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


def recode(
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
    times = decode_times(values, source, missing=missing)
    dtype = values.dtype if dtype is None else dtype
    new, lost = convert(
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
    if values.dtype.kind != dtype.kind or values.dtype.itemsize > dtype.itemsize:
        return None
    new, gone = values.astype(dtype), is_missing(values, missing)
    if fill is None or not gone.any():
        return new
    new[gone] = fill
    return None if is_missing(new, (fill,))[~gone].any() else new
