"""List the files that sources name, on this machine and on servers, each with size and checksum.

Symbolic links are followed, and every directory is entered once. Unreadable entries are errors,
never skipped: a skipped file would be missing in the dataset, and no one would know. Buckets are
listed; a web server cannot be, so its files are named one by one.
"""

from __future__ import annotations

import difflib
import math
import os
import re
import stat
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from fnmatch import fnmatchcase
from functools import partial
from itertools import islice, takewhile
from typing import Any

from icevirt.archive.sources import STORES, SourceFile
from icevirt.connect.library import obstore
from icevirt.connect.retry import on_store
from icevirt.connect.stores import Bucket
from icevirt.connect.urls import (
    Address,
    as_local_path,
    file_url,
    is_pattern,
    is_url,
    natural,
    spell,
)
from icevirt.errors import (
    InvalidInputError,
    NotFoundError,
    NothingListedError,
    ObjectNotFoundError,
    ScanError,
    StorageError,
)
from icevirt.objects.answers import Meta, change
from icevirt.objects.source import (
    is_store,
    local_file,
    metadata_of,
    reach_for,
    source_file,
)
from icevirt.objects.source_access import carrying, in_force
from icevirt.objects.stores import document_in, store_file
from icevirt.objects.web_connections import HOSTS

SUFFIXES = (
    *(".nc", ".nc4", ".cdf", ".netcdf", ".h5", ".hdf5", ".he5", ".hdf"),
    *(".grib2", ".grb2", ".grib", ".grb", ".zarr.zip"),
)
"""Which files of a directory are taken. A file that is named, or matches a glob, always is."""

_SUFFIX = re.compile(r"\.[A-Za-z][A-Za-z0-9]*$")
_HDF5, _CLASSIC = b"\x89HDF\r\n\x1a\n", (b"CDF\x01", b"CDF\x02", b"CDF\x05")
_BLOCKS = (512, 1024, 2048)  # bytes, at which HDF5 may begin
_LOOKED_AT = 10_000  # names in a folder, when one of them may be meant
_STORE = ".zarr"
_FEW = 8000  # objects, which one listing returns soon
_MOST = 2000  # branches of a folder that are worth a listing each
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
            for file in remote_files(each, since=since):
                found.setdefault(file.url, file)
            continue
        source, paths = as_local_path(each), _paths(each)
        if since and paths != [source]:
            paths = [path for path in paths if is_since(source, path, since)]
        for path in paths:
            facts = _stat(path)
            if not stat.S_ISREG(facts.st_mode):
                what = "a source is not a regular file"
                raise InvalidInputError(what, do="Leave it out.", path=path)
            # size and time as well: some network file systems give one inode number to two files
            identity = (facts.st_dev, facts.st_ino, facts.st_size, facts.st_mtime_ns)
            if identity not in identities:
                file = _local(path, facts)
                found.setdefault(file.url, file)
            identities.add(identity)
    return tuple(found.values())


def _local(path: str, facts: os.stat_result) -> SourceFile:
    url = file_url(path)
    return store_file(url) if is_store(url) else local_file(url, path, facts)


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
    fixed = takewhile(lambda name: not is_pattern(name), source[begin:].split("/"))
    return source[:begin] + "/".join(fixed).rstrip("/") + "/"


def find_changes(files: Iterable[SourceFile]) -> dict[str, str]:
    """Return the URLs of files whose size, etag or time is no longer what it was, and how.

    Folders of buckets are listed, files of web servers asked for side by side.

    Raises:
        StorageError: A server refused, or did not answer.
    """
    pairs: list[tuple[SourceFile | None, SourceFile]] = []
    folders: dict[str, list[SourceFile]] = defaultdict(list)
    single = []
    for file in files:
        if file.is_store:
            single.append(file)
        elif file.url.startswith("file://") and not file.etag:  # else as stores name it
            pairs.append((_look(file.url), file))
        elif file.url.startswith(("http://", "https://")) or in_force().way_to(file.url):
            single.append(file)
        else:
            folders[file.url.rpartition("/")[0] + "/"].append(file)
    listings = [
        HOSTS.submit(_host(folder), carrying(partial(_in_folder, folder))) for folder in folders
    ]
    for listing, members in zip(listings, folders.values(), strict=True):
        now = listing.result()
        pairs += [(now.get(file.url), file) for file in members]
    asking = [
        HOSTS.submit(_host(one.url), carrying(partial(_ask_again, one.url))) for one in single
    ]
    pairs += [(answer.result(), file) for file, answer in zip(single, asking, strict=True)]
    return {file.url: how for now, file in pairs if (how := change(now, file)) is not None}


def _host(url: str) -> str:
    return "/".join(url.split("/")[:3])


def _look(url: str) -> SourceFile | None:
    try:
        return SourceFile.of_status(url, os.stat(as_local_path(url)))
    except OSError:
        return None


