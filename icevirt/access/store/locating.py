"""Resolve references to ranges of objects, and check read access once per file.

It also counts which ranges can be verified and which cannot.
"""

from __future__ import annotations

import posixpath
from functools import lru_cache
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from icevirt.access.store.ranges import InMemory, InObject, InRemote, InSource, Range, Source
from icevirt.access.store.resolve import FetchPlan
from icevirt.connect import urls
from icevirt.ids import ObjectId12
from icevirt.model.chunks import ChunkTable, ChunkType, Locations
from icevirt.objects import remote
from icevirt.objects.answers import Checksum
from icevirt.objects.authorize import Authorizer, LocalGrant
from icevirt.objects.staleness import Staleness
from icevirt.repo import layout
from icevirt.repo.session import Session
from icevirt.storage.local import LocalStorage

_FILES = 4096  # whose grants are remembered

type File = Source | remote.RemoteObject


class _Columns(Protocol):
    """What a chunk table and the answer to a lookup have in common."""

    @property
    def locations(self) -> Locations: ...
    @property
    def chunk_ids(self) -> NDArray[np.uint8]: ...
    @property
    def inline(self) -> NDArray[np.uint8]: ...


class ReferenceLocator:
    """Says where the bytes of references are, for one session. Safe in threads.

    Raises:
        UnauthorizedError: From every method: a location is none that this session may read.
    """

    def __init__(self, session: Session, staleness: Staleness) -> None:
        self._assets = session.assets
        self._staleness = staleness
        self._authorizer = Authorizer(session.config.virtual_chunk_containers, session.credentials)
        storage = session.assets.storage
        is_local = isinstance(storage, LocalStorage)
        self._root = urls.local_path(storage.url) if is_local else None
        self._source = lru_cache(_FILES)(self._granted)

    def at(self, table: ChunkTable, row: int, start: int, end: int) -> Range:
        """Return the range of the bytes from ``start`` to ``end`` of one chunk."""
        source = int(table.source[row])
        offset = int(table.offset[row]) + start
        kind = int(table.kind[row])
        known = self._file(table.locations, source) if kind == ChunkType.virtual else None
        return self._range(table, kind, known or source, offset, end - start)

    def fill(self, found: list[Range | None], planned: FetchPlan) -> None:
        """Put the ranges of a plan where their requests are."""
        held = planned.found
        files: dict[int, File] = {}
        columns = (planned.rows, planned.kind, planned.source, planned.offset, planned.length)
        for row, kind, source, offset, length in zip(*(c.tolist() for c in columns), strict=True):
            if kind == ChunkType.virtual and source not in files:
                files[source] = self._file(held.locations, source)
            known = files[source] if kind == ChunkType.virtual else source
            found[row] = self._range(held, kind, known, offset, length)

    def _range(
        self, columns: _Columns, kind: int, source: File | int, offset: int, length: int
    ) -> Range:
        if not isinstance(source, int):
            self._staleness.count(is_verifiable=source.checksum.is_verifiable)
            if isinstance(source, Source):
                return InSource(source, offset, length)
            return InRemote(remote.RemoteRange(source, offset, length))
        if kind == ChunkType.native:
            key = ObjectId12(columns.chunk_ids[source].tobytes())
            return InObject(self._assets, key, offset, length, self._path(key))
        return InMemory(columns.inline[offset : offset + length].data)

    def _path(self, key: ObjectId12) -> str | None:
        return None if self._root is None else posixpath.join(self._root, layout.chunk(key))

    def _file(self, places: Locations, row: int) -> File:
        return self._source(places.url[row], places.etag[row], int(places.last_modified[row]))

    def _granted(self, url: str, etag: str, last_modified: int) -> File:
        grant, checksum = self._authorizer.grant(url), Checksum(etag, last_modified)
        if isinstance(grant, LocalGrant):
            return Source(grant, checksum, self._staleness)
        return remote.object_of(grant, checksum, self._staleness.found)
