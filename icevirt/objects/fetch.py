"""Ranges of granted local files, with the checksum of the scan enforced on every read.

Descriptors stay open, a bounded number of them, shared by all threads; a forked child starts with
none. A file is opened below its container's directory without following a link on the way, so a
link that is swapped in after the check leads nowhere. A read that fails is a ``StorageError``,
never a ``KeyError`` or ``FileNotFoundError``: zarr and xarray would take those for "never written".
"""

from __future__ import annotations

import os
import re
import threading
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import PurePath

from icevirt.errors import (
    IcevirtError,
    ObjectNotFoundError,
    StaleReferenceError,
    StorageError,
    UnauthorizedError,
)
from icevirt.objects.authorize import Grant

_RESCAN = "Run `icevirt refresh`, or build again from the changed files."
_MAX_OPEN = 128
_ETAG = re.compile(r"[0-9a-f]+-[0-9a-f]+-[0-9a-f]+")
# to pass through a directory needs no permission to list it; a FIFO must not block the reader
_DIRECTORY = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC


@dataclass(frozen=True, slots=True)
class Checksum:
    """What the scan recorded about the object; empty fields are not checked."""

    etag: str = ""
    last_modified: int = 0  # seconds since 1970, rounded up


UNCHECKED = Checksum()


class _OpenFile:
    """A descriptor that closes when its last user is done, so that eviction never pulls it away."""

    __slots__ = ("fd", "identity")

    def __init__(self, fd: int) -> None:
        self.fd = fd
        stat = os.fstat(fd)
        self.identity = (stat.st_dev, stat.st_ino)

    def __del__(self) -> None:
        os.close(self.fd)


class _Files:
    """The open files of this process, least recently used first."""

    def __init__(self) -> None:
        self.reset()
        os.register_at_fork(after_in_child=self.reset)

    def reset(self) -> None:
        """Forget every file, with a lock that no thread of a parent can be holding."""
        self._lock = threading.Lock()
        self._open: OrderedDict[Grant, _OpenFile] = OrderedDict()

    def get(self, grant: Grant) -> tuple[_OpenFile, int]:
        """Return the file that is at the grant's path now, and its size."""
        stat = os.stat(grant.path)
        with self._lock:
            file = self._open.get(grant)
            if file is not None and file.identity == (stat.st_dev, stat.st_ino):
                self._open.move_to_end(grant)
                return file, stat.st_size
        file = _OpenFile(_open_below(grant))
        with self._lock:
            self._open[grant] = file
            self._open.move_to_end(grant)
            evicted = self._open.popitem(last=False) if len(self._open) > _MAX_OPEN else None
        del evicted  # closes outside the lock
        return file, os.fstat(file.fd).st_size


_files = _Files()


def read(grant: Grant, *, offset: int, length: int, checksum: Checksum = UNCHECKED) -> bytes:
    """Return exactly ``length`` bytes of the object.

    Raises:
        ObjectNotFoundError: The file is gone.
        StaleReferenceError: The file changed after it was scanned.
        UnauthorizedError: A symbolic link leads out of the container.
        StorageError: The file ends too early or cannot be read.
    """
    try:
        file, size = _files.get(grant)
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
    _check(grant, checksum, stat)
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


def _check(grant: Grant, checksum: Checksum, stat: os.stat_result) -> None:
    """Compare what the scan recorded with what the file is now; an etag is the stronger one."""
    if checksum.etag:
        found = f"{stat.st_ino:x}-{stat.st_mtime_ns // 1000:x}-{stat.st_size:x}"
        if (recorded := _etag(grant, checksum.etag)) != found:
            raise _stale(grant, recorded, found)
    elif checksum.last_modified and stat.st_mtime_ns > checksum.last_modified * 1_000_000_000:
        raise _stale(grant, checksum.last_modified, stat.st_mtime_ns / 1e9)


def _etag(grant: Grant, etag: str) -> str:
    """Return an etag as object stores make them for local files: inode, mtime and size in hex."""
    bare = etag.removeprefix("W/").strip('"')
    if not _ETAG.fullmatch(bare):
        raise StorageError(
            "a reference to a local file carries an etag, which no local file has",
            do="The file cannot be verified. Record its last-modified time instead.",
            location=grant.url,
            etag=etag,
        )
    return bare


def _stale(grant: Grant, recorded: object, found: object) -> StaleReferenceError:
    return StaleReferenceError(
        "a source file changed after it was scanned",
        do=_RESCAN,
        location=grant.url,
        recorded=recorded,
        found=found,
    )


def _open_below(grant: Grant) -> int:
    """Open the file where it really lies, which has to be below the container's real directory."""
    root = os.path.realpath(grant.root)
    real = os.path.realpath(grant.path, strict=True)
    inside = PurePath(os.path.relpath(real, root)).parts
    if not inside or inside[0] == os.pardir:
        raise UnauthorizedError(
            "a symbolic link leads out of the virtual chunk container",
            do="Add a container for the directory it leads to, or copy the file.",
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
