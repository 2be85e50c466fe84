"""Make sure of what commits need where a file system does not promise it.

Some network and user-space file systems accept calls that they do not carry out: a lock that two
processes hold, a rename that leaves a name without a file, a read that returns old bytes. Commits
would be lost without a word. So once for each root in a process, two processes try it (`probe`):
locks, exclusive creation, replacement, and reading what the other one wrote. That shows what
processes of one machine see of each other; between machines only the kind of the file system tells
(`icevirt.storage.mounts`).

Where locks hold on one machine only, one machine at a time writes.
A file in the root names the machine that writes. It is made where there is none, renewed by the
writers of that machine, and taken over by another machine when nothing was written for an hour.
A lock would not do: file systems without locks between machines keep what they read for a while,
so that the next writer could take an old state for the newest.

All of it happens under the locks of this machine.
"""

from __future__ import annotations

import fcntl
import os
import socket
import subprocess
import sys
import time
from contextlib import suppress
from functools import cache
from types import TracebackType
from typing import Self

from icevirt.errors import StorageError
from icevirt.storage import durable

_ROUNDS = 8  # replacements that the other process has to see

# the other process: it locks and reads on request, a line each
_OTHER = """
import fcntl, os, sys
folder = sys.argv[1]
for line in sys.stdin:
    verb, name = line.split()
    path = os.path.join(folder, name)
    try:
        if verb == "lock":
            fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            answer = "taken"
            os.close(fd)
        else:
            with open(path, "rb") as file:
                answer = "bytes " + file.read().hex()
    except BlockingIOError:
        answer = "held"
    except FileNotFoundError:
        answer = "absent"
    except OSError as error:
        answer = "error " + (error.strerror or str(error))
    print(answer, flush=True)
"""


def probe(folder: str, kind: str) -> None:
    """Try out a directory that exists.

    Args:
        folder: Its path. Files that are made there are removed again.
        kind: Of its file system, for the error.

    Raises:
        StorageError: It does not do what is needed, or nothing can be written.
    """
    mark = int.from_bytes(os.urandom(7))
    name, lock = f"probe#{mark}", f"lock#{mark}"  # which no listing shows
    try:
        with durable.directory(folder) as at, _Other(folder) as other:
            try:
                failed = _of_locks(folder, lock, other) or _of_files(at, name, folder, other)
            finally:
                for each in (name, lock, f"{name}0"):
                    with suppress(OSError):
                        os.unlink(each, dir_fd=at)
    except OSError as error:
        failed = f"a call fails: {os.strerror(error.errno or 0)}"
    if failed:
        raise StorageError(
            "this file system does not do what commits to a repository need",
            do="Write to an object store by its URL (s3://, gs://, abfss://), or to a local disk, "
            "and copy the repository from there.",
            path=folder,
            file_system=kind,
            found=failed,
        )


