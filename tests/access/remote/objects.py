"""A repository whose array ``/v`` refers to objects on a server, and what asks for it."""

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import zarr

from icevirt.model.chunks import ChunkTable, Locations
from icevirt.model.config.containers import ObjectStoreConfig, VirtualChunkContainer
from icevirt.model.config.document import RepositoryConfig
from icevirt.repo.repository import Repository

CHUNK = 256  # bytes


def values(chunks: int, *, seed: int = 0) -> np.ndarray:
    """Return one chunk a row."""
    return np.random.default_rng(seed).integers(0, 256, (chunks, CHUNK), np.uint8)


def document(chunks: int, **changes: Any) -> bytes:
    """Return the metadata of an array of that many chunks."""
    return json.dumps(
        {
            "zarr_format": 3,
            "node_type": "array",
            "shape": [chunks, CHUNK],
            "data_type": "uint8",
            "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [1, CHUNK]}},
            "chunk_key_encoding": {"name": "default", "configuration": {"separator": "/"}},
            "fill_value": 0,
            "codecs": [{"name": "bytes", "configuration": {"endian": "little"}}],
            "attributes": {},
        }
        | changes
    ).encode()


@dataclass(kw_only=True)
class Remote:
    """Where the repository is, and what opens it."""

    root: Path
    prefix: str
    authorize: Any = None
    options: dict[str, Any] = field(default_factory=dict)

    def session(self, authorize: Any = "as made"):
        granted = self.authorize if authorize == "as made" else authorize
        repo = Repository.open(self.root, authorize_virtual_chunk_access=granted)
        return repo.readonly_session("main")

    def store(self, authorize: Any = "as made", **options: Any):
        from icevirt.access.store.zarr_store import IcevirtStore

        return IcevirtStore(self.session(authorize), **options)

    def array(self, authorize: Any = "as made", **options: Any) -> zarr.Array:
        return zarr.open_array(self.store(authorize, **options), path="v", mode="r")


def refer(
    root: Path,
    prefix: str,
    *,
    store: ObjectStoreConfig,
    location: str | None = None,
    chunks: int = 8,
    checksum: dict[str, Any] | None = None,
    step: int = CHUNK,
    authorize: Any = "the prefix",
    name: str | None = None,
    document: bytes | None = None,
    lengths: list[int] | None = None,
) -> Remote:
    """Commit an array whose chunks lie ``step`` bytes apart in one object, or end to end."""
    sizes = np.full(chunks, CHUNK) if lengths is None else np.array(lengths)
    offsets = np.arange(chunks) * step if lengths is None else np.cumsum(sizes) - sizes
    config = RepositoryConfig()
    config.set_virtual_chunk_container(VirtualChunkContainer(prefix, store, name))
    session = Repository.create(root, config).writable_session("main")
    number = np.arange(chunks)
    table = ChunkTable.virtual(
        index=np.stack([number, np.zeros_like(number)], axis=1),
        offset=offsets,
        length=sizes,
        locations=Locations.one(
            prefix + "a.bin" if location is None else location, **(checksum or {})
        ),
    )
    session.add_array("/v", document or _document(chunks), table)
    session.commit("refer")
    granted = [prefix] if authorize == "the prefix" else authorize
    return Remote(root=root, prefix=prefix, authorize=granted)


_document = document
