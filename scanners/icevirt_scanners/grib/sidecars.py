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
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from icevirt.errors import ScanError, StorageError, UnauthorizedError
from icevirt.remedy_notation import write_option, write_remedy
from icevirt.scan.contract import ByteSource
from icevirt.scan.elsewhere import Elsewhere, Opening

LONGEST = 64 << 20  # bytes of a sidecar
_CELLS = 6  # of a line of wgrib2 at least: number, offset, date, parameter, level, time
_DATE = re.compile(r"d=(\d{10})(\d{2})?(\d{2})?\Z")
_UNIT = r" (min|minute|hour|day)s?"
_INSTANT = re.compile(rf"(\d{{1,9}}){_UNIT} fcst\Z")
_WINDOW = re.compile(rf"(\d{{1,9}})-(\d{{1,9}}){_UNIT} ([a-z ]+?)( fcst| anl)?\Z")
_SECONDS = {"min": 60, "minute": 60, "hour": 3600, "day": 86400}
_TIMES = frozenset({"date", "time", "step", "_offset", "_length"})
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
        if (raw := _read_beside(begin)) is not None:
            if not raw.strip():
                raise SidecarError("it lists no messages")
            return read(raw, source.file.size)
    if required:
        raise ScanError(
            "the file has no sidecar",
            do=write_remedy("Leave ", write_option("sidecar", "require"), " out."),
            file=source.file.url,
            looked_for=[each.rpartition("/")[2] for each in names],
        )
    return None


def _read_beside(begin: Opening) -> bytes | None:
    """Return the bytes of a file, None where there is none, or the server does not say."""
    try:
        source = begin()
    except (StorageError, UnauthorizedError):  # buckets that may not be listed
        return None
    if source is None:
        return None
    try:
        if source.file.size > LONGEST:
            raise SidecarError(f"it has {source.file.size} bytes")
        return source.read(0, source.file.size)
    finally:
        source.close()


def _of_noaa(raw: bytes, size: int) -> Sidecar:
    begin, dates, whens, kind = _read_columns(raw) or _read_lines(raw)
    times, spans = (
        {date: _time(date) for date in {*dates}},
        {when: _span(when) for when in {*whens}},
    )
    rests = {when: span.rest for when, span in spans.items()}
    return Sidecar(
        begin=begin,
        end=np.append(begin[1:], size),
        time=_spread(dates, times),
        first=_spread(whens, {when: span.first for when, span in spans.items()}),
        last=_spread(whens, {when: span.last for when, span in spans.items()}),
        kind=(*kind, tuple(map(rests.__getitem__, whens))),
    )


type _Said = tuple[NDArray[np.int64], Sequence[str], Sequence[str], tuple[Hashable, ...]]
"""Of each line its offset, date and time; and what else all of them say."""


def _read_columns(raw: bytes) -> _Said | None:
    """Read lines of as many cells each, all at once; None where it is another text."""
    raw = raw if raw.endswith(b"\n") else raw + b"\n"
    octets = np.frombuffer(raw, np.uint8)
    cuts = np.flatnonzero((octets == ord(":")) | (octets == ord("\n")))
    is_end = octets[cuts] == ord("\n")
    count = int(is_end.argmax()) + 1
    if count <= _CELLS or len(cuts) % count or not raw.isascii():
        return None
    cells: NDArray[np.int64] = cuts.reshape(-1, count)
    lines, ends = int(is_end.sum()), is_end.reshape(-1, count)[:, -1]
    if lines != len(cells) or not ends.all() or np.count_nonzero(octets < ord(" ")) != lines:
        return None
    begin = _read_decimals(octets, cells[:, 0] + 1, cells[:, 1])
    if begin is None:
        return None
    dates, whens = (_cut(raw, cells[:, at - 1] + 1, cells[:, at]) for at in (2, _CELLS - 1))
    turns = np.zeros(len(octets) + 1, np.int8)  # where something else begins, and where it ends
    for at, turn in ((cells[:, 2], 1), (cells[:, 4], -1), (cells[:, 5], 1), (cells[:, -1], -1)):
        turns[at + 1] += np.int8(turn)
    else_said = octets[np.cumsum(turns[:-1], dtype=np.int8) > 0].tobytes()
    return begin, dates, whens, (else_said,)


