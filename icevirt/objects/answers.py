"""Read a server's answer about an object, and compare it with what the scan recorded.

The headers of the answer itself are compared, instead of sending a condition: they came with these
very bytes, they say what was found, and a server that ignores conditions cannot pass off a changed
file.
"""

from __future__ import annotations

import math
import os
import re
import threading
import warnings
from collections.abc import Callable
from email.errors import FirstHeaderLineIsContinuationDefect, MissingHeaderBodySeparatorDefect
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, get_args
from weakref import WeakSet

from icevirt.errors import (
    InvalidInputError,
    ObjectNotFoundError,
    ShortSourceError,
    StaleReferenceError,
    StorageError,
)
from icevirt.remedy_notation import write_code, write_remedy

if TYPE_CHECKING:
    from http.client import HTTPMessage, HTTPResponse

    from icevirt.archive.sources import SourceFile


type Body = bytes | memoryview

GONE = "it is gone"
UPDATE = write_remedy(
    "Bring the dataset up to date: ",
    write_code("icevirt.update(repo)", "icevirt update REPO"),
    ". References that no build made have to be written again by what wrote them.",
)


class Checksum(NamedTuple):
    """What the scan recorded about the object; empty fields are not checked."""

    etag: str = ""
    last_modified: int = 0  # seconds since 1970, rounded up

    @property
    def is_verifiable(self) -> bool:
        """Whether a change would be noticed: a weak etag may stay while bytes change."""
        return bool(self.etag and not is_weak(self.etag)) or bool(self.last_modified)

    @property
    def is_time(self) -> bool:
        """Whether a time is all that was recorded: then an older object passes for this one."""
        return not self.etag and bool(self.last_modified)


UNCHECKED = Checksum()


class Meta(NamedTuple):
    """The object as it was when it answered."""

    size: int | None  # bytes of all of it
    etag: str = ""
    last_modified: float | None = None  # seconds since 1970


type Check = Callable[[Meta], None]
"""Called when the headers of an answer are there, and before its body is fetched."""


class ObjectBytes(NamedTuple):
    """Bytes of an object from ``begin`` on: fewer than requested only at its end."""

    meta: Meta
    begin: int
    body: Body


def exact_bytes(url: str, meta: Meta, begin: int, end: int, body: Body) -> ObjectBytes:
    """Return an answer that is exactly the range, or its part up to the end of the object.

    Raises:
        StorageError: The body is longer or shorter, so it is unclear which bytes it has.
    """
    expected = max((end if meta.size is None else min(end, meta.size)) - begin, 0)
    if len(body) > expected or (meta.size is not None and len(body) < expected):
        raise unreadable(url, reason=f"it has {len(body)} bytes instead of {expected}")
    return ObjectBytes(meta=meta, begin=begin, body=body)


def is_weak(etag: str) -> bool:
    """Say whether an etag promises an equal meaning and not equal bytes."""
    return etag.startswith("W/")


def opaque(etag: str) -> str:
    """Return what an etag says, without its quotes and weakness."""
    return etag.removeprefix("W/").strip('"')


def compare_with_scan(url: str, checksum: Checksum, meta: Meta) -> StorageError | None:
    """Say how an object differs from what the scan recorded; an etag is the stronger record."""
    if checksum.etag:
        if meta.etag and opaque(checksum.etag) != opaque(meta.etag):
            return stale(url, checksum.etag, meta.etag)
        is_weaker = not meta.etag or is_weak(meta.etag) > is_weak(checksum.etag)
        return _unverifiable(url, checksum.etag, meta.etag) if is_weaker else None
    if not checksum.last_modified:
        return None
    if meta.last_modified is None:
        return _unverifiable(url, checksum.last_modified, None)
    is_newer = meta.last_modified > checksum.last_modified
    return stale(url, checksum.last_modified, meta.last_modified) if is_newer else None


def are_alike(one: Meta, other: Meta) -> bool:
    """Say whether two answers may be parts of one version of an object, as RFC 9110 asks for."""
    if one.etag and other.etag and not (is_weak(one.etag) or is_weak(other.etag)):
        return one.etag == other.etag
    facts = (one.size, other.size), (one.last_modified, other.last_modified)
    return all(None in pair or pair[0] == pair[1] for pair in facts)


def stale(url: str, recorded: str | float, found: str | float | None) -> StaleReferenceError:
    """Return the error of an object that is no longer what was scanned.

    Args:
        url: Of the object.
        recorded: Its etag, or the seconds since 1970 when it was modified.
        found: The same of the object now.
    """
    return StaleReferenceError(
        "a source file changed after it was scanned",
        do=write_remedy(UPDATE, " To read the file as it is, open with on_stale='warn'."),
        location=url,
        recorded=as_text(recorded),
        found=as_text(found),
    )


