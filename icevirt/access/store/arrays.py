"""Open arrays of a session as zarr arrays that limit what a chunk may decode to.

The engine and `icevirt.verify` read through these. ``zarr.open(session.store)`` is zarr's own
reader, without that limit; it also replaces backslashes in a path by slashes and so opens another
node. Here the path is exactly the node's.
"""

from __future__ import annotations

import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import zarr
from zarr.abc.store import Store
from zarr.core.metadata import ArrayV3Metadata
from zarr.storage import StorePath

from icevirt.errors import IcevirtError, StorageError
from icevirt.model.snapshot import ArrayNode, document_of, using
from icevirt.repo.session import Session
from icevirt.wire.bounded import limit_array


class _ExactPath(StorePath):
    """A place in a store under exactly the given name."""

    def __init__(self, store: Store, path: str = "") -> None:
        super().__init__(store)
        self.path = path


def array_of(store: Store, node: ArrayNode) -> zarr.Array[Any]:
    """Return an array of a snapshot, whose values come from a store.

    Raises:
        FormatError: Its metadata is not what zarr can use.
    """
    document = document_of(node)
    with using(node):
        metadata = ArrayV3Metadata.from_dict(document)
        return zarr.Array(limit_array(metadata, _ExactPath(store, node.path.strip("/"))))


def open_array(session: Session, path: str) -> zarr.Array[Any]:
    """Return the array at a path of a session.

    Raises:
        NodeNotFoundError: There is no such array.
        FormatError: Its metadata is not what zarr can use.
    """
    return array_of(session.store, session.array(path))


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
        raise StorageError(
            "a read needs more memory than is available",
            do="Read a smaller part at once. If the part is already small, the array's chunks are "
            "larger than the memory.",
            **_facts(array, error),
        ) from error
    except Exception as error:
        # types of errors do not tell whether one was raised while a chunk was decoded
        frames = traceback.walk_tb(error.__traceback__)
        if not any("decode" in frame.f_code.co_name for frame, _ in frames):
            raise
        raise StorageError(
            "a chunk cannot be decoded",
            do="A source file is damaged or was replaced: check with `icevirt check`, and build "
            "again from sound files.",
            **_facts(array, error),
        ) from error


def _facts(array: zarr.Array[Any], error: BaseException) -> dict[str, str]:
    session = getattr(array.store, "session", None)
    return {
        "repo": str(array.store) if session is None else session.assets.storage.url,
        "variable": f"/{array.path}",
        "reason": f"{type(error).__name__}: {error}",
    }
