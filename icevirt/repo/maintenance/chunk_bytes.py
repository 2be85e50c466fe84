"""Compare the bytes of native chunks with their names, where a name is a digest.

A chunk whose bytes agree with its name is intact, whichever client wrote it. A chunk that disagrees
is damaged if a list says that its name covers its content; otherwise its name may be random, and it
counts as unverifiable. References are columns, and chunks are read in pieces, some in parallel.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from enum import IntEnum
from itertools import batched, groupby

import numpy as np
from numpy.typing import NDArray

from icevirt.errors import IcevirtError
from icevirt.ids import ObjectId8, ObjectId12
from icevirt.model.chunks import ChunkTable, ChunkType
from icevirt.model.snapshot import ArrayNode
from icevirt.repo import layout
from icevirt.repo.assets import Assets
from icevirt.repo.maintenance import content_names
from icevirt.repo.maintenance.chunk_sizes import ChunkSizes
from icevirt.versioning.id_columns import ID, id_at, of_rows, places
from icevirt.versioning.invariants import Problem

_PIECE = 4 << 20  # bytes of a chunk that are read at once
_SIDE_BY_SIDE = 16
_BATCH = 1 << 10
_NAMED = 3  # references to a damaged chunk that are named


@dataclass(frozen=True, slots=True, kw_only=True)
class ArrayChunks:
    """The native chunks of one array, each object once."""

    path: str
    intact: int
    damaged: int
    unverifiable: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ChunksReport:
    """What the bytes of all native chunks say. A chunk of several arrays counts once."""

    intact: int  # the bytes are those that the name was made of
    damaged: int  # missing, short, unreadable, or other bytes
    unverifiable: int  # the name is not known to be made of the bytes
    unlisted: int  # intact ones in no list: were they damaged, they would be unverifiable
    bytes_read: int
    arrays: tuple[ArrayChunks, ...]  # by path


class _State(IntEnum):
    intact = 0
    damaged = 1
    unverifiable = 2


@dataclass(frozen=True, slots=True)
class _Place:
    """An array's table in a manifest."""

    manifest: ObjectId12
    node: ObjectId8
    path: str


