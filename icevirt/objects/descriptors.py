"""Open local files of granted locations, with a bounded number shared by all threads.

A file is opened below its container's directory without following links, so a link that is swapped
in after the check leads nowhere. A forked child starts without open files.
"""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from pathlib import PurePath

from icevirt.errors import UnauthorizedError
from icevirt.objects.authorize import LocalGrant

_MAX_OPEN = 128
# to pass through a directory needs no permission to list it; a FIFO must not block the reader
_DIRECTORY = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC


class OpenFile:
    """A descriptor that closes when its last user is done, so that eviction never pulls it away."""

    __slots__ = ("fd", "identity")

    def __init__(self, fd: int) -> None:
        self.fd = fd
        stat = os.fstat(fd)
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
        file = OpenFile(_open_below(grant))
        with self._lock:
            self._open[grant] = file
            self._open.move_to_end(grant)
            evicted = self._open.popitem(last=False) if len(self._open) > _MAX_OPEN else None
        del evicted  # closes outside the lock
        return file, os.fstat(file.fd).st_size


FILES = OpenFiles()


def _open_below(grant: LocalGrant) -> int:
    """Open the file where it really lies, which has to be below the container's real directory."""
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
