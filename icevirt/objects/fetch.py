"""Read ranges of granted objects, enforcing the scan's checksum on every read.

A failed read raises ``StorageError``, never ``KeyError`` or ``FileNotFoundError``: zarr and xarray
would take those for "never written".
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable

import numpy as np

from icevirt.errors import IcevirtError, StorageError
from icevirt.objects import answers, remote
from icevirt.objects.answers import UNCHECKED, Body, Checksum
from icevirt.objects.authorize import Grant, LocalGrant, RemoteGrant
from icevirt.objects.descriptors import FILES
from icevirt.objects.staleness import refuse

_NOWAIT: int | None = getattr(os, "RWF_NOWAIT", None)
_MOST_CACHED = 4 * 1024 * 1024  # copying more takes longer than handing it to a thread
# as object stores make it for local files: inode, modification time and size in hexadecimal
_ETAG = re.compile(r"[0-9a-f]+-[0-9a-f]+-[0-9a-f]+")


def read(
    grant: Grant,
    *,
    offset: int,
    length: int,
    checksum: Checksum = UNCHECKED,
    on_stale: Callable[[StorageError], None] = refuse,
) -> Body:
    """Return exactly ``length`` bytes of the object; ``on_stale`` may bear with a changed file.

    Raises:
        ObjectNotFoundError: The file is gone.
        StaleReferenceError: The file changed after it was scanned.
        UnauthorizedError: A symbolic link leads out of the container.
        StorageError: The file ends too early or cannot be read.
    """
    if isinstance(grant, RemoteGrant):
        source = remote.object_of(grant, checksum, on_stale)
        return remote.read(remote.RemoteRange(source, offset, length))
    try:
        file, size = FILES.get(grant)
        # a length from a damaged manifest must not allocate that much
        body = _pread(file.fd, offset, length) if offset + length <= size else b""
        # after the bytes were read: a file rewritten meanwhile does not pass
        stat = os.fstat(file.fd)
    except IcevirtError:
        raise
    except (FileNotFoundError, NotADirectoryError) as error:
        raise answers.gone(grant.url) from error
    except OSError as error:
        raise StorageError(
            "the source file of a virtual chunk cannot be read",
            do="Check that it is a regular file and that you may read it.",
            location=grant.url,
            reason=error.strerror,
        ) from error
    if (change := changed(grant, checksum, stat)) is not None:
        on_stale(change)
    if len(body) < length:
        available = max(0, size - offset)
        raise answers.too_short(grant.url, offset=offset, expected=length, available=available)
    return body


def read_cached(
    grant: LocalGrant, *, offset: int, length: int, checksum: Checksum = UNCHECKED
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


def changed(grant: LocalGrant, checksum: Checksum, stat: os.stat_result) -> StorageError | None:
    """Say how the file differs from what the scan recorded; an etag is the stronger record.

    Returns:
        None if it does not; a `StaleReferenceError` if it does; another error if the etag is of a
        kind that no local file has.
    """
    if checksum.etag:
        recorded = answers.opaque(checksum.etag)
        if not _ETAG.fullmatch(recorded):
            return _foreign(grant, checksum.etag)
        found = f"{stat.st_ino:x}-{stat.st_mtime_ns // 1000:x}-{stat.st_size:x}"
        return None if recorded == found else answers.stale(grant.url, recorded, found)
    if checksum.last_modified and stat.st_mtime_ns > checksum.last_modified * 1_000_000_000:
        return answers.stale(grant.url, checksum.last_modified, stat.st_mtime_ns / 1e9)
    return None


def _foreign(grant: LocalGrant, etag: str) -> StorageError:
    return StorageError(
        "a reference to a local file has an etag, which local files do not have",
        do="The file cannot be verified. Record its last-modified time instead.",
        location=grant.url,
        etag=etag,
    )
