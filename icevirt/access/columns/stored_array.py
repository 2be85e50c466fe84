"""Open arrays of a session: as columns, or through zarr's pipeline where that has to decode.

The engine, `icevirt.verify` and `icevirt.materialize` read through these; no chunk decodes to more
than its array declares. ``zarr.open(session.store)`` is zarr's own reader, without that limit; it
also replaces backslashes in a path by slashes and so opens another node. Here the path is exactly
the node's.
"""

from __future__ import annotations

import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from typing import Any

import numpy as np
import zarr
from numpy.typing import NDArray
from zarr.abc.store import Store
from zarr.core.metadata import ArrayV3Metadata
from zarr.storage import StorePath

from icevirt.access.columns.decoding import decoding_error, reason_for_zarr
from icevirt.access.columns.reader import ColumnReader
from icevirt.access.store.reading import SessionReader
from icevirt.errors import IcevirtError
from icevirt.model.snapshot import ArrayNode, document_of, using
from icevirt.repo.session import Session
from icevirt.wire.bounded import limit_array


class _ExactPath(StorePath):
    """A place in a store under exactly the given name."""

    def __init__(self, store: Store, path: str = "") -> None:
        super().__init__(store)
        self.path = path


class StoredArray:
    """An array of a snapshot. Reads block; they are safe in threads.

    Args:
        store: Where the chunks come from.
        node: The array.

    Raises:
        FormatError: Its metadata is not what zarr can use.
    """

    def __init__(self, store: Store, node: ArrayNode) -> None:
        document = document_of(node)
        with using(node):
            metadata = ArrayV3Metadata.from_dict(document)
            path = _ExactPath(store, node.path.strip("/"))
            self.zarr: zarr.Array[Any] = zarr.Array(limit_array(metadata, path))
        reader = getattr(store, "reader", None)  # of `IcevirtStore`, which is not below
        self._reader = reader if isinstance(reader, SessionReader) else None
        self.shape: tuple[int, ...] = self.zarr.shape
        self.dtype: np.dtype[Any] = self.zarr.dtype

    @cached_property
    def why_zarr(self) -> str | None:
        """Why zarr's pipeline reads this array; None if it is read as columns."""
        if self._reader is None:
            return "its store is wrapped in another one"
        return reason_for_zarr(self.zarr)

    @cached_property
    def _columns(self) -> ColumnReader | None:
        if self._reader is None or self.why_zarr is not None:
            return None
        return ColumnReader(self._reader, self.zarr)

    def __getitem__(self, box: tuple[int | slice, ...]) -> NDArray[Any]:
        """Return the elements of a box, given along each axis. Raises as `oindex`."""
        return np.asarray(self.oindex(box))

    def oindex(self, key: tuple[Any, ...]) -> Any:
        """Return the elements that an index along each axis selects.

        Raises:
            StorageError: A chunk cannot be read or decoded.
            UnauthorizedError: It lies in a file that the session may not read.
            IndexError: An index is out of bounds.
        """
        if self._columns is not None:
            return self._columns.read(key)
        is_basic = not any(isinstance(each, np.ndarray) for each in key)
        with decoding(self.zarr):
            return self.zarr[key] if is_basic else self.zarr.oindex[key]

    def vindex(self, key: tuple[Any, ...]) -> Any:
        """Return the elements that arrays select together. Raises as `oindex`."""
        if self._columns is not None:
            return self._columns.read_points(key)
        with decoding(self.zarr):
            return self.zarr.vindex[key]


def open_array(session: Session, path: str) -> StoredArray:
    """Return the array at a path of a session.

    Raises:
        NodeNotFoundError: There is no such array.
        FormatError: Its metadata is not what zarr can use.
    """
    return StoredArray(session.store, session.array(path))


@contextmanager
def decoding(array: zarr.Array[Any]) -> Iterator[None]:
    """Raise what codecs raise as errors that name the array; every codec has its own.

    What comes from elsewhere, like zarr's word on a chunk that is not there, is raised as it is.
    """
    try:
        yield
    except (IcevirtError, IndexError, Warning):  # an index is the caller's
        raise
    except MemoryError as error:
        raise decoding_error(array, error) from error
    except Exception as error:
        # types of errors do not tell whether one was raised while a chunk was decoded
        frames = traceback.walk_tb(error.__traceback__)
        if not any("decode" in frame.f_code.co_name for frame, _ in frames):
            raise
        raise decoding_error(array, error) from error
