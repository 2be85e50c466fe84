"""Write files so that a crash leaves the old bytes or the new ones.

A new file is written without a name (``O_TMPFILE``) where the file system can, synced, and then
linked; elsewhere, and where a file is replaced, it is staged as ``name#digits`` and renamed.
Every function syncs the directory last, so that what it did survives a power cut. Files that are
written together are synced together (`UnnamedFiles`): a disk does that in the time of one.
"""

from __future__ import annotations

import _thread
import errno
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from typing import Self

_TRIES = 50
_PAUSE = 0.0005  # seconds more before each further try; a second in all
_NO_TMPFILE = {errno.EOPNOTSUPP, errno.EISDIR, errno.EINVAL, errno.ENOENT, errno.ENOSYS}
_NO_HARD_LINKS = {errno.EOPNOTSUPP, errno.EPERM, errno.ENOSYS, errno.EMLINK}
_NO_LINK = {errno.EOPNOTSUPP, errno.EPERM, errno.EXDEV, errno.ENOENT, errno.ENOSYS}
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_STAGE = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW

type Sync = Callable[[Sequence[int]], None]
"""Waits until a disk has what was written to some files or directories, or does not wait."""


class NoHardLinksError(OSError):
    """The file system has no hard links, which create a file only where there is none."""


def sync(fds: Sequence[int]) -> None:
    """Wait until the disk has some files or directories: in threads, so that it waits once."""
    errors: list[BaseException] = []
    pending: list[_thread.LockType] = []

    def act(fd: int) -> None:
        try:
            os.fsync(fd)
        except BaseException as error:  # noqa: BLE001 - it is raised where it is waited for
            errors.append(error)

    def run(fd: int, done: _thread.LockType) -> None:
        act(fd)
        done.release()

    here = [*fds[:1]]
    for fd in fds[1:]:
        done = _thread.allocate_lock()
        done.acquire()
        try:
            # `threading.Thread` waits for each thread to begin
            _thread.start_new_thread(run, (fd, done))
            pending.append(done)
        except RuntimeError:  # there are as many as there may be, or the interpreter ends
            here.append(fd)
    for fd in here:
        act(fd)
    for done in pending:
        done.acquire()
    if errors:
        raise errors[0]


def no_sync(fds: Sequence[int]) -> None:
    """Do not wait for the disk: what a power cut loses may be anything, in any order."""
    del fds


@contextmanager
def directory(path: str) -> Iterator[int]:
    """Open a directory for the relative calls of this module."""
    fd = os.open(path, _DIRECTORY)
    try:
        yield fd
    finally:
        os.close(fd)


def make_directory(path: str, sync: Sync = sync) -> None:
    """Create a directory and its missing parents, each durably."""
    if os.path.isdir(path):
        return
    above = os.path.dirname(path)
    make_directory(above, sync)
    with suppress(FileExistsError):
        os.mkdir(path)
    with directory(above) as fd:
        sync([fd])


def within[T](folder: str, act: Callable[[int], T], sync: Sync = sync) -> T:
    """Act in a directory that is made if need be, and again if another process removes it.

    Empty directories are removed when what was in them is deleted; a writer may just want them.
    """
    for attempt in range(_TRIES):
        with suppress(FileNotFoundError):
            if attempt:
                make_directory(folder, sync)
            with directory(folder) as at:
                try:
                    return act(at)
                except OSError as error:
                    _refuse_gone(at, error)
                    raise
        if attempt:  # to sleep for no time gives the processor away
            time.sleep(attempt * _PAUSE)
    make_directory(folder, sync)
    with directory(folder) as at:
        return act(at)


def _refuse_gone(at: int, error: OSError) -> None:
    """Call it by one name when a directory was removed while it was open."""
    if os.fstat(at).st_nlink == 0:
        raise FileNotFoundError from error


def create(at: int, name: str, body: bytes, sync: Sync = sync) -> bool:
    """Create a file that must not exist; False when it does, and then nothing was changed.

    Raises:
        NoHardLinksError: The file system cannot; who holds a lock may look, and `replace`.
    """
    is_new: bool | None = None
    if (fd := _write_unnamed(at, body)) is not None:
        try:
            sync([fd])
            is_new = _link_unnamed(fd, at, name)
        finally:
            os.close(fd)
    if is_new is None:
        is_new = _create_staged(at, name, body, sync)
    if is_new:
        sync([at])
    return is_new


