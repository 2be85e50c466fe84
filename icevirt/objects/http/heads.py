"""Read what the head of an answer says of a file. Pure: heads to values."""

from __future__ import annotations

import re
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING

from icevirt.objects.answers import Meta

if TYPE_CHECKING:
    from icevirt.objects.http.connections import Headers, HttpResponse

AGAIN = (408, 425, 429, 500, 502, 503, 504)
"""Statuses of a server that may answer the same request later."""

GONE = (404, 410)

_NUMBER = re.compile(r"[0-9]{1,19}")
_RANGE = re.compile(r"bytes ([0-9]{1,19})-([0-9]{1,19})/([0-9]{1,19}|\*)")
_LONGEST_WAIT = 10.0  # seconds


def range_of(response: HttpResponse) -> re.Match[str] | None:
    """Return begin, end and size of the range that an answer has; None if it has none."""
    if response.status != 206:
        return None
    return content_range(response.headers.get("content-range", ""))


def content_range(text: str) -> re.Match[str] | None:
    """Return first byte, last byte and size as such a header says; None if it is none."""
    return _RANGE.fullmatch(text.strip())


def meta_of(headers: Headers, size: str) -> Meta:
    """Return what headers say of the file."""
    return Meta(
        size=int(size) if _NUMBER.fullmatch(size) else None,
        etag=headers.get("etag", ""),
        last_modified=_seconds(headers.get("last-modified")),
    )


def is_encoded(response: HttpResponse) -> bool:
    """Say whether the body is not the bytes of the file themselves."""
    return response.headers.get("content-encoding", "identity") != "identity"


def reason_of(response: HttpResponse) -> str:
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
