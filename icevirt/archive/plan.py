"""Define the plan of a build: frozen before anything is written, then executed exactly.

The write stage reads nothing but the closed catalog and the items of a plan.
Some chunks of a hybrid array are references and others are stored. Chunks that lie in one file, on
that file's own grid, and have the array's encoding stay references. All others are read from the
files when the array is written, and stored beside them.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from enum import Enum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from icevirt.amounts import plural
from icevirt.archive.eras import Eras
from icevirt.archive.facts import Coded, FileColumns
from icevirt.archive.index_shift import IndexShift
from icevirt.archive.joining import Form
from icevirt.archive.reports.build import (
    AxisSummary,
    BadFile,
    PlanCost,
    PlanDifference,
    ReferenceCounts,
    TwinAdvice,
)
from icevirt.archive.schema import ArraySchema, Recoding
from icevirt.errors import FormatError
from icevirt.escaping import Pictured, escape_line
from icevirt.ids import ObjectId8
from icevirt.model.config.containers import VirtualChunkContainer
from icevirt.model.config.document import RepositoryConfig, SplitRule
from icevirt.model.snapshot import Extent, Extents

MAX_REFERENCES = 500_000
"""Of one manifest. GDAL's reader stops at 1,000,000 FlatBuffers tables."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class AxisGrid:
    """The chunks along one axis: all of one length, or each as long as ``bounds`` say."""

    total: int  # elements
    edge: int
    bounds: NDArray[np.int64] | None = None  # (chunks + 1,) where they differ; begins with 0

    def __len__(self) -> int:
        return -(-self.total // self.edge) if self.bounds is None else len(self.bounds) - 1

    def chunk_at(self, elements: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the chunks in which elements lie; one behind the last for the end of the axis."""
        if self.bounds is None:
            return elements // self.edge
        return np.searchsorted(self.bounds, elements, side="right").astype(np.int64) - 1

    def begins(self, chunks: NDArray[np.int64] | int) -> NDArray[np.int64]:
        """Return the elements at which chunks begin; the end of the axis behind the last."""
        number = np.asarray(chunks, np.int64)
        if self.bounds is None:
            return np.minimum(number * self.edge, self.total)
        found: NDArray[np.int64] = self.bounds[number]
        return found

    def edge_of(self, chunk: int) -> int:
        """Return how many elements a chunk is encoded with; one at the end may be cut short."""
        if self.bounds is None:
            return self.edge
        return int(self.bounds[chunk + 1] - self.bounds[chunk])


def edges_of(
    schemas: Sequence[ArraySchema], own: NDArray[np.integer], axis: int, otherwise: int
) -> NDArray[np.int64]:
    """Return how long each file's own chunks are along an axis; ``own`` says which schema it has.

    ``otherwise`` is for files whose values were read.
    """
    edges = [each.chunk_shape[axis] if each.chunk_shape else otherwise for each in schemas]
    found: NDArray[np.int64] = np.array(edges, np.int64)[own]
    return found


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Hybrid:
    """What is known of the files of a hybrid array, a row each, and what storing it takes."""

    plain: NDArray[np.bool_]  # (k,) whether its chunks can be referenced where they line up
    own: NDArray[np.int32]  # (k,) which of ``schemas`` it has
    schemas: tuple[ArraySchema, ...]
    target: ArraySchema  # of the array; where it is no file's, values are decoded and encoded
    new_axes: int  # leading axes that the files lack
    bounds: NDArray[np.int64] | None  # (chunks + 1,) of a rectilinear grid along the axis
    chunks: int  # that are stored
    nbytes: int  # of their values
    scanned: int  # references of the plain files
    replaced: int  # of them, by stored chunks, where every chunk of the files was written
    why: str  # which files, and what about them
    shift: IndexShift | None = None  # (k,) what is added to the values of each file

    def edges(self, axis: int, otherwise: int) -> NDArray[np.int64]:
        """Return how long each file's own chunks are along an axis."""
        return edges_of(self.schemas, self.own, axis, otherwise)

    def spread(self, at: NDArray[np.int64], of: NDArray[np.int64], size: int) -> Hybrid:
        """Return the rows ``of`` at the places ``at`` of columns with ``size`` rows."""
        plain, own = np.zeros(size, np.bool_), np.zeros(size, np.int32)
        plain[at], own[at] = self.plain[of], self.own[of]
        shift = None if self.shift is None else self.shift.spread(at, of, size)
        return replace(self, plain=plain, own=own, shift=shift)


_INLINE = RepositoryConfig().inline_threshold  # bytes of a chunk that lies in a manifest


class ArrayMode(Enum):
    """How the chunks of an array come from the files."""

    once = "once"  # from the first file; all files hold the same
    concat = "concat"  # each file's chunks, shifted to where its box lies
    join = "join"  # values of all files, joined and stored in the repository
    given = "given"  # values that the plan holds, like the labels of a new dimension


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PlannedArray:
    """An array of the dataset to be."""

    path: str  # in the repository
    source_path: str  # in the files, unless ``sources`` says otherwise
    node_id: ObjectId8
    mode: ArrayMode
    axes: tuple[int, ...]  # n of them, along which files lie beside each other; () in mode once
    shape: tuple[int, ...]
    chunk_shape: tuple[int, ...]
    zarr_json: bytes
    schema: ArraySchema  # of the first file
    files: NDArray[np.int64]  # (k,) rows of the plan's files that it is made of
    starts: NDArray[np.int64]  # (k, n) where each one's box begins along the axes, in elements
    lengths: NDArray[np.int64]  # (k, n) how many elements it has along them
    whole: NDArray[np.bool_]  # (k,) whether its values were read at scan time
    whole_schema: ArraySchema | None  # of those files
    window: tuple[int, ...]  # chunks per manifest and axis
    references: ReferenceCounts  # as scanned
    expected: int  # references that must have been written, of every kind
    times: Recoding | None = None  # (the plan's files,) where files count time differently
    values: NDArray[Any] | None = None  # of mode given
    hybrid: Hybrid | None = None  # where some chunks are stored, or differ in length
    sources: Coded | None = None  # (k,) paths in the files, where these have other ones
    form: NDArray[np.uint8] | None = None  # (k,) of `Form`; None: as the catalog holds them
    skips: NDArray[np.int64] | None = None  # (k, n) elements of the file before those that count
    held: NDArray[np.int64] | None = None  # (k, n) elements of the whole file; None: ``lengths``

    @property
    def written(self) -> ReferenceCounts:
        """References of the dataset, as far as a plan can tell.

        Chunks that a repository stores lie in its manifests up to a size. Where they are encoded
        anew, or are of several sizes, a plan cannot tell which do.
        """
        found, each = self.references, self._bytes_of_chunk
        chunks, size = found.inline, found.bytes_stored
        if self.hybrid is not None:
            chunks, size = self.hybrid.chunks, self.hybrid.nbytes
        elif self.mode in (ArrayMode.join, ArrayMode.given):
            width = _width(self.schema)
            chunks, size = self.expected, size if width is None else math.prod(self.shape) * width
            found = ReferenceCounts()
        else:
            chunks = max(0, self.expected - found.virtual)
            each = size if chunks == found.inline == 1 else each
        kind = "stored" if each is None else "inline" if each <= _INLINE else "native"
        if size <= _INLINE // 2:  # however it is encoded
            kind = "inline"
        stays = ReferenceCounts(virtual=found.virtual, bytes_referenced=found.bytes_referenced)
        return stays + ReferenceCounts(**{kind: chunks, "bytes_stored": size})

    @property
    def _bytes_of_chunk(self) -> int | None:
        """The bytes of a chunk of values that are stored as they are; None: not known."""
        width = _width(self.schema)
        is_plain = len(self.schema.codecs) == 1 and all(e.bounds is None for e in self.grids)
        return math.prod(self.chunk_shape) * width if is_plain and width is not None else None

    @property
    def chunk_extents(self) -> tuple[int | Extent, ...]:
        """The length of chunks along each axis; where they differ, the least and the greatest."""
        return tuple(map(extent_of, self.chunk_shape, self.grids))

    @property
    def paths_in_files(self) -> tuple[str, ...]:
        """The paths under which the files have the array."""
        return (self.source_path,) if self.sources is None else self.sources.values

    @property
    def grid(self) -> tuple[int, ...]:
        """Number of chunks along each axis."""
        return tuple(map(len, self.grids))

    @property
    def grids(self) -> tuple[AxisGrid, ...]:
        """The chunks along each axis."""
        return grids_of(self.shape, self.chunk_shape, self.axes, self.hybrid)


def _width(schema: ArraySchema) -> int | None:
    """Return the bytes of one value; None where that depends on the value."""
    try:
        return np.dtype(str(schema.data_type)).itemsize or None
    except (TypeError, ValueError):  # the latter of a document that numpy takes for a list
        return None


def extent_of(edge: int, grid: AxisGrid) -> int | Extent:
    """Return the length of chunks along an axis; the least and the greatest where they differ."""
    if grid.bounds is None:
        return edge
    sizes = np.diff(grid.bounds)
    least, greatest = int(sizes.min()), int(sizes.max())
    return least if least == greatest else (least, greatest)


def grids_of(
    shape: Sequence[int], edges: Sequence[int], axes: Sequence[int], hybrid: Hybrid | None
) -> tuple[AxisGrid, ...]:
    """Return the chunks along each axis; along the first of ``axes`` they may differ in length."""
    bounds = None if hybrid is None else hybrid.bounds
    return tuple(
        AxisGrid(total=length, edge=edge, bounds=bounds if (at,) == axes[:1] else None)
        for at, (length, edge) in enumerate(zip(shape, edges, strict=True))
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftOut:
    """A file that is not in the dataset because another one holds the same steps."""

    url: str
    kept: str  # URL of the other one


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class BuildPlan(Pictured):
    """Everything a build will do, with files in the order of the dataset.

    Files that hold different arrays of the same box are adjacent.
    """

    build_id: str
    group: str
    concat_dim: tuple[str, ...]
    files: FileColumns
    groups: dict[str, bytes]  # path -> zarr.json
    arrays: tuple[PlannedArray, ...]
    containers: tuple[VirtualChunkContainer, ...]
    split_rules: tuple[SplitRule, ...]
    notes: tuple[str, ...]  # decisions, a line each
    left_out: tuple[LeftOut, ...] = ()
    bad_files: tuple[BadFile, ...] = ()  # left out because they cannot be scanned
    eras: Eras | None = None  # where each is a group
    cost: PlanCost | None = None  # if requested
    priced: tuple[TwinAdvice, ...] = ()  # what twins take of chunks that were named
    executor: str = ""  # that scanned the files, and will run a build of them in the same place
    dimensions: tuple[AxisSummary, ...] = ()  # along which files are concatenated
    difference: PlanDifference | None = None  # from the last build, where one was looked at
    origin: FileColumns | None = None  # where the files are read, if they are published elsewhere

    def __repr__(self) -> str:
        axes = {each.dimension: f" ({escape_line(each)})" for each in self.dimensions}
        named = (f"{escape_line(name)}{axes.get(name, '')}" for name in self.concat_dim)
        along = f" along {', '.join(named)}" if self.concat_dim else ""
        bad = f" ({len(self.bad_files):,} bad)" if self.bad_files else ""
        notes = f"  {plural(len(self.notes), 'note')}" if self.notes else ""
        return (
            f"<BuildPlan {plural(len(self.files), 'file')}{along}{bad}"
            f"  {plural(len(self.arrays), 'array')}"
            f"  {plural(sum(array.expected for array in self.arrays), 'reference')}{notes}>"
        )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class WindowTask:
    """The part of one array that goes into one manifest."""

    source_path: str
    node_id: ObjectId8
    mode: ArrayMode
    axes: tuple[int, ...]  # n of them
    box: Extents  # in chunks
    zarr_json: bytes
    chunk_shape: tuple[int, ...]
    direct: bool  # the catalog holds the chunks as the array wants them, values included
    shape: tuple[int, ...]  # of the whole array
    takes: NDArray[np.bool_]  # (files of the item,) whether the array is made of it
    starts: NDArray[np.int64]  # (files of the item, n) in elements
    lengths: NDArray[np.int64]  # (files of the item, n)
    whole: NDArray[np.bool_]  # (files of the item,)
    whole_schema: ArraySchema | None
    times: Recoding | None = None  # (files of the item,)
    values: NDArray[Any] | None = None  # of mode given
    hybrid: Hybrid | None = None  # (files of the item,)
    reads: tuple[tuple[str, NDArray[np.bool_]], ...] = ()  # path in, (files of the item,)
    form: NDArray[np.uint8] | None = None  # (files of the item,) of `Form`
    skips: NDArray[np.int64] | None = None  # (files of the item, n) None: files are whole
    held: NDArray[np.int64] | None = None  # (files of the item, n) elements of the whole file

    @property
    def grids(self) -> tuple[AxisGrid, ...]:
        """The chunks along each axis."""
        return grids_of(self.shape, self.chunk_shape, self.axes, self.hybrid)

    @property
    def in_files(self) -> NDArray[np.int64]:
        """Elements of the whole files along the axes, (files of the item, n)."""
        return self.lengths if self.held is None else self.held

    def chunks_of_files(self, at: int) -> tuple[NDArray[np.int64], NDArray[np.int64]] | None:
        """Return which of the files' own chunks count along the axis at a place; None: all.

        The first of them, and the last, (files of the item,).
        """
        if self.skips is None:
            return None
        axis = self.axes[at]
        edges = np.full(len(self.takes), self.chunk_shape[axis], np.int64)
        if self.hybrid is not None:
            edges = self.hybrid.edges(axis, self.chunk_shape[axis])
        skip = self.skips[:, at]
        last = (skip + np.maximum(self.lengths[:, at], 1) - 1) // edges
        return skip // edges, last

    def read_from(self, of: NDArray[np.bool_]) -> tuple[tuple[str, NDArray[np.bool_]], ...]:
        """Return paths of the array in some of the item's files, and which have it there."""
        if not self.reads:
            return ((self.source_path, of),)
        return tuple((path, mine & of) for path, mine in self.reads if (mine & of).any())

    def is_form(self, form: Form) -> NDArray[np.bool_]:
        """Say which files have the array in a form."""
        if self.form is None:
            return np.full(len(self.takes), form == Form.recorded)
        found: NDArray[np.bool_] = self.form == form
        return found

    def path_in(self, place: int) -> str:
        """Return the path of the array in one of the item's files."""
        return next((path for path, mine in self.reads if mine[place]), self.source_path)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class FileRows:
    """Where the catalog describes some files, which is where their names are read."""

    parts: tuple[str, ...]  # names of catalog parts
    part: NDArray[np.int32]  # (n,) index into ``parts``
    row: NDArray[np.int32]  # (n,) row of the file in its part

    @classmethod
    def of(cls, files: FileColumns) -> FileRows:
        """Return where files are described."""
        return cls(parts=files.parts, part=files.part, row=files.row)

    def __len__(self) -> int:
        return len(self.part)

    def take(self, rows: NDArray[np.integer]) -> FileRows:
        """Return the given rows, in their order, with only the parts they need."""
        chosen = self.part[rows]
        occurs = np.zeros(len(self.parts), np.bool_)
        occurs[chosen] = True
        used, number = np.flatnonzero(occurs), np.cumsum(occurs, dtype=np.int32) - 1
        return FileRows(
            parts=tuple(self.parts[at] for at in used.tolist()),
            part=number[chosen].astype(np.int32),
            row=self.row[rows],
        )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ManifestTask:
    """One manifest to be written: windows, and the files their references lie in."""

    number: int
    files: FileRows | FileColumns  # whose names are read in the catalog, or are other ones
    windows: tuple[WindowTask, ...]
    origin: FileColumns | None = None  # where the files are read, if they are published elsewhere

    def paths(self) -> frozenset[str]:
        """The arrays that the item needs of the files."""
        read = (window for window in self.windows if window.values is None)
        return frozenset(path for each in read for path, _ in each.read_from(each.takes))


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowResult:
    """One array's share of a written manifest."""

    node_id: bytes
    extents: Extents
    references: ReferenceCounts
    replaced: int = 0  # references of the catalog that are not written, or stored instead

    @property
    def is_empty(self) -> bool:
        """Whether nothing was written of the window, as no chunk of it was ever written."""
        return not self.extents and not self.references.total


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteResult:
    """What an executor says about one item; no references in it."""

    number: int
    manifest_id: bytes | None  # None: no chunk was ever written in these windows
    size_bytes: int
    num_chunk_refs: int
    windows: tuple[WindowResult, ...]
    chunk_ids: frozenset[bytes] = frozenset()  # of the chunk objects written with it


def dump_result(result: WriteResult) -> bytes:
    """Return the note of a finished item."""
    note = {
        "number": result.number,
        "manifest_id": None if result.manifest_id is None else result.manifest_id.hex(),
        "size_bytes": result.size_bytes,
        "num_chunk_refs": result.num_chunk_refs,
        "windows": [
            {
                "node_id": window.node_id.hex(),
                "extents": window.extents,
                "references": asdict(window.references),
                "replaced": window.replaced,
            }
            for window in result.windows
        ],
        "chunk_ids": sorted(key.hex() for key in result.chunk_ids),
    }
    return json.dumps(note).encode()


def load_result(raw: bytes) -> WriteResult:
    """Return what `dump_result` was given. Raises `FormatError`."""
    try:
        note = json.loads(raw)
        manifest = note["manifest_id"]
        return WriteResult(
            number=note["number"],
            manifest_id=None if manifest is None else bytes.fromhex(manifest),
            size_bytes=note["size_bytes"],
            num_chunk_refs=note["num_chunk_refs"],
            windows=tuple(
                WindowResult(
                    node_id=bytes.fromhex(window["node_id"]),
                    extents=tuple((low, high) for low, high in window["extents"]),
                    references=ReferenceCounts(**window["references"]),
                    replaced=window["replaced"],
                )
                for window in note["windows"]
            ),
            chunk_ids=frozenset(map(bytes.fromhex, note["chunk_ids"])),
        )
    except (ValueError, KeyError, TypeError) as error:
        raise FormatError(
            "the build's record of a finished item is damaged",
            do="Delete icevirt/builds in the repository, and build again.",
            cause=str(error),
        ) from error
