"""List what paths of this machine name: files, directories and globs.

Symbolic links are followed, and every directory is entered once. Unreadable entries are errors,
never skipped: a skipped file would be missing in the dataset, and no one would know.
"""

from __future__ import annotations

import difflib
import os
import re
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import islice

from icevirt.connect.urls import as_local_path, is_pattern, natural
from icevirt.errors import NotFoundError, NothingListedError, StorageError
from icevirt.objects.source import is_store, metadata_of
from icevirt.objects.source_lists.names import STORE_SUFFIX, SUFFIXES, by_names, fits_name

_SUFFIX = re.compile(r"\.[A-Za-z][A-Za-z0-9]*$")
_HDF5, _CLASSIC = b"\x89HDF\r\n\x1a\n", (b"CDF\x01", b"CDF\x02", b"CDF\x05")
_BLOCKS = (512, 1024, 2048)  # bytes, at which HDF5 may begin
_LOOKED_AT = 10_000  # names in a folder, when one of them may be meant


def local_paths(text: str) -> list[str]:
    """Return the files that a path, directory or glob stands for, in natural order.

    Raises:
        NothingListedError: A directory or glob stands for none.
        StorageError: A directory cannot be read.
    """
    path = metadata_of(as_local_path(text))
    if os.path.isdir(path):
        what = "the directory holds no NetCDF, HDF5 or GRIB files"
        # names without a suffix of letters, like those of WRF, say nothing
        found = [
            each
            for each in _matches(path, ["**", "*"])
            if each.lower().endswith(SUFFIXES)
            or (_SUFFIX.search(os.path.basename(each)) is None and _is_netcdf(each))
        ]
    elif is_pattern(text) and not os.path.lexists(path):
        what = "the pattern matches no file"
        segments = [segment for segment in path.split("/") if segment]
        found = list(_matches("/", segments, with_stores=True))
    else:
        return [path]
    if not found:
        do = _instead(path) or _nearby(as_local_path(text))
        raise NothingListedError(what, do=do, source=text)
    return sorted(found, key=by_names)


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


def _instead(path: str) -> str:
    """Return what to do about a directory of Zarr stores, or a repository; "" for others."""
    if not os.path.isdir(path):
        return ""
    if os.path.isdir(os.path.join(path, "snapshots")):
        return (
            "It is a repository of Icechunk of version 1: icevirt upgrade makes it one of version"
            " 2, which is a source."
        )
    with os.scandir(path) as entries:
        found = [
            each.name for each in islice(entries, _LOOKED_AT) if is_store(metadata_of(each.path))
        ]
    if not found:
        return ""
    own = STORE_SUFFIX if min(found).lower().endswith(STORE_SUFFIX) else ""
    return f"Name the Zarr stores in it: {os.path.join(path, f'*{own}')}"


def _nearby(path: str) -> str:
    """Return what is there instead: the folder that exists, and how its files are called."""
    folder = path
    while folder and not os.path.isdir(folder) and os.path.dirname(folder) != folder:
        folder = os.path.dirname(folder)
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


def status_of(path: str) -> os.stat_result:
    """Return what the file system says about a source.

    Raises:
        NotFoundError: It does not exist; the remedy says what is there instead.
        StorageError: It cannot be looked at.
    """
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


def _matches(folder: str, segments: Sequence[str], *, with_stores: bool = False) -> Iterator[str]:
    """Yield what matches below a directory and is no directory; ``**`` crosses directories.

    A directory that is a Zarr store is the document that stands for it, if these are wanted.

    Raises:
        StorageError: A directory cannot be read.
    """
    first, *rest = segments
    if first == "**":
        for each in _folders(folder):
            yield from _matches(each, rest or ["*"], with_stores=with_stores)
        return
    for name, is_folder in _entries(folder, first):
        path = os.path.join(folder, name)
        if rest and is_folder:
            yield from _matches(path, rest, with_stores=with_stores)
        elif not rest and not is_folder:
            yield path
        elif not rest and with_stores and (document := metadata_of(path)) != path:
            yield document


def _folders(top: str) -> Iterator[str]:
    """Yield a directory and those below it, each once: links may lead up, or to the same twice."""
    waiting, entered = [top], set()
    while waiting:
        folder = waiting.pop()
        with _searching():
            facts = os.stat(folder)
        if (facts.st_dev, facts.st_ino) in entered:
            continue
        entered.add((facts.st_dev, facts.st_ino))
        yield folder
        below = reversed(_entries(folder, "*"))
        waiting += [os.path.join(folder, name) for name, is_folder in below if is_folder]


def _entries(folder: str, segment: str) -> list[tuple[str, bool]]:
    """Return the names that match, and which of them are, or lead to, directories.

    A directory need not be listed for one name; hidden names have to be asked for.
    """
    with _searching():
        if not is_pattern(segment):
            path = os.path.join(folder, segment)
            try:
                os.lstat(path)
            except (FileNotFoundError, NotADirectoryError):
                return []
            return [(segment, os.path.isdir(path))]
        with os.scandir(folder) as entries:
            found = [
                (each.name, each.is_dir()) for each in entries if fits_name(each.name, segment)
            ]
    return sorted(found, key=lambda each: natural(each[0]))


@contextmanager
def _searching() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise StorageError(
            "cannot search for sources here",
            do="Check permissions and links, or name files elsewhere.",
            path=error.filename,
            cause=error.strerror,
        ) from error
