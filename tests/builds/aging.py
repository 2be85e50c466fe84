"""Repositories whose history is old: clocks and files that say so."""

import contextlib
import os
import time
from pathlib import Path

import icevirt
from icevirt.repo import repo_info_file
from icevirt.storage.memory import MemoryStorage
from icevirt.storage.protocol import Version

DAY = 86_400_000_000  # microseconds


def _times(folder):
    files = (path for path in Path(folder).rglob("*") if path.is_file())
    return {path: path.stat().st_mtime_ns for path in files}


@contextlib.contextmanager
def days_ago(folder, days):
    """Let what the block writes below a folder be some days old."""
    real, before = repo_info_file._now, _times(folder)
    repo_info_file._now = lambda: real() - int(days * DAY)
    try:
        yield
    finally:
        repo_info_file._now = real
    at = time.time() - days * DAY / 1e6
    for path, written in _times(folder).items():
        if before.get(path) != written:
            os.utime(path, (at, at))


def grown(repo, files, ages, **options):
    """Append files one by one, each as many days ago as ``ages`` says."""
    for file, age in zip(files, ages, strict=True):
        with days_ago(repo, age):
            icevirt.append(file, repo, **({"concat_dim": "time"} | options))


def in_memory(folder):
    """Return the repository in a folder as one in memory, as old as it is."""
    storage = MemoryStorage()
    for number, (path, written) in enumerate(_times(folder).items(), 1):
        name = path.relative_to(folder).as_posix()
        storage._objects[name] = path.read_bytes(), Version(f"file {number}"), written // 1000
    return storage
