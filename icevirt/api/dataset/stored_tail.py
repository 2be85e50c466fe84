"""Write what is added to a dataset: chunks of values, and one small manifest for all arrays.

References of all arrays lie together in the manifest that was written last, the *hot* one, until it
is full: so a file with a hundred variables costs one manifest read and one written. Other manifests
are neither read nor written, except those of stored values, of which there are few.

Of variables that are stored, chunks that the files have are copied byte by byte. In other chunks or
codecs, values are encoded from the first chunk that is not full: old values come from stored chunks
alone, new values from the new files.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, Future
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from icevirt.access.columns.stored_array import open_array
from icevirt.access.store.locating import ReferenceLocator
from icevirt.archive.plan import MAX_REFERENCES
from icevirt.archive.reports.build import ReferenceCounts
from icevirt.ids import ObjectId8, ObjectId12
from icevirt.model.chunks import ChunkTable, ChunkType, Manifest
from icevirt.model.config.document import RepositoryConfig
from icevirt.model.snapshot import (
    ArrayNode,
    Extents,
    ManifestFile,
    ManifestRef,
    Snapshot,
    document_of,
    node_of,
)
from icevirt.objects.answers import Staleness
from icevirt.objects.authorize import GrantedAccess
from icevirt.planning.lengthened import (
    MOST_REWRITTEN,
    Lengthened,
    LengthenedArray,
    OtherwiseError,
    Scattered,
)
from icevirt.repo import layout
from icevirt.repo.assets import Assets
from icevirt.repo.kept_objects import cache_of
from icevirt.repo.maintenance import content_names
from icevirt.repo.maintenance.content_names import naming_variable
from icevirt.repo.manifest_lookup import Cache
from icevirt.repo.repo_info_file import RepoInfoFile
from icevirt.repo.session import Session
from icevirt.repo.view import Context
from icevirt.storage.protocol import Storage
from icevirt.tasks.chunk_encoding import Sink, decode_chunk, encode_chunks, fill_of, store_large
from icevirt.tasks.coarse_values import as_coarse
from icevirt.tasks.copy_chunks import KeptChunks, copy_rows, encode_box, read_weights, session_of
from icevirt.tasks.write_manifests import AddedChunks
from icevirt.versioning.chunk_tables import compact, nbytes
from icevirt.versioning.id_columns import column
from icevirt.versioning.merge.build_merge import array_of
from icevirt.wire.manifests import manifest

HOT_REFERENCES = 50_000
"""References of the hot manifest, about 600 KiB; with more of them another one is begun."""

_MOST_AGAIN = 20 * HOT_REFERENCES  # of manifests among whose references new ones lie

MAX_LISTED = 100_000
"""Chunks that a transaction log lists; of more it names the arrays."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredTail:
    """What was written, to be committed."""

    nodes: Mapping[str, ArrayNode]  # by path, as they will be
    written: Mapping[ObjectId12, ManifestFile]
    chunks: Mapping[ObjectId8, NDArray[np.uint32]]  # that were added or written again, by array
    touched: frozenset[ObjectId8]  # arrays with too many of them
    values: Mapping[str, ReferenceCounts]  # chunks of values that were written, by path
    hot: str  # the manifest that the next references join; "": none
    objects: Mapping[str, bytes]  # manifests, by path: they are written before anybody sees it
    writes: tuple[Future[None], ...]  # that have to end before as well


@dataclass(frozen=True, slots=True, kw_only=True)
class _Table:
    """The references of an array that one manifest will hold."""

    array: LengthenedArray
    table: ChunkTable
    replaces: frozenset[ObjectId12] = frozenset()  # manifests whose references it holds, too


@dataclass(frozen=True, slots=True, kw_only=True)
class ChunkWrites:
    """Writes chunks beside whatever else is done, and keeps them for the append that goes on."""

    storage: Storage
    pool: Executor
    kept: Cache
    begun: list[Future[None]] = field(default_factory=list)

    def put(self, path: str, body: bytes) -> None:
        """Begin to write a chunk."""
        self.begun.append(self.pool.submit(self.storage.put, path, body))
        if len(body) <= self.kept.limit // 8:
            self.kept.put(("chunk", path), body, len(body))


