"""List the objects of a Zarr store as columns: folders of this machine, and buckets.

No object is asked for by itself. What is long is listed side by side.
"""

from __future__ import annotations

import os
import stat
from bisect import bisect_right
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from itertools import batched, chain, groupby
from operator import attrgetter, itemgetter, lt
from typing import Any, Never

import numpy as np

from icevirt.archive.sources import SourceFile
from icevirt.archive.store_objects import ListingDigest, StoreObjects
from icevirt.connect.library import obstore
from icevirt.connect.retry import on_store
from icevirt.connect.stores import Bucket
from icevirt.connect.urls import Address, local_path, url_of_absolute
from icevirt.errors import (
    NotFoundError,
    ScanError,
    StaleReferenceError,
    StorageError,
    UnsupportedError,
)
from icevirt.model.chunks import END_SECOND
from icevirt.model.strings import Strings
from icevirt.objects.answers import is_weak
from icevirt.objects.name_ranges import Names
from icevirt.objects.source_access import carrying, in_force
from icevirt.objects.web_connections import HOSTS
from icevirt.threads import Threads

_PAGE = 1 << 14  # objects that are made columns together
_PAGE_OF_BUCKET = 1000
_FEW = 5000  # objects of a bucket, which one listing returns soon
_MOST = 2000  # branches of a folder that are listed each, though they are shorter than a page
_BRANCHES = 16  # folders of this machine that are worth threads
_AT_ONCE = min(4, os.cpu_count() or 1)  # more of them wait for each other
_FORMAT = stat.S_IFMT(0xFFFF)
_SECOND = 1_000_000_000
_IN_ORDER = ("s3", "gcs")  # list from a name on, all in the order of their bytes


def list_store(url: str, below: Sequence[str] | None = None) -> StoreObjects:
    """List all objects of a store, or those below some folders. Raises as `list_pages` does."""
    return StoreObjects.join([*list_pages(url, below)])


def list_folder(url: str, folder: str) -> tuple[StoreObjects, list[str]]:
    """Return the objects in a folder of a store, and the paths of the folders in it.

    Raises as `list_pages` does.
    """
    if not url.startswith("file://"):
        bucket, top = _bucket_of(url)
        own, folders = _level(bucket, "/".join(filter(None, (top, folder))), top)
        return own, [each.removeprefix(f"{top}/" if top else "") for each in folders]
    top = os.path.dirname(local_path(url))
    found = [*_entries(_StoreFolder.of(top, folder), top)]
    rows = (each for each in found if not isinstance(each, _StoreFolder))
    folders = [each.prefix[:-1] for each in found if isinstance(each, _StoreFolder)]
    return StoreObjects.join([*_pages(rows, top)]), folders


def describe_store(url: str) -> SourceFile:
    """List a store and return it as a file; no more than a few pages are held.

    Raises as `list_pages` does.
    """
    digest = ListingDigest()
    for page in list_pages(url):
        digest.add(page)
    return digest.describe(url)


def list_pages(url: str, below: Sequence[str] | None = None) -> Iterator[StoreObjects]:
    """List all objects of a store, in the same order each time.

    Args:
        url: Of the document that stands for it.
        below: The only folders to list; they need not be there.

    Raises:
        NotFoundError: There is no such folder.
        StaleReferenceError: It is written to meanwhile.
        StorageError: It cannot be listed.
        UnsupportedError: A web server has it, or it holds symbolic links.
    """
    if url.startswith("file://"):
        return _list_local(os.path.dirname(local_path(url)), below)
    if url.startswith(("http://", "https://")):
        raise UnsupportedError(
            "a Zarr store on a web server cannot be listed",
            do="Name it by the URL of its bucket, like s3://bucket/x.zarr, or copy it.",
            file=url,
        )
    return _list_bucket(*_bucket_of(url), below)


