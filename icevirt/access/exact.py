"""Zarr arrays at exactly the path of their node, whatever other clients called it.

`zarr.open_array` replaces backslashes in a path by slashes, and so opens another node.
"""

from __future__ import annotations

import json
from typing import Any

import zarr
from zarr.abc.store import Store
from zarr.core.array import AsyncArray
from zarr.core.metadata import ArrayV3Metadata
from zarr.storage import StorePath

from icevirt.access.session_store import SessionStore
from icevirt.model.snapshot import ArrayNode


class _ExactPath(StorePath):
    """A place in a store under the very name it was given."""

    def __init__(self, store: Store, path: str = "") -> None:
        super().__init__(store)
        self.path = path


def array_at(store: Store, node: ArrayNode) -> zarr.Array[Any]:
    """Return the array of a node, whose metadata the snapshot holds; nothing is read."""
    metadata = ArrayV3Metadata.from_dict(json.loads(node.user_data))
    return zarr.Array(AsyncArray(metadata, _ExactPath(store, node.path.strip("/"))))


def open_array(store: SessionStore, path: str) -> zarr.Array[Any]:
    """Return the array at a path of a session. Raises ``NodeNotFoundError``."""
    return array_at(store, store.session.array(path))
