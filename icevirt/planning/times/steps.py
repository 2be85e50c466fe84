"""Find how far apart labels are, and where steps are missing, from a column of them.

Months and years are as long as their calendar has them, so that neither a 29th of February nor a
month of 30 days is a gap.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from icevirt.planning.times.calendars import CalendarDates, dates_of

_FEW = 2  # differences, at least
_MOST = 0.5  # of the differences are one step, or there is none
_ROUNDING = 0.01  # of a step: times in floats are not exact
_OF_NUMBERS = 1e-3
_MONTH = 28 * 86_400_000_000  # microseconds: no month is shorter
_YEAR = 12  # months
_UNITS = (  # microseconds
    ("day", 86_400_000_000),
    ("hour", 3_600_000_000),
    ("minute", 60_000_000),
    ("second", 1_000_000),
    ("millisecond", 1_000),
)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Spacing:
    """How far apart labels are."""

    every: str = ""  # like "day", "6 hours", "3 months", "0.25"; "" where that differs
    duration: str = ""  # the same as the option spacing takes it; "" where it cannot
    shortest: str = ""  # where there is no one step
    longest: str = ""
    after: NDArray[np.int64] | None = None  # (gaps,) the label before each gap
    missing: NDArray[np.int64] | None = None  # (gaps,) steps in each


def spacing_of_times(times: NDArray[np.int64], calendar: str) -> Spacing:
    """Return how far apart times are; microseconds since 1970-01-01 of their calendar, in order."""
    apart = _ascending(np.diff(times))
    if apart is None:
        return Spacing()
    step = int(_usual(apart))
    if step >= _MONTH and (dates := dates_of(times, calendar)) is not None:
        found = _of_months(dates)
        if found is not None:
            return found
    step = _rounded(step)
    gaps = _of_steps(apart, step, _ROUNDING)
    if gaps is None:
        return Spacing(shortest=_duration(int(apart.min())), longest=_duration(int(apart.max())))
    after, missing = gaps
    return Spacing(every=_each(step), duration=_option(step), after=after, missing=missing)


def spacing_of_numbers(values: NDArray[Any]) -> Spacing:
    """Return how far apart numbers are, in order."""
    apart = _ascending(np.diff(values.astype(np.float64)))
    if apart is None or not np.isfinite(apart).all():
        return Spacing()
    step = float(_usual(apart))
    found = _of_steps(apart, step, _OF_NUMBERS) if step else None
    if found is None:
        return Spacing(shortest=f"{apart.min():g}", longest=f"{apart.max():g}")
    after, missing = found
    return Spacing(every=f"{step:g}", duration=f"{step:g}", after=after, missing=missing)


def _ascending(apart: NDArray[Any]) -> NDArray[Any] | None:
    """Return differences as distances; None where there are few, or labels go up and down."""
    if len(apart) < _FEW:
        return None
    if (apart > 0).all():
        return apart
    return -apart if (apart < 0).all() else None


def _usual(apart: NDArray[Any]) -> Any:
    """Return the first difference if most are equal to it, else the median."""
    first = apart[0]
    if np.count_nonzero(apart == first) > len(apart) // 2:
        return first
    return np.partition(apart, len(apart) // 2)[len(apart) // 2]


def _of_steps(
    apart: NDArray[Any], step: float, tolerance: float
) -> tuple[NDArray[np.int64], NDArray[np.int64]] | None:
    """Return after which labels steps are missing, and how many; None where there is no step."""
    others = np.flatnonzero(apart != step)  # few, or times are not exact
    steps = np.rint(apart[others] / step)
    is_whole = np.abs(apart[others] - steps * step) <= tolerance * step
    gaps = np.flatnonzero(steps > 1)
    if not is_whole.all() or (steps < 1).any() or len(gaps) > (1 - _MOST) * len(apart):
        return None
    return others[gaps], steps[gaps].astype(np.int64) - 1


def _of_months(dates: CalendarDates) -> Spacing | None:
    """Return the spacing of labels that are whole months apart; None where they are not.

    They lie on one day of the month, or where the months' lengths put them: at their ends or
    middles.
    """
    apart = np.abs(np.diff(dates.months))
    step = int(_usual(apart))
    found = _of_steps(apart, step, 0.0) if step else None
    day = dates.day[:-1], dates.day[1:]
    if found is None or (np.abs(day[0] - day[1]) > 3).any():
        return None
    is_fixed = (dates.day == dates.day[0]).all()
    if not is_fixed and not (_at_ends(dates) or (abs(dates.day - 15) <= 2).all()):
        return None
    unit, number = ("year", step // _YEAR) if not step % _YEAR else ("month", step)
    after, missing = found
    every = unit if number == 1 else f"{number} {unit}s"
    return Spacing(every=every, after=after, missing=missing)


def _at_ends(dates: CalendarDates) -> bool:
    return bool((dates.day >= 28).all())


def _rounded(step: int) -> int:
    """Return a step without the rounding of floats: in whole seconds where it is long."""
    unit = 1_000_000 if step >= 60_000_000 else 1_000 if step >= 1_000_000 else 1
    return max(1, round(step / unit)) * unit


def _each(step: int) -> str:
    return _duration(step).removeprefix("1 ")


def _duration(span: int) -> str:
    """Return a duration in the largest unit that measures it, nearly."""
    name, length = next((each for each in _UNITS if span >= each[1]), ("microsecond", 1))
    shown = f"{round(span / length, 2):,g}"
    return f"{shown} {name}{'' if shown == '1' else 's'}"


def _option(step: int) -> str:
    """Return a step as the option spacing takes it."""
    units = (("D", _UNITS[0][1]), ("h", _UNITS[1][1]), ("min", _UNITS[2][1]), ("s", _UNITS[3][1]))
    return next(
        (f"{step // length}{unit}" for unit, length in units if not step % length), f"{step}us"
    )
