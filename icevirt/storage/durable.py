"""Write files so that a crash leaves the old bytes or the new ones.

A new file is written without a name (``O_TMPFILE``) where the file system can, synced, and then
linked; elsewhere, and where a file is replaced, it is staged as ``name#digits`` and renamed.
Every function syncs the directory last, so that what it did survives a power cut.
"""

# The order of system calls is the point here.
from __future__ import annotations

import errno
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

_TRIES = 50
_PAUSE = 0.0005  # seconds more before each further try; a second in all
_NO_TMPFILE = {errno.EOPNOTSUPP, errno.EISDIR, errno.EINVAL, errno.ENOENT, errno.ENOSYS}
_NO_HARD_LINKS = {errno.EOPNOTSUPP, errno.EPERM, errno.ENOSYS, errno.EMLINK}
_NO_LINK = {errno.EOPNOTSUPP, errno.EPERM, errno.EXDEV, errno.ENOENT, errno.ENOSYS}


class NoHardLinksError(OSError):
    """The file system has no hard links, which create a file only where there is none."""


@contextmanager
def directory(path: str) -> Iterator[int]:
    """Open a directory for the relative calls of this module."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield fd
    finally:
        os.close(fd)


def make_directory(path: str) -> None:
    """Create a directory and its missing parents, each durably."""
    if os.path.isdir(path):
        return
    above = os.path.dirname(path)
    make_directory(above)
    with suppress(FileExistsError):
        os.mkdir(path)
    with directory(above) as fd:
        os.fsync(fd)


def within[T](folder: str, act: Callable[[int], T]) -> T:
    """Act in a directory that is made first, and again if another process removes it meanwhile.

    Empty directories are removed when what was in them is deleted; a writer may just want them.
    """
    for attempt in range(_TRIES):
        with suppress(FileNotFoundError):
            make_directory(folder)
            with directory(folder) as at, _gone(at):
                return act(at)
        time.sleep(attempt * _PAUSE)
    make_directory(folder)
    with directory(folder) as at:
        return act(at)


@contextmanager
def _gone(at: int) -> Iterator[None]:
    """Call it by one name when a directory was removed while it was open."""
    try:
        yield
    except OSError as error:
        if os.fstat(at).st_nlink == 0:
            raise FileNotFoundError from error
        raise


def create(at: int, name: str, body: bytes) -> bool:
    """Create a file that must not exist; False when it does, and then nothing was changed.

    Raises:
        NoHardLinksError: The file system cannot; who holds a lock may look, and `replace`.
    """
    return _create_unnamed(at, name, body) if _has_unnamed(at) else _create_staged(at, name, body)


def replace(at: int, name: str, body: bytes, *, staged: str) -> None:
    """Put a file in the place of whatever has the name; ``staged`` is its name meanwhile."""
    _write_file(os.open(staged, _STAGE, 0o666, dir_fd=at), body)
    os.rename(staged, name, src_dir_fd=at, dst_dir_fd=at)
    os.fsync(at)


_STAGE = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW


def _has_unnamed(at: int) -> bool:
    return hasattr(os, "O_TMPFILE") and os.path.isdir("/proc/self/fd") and at >= 0


def _create_unnamed(at: int, name: str, body: bytes) -> bool:
    try:
        fd = os.open(".", os.O_TMPFILE | os.O_WRONLY | os.O_CLOEXEC, 0o666, dir_fd=at)
    except OSError as error:
        if error.errno in _NO_TMPFILE:
            return _create_staged(at, name, body)
        raise
    try:
        _write_all(fd, body)
        os.fsync(fd)
        # a directory descriptor makes CPython call linkat, which follows the link in /proc
        os.link(f"/proc/self/fd/{fd}", name, dst_dir_fd=at, follow_symlinks=True)
    except FileExistsError:
        return False
    except OSError as error:
        if error.errno in _NO_LINK:
            return _create_staged(at, name, body)
        raise
    finally:
        os.close(fd)
    os.fsync(at)
    return True


def _create_staged(at: int, name: str, body: bytes) -> bool:
    staged = unfinished(name)
    try:
        _write_file(os.open(staged, _STAGE | os.O_EXCL, 0o666, dir_fd=at), body)
        _link(staged, name, at)
    except FileExistsError:
        return False
    finally:
        with suppress(OSError):
            os.unlink(staged, dir_fd=at)
    os.fsync(at)
    return True


def _link(staged: str, name: str, at: int) -> None:
    try:
        os.link(staged, name, src_dir_fd=at, dst_dir_fd=at, follow_symlinks=False)
    except OSError as error:
        if error.errno in _NO_HARD_LINKS:
            raise NoHardLinksError(error.errno, error.strerror) from error
        raise


def unfinished(name: str) -> str:
    """Return a name, never used before, for the unfinished file of ``name``."""
    return f"{name}#{int.from_bytes(os.urandom(8))}"


def _write_file(fd: int, body: bytes) -> None:
    try:
        _write_all(fd, body)
        os.fsync(fd)
    finally:
        os.close(fd)


def _write_all(fd: int, body: bytes) -> None:
    rest = memoryview(body)
    while rest:
        rest = rest[os.write(fd, rest) :]
