"""From what a person names as sources to the files themselves, each with size and checksum."""

from __future__ import annotations

import glob
import os
from collections.abc import Iterable, Iterator

from icevirt.archive.scanned import SourceFile
from icevirt.connect.urls import as_local_path, file_url
from icevirt.errors import InvalidInputError, NotFoundError, StorageError

SUFFIXES = (".nc", ".nc4", ".cdf", ".netcdf", ".h5", ".hdf5", ".he5", ".hdf")
"""Which files of a directory are taken. A file that is named, or matches a glob, always is."""

_MAGIC = set("*?[")


def list_sources(
    sources: str | os.PathLike[str] | Iterable[str | os.PathLike[str]],
) -> tuple[SourceFile, ...]:
    """List the files that globs, directories, paths and ``file://`` URLs name, each once, by URL.

    Directories are searched with everything below them, for the usual suffixes. ``**`` in a glob
    crosses directories. Symbolic links are followed; the file they lead to is what is referenced.

    Raises:
        InvalidInputError: Nothing was named, or nothing matched.
        NotFoundError: A named file or directory does not exist.
        StorageError: A file cannot be looked at.
    """
    named = [sources] if isinstance(sources, str | os.PathLike) else list(sources)
    if not named:
        raise InvalidInputError("no sources", do="Name files, directories or globs to build from.")
    found: dict[str, SourceFile] = {}
    for each in named:
        for path in _paths(os.fspath(each)):
            file = _stat(path)
            found[file.url] = file
    return tuple(found[url] for url in sorted(found))


def _paths(text: str) -> Iterator[str]:
    path = as_local_path(text)
    if os.path.isdir(path):
        yield from _nonempty(_below(path), text, "the directory holds no NetCDF or HDF5 files")
    elif os.path.lexists(path):
        yield path
    elif _MAGIC & set(text):
        matched = (match for match in glob.iglob(path, recursive=True) if os.path.isfile(match))
        yield from _nonempty(matched, text, "the pattern matches no file")
    else:
        raise NotFoundError("no such file or directory", do="Check the path.", source=text)


def _nonempty(paths: Iterable[str], source: str, what: str) -> Iterator[str]:
    empty = True
    for path in paths:
        empty = False
        yield path
    if empty:
        raise InvalidInputError(what, do="Check the path.", source=source)


def _below(directory: str) -> Iterator[str]:
    for parent, folders, names in os.walk(directory):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in sorted(names):
            if name.lower().endswith(SUFFIXES) and not name.startswith("."):
                yield os.path.join(parent, name)


def _stat(path: str) -> SourceFile:
    try:
        facts = os.stat(path)
    except OSError as error:
        raise StorageError(
            "a source cannot be read", do="Repair or remove it.", path=path, cause=error.strerror
        ) from error
    if not os.path.isfile(path):
        raise InvalidInputError("a source is not a regular file", path=path)
    return SourceFile(url=file_url(path), size=facts.st_size, last_modified=facts.st_mtime_ns)


def changed_since(files: Iterable[SourceFile]) -> list[str]:
    """Return the URLs of files whose size or time is no longer what it was, or that are gone."""
    changed = []
    for file in files:
        try:
            facts = os.stat(as_local_path(file.url))
        except OSError:
            changed.append(file.url)
            continue
        if (facts.st_size, facts.st_mtime_ns) != (file.size, file.last_modified):
            changed.append(file.url)
    return changed
