"""Implement the zarr store over a session: reads, writes, deletes, and virtual references."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from zarr.abc.store import ByteRequest, Store
from zarr.core.buffer import Buffer, BufferPrototype, default_buffer_prototype

from icevirt.access.store import keys
from icevirt.access.store.keys import ChunkKey, MetadataKey, parse
from icevirt.access.store.reading import SessionReader
from icevirt.errors import InvalidInputError, InvalidKeyError, ReadOnlyError, ReadOnlyStoreError
from icevirt.model.chunks import ChunkTable
from icevirt.model.snapshot import ArrayNode
from icevirt.objects.answers import OnStale, Staleness, Verification
from icevirt.repo.session import Session
from icevirt.threads import run_in_thread
from icevirt.versioning import chunk_tables

if TYPE_CHECKING:
    import pyarrow as pa
    from numpy.typing import ArrayLike

    from icevirt.access.references import Batch, ChunkSource
    from icevirt.access.store.request_batcher import RequestBatcher
    from icevirt.access.virtual_refs import ChecksumLike, VirtualChunkSpec
    from icevirt.objects.chunk_cache import ChunkCache


class IcevirtStore(Store):
    """A zarr store over a session: its contents and changes as zarr v3 keys and values.

    Args:
        session: A session; the store is writable while the session is.
        read_only: Refuse changes even if the session is writable.
        on_stale: If a source file changed after the scan: ``raise`` an error, ``warn``
            once per file and read it as it is, or ``ignore`` the change. The `Staleness` of another
            store can be passed to share its counts.
        cache: Keeps chunks of servers on disk.
    """

    supports_writes: ClassVar[bool] = True
    supports_deletes: ClassVar[bool] = True
    supports_listing: ClassVar[bool] = True
    supports_consolidated_metadata: ClassVar[bool] = False
    names_chunks: ClassVar[bool] = (
        True  # in errors of decoding: `icevirt.access.store.naming_pipeline`
    )

    def __init__(
        self,
        session: Session,
        *,
        read_only: bool | None = None,
        on_stale: OnStale | Staleness = "raise",
        cache: ChunkCache | None = None,
    ) -> None:
        super().__init__(read_only=session.read_only if read_only is None else read_only)
        self._session = session
        staleness = on_stale if isinstance(on_stale, Staleness) else Staleness(on_stale)
        self._reader = SessionReader(session, staleness, cache)

    def __repr__(self) -> str:
        return f"<icevirt.IcevirtStore over {self._session!r}>"

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, IcevirtStore)
            and self.read_only == other.read_only
            and self.on_stale == other.on_stale
            and self._shows_same(other._session)
        )

    def _shows_same(self, other: Session) -> bool:
        """Say whether a session is ours, or both show one version of one repository."""
        one = self._session
        return one is other or (
            one.read_only
            and other.read_only
            and one.snapshot_id == other.snapshot_id
            and one.assets.storage == other.assets.storage
        )

    __hash__ = None  # type: ignore[assignment]

    def __reduce__(self) -> tuple[Any, ...]:
        given = self._reader
        kind = partial(
            type(self),
            read_only=self._read_only,
            on_stale=given.staleness,
            cache=given.locator.cache,
        )
        return kind, (self._session,), {"_is_open": self._is_open}

    @cached_property
    def _batcher(self) -> RequestBatcher:
        """What answers zarr's requests; reads in columns need none."""
        from icevirt.access.store.request_batcher import RequestBatcher

        return RequestBatcher(self._reader)

    @property
    def reader(self) -> SessionReader:
        """What finds and reads chunks, and counts them."""
        return self._reader

    @property
    def session(self) -> Session:
        """The session."""
        return self._session

    @property
    def read_only(self) -> bool:
        """Whether changes are refused, as they are after the session's commit."""
        return self._read_only or self._session.read_only

    def with_read_only(self, read_only: bool = False) -> Self:
        """Return another store over the same session.

        Raises:
            ReadOnlyError: The session is read-only.
        """
        if self._session.read_only and not read_only:
            raise ReadOnlyError(
                "the session of this store is read-only",
                do="Open a writable one with `repo.writable_session(branch)` and use its store.",
                snapshot=self._session.snapshot_id,
            )
        given = self._reader
        return type(self)(
            self._session,
            read_only=read_only,
            on_stale=given.staleness,
            cache=given.locator.cache,
        )

    @property
    def on_stale(self) -> OnStale:
        """What happens if a source file changed after the scan."""
        return self._reader.staleness.on_stale

    @property
    def verification(self) -> Verification:
        """How many virtual chunks were read so far: verifiable, unverifiable, and stale."""
        return self._reader.staleness.seen

    def _check_writable(self) -> None:
        """Check that the store takes changes.

        Raises:
            ReadOnlyStoreError: It does not; zarr expects a ``ValueError`` that says so.
        """
        if self.read_only:
            raise ReadOnlyStoreError(
                "store was opened in read-only mode and does not support writing",
                do="Use the store of `repo.writable_session(branch)`.",
                snapshot=self._session.snapshot_id,
            )

    async def _ensure_open(self) -> None:
        """Open the store, as zarr does before most arrays and groups."""
        _let_arrays_name_chunks()
        await super()._ensure_open()

    # -- reading -----------------------------------------------------------------------------

    def get_sync(
        self,
        key: str,
        *,
        prototype: BufferPrototype | None = None,
        byte_range: ByteRequest | None = None,
    ) -> Buffer | None:
        """Return the value of a key, or None if nothing was written.

        Raises:
            StorageError: The value exists but cannot be read.
            UnauthorizedError: It lies in a source file that the session may not read.
        """
        self._is_open = True
        (value,) = self._reader.read_all([(key, byte_range)])
        kind = (prototype or default_buffer_prototype()).buffer
        return None if value is None else kind.from_bytes(value)

    async def get(
        self,
        key: str,
        prototype: BufferPrototype | None = None,
        byte_range: ByteRequest | None = None,
    ) -> Buffer | None:
        """Return the value of a key, or None if nothing was written. Raises as `get_sync`."""
        self._is_open = True
        if keys.may_name_chunk(key):
            value = await self._batcher.read(key, byte_range)
        else:  # metadata: nothing to wait for, and an array may be made of it
            _let_arrays_name_chunks()
            value = self._reader.document(key, byte_range)
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
        """Return whether a value was written, without checking that it can be read."""
        return await self._size(key) is not None

    async def getsize(self, key: str) -> int:
        """Return the length of a value in bytes. Raises ``FileNotFoundError``, as zarr requires."""
        if (size := await self._size(key)) is None:
            raise FileNotFoundError(key)
        return size

    async def _size(self, key: str) -> int | None:
        if self._reader.is_at_hand(keys.sort_out([(key, None)])):
            return self._reader.size(key)
        return await run_in_thread(self._reader.size, key)

    async def getsize_prefix(self, prefix: str) -> int:
        """Return the bytes of all values in a folder, from the references alone."""
        folder = prefix.strip("/")
        inside = f"{folder}/" if folder else ""
        return await run_in_thread(self._reader.size_below, inside)

    # -- listing -----------------------------------------------------------------------------

    async def list(self) -> AsyncIterator[str]:
        """Yield all keys."""
        for key in self._keys(""):
            yield key

    async def list_prefix(self, prefix: str) -> AsyncIterator[str]:
        """Yield the keys that begin with ``prefix``; no key begins with a slash."""
        for key in self._keys(prefix.lstrip("/")):
            yield key

    async def list_dir(self, prefix: str) -> AsyncIterator[str]:
        """Yield the names directly below ``prefix``."""
        nodes = self._session.snapshot.nodes
        for name in keys.names_in(nodes, self._reader.coordinates, prefix):
            yield name

    def _keys(self, prefix: str) -> Iterator[str]:
        nodes = self._session.snapshot.nodes
        return keys.keys_below(nodes, self._reader.coordinates, prefix)

    # -- references --------------------------------------------------------------------------

    async def array_chunk_iterator(
        self, array_path: str, batch_size: int = 100_000
    ) -> AsyncIterator[Batch]:
        """Yield the references of an array in batches of columns, as icechunk does.

        Each batch is (coordinates, kinds, paths, offsets, lengths, inline bytes by row).

        Raises:
            NodeNotFoundError: There is no such array.
        """
        from icevirt.access import references

        if batch_size < 1:
            raise InvalidInputError("a batch has at least one row", batch_size=batch_size)
        for batch in references.batches(self._session, array_path, batch_size):
            yield batch

    def refs_table(self, path: str) -> pa.Table:
        """Return the references of an array as an Arrow table."""
        from icevirt.access import references

        return references.refs_table(self._session, path)

    def source_of(
        self,
        path: str,
        index: Sequence[int] | None = None,
        *,
        labels: Mapping[str, Any] | None = None,
    ) -> ChunkSource:
        """Return the object and the byte range that a value is decoded from.

        Args:
            path: The array.
            index: Index of the value along each dimension; negative numbers count from the end.
            labels: Instead of an index: a label of its coordinate for each dimension.

        Raises:
            NodeNotFoundError: There is no such array.
            InvalidInputError: The array has no such value.
        """
        from icevirt.access import references

        if (index is None) == (labels is None):
            raise InvalidInputError(
                "pass either the index or the labels of the value",
                do="For example index=(0, 1) or labels={'time': '2024-01-01', ...}.",
                path=path,
            )
        if labels is not None:
            index = references.index_of(self, self._session.snapshot, path, labels)
        assert index is not None
        chunk = references.chunk_of(self._session.array(path), index)
        return references.source_of_chunk(self._session, path, chunk)

    # -- writing -----------------------------------------------------------------------------

    def set_sync(self, key: str, value: Buffer) -> None:
        """Write a value: a zarr.json, or an encoded chunk.

        Raises:
            InvalidInputError: The key is not a zarr v3 key, or the value does not match it.
            NodeNotFoundError: A chunk of an array that is not there.
        """
        self._set(key, self._body_of(value))

    async def set(self, key: str, value: Buffer) -> None:
        """Write a value; chunks that become objects wait for the disk in a thread."""
        body = self._body_of(value)
        if key.endswith(keys.METADATA) or self._is_inline(body):
            self._set(key, body)
        else:
            await run_in_thread(self._set, key, body)

    async def set_if_not_exists(self, key: str, value: Buffer) -> None:
        """Write a value unless there is one, which no other thread can add meanwhile."""
        body = self._body_of(value)
        with self._session.lock:
            if self._reader.size(key) is None:
                self._set(key, body)

    def _body_of(self, value: Buffer) -> bytes:
        self._check_writable()
        self._is_open = True
        if not isinstance(value, Buffer):
            raise TypeError(  # in zarr's words
                f"{type(self).__name__}.set(): `value` must be a Buffer instance. Got an instance"
                f" of {type(value)} instead."
            )
        return value.to_bytes()

    def _is_inline(self, body: bytes) -> bool:
        """Say whether a value stays in memory until the commit."""
        return len(body) <= self._session.config.inline_threshold

    def _set(self, key: str, body: bytes) -> None:
        match keys.parse_writable(key):
            case MetadataKey(path=path):
                self._set_metadata(path, body)
            case ChunkKey(path=path, chunk=chunk):
                self._set_chunk(path, chunk, body)

    def _set_metadata(self, path: str, document: bytes) -> None:
        try:
            found = json.loads(document)
            ndim = len(found["shape"]) if found["node_type"] == "array" else None
        except (ValueError, LookupError, TypeError):
            ndim = None  # the session says what is wrong with it
        with self._session.lock:
            if self._session.find(path) is not None:
                self._session.set_metadata(path, document)
            elif ndim is not None:
                self._session.add_array(path, document, ChunkTable.empty(ndim))
            else:
                self._session.add_group(path, document)

    def _set_chunk(self, path: str, index: tuple[int, ...], body: bytes) -> None:
        """Write a chunk; large ones outside the lock, as threads wait for the disk in parallel."""
        if self._is_inline(body):
            with self._session.lock:
                self._session.set_chunk(path, index, body)
            return
        from icevirt.repo.commits.change_set import check_grid

        row = np.array([index], np.int64).reshape(1, len(index))
        check_grid(self._session.array(path), row)
        table = chunk_tables.native(row, self._session.assets.put_chunk(body), len(body))
        self._refer(path, table)

    def delete_sync(self, key: str) -> None:
        """Delete a value; a missing value is not an error, for any key."""
        self._check_writable()
        self._is_open = True
        named = parse(key)
        if isinstance(named, MetadataKey):
            self._delete_node(named.path)
        elif named is not None:
            row = np.array([named.chunk], np.int64).reshape(1, len(named.chunk))
            self._delete_chunks(named.path, row)

    async def delete(self, key: str) -> None:
        """Delete a value, as `delete_sync`."""
        self.delete_sync(key)

    async def delete_dir(self, prefix: str) -> None:
        """Delete a node and everything below it, or the chunks of an array below a folder."""
        self._check_writable()
        self._is_open = True
        folder = prefix.strip("/")
        self._delete_node("/" + folder)
        key = parse(folder)
        if isinstance(key, ChunkKey) and isinstance(self._session.find(key.path), ArrayNode):
            array = self._session.array(key.path)
            index = self._reader.coordinates(array)
            self._delete_chunks(array.path, index[keys.inside(array, index, f"{folder}/")])

    def _delete_node(self, path: str) -> None:
        """Delete a node and everything below it; absence is no error."""
        with self._session.lock:
            self._session.delete(path)

    def _delete_chunks(self, path: str, index: NDArray[np.integer]) -> None:
        """Make chunks of an array unwritten; those outside its grid were never written."""
        with self._session.lock:
            node = self._session.find(path)
            if isinstance(node, ArrayNode) and len(node.num_chunks) == index.shape[1]:
                inside = np.all(index < np.array(node.num_chunks, np.int64), axis=1)
                self._session.delete_chunks(path, index[inside])

    async def clear(self) -> None:
        """Delete everything that the session sees."""
        self.sync_clear()

    def sync_clear(self) -> None:
        """Delete everything that the session sees."""
        self._check_writable()
        self._delete_node("/")

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
            raise InvalidKeyError("not a chunk key", do="Write it like 'array/c/0/1'.", key=key)
        self.set_virtual_refs_arr(
            named.path,
            (1,) * len(named.chunk),
            [location],
            [offset],
            [length],
            arr_offset=named.chunk,
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
        if {*chunk_grid_shape} <= {1} and isinstance(
            node := self._session.find(array_path), ArrayNode
        ):
            # a box of one chunk, of an array without dimensions too, as VirtualiZarr has it
            chunk_grid_shape = chunk_grid_shape if node.num_chunks else ()
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


def _let_arrays_name_chunks() -> None:
    from icevirt.access.store.naming_pipeline import name_chunks_in_errors

    name_chunks_in_errors()
