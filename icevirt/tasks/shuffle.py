"""Shuffle packed references: read each catalog part once, and send references to their items.

It is for datasets whose order differs from that of the catalog's parts, where every window would
have to read nearly all of them. A map task reads parts and sends rows of about a mebibyte, in which
files are numbers; behind the shuffle an item's task holds the references of its windows and of no
other item. The closed catalog is the only input, so no attempt can see another version of a file.
"""

from __future__ import annotations

import pickle
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from icevirt.archive import catalog
from icevirt.archive.blocks.cutting import dumps, join, loads, part_of
from icevirt.archive.blocks.packing import Block, unpack
from icevirt.archive.facts import FileColumns
from icevirt.archive.joining import Form
from icevirt.archive.plan import ArrayMode, FileRows, ManifestTask, WindowTask
from icevirt.catalog.arrow_columns import place_of, places_by_part
from icevirt.catalog.parts import frozen, thaw
from icevirt.catalog.references import RefsReader
from icevirt.storage.protocol import Storage

_AT_ONCE = 4_000_000
"""References that a map task gathers before it sends all it has."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bound:
    """The chunks that a window wants of an axis."""

    axis: int  # counted from the last, -1
    low: int
    high: int
    begin: NDArray[np.int64] | None  # (files of the part,) None: all begin at 0
    own: tuple[NDArray[np.int64], NDArray[np.int64]] | None = None
    """(files of the part,) The first of a file's own chunks that counts, and the last. Others are
    looked at with the nearest of them, so that each reference is counted once."""

    def covers(self, block: Block) -> bool:
        """Say whether all references of a block surely lie within, whichever files they are of."""
        if self.axis + block.index.shape[1] < 0:
            return True  # an axis that the file has not; it lies where its window is
        if self.own is not None or not len(block):
            return False
        column, begin = block.index[:, self.axis], self.begin
        first, last = (0, 0) if begin is None else (int(begin.min()), int(begin.max()))
        return first + int(column.min()) >= self.low and last + int(column.max()) < self.high


@dataclass(frozen=True, slots=True, kw_only=True)
class _Need:
    """What an item needs of a part: some files of some arrays."""

    item: int  # its place among the items to write
    boxes: Mapping[str, tuple[Bound, ...]]  # by array
    rows: NDArray[np.int32]  # of the files in the part
    places: NDArray[np.int32]  # of the same files in the item


@dataclass(frozen=True, slots=True, kw_only=True)
class MapTask:
    """Parts of the catalog, and who needs what of them."""

    parts: tuple[str, ...]
    catalog: Storage
    needs: bytes  # pickled and compressed: for each part its needs


type _Sent = tuple[str, tuple[int, int], bytes]
"""A row of the shuffle: path of the array, order among rows of one item and array, references."""


class Needs:
    """Gathers what items need, by part."""

    def __init__(self) -> None:
        self._of: dict[str, list[_Need]] = defaultdict(list)

    def add(self, to: int, item: ManifestTask) -> None:
        """Note what an item needs; windows whose values the plan holds need nothing."""
        files = item.files
        runs = places_by_part(files.part, len(files.parts))
        for name, run in zip(files.parts, runs, strict=True):
            for places in _layers(files, run):
                need = _Need(
                    item=to,
                    boxes=_boxes(item, places),
                    rows=files.row[places].astype(np.int32),
                    places=places.astype(np.int32),
                )
                self._of[name].append(need)

    def tasks(self, storage: Storage, count: int) -> tuple[MapTask, ...]:
        """Deal the parts to at most ``count`` tasks."""
        names = sorted(self._of)
        runs = np.array_split(np.arange(len(names)), max(1, min(count, len(names))))
        return tuple(
            MapTask(
                parts=tuple(names[at] for at in run.tolist()),
                catalog=storage,
                needs=frozen([self._of[names[at]] for at in run.tolist()]),
            )
            for run in runs
            if len(run)
        )


def _layers(files: FileRows | FileColumns, run: NDArray[np.int64]) -> Iterator[NDArray[np.int64]]:
    """Yield the places of a part's files, of which several boxes may count, each file once."""
    while True:
        first = np.unique(files.row[run], return_index=True)[1]
        if len(first) == len(run):
            yield run
            return
        yield run[np.sort(first)]
        run = np.delete(run, first)


def _boxes(item: ManifestTask, places: NDArray[np.int64]) -> dict[str, tuple[Bound, ...]]:
    """Return what an item wants of some of its files, by array."""
    boxes: dict[str, tuple[Bound, ...]] = {}
    for window in item.windows:
        cuts = window.is_form(Form.cut).any()  # what it wants is known when runs are cut
        wanted = window.takes & ~window.is_form(Form.beside)
        for path, _ in window.read_from(wanted) if window.values is None else ():
            # arrays that files call each other's names want all that either wants
            boxes[path] = () if path in boxes or cuts else bounds_of(window, places)
    return boxes