def as_text(known: str | float | None) -> str | None:
    """Return an etag, or a modification time in seconds since 1970 as a date."""
    if known is None or isinstance(known, str):
        return known
    from icevirt.versioning.history.timestamps import show

    return show(math.ceil(known * 1_000_000))


def change_while_read(url: str) -> StorageError:
    """Return the error of an object that was replaced between the requests for one chunk."""
    return StorageError(
        "a source file changed while a chunk of it was read",
        do="Read again when it no longer changes.",
        location=url,
    )


def not_found(url: str, *, reason: str = "") -> ObjectNotFoundError:
    """Return the error of an object that is not there."""
    from shlex import quote

    facts = {"reason": reason} if reason else {}
    folder = url.rpartition("/")[0] + "/"
    return ObjectNotFoundError(
        "the source file of a virtual chunk does not exist",
        do=write_remedy(
            "If the archive moved, run ",
            write_code(*[f"`icevirt relocate REPO {quote(folder)} NEW_PREFIX`"] * 2),
            ". Otherwise restore the file, or let its steps be missing values: ",
            write_code(
                'icevirt.update(repo, vanished="missing")', "icevirt update REPO --vanished missing"
            ),
            ".",
        ),
        location=url,
        **facts,
    )


def too_short(url: str, *, offset: int, expected: int, available: int) -> StorageError:
    """Return the error of an object that ends before a chunk does."""
    return ShortSourceError(
        "the source file of a virtual chunk ends too early",
        do=UPDATE,
        location=url,
        expected=expected,
        available=available,
        offset=offset,
    )


def denial(url: str, prefix: str, *, reason: str, with_credentials: bool) -> StorageError:
    """Return the error of a server that refuses to let us read."""
    do = "Check that the credentials for this prefix are valid and permit reading."
    if not with_credentials:
        do = write_remedy(
            "If it needs credentials, a build passes ",
            write_code(f'access={{"{prefix}": credentials}}', f"--access {prefix}=HOW"),
            ", a reader ",
            write_code(
                f'authorize_virtual_chunk_access={{"{prefix}": credentials}}',
                f"--authorize {prefix}=HOW",
            ),
            '. "anonymous" in their place reads a public bucket.',
        )
    return StorageError(
        "the server refuses to serve a source file of virtual chunks",
        do=do,
        location=url,
        reason=reason,
    )


def unreachable(url: str, *, reason: str, tries: int) -> StorageError:
    """Return the error of a server that kept failing."""
    return StorageError(
        "a source file of virtual chunks cannot be read",
        do="Check the network and the server, then read again.",
        location=url,
        reason=reason,
        tries=tries,
    )


def unreadable_file(url: str, *, reason: str | None) -> StorageError:
    """Return the error of a local file that the operating system does not open or read."""
    return StorageError(
        "the source file of a virtual chunk cannot be read",
        do="Check that it is a regular file and that you may read it.",
        location=url,
        reason=reason,
    )


def unreadable(url: str, *, reason: str) -> StorageError:
    """Return the error of a server whose answer is not as it should be."""
    return StorageError(
        "the answer of a server is not valid",
        do="Look at the answer with `curl -v`; a proxy may have changed it.",
        location=url,
        reason=reason,
    )


def bad_redirect(url: str, to: str) -> StorageError:
    """Return the error of a redirect that leads to no URL."""
    return StorageError(
        "a source file redirects to something that is not a URL",
        do="Repair the server, or refer to the URL where the file really is.",
        location=url,
        redirect=to.partition("?")[0].rpartition("@")[2][:80],  # no secrets
    )


def _unverifiable(url: str, recorded: str | float, found: str | float | None) -> StorageError:
    return StorageError(
        "the server no longer sends what the scan recorded about a source file, so it cannot be "
        "verified",
        do=write_remedy(
            "Scan its files again: ",
            write_code('icevirt.update(repo, rescan="*")', "icevirt update REPO --rescan '*'"),
            ", or open with on_stale='warn'.",
        ),
        location=url,
        recorded=as_text(recorded),
        found=as_text(found),
    )


def change(now: SourceFile | None, then: SourceFile) -> str | None:
    """Say how a file changed; None if it did not. Etags, where both have one, outweigh times.

    Of a file that is known by a reference to it, ``then`` has size -1, and whole seconds.
    """
    if now is None:
        return GONE
    if now.size != then.size >= 0:
        return f"it has {now.size} bytes instead of {then.size}"
    if now.etag and then.etag:  # listings leave out the quotes at Azure
        is_same = opaque(now.etag) == opaque(then.etag)
        return None if is_same else "it was rewritten: its etag changed"
    seconds = now.last_modified_seconds == then.last_modified_seconds
    if now.last_modified == then.last_modified or (then.size < 0 and seconds):
        return None
    return "it was rewritten or touched: its modification time changed"


type Fields = dict[str, str]

AGAIN = (408, 425, 429, 500, 502, 503, 504)
"""Statuses of a server that may answer the same request later."""

