"""A zarr store with icechunk's signatures and ``_async`` twins."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import contextmanager
from itertools import repeat
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray
from zarr.abc.store import Store
from zarr.core.buffer import default_buffer_prototype

from icevirt.access.store import keys
from icevirt.access.store.zarr_store import IcevirtStore
from icevirt.errors import InvalidInputError, ZarrV2KeyError
from icevirt.escaping import escape_line
from icevirt.icechunk._shims.classes import AsyncTwin, raises_icechunks
from icevirt.icechunk._shims.shown import as_html
from icevirt.model.chunks import ChunkTable
from icevirt.model.snapshot import ArrayNode

if TYPE_CHECKING:
    from icevirt.access.virtual_refs import ChecksumLike, VirtualChunkSpec

__all__ = ["IcechunkStore"]

type Index = tuple[int, ...]


class _Plain:
    """The store beneath, which icechunk's programs ask for bytes."""

    def __init__(self, store: IcechunkStore) -> None:
        self._above = store

    async def get(self, key: str, byte_range: Any = None) -> bytes:
        """Return the value of a key. Raises ``KeyError``."""
        found = await self._above.get(key, byte_range=byte_range)
        if found is None:
            raise KeyError(key)
        return found.to_bytes()

    async def set(self, key: str, value: bytes) -> None:
        """Write a value."""
        await self._above.set(key, default_buffer_prototype().buffer.from_bytes(value))


def _is_of_v2(key: str) -> bool:
    """Say whether a key is of Zarr 2, which has no values here. Raises ``InvalidInputError``."""
    try:
        keys.parse_writable(key)
    except ZarrV2KeyError:
        return True
    return False


class _Accepting(threading.local):
    any_location = False  # that no container covers
    refuses = False  # with an error


def _check_urls(locations: Sequence[str]) -> None:
    from icevirt.model.strings import Strings
    from icevirt.objects.locations import check_urls

    check_urls(Strings.of(locations))