class ManifestReads:
    """Reads manifests, each once, beside whatever else is done."""

    def __init__(self, assets: Assets, pool: Executor, kept: Cache) -> None:
        """Read nothing yet; what is ``kept`` of appends before is not read."""
        self._assets, self._pool, self._kept = assets, pool, kept
        self._begun: dict[ObjectId12, Future[Manifest]] = {}

    def of(self, keys: Iterable[ObjectId12]) -> dict[ObjectId12, Future[Manifest]]:
        """Begin to read manifests that were not read yet."""
        found = {}
        for key in keys:
            if key not in self._begun:
                self._begun[key] = self._pool.submit(self._read, key)
            found[key] = self._begun[key]
        return found

    def _read(self, key: ObjectId12) -> Manifest:
        kept: Manifest | None = self._kept.find(("tables", key))
        return self._assets.read_manifest(key) if kept is None else kept

    def keep(self, made: Manifest) -> None:
        """Keep what was written for the next append, if its file holds all that the tables do."""
        tables = made.arrays.values()
        if not any(each.locations.has_two_checksums() for each in tables):
            self._kept.put(("tables", made.id), made, sum(map(nbytes, tables)))


def store_tail(
    assets: Assets,
    tip: Snapshot,
    growth: Lengthened,
    added: AddedChunks,
    *,
    hot: str,
    read: ManifestReads,
    variables: StoredVariables,
    pool: Executor,
) -> StoredTail:
    """Write chunks and manifests of what is added.

    Args:
        assets: Of the repository.
        tip: What is added to.
        growth: The arrays that become longer.
        added: Their new references and values.
        hot: The manifest that an append wrote last, if there is one.
        read: Of manifests, some of which is under way.
        variables: Stores what is added to stored variables.
        pool: Makes requests beside each other.

    Raises:
        OtherwiseError: Stored values are not stored any more, or cut in another way.
    """
    count = sum(len(table) for _, table in added.references) + len(growth.values)
    joined = _find_hot(tip, growth, hot, count)
    met = _find_met(tip, growth, added, joined)
    needed = {ref.object_id for each in growth.values for ref in each.node.manifests}
    needed |= {key for keys in met.values() for key in keys}
    needed |= {key for each in growth.stored for key in each.manifests_changed}
    needed |= set() if joined is None else {joined}
    manifests = {key: future.result() for key, future in read.of(needed).items()}
    if joined is not None and manifests[joined].unkept:
        joined = None  # a newer client stored what would be lost
    writes = ChunkWrites(storage=assets.storage, pool=pool, kept=cache_of(assets.storage))
    sink = Sink(repo=writes, inline_threshold=variables.config.inline_threshold)
    values = [
        pool.submit(_with_values, assets, each, added.values.get(each.node.id), manifests, sink)
        for each in growth.values
    ]
    of_stored = {each.node.id for each in growth.stored}
    references = [(key, table) for key, table in added.references if key not in of_stored]
    values += [
        pool.submit(_with_stored, variables, each, _references_of(added, each), manifests)
        for each in growth.stored
    ]
    by_id = {each.node.id: each for each in growth.references}
    tables = [_Table(array=by_id[key], table=table) for key, table in references if len(table)]
    chunks: dict[ObjectId8, list[NDArray[np.uint32]]] = {}
    for each in tables:
        chunks.setdefault(each.array.node.id, []).append(each.table.index)
    counts: dict[str, ReferenceCounts] = {}
    for future in values:
        made, new = future.result()
        tables.append(made)
        chunks[made.array.node.id] = [new.index]
        counts[made.array.added.path] = ReferenceCounts.of(new)
    ids = frozenset(bytes(row) for each in tables for row in each.table.chunk_ids)
    listed = pool.submit(content_names.record, assets.storage, column(ids))
    closed: list[_Table] = []
    if joined is not None or met:
        closed, tables = _beside(tables, joined, met, manifests)
    found = [*_encode(assets, closed, read), *_encode(assets, tables, read)]
    many = sum(len(one) for each in chunks.values() for one in each) > MAX_LISTED
    infos = [info for info, _, _ in found]
    last = infos[-1] if infos else None
    is_open = last is not None and last.num_chunk_refs < HOT_REFERENCES
    return StoredTail(
        nodes=_nodes(growth, [(info, pile) for info, _, pile in found], joined),
        written={info.id: info for info in infos},
        chunks={} if many else {key: _in_order(parts) for key, parts in chunks.items()},
        touched=frozenset(chunks) if many else frozenset(),
        values=counts,
        hot=str(last.id) if last is not None and is_open else "",
        objects={layout.manifest(info.id): raw for info, raw, _ in found},
        writes=(*writes.begun, listed),
    )


