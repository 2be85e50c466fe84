"""Cut an answer of type multipart/byteranges into its ranges. Pure: bytes to parts.

A part is as long as its Content-Range says, so bytes of the file that look like a delimiter are
bytes of the file. Any other answer is refused: the caller has another way to get the bytes.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

from icevirt.objects.http.heads import content_range

if TYPE_CHECKING:
    from icevirt.objects.answers import Body

type Range = tuple[int, int]
"""The first byte, and the one after the last."""

_MOST_PARTS = 256  # servers may cut a range
_LONGEST_HEAD = 1024  # bytes of one part, the delimiter before it left out
_BOUNDARY = re.compile(r'"([!#-\[\]-~](?:[ !#-\[\]-~]{0,68}[!#-\[\]-~])?)"|([!#-+\--:<-~]{1,70})')
_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_VALUE = re.compile(r"[^\x00-\x08\x0a-\x1f\x7f]*")


class MultipartError(ValueError):
    """An answer is not the ranges that were requested."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RangePart:
    """A part of an answer: bytes ``begin`` to ``end`` of a file of ``size`` bytes."""

    begin: int
    end: int
    size: int
    body: memoryview


def longest_body(ranges: Sequence[Range]) -> int:
    """Return how many bytes an answer with these ranges may have, heads of parts included."""
    return sum(end - begin for begin, end in ranges) + (len(ranges) + 1) * _LONGEST_HEAD


def boundary_of(content_type: str) -> bytes:
    """Return what stands between the parts of an answer. Raises `MultipartError`."""
    kind, *parameters = content_type.split(";")
    if kind.strip().lower() != "multipart/byteranges":
        raise MultipartError("the answer does not have several ranges")
    named = [parameter.partition("=") for parameter in parameters]
    given = [value.strip() for name, _, value in named if name.strip().lower() == "boundary"]
    found = _BOUNDARY.fullmatch(given[0]) if len(given) == 1 else None
    if found is None:
        raise MultipartError("the answer does not say what separates its parts")
    return str(found[1] or found[2]).encode("ascii")


def parts_of(body: bytes, boundary: bytes) -> list[RangePart]:
    """Return the parts of a body, in their order there. Raises `MultipartError`."""
    parts: list[RangePart] = []
    view, delimiter = memoryview(body), b"--" + boundary
    at = 0 if body.startswith(delimiter) else 2
    if at and not body.startswith(b"\r\n"):
        raise MultipartError("something precedes the first part")
    while body.startswith(delimiter, at):
        at += len(delimiter)
        if body.startswith(b"--", at):
            if body[at + 2 :] not in (b"", b"\r\n"):
                raise MultipartError("something follows the last part")
            return parts
        if len(parts) == _MOST_PARTS:
            raise MultipartError("the answer has too many parts")
        part = _part(body, view, at)
        parts.append(part[0])
        at = part[1]
    raise MultipartError("the answer ends within its parts")


def _part(body: bytes, view: memoryview, at: int) -> tuple[RangePart, int]:
    """Return the part behind a delimiter, and where the next delimiter stands."""
    head_end = body.find(b"\r\n\r\n", at, at + _LONGEST_HEAD)
    if head_end < 0:
        raise MultipartError("the head of a part does not end")
    begin, end, size = _range_of(_head(body[at:head_end].decode("latin-1")))
    first = head_end + 4
    stop = first + end - begin
    if body[stop : stop + 2] != b"\r\n":
        raise MultipartError("a part does not have the length of its range")
    return RangePart(begin=begin, end=end, size=size, body=view[first:stop]), stop + 2


def _head(text: str) -> dict[str, str]:
    """Return the headers of a part."""
    padding, *lines = text.split("\r\n")
    if padding.strip(" \t"):
        raise MultipartError("something follows a delimiter")
    headers: dict[str, str] = {}
    for line in lines:
        name, colon, value = line.partition(":")
        if not colon or not _NAME.fullmatch(name) or not _VALUE.fullmatch(value):
            raise MultipartError("a part has a header that is none")
        if headers.setdefault(name.lower(), value.strip()) != value.strip():
            raise MultipartError("a part has two headers of one name")
    return headers


def _range_of(headers: dict[str, str]) -> tuple[int, int, int]:
    """Return where the range of a part begins and ends, and the size of the file."""
    found = content_range(headers.get("content-range", ""))
    if found is None or found[3] == "*":
        raise MultipartError("a part does not say which range it is")
    begin, end, size = int(found[1]), int(found[2]) + 1, int(found[3])
    if not begin < end <= size:
        raise MultipartError("a part is a range that no file has")
    encoded = {"content-encoding", "content-transfer-encoding"} & headers.keys()
    if encoded or headers.get("content-type", "").lower().startswith("multipart/"):
        raise MultipartError("a part is not the bytes of a file")
    return begin, end, size


def bodies_of(parts: Sequence[RangePart], ranges: Sequence[Range], size: int) -> list[Body]:
    """Return the bytes of ranges of a file; parts may be in another order, joined or cut.

    Raises:
        MultipartError: A byte is missing or comes twice, or was not requested.
    """
    parts = sorted(parts, key=lambda part: part.begin)
    first, last = min(begin for begin, _ in ranges), max(end for _, end in ranges)
    if any(not first <= part.begin < part.end <= last or part.size != size for part in parts):
        raise MultipartError("a part is not of what was requested")
    if any(part.end > following.begin for part, following in pairwise(parts)):
        raise MultipartError("parts overlap")
    used: set[int] = set()
    bodies = [_joined(parts, begin, end, used) for begin, end in ranges]
    if len(used) < len(parts):
        raise MultipartError("the answer has more than was requested")
    return bodies


def _joined(parts: Sequence[RangePart], begin: int, end: int, used: set[int]) -> Body:
    """Return the bytes of a range; add the numbers of the parts that hold them to ``used``."""
    pieces: list[memoryview] = []
    while begin < end:
        number = bisect_right(parts, begin, key=lambda part: part.begin) - 1
        if number < 0 or parts[number].end <= begin:
            raise MultipartError("the answer lacks a part")
        part, stop = parts[number], min(end, parts[number].end)
        pieces.append(part.body[begin - part.begin : stop - part.begin])
        used.add(number)
        begin = stop
    return pieces[0] if len(pieces) == 1 else b"".join(pieces)
