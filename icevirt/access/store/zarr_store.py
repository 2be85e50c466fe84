"""Implement the zarr store over a session: reads, writes, deletes, and virtual references.

Chunks above the inline threshold are stored at once, outside the lock that guards the session, so
that threads wait for the disk in parallel; writes of the event loop that wait run in a thread.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray
from zarr.core.buffer import Buffer

from icevirt.access.store import keys
from icevirt.access.store.keys import METADATA, ChunkKey, MetadataKey, parse, parse_writable
from icevirt.access.store.reading import SessionReader
from icevirt.access.store.session_store import SessionStore
from icevirt.errors import InvalidInputError
from icevirt.model.chunks import ChunkTable
from icevirt.model.snapshot import ArrayNode
from icevirt.repo.session import Session
from icevirt.versioning import chunk_tables

if TYPE_CHECKING:  # readers share this module
    from icevirt.access.virtual_refs import ChecksumLike, VirtualChunkSpec


class IcevirtStore(SessionStore):
    """A zarr store over a session: its contents and changes as zarr v3 keys and values.

    Args:
        session: A session; the store is writable while the session is.
        read_only: Refuse changes even if the session is writable.
        on_stale: If a source file changed after the scan: ``raise`` an error, ``warn``
            once per file and read it as it is, or ``ignore`` the change. The `Staleness` of another
            store can be passed to share its counts.
    """

    supports_writes: ClassVar[bool] = True
    supports_deletes: ClassVar[bool] = True

    @cached_property
    def _writer(self) -> Writer:
        return Writer(self._session, self._reader)

    # -- writing -----------------------------------------------------------------------------

    def set_sync(self, key: str, value: Buffer) -> None:
        """Write a value: a zarr.json, or an encoded chunk.

        Raises:
            InvalidInputError: The key is not a zarr v3 key, or the value does not match it.
        """
        self._begin(value)
        self._writer.set(key, value.to_bytes())

    async def set(self, key: str, value: Buffer) -> None:
        """Write a value; chunks that become objects wait for the disk in a thread."""
        self._begin(value)
        body = value.to_bytes()
        if self._writer.is_quick(key, len(body)):
            self._writer.set(key, body)
        else:
            await asyncio.to_thread(self._writer.set, key, body)

    async def set_if_not_exists(self, key: str, value: Buffer) -> None:
        """Write a value unless there is one."""
        self._begin(value)
        self._writer.set_if_absent(key, value.to_bytes())

    def delete_sync(self, key: str) -> None:
        """Delete a value; a missing value is not an error, for any key."""
        self._check_writable()
        self._is_open = True
        if parse(key) is not None:
            self._writer.delete(key)

    async def delete(self, key: str) -> None:
        """Delete a value, as `delete_sync`."""
        self.delete_sync(key)

    async def delete_dir(self, prefix: str) -> None:
        """Delete a node and everything below it, or the chunks of an array below a folder."""
        self._check_writable()
        self._is_open = True
        folder = prefix.strip("/")
        self._writer.delete_node("/" + folder)
        key = parse(folder)
        if isinstance(key, ChunkKey) and isinstance(self._session.find(key.path), ArrayNode):
            array = self._session.array(key.path)
            index = self._reader.coordinates(array)
            below = keys.inside(array, index, f"{folder}/")
            self._writer.delete_chunks(array.path, index[below])

    async def clear(self) -> None:
        """Delete everything that the session sees."""
        self.sync_clear()

    def sync_clear(self) -> None:
        """Delete everything that the session sees."""
        self._check_writable()
        self._writer.delete_node("/")

    # -- virtual references ------------------------------------------------------------------

    def set_virtual_ref(
        self, key: str, location: str, *, offset: int, length: int, checksum: ChecksumLike = None
    ) -> None:
        """Point a chunk at ``length`` bytes at ``offset`` of another object.

        Raises:
            InvalidInputError: The key is not a chunk key, or no container covers the location.
        """
        named = parse(key)
        if not isinstance(named, ChunkKey):
            raise InvalidInputError("not a chunk key", do="Write it like 'array/c/0/1'.", key=key)
        self.set_virtual_refs_arr(
            named.path,
            (1,) * len(named.index),
            [location],
            [offset],
            [length],
            arr_offset=named.index,
            checksum=checksum,
        )

    def set_virtual_refs(self, array_path: str, chunks: Sequence[VirtualChunkSpec]) -> None:
        """Point chunks of an array at ranges of other objects. Raises as `set_virtual_ref`."""
        from icevirt.access.virtual_refs import table_of

        self._check_writable()
        self._refer(array_path, table_of(chunks, len(self._session.array(array_path).num_chunks)))

    def set_virtual_refs_arr(
        self,
        array_path: str,
        chunk_grid_shape: Sequence[int],
        locations: Sequence[str],
        offsets: ArrayLike,
        lengths: ArrayLike,
        *,
        codes: ArrayLike | None = None,
        arr_offset: Sequence[int] | None = None,
        checksum: ChecksumLike | Sequence[ChecksumLike] = None,
    ) -> None:
        """Point a box of chunks at ranges of other objects. Raises as `set_virtual_ref`.

        Args:
            array_path: The array.
            chunk_grid_shape: Chunks of the box along each dimension.
            locations: A URL for each chunk, in C order; empty ones are left out.
            codes: If given, ``locations`` are distinct, and codes hold the index of each chunk's
                location.
            offsets: Where each chunk begins, in bytes.
            lengths: Bytes of each chunk.
            arr_offset: The first chunk of the box; the first of the array by default.
            checksum: An etag, or the latest modification time; one for all objects, or
                one for each of ``locations``.
        """
        from icevirt.access.virtual_refs import table_of_grid

        self._check_writable()
        table = table_of_grid(
            chunk_grid_shape,
            locations,
            offsets,
            lengths,
            codes=codes,
            arr_offset=arr_offset,
            checksum=checksum,
        )
        self._refer(array_path, table)

    def _refer(self, array_path: str, table: ChunkTable) -> None:
        with self._session.lock:
            self._session.set_chunks(array_path, table)

    def _begin(self, value: Buffer) -> None:
        self._check_writable()
        self._is_open = True
        if not isinstance(value, Buffer):
            raise TypeError(f"the value must be a zarr Buffer, not {type(value).__name__}")


class Writer:
    """Changes one session. Safe in threads."""

    def __init__(self, session: Session, reader: SessionReader) -> None:
        self._session = session
        self._reader = reader
        self._lock = session.lock

    def is_quick(self, key: str, size: int) -> bool:
        """Say whether a value of this size stays in memory until the commit."""
        return key.endswith(METADATA) or self._is_inline(size)

    def set(self, key: str, value: bytes) -> None:
        """Write a value.

        Raises:
            InvalidInputError: The key is not a zarr v3 key, or the value does not match it.
            NodeNotFoundError: A chunk of an array that is not there.
        """
        match parse_writable(key):
            case MetadataKey(path=path):
                self._set_metadata(path, value)
            case ChunkKey(path=path, index=index):
                self._set_chunk(path, index, value)

    def set_if_absent(self, key: str, value: bytes) -> None:
        """Write a value unless there is one, which no other thread can add meanwhile."""
        with self._lock:
            if self._reader.size(key) is None:
                self.set(key, value)

    def delete(self, key: str) -> None:
        """Delete a chunk, or with its metadata a node and all below; absence is no error."""
        match parse_writable(key):
            case MetadataKey(path=path):
                self.delete_node(path)
            case ChunkKey(path=path, index=index):
                self.delete_chunks(path, _row(index))

    def delete_node(self, path: str) -> None:
        """Delete a node and everything below it; absence is no error."""
        with self._lock:
            self._session.delete(path)

    def delete_chunks(self, path: str, index: NDArray[np.integer]) -> None:
        """Make chunks of an array unwritten; those outside its grid were never written."""
        with self._lock:
            node = self._session.find(path)
            if isinstance(node, ArrayNode) and len(node.num_chunks) == index.shape[1]:
                inside = np.all(index < np.array(node.num_chunks, np.int64), axis=1)
                self._session.delete_chunks(path, index[inside])

    def _set_metadata(self, path: str, document: bytes) -> None:
        with self._lock:
            if self._session.find(path) is not None:
                self._session.set_metadata(path, document)
            elif (ndim := _ndim(document)) is not None:
                self._session.add_array(path, document, ChunkTable.empty(ndim))
            else:
                self._session.add_group(path, document)

    def _is_inline(self, size: int) -> bool:
        return size <= self._session.config.inline_threshold

    def _set_chunk(self, path: str, index: tuple[int, ...], encoded: bytes) -> None:
        if self._is_inline(len(encoded)):
            with self._lock:
                self._session.set_chunk(path, index, encoded)
            return
        from icevirt.repo.commits.change_set import check_grid

        check_grid(self._session.array(path), _row(index))
        key = self._session.assets.put_chunk(encoded)
        table = chunk_tables.native(_row(index), key, len(encoded))
        with self._lock:
            self._session.set_chunks(path, table)


def _ndim(document: bytes) -> int | None:
    """Return the number of dimensions of an array's document; None for any other document."""
    try:
        found = json.loads(document)
        return len(found["shape"]) if found["node_type"] == "array" else None
    except (ValueError, LookupError, TypeError):
        return None  # the session says what is wrong with it


def _row(index: tuple[int, ...]) -> NDArray[np.int64]:
    return np.array([index], np.int64).reshape(1, len(index))
