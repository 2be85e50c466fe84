"""Refuse locations of virtual chunks that could never be read, when they are written.

What is written by a session or by Spark, one reference at a time or many, is checked here. What is
suspicious is found by column; `object_key` and `local_path`, which readers ask, decide about it.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from icevirt.connect.urls import PROVIDERS, local_path
from icevirt.errors import InvalidInputError, LocationError
from icevirt.model.strings import Strings
from icevirt.objects.authorize import object_key, part_query

_LOCAL = b"%?#\\\0"
_REMOTE = b"?#\\\x7f" + bytes(range(0x20))
"""Bytes of URLs that need a closer look; looking at every one of a million takes seconds."""

_ESCAPED = b"/\\.\x7f" + bytes(range(0x20)) + bytes(range(0x80, 0x100))  # odd behind a %, too
_BYTES_AT_ONCE = 1 << 20
_SERVERS = 4  # whose rows are found by column; those of more are looked at one by one


def check_locations(urls: Strings) -> None:
    """Check that readers would follow the URLs, and that none has what may be a secret.

    Raises:
        LocationError: They would not follow one.
    """
    local = urls.begin_with(b"file://")
    if local.any():
        odd = _suspect(urls, _LOCAL) | ~urls.begin_with(b"file:///")
        for row in np.flatnonzero(local & odd).tolist():
            check_local(urls[row])
    if not local.all():
        odd = _suspect(urls, _REMOTE, remote=True)
        odd[_first_of_each_server(urls, np.flatnonzero(~local & (urls.lengths > 0)))] = True
        for row in np.flatnonzero(~local & odd).tolist():
            check_remote(urls[row])


def find_unreadable(urls: Strings) -> LocationError | None:
    """Return why the first of stored locations can never be read, None where all can be."""
    try:
        check_locations(urls)
    except LocationError:
        for url in urls:  # seldom
            try:
                check_locations(Strings.of([part_query(url)[0]]))
            except LocationError as error:
                return error
    return None


def check_urls(urls: Strings) -> None:
    """Check that all are URLs of objects, where no container says so. Raises ``LocationError``."""
    data = urls.data
    at = np.flatnonzero(data == ord(":"))
    at = at[at + 2 < len(data)]
    at = at[(data[at + 1] == ord("/")) & (data[at + 2] == ord("/"))]
    ends = np.append(at + 3, np.iinfo(np.int64).max)  # of each "://"
    first = ends[np.searchsorted(at, urls.starts[:-1])]
    if (wrong := first > urls.starts[1:]).any():
        raise LocationError(
            "the location of a virtual chunk is not a URL",
            do="Write it like 's3://bucket/key' or 'file:///directory/file'.",
            location=urls[int(np.argmax(wrong))],
        )
    slashes = np.append(np.flatnonzero(data == ord("/")), np.iinfo(np.int64).max)
    bare = slashes[np.searchsorted(slashes, first)] >= urls.starts[1:]  # without a key
    for row in np.flatnonzero((bare & (urls.lengths > 0)) | _suspect(urls, b"@")).tolist():
        if not urls[row].startswith("file://"):
            check_remote(urls[row])


def check_remote(url: str) -> None:
    """Check one location that is no local file. Raises ``LocationError``."""
    object_key(url, has_bucket=url.partition(":")[0] in (*PROVIDERS, "vcc"))


def check_local(url: str) -> None:
    """Check one location of a local file. Raises ``LocationError``."""
    why = ""
    try:
        local_path(url)
    except InvalidInputError as error:
        why = error.what
    if "\\" in url:
        why = "it has a backslash, which other readers take for a slash; write %5C"
    elif url.endswith("/"):
        why = "it is a directory"
    if why:
        raise LocationError(
            f"the location of a virtual chunk is not the URL of a local file: {why}",
            do="Write it like file:///directory/file, percent-encoded: Path(file).as_uri().",
            location=url,
        )


def _first_of_each_server(urls: Strings, rows: NDArray[np.int64]) -> list[int]:
    """Return a row for each server or bucket of some rows."""
    found: list[int] = []
    seen: set[str] = set()
    while len(rows) and len(found) < _SERVERS:
        found.append(int(rows[0]))
        rows = rows[~urls.begin_with(_server_of(urls[found[-1]]).encode(), rows)]
    for row, url in zip(rows.tolist(), urls[rows], strict=True):
        if (server := _server_of(url)) not in seen:
            seen.add(server)
            found.append(row)
    return found


def _server_of(url: str) -> str:
    end = url.find("/", url.find("://") + 3) + 1
    return url[: end or None]


def _suspect(urls: Strings, odd_bytes: bytes, *, remote: bool = False) -> NDArray[np.bool_]:
    """Say which URLs have some of these bytes, hidden or relative parts, or end in a slash.

    Of remote ones, parts that are empty and odd escapes count, too.
    """
    is_odd = np.isin(np.arange(256), np.frombuffer(odd_bytes, np.uint8))
    found = urls.lengths > 0
    found[found] = urls.data[urls.starts[1:][found] - 1] == ord("/")
    first, end = int(urls.starts[0]), int(urls.starts[-1])
    doubles, has_escapes = 0, False
    for low in range(first, end, _BYTES_AT_ONCE):
        part = urls.data[low : min(low + _BYTES_AT_ONCE + 1, end)]  # and the first of the next
        odd = np.zeros(len(part), np.bool_)
        slash = part[:-1] == ord("/")
        np.logical_and(slash, part[1:] == ord("."), out=odd[:-1])
        raw = part.tobytes()
        if remote:
            doubles += int(np.count_nonzero(slash & (part[1:] == ord("/"))))
            has_escapes = has_escapes or b"%" in raw
        if any(byte in raw for byte in odd_bytes):  # seldom, and soon known
            odd |= is_odd[part]
        elif not odd.any():
            continue
        _mark(found, urls, np.flatnonzero(odd) + low)
    if doubles > np.count_nonzero(urls.lengths):  # mostly each has one, behind the scheme
        _mark_odd_slashes(found, urls)
    if has_escapes:
        _mark_odd_escapes(found, urls)
    return found


def _mark_odd_slashes(found: NDArray[np.bool_], urls: Strings) -> None:
    """Mark the URLs with two slashes in more than one place."""
    slash = urls.data == ord("/")
    rows = _rows(urls, np.flatnonzero(slash[:-1] & slash[1:]))
    found |= np.bincount(rows, minlength=len(urls)) > 1


def _mark_odd_escapes(found: NDArray[np.bool_], urls: Strings) -> None:
    """Mark the URLs with escapes that are none, or of characters that readers refuse."""
    at = np.flatnonzero(urls.data == ord("%"))
    after = np.append(urls.data, np.zeros(2, np.uint8))
    high, low = (_HEX[after[at + step]].astype(np.int16) for step in (1, 2))
    odd = (high < 0) | (low < 0) | np.isin(high * 16 + low, np.frombuffer(_ESCAPED, np.uint8))
    _mark(found, urls, at[odd])


def _mark(found: NDArray[np.bool_], urls: Strings, at: NDArray[np.int64]) -> None:
    found[_rows(urls, at)] = True


def _rows(urls: Strings, at: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the rows that bytes at these places belong to."""
    inside = at[(at >= urls.starts[0]) & (at < urls.starts[-1])]
    rows: NDArray[np.int64] = np.searchsorted(urls.starts, inside, side="right") - 1
    return rows


def _digits() -> NDArray[np.int8]:
    found = np.full(256, -1, np.int8)
    for digit in b"0123456789abcdefABCDEF":
        found[digit] = int(chr(digit), 16)
    return found


_HEX = _digits()
