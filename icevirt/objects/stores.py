"""Open a Zarr store as one source: local folders, and buckets.

A store is known by its first metadata document, which stands for it in lists of files. Its checksum
is the digest of a listing in pages: no object of it is asked for itself.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cached_property, partial
from typing import Any
from urllib.parse import quote, unquote

import numpy as np
from numpy.typing import NDArray

from icevirt.archive.sources import STORES, SourceFile
from icevirt.archive.store_objects import ListingDigest, StoreObjects
from icevirt.connect.urls import SAFE, Address, local_path, url_of_absolute
from icevirt.errors import (
    NotFoundError,
)
from icevirt.model.chunks import ChunkTable, Locations
from icevirt.model.strings import Strings
from icevirt.objects.answers import change
from icevirt.objects.source import LocalSource, OpenedSource, RemoteSource
from icevirt.objects.source_access import carrying, in_force
from icevirt.objects.store_listings import list_folder, list_pages, list_store, written_meanwhile
from icevirt.objects.web_connections import HOSTS

_PAGE = 1 << 14  # objects that are made columns together
_KEPT = 4 << 20  # objects of a listing that waits for a scan: half a gigabyte
_AHEAD = 64 << 20  # bytes of small arrays that are read at once
_SECOND = 1_000_000_000
_DOCUMENT = 1 << 20  # bytes that are read at once
_QUICKLY = os.O_RDONLY | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NONBLOCK", 0)  # of a pipe
_CHUNK = re.compile(r"c|(?:c\.)?[0-9]+(?:\.[0-9]+)*")
_CHUNK_OBJECT = re.compile("/chunks/[0-9A-HJKMNP-TV-Z]{20}$")
_ODD = re.compile(rb"[^A-Za-z0-9._/~-]")  # in a key: perhaps it is spelled otherwise in a URL


def folder_of(url: str) -> str:
    """Return the folder of an object, with a slash."""
    return url.rpartition("/")[0] + "/"


def store_file(url: str) -> SourceFile:
    """Return a store as a file. Raises as `list_store` does."""
    digest, pages = ListingDigest(), list[StoreObjects]()
    for page in list_pages(url):
        digest.add(page)
        if digest.count <= _KEPT:
            pages.append(page)
        else:
            pages.clear()
    file = digest.describe(url)
    _latest[:] = [(file, StoreObjects.join(pages))] if digest.count <= _KEPT else []
    return file


_latest: list[tuple[SourceFile, StoreObjects]] = []
"""The last listing, if not long; a scan in the same process takes it over if it was made for it."""


class StoreSource(OpenedSource):
    """A store, opened: its objects as one listing found them. Bytes are those of its document.

    Raises:
        NotFoundError: There is none.
        StorageError: It cannot be read.
        UnsupportedError: It cannot be listed.
    """

    def __init__(self, document: OpenedSource) -> None:
        self._document = document
        self.url = document.file.url

    def expect(self, listed: SourceFile) -> None:
        """Take over the listing that made this file, where this process has it."""
        mine = [found for file, found in _latest if file == listed]
        if mine:
            _latest.clear()
            vars(self)["objects"] = mine[0]

    def share(self, listed: SourceFile) -> None:
        """Take the store for what was listed: a share of it is scanned, and all is not listed.

        Before a build commits, the whole is compared with ``listed`` again.
        """
        vars(self)["file"] = listed

    def hold(self, objects: StoreObjects) -> None:
        """Take these for all objects."""
        vars(self)["objects"] = objects

    def list_folder(self, folder: str) -> tuple[StoreObjects, list[str]]:
        """Return the objects in a folder, and the paths of the folders in it."""
        return list_folder(self.url, folder)

    def list_below(self, folders: Sequence[str]) -> StoreObjects:
        """Return the objects below some folders, which need not be there."""
        return list_store(self.url, folders)

    def find_objects(self, keys: Sequence[str]) -> StoreObjects:
        """Return the named objects that exist; a server is asked for all of them at once."""
        folder = folder_of(self.url)
        works = [partial(_look, folder + quote(key, safe=SAFE)) for key in keys]
        if self.local_path is not None:
            found = [work() for work in works]
        else:
            host = "/".join(self.url.split("/")[:3])
            found = [each.result() for each in [HOSTS.submit(host, carrying(w)) for w in works]]
            self.requests += len(works)
        there = [(key, file) for key, file in zip(keys, found, strict=True) if file is not None]
        return StoreObjects(
            keys=Strings.of([key for key, _ in there]),
            sizes=np.array([file.size for _, file in there], np.int64),
            etags=Strings.of([file.etag for _, file in there]),
            times=np.array([file.last_modified for _, file in there], np.int64),
        )

    @cached_property
    def objects(self) -> StoreObjects:
        """All objects of the store."""
        return list_store(self.url)

    @cached_property
    def file(self) -> SourceFile:  # type: ignore[override]  # found when it is asked for
        """The store as a file."""
        return self.objects.describe(self.url)

    @property
    def document(self) -> str:
        """The name of the document that stands for it."""
        return self.url.rpartition("/")[2]

    @property
    def local_path(self) -> str | None:
        """The path of the document, None on a server."""
        return self._document.local_path

    def read(self, offset: int, length: int) -> bytes:
        """Return bytes of the document."""
        return self._document.read(offset, length)

    def read_objects(self, rows: Sequence[int]) -> list[bytes]:
        """Return the bytes of some objects, those of servers read side by side.

        Raises:
            StaleReferenceError: One changed since it was listed.
            StorageError: It cannot be read.
        """
        if self.local_path is not None:
            folder = os.path.dirname(self.local_path)
            return [self._read_local(f"{folder}/{self.objects.keys[row]}", row) for row in rows]
        urls = self.locations(np.array(rows, np.int64)).url
        works = [
            partial(_read, url, self._listed(row, url)) for url, row in zip(urls, rows, strict=True)
        ]
        host = "/".join(self.url.split("/")[:3])
        waiting = [HOSTS.submit(host, carrying(work)) for work in works]
        self.requests += len(works)
        return [each.result() for each in waiting]

    def read_url(self, url: str, offset: int, length: int) -> bytes:
        """Return bytes of an object. Raises as `read_objects` does."""
        key = unquote(url.removeprefix(folder_of(self.url)))
        held, raw = self.objects.keys, key.encode()
        rows = np.flatnonzero(held.lengths == len(raw))
        rows = rows[held.begin_with(raw, rows)]
        if not len(rows):
            raise NotFoundError("no such object in the store", do="Scan it again.", file=url)
        return _read(url, self._listed(int(rows[0]), url), offset, length)

    def open_zarr(self) -> Any:
        """Return the store as zarr-python reads it, to compare values."""
        from zarr.storage import LocalStore, ObjectStore, StorePath

        if self.local_path is not None:
            return LocalStore(os.path.dirname(self.local_path), read_only=True)
        bucket = in_force().bucket(self.url)
        store = ObjectStore(bucket.store(), read_only=True)
        return StorePath(store, Address.parse(self.url).key.rpartition("/")[0])

    def chunks(self, rows: NDArray[np.int64]) -> StoreChunks:
        """Return what reads the chunks of an array."""
        return StoreChunks(self, rows)

    def _read_local(self, path: str, row: int) -> bytes:
        """Return the bytes of a file; as `_read` does where it is not the one that was listed."""
        size, time = int(self.objects.sizes[row]), int(self.objects.times[row])
        with suppress(OSError):
            descriptor = os.open(path, _QUICKLY)
            try:
                status = os.fstat(descriptor)
                if stat.S_ISREG(status.st_mode) and status.st_size == size <= _DOCUMENT:
                    body = os.read(descriptor, size)
                    if len(body) == size and max(status.st_mtime_ns, 1) == time:
                        return body
            finally:
                os.close(descriptor)
        url = url_of_absolute(path)
        return _read(url, self._listed(row, url))

    def _listed(self, row: int, url: str) -> SourceFile:
        held = self.objects
        return SourceFile(
            url=url,
            size=int(held.sizes[row]),
            etag=held.etags[row],
            last_modified=int(held.times[row]),
        )

    def locations(self, rows: NDArray[np.integer]) -> Locations:
        """Return some objects as locations of references."""
        held = self.objects
        seconds = -(-held.times[rows] // _SECOND)  # rounded up, as those of files
        return Locations(
            url=_urls_of(folder_of(self.url), held.keys[rows.astype(np.int64)]),
            etag=held.etags[rows.astype(np.int64)],
            last_modified=seconds.astype(np.uint32),
        )

    def references(self, index: NDArray[np.int64], rows: NDArray[np.integer]) -> ChunkTable:
        """Return references to whole objects, in their order."""
        return ChunkTable.in_order(
            index=index,
            offset=np.zeros(len(rows), np.int64),
            length=self.objects.sizes[rows],
            locations=self.locations(rows) if len(rows) else Locations.none(),
            source=np.arange(len(rows)),
        )

    def check_unchanged(self) -> None:
        """Compare the document only: a build lists the store once more before its commit.

        Raises:
            StaleReferenceError: It changed.
        """
        self._document.check_unchanged()

    def close(self) -> None:
        """Close the document."""
        self._document.close()


class StoreChunks:
    """Reads the chunks of one array; those of a small one at once."""

    def __init__(self, source: StoreSource, rows: NDArray[np.int64]) -> None:
        self._source, self._rows = source, rows
        self._held: dict[str, bytes] | None = None

    def readable(self, locations: Locations) -> bool:
        """Say that all can be read."""
        return len(locations) == len(self._rows)

    def read(self, url: str, offset: int, length: int) -> bytes:
        """Return bytes of a chunk."""
        if self._held is None:
            self._held = {}
            if int(self._source.objects.sizes[self._rows].sum()) <= _AHEAD:
                urls = self._source.locations(self._rows).url
                bodies = self._source.read_objects(self._rows.tolist())
                self._held = dict(zip(urls, bodies, strict=True))
        held = self._held.get(url)
        if held is None:
            return self._source.read_url(url, offset, length)
        return held[offset : offset + length]


def may_be_chunk(url: str) -> bool:
    """Say whether the name of an object is that of a chunk of a Zarr store."""
    return _CHUNK.fullmatch(url.rpartition("/")[2]) is not None


def is_chunk_object(url: str) -> bool:
    """Say whether a URL is that of a native chunk of a repository of Icechunk."""
    return _CHUNK_OBJECT.search(url) is not None


def document_of_chunk(url: str, may_look: Callable[[str], bool]) -> str | None:
    """Return the document of the store that holds an object, looking upwards; None for none.

    Args:
        url: Of the object.
        may_look: Says whether an object may be looked for.
    """
    found = None
    folder = folder_of(url)
    while may_look(folder + STORES[0]):
        document = document_in(folder)
        if found is not None and document is None:
            break
        found = document or found
        folder = folder_of(folder.rstrip("/"))
    return found


def document_in(folder: str) -> str | None:
    """Return the document that stands for the store in a folder, None where it is none."""
    folder = folder.rstrip("/") + "/"
    for name in STORES:
        if folder.startswith("file://"):
            if os.path.isfile(local_path(folder + name)):
                return folder + name
            continue
        try:
            RemoteSource(folder + name).close()
        except NotFoundError:
            continue
        return folder + name
    return None


def _read(url: str, listed: SourceFile, offset: int = 0, length: int = -1) -> bytes:
    remote = not url.startswith("file://")
    with RemoteSource(url) if remote else LocalSource(local_path(url)) as source:
        if (how := change(source.file, listed)) is not None:
            raise written_meanwhile(url, how)
        return source.read(offset, listed.size if length < 0 else length)


def _look(url: str) -> SourceFile | None:
    try:
        remote = not url.startswith("file://")
        with RemoteSource(url) if remote else LocalSource(local_path(url)) as source:
            return source.file
    except NotFoundError:
        return None


def _urls_of(folder: str, keys: Strings) -> Strings:
    prefix = np.frombuffer(folder.encode(), np.uint8)
    pages = []
    for low in range(0, len(keys), _PAGE):
        page = keys[np.arange(low, min(low + _PAGE, len(keys)))]
        raw = page.data.tobytes()
        if _ODD.search(raw):  # seldom
            pages.append(Strings.of([folder + quote(key, safe=SAFE) for key in page]))
            continue
        size = len(prefix)
        starts = page.starts + size * np.arange(len(page) + 1)
        data = np.empty(int(starts[-1]), np.uint8)
        is_prefix = np.zeros(len(data), np.bool_)
        is_prefix[starts[:-1, None] + np.arange(size)] = True
        data[is_prefix] = np.tile(prefix, len(page))
        data[~is_prefix] = page.data
        pages.append(Strings(data, starts))
    return Strings.join(pages) if pages else Strings.empty(0)
