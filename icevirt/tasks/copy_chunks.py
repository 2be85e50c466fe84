"""Store chunks of virtual arrays in the repository: as they are, or cut and encoded anew.

Memory is bounded by a batch of chunks, or a slab of values. Chunks are named by their content, so
that a task that runs twice writes the same objects. Each one is read again and compared.
"""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import zstandard
from numpy.typing import NDArray

from icevirt.access.store.arrays import decoding, open_array
from icevirt.access.store.locating import ReferenceLocator, waited
from icevirt.archive.hybrid import AxisGrid
from icevirt.errors import BuildError, InvalidInputError
from icevirt.ids import ObjectId12
from icevirt.model.chunks import ChunkTable, ChunkType
from icevirt.model.snapshot import ArrayNode, Extents
from icevirt.objects.staleness import Staleness
from icevirt.repo.assets import Assets
from icevirt.repo.maintenance import content_names
from icevirt.repo.maintenance.compared import naming_variable
from icevirt.repo.repository import Repository
from icevirt.repo.session import Session
from icevirt.storage.protocol import Storage
from icevirt.tasks.chunk_encoding import (
    ChunkEncoder,
    chunks_of,
    fill_of,
    inline_table,
    plain_dtype,
)
from icevirt.tasks.materialize import Sink, stored
from icevirt.versioning import chunk_tables
from icevirt.versioning.id_columns import column
from icevirt.wire.manifests.encoding import ManifestEncoding

