"""Store chunks of virtual arrays in the repository: as they are, or cut and encoded anew.

Memory is bounded by a batch of chunks, or a slab of values. Chunks are named by their content, so
that a task that runs twice writes the same objects. Each one is read again and compared.
"""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import zstandard
from numpy.typing import NDArray

from icevirt.access.columns.stored_array import open_array
from icevirt.access.store.locating import ReferenceLocator, wait_for_all
from icevirt.errors import BuildError, InvalidInputError
from icevirt.ids import ObjectId8, ObjectId12
from icevirt.model.chunks import ChunkTable, ChunkType
from icevirt.model.config.containers import VirtualChunkContainer
from icevirt.model.config.document import RepositoryConfig
from icevirt.model.snapshot import ArrayNode, Extents, Snapshot, document_of
from icevirt.objects.answers import Staleness
from icevirt.planning.coarsening import Coarsening, decode_as, weigh
from icevirt.remedy_notation import write_code, write_remedy
from icevirt.repo.assets import Assets
from icevirt.repo.maintenance import content_names
from icevirt.repo.maintenance.content_names import naming_variable
from icevirt.repo.repository import Repository
from icevirt.repo.session import Session
from icevirt.repo.view import Context
from icevirt.storage.protocol import Storage
from icevirt.tasks.chunk_encoding import (
    ChunkEncoder,
    Sink,
    chunks_of,
    fill_of,
    grids_of,
    inline_table,
    plain_dtype,
    store_large,
)
from icevirt.tasks.coarse_values import as_coarse
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
    node: ArrayNode  # as it is, perhaps in no snapshot yet
    beside: tuple[str, ObjectId8] | None = None  # the array that is encoded, if it is another one
    coarsen: Coarsening | None = None  # what it has for blocks of values
    weights: NDArray[np.float64] | None = None  # of latitudes
    containers: tuple[VirtualChunkContainer, ...] = ()  # of its files, beside the repository's
    access: Mapping[str, Any]  # by authorized prefix
    manifests: tuple[bytes, ...] = ()  # whose references are copied as they are
    region: Extents = ()  # chunks that are copied, along each axis
    box: Extents = ()  # chunks of the new grid that are encoded
    zarr_json: bytes = b""  # of the new grid
    inline_threshold: int = 512  # bytes
    encoding: ManifestEncoding = field(default_factory=ManifestEncoding)
    is_plan: bool = False  # count only
    is_listed: bool = False  # return the indices of the chunks

    @property
    def made(self) -> tuple[str, ObjectId8]:
        """Path and id of the array that is written."""
        return self.beside or (self.node.path, self.node.id)

    def session(self) -> Session:
        """Return a session that reads the array; what is damaged is refused."""
        config = RepositoryConfig()
        for each in self.containers:
            config.set_virtual_chunk_container(each)
        opened = Repository.open(self.repo, config, self.access)
        context = Context(
            assets=Assets(self.repo, manifests=self.encoding, compares=True),
            head=opened.head,
            config=opened.config,
            credentials=self.access,
            commit_metadata={},
        )
        return session_of(context, self.node)


def session_of(context: Context, node: ArrayNode) -> Session:
    """Return a session that reads one array, whether or not a snapshot has it."""
    alone = Snapshot(id=ObjectId12.random(), nodes=(node,), flushed_at=0, message="")
    return Session(context, alone)


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
    session, node = task.session(), task.node
    locator = ReferenceLocator(session, Staleness("raise"))
    kept = KeptChunks(task.repo, node.path, task.inline_threshold)
    written, index = [], []
    chunks = size = 0
    for key in task.manifests:
        manifest = session.assets.read_manifest(ObjectId12(key))
        table = manifest.arrays.get(node.id)
        if table is None:
            continue
        wanted = table.kind == ChunkType.virtual
        for axis, (low, high) in enumerate(task.region):
            wanted = wanted & (table.index[:, axis] >= low) & (table.index[:, axis] < high)
        rows = np.flatnonzero(wanted)
        if not len(rows):
            continue
        chunks += len(rows)
        size += int(table.length[rows].sum())
        index.append(table.index[rows])
        if not task.is_plan:
            manifest.refuse_loss()
            written.append(_write_manifest(task, key, copy_rows(locator, table, rows, kept)))
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
    session, node = task.session(), task.node
    fine = open_array(session, node.path)
    array = as_coarse(fine, document_of(node), task.coarsen, task.weights)
    kept = KeptChunks(task.repo, task.made[0], task.inline_threshold)

    def values(region: tuple[slice, ...]) -> NDArray[Any]:
        with naming_variable(node):
            return array[region]

    width = 8 * task.coarsen.size if task.coarsen else array.dtype.itemsize
    table = encode_box(values, width, task.zarr_json, task.box, kept)
    return Copied(
        manifests=(_write_manifest(task, b"", table),),
        chunks=len(table),
        bytes_stored=int(table.length.sum()),
    )