# -- paths of this machine -------------------------------------------------------------------------


def _text(source: object) -> str:
    text = os.fspath(source) if isinstance(source, os.PathLike) else source
    if not isinstance(text, str):
        kind = type(source).__name__
        raise InvalidInputError(f"a source must be a path or a URL, not {kind}", do=_NAME)
    if not text.strip() or "\0" in text:
        raise InvalidInputError("this is not a valid source", do=_NAME, source=text)
    return spell(text)


def _paths(text: str) -> list[str]:
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
    return sorted(found, key=_by_names)


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
            "It is a repository of Icechunk, which is not a source: name files that it refers to."
        )
    with os.scandir(path) as entries:
        found = [
            each.name for each in islice(entries, _LOOKED_AT) if is_store(metadata_of(each.path))
        ]
    if not found:
        return ""
    own = _STORE if min(found).lower().endswith(_STORE) else ""
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


# -- globs -----------------------------------------------------------------------------------------


def _by_names(path: str) -> list[Any]:
    return [natural(name) for name in path.split("/")]


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
        elif not rest and with_stores and is_store(document := metadata_of(path)):
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
                (each.name, each.is_dir()) for each in entries if _fits_name(each.name, segment)
            ]
    return sorted(found, key=lambda each: natural(each[0]))


def _fits_name(name: str, segment: str) -> bool:
    is_hidden = name.startswith(".") and is_pattern(segment) and not segment.startswith(".")
    return fnmatchcase(name, segment) and not is_hidden


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


# -- URLs on servers -------------------------------------------------------------------------------


def remote_files(
    url: str, suffixes: tuple[str, ...] = SUFFIXES, *, since: str = ""
) -> list[SourceFile]:
    """Return the files that a URL, glob or folder on a server names, in natural order.

    Args:
        url: Of a file; of a folder of a bucket, which stands for all below it; or of a bucket with
            a glob, in which ``**`` crosses folders.
        suffixes: Which files of a folder are taken.
        since: As for `list_sources`. Raises as that does.
    """
    scheme, _, rest = url.partition("://")
    key = rest.partition("/")[2]
    if scheme.lower() in ("http", "https"):
        # a question mark begins a query here, which is refused with its own remedy
        if is_pattern(key.partition("?")[0]) or not key or key.endswith("/"):
            raise InvalidInputError(
                "a web server cannot be listed",
                do="Pass its files one by one, or in a text file.",
                source=url,
            )
        return [_ask(url)]
    if is_store(key):
        return [store_file(Address.parse(url).url)]
    if is_pattern(key):
        what, found = "the pattern matches no file", _matching(url, key, since)
    else:
        what = "no such file, and no folder with NetCDF or HDF5 files"
        found = _named(url, key, suffixes, since)
    if not found:
        raise NothingListedError(what, do="Check the URL.", source=url)
    return [found[key] for key in sorted(found, key=_by_names)]


def _matching(url: str, pattern: str, since: str) -> dict[str, SourceFile]:
    """Return the objects and stores of a bucket that match a pattern, by key."""
    segments = pattern.split("/")
    # the folders before the first part that is a pattern; names are no folders
    folder = "/".join(takewhile(lambda name: not is_pattern(name), segments[:-1]))
    inside = f"{folder}/" if folder else ""
    bucket = in_force().bucket(f"{url.removesuffix(pattern)}{inside}")
    names = [segment for segment in segments if segment]
    if names[-1].lower().endswith(_STORE) and "**" not in names:
        begin = f"{folder}/{since}".lstrip("/") if since else ""
        return _stores(bucket, folder, names[folder.count("/") + bool(folder) :], begin)
    every = _below(bucket, folder, since)
    return {path: file for path, file in every.items() if _fits(path.split("/"), segments)}


def _named(url: str, key: str, suffixes: tuple[str, ...], since: str) -> dict[str, SourceFile]:
    """Return the object or store of a URL, or the objects in its folder, by key."""
    bucket = in_force().bucket(url)
    if key.rstrip("/").lower().endswith(_STORE) and (document := document_in(url)):
        return {key: store_file(document)}
    if key and not key.endswith("/"):
        try:
            return {key: _ask(url)}
        except NotFoundError:  # perhaps a folder
            pass
    folder = Address.parse(url).key.strip("/")
    every = _below(bucket, folder, since)
    for name in STORES:
        if (document_of := every.get(f"{folder}/{name}".lstrip("/"))) is not None:
            return {key: store_file(document_of.url)}
    return {
        path: file
        for path, file in every.items()
        if path.lower().endswith(suffixes) and "/." not in f"/{path.removeprefix(folder)}"
    }


