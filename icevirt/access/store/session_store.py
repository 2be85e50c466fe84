"""Implement the reading half of the zarr store: values, sizes, listings, references.

Synchronous reads run in the calling thread; asynchronous reads are batched.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Self

from zarr.abc.store import ByteRequest, Store
from zarr.core.buffer import Buffer, BufferPrototype, default_buffer_prototype

from icevirt.access.store import keys
from icevirt.access.store.reading import SessionReader
from icevirt.access.store.request_batcher import RequestBatcher
from icevirt.errors import InvalidInputError, ReadOnlyError, ReadOnlyStoreError
from icevirt.objects.staleness import OnStale, Staleness, Verification
from icevirt.repo.session import Session

if TYPE_CHECKING:
    import pyarrow as pa

    from icevirt.access.references import Batch, ChunkSource


class SessionStore(Store):
    """What a session sees, as zarr v3 keys and values; `IcevirtStore` can change it too."""

    supports_listing: ClassVar[bool] = True
    supports_consolidated_metadata: ClassVar[bool] = False

    def __init__(
        self,
        session: Session,
        *,
        read_only: bool | None = None,
        on_stale: OnStale | Staleness = "raise",
    ) -> None:
        super().__init__(read_only=session.read_only if read_only is None else read_only)
        self._session = session
        staleness = on_stale if isinstance(on_stale, Staleness) else Staleness(on_stale)
        self._reader = SessionReader(session, staleness)
        self._gatherer = RequestBatcher(self._reader)

    def __repr__(self) -> str:
        return f"<icevirt.IcevirtStore over {self._session!r}>"

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, SessionStore)
            and self.read_only == other.read_only
            and self.on_stale == other.on_stale
            and _same(self._session, other._session)
        )

    __hash__ = None  # type: ignore[assignment]

    def __reduce__(self) -> tuple[Any, ...]:
        kind = partial(type(self), read_only=self._read_only, on_stale=self._reader.staleness)
        return kind, (self._session,), {"_is_open": self._is_open}

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
        return type(self)(self._session, read_only=read_only, on_stale=self._reader.staleness)

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
        value = self._reader.read(key, byte_range)
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
            value = await self._gatherer.read(key, byte_range)
        else:  # nothing to wait for
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
        return await asyncio.to_thread(self._reader.size, key)

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


def _same(one: Session, other: Session) -> bool:
    """Say whether two sessions show the same: themselves, or one version of one repository."""
    return one is other or (
        one.read_only
        and other.read_only
        and one.snapshot_id == other.snapshot_id
        and one.assets.storage == other.assets.storage
    )
