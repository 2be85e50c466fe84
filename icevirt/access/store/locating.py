"""Resolve references to ranges of objects, and check read access once per file.

Ranges read themselves: ``now`` returns the bytes if they need no waiting, else None; ``wait``
returns them or raises. Reads are counted by whether they can be verified.
"""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cached_property, lru_cache, partial
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from zarr.abc.store import ByteRequest

from icevirt.access.store.keys import all_bounds
from icevirt.connect import urls
from icevirt.ids import ObjectId12
from icevirt.model.chunks import ChunkTable, ChunkType, Locations
from icevirt.objects import fetch
from icevirt.objects.answers import Body, Checksum, Staleness, refuse
from icevirt.repo import layout
from icevirt.repo.assets import Assets
from icevirt.repo.session import Session
from icevirt.storage.local import LocalStorage

if TYPE_CHECKING:  # what speaks to servers is imported for the first range of one
    from typing_extensions import TypeIs

    from icevirt.errors import StorageError
    from icevirt.objects.authorize import Authorizer, LocalGrant
    from icevirt.objects.chunk_cache import CachedObject, ChunkCache, FreshChunks
    from icevirt.objects.remote import RemoteObject, RemoteRange, Spans
    from icevirt.repo.reader import FoundChunks

_FILES = 4096  # whose grants are remembered


type Range = InMemory | InObject | InSource | RemoteRange
"""Some bytes of some object; ``length`` of them have to be copied."""

type File = Source | RemoteObject


class ReferenceLocator:
    """Says where the bytes of references are, for one session. Safe in threads.

    A cache holds chunks as they were scanned. Where a changed file is read as it is, none is used.

    Raises:
        UnauthorizedError: From every method: a location is none that this session may read.
    """

    def __init__(
        self, session: Session, staleness: Staleness, cache: ChunkCache | None = None
    ) -> None:
        self._assets = session.assets
        self._staleness = staleness
        self.cache = cache if staleness.on_stale == "raise" else None
        self._access = session.virtual_chunk_containers, session.credentials

    @cached_property
    def _root(self) -> str | None:
        storage = self._assets.storage
        is_local = isinstance(storage, LocalStorage) and not self._assets.compares
        return urls.local_path(storage.url) if is_local else None

    @property
    def has_local_storage(self) -> bool:
        """Whether native chunks are files of this machine."""
        return self._root is not None

    @cached_property
    def _source(self) -> Callable[[str, str, int], File]:
        return lru_cache(_FILES)(self._open)

    @cached_property
    def _authorizer(self) -> Authorizer:
        from icevirt.objects.authorize import Authorizer

        return Authorizer(*self._access)

    def at(self, table: ChunkTable, row: int, start: int, end: int) -> Range:
        """Return the range of the bytes from ``start`` to ``end`` of one chunk."""
        source = int(table.source[row])
        offset = int(table.offset[row]) + start
        kind = int(table.kind[row])
        if kind != ChunkType.virtual:
            return self.range_of(table, kind, source, offset, end - start)
        file = self.file(table.locations, source)
        self.count(file)
        return self.range_of(table, kind, file, offset, end - start)

    def fill(
        self,
        ranges: list[Range | None],
        found: FoundChunks,
        rows: Sequence[int],
        byte_ranges: Sequence[ByteRequest | None],
    ) -> None:
        """Put the ranges of references, cut to the bytes requested, where their requests are."""
        start, end = all_bounds(byte_ranges, found.length)
        files: dict[int, File] = {}
        columns = (found.kind, found.source, found.offset.astype(np.int64) + start, end - start)
        for row, kind, source, offset, length in zip(
            rows, *(column.tolist() for column in columns), strict=True
        ):
            if kind == ChunkType.uninitialized:
                continue
            known: File | int = source
            if kind == ChunkType.virtual:
                if source not in files:
                    files[source] = self.file(found.locations, source)
                known = files[source]
                self.count(known)
            ranges[row] = self.range_of(found, kind, known, offset, length)

    def range_of(
        self,
        columns: ChunkTable | FoundChunks,
        kind: int,
        source: File | int,
        offset: int,
        length: int,
        *,
        chunks: Spans = (),
        fresh: FreshChunks | None = None,
    ) -> Range:
        """Return bytes of a file, or of the native or inline chunk of a number.

        ``chunks`` are begin and end of those that a cache keeps by themselves; none: all together.
        Those that may be kept are put into ``fresh`` instead, if it is given.
        """
        if not isinstance(source, int):
            if isinstance(source, Source):
                return InSource(source, offset, length)
            from icevirt.objects.remote import RemoteRange

            if fresh is not None and source.kept is not None:
                source = replace(source, kept=fresh)
            return RemoteRange(source, offset, length, chunks)
        if kind == ChunkType.native:
            key = ObjectId12(columns.chunk_ids[source].tobytes())
            path = None
            if self._root is not None:
                path = posixpath.join(self._root, self._assets.path(layout.CHUNKS, key))
            known = self.kept_of_chunk(key)
            kept = known if known is None or fresh is None else fresh
            return InObject(self._assets, key, offset, length, path, kept, chunks)
        return InMemory(columns.inline[offset : offset + length].data)

    def kept_of_chunk(self, key: ObjectId12) -> CachedObject | None:
        """Return what a cache holds of a native chunk, whose id no other bytes get."""
        storage = self._assets.storage
        server = getattr(storage, "server", "")  # of those that ask one
        return self.cache.of(server, storage.url, str(key)) if self.cache and server else None

    def file(self, places: Locations, row: int) -> File:
        """Return the file at a location, which may be read."""
        return self._source(places.url[row], places.etag[row], int(places.last_modified[row]))

    def count(self, file: File, chunks: int = 1) -> None:
        """Count chunks of a file that are read."""
        self._staleness.count(chunks, is_verifiable=file.checksum.is_verifiable)

    def expecting(self, file: File, chunks: int) -> File:
        """Return a file of which so many chunks are read at once.

        A change is refused without being counted, where it is an error: each chunk is read by
        itself then.
        """
        if chunks == 1:
            return file
        is_error = self._staleness.on_stale == "raise"
        on_stale = refuse if is_error else partial(self._staleness.treat, chunks=chunks)
        if isinstance(file, Source):
            return file._replace(on_stale=on_stale)
        return replace(file, on_stale=on_stale)

    def _open(self, url: str, etag: str, last_modified: int) -> File:
        from icevirt.objects.authorize import LocalGrant

        grant, checksum = self._authorizer.grant(url), Checksum(etag, last_modified)
        if isinstance(grant, LocalGrant):
            return Source(grant, checksum, self._staleness.treat)
        from icevirt.objects.remote import object_of

        return object_of(grant, checksum, self._staleness.treat, self.cache)