def _read_decimals(
    octets: NDArray[np.uint8], begin: NDArray[np.int64], end: NDArray[np.int64]
) -> NDArray[np.int64] | None:
    """Return numbers of at most 18 digits; None where something else is there."""
    length = end - begin
    width = int(length.max())
    if width > 18 or not length.all():
        return None
    at = end[:, None] - np.arange(width, 0, -1)
    digits = octets[np.maximum(at, 0)] - np.uint8(ord("0"))
    digits[at < begin[:, None]] = 0
    if (digits > 9).any():
        return None
    found: NDArray[np.int64] = digits @ 10 ** np.arange(width - 1, -1, -1)
    return found


def _cut(raw: bytes, begin: NDArray[np.int64], end: NDArray[np.int64]) -> list[str]:
    """Return parts of a text, of which few differ."""
    length = end - begin
    if (length == length[0]).all():  # most lists are of one time
        places = begin[:, None] + np.arange(length[0])
        octets = np.frombuffer(raw, np.uint8)[places]
        if (octets == octets[0]).all():
            return [octets[0].tobytes().decode()] * len(begin)
    pairs = zip(begin.tolist(), end.tolist(), strict=True)
    parts = [raw[first:last] for first, last in pairs]
    texts = {part: part.decode() for part in {*parts}}
    return [*map(texts.__getitem__, parts)]


def _read_lines(raw: bytes) -> _Said:
    """Read lines of any number of cells. Raises `SidecarError` if they are none of wgrib2."""
    lines = _split(raw)
    rows = [line.split(":", _CELLS) for line in lines]
    if odd := [line for line, row in zip(lines, rows, strict=True) if len(row) < _CELLS]:
        raise _no_line(odd[0])
    _, offsets, dates, names, levels, whens, *more = zip_longest(*rows)
    if not all(map(str.isdecimal, offsets)):
        raise _no_line(lines[[each.isdecimal() for each in offsets].index(False)])
    return _numbers([*map(int, offsets)]), dates, whens, (names, levels, *more)


def _split(raw: bytes) -> list[str]:
    try:
        return [*filter(str.strip, raw.decode().splitlines())]
    except UnicodeDecodeError as error:
        raise SidecarError("it is not a text") from error


def _spread[T: Hashable](texts: Sequence[T], known: Mapping[T, int]) -> NDArray[np.int64]:
    """Return the number of each text, of which there are few."""
    if len(known) == 1:
        return np.full(len(texts), next(iter(known.values())), np.int64)
    return np.array([*map(known.__getitem__, texts)], np.int64)


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


def _of_ecmwf(raw: bytes, _: int) -> Sidecar:
    begin, length, time, last, rests = _read_shaped(raw) or _read_objects(raw)
    unsaid = np.full_like(last, -1)
    order = np.argsort(begin, kind="stable")
    if (order[1:] < order[:-1]).any():
        begin, length, time, last = (each[order] for each in (begin, length, time, last))
        rests = tuple(map(rests.__getitem__, order.tolist()))
    return Sidecar(begin=begin, end=begin + length, time=time, first=unsaid, last=last, kind=rests)


type _Listed = tuple[
    NDArray[np.int64], NDArray[np.int64], NDArray[np.int64], NDArray[np.int64], tuple[str, ...]
]
"""Of each line offset, length, reference time, end and what else it says."""


@lru_cache(1024)
def _when(date: str, clock: str, step: str) -> tuple[int, int]:
    """Return the reference time, and seconds to the end of a field; -1 where that is not said."""
    clock = clock.zfill(4).ljust(6, "0")
    found = _STEP.match(step)
    last = int(found[2]) * 3600 if found else -1  # of a statistic it says the end alone
    return _seconds(f"{date}{clock[:2]}", clock[2:]), last


