"""Read sidecars: files beside one of GRIB that list its messages.

NOAA's ``.idx`` (of wgrib2) has a line for each field, ECMWF's ``.index`` an object of JSON. What a
field says of its time is taken out of the text, so that files of one forecast have the same rest.
"""

from __future__ import annotations

import json
import re
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from itertools import zip_longest
from operator import itemgetter
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from icevirt.errors import ScanError, StorageError, UnauthorizedError
from icevirt.remedy_notation import write_option, write_remedy
from icevirt.scan.contract import ByteSource
from icevirt.scan.elsewhere import Elsewhere, Opening

LONGEST = 64 << 20  # bytes of a sidecar
_DATE = re.compile(r"d=(\d{10})(\d{2})?(\d{2})?\Z")
_UNIT = r" (min|minute|hour|day)s?"
_INSTANT = re.compile(rf"(\d{{1,9}}){_UNIT} fcst\Z")
_WINDOW = re.compile(rf"(\d{{1,9}})-(\d{{1,9}}){_UNIT} ([a-z ]+?)( fcst| anl)?\Z")
_SECONDS = {"min": 60, "minute": 60, "hour": 3600, "day": 86400}
_TIMES = ("date", "time", "step", "_offset", "_length")
_STEP = re.compile(r"(?:(\d{1,9})-)?(\d{1,9})\Z")