class InMemory(NamedTuple):
    """Metadata, and chunks that lie in a manifest."""

    body: Body
    length: int = 0

    def now(self) -> Body:
        """Return the bytes."""
        return self.body

    def wait(self) -> Body:
        """Return the bytes."""
        return self.body


class InObject(NamedTuple):
    """A range of a native chunk."""

    assets: Assets
    key: ObjectId12
    offset: int
    length: int
    path: str | None = None  # of the object's file, where the storage is a local directory
    kept: CachedObject | FreshChunks | None = None
    chunks: Spans = ()  # as in `RemoteRange`

    def now(self) -> Body | None:
        """Return the bytes if the kernel or a cache on disk has them."""
        if self.path is not None:
            return fetch.read_file_cached(self.path, offset=self.offset, length=self.length)
        return None if self.kept is None else self.kept.get(self.offset, self.length)

    def wait(self) -> Body:
        """Return the bytes."""
        if self.kept is not None and (found := self.now()) is not None:
            return found
        body = self.assets.chunk(self.key, offset=self.offset, length=self.length)
        if self.kept is not None:
            from icevirt.objects.remote import cut

            whole = (self.offset, self.offset + self.length)
            self.kept.put(cut(body, self.offset, self.chunks or (whole,)))
        return body


class Source(NamedTuple):
    """A local source file that may be read, as the scan found it."""

    grant: LocalGrant
    checksum: Checksum
    on_stale: Callable[[StorageError], None]


class InSource(NamedTuple):
    """A range of a local source file."""

    source: Source
    offset: int
    length: int

    def now(self) -> Body | None:
        """Return the bytes if the kernel has them, and they are those of the scan."""
        return fetch.read_cached(
            self.source.grant,
            offset=self.offset,
            length=self.length,
            checksum=self.source.checksum,
        )

    def wait(self) -> Body:
        """Return the bytes."""
        return fetch.read(
            self.source.grant,
            offset=self.offset,
            length=self.length,
            checksum=self.source.checksum,
            on_stale=self.source.on_stale,
        )


def is_away(one: Range | Exception | None) -> TypeIs[RemoteRange]:
    """Say whether a range is on a server, best fetched together with others."""
    return not (one is None or isinstance(one, Exception | InMemory | InObject | InSource))


def wait_for_all(ranges: Sequence[Range | None]) -> list[Body | None]:
    """Return the bytes of all ranges; what lies elsewhere is fetched together."""
    found = [None if one is None or is_away(one) else one.wait() for one in ranges]
    away = [(row, one) for row, one in enumerate(ranges) if is_away(one)]
    if not away:
        return found
    from icevirt.objects import remote

    bodies = remote.fetch_all([part for _, part in away])
    for (row, _), body in zip(away, bodies, strict=True):
        if isinstance(body, Exception):
            raise body
        found[row] = body
    return found