def _read_objects(raw: bytes) -> _Listed:
    """Read objects line by line. Raises `SidecarError` if they list no messages."""
    rows, objects = [], []
    for line in _split(raw):
        try:
            held: dict[str, Any] = json.loads(line)
            begin, length = int(held["_offset"]), int(held["_length"])
            when = _when(
                str(held["date"]), str(held.get("time", "0000")), str(held.get("step", ""))
            )
        except (ValueError, KeyError, TypeError, AttributeError, OverflowError) as error:
            raise SidecarError(f"a line without offset, length or date: {line[:80]!r}") from error
        rest = repr([pair for pair in held.items() if pair[0] not in _TIMES])
        rows.append((begin, length, *when, rest))
        objects.append(held)
    *columns, rests = zip(*rows, strict=True)
    _remember(raw, objects, rests)
    begins, lengths, times, lasts = map(_numbers, columns)
    return begins, lengths, times, lasts, rests


# what a line says of its place and time, as it is written mostly
_TOLD = re.compile(rb'("(?:date|time|step|_offset|_length)": ?)("[0-9-]{1,19}"|[1-9][0-9]{0,17}|0)')
_SHAPES = 32 << 20  # bytes of texts that are remembered


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Shape:
    """A text whose values of places and times may be others."""

    names: tuple[str, ...]  # of these, alike in all lines
    rests: tuple[str, ...]  # what else each line says


_shapes: dict[bytes, _Shape] = {}  # by the text without the values, the latest at the end


def _cut_told(raw: bytes) -> tuple[bytes, list[bytes], list[bytes]]:
    """Return a text with a zero in the place of each value, what is before these, and the values.

    Texts with the same first are the same but for the values.
    """
    parts = _TOLD.split(raw)
    values, names = parts[2::3], parts[1::3]
    del parts[2::3]
    return b"\0".join(parts), names, values


def _write(value: object) -> bytes:
    """Return a value as `_TOLD` finds it."""
    return (f'"{value}"' if isinstance(value, str) else repr(value)).encode()


def _remember(raw: bytes, objects: Sequence[Mapping[str, Any]], rests: tuple[str, ...]) -> None:
    """Remember a text, if what is cut out of it is what its objects say."""
    shape, keys, values = _cut_told(raw)
    names = tuple(key.split(b'"')[1].decode() for key in keys)
    count = len(names) // len(objects)
    told = names[:count]
    counts = {name: len(objects) if name in told else 0 for name in _TIMES}
    if (
        b"\0" in raw
        or b"\\" in raw
        or len(shape) > _SHAPES
        or names != told * len(objects)
        or any(raw.count(f'"{name}"'.encode()) != count for name, count in counts.items())
        or any(_TIMES & held.keys() != {*told} for held in objects)
        or values != [_write(held[name]) for held in objects for name in told]
    ):
        return
    while _shapes and sum(map(len, _shapes)) + len(shape) > _SHAPES:
        _shapes.pop(next(iter(_shapes)), None)
    _shapes[shape] = _Shape(names=told, rests=rests)


def _read_shaped(raw: bytes) -> _Listed | None:
    """Read a text that differs in places and times from one that was read; None for another one."""
    shape, _, values = _cut_told(raw)
    if b"\0" in raw or (known := _shapes.get(shape)) is None:
        return None
    told = {name: values[at :: len(known.names)] for at, name in enumerate(known.names)}
    count = len(known.rests)
    columns = [
        told.get(name, [default] * count)
        for name, default in (("date", b""), ("time", b"0000"), ("step", b""))
    ]
    whens = [*zip(*columns, strict=True)]
    said = {when: _when(*(each.decode().strip('"') for each in when)) for when in {*whens}}
    try:
        begin, length = (_numbers([*map(int, told[name])]) for name in ("_offset", "_length"))
    except ValueError:  # texts of numbers
        return None
    times, lasts = ({when: each[at] for when, each in said.items()} for at in (0, 1))
    return begin, length, _spread(whens, times), _spread(whens, lasts), known.rests