_BATCH = 1 << 25  # bytes of encoded chunks that are held
SLAB = 1 << 27
"""Bytes of values that a task holds, unless one chunk has more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyTask:
    """Part of one array."""

    repo: Storage
    snapshot_id: str
    access: Mapping[str, Any]  # by authorized prefix
    array: str  # path
    manifests: tuple[bytes, ...] = ()  # whose references are copied as they are
    region: Extents = ()  # chunks that are copied, along each axis
    box: Extents = ()  # chunks of the new grid that are encoded
    zarr_json: bytes = b""  # of the new grid
    inline_threshold: int = 512  # bytes
    encoding: ManifestEncoding = field(default_factory=ManifestEncoding)
    is_plan: bool = False  # count only
    is_listed: bool = False  # return the indices of the chunks

    def session(self) -> Session:
        """Open the version whose chunks are copied."""
        opened = Repository.open(self.repo, authorize_virtual_chunk_access=self.access)
        session = opened.readonly_session(snapshot_id=self.snapshot_id)
        session.assets.compares = True  # what is read is written again
        return session


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class WrittenManifest:
    """A manifest that a task wrote."""

    replaces: bytes  # id of the one whose references it holds; b"" where it is of a new grid
    id: bytes
    size_bytes: int
    num_chunk_refs: int
    extents: Extents


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Copied:
    """What a task stored."""

    manifests: tuple[WrittenManifest, ...] = ()
    chunks: int = 0
    bytes_read: int = 0
    bytes_stored: int = 0
    index: NDArray[np.uint32] | None = None  # of the chunks, where they were asked for


def copy_chunks(task: CopyTask) -> Copied:
    """Store the chunks of virtual references as they are, and manifests that refer to them."""
    session = task.session()
    node = session.array(task.array)
    copying = _Copying(task, session)
    written, index = [], []
    chunks = size = 0
    for key in task.manifests:
        manifest = session.assets.read_manifest(ObjectId12(key))
        table = manifest.arrays.get(node.id)
        if table is None:
            continue
        rows = _inside(table, task.region)
        if not len(rows):
            continue
        chunks += len(rows)
        size += int(table.length[rows].sum())
        index.append(table.index[rows])
        if not task.is_plan:
            manifest.refuse_loss()
            written.append(copying.manifest(node, key, copying.copied(table, rows)))
    ndim = len(node.num_chunks)
    return Copied(
        manifests=tuple(written),
        chunks=chunks,
        bytes_read=size,
        bytes_stored=size,
        index=np.concatenate([np.zeros((0, ndim), np.uint32), *index]) if task.is_listed else None,
    )


def encode_chunks(task: CopyTask) -> Copied:
    """Read the values of a box of chunks, and store them as the new metadata says."""
    session = task.session()
    node, array = session.array(task.array), open_array(session, task.array)
    document = json.loads(task.zarr_json)
    edges = document["chunk_grid"]["configuration"]["chunk_shape"]
    grids = [AxisGrid(total=n, edge=e) for n, e in zip(document["shape"], edges, strict=True)]
    encoder, fill = ChunkEncoder(document), fill_of(document)
    copying = _Copying(task, session)
    tables: list[ChunkTable] = []
    for box in slabs(task.box, edges, array.dtype.itemsize):
        region = tuple(
            slice(int(grid.begins(low)), int(grid.begins(high)))
            for grid, (low, high) in zip(grids, box, strict=True)
        )
        with decoding(array), naming_variable(node):
            values = np.asarray(array[region])
        at = [part.start for part in region]
        for index, chunk in chunks_of(values, at, box, grids, fill):
            raw = _encoded(encoder, document, np.ascontiguousarray(chunk), task.array)
            tables.append(copying.kept({index: raw}))
    table = ChunkTable.concatenate(tables)
    written = copying.manifest(node, b"", table)
    return Copied(
        manifests=(written,),
        chunks=len(table),
        bytes_stored=int(table.length.sum()),
    )


def slabs(box: Extents, edges: Iterable[int], itemsize: int) -> Iterator[Extents]:
    """Yield parts of a box of chunks whose values fit into `SLAB` bytes, or single chunks."""
    steps, size = [1] * len(box), itemsize * math.prod(edges)
    for axis in reversed(range(len(box))):
        count = box[axis][1] - box[axis][0]
        steps[axis] = max(1, min(count, SLAB // max(1, size)))
        size *= steps[axis]
        if steps[axis] < count:
            break
    spans = (
        [(at, min(at + step, high)) for at in range(low, high, step)]
        for (low, high), step in zip(box, steps, strict=True)
    )
    yield from itertools.product(*spans)


class _Copying:
    """Writes chunks and manifests of one task."""

    def __init__(self, task: CopyTask, session: Session) -> None:
        self._task = task
        self._locator = ReferenceLocator(session, Staleness("raise"))
        self._sink = Sink(repo=task.repo, inline_threshold=task.inline_threshold)
        self._assets = Assets(task.repo, manifests=task.encoding)

    def copied(self, table: ChunkTable, rows: NDArray[np.int64]) -> ChunkTable:
        """Return a table whose given rows are stored."""
        keep = np.ones(len(table), np.bool_)
        keep[rows] = False
        tables = [table.take(keep)]
        ends = np.cumsum(table.length[rows].astype(np.int64))
        low = 0
        while low < len(rows):
            before = int(ends[low - 1]) if low else 0
            high = max(low + 1, int(np.searchsorted(ends, before + _BATCH, side="right")))
            some = rows[low:high].tolist()
            bodies = waited(
                [self._locator.at(table, row, 0, int(table.length[row])) for row in some]
            )
            made = {
                tuple(table.index[row].tolist()): bytes(body or b"")
                for row, body in zip(some, bodies, strict=True)
            }
            tables.append(self.kept(made))
            low = high
        return ChunkTable.concatenate([each for each in tables if len(each)])

    def kept(self, made: Mapping[tuple[int, ...], bytes]) -> ChunkTable:
        """Store encoded chunks, and compare what is stored with them."""
        table = stored(inline_table(made, len(next(iter(made)))), self._sink)
        for row in np.flatnonzero(table.kind == ChunkType.native).tolist():
            key = ObjectId12(table.chunk_ids[int(table.source[row])].tobytes())
            index = tuple(table.index[row].tolist())
            if self._task.repo.get(f"chunks/{key}") != made[index]:
                raise BuildError(
                    "a chunk that was just stored has other bytes",
                    do="Check the storage of the repository, and run the command again; nothing"
                    " was committed.",
                    variable=self._task.array,
                    chunk=index,
                )
        return table

    def manifest(self, node: ArrayNode, replaces: bytes, table: ChunkTable) -> WrittenManifest:
        """Write a manifest of one array."""
        table = chunk_tables.compact(table)
        ids = [ObjectId12(row.tobytes()) for row in table.chunk_ids]
        content_names.record(self._task.repo, column(ids))
        info = self._assets.put_manifest({node.id: table})
        return WrittenManifest(
            replaces=replaces,
            id=bytes(info.id),
            size_bytes=info.size_bytes,
            num_chunk_refs=info.num_chunk_refs,
            extents=table.extents(),
        )


def _inside(table: ChunkTable, region: Extents) -> NDArray[np.int64]:
    """Return the virtual rows whose chunks lie in a region."""
    wanted = table.kind == ChunkType.virtual
    for axis, (low, high) in enumerate(region):
        wanted = wanted & (table.index[:, axis] >= low) & (table.index[:, axis] < high)
    return np.flatnonzero(wanted)


def _encoded(
    encoder: ChunkEncoder, document: Mapping[str, Any], chunk: NDArray[Any], array: str
) -> bytes:
    """Return the bytes of a chunk, which decode to its values."""
    try:
        raw = encoder.encode(chunk)
    except ValueError as error:
        raise _lossy(str(error), array) from error
    dtype = plain_dtype(document["data_type"], document["codecs"])
    if dtype is not None:  # others are decoded where they are encoded
        is_packed = len(document["codecs"]) > 1
        again = zstandard.ZstdDecompressor().decompress(raw) if is_packed else raw
        if again != chunk.astype(dtype, copy=False).tobytes():
            raise _lossy("they are decoded to other values", array)
    return raw


def _lossy(why: str, array: str) -> InvalidInputError:
    return InvalidInputError(
        f"the codecs of the array do not reproduce its values: {why}",
        do='Pass codec="zstd" (--codec zstd).',
        variable=array,
    )