class IcechunkStore(IcevirtStore):
    """What a session sees, as zarr keys and values."""

    _accepting: ClassVar[_Accepting] = _Accepting()

    @property
    def _store(self) -> _Plain:
        return _Plain(self)

    set_virtual_ref_async = AsyncTwin("set_virtual_ref")
    set_virtual_refs_async = AsyncTwin("set_virtual_refs")
    set_virtual_refs_arr_async = AsyncTwin("set_virtual_refs_arr")

    def __repr__(self) -> str:
        branch = (
            "" if self._session.branch is None else f"branch: {escape_line(self._session.branch)}\n"
        )
        return (
            f"<icechunk.IcechunkStore>\nread_only: {self.read_only}\n"
            f"snapshot_id: {self._session.snapshot_id}\n{branch}"
        )

    def _repr_html_(self) -> str:
        return as_html(repr(self))

    async def exists(self, key: str) -> bool:
        """Return whether a value was written.

        Raises:
            InvalidInputError: No zarr key is spelt like this.
        """
        return not _is_of_v2(key) and await super().exists(key)

    async def getsize(self, key: str) -> int:
        """Return the length of a value in bytes.

        Raises:
            InvalidInputError: No zarr key is spelt like this.
            FileNotFoundError: There is no such value, as zarr requires.
        """
        if _is_of_v2(key):
            raise FileNotFoundError(key)
        return await super().getsize(key)

    async def list_prefix(self, prefix: str) -> AsyncIterator[str]:
        """Yield the keys below a folder."""
        folder = prefix.strip("/")
        async for key in super().list_prefix(f"{folder}/" if folder else ""):
            yield key

    async def list_dir(self, prefix: str) -> AsyncIterator[str]:
        """Yield the names directly below a node; an array has ``c``, with or without chunks."""
        has_chunks = False
        async for name in super().list_dir(prefix):
            has_chunks |= name == "c"
            yield name
        if not has_chunks and isinstance(self._session.find("/" + prefix.strip("/")), ArrayNode):
            yield "c"

    def set_virtual_ref(
        self,
        key: str,
        location: str,
        *,
        offset: int,
        length: int,
        checksum: ChecksumLike = None,
        validate_container: bool = True,
    ) -> None:
        """Point a chunk at ``length`` bytes at ``offset`` of another object.

        Args:
            key: Like ``array/c/0/1``.
            location: The URL of the object.
            offset: In bytes.
            length: In bytes.
            checksum: An etag, or the latest modification time.
            validate_container: Refuse a location that no container covers. Otherwise it is
                stored, and read once the repository has a container for it.

        Raises:
            InvalidInputError: The key is not a chunk key, or no container covers the location.
        """
        _check_urls([location])
        self._accepting.refuses = validate_container
        try:
            with self._any_location(not validate_container):
                super().set_virtual_ref(
                    key, location, offset=offset, length=length, checksum=checksum
                )
        finally:
            self._accepting.refuses = False

    def set_virtual_refs(  # type: ignore[override]
        self,
        array_path: str,
        chunks: Sequence[VirtualChunkSpec],
        *,
        validate_containers: bool = True,
    ) -> list[Index] | None:
        """Point chunks of an array at ranges of other objects.

        Args:
            array_path: The array.
            chunks: The references.
            validate_containers: Leave out chunks whose location no container covers. Otherwise
                they are stored.

        Returns:
            The indices of chunks that were left out; None where there are none.
        """
        refused: list[Index] = []
        _check_urls([chunk.location for chunk in chunks])
        if validate_containers:
            known = self._is_covered([chunk.location for chunk in chunks])
            refused = [tuple(c.index) for c, fits in zip(chunks, known, strict=True) if not fits]
            chunks = [chunk for chunk, fits in zip(chunks, known, strict=True) if fits]
        with self._any_location(not validate_containers):
            super().set_virtual_refs(array_path, chunks)
        return refused or None

    def set_virtual_refs_arr(  # type: ignore[override]
        self,
        array_path: str,
        chunk_grid_shape: Sequence[int],
        locations: Sequence[str],
        offsets: ArrayLike,
        lengths: ArrayLike,
        *,
        validate_containers: bool = True,
        arr_offset: Sequence[int] | None = None,
        checksum: ChecksumLike = None,
    ) -> list[Index] | None:
        """Point a box of chunks at ranges of other objects; empty locations are left out.

        Args:
            array_path: The array.
            chunk_grid_shape: Chunks of the box along each dimension.
            locations: A URL for each chunk, in C order.
            offsets: Where each chunk begins, in bytes.
            lengths: Bytes of each chunk.
            validate_containers: Leave out chunks whose location no container covers. Otherwise
                they are stored.
            arr_offset: The first chunk of the box; the first of the array by default.
            checksum: An etag, or the latest modification time, of all objects.

        Returns:
            The indices of chunks that were left out; None where there are none.
        """
        any_location = self._accepting.any_location or not validate_containers

        def set_all(urls: Sequence[str]) -> None:
            with self._any_location(any_location):
                super(IcechunkStore, self).set_virtual_refs_arr(
                    array_path,
                    chunk_grid_shape,
                    urls,
                    offsets,
                    lengths,
                    arr_offset=arr_offset,
                    checksum=checksum,
                )

        try:  # mostly containers cover all, which is checked by column
            set_all(locations)
        except InvalidInputError:
            if any_location or self._accepting.refuses:
                raise
            known = self._is_covered(locations)
            if known.all():
                raise
            set_all([url if fits else "" for url, fits in zip(locations, known, strict=True)])
            first = arr_offset or (0,) * len(chunk_grid_shape)
            places = np.argwhere(~known.reshape(tuple(chunk_grid_shape))) + np.array(first)
            return [tuple(index) for index in places.tolist()]
        return None

    async def set_partial_values(self, key_start_values: Any) -> None:
        """Refuse: no version of the format can do it, and icechunk's fails too."""
        del key_start_values
        raise NotImplementedError("partial writes are not supported")

    @contextmanager
    def _any_location(self, accepted: bool) -> Iterator[None]:
        """Accept locations that no container covers, in this thread."""
        before, self._accepting.any_location = self._accepting.any_location, accepted
        try:
            yield
        finally:
            self._accepting.any_location = before

    def _refer(self, array_path: str, table: ChunkTable) -> None:
        any_location = self._accepting.any_location
        with self._session.lock:
            self._session.set_chunks(array_path, table, any_location=any_location)

    def _is_covered(self, locations: Sequence[str]) -> NDArray[np.bool_]:
        """Say which locations a container covers; an empty one needs none."""
        from icevirt.model.config.containers import prefixes_of

        prefixes = prefixes_of(self._session.config.virtual_chunk_containers.values())
        distinct = dict.fromkeys(locations)
        known = dict(zip(distinct, map(str.startswith, distinct, repeat(prefixes)), strict=True))
        known[""] = True
        return np.fromiter(map(known.__getitem__, locations), np.bool_, len(locations))


raises_icechunks(IcechunkStore, read_by=Store)
