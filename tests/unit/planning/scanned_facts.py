"""Facts of files that no scan has seen, and a dataset read from a plan of them, value by value."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import xarray as xr

from grouping import combine_spec
from icevirt.archive.facts import ArrayColumns, CatalogFacts, Coded, Counts, FileColumns, Labels
from icevirt.archive.kinds import EvenRuns, KindColumn, narrow
from icevirt.archive.plan import ArrayMode, BuildPlan, PlannedArray
from icevirt.archive.schema import ArraySchema, ScannedGroup
from icevirt.model.attributes import Attributes
from icevirt.model.strings import Strings
from icevirt.planning.combine.options import CombineSpec
from icevirt.planning.eras.group_plan import combine_eras
from icevirt.planning.times.recoding import recode_values

BYTES = ({"name": "bytes", "configuration": {"endian": "little"}},)
ZLIB = (*BYTES, {"name": "numcodecs.zlib", "configuration": {"level": 4}})
DAYS = {"units": "days since 2000-01-01"}


@dataclass(frozen=True, kw_only=True)
class Variable:
    """A variable of a file, with its values."""

    dims: tuple[str, ...]
    values: np.ndarray
    chunks: tuple[int, ...] | None  # None: its values were read by the scan
    attrs: Mapping[str, Any] = field(default_factory=dict)
    codecs: tuple[Any, ...] = ZLIB
    fill: Any = 0
    digest: str | None = None  # None: of its values; "": the scan took none
    labels: bool = False  # whether its values were kept
    written: int | None = None  # references, where some chunks were never written

    @property
    def schema(self) -> ArraySchema:
        """Return what is alike in many files."""
        kind = self.values.dtype
        name = {"U": "fixed_length_utf32", "S": "null_terminated_bytes"}.get(kind.kind)
        text = {"name": name, "configuration": {"length_bytes": kind.itemsize}}
        return ArraySchema(
            dimension_names=self.dims,
            chunk_shape=self.chunks,
            data_type=kind.name if name is None else text,
            codecs=BYTES if self.chunks is None else self.codecs,
            fill_value=self.fill,
            attributes=Attributes.of(self.attrs),
        )

    @property
    def references(self) -> int:
        """Return how many chunks there are."""
        if self.chunks is None:
            return 1
        grid = [-(-n // edge) for n, edge in zip(self.values.shape, self.chunks, strict=True)]
        return int(np.prod(grid)) if self.written is None else self.written


@dataclass(frozen=True)
class File:
    """A file; paths of variables without a slash lie in the root group."""

    name: str
    variables: Mapping[str, Variable]
    attrs: Mapping[str, Any] = field(default_factory=dict)
    modified: int = 0

    @property
    def url(self) -> str:
        """Return where it lies."""
        return f"file:///data/{self.name}"


def coord(dim: str, values: Any, **attrs: Any) -> Variable:
    """Return a coordinate, which the scan read."""
    return Variable(dims=(dim,), values=np.asarray(values), chunks=None, attrs=attrs, labels=True)


def label(value: Any, **attrs: Any) -> Variable:
    """Return a variable with one value and no dimension, which the scan read."""
    return Variable(dims=(), values=np.asarray(value), chunks=None, attrs=attrs, labels=True)


def data(dims: Sequence[str] | str, values: Any, **changes: Any) -> Variable:
    """Return a compressed variable; it is one chunk unless ``chunks`` says otherwise."""
    held = np.asarray(values)
    names = (dims,) if isinstance(dims, str) else tuple(dims)
    chunks = changes.pop("chunks", tuple(max(1, n) for n in held.shape))
    return Variable(dims=names, values=held, chunks=chunks, **changes)


def step(name: str, *times: float, dims: str = "time", **more: Any) -> File:
    """Return a file with some steps of ``/t`` and their coordinate; a chunk holds one step."""
    first = data((dims, "x"), np.outer(times, [1.0, 2.0, 3.0]).astype("f4"), chunks=(1, 3))
    own = {key: more.pop(key) for key in ("attrs", "modified") if key in more}
    variables = {"t": first, dims: coord(dims, np.array(times, float)), **more}
    return File(name, {key: each for key, each in variables.items() if each is not None}, **own)


def facts_of(*files: File) -> CatalogFacts:
    """Return what a catalog of the files says of them."""
    rows = [
        (at, path if path.startswith("/") else f"/{path}", variable)
        for at, file in enumerate(files)
        for path, variable in file.variables.items()
    ]
    return CatalogFacts(
        files=FileColumns(
            parts=("p0",),
            part=np.zeros(len(files), np.int32),
            row=np.arange(len(files), dtype=np.int32),
            url=Strings.of([file.url for file in files]),
            etag=Strings.empty(len(files)),
            size=np.full(len(files), 1 << 20, np.int64),
            last_modified=np.array([file.modified for file in files], np.int64),
        ),
        arrays=_columns(rows),
        groups_of=lambda row, *, saying="": (
            ScannedGroup(path="/", attributes=Attributes.of(files[row].attrs)),
        ),
        places=Strings.of([file.url for file in files]),
    )


def _columns(rows: Sequence[tuple[int, str, Variable]]) -> ArrayColumns:
    kept = [at for at, (_, _, each) in enumerate(rows) if each.labels]
    raws = [rows[at][2].values.tobytes() for at in kept]
    stored = np.array([each.chunks is None for _, _, each in rows], np.bool_)
    count = np.array([each.references for _, _, each in rows], np.int64)
    size = np.array([each.values.nbytes for _, _, each in rows], np.int64)
    return ArrayColumns(
        file=np.array([at for at, _, _ in rows], np.int32),
        path=Coded.of([path for _, path, _ in rows]),
        schema=Coded.of([each.schema.dumps() for _, _, each in rows]),
        shape=Coded.of([json.dumps(each.values.shape) for _, _, each in rows]),
        digest=Coded.of([_digest(each) for _, _, each in rows]),
        labels=Labels(
            row=np.array(kept, np.int64),
            value=np.arange(len(kept)),
            data=np.frombuffer(b"".join(raws), np.uint8),
            starts=np.cumsum([0, *map(len, raws)], dtype=np.int64),
            dtype=Coded.of([rows[at][2].values.dtype.str for at in kept]),
        ),
        virtual=Counts(np.where(stored, 0, count)),
        inline=Counts(np.where(stored, count, 0)),
        virtual_bytes=Counts(np.where(stored, 0, size)),
        inline_bytes=Counts(np.where(stored, size, 0)),
    )


def _digest(variable: Variable) -> str:
    held = variable.values
    if variable.digest is not None:
        return variable.digest
    return hashlib.sha256(repr((held.dtype.str, held.shape, held.tobytes())).encode()).hexdigest()


def spec(*dims: str, **options: Any) -> CombineSpec:
    """Return what a user chose: options of combining, and fields of the spec beside them."""
    return combine_spec(concat_dim=dims, **options)


def plan(files: Sequence[File], *dims: str, **options: Any) -> BuildPlan:
    """Combine files along dimensions."""
    return combine_eras(facts_of(*files), spec(*(dims or ("time",)), **options))


def names(made: BuildPlan) -> list[str]:
    """Return the files of a plan, in their order, without folder."""
    return [url.rsplit("/", 1)[1] for url in made.files.url]


def shown(made: BuildPlan, files: Sequence[File]) -> xr.Dataset:
    """Return the dataset that a plan describes, as stored, each value copied to its place."""
    by_url = {file.url: file for file in files}
    rows = [by_url[url] for url in made.files.url]
    dataset: dict[str, tuple[Any, np.ndarray]] = {}
    for array in made.arrays:
        dims = json.loads(array.zarr_json).get("dimension_names", [])
        if array.mode is ArrayMode.given:
            assert array.values is not None
            dataset[array.path] = (dims, array.values)
            continue
        sources = [array.source_path] * len(array.files)
        if array.sources is not None:
            sources = [array.sources[at] for at in range(len(array.files))]
        boxes = [
            _held(rows[file], array, file, source)[_counting(array, at)]
            for at, (file, source) in enumerate(zip(array.files.tolist(), sources, strict=True))
        ]
        whole = np.full(array.shape, _fill(array), boxes[0].dtype)
        for box, starts, lengths in zip(boxes, array.starts, array.lengths, strict=True):
            place = [slice(None)] * whole.ndim
            for axis, low, length in zip(array.axes, starts, lengths, strict=True):
                place[axis] = slice(int(low), int(low) + int(length))
            whole[tuple(place)] = box
        dataset[array.path] = (dims, whole)
    return xr.Dataset({path.removeprefix("/"): each for path, each in dataset.items()})


def _held(file: File, array: PlannedArray, row: int, source: str) -> np.ndarray:
    """Return a file's values of an array, with the axes that the dataset adds."""
    known = {(p if p.startswith("/") else f"/{p}"): each for p, each in file.variables.items()}
    values = known[source].values
    if array.times is not None:
        values = recode_values(values, array.times, row, path=source, url=file.url)
    return values.reshape((1,) * (len(array.shape) - values.ndim) + values.shape)