def _in_order(parts: Sequence[NDArray[np.uint32]]) -> NDArray[np.uint32]:
    index = np.concatenate(parts)
    return index[np.lexsort(index.T[::-1])] if index.shape[1] else index


def _find_hot(tip: Snapshot, growth: Lengthened, hot: str, count: int) -> ObjectId12 | None:
    """Return the hot manifest if the new references have room in it."""
    if not hot:
        return None
    key = ObjectId12.parse(hot)
    info = tip.manifest(key)
    there = any(ref.object_id == key for each in growth.arrays for ref in each.node.manifests)
    has_room = info is not None and info.num_chunk_refs + count <= HOT_REFERENCES
    return key if there and has_room else None


def _find_met(
    tip: Snapshot, growth: Lengthened, added: AddedChunks, joined: ObjectId12 | None
) -> dict[ObjectId8, frozenset[ObjectId12]]:
    """Return the manifests among whose references new ones lie, by array.

    Readers look into one manifest only: the first whose extents hold a chunk. So extents of one
    array must not overlap, and what lies among others is written with them.

    Raises:
        OtherwiseError: They hold too much to be written again.
    """
    boxes: dict[ObjectId8, list[_Box]] = {}
    for key, table in added.references:
        if len(table):
            boxes.setdefault(key, []).append(np.array(table.extents(), np.int64))
    found = {}
    for each in growth.references:
        if each.node.id not in boxes:
            continue
        refs = {ref.object_id: ref.extents for ref in each.node.manifests}
        met, hull = set[ObjectId12](), _hull(boxes[each.node.id])
        hit = [joined] if joined in refs else _meeting(refs, hull)
        while hit:
            met.update(hit)
            hull = _hull(
                [
                    hull,
                    *(
                        np.array(box if len(box := refs.pop(key)) else hull, np.int64)
                        for key in hit
                    ),
                ]
            )
            hit = _meeting(refs, hull)
        if met:
            found[each.node.id] = frozenset(met)
    infos = map(tip.manifest, frozenset[ObjectId12]().union(*found.values()))
    if sum(info.num_chunk_refs for info in infos if info is not None) > _MOST_AGAIN:
        raise OtherwiseError("new files lie among too many others in manifests")
    return found


type _Box = NDArray[np.int64]  # (axes, 2) the first, and the one behind the last


def _hull(boxes: Sequence[_Box]) -> _Box:
    every = np.stack(boxes)
    return np.stack([every[:, :, 0].min(axis=0), every[:, :, 1].max(axis=0)], axis=1)


def _meeting(refs: Mapping[ObjectId12, Extents], box: _Box) -> list[ObjectId12]:
    """Return the manifests whose extents overlap a box."""
    if not refs:
        return []
    every = np.array([refs[key] if len(refs[key]) else box for key in refs], np.int64).reshape(
        -1, *box.shape
    )
    meets = ((every[:, :, 0] < box[:, 1]) & (every[:, :, 1] > box[:, 0])).all(axis=1)
    return [key for key, hit in zip(refs, meets.tolist(), strict=True) if hit]


def _beside(
    tables: Sequence[_Table],
    joined: ObjectId12 | None,
    met: Mapping[ObjectId8, frozenset[ObjectId12]],
    manifests: Mapping[ObjectId12, Manifest],
) -> tuple[list[_Table], list[_Table]]:
    """Return tables with the references of the same arrays that manifests hold.

    Where these become too many, those before the new ones come apart, for a manifest to which
    nothing is added.
    """
    found, news = [], list[ChunkTable | None]()
    of_array: dict[ObjectId8, list[_Table]] = {}  # of several, where new files lie in two windows
    for each in tables:
        of_array.setdefault(each.array.node.id, []).append(each)
    for key, some in of_array.items():
        node, first = some[0].array.node, some[0]
        there = {ref.object_id for ref in node.manifests}
        keys = met.get(key, frozenset()) | ({joined} & there if joined else set())
        held = _table(node, manifests, sorted(keys - first.replaces))
        if not len(held):
            found += some
            news += [None] * len(some)
            continue
        arrived = ChunkTable.concatenate([each.table for each in some])
        try:
            both = ChunkTable.concatenate([held, arrived]).sort()
        except ValueError as error:
            raise OtherwiseError(f"{node.path} has values where new files lie") from error
        found.append(replace(first, table=both, replaces=first.replaces | keys))
        news.append(arrived)
    if not met or sum(len(each.table) for each in found) <= HOT_REFERENCES:
        return [], found
    closed, left = [], []
    for each, new in zip(found, news, strict=True):
        before = None if new is None else _before(each.table, new)
        if before is None:
            left.append(each)
            continue
        closed.append(replace(each, table=each.table.take(before)))
        left.append(replace(each, table=each.table.take(~before)))
    return closed, left