def bounds_of(window: WindowTask, places: NDArray[np.int64]) -> tuple[Bound, ...]:
    """Return what a window wants of some files of its item."""
    if window.mode is ArrayMode.join or window.whole.any():
        return ()  # values of a whole file are one chunk
    ndim = len(window.box)
    bounds = []
    for axis, (low, high) in enumerate(window.box):
        begin = own = None
        if axis in window.axes:
            at = window.axes.index(axis)
            begin = window.grids[axis].chunk_at(window.starts[places, at])
            if (found := window.chunks_of_files(at)) is not None:
                own = found[0][places], found[1][places]
        bounds.append(Bound(axis=axis - ndim, low=low, high=high, begin=begin, own=own))
    return tuple(bounds)


def within(
    block: Block,
    rows: NDArray[np.int64],
    bounds: Sequence[Bound],
    place: NDArray[np.integer],
) -> NDArray[np.int64]:
    """Return the rows of a block that a window wants, among some of them.

    Args:
        block: References of one array.
        rows: (k,) Rows of it.
        bounds: What the window wants.
        place: (n,) The file of each row, as the bounds number files.
    """
    for bound in bounds:
        if bound.axis + block.index.shape[1] < 0:
            continue  # an axis that the file has not; it lies where its window is
        index = block.index[rows, bound.axis].astype(np.int64)
        if bound.own is not None:
            low, high = (each[place[rows]] for each in bound.own)
            index = np.clip(index, low, high) - low
        if bound.begin is not None:
            index += bound.begin[place[rows]]
        rows = rows[(index >= bound.low) & (index < bound.high)]
    return rows


def run_map(task: MapTask, number: int) -> Iterator[tuple[int, bytes]]:
    """Read the parts of a task and yield rows for the items; ``number`` is that of the task."""
    needs: list[list[_Need]] = thaw(task.needs)
    refs = RefsReader(task.catalog, budget=0)
    outbox = _Outbox(number)
    for part, wanted in zip(task.parts, needs, strict=True):
        for path in sorted({path for need in wanted for path in need.boxes}):
            for block in map(unpack, refs.blocks(part, path)):
                for need in wanted:
                    if path in need.boxes:
                        yield from outbox.put(need, path, block)
    yield from outbox.rest()


class _Outbox:
    """Collects references until they are worth a row."""

    def __init__(self, task: int) -> None:
        self._task = task
        self._held: dict[tuple[int, str], list[Block]] = defaultdict(list)
        self._counts: dict[tuple[int, str], int] = defaultdict(int)
        self._sizes: dict[tuple[int, str], int] = defaultdict(int)
        self._sent = 0

    def put(self, need: _Need, path: str, block: Block) -> Iterator[tuple[int, bytes]]:
        """Take what the item needs of a block; yield what is worth a row now."""
        mine_of = place_of(block.file, need.rows, np.arange(len(need.rows)))
        rows = np.flatnonzero(mine_of >= 0)
        rows = within(block, rows, need.boxes[path], mine_of)
        if not len(rows):
            return
        key, mine = (need.item, path), part_of(block, rows, need.places[mine_of[rows]])
        self._held[key].append(mine)
        self._counts[key] += len(mine)
        self._sizes[key] += len(mine.data)
        if self._counts[key] >= catalog.BLOCK_REFS or self._sizes[key] >= catalog.BLOCK_DATA:
            yield self._row(key)
        elif sum(self._counts.values()) >= _AT_ONCE:
            yield from self.rest()

    def rest(self) -> Iterator[tuple[int, bytes]]:
        """Yield all that is held."""
        for key in sorted(self._held):
            yield self._row(key)

    def _row(self, key: tuple[int, str]) -> tuple[int, bytes]:
        self._sent += 1
        del self._counts[key], self._sizes[key]
        sent: _Sent = key[1], (self._task, self._sent), dumps(join(self._held.pop(key)))
        return key[0], pickle.dumps(sent)


class Arrived:
    """The references that were sent to one item."""

    def __init__(self, rows: Sequence[bytes]) -> None:
        sent: list[_Sent] = [pickle.loads(row) for row in rows]  # noqa: S301  # made by `run_map`
        self._rows: Mapping[str, list[bytes]] = defaultdict(list)
        for path, _, references in sorted(sent, key=lambda row: row[1]):
            self._rows[path].append(references)

    def expect(self, files: FileRows, paths: Collection[str]) -> None:
        """Do nothing: all of it is here."""

    def locate(self, files: FileRows, takes: NDArray[np.bool_], path: str) -> Iterator[Block]:
        """Yield the references of one array in some of the item's files."""
        del files  # what was sent numbers them as the item does
        for row in self._rows[path]:
            block = loads(row)
            kept = np.flatnonzero(takes[block.file])
            if len(kept) == len(block):
                yield block
            elif len(kept):
                yield part_of(block, kept, block.file[kept])