_NUMBER = r"[0-9]{1,19}"
_RANGE = r"bytes ([0-9]{1,19})-([0-9]{1,19})/([0-9]{1,19}|\*)"
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


def refuse_unclear_framing(response: HTTPResponse, fields: Fields) -> None:
    """Refuse an answer whose end others may see elsewhere than the standard library does.

    The library takes what it cannot read for absent: a body in other codings would count as bytes
    of the file, together with the sizes of its chunks.

    Raises:
        ValueError: It says its length otherwise than by a number in ``Content-Length`` or by
            ``chunked`` as the only coding.
    """
    length, coding = fields.get("content-length"), fields.get("transfer-encoding")
    if any(isinstance(defect, _CUT_HEADS) for defect in response.headers.defects):
        raise ValueError("a line of its head is not a header")
    if length is not None and not re.fullmatch(_NUMBER, length):
        raise ValueError(f"Content-Length is not a number: {length[:80]}")
    if coding is None:
        return
    if coding.lower() != "chunked" or not response.chunked or response.version < 11:
        raise ValueError(f"Transfer-Encoding is not just 'chunked': {coding[:80]}")
    if length is not None:
        raise ValueError("it has both Content-Length and Transfer-Encoding")


def range_of(response: HTTPResponse, fields: Fields) -> re.Match[str] | None:
    """Return begin, end and size of the range that an answer has; None if it has none."""
    return re.fullmatch(_RANGE, fields.get("content-range", "")) if response.status == 206 else None


def meta_of(fields: Fields, size: str) -> Meta:
    """Return what headers say of the file."""
    return Meta(
        size=int(size) if re.fullmatch(_NUMBER, size) else None,
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
    return min(float(text), _LONGEST_WAIT) if text and re.fullmatch(_NUMBER, text) else None


def _seconds(date: str | None) -> float | None:
    try:
        return None if date is None else parsedate_to_datetime(date).timestamp()
    except (ValueError, OverflowError, TypeError, IndexError):
        return None


type OnStale = Literal["raise", "warn", "ignore"]

_CHOICES = get_args(OnStale.__value__)
_all: WeakSet[Staleness] = WeakSet()


class StaleReferenceWarning(UserWarning):
    """A source file changed after it was scanned, and its bytes are shown nevertheless."""


class Verification(NamedTuple):
    """How the virtual chunks that were asked for so far are known to be those of the scan."""

    verifiable: int = 0  # carried a strong etag or a modification time, which was compared
    unverifiable: int = 0  # carried neither, or a weak etag alone: a change may go unnoticed
    stale: int = 0  # were found changed


class Staleness:
    """One reader's policy, and its counts. Safe in threads.

    Args:
        on_stale: ``raise``: a changed file is an error. ``warn``: it is read, with a
            `StaleReferenceWarning` for each file. ``ignore``: it is read.

    Raises:
        InvalidInputError: It is none of the three.
    """

    def __init__(self, on_stale: OnStale = "raise") -> None:
        if on_stale not in _CHOICES:
            raise InvalidInputError(
                "unknown value for on_stale",
                do=f"Pass one of {', '.join(map(repr, _CHOICES))}.",
                on_stale=on_stale,
            )
        self.on_stale: OnStale = on_stale
        self.unlock()
        self._verifiable = self._unverifiable = self._stale = 0
        self._reported: set[object] = set()
        _all.add(self)

    def __reduce__(self) -> tuple[Any, ...]:
        return Staleness, (self.on_stale,)

    def unlock(self) -> None:
        """Take a new lock: in a forked child, another thread may have held the old one."""
        self._lock = threading.Lock()

    @property
    def seen(self) -> Verification:
        """What was seen so far."""
        return Verification(
            verifiable=self._verifiable, unverifiable=self._unverifiable, stale=self._stale
        )

    def count(self, chunks: int, *, is_verifiable: bool) -> None:
        """Count chunks whose references were looked at."""
        with self._lock:
            self._verifiable += chunks * is_verifiable
            self._unverifiable += chunks * (not is_verifiable)

    def treat(self, change: StorageError, chunks: int = 1) -> None:
        """Treat a file that is not what was scanned, of which so many chunks are read.

        Raises:
            StorageError: The change, where that is the policy.
        """
        location = change.facts.get("location")
        with self._lock:
            self._stale += chunks
            is_news = location not in self._reported
            self._reported.add(location)
        if self.on_stale == "raise":
            raise change
        if self.on_stale == "warn" and is_news:
            warnings.warn(str(change), StaleReferenceWarning, stacklevel=2)


def refuse(change: StorageError) -> None:
    """Treat a changed file as an error."""
    raise change


def _unlock_in_child() -> None:
    for staleness in list(_all):
        staleness.unlock()


os.register_at_fork(after_in_child=_unlock_in_child)
