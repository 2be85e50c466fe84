"""Implement the zarr store over a session: reads, writes, deletes, and virtual references."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING, ClassVar

from zarr.core.buffer import Buffer

from icevirt.access.store import keys
from icevirt.access.store.keys import ChunkKey, parse
from icevirt.access.store.session_store import SessionStore
from icevirt.errors import InvalidInputError
from icevirt.model.snapshot import ArrayNode

if TYPE_CHECKING:  # readers share this module
    from numpy.typing import ArrayLike

    from icevirt.access.store.writing import Writer
    from icevirt.access.virtual_refs import ChecksumLike, VirtualChunkSpec
    from icevirt.model.chunks import ChunkTable


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
        from icevirt.access.store.writing import Writer

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