def _bucket_of(url: str) -> tuple[Bucket, str]:
    """Return the bucket of a store, and its folder there."""
    return in_force().bucket(url), Address.parse(url).key.rpartition("/")[0]


def written_meanwhile(url: str, how: str) -> StaleReferenceError:
    """Return the error of a store that changes while it is listed or scanned."""
    return StaleReferenceError(
        "a store is written to while it is scanned",
        do="Scan it again when it no longer changes.",
        file=url,
        cause=how,
    )


# -- folders of this machine -----------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _StoreFolder:
    """A folder of a store on this machine."""

    path: str
    prefix: str  # of the keys below it

    @classmethod
    def of(cls, top: str, folder: str) -> _StoreFolder:
        """Return a folder of the store in ``top``."""
        return cls(f"{top}/{folder}", f"{folder}/") if folder else cls(top, "")


type _Rows = tuple[list[str], list[os.stat_result]]
"""Keys, and what the system says of each."""


def _list_local(top: str, below: Sequence[str] | None = None) -> Iterator[StoreObjects]:
    """List files below a folder, in the order of their names, folder by folder.

    The folders of a level are listed side by side: the system is waited for without Python.
    """
    parts: list[_Rows | _StoreFolder] = [
        _StoreFolder.of(top, folder)
        for folder in ([""] if below is None else below)
        if below is None or os.path.isdir(f"{top}/{folder}")
    ]
    count = len(parts)
    while 0 < count < _BRANCHES:
        found = [
            _entries(part, top) if isinstance(part, _StoreFolder) else [part] for part in parts
        ]
        parts = [*chain.from_iterable(found)]
        count = sum(isinstance(part, _StoreFolder) for part in parts)

    def pages(part: _Rows | _StoreFolder) -> list[StoreObjects]:
        return [*_pages(_below(part, top), top)]

    if count < _BRANCHES:
        yield from chain.from_iterable(_pages(_below(part, top), top) for part in parts)
        return
    with Threads(_AT_ONCE, "list-store") as threads:
        yield from chain.from_iterable(threads.map(pages, parts))


def _below(part: _Rows | _StoreFolder, top: str) -> Iterator[_Rows]:
    if not isinstance(part, _StoreFolder):
        yield part
        return
    for each in _entries(part, top):
        yield from _below(each, top)


def _entries(folder: _StoreFolder, top: str) -> Iterator[_Rows | _StoreFolder]:
    """Yield the files of a folder and the folders in it, by name.

    The folder stays open, so that the system is asked for a name alone: it walks no path.
    """
    prefix = folder.prefix
    with _open(folder.path, top) as opened:
        entries = _scan(opened, folder.path)
        is_flat = not any(map(_is_folder, entries))  # as most are
        for is_folder, run in [(False, entries)] if is_flat else groupby(entries, key=_is_folder):
            if is_folder:
                for name in map(_name_of, run):
                    yield _StoreFolder(f"{folder.path}/{name}", f"{prefix}{name}/")
                continue
            for page in batched(run, _PAGE):
                try:
                    statuses = [entry.stat(follow_symlinks=False) for entry in page]
                except FileNotFoundError as error:
                    gone = f"{folder.path}/{error.filename}"
                    raise written_meanwhile(gone, "an object is gone") from error
                yield [prefix + entry.name for entry in page], statuses


def _pages(found: Iterator[_Rows], top: str) -> Iterator[StoreObjects]:
    """Make columns of the files of many small folders, or of a part of a large one."""
    names, statuses = list[str](), list[os.stat_result]()
    for more_names, more in found:
        names += more_names
        statuses += more
        if len(names) >= _PAGE:
            yield _page(names, statuses, top)
            names, statuses = [], []
    if names:
        yield _page(names, statuses, top)


@contextmanager
def _open(folder: str, top: str) -> Iterator[int]:
    try:
        opened = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW * (folder != top))
    except (FileNotFoundError, NotADirectoryError) as error:
        if folder != top:
            raise written_meanwhile(folder, "a folder is gone") from error
        raise NotFoundError("no such store", do="Check the path.", source=folder) from error
    except OSError as error:
        raise _unlisted(folder, error) from error
    try:
        yield opened
    finally:
        os.close(opened)


