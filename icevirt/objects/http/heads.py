"""Read what the head of an answer says of a file. Pure: heads to values."""

from __future__ import annotations

import re
from email.errors import FirstHeaderLineIsContinuationDefect, MissingHeaderBodySeparatorDefect
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING

from icevirt.objects.answers import Meta

if TYPE_CHECKING:
    from http.client import HTTPMessage, HTTPResponse

type Fields = dict[str, str]

AGAIN = (408, 425, 429, 500, 502, 503, 504)
"""Statuses of a server that may answer the same request later."""

GONE = (404, 410)

_NUMBER = re.compile(r"[0-9]{1,19}")
_RANGE = re.compile(r"bytes ([0-9]{1,19})-([0-9]{1,19})/([0-9]{1,19}|\*)")
_LONGEST_WAIT = 10.0  # seconds
_CUT_HEADS = (MissingHeaderBodySeparatorDefect, FirstHeaderLineIsContinuationDefect)
"""What the library notes where it leaves out lines of a head, or all that follow one."""


def fields_of(headers: HTTPMessage) -> Fields:
    """Return headers by name, in lower case; the values of a name that comes again are a list.

    A list is no valid length, range, coding or etag, so nothing is taken from one of two values.
    """
    fields: Fields = {}
    for name, value in headers.items():
        key, text = name.lower(), value.strip()
        known = fields.setdefault(key, text)
        if known is not text and (known != text or key == "transfer-encoding"):
            fields[key] = f"{known}, {text}"
    return fields


def refuse_unclear_framing(response: HTTPResponse) -> None:
    """Refuse an answer whose end others may see elsewhere than the standard library does.

    The library takes what it cannot read for absent: a body in other codings would count as bytes
    of the file, together with the sizes of its chunks.

    Raises:
        ValueError: It says its length otherwise than by a number in ``Content-Length`` or by
            ``chunked`` as the only coding.
    """
    fields = fields_of(response.headers)
    length, coding = fields.get("content-length"), fields.get("transfer-encoding")
    if any(isinstance(defect, _CUT_HEADS) for defect in response.headers.defects):
        raise ValueError("a line of its head is not a header")
    if length is not None and not _NUMBER.fullmatch(length):
        raise ValueError(f"Content-Length is not a number: {length[:80]}")
    if coding is None:
        return
    if coding.lower() != "chunked" or not response.chunked or response.version < 11:
        raise ValueError(f"Transfer-Encoding is not just 'chunked': {coding[:80]}")
    if length is not None:
        raise ValueError("it has both Content-Length and Transfer-Encoding")


def range_of(response: HTTPResponse, fields: Fields) -> re.Match[str] | None:
    """Return begin, end and size of the range that an answer has; None if it has none."""
    return _RANGE.fullmatch(fields.get("content-range", "")) if response.status == 206 else None


def meta_of(fields: Fields, size: str) -> Meta:
    """Return what headers say of the file."""
    return Meta(
        size=int(size) if _NUMBER.fullmatch(size) else None,
        etag=fields.get("etag", ""),
        last_modified=_seconds(fields.get("last-modified")),
    )


def is_encoded(fields: Fields) -> bool:
    """Say whether the body is not the bytes of the file themselves."""
    return fields.get("content-encoding", "identity").lower() != "identity"


def reason_of(response: HTTPResponse) -> str:
    """Return the status and its words."""
    return f"{response.status} {response.reason}"


def retry_after(text: str | None) -> float | None:
    """Return the seconds that a server requests before another try."""
    return min(float(text), _LONGEST_WAIT) if text and _NUMBER.fullmatch(text) else None


def _seconds(date: str | None) -> float | None:
    try:
        return None if date is None else parsedate_to_datetime(date).timestamp()
    except (ValueError, OverflowError, TypeError, IndexError):
        return None
