"""List the files that sources name, each with size and checksum."""

from __future__ import annotations

import difflib
import os
import re
import stat
from collections.abc import Iterable
from itertools import islice, takewhile

from icevirt.archive.scanned import SourceFile
from icevirt.connect.urls import as_local_path, file_url, is_url, spelled
from icevirt.errors import InvalidInputError, NotFoundError, NothingListedError, StorageError
from icevirt.objects.answers import change
from icevirt.objects.opened import local_file
from icevirt.objects.source import metadata_of
from icevirt.objects.source_lists.globs import files_below, files_matching, is_pattern, natural
from icevirt.objects.source_lists.remote_listing import changed_remotely, remote_files

SUFFIXES = (".nc", ".nc4", ".cdf", ".netcdf", ".h5", ".hdf5", ".he5", ".hdf")
"""Which files of a directory are taken. A file that is named, or matches a glob, always is."""

_SUFFIX = re.compile(r"\.[A-Za-z][A-Za-z0-9]*$")
_HDF5, _CLASSIC = b"\x89HDF\r\n\x1a\n", (b"CDF\x01", b"CDF\x02", b"CDF\x05")
_BLOCKS = (512, 1024, 2048)  # bytes, at which HDF5 may begin

_LOOKED_AT = 10_000  # names in a folder, when one of them may be meant
_NAME = "Name files, directories or globs to build from."


def list_sources(
    sources: str | os.PathLike[str] | Iterable[str | os.PathLike[str]], *, since: str = ""
) -> tuple[SourceFile, ...]:
    """List the files that globs, directories, paths and URLs name, in that order.

    Directories are searched with everything below them, for the usual suffixes, and for files
    without any that begin as such files do. ``**`` in a glob
    crosses directories. Both stand for their files in natural order of the names. Symbolic links
    are followed: the file they lead to is what is referenced, their own name is what is sorted.
    A file that is named twice, or by two hard links, counts at its first place.

    Args:
        sources: What names the files.
        since: Of directories, prefixes and globs, take only the files whose path below the
            directory does not sort before this text; buckets are listed from there.

    Raises:
        InvalidInputError: Nothing was named, or a file cannot be referenced.
        NothingListedError: Nothing matched.
        NotFoundError: A named file or directory does not exist.
        ScanError: A server sends neither ETag nor Last-Modified: changes would go unnoticed.
        StorageError: A file cannot be looked at, or a directory cannot be read.
    """
    if isinstance(sources, str | bytes | os.PathLike) or not isinstance(sources, Iterable):
        sources = [sources]
    named = [_text(each) for each in sources]
    if not named:
        raise InvalidInputError("no sources", do=_NAME)
    found: dict[str, SourceFile] = {}
    identities = set()
    for each in named:
        if is_url(each) and not each.startswith("file://"):
            for file in remote_files(each, SUFFIXES, since=since):
                found.setdefault(file.url, file)
            continue
        for path in _since(each, _paths(each), since):
            facts = _stat(path)
            # size and time as well: some network file systems give one inode number to two files
            identity = (facts.st_dev, facts.st_ino, facts.st_size, facts.st_mtime_ns)
            file = _file(path, facts)
            if identity not in identities:
                found.setdefault(file.url, file)
            identities.add(identity)
    return tuple(found.values())


def _since(source: str, found: list[str], since: str) -> Iterable[str]:
    """Yield the paths below the directory of a source that do not sort before a text."""
    path = as_local_path(source)
    if not since or found == [path]:
        return found
    return [each for each in found if is_since(path, each, since)]


def is_since(source: str, found: str, since: str) -> bool:
    """Say whether a path or URL below a source does not sort before a text there.

    Args:
        source: A directory, prefix or pattern, as a path or URL.
        found: A file that it stands for, in the same spelling.
        since: A path below the directory, or the beginning of one.
    """
    folder = directory_of(source)
    return not found.startswith(folder) or found.removeprefix(folder) >= since


def directory_of(source: str) -> str:
    """Return the directory that a source names, or that its pattern begins with; with a slash."""
    begin = source.find("://") + 3 if "://" in source else 0
    names = source[begin:].split("/")
    fixed = list(takewhile(lambda name: not is_pattern(name), names))
    return source[:begin] + "/".join(fixed).rstrip("/") + "/"


