"""Read ranges of granted objects, enforcing the scan's checksum on every read.

A local file is opened below its container's directory without following links, so a link that is
swapped in after the check leads nowhere. A bounded number of open files is shared by all threads; a
forked child starts without them.

A failed read raises ``StorageError``, never ``KeyError`` or ``FileNotFoundError``: zarr and xarray
would take those for "never written".
"""

from __future__ import annotations

import errno
import os
import re
import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from pathlib import PurePath
from typing import TYPE_CHECKING

import numpy as np

from icevirt.errors import IcevirtError, StorageError, UnauthorizedError
from icevirt.objects import answers
from icevirt.objects.answers import UNCHECKED, Body, Checksum, refuse

if TYPE_CHECKING:
    from icevirt.objects.authorize import Grant, LocalGrant

_MAX_OPEN = 128
# to pass through a directory needs no permission to list it; a FIFO must not block the reader
_DIRECTORY = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC
# parts of a path that is not below its root, or not by its parts alone
_INDIRECT = frozenset({"", os.curdir, os.pardir})
_NOWAIT: int | None = getattr(os, "RWF_NOWAIT", None)
_MOST_CACHED = 4 * 1024 * 1024  # copying more takes longer than handing it to a thread
# as object stores make it for local files: inode, modification time and size in hexadecimal
_ETAG = r"[0-9a-f]+-[0-9a-f]+-[0-9a-f]+"


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
    from icevirt.objects.authorize import RemoteGrant

    if isinstance(grant, RemoteGrant):
        from icevirt.objects import remote

        source = remote.object_of(grant, checksum, on_stale)
        return remote.RemoteRange(source, offset, length).wait()
    (body,) = read_all(grant, [(offset, length)], checksum=checksum, on_stale=on_stale)
    return body


def read_all(
    grant: LocalGrant,
    ranges: Sequence[tuple[int, int]],
    *,
    checksum: Checksum = UNCHECKED,
    on_stale: Callable[[StorageError], None] = refuse,
) -> list[Body]:
    """Return ranges of a local file, given by offset and length. Raises as `read`."""
    try:
        file, size = FILES.get(grant)
        # a length from a damaged manifest must not allocate that much
        bodies: list[Body] = [
            _pread(file.fd, offset, length) if offset + length <= size else b""
            for offset, length in ranges
        ]
        # after the bytes were read: a file rewritten meanwhile does not pass
        stat = os.fstat(file.fd)
    except IcevirtError:
        raise
    except (FileNotFoundError, NotADirectoryError) as error:
        raise answers.not_found(grant.url) from error.with_traceback(None)
    except OSError as error:
        reason = error.strerror
        raise answers.unreadable_file(grant.url, reason=reason) from error.with_traceback(None)
    if (change := compare_with_scan(grant, checksum, stat)) is not None:
        on_stale(change)
    for (offset, length), body in zip(ranges, bodies, strict=True):
        if len(body) < length:
            available = max(0, size - offset)
            raise answers.too_short(grant.url, offset=offset, expected=length, available=available)
    return bodies


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
        change = compare_with_scan(grant, checksum, os.fstat(found[0].fd))
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


def compare_with_scan(
    grant: LocalGrant, checksum: Checksum, stat: os.stat_result
) -> StorageError | None:
    """Say how the file differs from what the scan recorded; an etag is the stronger record.

    Returns:
        None if it does not; a `StaleReferenceError` if it does; another error if the etag is of a
        kind that no local file has.
    """
    if checksum.etag:
        recorded = answers.opaque(checksum.etag)
        if not re.fullmatch(_ETAG, recorded):
            return StorageError(
                "a reference to a local file has an etag, which local files do not have",
                do="The file cannot be verified. Record its last-modified time instead.",
                location=grant.url,
                etag=checksum.etag,
            )
        found = f"{stat.st_ino:x}-{stat.st_mtime_ns // 1000:x}-{stat.st_size:x}"
        return None if recorded == found else answers.stale(grant.url, recorded, found)
    if checksum.last_modified and stat.st_mtime_ns > checksum.last_modified * 1_000_000_000:
        return answers.stale(grant.url, checksum.last_modified, stat.st_mtime_ns / 1e9)
    return None


class OpenFile:
    """A descriptor that closes when its last user is done, so that eviction never pulls it away."""

    __slots__ = ("fd", "identity")

    def __init__(self, fd: int, stat: os.stat_result) -> None:
        self.fd = fd
        self.identity = (stat.st_dev, stat.st_ino)

    def __del__(self, close: Callable[[int], None] = os.close) -> None:
        close(self.fd)  # bound early: modules may be gone when the interpreter ends


class OpenFiles:
    """The open files of this process, least recently used first."""

    def __init__(self) -> None:
        self.reset()
        os.register_at_fork(after_in_child=self.reset)

    def reset(self) -> None:
        """Forget every file, with a lock that no thread of a parent can be holding."""
        self._lock = threading.Lock()
        self._open: OrderedDict[LocalGrant, OpenFile] = OrderedDict()

    def find(self, grant: LocalGrant) -> tuple[OpenFile, int] | None:
        """Return the file at the grant's path and its size, if that very file is open already."""
        if grant not in self._open:
            return None
        stat = os.stat(grant.path)
        with self._lock:
            file = self._open.get(grant)
            if file is None or file.identity != (stat.st_dev, stat.st_ino):
                return None
            self._open.move_to_end(grant)
            return file, stat.st_size

    def get(self, grant: LocalGrant) -> tuple[OpenFile, int]:
        """Return the file that is at the grant's path now, and its size.

        Raises:
            OSError: It cannot be opened.
            UnauthorizedError: A symbolic link leads out of the container.
        """
        if (found := self.find(grant)) is not None:
            return found
        fd = _open_below(grant)
        file = OpenFile(fd, stat := os.fstat(fd))
        with self._lock:
            self._open[grant] = file
            self._open.move_to_end(grant)
            evicted = self._open.popitem(last=False) if len(self._open) > _MAX_OPEN else None
        del evicted  # closes outside the lock
        return file, stat.st_size


FILES = OpenFiles()


def _open_below(grant: LocalGrant) -> int:
    """Open the file where it really lies, which has to be below the container's real directory."""
    parts = grant.path.removeprefix(f"{grant.root.rstrip('/')}/").split("/")
    if not _INDIRECT.intersection(parts):
        try:
            return _walk(grant.root, parts)  # no link on the way: it is where its name says
        except OSError as error:
            if error.errno not in (errno.ELOOP, errno.ENOTDIR):
                raise
    root = os.path.realpath(grant.root)
    real = os.path.realpath(grant.path, strict=True)
    inside = PurePath(os.path.relpath(real, root)).parts
    if not inside or inside[0] == os.pardir:
        raise UnauthorizedError(
            "a symbolic link leads out of the virtual chunk container",
            do="Add a container for the target directory, or copy the file.",
            location=grant.url,
            container=grant.root,
            leads_to=real,
        )
    return _walk(root, inside)


def _walk(root: str, parts: Sequence[str]) -> int:
    """Open ``parts`` one below the other; none may be a link by now."""
    at = os.open(root, _DIRECTORY)
    for depth, part in enumerate(parts, 1):
        flags = _FILE if depth == len(parts) else _DIRECTORY | os.O_NOFOLLOW
        try:
            below = os.open(part, flags, dir_fd=at)
        finally:
            os.close(at)
        at = below
    return at