def _scan(opened: int, folder: str) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(opened) as entries:
            return sorted(entries, key=_name_of)
    except OSError as error:
        raise _unlisted(folder, error) from error


def _unlisted(folder: str, error: OSError) -> StorageError:
    return StorageError(
        "a store cannot be listed",
        do="Check its permissions.",
        path=folder,
        cause=error.strerror,
    )


_name_of = attrgetter("name")
_path_of = itemgetter("path")


def _is_folder(entry: os.DirEntry[str]) -> bool:
    return entry.is_dir(follow_symlinks=False)


def _page(names: list[str], statuses: list[os.stat_result], top: str) -> StoreObjects:
    count = len(names)
    modes = np.fromiter(map(attrgetter("st_mode"), statuses), np.uint32, count)
    if len(links := np.flatnonzero(modes & _FORMAT == stat.S_IFLNK)):
        _refuse_link(os.path.join(top, names[int(links[0])]))
    times = np.fromiter(map(attrgetter("st_mtime_ns"), statuses), np.int64, count)
    if int(times.max(initial=0)) >= (END_SECOND - 1) * _SECOND:
        raise StorageError(
            "the modification time of an object cannot be stored: it is of 2106 or later",
            do="Set it to now with touch.",
            object=names[int(np.argmax(times))],
        )
    try:
        keys = Strings.of(names)
    except UnicodeEncodeError:
        for name in names:
            url_of_absolute(f"/{name}")  # names the one that is not UTF-8
        raise
    return StoreObjects(
        keys=keys,
        sizes=np.fromiter(map(attrgetter("st_size"), statuses), np.int64, count),
        etags=Strings.empty(count),
        times=np.maximum(times, 1),
    )


def _refuse_link(path: str) -> Never:
    raise UnsupportedError(
        "a store that holds symbolic links",
        do="Copy it with the files that they lead to: cp -rL.",
        file=path,
    )


# -- buckets ---------------------------------------------------------------------------------------


def _list_bucket(
    bucket: Bucket, top: str, below: Sequence[str] | None = None
) -> Iterator[StoreObjects]:
    """List the long branches of a store at once: a listing is a chain of requests."""

    def begin(part: StoreObjects | Names) -> StoreObjects | Future[list[StoreObjects | Names]]:
        if isinstance(part, StoreObjects):
            return part
        return HOSTS.submit(bucket.url, carrying(partial(_begin, bucket, part, top)))

    folders = [top] if below is None else [f"{top}/{each}".strip("/") for each in below]
    count, waiting = 0, deque(begin(Names(folder)) for folder in folders)
    while waiting:
        part = waiting.popleft()
        if isinstance(part, StoreObjects):
            count += len(part)
            yield part
        else:
            waiting.extendleft(reversed([*map(begin, part.result())]))
    if below is None and not count:
        url = bucket.address._replace(key=top).url
        raise NotFoundError("no such store", do="Check the URL.", source=url)


def _begin(bucket: Bucket, part: Names, top: str) -> list[StoreObjects | Names]:
    """Return the first objects of a part and its other parts, or those in its folders."""
    begin, is_all = _flat(bucket, part, top, most=_FEW)
    if is_all:
        return [begin]
    may_divide = bucket.provider in _IN_ORDER
    if part.after or (may_divide and _is_flat(begin, part.folder, top)):
        last = f"{top}/{begin.keys[len(begin) - 1]}".lstrip("/")
        return [begin, *part.divide(last)]
    found, branches = list[StoreObjects | Names](), [part.folder]
    while len(branches) == 1:  # below the only one is as much
        folder = branches[0]
        if may_divide and _is_flat(begin, folder, top):
            return [*found, Names(folder)]
        own, branches = _level(bucket, folder, top)
        found.append(own)
    names = {name.partition("/")[0] for name in _names(begin, folder, top)}
    if len(branches) > _MOST and len(begin) < _PAGE_OF_BUCKET * len(names):
        # fewer requests than one for each branch
        return [*found[:-1], _flat(bucket, Names(folder), top)[0]]
    return [*found, *map(Names, branches)]