def _counting(array: PlannedArray, at: int) -> tuple[slice, ...]:
    """Return which part of a file's values counts."""
    box = [slice(None)] * len(array.shape)
    if array.skips is not None:
        for axis, skip, length in zip(array.axes, array.skips[at], array.lengths[at], strict=True):
            box[axis] = slice(int(skip), int(skip) + int(length))
    return tuple(box)


def _fill(array: PlannedArray) -> Any:
    value = array.schema.fill_value
    return float(value) if isinstance(value, str) and value == "NaN" else value


def by_kind(facts: CatalogFacts) -> CatalogFacts:
    """Return the same facts as a catalog's reader holds them: once for each kind of array."""
    arrays = facts.arrays
    names = ("path", "schema", "shape", "digest")
    counts = ("virtual", "inline", "virtual_bytes", "inline_bytes")
    table = np.stack(
        [
            *(np.asarray(getattr(arrays, name).codes, np.int64) for name in names),
            *(np.asarray(getattr(arrays, name).held, np.int64) for name in counts),
        ],
        axis=1,
    )
    kinds, kind = np.unique(table, axis=0, return_inverse=True)
    kind = narrow(kind.reshape(-1))
    columns = [KindColumn(kind, column) for column in kinds.T]
    return replace(
        facts,
        arrays=replace(
            arrays,
            file=EvenRuns.of(np.asarray(arrays.file, np.int32), len(facts.files)),
            **{
                name: Coded(column, getattr(arrays, name).values)
                for name, column in zip(names, columns[: len(names)], strict=True)
            },
            **{
                name: Counts(column)
                for name, column in zip(counts, columns[len(names) :], strict=True)
            },
        ),
    )
