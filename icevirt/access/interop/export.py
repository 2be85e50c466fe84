"""Prepare a session's references for formats that store byte ranges of files.

Such formats cannot point at chunks inside a repository, so a few native chunks travel as bytes.
They cannot store checksums either: readers of the exported references do not notice that a file
changed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from icevirt.access.references import absolute
from icevirt.access.store.keys import chunk_keys
from icevirt.access.store.zarr_store import IcevirtStore
from icevirt.errors import UnsupportedError
from icevirt.model import paths
from icevirt.model.chunks import ChunkTable, ChunkType
from icevirt.model.snapshot import ArrayNode, Node
from icevirt.repo.session import Session
from icevirt.versioning import chunk_tables

INLINE_NATIVE = 1 << 20
"""Bytes of native chunks of an array that go along, by default."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportedReferences:
    """The references of one array; rows are in order of their chunks."""

    grid: tuple[int, ...]  # number of chunks along each axis
    index: NDArray[np.uint32]  # (n, ndim) of references into files
    url: NDArray[np.int64]  # (n,) row in ``urls``
    urls: tuple[str, ...]
    offset: NDArray[np.uint64]  # (n,)
    length: NDArray[np.uint64]  # (n,)
    bodies: dict[tuple[int, ...], bytes]  # of other chunks

    @property
    def complete(self) -> bool:
        """Whether every chunk of the array is there."""
        return len(self.index) + len(self.bodies) == int(np.prod(self.grid, dtype=object))


def outgoing(session: Session, node: ArrayNode, inline_native: int) -> ExportedReferences:
    """Collect the references of an array.

    Raises:
        UnsupportedError: Its native chunks have more bytes than may go along.
    """
    table = chunk_tables.compact(session.array_table(node.path))
    virtual = table.kind == ChunkType.virtual
    linked = table.take(virtual)
    native = table.kind == ChunkType.native
    nbytes = int(table.length[native].sum())
    if nbytes > inline_native:
        raise UnsupportedError(
            "some chunks lie in the repository, which exported references cannot point at",
            do="Raise inline_native to export them as bytes, or export other arrays.",
            path=node.path,
            chunks=int(native.sum()),
            nbytes=nbytes,
            inline_native=inline_native,
        )
    return ExportedReferences(
        grid=node.num_chunks,
        index=linked.index,
        url=linked.source.astype(np.int64),
        urls=tuple(absolute(session, table)),
        offset=linked.offset,
        length=linked.length,
        bodies=dict(_bodies(session, node.path, table.take(~virtual))),
    )


def _bodies(
    session: Session, path: str, table: ChunkTable
) -> Iterator[tuple[tuple[int, ...], bytes]]:
    store = IcevirtStore(session)
    for index, key in zip(table.index.tolist(), chunk_keys(path, table.index), strict=True):
        value = store.get_sync(key)
        if value is not None:
            yield tuple(index), value.to_bytes()


def nodes_below(session: Session, path: str) -> list[tuple[str, Node]]:
    """Return a node and all below it, by the paths that they have under it; an array by its name.

    Raises:
        NodeNotFoundError: There is no such node.
    """
    top = session.node(path)
    if isinstance(top, ArrayNode):
        return [(f"/{paths.name(top.path)}", top)]
    prefix = top.path.rstrip("/")
    below = (node for node in session.snapshot.below(top.path) if node.path != top.path)
    return [(paths.ROOT, top), *((node.path.removeprefix(prefix), node) for node in below)]