class SidecarError(Exception):
    """A sidecar is not one, or contradicts its file; the message says how."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Sidecar:
    """The messages of a file as its sidecar lists them, a row each."""

    begin: NDArray[np.int64]  # (n,)
    end: NDArray[np.int64]  # (n,)
    time: NDArray[np.int64]  # (n,) seconds from 1970 to the reference time
    first: NDArray[np.int64]  # (n,) seconds from there to where the field begins, -1: not said
    last: NDArray[np.int64]  # (n,) and to where it ends
    kind: tuple[Hashable, ...]  # what else the lines say

    def __len__(self) -> int:
        return len(self.begin)


def find_sidecar(source: ByteSource, beside: Elsewhere, *, required: bool) -> Sidecar | None:
    """Return the sidecar of a file, None where there is none.

    Raises:
        SidecarError: It is not a list of messages.
        ScanError: There is none, and one is required.
    """
    name = source.local_path or source.file.url
    stem = name.removesuffix(f".{name.rpartition('.')[2]}")
    names = (f"{name}.idx", f"{stem}.index", f"{name}.index")
    readers = (_of_noaa, _of_ecmwf, _of_ecmwf)
    far_is_near = source.local_path is None and name.startswith("file://")
    opening = () if far_is_near else zip(beside.sources(names), readers, strict=True)
    for begin, read in opening:
        if (text := _text_of(begin)) is not None:
            lines = [*filter(str.strip, text.splitlines())]
            if not lines:
                raise SidecarError("it lists no messages")
            return read(lines, source.file.size)
    if required:
        raise ScanError(
            "the file has no sidecar",
            do=write_remedy("Leave ", write_option("sidecar", "require"), " out."),
            file=source.file.url,
            looked_for=[each.rpartition("/")[2] for each in names],
        )
    return None


def _text_of(begin: Opening) -> str | None:
    """Return the text of a file, None where there is none, or the server does not say."""
    try:
        source = begin()
    except (StorageError, UnauthorizedError):  # buckets that may not be listed
        return None
    if source is None:
        return None
    try:
        if source.file.size > LONGEST:
            raise SidecarError(f"it has {source.file.size} bytes")
        return source.read(0, source.file.size).decode()
    except UnicodeDecodeError as error:
        raise SidecarError("it is not a text") from error
    finally:
        source.close()


def _of_noaa(lines: Sequence[str], size: int) -> Sidecar:
    count = lines[0].count(":") + 1
    if count > 6 and {line.count(":") for line in lines} == {count - 1}:  # nearly always
        words = ":".join(lines).split(":")
        columns = [tuple(words[at::count]) for at in range(count)]
    else:
        rows = [line.split(":", 6) for line in lines]
        if odd := [line for line, row in zip(lines, rows, strict=True) if len(row) < 6]:
            raise _no_line(odd[0])
        columns = [*zip_longest(*rows)]
    _, offsets, dates, names, levels, whens, *more = columns
    if not all(map(str.isdecimal, offsets)):
        raise _no_line(lines[[each.isdecimal() for each in offsets].index(False)])
    begin = _numbers([*map(int, offsets)])
    spans = {when: _span(when) for when in {*whens}}
    return Sidecar(
        begin=begin,
        end=np.append(begin[1:], size),
        time=_spread(dates, {date: _time(date) for date in {*dates}}),
        first=_spread(whens, {when: span.first for when, span in spans.items()}),
        last=_spread(whens, {when: span.last for when, span in spans.items()}),
        kind=(names, levels, tuple(spans[when].rest for when in whens), *more),
    )


def _spread(texts: Sequence[str], known: Mapping[str, int]) -> NDArray[np.int64]:
    """Return the number of each text, of which there are few."""
    if len(known) == 1:
        return np.full(len(texts), next(iter(known.values())), np.int64)
    return np.array([known[text] for text in texts], np.int64)


def _numbers(found: Sequence[int]) -> NDArray[np.int64]:
    try:
        return np.array(found, np.int64)
    except OverflowError as error:
        raise SidecarError("a number in it is larger than any file") from error


def _no_line(line: str) -> SidecarError:
    return SidecarError(f"a line that wgrib2 does not write: {line[:80]!r}")


@lru_cache(1024)
def _time(text: str) -> int:
    """Return the reference time of a line. Raises `SidecarError` if it is none."""
    if (date := _DATE.match(text)) is None:
        raise SidecarError(f"a line of wgrib2 with another text than a date: {text[:80]!r}")
    return _seconds(date[1], f"{date[2] or '00'}{date[3] or '00'}")


class _Interval(NamedTuple):
    """Where a field begins and ends, and the text without that."""

    first: int
    last: int
    rest: str


@lru_cache(1024)
def _span(text: str) -> _Interval:
    if text == "anl":
        return _Interval(0, 0, text)
    if found := _INSTANT.match(text):
        at = int(found[1]) * _SECONDS[found[2]]
        return _Interval(at, at, "fcst")
    if found := _WINDOW.match(text):
        unit = _SECONDS[found[3]]
        rest = f"{found[4]}{found[5] or ''}"
        return _Interval(int(found[1]) * unit, int(found[2]) * unit, rest)
    return _Interval(-1, -1, text)


@lru_cache(1024)
def _seconds(date: str, more: str) -> int:
    try:
        found = datetime.strptime(f"{date}{more}+0000", "%Y%m%d%H%M%S%z")
    except ValueError as error:
        raise SidecarError(f"a date that is none: {date[:20]!r}") from error
    return int(found.timestamp())


def _of_ecmwf(lines: Sequence[str], _: int) -> Sidecar:
    rows = []
    for line in lines:
        try:
            held: dict[str, Any] = json.loads(line)
            begin, length = int(held["_offset"]), int(held["_length"])
            clock = str(held.get("time", "0000")).zfill(4).ljust(6, "0")
            time = _seconds(f"{held['date']}{clock[:2]}", clock[2:])
            step = _STEP.match(str(held.get("step", "0")))
        except (ValueError, KeyError, TypeError, AttributeError, OverflowError) as error:
            raise SidecarError(f"a line without offset, length or date: {line[:80]!r}") from error
        last = int(step[2]) * 3600 if step else -1  # of a statistic it says the end alone
        rest = repr([pair for pair in held.items() if pair[0] not in _TIMES])
        rows.append((begin, begin + length, time, last, rest))
    rows.sort(key=itemgetter(0))
    *columns, kind = zip(*rows, strict=True)
    begins, ends, times, lasts = map(_numbers, columns)
    unsaid = np.full_like(lasts, -1)
    return Sidecar(begin=begins, end=ends, time=times, first=unsaid, last=lasts, kind=kind)