class ChunkBytes:
    """Collects the references to native chunks while manifests are walked, then compares."""

    def __init__(self, assets: Assets) -> None:
        self._assets = assets
        self._places: list[_Place] = []
        self._ids = [np.zeros(0, ID)]
        self._place = [np.zeros(0, np.uint32)]
        self._row = [np.zeros(0, np.int64)]
        self.problems: list[Problem] = []

    def add(self, manifest: ObjectId12, node: ArrayNode, table: ChunkTable) -> None:
        """Note the native chunks of an array's table, each once."""
        rows = np.flatnonzero(table.kind == ChunkType.native)
        if not len(rows):
            return
        ids, first = np.unique(of_rows(table.chunk_ids[table.source[rows]]), return_index=True)
        self._ids.append(ids)
        self._place.append(np.full(len(ids), len(self._places), np.uint32))
        self._row.append(rows[first])
        self._places.append(_Place(manifest, node.id, node.path))

    def compare(
        self, existing: ChunkSizes, lacking: NDArray[np.void], *, record: bool
    ) -> ChunksReport:
        """Read all chunks that were noted; what is wrong is in ``problems``.

        Args:
            existing: All chunk objects.
            lacking: Chunks that are missing or too short, ascending; they are not read.
            record: Also list the intact chunks that are in no list.
        """
        ids = np.concatenate(self._ids)
        order = np.argsort(ids, kind="stable")
        ids = ids[order]
        first = np.ones(len(ids), np.bool_)
        first[1:] = ids[1:] != ids[:-1]
        used, number = ids[first], np.cumsum(first) - 1
        place, row = np.concatenate(self._place)[order], np.concatenate(self._row)[order]
        listed = self._listed(used)
        sizes = existing.find(used)
        sizes[places(lacking, used) >= 0] = -1
        state = self._states(used, sizes, listed)
        wrong = (state == _State.damaged) & (sizes >= 0) & listed
        self._report(used, np.flatnonzero(wrong[number]), number, place, row)
        unlisted = (state == _State.intact) & ~listed
        if record:
            content_names.record(self._assets.storage, used[unlisted])
        counts = np.bincount(state, minlength=len(_State)).tolist()
        return ChunksReport(
            intact=counts[_State.intact],
            damaged=counts[_State.damaged],
            unverifiable=counts[_State.unverifiable],
            unlisted=0 if record else int(unlisted.sum()),
            bytes_read=int(sizes[sizes >= 0].sum()),
            arrays=self._by_array(number, place, state),
        )

    # -- inside ------------------------------------------------------------------------------

    def _listed(self, used: NDArray[np.void]) -> NDArray[np.bool_]:
        """Say which chunks are known to be named by their content."""
        listed, bad = content_names.recorded(self._assets.storage)
        self.problems += [
            Problem(file=path, code="content-names", what=str(error)) for path, error in bad.items()
        ]
        return places(listed, used) >= 0

    def _states(
        self, used: NDArray[np.void], sizes: NDArray[np.int64], listed: NDArray[np.bool_]
    ) -> NDArray[np.uint8]:
        """Read all chunks that have a size, and say what they are."""
        state = np.full(len(used), _State.damaged, np.uint8)
        with ThreadPoolExecutor(_SIDE_BY_SIDE, thread_name_prefix="icevirt-check") as pool:
            for some in batched(np.flatnonzero(sizes >= 0).tolist(), _BATCH):
                keys = [id_at(used, at) for at in some]
                for at, key, found in zip(
                    some,
                    keys,
                    pool.map(self._digest, keys, sizes[list(some)].tolist()),
                    strict=True,
                ):
                    if isinstance(found, IcevirtError):
                        problem = Problem(file=layout.chunk(key), code=found.code, what=str(found))
                        self.problems.append(problem)
                        listed[at] = False  # it is reported already
                    elif found == key:
                        state[at] = _State.intact
                    elif not listed[at]:
                        state[at] = _State.unverifiable
        return state

    def _digest(self, key: ObjectId12, size: int) -> ObjectId12 | IcevirtError:
        """Return the name that the bytes of a chunk make."""
        pieces = (
            self._assets.chunk(key, offset=at, length=min(_PIECE, size - at))
            for at in range(0, size, _PIECE)
        )
        try:
            return ObjectId12.of_pieces(size, pieces)
        except IcevirtError as error:
            return error

    def _report(
        self,
        used: NDArray[np.void],
        wrong: NDArray[np.int64],
        number: NDArray[np.int64],
        place: NDArray[np.uint32],
        row: NDArray[np.int64],
    ) -> None:
        """Note a problem for each chunk whose bytes are not those that its name was made of."""
        named = {at: self._reference(int(place[at]), int(row[at])) for at in wrong.tolist()}
        for chunk, rows in groupby(wrong.tolist(), key=lambda at: int(number[at])):
            where = list(dict.fromkeys(named[at] for at in rows))
            more = f" and {len(where) - _NAMED} more" if len(where) > _NAMED else ""
            self.problems.append(
                Problem(
                    file=layout.chunk(id_at(used, chunk)),
                    code="chunk-bytes",
                    what="its bytes do not agree with its name, so"
                    f" {', '.join(where[:_NAMED])}{more} reads wrong values or none: restore the"
                    " object from a copy, or write the chunk again",
                )
            )

    def _reference(self, place: int, row: int) -> str:
        """Name an array and the index of a chunk."""
        at = self._places[place]
        index = self._assets.manifest(at.manifest)[at.node].table.index[row].tolist()
        return f"{at.path} {index}"

    def _by_array(
        self, number: NDArray[np.int64], place: NDArray[np.uint32], state: NDArray[np.uint8]
    ) -> tuple[ArrayChunks, ...]:
        paths = sorted({at.path for at in self._places})
        numbers = {path: n for n, path in enumerate(paths)}
        array = np.array([numbers[at.path] for at in self._places], np.int64)[place]
        distinct = np.unique(np.stack([array, number], axis=1), axis=0)
        of_array, of_chunk = distinct.reshape(-1, 2).T
        counts = np.zeros((len(paths), len(_State)), np.int64)
        np.add.at(counts, (of_array, state[of_chunk]), 1)
        return tuple(
            ArrayChunks(path=path, intact=intact, damaged=damaged, unverifiable=unverifiable)
            for path, (intact, damaged, unverifiable) in zip(paths, counts.tolist(), strict=True)
        )