def _of_locks(folder: str, name: str, other: _Other) -> str:
    """Return what is wrong with locks, "" if nothing is."""
    fd = os.open(os.path.join(folder, name), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if (answer := other.ask("lock", name)) != "held":
            return f"another process gets a lock that is held ({answer})"
    finally:
        os.close(fd)
    answer = other.ask("lock", name)
    return "" if answer == "taken" else f"a lock that was given back is not free ({answer})"


def _of_files(at: int, name: str, folder: str, other: _Other) -> str:
    """Return what is wrong with creating, replacing, reading and deleting, "" if nothing is."""
    path = os.path.join(folder, name)
    body = b"0"
    try:
        if not durable.create(at, name, body):
            return "a new file is there already"
        if durable.create(at, name, b"other"):
            return "a file is created where there is one"
    except durable.NoHardLinksError:
        durable.replace(at, name, body, staged=f"{name}0")
    for number in range(_ROUNDS):
        for answer in (other.ask("read", name), f"bytes {_read(path).hex()}"):
            if answer != f"bytes {body.hex()}":
                return f"a process does not read what was written ({answer[:40]})"
        if _identity(path) != _identity(path):
            return "a file that nobody changed changes its number or time"
        body = str(number).encode() * (number + 2)
        durable.replace(at, name, body, staged=f"{name}0")
    os.unlink(name, dir_fd=at)
    answer = other.ask("read", name)
    return "" if answer == "absent" else "a deleted file can still be read"


def _read(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read()


def _identity(path: str) -> tuple[int, int, int]:
    with open(path, "rb") as file:
        facts = os.fstat(file.fileno())
    return facts.st_ino, facts.st_mtime_ns, facts.st_ctime_ns


class _Other:
    """Another process, which locks and reads; a context that ends it."""

    def __init__(self, folder: str) -> None:
        self._process = subprocess.Popen(  # noqa: S603  # this interpreter, a text of ours
            [sys.executable, "-I", "-S", "-c", _OTHER, folder],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def ask(self, verb: str, name: str) -> str:
        """Let it do one thing, and return what it says."""
        assert self._process.stdin is not None, "a pipe"
        assert self._process.stdout is not None, "a pipe"
        self._process.stdin.write(f"{verb} {name}\n")
        self._process.stdin.flush()
        return self._process.stdout.readline().strip()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._process.kill()
        self._process.communicate()


LEASE = 3600.0
"""Seconds after which the machine that wrote last is taken to be gone; its writers renew before."""

_NAME = "machine#0"  # which no listing shows
_BOOT = "/proc/sys/kernel/random/boot_id"


def claim(at: int, root: str, kind: str) -> None:
    """Make sure that this machine is the one that writes.

    Args:
        at: Descriptor of the root.
        root: Its path, for the error.
        kind: Of its file system, for the error.

    Raises:
        StorageError: Another machine wrote less than an hour ago, or the same one through another
            mount.
    """
    mine = _mine(at)
    while True:
        if (found := _text_of(at, _NAME)) is None:
            if _create(at, mine):
                return
            continue
        text, written = found
        age = time.time() - written
        if text == mine and age < LEASE / 2:
            return
        if text != mine and age < LEASE:
            raise _refusal(text, age, root, kind)
        _take_away(at, found)


def look(at: int, root: str, kind: str) -> None:
    """Do no more than find out whether another machine writes.

    Raises:
        StorageError: As `claim`.
    """
    text, written = _text_of(at, _NAME) or ("", 0.0)
    if text != _mine(at) and (age := time.time() - written) < LEASE:
        raise _refusal(text, age, root, kind)


def _mine(at: int) -> str:
    """Name this machine and mount; locks hold between those who name the same."""
    facts = os.fstat(at)
    return f"{socket.gethostname()} {_boot()} {facts.st_dev:x}\n"


@cache
def _boot() -> str:
    try:
        with open(_BOOT, encoding="ascii") as file:
            return file.read().strip()
    except OSError:
        return "-"


def _text_of(at: int, name: str) -> tuple[str, float] | None:
    try:
        fd = os.open(name, os.O_RDONLY | os.O_CLOEXEC, dir_fd=at)
    except FileNotFoundError:
        return None
    with open(fd, encoding="utf-8", errors="replace") as file:
        return file.read(1000), os.fstat(fd).st_mtime


def _create(at: int, text: str) -> bool:
    """Create the file where there is none; False if there is one."""
    with suppress(durable.NoHardLinksError):
        return durable.create(at, _NAME, text.encode())
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    try:
        fd = os.open(_NAME, flags, 0o666, dir_fd=at)
    except FileExistsError:
        return False
    with open(fd, "w", encoding="utf-8") as file:
        file.write(text)
    return True


def _take_away(at: int, found: tuple[str, float]) -> None:
    """Remove the file that was found, and no other one: it may just have been renewed."""
    aside = durable.unfinished("machine")
    try:
        os.rename(_NAME, aside, src_dir_fd=at, dst_dir_fd=at)
    except FileNotFoundError:
        return  # another machine did
    if _text_of(at, aside) != found:
        with suppress(OSError):
            os.link(aside, _NAME, src_dir_fd=at, dst_dir_fd=at)
    os.unlink(aside, dir_fd=at)


def _refusal(text: str, age: float, root: str, kind: str) -> StorageError:
    host = text.partition(" ")[0].strip() or "unknown"
    minutes = max(1, round((LEASE - age) / 60))
    path = os.path.join(root, _NAME)
    here = host == socket.gethostname()
    return StorageError(
        "another machine writes to this repository, and locks of this file system do not reach it"
        if not here
        else "this machine writes to this repository through another mount, which has other locks",
        do=f"Write from {'that mount' if here else host}, or to an object store. If nothing writes "
        f"there any more, try again in {minutes} minutes, or remove the file {path!r} now.",
        path=root,
        file_system=kind,
        machine=host,
        seconds_ago=round(max(0.0, age)),
    )