def _before(table: ChunkTable, new: ChunkTable) -> NDArray[np.bool_] | None:
    """Return which references lie before the new ones, along the axis that has most of them."""
    low = np.array(new.extents(), np.int64)[:, 0]
    before = table.index < low
    axis = int(np.argmax(before.sum(axis=0)))
    return before[:, axis] if before[:, axis].any() else None


def _encode(
    assets: Assets, tables: Sequence[_Table], read: ManifestReads
) -> Iterator[tuple[ManifestFile, bytes, list[_Table]]]:
    """Yield few manifests, none with two tables of an array: facts, bytes, tables."""
    piles: list[list[_Table]] = []
    held: set[ObjectId8] = set()
    size = 0
    for each in sorted(tables, key=lambda each: -len(each.table)):
        key = each.array.node.id
        if not piles or key in held or size + len(each.table) > MAX_REFERENCES:
            piles.append([])
            held, size = set(), 0
        piles[-1].append(each)
        held.add(key)
        size += len(each.table)
    how = assets.manifests
    for pile in piles:
        arrays = {each.array.node.id: compact(each.table) for each in pile}
        made = manifest.encode(arrays, level=how.level, locations=how.locations)
        read.keep(Manifest(id=made.id, arrays=arrays))
        info = ManifestFile(
            id=made.id, size_bytes=len(made.raw), num_chunk_refs=made.num_chunk_refs
        )
        yield info, made.raw, pile


def _nodes(
    growth: Lengthened,
    found: Sequence[tuple[ManifestFile, list[_Table]]],
    joined: ObjectId12 | None,
) -> dict[str, ArrayNode]:
    """Return the arrays as they will be."""
    new: dict[ObjectId8, list[ManifestRef]] = {}
    replaced: dict[ObjectId8, frozenset[ObjectId12]] = {}
    for info, pile in found:
        for each in pile:
            key = each.array.node.id
            ref = ManifestRef(object_id=info.id, extents=each.table.extents())
            new.setdefault(key, []).append(ref)
            replaced[key] = each.replaces | replaced.get(key, frozenset())
    nodes = {}
    for array in growth.arrays:
        key, path = array.node.id, array.node.path
        kept = [
            ref
            for ref in array.node.manifests
            if ref.object_id not in replaced.get(key, ())
            and (ref.object_id != joined or key not in new)
        ]
        refs = sorted((*kept, *new.get(key, ())), key=lambda ref: [low for low, _ in ref.extents])
        nodes[path] = array_of(path, array.zarr_json, key, tuple(refs))
    return nodes


# -- values that are stored ----------------------------------------------------------------------


