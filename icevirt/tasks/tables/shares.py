"""Divide a table among tasks: which manifests each reads, and what of them.

The driver knows nodes and manifests of a snapshot. It reads no manifest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import islice

import numpy as np

from icevirt.access.references import names_of
from icevirt.errors import FormatError, InvalidInputError
from icevirt.ids import ObjectId8, ObjectId12
from icevirt.model.chunks import ChunkTable, Manifest
from icevirt.model.snapshot import ArrayNode, Extents, ManifestRef, Snapshot
from icevirt.repo.assets import Assets
from icevirt.repo.repository import Repository
from icevirt.storage.protocol import Storage
from icevirt.tasks.tables.query import WITHOUT_ARRAYS, ChunkRange, TableQuery
from icevirt.versioning.manifest_splitting import along_arrays

_AHEAD = 2  # manifests that are fetched while one is looked at


@dataclass(frozen=True, slots=True, kw_only=True)
class PieceArray:
    """An array, some of whose references are in a manifest."""

    node_id: ObjectId8
    path: str
    ndim: int
    extents: Extents  # () covers everything


@dataclass(frozen=True, slots=True, kw_only=True)
class ManifestPiece:
    """What is wanted of one manifest."""

    manifest: ObjectId12
    references: int  # that it holds, as the snapshot says
    arrays: tuple[PieceArray, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TableShare:
    """What one task shows of a table."""

    table: str
    assets: Assets  # of the repository
    version: ObjectId12  # the snapshot
    named: tuple[tuple[str, str], ...] = ()  # (url_prefix, name) of containers
    box: tuple[ChunkRange, ...] | None = None
    pieces: tuple[ManifestPiece, ...] = ()
    described: tuple[ArrayNode, ...] = ()  # whose metadata it shows; without their manifests

    def manifests(self) -> Iterator[tuple[ManifestPiece, Manifest]]:
        """Yield the manifests, of which a few more are fetched meanwhile."""
        with ThreadPoolExecutor(_AHEAD, thread_name_prefix="icevirt-table") as pool:

            def fetch(piece: ManifestPiece) -> tuple[ManifestPiece, Future[bytes]]:
                return piece, pool.submit(self.assets.manifest_file, piece.manifest)

            left = iter(self.pieces)
            waiting = [fetch(piece) for piece in islice(left, _AHEAD)]
            try:
                while waiting:
                    piece, raw = waiting.pop(0)
                    body = raw.result()
                    del raw
                    waiting += [fetch(each) for each in islice(left, 1)]
                    yield piece, self.assets.decoded_manifest(piece.manifest, body)
            finally:
                for _, raw in waiting:
                    raw.cancel()

    def wanted(self, array: PieceArray, manifest: Manifest) -> ChunkTable | None:
        """Return the references of an array in a manifest that a reader sees, inside the box.

        Raises:
            FormatError: They are of an array with another number of dimensions.
        """
        table = manifest.arrays.get(array.node_id)
        if table is None or not len(table):
            return None
        if table.ndim != array.ndim:
            raise FormatError(
                "a manifest does not fit the array that refers to it",
                do="Run `icevirt check` and restore the file from a copy.",
                path=array.path,
                dimensions=array.ndim,
                found=table.ndim,
            )
        low = np.zeros(table.ndim, np.int64)
        high = np.full(table.ndim, 1 << 32, np.int64)
        if array.extents:
            low, high = np.array(array.extents, np.int64).T
        for axis, (first, last) in enumerate(self.box or ()):
            low[axis] = max(low[axis], first)
            high[axis] = high[axis] if last is None else min(high[axis], last)
        box = np.array(table.extents(), np.int64).reshape(-1, 2)
        if np.all(box[:, 0] >= low) and np.all(box[:, 1] <= high):
            return table
        inside = np.all((table.index >= low) & (table.index < high), axis=1)
        return table.take(np.flatnonzero(inside)) if inside.any() else None


def planned(storage: Storage, query: TableQuery, *, at_most: int) -> tuple[TableShare, ...]:
    """Divide a table among at most so many tasks, a manifest each or several.

    Raises:
        RepositoryNotFoundError: There is no repository.
        RefNotFoundError, SnapshotNotFoundError: No such version.
        NodeNotFoundError: There is no such array.
        InvalidInputError: Chunks are asked for without one array, or with another
            number of dimensions.
    """
    repo = Repository.open(storage)
    if query.table == "ops_log":
        repo.head.read_v2("the ops log")
        return (TableShare(table=query.table, assets=repo.assets, version=ObjectId12(bytes(12))),)
    session = repo.readonly_session(query.branch, tag=query.tag, snapshot_id=query.snapshot_id)
    whole = TableShare(
        table=query.table,
        assets=repo.assets,
        version=session.snapshot.id,
        named=names_of(session.config.virtual_chunk_containers),
        box=query.box,
    )
    if query.table in WITHOUT_ARRAYS:
        return (whole,)
    arrays = _arrays(session.snapshot, query)
    pieces = _pieces(session.snapshot, arrays, query.box)
    shares = [replace(whole, pieces=run) for run in _runs(pieces, at_most)]
    if query.table == "arrays":
        bare = tuple(replace(node, manifests=()) for node in arrays)
        shares[:1] = [replace(shares[0] if shares else whole, described=bare)]
    return tuple(shares)


def narrowed(
    shares: Sequence[TableShare], keep: Callable[[ManifestPiece, PieceArray], bool]
) -> tuple[TableShare, ...]:
    """Return shares without what need not be read; one of which nothing is left goes."""
    found = []
    for share in shares:
        kept = (
            replace(piece, arrays=tuple(each for each in piece.arrays if keep(piece, each)))
            for piece in share.pieces
        )
        if pieces := tuple(piece for piece in kept if piece.arrays):
            found.append(replace(share, pieces=pieces))
    return tuple(found)


def _arrays(snapshot: Snapshot, query: TableQuery) -> tuple[ArrayNode, ...]:
    if query.array is None:
        return tuple(snapshot.arrays())
    node = snapshot.node(query.array)
    if isinstance(node, ArrayNode):
        if query.box is not None and len(query.box) != len(node.num_chunks):
            raise InvalidInputError(
                "the ranges of chunks are not as many as the array has dimensions",
                do="Pass a number or a range for each dimension, ':' for all of one.",
                array=node.path,
                num_chunks=node.num_chunks,
                ranges=len(query.box),
            )
        return (node,)
    if query.box is not None:
        raise InvalidInputError(
            "chunks need one array, and this is a group",
            do="Pass the path of an array, or leave out chunks.",
            array=query.array,
        )
    return tuple(each for each in snapshot.below(node.path) if isinstance(each, ArrayNode))


def _pieces(
    snapshot: Snapshot, arrays: Sequence[ArrayNode], box: tuple[ChunkRange, ...] | None
) -> tuple[ManifestPiece, ...]:
    """Return the manifests in which there are chunks of the arrays inside the box.

    Those that refer to the same files are next to one another: a task then counts a file for all
    its arrays, and returns one row for it.
    """
    found: dict[ObjectId12, list[PieceArray]] = {}
    for node in arrays:
        for ref in node.manifests:
            if _meets(ref, box):
                piece = PieceArray(
                    node_id=node.id,
                    path=node.path,
                    ndim=len(node.num_chunks),
                    extents=ref.extents,
                )
                found.setdefault(ref.object_id, []).append(piece)
    return tuple(
        ManifestPiece(
            manifest=key,
            references=0 if (info := snapshot.manifest(key)) is None else info.num_chunk_refs,
            arrays=tuple(found[key]),
        )
        for key in along_arrays(arrays)
        if key in found
    )


def _meets(ref: ManifestRef, box: tuple[ChunkRange, ...] | None) -> bool:
    if box is None or not ref.extents:
        return True
    return all(
        first < high and (last is None or last > low)
        for (low, high), (first, last) in zip(ref.extents, box, strict=True)
    )


def _runs(pieces: Sequence[ManifestPiece], at_most: int) -> Iterator[tuple[ManifestPiece, ...]]:
    """Yield runs of manifests with about as many references each."""
    if len(pieces) <= at_most:
        yield from ((piece,) for piece in pieces)
        return
    ends = np.cumsum([piece.references + 1 for piece in pieces])
    share = -(-int(ends[-1]) // at_most)
    number = (ends - 1) // share
    cuts = np.flatnonzero(np.diff(number)) + 1
    for run in np.split(np.arange(len(pieces)), cuts):
        yield tuple(pieces[at] for at in run.tolist())
