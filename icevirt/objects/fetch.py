"""Ranges of granted local files, with the checksum of the scan enforced on every read.

A read that fails is a ``StorageError``, never a ``KeyError`` or ``FileNotFoundError``: zarr and
xarray would take those for "never written".
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from icevirt.errors import (
    IcevirtError,
    ObjectNotFoundError,
    StaleReferenceError,
    StorageError,
)
from icevirt.objects.authorize import Grant
from icevirt.objects.descriptors import FILES
from icevirt.objects.staleness import refuse

_RESCAN = "Run `icevirt build` again, so that it refers to the files as they are now."
_NOWAIT: int | None = getattr(os, "RWF_NOWAIT", None)
_MOST_CACHED = 4 * 1024 * 1024  # copying more takes longer than handing it to a thread
# as object stores make it for local files: inode, modification time and size in hexadecimal
_ETAG = re.compile(r"[0-9a-f]+-[0-9a-f]+-[0-9a-f]+")


@dataclass(frozen=True, slots=True)
class Checksum:
    """What the scan recorded about the object; empty fields are not checked."""

    etag: str = ""
    last_modified: int = 0  # seconds since 1970, rounded up


UNCHECKED = Checksum()


def read(
    grant: Grant,
    *,
    offset: int,
    length: int,
    checksum: Checksum = UNCHECKED,
    on_stale: Callable[[StorageError], None] = refuse,
) -> bytes:
    """Return exactly ``length`` bytes of the object; ``on_stale`` may bear with a changed file.

    Raises:
        ObjectNotFoundError: The file is gone.
        StaleReferenceError: The file changed after it was scanned.
        UnauthorizedError: A symbolic link leads out of the container.
        StorageError: The file ends too early or cannot be read.
    """
    try:
        file, size = FILES.get(grant)
        # a length from a damaged manifest must not allocate that much
        body = _pread(file.fd, offset, length) if offset + length <= size else b""
        # after the bytes were read: a file rewritten meanwhile does not pass
        stat = os.fstat(file.fd)
    except IcevirtError:
        raise
    except (FileNotFoundError, NotADirectoryError) as error:
        raise ObjectNotFoundError(
            "the source file of a virtual chunk is gone",
            do=f"Put it back, or leave it out. {_RESCAN}",
            location=grant.url,
        ) from error
    except OSError as error:
        raise StorageError(
            "the source file of a virtual chunk cannot be read",
            do="Check that it is a file that you may read.",
            location=grant.url,
            reason=error.strerror,
        ) from error
    if (change := changed(grant, checksum, stat)) is not None:
        on_stale(change)
    if len(body) < length:
        raise StorageError(
            "the source file of a virtual chunk ends too early",
            do=_RESCAN,
            location=grant.url,
            expected=length,
            available=max(0, size - offset),
            offset=offset,
        )
    return body


def read_cached(
    grant: Grant, *, offset: int, length: int, checksum: Checksum = UNCHECKED
) -> memoryview | None:
    """Return what `read` would, if the kernel has it in memory already.

    None says that a disk has to be waited for, or that something is wrong: ask `read`.
    """
    if _NOWAIT is None or length > _MOST_CACHED:
        return None
    try:
        found = FILES.find(grant)
        if found is None or offset + length > found[1]:
            return None
        body = np.empty(length, np.uint8)
        got = os.preadv(found[0].fd, [body.data], offset, _NOWAIT)
        change = changed(grant, checksum, os.fstat(found[0].fd))
    except (OSError, StorageError):
        return None
    return body.data if got == length and change is None else None


def read_file_cached(path: str, *, offset: int, length: int) -> memoryview | None:
    """Return bytes of a file that needs no grant, if the kernel has them in memory already."""
    if _NOWAIT is None or length > _MOST_CACHED:
        return None
    body = np.empty(length, np.uint8)
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            got = os.preadv(fd, [body.data], offset, _NOWAIT)
        finally:
            os.close(fd)
    except OSError:
        return None
    return body.data if got == length else None


def _pread(fd: int, offset: int, length: int) -> bytes:
    body = os.pread(fd, length, offset)
    if len(body) == length or not body:
        return body
    parts = [body]  # the kernel gives at most 2 GiB at a time
    got = len(body)
    while got < length and (body := os.pread(fd, length - got, offset + got)):
        parts.append(body)
        got += len(body)
    return b"".join(parts)


def changed(grant: Grant, checksum: Checksum, stat: os.stat_result) -> StorageError | None:
    """Say how the file differs from what the scan recorded; an etag is the stronger record.

    Returns:
        None if it does not; a `StaleReferenceError` if it does; another error if the etag is of a
        kind that no local file has.
    """
    if checksum.etag:
        recorded = checksum.etag.removeprefix("W/").strip('"')
        if not _ETAG.fullmatch(recorded):
            return _foreign(grant, checksum.etag)
        found = f"{stat.st_ino:x}-{stat.st_mtime_ns // 1000:x}-{stat.st_size:x}"
        return None if recorded == found else _stale(grant, recorded, found)
    if checksum.last_modified and stat.st_mtime_ns > checksum.last_modified * 1_000_000_000:
        return _stale(grant, checksum.last_modified, stat.st_mtime_ns / 1e9)
    return None


def _foreign(grant: Grant, etag: str) -> StorageError:
    return StorageError(
        "a reference to a local file carries an etag, which no local file has",
        do="The file cannot be verified. Record its last-modified time instead.",
        location=grant.url,
        etag=etag,
    )


def _stale(grant: Grant, recorded: object, found: object) -> StaleReferenceError:
    return StaleReferenceError(
        "a source file changed after it was scanned",
        do=f"{_RESCAN} To read it as it is, open with on_stale='warn'.",
        location=grant.url,
        recorded=recorded,
        found=found,
    )