def _text(source: object) -> str:
    text = os.fspath(source) if isinstance(source, os.PathLike) else source
    if not isinstance(text, str):
        kind = type(source).__name__
        raise InvalidInputError(f"a source must be a path or a URL, not {kind}", do=_NAME)
    if not text.strip() or "\0" in text:
        raise InvalidInputError("this is not a valid source", do=_NAME, source=text)
    return spelled(text)


def _paths(text: str) -> list[str]:
    path = metadata_of(as_local_path(text))
    if os.path.isdir(path):
        below = [
            each
            for each in files_below(path)
            if each.lower().endswith(SUFFIXES) or (_says_nothing(each) and _is_netcdf(each))
        ]
        return _nonempty(below, text, "the directory holds no NetCDF or HDF5 files")
    if is_pattern(text) and not os.path.lexists(path):
        return _nonempty(files_matching(path), text, "the pattern matches no file")
    return [path]


def _says_nothing(path: str) -> bool:
    """Say whether a name has no suffix of letters, like those of WRF."""
    return _SUFFIX.search(os.path.basename(path)) is None


def _is_netcdf(path: str) -> bool:
    """Say whether a file begins as NetCDF or HDF5 files do; HDF5 may follow a block of others."""
    try:
        if not stat.S_ISREG(os.stat(path).st_mode):
            return False
        with open(path, "rb") as file:
            if file.read(len(_HDF5)).startswith((_HDF5, *_CLASSIC)):
                return True
            return any(file.seek(at) and file.read(len(_HDF5)) == _HDF5 for at in _BLOCKS)
    except FileNotFoundError:
        return False  # a dangling link
    except OSError:
        return True  # looking at it again says what is wrong


def _nonempty(paths: list[str], source: str, what: str) -> list[str]:
    if not paths:
        raise NothingListedError(what, do=_nearby(as_local_path(source)), source=source)
    return paths


def _nearby(path: str) -> str:
    """Return what is there instead: the folder that exists, and how its files are called."""
    folder = path
    while folder and not os.path.isdir(folder):
        above = os.path.dirname(folder)
        if above == folder:
            break
        folder = above
    try:
        with os.scandir(folder or ".") as entries:
            names = sorted((each.name for each in islice(entries, _LOOKED_AT)), key=natural)
    except OSError:
        return "Check the path."
    wanted = os.path.relpath(path, folder or ".").split(os.sep)[0]
    near = difflib.get_close_matches(wanted, names, n=1) or names[:1]
    shown = folder or "the working directory"
    if not near:
        return f"Check the path: {shown} is empty."
    more = f" and {len(names) - 1:,} more" if len(names) > 1 else ""
    return f"Check the path: {shown} holds {near[0]}{more}."


def _stat(path: str) -> os.stat_result:
    try:
        return os.stat(path)
    except OSError as error:
        if os.path.islink(path):
            raise StorageError(
                "a source is a dangling symbolic link",
                do="Repair or remove it.",
                path=path,
                target=os.readlink(path),
                cause=error.strerror,
            ) from error
        if isinstance(error, FileNotFoundError | NotADirectoryError):
            raise NotFoundError(
                "no such file or directory", do=_nearby(path), source=path
            ) from error
        raise StorageError(
            "a source cannot be read", do="Repair or remove it.", path=path, cause=error.strerror
        ) from error


def _file(path: str, facts: os.stat_result) -> SourceFile:
    if not stat.S_ISREG(facts.st_mode):
        raise InvalidInputError("a source is not a regular file", do="Leave it out.", path=path)
    return local_file(file_url(path), path, facts)


def changed_since(files: Iterable[SourceFile]) -> dict[str, str]:
    """Return the URLs of files whose size, etag or time is no longer what it was, and how."""
    changed = {}
    remote = []
    for file in files:
        if not file.url.startswith("file://") or file.etag:  # as stores name it, not this disk
            remote.append(file)
        elif (how := change(_now(file.url), file)) is not None:
            changed[file.url] = how
    return changed | changed_remotely(remote)


def _now(url: str) -> SourceFile | None:
    try:
        facts = os.stat(as_local_path(url))
    except OSError:
        return None
    return SourceFile.of_status(url, facts)