def _stores(bucket: Bucket, folder: str, names: Sequence[str], begin: str) -> dict[str, SourceFile]:
    """Return the Zarr stores below a folder whose paths match, one listing a level."""
    first, *rest = names
    objects, folders = _level(bucket, folder)
    found: dict[str, SourceFile] = {}
    if not rest:
        found |= {p: file for p, file in objects.items() if _fits_name(p.rpartition("/")[2], first)}
    for each in map(str, folders):
        inside = each.strip("/")
        if not _fits_name(inside.rpartition("/")[2], first):
            continue
        if rest:
            found |= _stores(bucket, inside, rest, begin)
        elif inside >= begin and (
            document := document_in(bucket.address._replace(key=f"{inside}/").url)
        ):
            found[inside] = store_file(document)
    return found


def _fits(names: Sequence[str], segments: Sequence[str]) -> bool:
    """Say whether a path matches a pattern as on local disk."""
    if not segments:
        return not names
    first, rest = segments[0], segments[1:]
    if first == "**":
        is_below = bool(names) and not names[0].startswith(".")
        return _fits(names, rest or ["*"]) or (is_below and _fits(names[1:], segments))
    return bool(names) and _fits_name(names[0], first) and _fits(names[1:], rest)


def _ask(url: str) -> SourceFile:
    """Request the facts about one file."""
    reach, key, canonical = reach_for(url)
    try:
        answer = reach.get(key, 0, 1, lambda _meta: None)
    except ObjectNotFoundError as error:
        raise NotFoundError("no such file or directory", do="Check the URL.", source=url) from error
    return source_file(canonical, answer.meta)


def _ask_again(url: str) -> SourceFile | None:
    try:
        return store_file(url) if is_store(url) else _ask(url)
    except (NotFoundError, ScanError):
        return None


def _in_folder(url: str) -> dict[str, SourceFile]:
    """Return the objects in a folder, and not those below it, by URL."""
    found, _ = _level(in_force().bucket(url), Address.parse(url).key.strip("/"))
    return {file.url: file for file in found.values()}


def _below(bucket: Bucket, folder: str, since: str) -> dict[str, SourceFile]:
    """Return all objects below a folder, by key; those ``since`` a path in it."""
    found = _flat(bucket, folder, most=math.inf if since else _FEW, since=since)
    if found is None:
        found = _side_by_side(bucket, folder)
    folders = {path.rpartition("/")[0] for path in found}
    # empty objects in the name of a folder, which some tools make
    return {path: file for path, file in found.items() if file.size or path not in folders}


def name_before(begin: str) -> str | None:
    """Return a name that sorts a little before a text, behind which a listing begins.

    None for an empty text. Empty names between slashes, and control characters, are refused by
    object stores.
    """
    if not begin:
        return None
    near = chr(ord(begin[-1]) - 1)
    if near != "/" and near.isprintable():
        return f"{begin[:-1]}{near}~"
    return begin[:-1].rstrip("/") or None


def _flat(
    bucket: Bucket, folder: str, most: float = math.inf, since: str = ""
) -> dict[str, SourceFile] | None:
    """Return the objects below a folder by key, from one listing; None for ``most`` or more."""
    begin = f"{folder}/{since}".lstrip("/") if since else ""
    before = name_before(begin)

    def read(store: Any) -> dict[str, SourceFile] | None:
        found: dict[str, SourceFile] = {}
        for page in obstore().list(store, prefix=folder or None, offset=before):
            found |= _files_of(bucket, (each for each in page if each["path"] >= begin))
            if len(found) >= most:
                return None
        return found

    return on_store(bucket, bucket.address._replace(key=folder).url, read)


def _side_by_side(bucket: Bucket, folder: str) -> dict[str, SourceFile]:
    """Return many objects below a folder: a listing is a chain of requests, so one a branch."""
    found, branches = _level(bucket, folder)
    while len(branches) == 1:
        objects, branches = _level(bucket, branches[0])
        found |= objects
    if len(branches) > _MOST:  # with little in each
        return _flat(bucket, folder) or {}
    listings = [HOSTS.submit(bucket.url, partial(_flat, bucket, each)) for each in branches]
    for listing in listings:
        found |= listing.result() or {}
    return found


def _level(bucket: Bucket, folder: str) -> tuple[dict[str, SourceFile], list[str]]:
    """Return the objects in a folder by key, and the folders in it."""
    page = on_store(
        bucket,
        bucket.address._replace(key=folder).url,
        lambda store: obstore().list_with_delimiter(store, prefix=folder or None),
    )
    return _files_of(bucket, page["objects"]), list(page["common_prefixes"])


def _files_of(bucket: Bucket, objects: Iterable[Mapping[str, Any]]) -> dict[str, SourceFile]:
    """Return what a listing says, by key."""
    found = {}
    for one in objects:
        seconds = one["last_modified"].timestamp()
        meta = Meta(size=one["size"], etag=one["e_tag"] or "", last_modified=seconds)
        url = bucket.address._replace(key=one["path"]).url
        found[one["path"]] = source_file(url, meta)
    return found
