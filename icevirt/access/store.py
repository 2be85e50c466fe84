"""The zarr store over a session: thin synchronous and asynchronous shells around reader and writer.

Synchronous reads run where they are asked for; asynchronous ones are gathered. What waits for the
disk to write runs in a thread.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from typing import Any, ClassVar

from numpy.typing import ArrayLike
from zarr.abc.store import ByteRequest, Store
from zarr.core.buffer import Buffer, BufferPrototype, default_buffer_prototype

from icevirt.access import listing
from icevirt.access.gather import Gatherer
from icevirt.access.keys import ChunkKey, parse
from icevirt.access.reading import Reader
from icevirt.access.virtual_refs import (
    ChecksumLike,
    VirtualChunkSpec,
    table_of,
    table_of_grid,
)
from icevirt.access.writing import Writer
from icevirt.errors import InvalidInputError, ReadOnlyError
from icevirt.model.snapshot import ArrayNode
from icevirt.repo.session import Session


class IcevirtStore(Store):
    """What a session sees, and what it changes, as zarr v3 keys and values.

    Args:
        session: A session; the store is writable while the session is.
        read_only: Take no changes although the session would.
    """

    supports_writes: ClassVar[bool] = True
    supports_deletes: ClassVar[bool] = True
    supports_listing: ClassVar[bool] = True
    supports_consolidated_metadata: ClassVar[bool] = False

    def __init__(self, session: Session, *, read_only: bool | None = None) -> None:
        super().__init__(read_only=session.read_only if read_only is None else read_only)
        self._session = session
        self._reader = Reader(session)
        self._gatherer = Gatherer(self._reader)
        self._writer = Writer(session, self._reader)

    def __repr__(self) -> str:
        return f"<icevirt.IcevirtStore over {self._session!r}>"

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, IcevirtStore)
            and self.read_only == other.read_only
            and _same(self._session, other._session)
        )

    __hash__ = None  # type: ignore[assignment]

    def __reduce__(self) -> tuple[Any, ...]:
        return _store, (self._session, self._read_only, self._is_open)

    @property
    def session(self) -> Session:
        """The session."""
        return self._session

    @property
    def read_only(self) -> bool:
        """Whether changes are refused; so they are once the session was committed."""
        return self._read_only or self._session.read_only

    def with_read_only(self, read_only: bool = False) -> IcevirtStore:
        """Return another store over the same session.

        Raises:
            ReadOnlyError: A writable store of a session that takes no changes.
        """
        if self._session.read_only and not read_only:
            raise ReadOnlyError(
                "the session of this store takes no changes",
                do="Begin another with `repo.writable_session(branch)` and use its store.",
                snapshot=self._session.snapshot_id,
            )
        return IcevirtStore(self._session, read_only=read_only)

    # -- reading -----------------------------------------------------------------------------

    def get_sync(
        self,
        key: str,
        *,
        prototype: BufferPrototype | None = None,
        byte_range: ByteRequest | None = None,
    ) -> Buffer | None:
        """Return the value of a key, or None where nothing was written.

        Raises:
            StorageError: The value is there and cannot be read.
            UnauthorizedError: It lies in a source file that the session may not read.
        """
        self._is_open = True
        value = self._reader.read(key, byte_range)
        kind = (prototype or default_buffer_prototype()).buffer
        return None if value is None else kind.from_bytes(value)

    async def get(
        self,
        key: str,
        prototype: BufferPrototype | None = None,
        byte_range: ByteRequest | None = None,
    ) -> Buffer | None:
        """Return the value of a key, or None where nothing was written. Raises as `get_sync`."""
        self._is_open = True
        value = await self._gatherer.read(key, byte_range)
        kind = (prototype or default_buffer_prototype()).buffer
        return None if value is None else kind.from_bytes(value)

    async def get_partial_values(
        self,
        prototype: BufferPrototype,
        key_ranges: Iterable[tuple[str, ByteRequest | None]],
    ) -> list[Buffer | None]:
        """Return many values, looked up together and read object by object."""
        wanted = (self.get(key, prototype, byte_range) for key, byte_range in key_ranges)
        return await asyncio.gather(*wanted)

    async def exists(self, key: str) -> bool:
        """Say whether a value was written; whether it can be read is not looked at."""
        return self._reader.size(key) is not None

    async def getsize(self, key: str) -> int:
        """Return the length of a value in bytes. Raises ``FileNotFoundError``, as zarr wants it."""
        if (size := self._reader.size(key)) is None:
            raise FileNotFoundError(key)
        return size

    async def getsize_prefix(self, prefix: str) -> int:
        """Return the bytes of all values in a folder, from the references alone."""
        folder = prefix.strip("/")
        inside = f"{folder}/" if folder else ""
        return await asyncio.to_thread(self._reader.size_below, inside)

    # -- listing -----------------------------------------------------------------------------

    async def list(self) -> AsyncIterator[str]:
        """Yield all keys."""
        for key in self._keys(""):
            yield key

    async def list_prefix(self, prefix: str) -> AsyncIterator[str]:
        """Yield the keys that begin with ``prefix``."""
        for key in self._keys(prefix):
            yield key

    async def list_dir(self, prefix: str) -> AsyncIterator[str]:
        """Yield the names directly below ``prefix``."""
        nodes = self._session.snapshot.nodes
        for name in listing.names_in(nodes, self._reader.coordinates, prefix):
            yield name

    def _keys(self, prefix: str) -> Iterator[str]:
        nodes = self._session.snapshot.nodes
        return listing.keys_below(nodes, self._reader.coordinates, prefix)

    # -- writing -----------------------------------------------------------------------------

    def set_sync(self, key: str, value: Buffer) -> None:
        """Write a value: a zarr.json, or an encoded chunk.

        Raises:
            InvalidInputError: The key is none of zarr v3, or the value does not fit it.
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
        """Delete a value; one that is not there is no error, whatever its key."""
        self._check_writable()
        self._is_open = True
        if parse(key) is not None:
            self._writer.delete(key)

    async def delete(self, key: str) -> None:
        """Delete a value, as `delete_sync`."""
        self.delete_sync(key)

    async def delete_dir(self, prefix: str) -> None:
        """Delete a node and all below it, or those chunks of an array that lie in the folder."""
        self._check_writable()
        self._is_open = True
        folder = prefix.strip("/")
        self._writer.delete_node("/" + folder)
        key = parse(folder)
        if isinstance(key, ChunkKey) and isinstance(self._session.find(key.path), ArrayNode):
            array = self._session.array(key.path)
            index = self._reader.coordinates(array)
            below = listing.inside(array, index, f"{folder}/")
            self._writer.delete_chunks(array.path, index[below])

    # -- virtual references ------------------------------------------------------------------

    def set_virtual_ref(
        self, key: str, location: str, *, offset: int, length: int, checksum: ChecksumLike = None
    ) -> None:
        """Let a chunk refer to ``length`` bytes at ``offset`` of another object.

        Raises:
            InvalidInputError: The key is no chunk's, or no container covers the location.
        """
        named = parse(key)
        if not isinstance(named, ChunkKey):
            raise InvalidInputError("not the key of a chunk", do="Like 'array/c/0/1'.", key=key)
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
        """Let chunks of an array refer to ranges of other objects. Raises as `set_virtual_ref`."""
        self._check_writable()
        table = table_of(chunks, self._writer.ndim(array_path))
        self._writer.set_references(array_path, table)

    def set_virtual_refs_arr(
        self,
        array_path: str,
        chunk_grid_shape: Sequence[int],
        locations: Sequence[str],
        offsets: ArrayLike,
        lengths: ArrayLike,
        *,
        arr_offset: Sequence[int] | None = None,
        checksum: ChecksumLike = None,
    ) -> None:
        """Let a box of chunks refer to ranges of other objects. Raises as `set_virtual_ref`.

        Args:
            array_path: The array.
            chunk_grid_shape: Chunks of the box along each dimension.
            locations: A URL for each chunk, in C order; empty ones are left out.
            offsets: Where each chunk begins, in bytes.
            lengths: Bytes of each chunk.
            arr_offset: The first chunk of the box; the first of the array by default.
            checksum: Of all the objects: an etag, or when they were last modified at most.
        """
        self._check_writable()
        table = table_of_grid(
            chunk_grid_shape, locations, offsets, lengths, arr_offset=arr_offset, checksum=checksum
        )
        self._writer.set_references(array_path, table)

    def _begin(self, value: Buffer) -> None:
        self._check_writable()
        self._is_open = True
        if not isinstance(value, Buffer):
            raise TypeError(f"a zarr Buffer is stored, not {type(value).__name__}")


def _same(one: Session, other: Session) -> bool:
    """Say whether two sessions show the same: themselves, or one version of one repository."""
    return one is other or (
        one.read_only
        and other.read_only
        and one.snapshot_id == other.snapshot_id
        and one.assets.storage == other.assets.storage
    )


def _store(session: Session, read_only: bool, is_open: bool) -> IcevirtStore:
    store = IcevirtStore(session, read_only=read_only)
    store._is_open = is_open  # noqa: SLF001
    return store
