"""Arrays of a session as zarr arrays that decode no chunk to more than it declares.

The engine and `icevirt.verify` read through these. ``zarr.open(session.store)`` is zarr's own
reader, without that limit.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import zarr
from zarr.abc.store import Store
from zarr.core.metadata import ArrayV3Metadata
from zarr.storage import StorePath

from icevirt.access.session_store import SessionStore
from icevirt.errors import IcevirtError, StorageError
from icevirt.model.metadata import document_of, using
from icevirt.model.snapshot import ArrayNode
from icevirt.wire.bounded import bounded_array


def array_of(store: Store, node: ArrayNode) -> zarr.Array[Any]:
    """Return an array of a snapshot, whose values come from a store.

    Raises:
        FormatError: Its metadata is not what zarr can use.
    """
    document = document_of(node)
    with using(node):
        metadata = ArrayV3Metadata.from_dict(document)
        return zarr.Array(bounded_array(metadata, StorePath(store, node.path.strip("/"))))


@contextmanager
def decoding(array: zarr.Array[Any]) -> Iterator[None]:
    """Say where it was that a codec failed; every codec has errors of its own."""
    try:
        yield
    except (IcevirtError, IndexError, Warning):  # an index is the caller's
        raise
    except MemoryError as error:
        raise StorageError(
            "a read needs more memory than there is",
            do="Read a smaller part at once. If the part is small, the array declares chunks that"
            " this machine cannot hold.",
            **_facts(array, error),
        ) from error
    except Exception as error:
        raise StorageError(
            "a chunk cannot be decoded",
            do="A source file is damaged or was replaced: check with `icevirt doctor`, and build "
            "again from sound files.",
            **_facts(array, error),
        ) from error


def _facts(array: zarr.Array[Any], error: BaseException) -> dict[str, str]:
    return {
        "repo": _url(array.store),
        "variable": f"/{array.path}",
        "reason": f"{type(error).__name__}: {error}",
    }


def _url(store: Store) -> str:
    return store.session.assets.storage.url if isinstance(store, SessionStore) else str(store)
