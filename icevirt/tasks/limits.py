"""Limit the memory of this process while it scans one file."""

from __future__ import annotations

import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager

_STATM = "/proc/self/statm"


@contextmanager
def limited_memory(memory: int) -> Iterator[None]:
    """Let this process take no more than ``memory`` bytes beside what it has, in the block.

    Only where the system tells what a process has, which is Linux; others do not keep to limits.
    """
    held = _held()
    if held is None:
        yield
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    most = held + memory
    ours = min([most, *(each for each in (soft, hard) if each != resource.RLIM_INFINITY)])
    resource.setrlimit(resource.RLIMIT_AS, (ours, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


def _held() -> int | None:
    """Return the bytes of address space that this process has."""
    try:
        file = os.open(_STATM, os.O_RDONLY)
    except FileNotFoundError:
        return None
    try:
        return int(os.read(file, 64).split(maxsplit=1)[0]) * resource.getpagesize()
    finally:
        os.close(file)
