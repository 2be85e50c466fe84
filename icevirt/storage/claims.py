"""Let one machine at a time write to a repository whose locks hold on one machine only.

A file in the root names the machine that writes. It is made where there is none, renewed by the
writers of that machine, and taken over by another machine when nothing was written for an hour.
A lock would not do: file systems without locks between machines keep what they read for a while,
so that the next writer could take an old state for the newest.

All of it happens under the locks of this machine.
"""

from __future__ import annotations

import os
import socket
import time
from contextlib import suppress
from functools import cache

from icevirt.errors import StorageError
from icevirt.storage import durable

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
        if (found := _read(at, _NAME)) is None:
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
    text, written = _read(at, _NAME) or ("", 0.0)
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


def _read(at: int, name: str) -> tuple[str, float] | None:
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
    if _read(at, aside) != found:
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
