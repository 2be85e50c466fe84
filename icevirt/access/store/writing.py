"""Write values of a zarr store to a session, and delete them.

Chunks above the inline threshold are stored at once, outside the lock that guards the session, so
that threads wait for the disk in parallel; writes of the event loop that wait run in a thread.
"""

from __future__ import annotations

import json

import numpy as np
from numpy.typing import NDArray

from icevirt.access.store.keys import METADATA, ChunkKey, MetadataKey, parse_writable
from icevirt.access.store.reading import SessionReader
from icevirt.model.chunks import ChunkTable
from icevirt.model.snapshot import ArrayNode
from icevirt.repo.session import Session
from icevirt.versioning import chunk_tables


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
