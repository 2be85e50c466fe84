"""A small model of a POSIX file system whose power fails.

It records what a program does to real files, then tells everything that may be on the disk if the
power failed behind any of these operations. The disk keeps what was synced: the bytes of a file,
the names in a directory. Of the rest it may have kept any part, in any order:

- bytes that were not synced are all there, half there, or not there;
- each name in a directory is what it was when the directory was synced, or what it became since,
  each name for itself, a renamed file's two names too;
- a directory whose name was lost takes its content with it.
"""

from __future__ import annotations

import itertools
import os
import stat
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

_MOST = 20_000  # disks that one moment may leave; more means that a test is too large


@dataclass(eq=False)
class Node:
    """A file or directory of the model."""

    is_directory: bool
    synced: bytes = b""
    now: bytes = b""
    names: dict[str, list[Node | None]] = field(default_factory=dict)
    """Of a directory: what each name was when it was synced, and has been since."""

    def choices(self) -> list[bytes]:
        if self.synced == self.now:
            return [self.now]
        return list(dict.fromkeys([self.synced, self.now, self.now[: len(self.now) // 2]]))


class Recorder:
    """Stands in for the module ``os`` of the code under test, and does what it does.

    ``moments`` are functions that repeat one operation on the model.
    """

    def __init__(self, root: Path) -> None:
        self.moments: list[Any] = []
        self._lock = threading.Lock()
        self._nodes: dict[int, Node] = {}  # by inode, the newest
        self.root = self._known(str(root))

    def _known(self, path: str) -> Node:
        """Take what is there for synced."""
        here = os.stat(path)
        node = Node(stat.S_ISDIR(here.st_mode))
        self._nodes[here.st_ino] = node
        if node.is_directory:
            for each in os.scandir(path):
                node.names[each.name] = [self._known(each.path)]
        else:
            node.synced = node.now = Path(path).read_bytes()
        return node

    def __getattr__(self, name: str) -> Any:
        return getattr(os, name)

    def _at(self, fd: int) -> Node:
        return self._nodes[os.fstat(fd).st_ino]

    def _parent(self, path: str, fd: int | None) -> tuple[Node, str]:
        if fd is not None:
            return self._at(fd), os.fspath(path)
        above, name = os.path.split(os.path.abspath(path))
        return self._nodes[os.stat(above).st_ino], name

    def _named(self, where: tuple[Node, str], node: Node | None) -> None:
        directory, name = where
        self.moments.append(lambda: directory.names.setdefault(name, [None]).append(node))

    def open(self, path: str, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
        with self._lock:
            unnamed = flags & os.O_TMPFILE == os.O_TMPFILE
            creates = unnamed or (flags & os.O_CREAT and not self._exists(path, dir_fd))
            fd = os.open(path, flags, mode, dir_fd=dir_fd)
            if creates:
                node = self._nodes[os.fstat(fd).st_ino] = Node(is_directory=False)
                if not unnamed:
                    self._named(self._parent(path, dir_fd), node)
            elif flags & os.O_TRUNC:
                node = self._at(fd)
                self.moments.append(lambda: setattr(node, "now", b""))
            return fd

    def _exists(self, path: str, dir_fd: int | None) -> bool:
        try:
            os.stat(path, dir_fd=dir_fd)
        except FileNotFoundError:
            return False
        return True

    def write(self, fd: int, body: bytes) -> int:
        with self._lock:
            node, done = self._at(fd), os.write(fd, body)
            part = bytes(body[:done])
            self.moments.append(lambda: setattr(node, "now", node.now + part))
            return done

    def fsync(self, fd: int) -> None:
        with self._lock:
            node = self._at(fd)
            os.fsync(fd)
            self.moments.append(lambda: _sync(node))

    def link(self, source: str, name: str, **how: Any) -> None:
        with self._lock:
            own = source.removeprefix("/proc/self/fd/")
            if own != source:
                node = self._at(int(own))
            else:
                where = os.stat(source, dir_fd=how["src_dir_fd"], follow_symlinks=False)
                node = self._nodes[where.st_ino]
            os.link(source, name, **how)
            self._named(self._parent(name, how["dst_dir_fd"]), node)

    def rename(self, source: str, name: str, *, src_dir_fd: int, dst_dir_fd: int) -> None:
        with self._lock:
            before, after = self._parent(source, src_dir_fd), self._parent(name, dst_dir_fd)
            node = self._nodes[os.stat(source, dir_fd=src_dir_fd).st_ino]
            os.rename(source, name, src_dir_fd=src_dir_fd, dst_dir_fd=dst_dir_fd)
            self._named(before, None)
            self._named(after, node)

    def unlink(self, path: str, *, dir_fd: int | None = None) -> None:
        with self._lock:
            os.unlink(path, dir_fd=dir_fd)
            self._named(self._parent(path, dir_fd), None)

    def mkdir(self, path: str) -> None:
        with self._lock:
            os.mkdir(path)
            node = self._nodes[os.stat(path).st_ino] = Node(is_directory=True)
            self._named(self._parent(path, None), node)

    def rmdir(self, path: str) -> None:
        with self._lock:
            os.rmdir(path)
            self._named(self._parent(path, None), None)


def _sync(node: Node) -> None:
    node.synced = node.now
    for history in node.names.values():
        del history[:-1]


def disks(root: Node) -> Iterator[dict[str, bytes]]:
    """Yield the files, by path, of each disk that a power cut may leave now."""
    for count, found in enumerate(_below(root, "")):
        assert count < _MOST, "too much is not synced"
        yield found


def _below(directory: Node, path: str) -> Iterator[dict[str, bytes]]:
    per_name = [
        [
            found
            for node in dict.fromkeys(history, None)
            for found in _found(node, f"{path}/{name}" if path else name)
        ]
        for name, history in directory.names.items()
    ]
    for chosen in itertools.product(*per_name):
        yield {each: body for found in chosen for each, body in found.items()}


def _found(node: Node | None, path: str) -> Iterator[dict[str, bytes]]:
    if node is None:
        yield {}
    elif node.is_directory:
        yield from _below(node, path)
    else:
        yield from ({path: body} for body in node.choices())