def encode_box(
    values: Callable[[tuple[slice, ...]], NDArray[Any]],
    width: int,
    zarr_json: bytes,
    box: Extents,
    kept: KeptChunks,
) -> ChunkTable:
    """Encode values as the metadata of an array says, and store the chunks of a box.

    Args:
        values: Returns those of a region.
        width: Bytes that are held for each value.
        zarr_json: Of the array.
        box: In its chunks.
        kept: Stores them.
    """
    document = json.loads(zarr_json)
    grids, encoder, fill = grids_of(document), ChunkEncoder(document), fill_of(document)
    tables: list[ChunkTable] = []
    for part in slabs(box, [grid.edge for grid in grids], width):
        region = tuple(
            slice(int(grid.begins(low)), int(grid.begins(high)))
            for grid, (low, high) in zip(grids, part, strict=True)
        )
        found = values(region)
        for index, chunk in chunks_of(found, [each.start for each in region], part, grids, fill):
            raw = _encode(encoder, document, np.ascontiguousarray(chunk), kept.array)
            tables.append(kept.store({index: raw}))
    return ChunkTable.concatenate(tables)


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


def read_weights(session: Session, how: Coarsening | None) -> NDArray[np.float64] | None:
    """Read the latitudes that weigh values; None where all weigh alike."""
    if how is None or how.area is None:
        return None
    array = open_array(session, how.area)
    values = array[(slice(None),) * len(array.shape)]
    return weigh(decode_as(document_of(session.array(how.area)), values))


def copy_rows(
    locator: ReferenceLocator, table: ChunkTable, rows: NDArray[np.int64], kept: KeptChunks
) -> ChunkTable:
    """Return a table whose given rows are stored, byte by byte."""
    keep = np.ones(len(table), np.bool_)
    keep[rows] = False
    tables = [table.take(keep)]
    ends = np.cumsum(table.length[rows].astype(np.int64))
    low = 0
    while low < len(rows):
        before = int(ends[low - 1]) if low else 0
        high = max(low + 1, int(np.searchsorted(ends, before + _BATCH, side="right")))
        some = rows[low:high].tolist()
        bodies = wait_for_all([locator.at(table, row, 0, int(table.length[row])) for row in some])
        made = {
            tuple(table.index[row].tolist()): bytes(body or b"")
            for row, body in zip(some, bodies, strict=True)
        }
        tables.append(kept.store(made))
        low = high
    return ChunkTable.concatenate([each for each in tables if len(each)])


@dataclass(frozen=True, slots=True)
class KeptChunks:
    """Stores chunks of an array, and reads each one again."""

    repo: Storage
    array: str  # path
    inline_threshold: int  # bytes; up to it chunks lie in the manifest

    def store(self, made: Mapping[tuple[int, ...], bytes]) -> ChunkTable:
        """Store encoded chunks, and compare what is stored with them."""
        sink = Sink(repo=self.repo, inline_threshold=self.inline_threshold)
        table = store_large(inline_table(made, len(next(iter(made)))), sink)
        for row in np.flatnonzero(table.kind == ChunkType.native).tolist():
            key = ObjectId12(table.chunk_ids[int(table.source[row])].tobytes())
            index = tuple(table.index[row].tolist())
            if self.repo.get(f"chunks/{key}") != made[index]:
                raise BuildError(
                    "a chunk that was just stored has other bytes",
                    do="Check the storage of the repository, and run the command again; nothing"
                    " was committed.",
                    variable=self.array,
                    chunk=index,
                )
        return table


def _write_manifest(task: CopyTask, replaces: bytes, table: ChunkTable) -> WrittenManifest:
    table = chunk_tables.compact(table)
    ids = [ObjectId12(row.tobytes()) for row in table.chunk_ids]
    content_names.record(task.repo, column(ids))
    info = Assets(task.repo, manifests=task.encoding).put_manifest({task.made[1]: table})
    return WrittenManifest(
        replaces=replaces,
        id=bytes(info.id),
        size_bytes=info.size_bytes,
        num_chunk_refs=info.num_chunk_refs,
        extents=table.extents(),
    )


def _encode(
    encoder: ChunkEncoder, document: Mapping[str, Any], chunk: NDArray[Any], array: str
) -> bytes:
    """Return the bytes of a chunk, which decode to its values."""
    try:
        raw = encoder.encode(chunk)
        dtype = plain_dtype(document["data_type"], document["codecs"])
        if dtype is not None:  # others are decoded where they are encoded
            is_packed = len(document["codecs"]) > 1
            again = zstandard.ZstdDecompressor().decompress(raw) if is_packed else raw
            if again != chunk.astype(dtype, copy=False).tobytes():
                raise ValueError("they are decoded to other values")  # noqa: TRY301 - one refusal
    except ValueError as error:
        raise InvalidInputError(
            f"the codecs of the array do not reproduce its values: {error}",
            do=write_remedy("Pass ", write_code('codec="zstd"', "--codec zstd"), "."),
            variable=array,
        ) from error
    return raw
