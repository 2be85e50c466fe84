"""Expand a directory or a glob to files, in natural order of their names.

Symbolic links are followed, and every directory is entered once. Unreadable entries are errors,
never skipped: a skipped file would be missing in the dataset, and no one would know.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from fnmatch import fnmatchcase

from icevirt.errors import StorageError

_MAGIC = frozenset("*?[")


def is_pattern(text: str) -> bool:
    """Say whether ``text`` holds a character that means something in a glob."""
    return not _MAGIC.isdisjoint(text)


def natural(name: str) -> tuple[tuple[tuple[int, str], ...], str]:
    """Return a sort key under which ``f2`` comes before ``f10``; no two names share one."""
    parts = re.split(r"([0-9]+)", name)
    return tuple((int(part), "") if at % 2 else (-1, part) for at, part in enumerate(parts)), name


def files_below(directory: str) -> list[str]:
    """Return everything in a directory, and below it, that is neither hidden nor a directory.

    Raises:
        StorageError: A directory cannot be read.
    """
    return _sorted(_matches(directory, ["**", "*"]))


def files_matching(pattern: str) -> list[str]:
    """Return what matches an absolute glob and is no directory; ``**`` crosses directories.

    Raises:
        StorageError: A directory cannot be read.
    """
    return _sorted(_matches("/", [segment for segment in pattern.split("/") if segment]))


def _sorted(paths: Iterator[str]) -> list[str]:
    return sorted(paths, key=lambda path: [natural(name) for name in path.split("/")])


def _matches(folder: str, segments: Sequence[str]) -> Iterator[str]:
    first, *rest = segments
    if first == "**":
        for each in _folders(folder):
            yield from _matches(each, rest or ["*"])
        return
    for name, is_folder in _chosen(folder, first):
        path = os.path.join(folder, name)
        if rest and is_folder:
            yield from _matches(path, rest)
        elif not rest and not is_folder:
            yield path


def _chosen(folder: str, segment: str) -> list[tuple[str, bool]]:
    if not is_pattern(segment):
        return _entry(folder, segment)
    return [
        entry
        for entry in _entries(folder)
        if fnmatchcase(entry[0], segment) and (segment.startswith(".") or not _is_hidden(entry[0]))
    ]


def _folders(top: str) -> Iterator[str]:
    """Yield a directory and those below it, each once: links may lead up, or to the same twice."""
    waiting, entered = [top], set()
    while waiting:
        folder = waiting.pop()
        with _reading():
            facts = os.stat(folder)
        if (facts.st_dev, facts.st_ino) in entered:
            continue
        entered.add((facts.st_dev, facts.st_ino))
        yield folder
        waiting += [
            os.path.join(folder, name)
            for name, is_folder in reversed(_entries(folder))
            if is_folder and not _is_hidden(name)
        ]


def _entries(folder: str) -> list[tuple[str, bool]]:
    """Return the names in a directory, and which of them are, or lead to, directories."""
    with _reading(), os.scandir(folder) as entries:
        return sorted(
            ((entry.name, entry.is_dir()) for entry in entries), key=lambda each: natural(each[0])
        )


def _entry(folder: str, name: str) -> list[tuple[str, bool]]:
    """Look for one name, in a directory that need not be listed for it."""
    path = os.path.join(folder, name)
    with _reading():
        try:
            os.lstat(path)
        except (FileNotFoundError, NotADirectoryError):
            return []
    return [(name, os.path.isdir(path))]


def _is_hidden(name: str) -> bool:
    return name.startswith(".")


@contextmanager
def _reading() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise StorageError(
            "cannot search for sources here",
            do="Check permissions and links, or name files elsewhere.",
            path=error.filename,
            cause=error.strerror,
        ) from error
