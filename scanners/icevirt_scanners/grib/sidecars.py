"""Read sidecars: files beside one of GRIB that list its messages.

NOAA's ``.idx`` (of wgrib2) has a line for each field, ECMWF's ``.index`` an object of JSON. What a
field says of its time is taken out of the text, so that files of one forecast have the same rest.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from icevirt.errors import ScanError, StorageError, UnauthorizedError
from icevirt.remedy_notation import write_option, write_remedy
from icevirt.scan.contract import ByteSource
from icevirt.scan.elsewhere import Elsewhere, Opening

LONGEST = 64 << 20  # bytes of a sidecar
_DATE = re.compile(r"d=(\d{10})(\d{2})?(\d{2})?\Z")
_UNIT = r" (min|minute|hour|day)s?"
_INSTANT = re.compile(rf"(\d+){_UNIT} fcst\Z")
_WINDOW = re.compile(rf"(\d+)-(\d+){_UNIT} ([a-z ]+?)( fcst| anl)?\Z")
_SECONDS = {"min": 60, "minute": 60, "hour": 3600, "day": 86400}
_TIMES = ("date", "time", "step", "_offset", "_length")
_STEP = re.compile(r"(?:(\d+)-)?(\d+)\Z")


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
    kind: tuple[str, ...]  # (n,) what else the lines say

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
            lines = [line for line in text.splitlines() if line.strip()]
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
    rows = [_line(line) for line in lines]
    begins = [row[0] for row in rows]
    return _columns(rows, [*begins[1:], size])


def _line(line: str) -> tuple[int, int, int, int, str]:
    parts = line.split(":", 6)
    time = _time(parts[2]) if len(parts) > 5 else None
    if time is None or not parts[1].isdecimal():
        raise SidecarError(f"a line that wgrib2 does not write: {line[:80]!r}")
    number, offset, _, name, level, when, *more = parts
    first, last, rest = _span(when)
    return int(offset), time, first, last, ":".join((number, name, level, rest, *more))


@lru_cache(1024)
def _time(text: str) -> int | None:
    """Return the reference time of a line, None where it has none."""
    date = _DATE.match(text)
    return date and _seconds(date[1], f"{date[2] or '00'}{date[3] or '00'}")


@lru_cache(1024)
def _span(text: str) -> tuple[int, int, str]:
    """Return where a field begins and ends, and the text without that."""
    if text == "anl":
        return 0, 0, text
    if found := _INSTANT.match(text):
        at = int(found[1]) * _SECONDS[found[2]]
        return at, at, "fcst"
    if found := _WINDOW.match(text):
        unit = _SECONDS[found[3]]
        return int(found[1]) * unit, int(found[2]) * unit, f"{found[4]}{found[5] or ''}"
    return -1, -1, text


@lru_cache(1024)
def _seconds(date: str, more: str) -> int:
    try:
        found = datetime.strptime(f"{date}{more}+0000", "%Y%m%d%H%M%S%z")
    except ValueError as error:
        raise SidecarError(f"a date that is none: {date[:20]!r}") from error
    return int(found.timestamp())


def _of_ecmwf(lines: Sequence[str], _: int) -> Sidecar:
    rows, ends = [], []
    for line in lines:
        try:
            held: dict[str, Any] = json.loads(line)
            begin, length = int(held["_offset"]), int(held["_length"])
            clock = str(held.get("time", "0000")).zfill(4).ljust(6, "0")
            time = _seconds(f"{held['date']}{clock[:2]}", clock[2:])
            step = _STEP.match(str(held.get("step", "0")))
        except (ValueError, KeyError, TypeError, AttributeError, OverflowError) as error:
            raise SidecarError(f"a line without offset, length or date: {line[:80]!r}") from error
        # of a statistic it says the end alone
        last = int(step[2]) * 3600 if step else -1
        kind = json.dumps({k: v for k, v in held.items() if k not in _TIMES}, sort_keys=True)
        rows.append((begin, time, -1, last, kind))
        ends.append(begin + length)
    order = np.argsort([row[0] for row in rows], kind="stable").tolist()
    return _columns([rows[at] for at in order], [ends[at] for at in order])


def _columns(rows: Sequence[tuple[int, int, int, int, str]], ends: list[int]) -> Sidecar:
    if not rows:
        raise SidecarError("it lists no messages")
    try:
        begin, time, first, last = np.array([row[:4] for row in rows], np.int64).T
        end = np.array(ends, np.int64)
    except OverflowError as error:
        raise SidecarError("a number in it is larger than any file") from error
    return Sidecar(
        begin=begin,
        end=end,
        time=time,
        first=first,
        last=last,
        kind=tuple(row[4] for row in rows),
    )
