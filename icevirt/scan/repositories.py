"""Open a repository of Icechunk as a source: its nodes, and references to where the bytes lie.

References of references become references to the files themselves, with the checksums that the
repository recorded. Native chunks become references to its chunk objects. The object ``repo``
stands for the repository: it is replaced by every commit.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from icevirt.archive.sources import SourceFile
from icevirt.archive.store_objects import StoreObjects
from icevirt.connect.urls import Address, local_path
from icevirt.errors import NotFoundError, ScanError, StaleReferenceError
from icevirt.model.chunks import ChunkTable, ChunkType, Locations
from icevirt.model.strings import Strings
from icevirt.objects.answers import change
from icevirt.objects.authorize import Authorizer
from icevirt.objects.source_access import in_force
from icevirt.objects.store_listings import list_store
from icevirt.remedy_notation import write_code, write_remedy
from icevirt.scan.contract import ByteSource
from icevirt.scan.elsewhere import Elsewhere
from icevirt.scan.versions import arguments_of

if TYPE_CHECKING:
    from icevirt.repo.session import Session
    from icevirt.storage.protocol import Storage

MAGIC = "ICE🧊CHUNK".encode()
_NAMED = b"vcc://"  # with which a location begins that names a container
_CHUNKS = "chunks"
_LETTERS = 20  # of the name of a chunk object
_SECOND = 1_000_000_000


class SourceRepository:
    """One version of a repository.

    Args:
        source: The object ``repo``, opened.
        version: ``branch=NAME``, ``tag=NAME`` or ``snapshot_id=ID``.
        elsewhere: What may be referred to, and reads it.

    Raises:
        IcevirtError: It is damaged, or has no such version.
    """

    def __init__(self, source: ByteSource, version: str, elsewhere: Elsewhere) -> None:
        from icevirt.repo.repository import Repository

        self._source, self._elsewhere = source, elsewhere
        repository = Repository.open(_storage_of(source))
        self._session: Session = repository.readonly_session(**arguments_of(version))
        containers = self._session.config.virtual_chunk_containers
        self._prefixes = [str(each.url_prefix) for each in containers.values()]
        self._absolute = Authorizer(containers, ()).absolute
        self._checksums: dict[str, SourceFile] = {}

    @cached_property
    def documents(self) -> Mapping[str, str]:
        """The metadata of all nodes by their keys, like ``group/zarr.json``."""
        return {
            f"{node.path}/zarr.json".lstrip("/"): node.user_data.decode()
            for node in self._session.snapshot.nodes
        }

    def references(self, path: str) -> ChunkTable:
        """Return the references of an array: inline, or into files and chunk objects.

        Raises:
            ScanError: A native chunk is not there.
            UnsupportedError: A location may not be referred to.
        """
        table = self._session.array_table(path)
        found = self._resolve(table.locations)
        self._elsewhere.refuse_outside(found.url, self._prefixes)
        native = table.kind == ChunkType.native
        if native.any():
            kind, source = table.kind.copy(), table.source.copy()
            source[native] += len(found)
            kind[native] = ChunkType.virtual
            found += self._chunk_objects(table)
            nothing = np.zeros((0, 12), np.uint8)
            table = replace(table, kind=kind, source=source, chunk_ids=nothing)
        return replace(table, locations=found)

    def count_native(self, path: str) -> int:
        """Return how many chunks of an array are objects of the repository."""
        return self._session.array_table(path).count(ChunkType.native)

    def _resolve(self, places: Locations) -> Locations:
        """Return locations with the names of containers resolved."""
        if not places.url.begin_with(_NAMED).any():
            return places
        return replace(places, url=Strings.of([self._absolute(url) for url in places.url]))

    def _chunk_objects(self, table: ChunkTable) -> Locations:
        """Return the native chunks of a table as locations, with the checksums of a listing."""
        held = self._listed
        ids = self._session.assets.chunk_urls(table.chunk_ids)
        there = np.flatnonzero(held.keys.lengths == _LETTERS)
        known = _names(held.keys[there])
        order = np.argsort(known)
        wanted = _names(ids)
        at = np.searchsorted(known, wanted, sorter=order)
        lost = at == len(known)
        at[lost] = 0
        rows = there[order[at]] if len(known) else at
        lost |= (known[order[at]] != wanted) if len(known) else True
        if lost.any():
            raise ScanError(
                "a chunk that a repository refers to is not there",
                do=write_remedy(
                    "See what is lost: ",
                    write_code("icevirt.check(repo)", "icevirt check REPO"),
                    ", or leave the variable out with drop_variables.",
                ),
                file=self._source.file.url,
                chunk=ids[int(np.argmax(lost))],
            )
        seconds = -(-held.times[rows] // _SECOND)
        folder = self._source.file.url.rpartition("/")[0]
        prefix = np.frombuffer(f"{folder}/{_CHUNKS}/".encode(), np.uint8)
        letters = held.keys[rows].data.reshape(len(rows), -1)
        urls = np.hstack([np.broadcast_to(prefix, (len(rows), len(prefix))), letters])
        starts = np.arange(len(rows) + 1, dtype=np.int64) * urls.shape[1]
        return Locations(
            url=Strings(urls.ravel(), starts),
            etag=held.etags[rows],
            last_modified=seconds.astype(np.uint32),
        )

    @cached_property
    def _listed(self) -> StoreObjects:
        folder = self._source.file.url.rpartition("/")[0]
        return list_store(f"{folder}/{_CHUNKS}/x")

    def reader(self, table: ChunkTable) -> RepositoryChunks:
        """Return what reads the chunks of a table, if they are what was recorded."""
        return RepositoryChunks(table.locations, self._elsewhere)


class RepositoryChunks:
    """Reads chunks of files that a repository refers to, if these did not change."""

    def __init__(self, places: Locations, elsewhere: Elsewhere) -> None:
        self._places, self._elsewhere = places, elsewhere
        self._known: dict[str, SourceFile] | None = None

    def readable(self, locations: Locations) -> bool:  # noqa: ARG002
        """Say that all can be read."""
        return True

    def read(self, url: str, offset: int, length: int) -> bytes:
        """Return bytes of a file.

        Raises:
            NotFoundError: There is no such file.
            StaleReferenceError: It changed since the repository referred to it.
        """
        if self._known is None:
            held = self._places
            self._known = {
                name: SourceFile(url=name, size=-1, etag=etag, last_modified=int(time) * _SECOND)
                for name, etag, time in zip(
                    held.url, held.etag, held.last_modified.tolist(), strict=True
                )
            }
        then = self._known[url]
        source = self._elsewhere.source(local_path(url) if url.startswith("file:") else url)
        if source is None:
            raise NotFoundError(
                "a file that a repository refers to is gone",
                do="Restore it, or update that repository.",
                file=url,
            )
        with source:
            is_checked = bool(then.etag or then.last_modified)
            if is_checked and (how := change(source.file, then)) is not None:
                raise StaleReferenceError(
                    "a file changed since a repository refers to it",
                    do="Update that repository first: icevirt update REPO.",
                    file=url,
                    cause=how,
                )
            return source.read(offset, length)


def _storage_of(source: ByteSource) -> Storage:
    if source.local_path is not None:
        from icevirt.storage.local import LocalStorage

        return LocalStorage(os.path.dirname(source.local_path))
    from icevirt.storage.object_store import ObjectStorage

    url = source.file.url
    folder = Address.parse(url).key.rpartition("/")[0]
    return ObjectStorage(in_force().bucket(url), folder)


def _names(texts: Strings) -> NDArray[np.bytes_]:
    """Return the ids at the ends of texts, which are all of one length."""
    if not len(texts):
        return np.zeros(0, f"S{_LETTERS}")
    rows = texts.data.reshape(len(texts), -1)[:, -_LETTERS:]
    return np.ascontiguousarray(rows).view(f"S{_LETTERS}")[:, 0]