def _with_values(
    assets: Assets,
    each: LengthenedArray,
    new: NDArray[Any] | None,
    manifests: Mapping[ObjectId12, Manifest],
    sink: Sink,
) -> tuple[_Table, ChunkTable]:
    """Write the chunks of values from the first that changes; return all, and which are new."""
    if new is None:
        raise OtherwiseError(f"the new files have no values of {each.node.path}")
    held = _table(each.node, manifests, (ref.object_id for ref in each.node.manifests))
    before = _values_behind(assets, each.node, held, axis=each.axis, kept=each.kept)
    document = document_of(array_of(each.node.path, each.zarr_json, each.node.id, ()))
    edge = document["chunk_grid"]["configuration"]["chunk_shape"][each.axis]
    if each.scattered is not None:
        values = _scatter(each, each.scattered, before, new)
    else:
        values = new if before is None else np.concatenate([before, new], axis=each.axis)
    at = tuple(each.kept if axis == each.axis else 0 for axis in range(values.ndim))
    chunks = -(-values.shape[each.axis] // edge)
    written = store_large(encode_chunks(each.zarr_json, values, at, chunks), sink)
    left = held.take(held.index[:, each.axis] < each.kept // edge)
    table = ChunkTable.concatenate([left, written]).sort() if len(left) else written
    every = frozenset(ref.object_id for ref in each.node.manifests)
    return _Table(array=each, table=table, replaces=every), written


def _with_stored(
    variables: StoredVariables,
    each: LengthenedArray,
    new: ChunkTable,
    manifests: Mapping[ObjectId12, Manifest],
) -> tuple[_Table, ChunkTable]:
    """Store the chunks of a variable from the first that changes; return as `_with_values`."""
    held = _table(each.node, manifests, each.manifests_changed)
    refuse_virtual(each, held)
    written = variables.chunks(each, new)
    left = held.take(held.index[:, each.axis] < each.first)
    table = ChunkTable.concatenate([left, written]) if len(left) else written
    return _Table(array=each, table=table, replaces=each.manifests_changed), written


def _references_of(added: AddedChunks, each: LengthenedArray) -> ChunkTable:
    """Return the references that are added to an array."""
    tables = [table for key, table in added.references if key == each.node.id and len(table)]
    return ChunkTable.concatenate(tables) if tables else ChunkTable.empty(len(each.node.shape))


def _table(
    node: ArrayNode, manifests: Mapping[ObjectId12, Manifest], keys: Iterable[ObjectId12]
) -> ChunkTable:
    found: Iterable[ChunkTable | None] = (manifests[key].arrays.get(node.id) for key in keys)
    tables = [table for table in found if table is not None]
    return ChunkTable.concatenate(tables) if tables else ChunkTable.empty(len(node.num_chunks))


def _scatter(
    each: LengthenedArray, how: Scattered, before: NDArray[Any] | None, new: NDArray[Any]
) -> NDArray[Any]:
    """Return the values from the first chunk that is cut anew, with the new ones in their places.

    Raises:
        OtherwiseError: Other values are there.
    """
    document = json.loads(each.zarr_json)
    shape, fill = document["shape"], fill_of(document)
    shape[each.axis] -= each.kept
    values, known = np.full(shape, fill, new.dtype), np.zeros(shape, np.bool_)
    if before is not None:
        box = tuple(map(slice, before.shape))
        values[box], known[box] = before, True
    axes = tuple(how.into)
    front = range(len(axes))
    into = tuple(how.into[axis] - (each.kept if axis == each.axis else 0) for axis in axes)
    view, added = np.moveaxis(values, axes, front), np.moveaxis(new, axes, front)
    old, added = view[into], added[tuple(how.of[axis] for axis in axes)]
    other = np.moveaxis(known, axes, front)[into] & ~_equal(old, added)
    if (other & ~_equal(old, fill) if how.may_fill else other).any():
        raise OtherwiseError(f"{each.node.path} has other values where new files lie")
    view[into] = added
    return values


def _equal(one: NDArray[Any], other: Any) -> NDArray[np.bool_]:
    """Say where values are equal, or neither is a number."""
    found: NDArray[np.bool_] = (one == other) | ((one != one) & (other != other))  # noqa: PLR0124
    return found


def read_whole(
    assets: Assets, node: ArrayNode, manifests: Mapping[ObjectId12, Manifest]
) -> NDArray[Any]:
    """Return the values of an array that are stored.

    Raises:
        OtherwiseError: They are not, or cut in another way, or there are none or too many.
    """
    if 8 * math.prod(node.shape) > MOST_REWRITTEN:
        raise OtherwiseError(f"{node.path} has too many values")
    held = _table(node, manifests, (ref.object_id for ref in node.manifests))
    found = _values_behind(assets, node, held, axis=0, kept=0)
    if found is None:
        raise OtherwiseError(f"{node.path} has no values")
    return found


def _values_behind(
    assets: Assets, node: ArrayNode, held: ChunkTable, *, axis: int, kept: int
) -> NDArray[Any] | None:
    """Return the values from the first chunk that is cut anew; None where there are none."""
    document = document_of(node)
    edges = document["chunk_grid"]["configuration"]["chunk_shape"]
    others = [(n, e) for at, (n, e) in enumerate(zip(node.shape, edges, strict=True)) if at != axis]
    if any(max(1, length) != edge for length, edge in others) or kept % edges[axis]:
        raise OtherwiseError(f"the stored values of {node.path} are cut in another way")
    numbers = range(kept // edges[axis], node.num_chunks[axis])
    if not numbers or not math.prod(node.shape):
        return None
    index = np.zeros((len(numbers), len(node.shape)), np.int64)
    index[:, axis] = numbers
    rows = held.rows_of(index)
    if (rows < 0).any():
        raise OtherwiseError(f"values of {node.path} are missing")
    with naming_variable(node):
        parts = [
            decode_chunk(document, edges, _bytes_of(assets, node, held, row))
            for row in rows.tolist()
        ]
    values = np.concatenate(parts, axis=axis)
    end = node.shape[axis] - kept
    return values[(slice(None),) * axis + (slice(0, end),)]


def _bytes_of(assets: Assets, node: ArrayNode, held: ChunkTable, row: int) -> bytes:
    at, length = int(held.offset[row]), int(held.length[row])
    kind = int(held.kind[row])
    if kind == ChunkType.inline:
        return held.inline[at : at + length].tobytes()
    if kind != ChunkType.native:
        raise OtherwiseError(f"values of {node.path} are not stored in the repository")
    key = ObjectId12(held.chunk_ids[int(held.source[row])].tobytes())
    kept: bytes | None = cache_of(assets.storage).find(("chunk", layout.chunk(key)))
    if kept is not None:
        return kept[at : at + length]
    return assets.chunk(key, offset=at, length=length)


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredVariables:
    """Where chunks are read and stored."""

    storage: Storage
    head: RepoInfoFile
    config: RepositoryConfig  # with the containers of the new files
    access: Mapping[str, GrantedAccess]  # to the new files
    tip: Snapshot  # whose latitudes weigh what is made coarser

    def chunks(self, each: LengthenedArray, added: ChunkTable) -> ChunkTable:
        """Store the chunks of an array from the first that changes.

        Args:
            each: The array.
            added: The references of the new files; where chunks are cut, as if there were no
                others.

        Raises:
            OtherwiseError: What is written again is not stored.
        """
        kept = KeptChunks(self.storage, each.node.path, self.config.inline_threshold)
        if not each.is_cut:
            locator = ReferenceLocator(session_of(self._context, each.node), Staleness("raise"))
            rows = np.flatnonzero(added.kind == ChunkType.virtual)
            return copy_rows(locator, added, rows, kept)
        made = node_of(each.node.path, each.zarr_json, each.node.id)
        assert isinstance(made, ArrayNode), "the metadata is that of an array"
        box = tuple((0, count) for count in made.num_chunks)
        first = each.first
        box = (*box[: each.axis], (first, box[each.axis][1]), *box[each.axis + 1 :])
        values, dtype = self._values(each, added)
        width = 8 * each.coarsen.size if each.coarsen else dtype.itemsize
        return encode_box(values, width, each.zarr_json, box, kept)

    def _values(self, each: LengthenedArray, added: ChunkTable) -> tuple[Any, np.dtype[Any]]:
        """Return a function that reads a region of the array as it will be, and its dtype."""
        axis, length = each.axis, each.node.shape[each.axis]
        how, fine = each.coarsen, open_array(self._new(each, added), each.node.path)
        weights = read_weights(Session(self._context, self.tip), how)
        new = as_coarse(fine, json.loads(each.added.zarr_json), how, weights)
        # it may read no file of the dataset
        stored_alone = session_of(self._context._replace(credentials={}), each.node)
        old = open_array(stored_alone, each.node.path)

        def values(region: tuple[slice, ...]) -> NDArray[Any]:
            before, along, after = region[:axis], region[axis], region[axis + 1 :]
            parts = []
            if along.start < length:
                with naming_variable(each.node):
                    end = min(along.stop, length)
                    parts.append(old[(*before, slice(along.start, end), *after)])
            if along.stop > length:
                begin = max(along.start, length) - length
                parts.append(new[(*before, slice(begin, along.stop - length), *after)])
            return np.concatenate(parts, axis=axis)

        return values, old.dtype

    def _new(self, each: LengthenedArray, added: ChunkTable) -> Session:
        """Return a session that reads the new files alone."""
        alone = node_of(each.node.path, each.added.zarr_json, each.node.id)
        assert isinstance(alone, ArrayNode), "the metadata is that of an array"
        if not len(added):
            return session_of(self._context, alone)
        ref = ManifestRef(object_id=ObjectId12.random(), extents=added.extents())
        session = session_of(self._context, alone._replace(manifests=(ref,)))
        session.assets.lookup.keep(ref.object_id, {alone.id: compact(added)})
        return session

    @property
    def _context(self) -> Context:
        return Context(
            assets=Assets(self.storage, compares=True),
            head=self.head,
            config=self.config,
            credentials=self.access,
            commit_metadata={},
        )


def refuse_virtual(each: LengthenedArray, held: ChunkTable) -> None:
    """Check that chunks which are written again are stored.

    Raises:
        OtherwiseError: Some are not.
    """
    changed = held.index[:, each.axis] >= each.first
    if (held.kind[changed] == ChunkType.virtual).any():
        raise OtherwiseError(f"values of {each.node.path} are not stored in the repository")