def _level(bucket: Bucket, folder: str, top: str) -> tuple[StoreObjects, list[str]]:
    """Return the objects in a folder, and the folders in it by their paths in the bucket."""
    level = on_store(
        bucket,
        bucket.address._replace(key=folder).url,
        lambda store: obstore().list_with_delimiter(store, prefix=folder or None),
    )
    own = _columns(bucket, sorted(level["objects"], key=_path_of), top)
    return own, sorted(each.rstrip("/") for each in level["common_prefixes"])


def _names(objects: StoreObjects, folder: str, top: str) -> list[str]:
    """Return the names below a folder that some objects have."""
    below = f"{folder}/".removeprefix(f"{top}/" if top else "") if folder else ""
    return [key[len(below) :] for key in objects.keys if key.startswith(below)]


def _is_flat(objects: StoreObjects, folder: str, top: str) -> bool:
    """Say whether most of the first objects below a folder lie in it, sorted by name."""
    names = _names(objects, folder, top)
    return 2 * sum("/" not in name for name in names) > len(names) and names == sorted(names)


def _flat(
    bucket: Bucket, part: Names, top: str, *, most: int | None = None
) -> tuple[StoreObjects, bool]:
    """Return the first objects of a part, ``most`` or a few more, and whether all are.

    Raises:
        StorageError: A server lists names out of order, and only some are wanted.
    """
    folder, url = part.folder, bucket.address._replace(key=part.folder).url

    def read(store: Any) -> tuple[StoreObjects, bool]:
        pages, count, last = [], 0, part.after
        for found in obstore().list(
            store, prefix=folder or None, offset=part.after or None, chunk_size=_PAGE_OF_BUCKET
        ):
            page = found
            if part.after:
                paths = [*map(_path_of, page)]
                if not all(map(lt, [last, *paths], paths)):
                    raise _disordered(url)
                last = paths[-1]
                page = page[: bisect_right(paths, part.until)] if part.until else page
            pages.append(_columns(bucket, page, top))
            count += len(page)
            if len(page) < len(found):
                break
            if most is not None and count >= most:
                return StoreObjects.join(pages), False
        return StoreObjects.join(pages), True

    return on_store(bucket, url, read)


def _disordered(url: str) -> StorageError:
    return StorageError(
        "a server does not list the objects of a folder in the order of their names",
        do="Copy the store to a server that does, or to local disk.",
        source=url,
    )


def _columns(bucket: Bucket, page: Sequence[Mapping[str, Any]], top: str) -> StoreObjects:
    count, cut = len(page), len(f"{top}/") if top else 0
    keys = [each["path"][cut:] for each in page]
    tags = [each["e_tag"] or "" for each in page]
    etags = Strings.of(["" if is_weak(tag) else tag for tag in tags])
    seconds = map(datetime.timestamp, map(itemgetter("last_modified"), page))
    times = np.fromiter(seconds, np.float64, count).astype(np.int64) * _SECOND
    unknown = (times == 0) & (etags.lengths == 0)
    if unknown.any():
        raise ScanError(
            "the server sends neither a strong etag nor a modification time, so changes of the "
            "store would go unnoticed",
            do="Copy it to a server that does, or to local disk.",
            file=bucket.address._replace(key=f"{top}/{keys[int(np.argmax(unknown))]}").url,
        )
    return StoreObjects(
        keys=Strings.of(keys),
        sizes=np.fromiter(map(itemgetter("size"), page), np.int64, count),
        etags=etags,
        times=times,
    )