def _create_staged(at: int, name: str, body: bytes, sync: Sync) -> bool:
    staged = name_unfinished(name)
    try:
        _write_file(os.open(staged, _STAGE | os.O_EXCL, 0o666, dir_fd=at), body, sync)
        try:
            os.link(staged, name, src_dir_fd=at, dst_dir_fd=at, follow_symlinks=False)
        except OSError as error:
            if error.errno in _NO_HARD_LINKS:
                raise NoHardLinksError(error.errno, error.strerror) from error
            raise
    except FileExistsError:
        return False
    finally:
        with suppress(OSError):
            os.unlink(staged, dir_fd=at)
    return True


def replace(at: int, name: str, body: bytes, *, staged: str, sync: Sync = sync) -> None:
    """Put a file in the place of whatever has the name; ``staged`` is its name meanwhile."""
    _write_file(os.open(staged, _STAGE, 0o666, dir_fd=at), body, sync)
    os.rename(staged, name, src_dir_fd=at, dst_dir_fd=at)
    sync([at])


def replace_by_unnamed(fd: int, at: int, name: str, *, staged: str, sync: Sync = sync) -> bool:
    """Do what `replace` does, with a file that was synced before; False where that is impossible.

    Who calls it holds a lock: nobody else uses the name ``staged``.
    """
    is_new = _link_unnamed(fd, at, staged)
    if is_new is False:  # of a writer that was killed
        with suppress(FileNotFoundError):
            os.unlink(staged, dir_fd=at)
        is_new = _link_unnamed(fd, at, staged)
    if not is_new:
        return False
    os.rename(staged, name, src_dir_fd=at, dst_dir_fd=at)
    sync([at])
    return True


class UnnamedFiles:
    """Files that were written together and have no names yet; they vanish unless they get them."""

    def __init__(self, sync: Sync = sync) -> None:
        self._sync = sync
        self._fds: list[int] = []
        self._folders: dict[str, int] = {}  # that are open, by path
        self._changed: dict[str, int] = {}  # directories in which a name was made

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for fd in (*self._fds, *self._folders.values()):
            os.close(fd)

    def write(self, folder: str, body: bytes) -> int | None:
        """Write a file in a directory, which is made; None where files have to have names.

        None too where the directory was removed meanwhile, as empty ones are.
        """
        try:
            if folder not in self._folders:
                make_directory(folder, self._sync)
                self._folders[folder] = os.open(folder, _DIRECTORY)
            fd = _write_unnamed(self._folders[folder], body)
        except FileNotFoundError:
            return None
        if fd is not None:
            self._fds.append(fd)
        return fd

    def sync(self) -> None:
        """Wait until the disk has the files."""
        self._sync(self._fds)

    def name(self, fd: int, folder: str, name: str) -> bool:
        """Give a file its name; False where another one has it, or it cannot be done."""
        at = self._changed[folder] = self._folders[folder]
        try:
            return bool(_link_unnamed(fd, at, name))
        except OSError:
            if os.fstat(at).st_nlink == 0:  # the directory was removed
                return False
            raise

    def sync_names(self) -> None:
        """Wait until the disk has the names."""
        self._sync(list(self._changed.values()))


@cache
def _has_unnamed() -> bool:
    return hasattr(os, "O_TMPFILE") and os.path.isdir("/proc/self/fd")


def _write_unnamed(at: int, body: bytes) -> int | None:
    """Return a file without a name in a directory; None where there are none."""
    if not _has_unnamed():
        return None
    try:
        fd = os.open(".", os.O_TMPFILE | os.O_WRONLY | os.O_CLOEXEC, 0o666, dir_fd=at)
    except OSError as error:
        if error.errno in _NO_TMPFILE:
            return None
        raise
    try:
        _write_all(fd, body)
    except BaseException:
        os.close(fd)
        raise
    return fd


def _link_unnamed(fd: int, at: int, name: str) -> bool | None:
    """Give a file its name; False where another one has it, None where it cannot be done."""
    try:
        # a directory descriptor makes CPython call linkat, which follows the link in /proc
        os.link(f"/proc/self/fd/{fd}", name, dst_dir_fd=at, follow_symlinks=True)
    except FileExistsError:
        return False
    except OSError as error:
        if error.errno in _NO_LINK:
            return None
        raise
    return True


def name_unfinished(name: str) -> str:
    """Return a name, never used before, for the unfinished file of ``name``."""
    return f"{name}#{int.from_bytes(os.urandom(8))}"


def _write_file(fd: int, body: bytes, sync: Sync) -> None:
    try:
        _write_all(fd, body)
        sync([fd])
    finally:
        os.close(fd)


def _write_all(fd: int, body: bytes) -> None:
    rest = memoryview(body)
    while rest:
        rest = rest[os.write(fd, rest) :]
