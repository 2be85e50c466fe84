"""Resolve a virtual dataset to references into its sources, where their chunks align.

They align when every mapping pairs a box with a box, no two mappings meet, all sources have equal
types, filters and chunk shapes, chunks meet chunks, and holes of sources read as holes of the
virtual dataset do. Otherwise there is a reason, and the values are read through libhdf5.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
from h5py import h5d, h5o, h5s
from numpy.typing import NDArray

from icevirt.archive.scanned import ScannedArray
from icevirt.errors import ScanError, UnsupportedError
from icevirt.model.chunks import ChunkTable, Locations
from icevirt.model.json import JSON
from icevirt.remedy_notation import write_remedy
from icevirt.scan.contract import ByteSource
from icevirt.scan.elsewhere import beside
from icevirt_scanners import blocks
from icevirt_scanners.context import LEAVE_OUT
from icevirt_scanners.hdf5.attributes import FoundAttributes
from icevirt_scanners.hdf5.chunked import offset_of, read_index, reference_chunks
from icevirt_scanners.hdf5.datatypes import NoDataTypeError, element_of
from icevirt_scanners.hdf5.files import FileContext, HeldFile, explained, hold_open, outside
from icevirt_scanners.hdf5.hierarchy import VariableAxis, describe_dataset, object_at
from icevirt_scanners.hdf5.mappings import (
    Box,
    Fit,
    Mapping,
    OddNameError,
    Shape,
    grid_of_runs,
    is_run,
    mappings_of,
    overlap,
)
from icevirt_scanners.hdf5.raw.header import RawFile
from icevirt_scanners.hdf5.variable import HDF5Variable, variable_of

_PREFIX = "HDF5_VDS_PREFIX"
_DEEPEST = 8  # virtual datasets over each other


@contextmanager
def source_file(context: FileContext, name: str, facts: dict[str, Any]) -> Iterator[Any]:
    """Open the file that a virtual dataset of the context's file names; None where it is missing.

    Raises:
        UnsupportedError: It lies where it may not, or libhdf5 would look for it elsewhere.
        ScanError: It is damaged.
    """
    if name == ".":
        yield context
        return
    try:
        source = _find(context, name, facts)
    except UnsupportedError as error:
        raise outside(error, facts) from error
    if source is None:
        yield None
        return
    with source:
        for known in (context, *context.parents):
            if source.file.url == known.source.file.url:
                yield known
                return
        context.beside[source.file.url] = source.file
        with hold_open(source, again=True) as file, explained(source.file.url):
            yield _nest(context, source, file)


def _find(context: FileContext, name: str, facts: dict[str, Any]) -> Any:
    path = context.source.local_path
    if path is None:
        url = beside(context.source.file.url, name)
        if url is None:
            raise UnsupportedError("a source whose name is not a relative path", source=name)
        return context.elsewhere.source(url)
    if _PREFIX in os.environ:
        raise ScanError(
            f"the environment variable {_PREFIX} says where sources of virtual datasets lie",
            do="Unset it: the source of values must not depend on the process.",
            **facts,
        )
    directory = Path(path).parent
    places = [directory / name]  # of an absolute name it is the name itself
    if os.path.isabs(name):
        places.append(directory / Path(name).name)
    if os.path.isabs(name) and not os.path.lexists(name):
        del places[0]  # libhdf5 goes on as well, and files with such names were often moved
    for place in places:
        found = context.elsewhere.source(str(place))
        if found is not None:
            return found
    if not os.path.isabs(name) and os.path.lexists(name):
        raise ScanError(
            "a source of the values is missing beside the file, and found in the working directory",
            do=write_remedy("Move it beside the file, or scan from another directory. ", LEAVE_OUT),
            **facts,
            source=name,
        )
    return None


def _nest(context: FileContext, source: ByteSource, file: HeldFile) -> FileContext:
    inner = FileContext.of(
        source,
        replace(context.options, concat_dim=None, pad=()),
        file=file,
        raw=RawFile.of(source, base=file.fid.get_create_plist().get_userblock()),
        elsewhere=context.elsewhere,
        beside=context.beside,
        parents=(context, *context.parents),
        above=context.above,
    )
    inner.budget = context.budget
    return inner


def source_dataset(context: FileContext, name: str, facts: dict[str, Any]) -> HDF5Variable:
    """Return a dataset of a source file as it lies there, without anything of netCDF.

    Its path is that of the virtual dataset, which is what a person can leave out.

    Raises:
        ScanError: It is missing, or leads back to itself.
        UnsupportedError: Its values lie in raw files, or zarr has no type for them.
    """
    found = object_at(context.fid, name.encode("utf-8", "surrogateescape"))
    if not isinstance(found, h5d.DatasetID):
        raise ScanError("a source of the values is missing", do=LEAVE_OUT, **facts, dataset=name)
    address = h5o.get_info(found).addr
    dataset = describe_dataset(found, facts["variable"], b"", address)
    dataset.header = context.header(address)
    plist = found.get_create_plist()
    if plist.get_external_count():
        raise UnsupportedError(
            "a virtual dataset over raw files", do=LEAVE_OUT, **facts, dataset=name
        )
    if plist.get_layout() == h5d.VIRTUAL:
        key = (context.source.file.url, dataset.address)
        if key in context.above or len(context.above) >= _DEEPEST:
            raise ScanError(
                "a virtual dataset that refers to itself, or through too many others",
                do=LEAVE_OUT,
                **facts,
                dataset=name,
            )
    try:
        element = element_of(found.get_type())
    except NoDataTypeError as error:
        raise UnsupportedError(str(error), do=LEAVE_OUT, **facts, dataset=name) from error
    shape = (*(dataset.shape or ()), *element.inner)
    axes = tuple(VariableAxis("") for _ in shape)
    return variable_of(
        dataset, FoundAttributes(), element=element, axes=axes, shape=shape, context=context
    )


_MOST_COUNTED = 1 << 28  # chunks of a grid in which overlaps are looked for
_LEAST = 512  # bytes of a piece of a contiguous source that is worth a reference
_ENCODER_ONLY = ("level", "clevel")


@dataclass(slots=True, kw_only=True)
class Resolved:
    """The result for a virtual dataset: an array of references, or the reason why there is none."""

    facts: dict[str, Any]  # for errors: file and variable of the virtual dataset
    array: ScannedArray | None = None
    reason: str = ""
    files: int = 0  # that were found
    missing: list[str] = field(default_factory=list)  # names of files that were not found
    missing_behind: list[str] = field(default_factory=list)  # sources of sources
    by_own_name: bool = False  # a source is named by the name of the file itself
    sources: list[_Source] = field(default_factory=list)


class _ReasonError(Exception):
    """Why the sources cannot be referenced."""


@dataclass(slots=True, kw_only=True)
class _Source:
    """A dataset that values are taken from, and the boxes that are taken."""

    shape: Shape
    chunk: Shape | None  # None: contiguous
    codecs: tuple[JSON, ...]
    table: ChunkTable | None  # of its chunks
    offset: int | None  # of a contiguous one; None where it was never written
    locations: Locations
    size: int  # bytes of the file
    url: str
    same_fill: bool
    fits: list[Fit] = field(default_factory=list)


def resolve(variable: HDF5Variable, context: FileContext) -> Resolved:
    """Look at every source, and make references if that is possible.

    Raises:
        ScanError: All sources are missing, or one is too short or damaged.
        UnsupportedError: One lies where it may not, or is of a kind that cannot be followed.
    """
    facts: dict[str, Any] = {"file": context.source.file.url, "variable": variable.path}
    found = Resolved(facts=facts)
    files = _by_file(variable, facts, remote=context.source.local_path is None)
    context.above.append((context.source.file.url, variable.address))
    try:
        for name, datasets in files.items():
            with source_file(context, name, facts) as inner:
                if inner is None:
                    found.missing.append(name)
                    continue
                own = {**facts, "source": inner.source.file.url}
                for dataset, mappings in datasets.items():
                    _look(variable, source_dataset(inner, dataset, own), mappings, inner, found)
                if inner in (context, *context.parents):
                    found.by_own_name |= name != "."
                else:
                    context.findings += inner.findings
    finally:
        context.above.pop()
    found.files = len(files) - len(found.missing)
    if found.missing and not found.files:
        raise ScanError(
            "a source of the values is missing", do=LEAVE_OUT, **facts, source=found.missing[0]
        )
    found.missing += found.missing_behind
    try:
        found.array = None if found.reason else _join(variable, found.sources)
    except _ReasonError as reason:
        found.reason = str(reason)
    return found


def _look(
    variable: HDF5Variable,
    source: HDF5Variable,
    mappings: Sequence[Mapping],
    context: FileContext,
    found: Resolved,
) -> None:
    """Look at one source, and at its own sources whether it can be referenced or not."""
    facts = {**found.facts, "source": context.source.file.url}
    fitted = [_fit_mapping(each, variable, source, facts) for each in mappings]
    inner = Resolved(facts=facts)
    if source.layout == h5d.VIRTUAL:
        inner = resolve(source, context)
        found.missing_behind += inner.missing
        found.by_own_name |= inner.by_own_name
    try:
        _refuse_other(variable, source, inner)
        array = inner.array if source.chunk is None else _chunks_of(source, context)
        found.sources.append(_source(variable, source, array, fitted, context))
    except _ReasonError as reason:
        found.reason = found.reason or str(reason)


def _chunks_of(source: HDF5Variable, context: FileContext) -> ScannedArray:
    array = reference_chunks(source, read_index(source, context), context)
    if array is None or array.codecs != (source.element.codec(), *source.pipeline.keep()):
        raise _ReasonError("filters that libhdf5 skips")
    return array


def _by_file(
    variable: HDF5Variable, facts: dict[str, Any], *, remote: bool
) -> dict[str, dict[str, list[Mapping]]]:
    files: dict[str, dict[str, list[Mapping]]] = {}
    if remote and h5s.UNLIMITED in variable.limits:
        raise UnsupportedError(
            "an unlimited virtual dataset in a remote file: libhdf5 mistakes its sources for that "
            "file and so returns a wrong length",
            do="Copy it and its sources to local disk, or leave it out with drop_variables.",
            **facts,
        )
    try:
        for mapping in mappings_of(variable.plist, variable.own_shape):
            files.setdefault(mapping.file, {}).setdefault(mapping.dataset, []).append(mapping)
    except OddNameError as error:
        raise UnsupportedError(
            "a virtual dataset over files with odd numbers in their names",
            do=LEAVE_OUT,
            **facts,
            source=str(error),
        ) from error
    return files


def _fit_mapping(
    mapping: Mapping, variable: HDF5Variable, source: HDF5Variable, facts: dict[str, Any]
) -> Mapping:
    """Check that a source holds what is mapped: libhdf5 would read what lies behind it."""
    fitted = mapping.fit(variable.own_shape, source.own_shape)
    here, there = fitted.here, fitted.there
    short = len(mapping.reach) not in {0, len(source.own_shape)} or any(
        reach > length for reach, length in zip(mapping.reach, source.own_shape, strict=False)
    )
    if here is not None and there is not None:
        short |= prod(here.count) != prod(there.count) or not there.inside(source.own_shape)
    if short:
        raise ScanError(
            "a source of the values is too short, or of another shape",
            do=LEAVE_OUT,
            **facts,
            dataset=mapping.dataset,
            shape=source.own_shape,
            mapped=mapping.reach or (here.count if here is not None else ()),
        )
    return fitted


def _refuse_other(variable: HDF5Variable, source: HDF5Variable, resolved: Resolved) -> None:
    """Raise `_ReasonError` where a source's bytes are not those of the virtual dataset."""
    if resolved.reason:
        raise _ReasonError(resolved.reason)
    if not source.dsid.get_type().equal(variable.dsid.get_type()):
        raise _ReasonError("sources of another type")
    if source.element.not_plain or source.pipeline.not_plain:
        raise _ReasonError(source.element.not_plain or source.pipeline.not_plain)
    if source.layout == h5d.COMPACT:
        raise _ReasonError("sources in object headers")


def _source(
    variable: HDF5Variable,
    source: HDF5Variable,
    array: ScannedArray | None,
    mappings: Sequence[Mapping],
    context: FileContext,
) -> _Source:
    """Gather what is taken from a source; ``array`` has its chunks, None for a contiguous one."""
    inner = variable.element.inner
    fits = [
        _fit(mapping, variable, inner)
        for mapping in mappings
        if mapping.here is None or 0 not in mapping.here.count
    ]
    return _Source(
        shape=source.shape,
        chunk=array.chunk_shape if array is not None else None,
        codecs=array.codecs if array is not None else (source.element.codec(),),
        table=array.references if array is not None else None,
        offset=offset_of(source, context) if array is None else None,
        locations=context.location,
        size=context.source.file.size,
        url=context.source.file.url,
        same_fill=source.fill.tobytes() == variable.fill.tobytes(),
        fits=fits,
    )


def _fit(mapping: Mapping, variable: HDF5Variable, inner: Shape) -> Fit:
    if mapping.here is None or mapping.there is None:
        raise _ReasonError("selections that are not boxes")
    if not mapping.here.inside(variable.own_shape):
        raise _ReasonError("selections that leave it")
    here, there = (  # with the axes of an array type
        Box(start=(*box.start, *(0 for _ in inner)), count=(*box.count, *inner))
        for box in (mapping.here, mapping.there)
    )
    fit = Fit.of(here, there)
    if fit is None:
        raise _ReasonError("boxes of other forms")
    return fit


def _join(variable: HDF5Variable, sources: Sequence[_Source]) -> ScannedArray:
    """Put the references of all sources together."""
    if variable.shape != (*variable.own_shape, *variable.element.inner):
        raise _ReasonError("an unlimited dimension that is longer")
    used = [source for source in sources if source.fits]
    grid = _grid(variable, used)
    codecs = used[0].codecs if used else (variable.element.codec(),)
    if any(_decoding(source.codecs) != _decoding(codecs) for source in used):
        raise _ReasonError("sources with several filters")
    boxes = [(fit.first(grid), fit.counts(grid)) for source in used for fit in source.fits]
    for source in used:
        for fit in source.fits:
            if not fit.meets(grid, variable.shape, whole=source.chunk is None):
                raise _ReasonError("chunks that do not meet")
    counts = tuple(-(-n // edge) for n, edge in zip(variable.shape, grid, strict=True))
    if prod(counts) > _MOST_COUNTED or overlap(boxes, counts):
        raise _ReasonError("mappings that overlap")
    tables = [_table(variable, source, grid) for source in used]
    table = ChunkTable.concatenate(tables) if tables else ChunkTable.empty(len(variable.shape))
    contiguous = not any(source.chunk is not None for source in used)
    return variable.array(grid, codecs, table, contiguous=contiguous)


def _grid(variable: HDF5Variable, sources: Sequence[_Source]) -> Shape:
    chunked = [source for source in sources if source.chunk is not None]
    if chunked:
        chunk = chunked[0].chunk
        assert chunk is not None
        grid = chunked[0].fits[0].grid_here(chunk)
        for source in chunked:
            if any(fit.grid_here(source.chunk or ()) != grid for fit in source.fits):
                raise _ReasonError("chunks of several shapes")
        if grid is None:
            raise _ReasonError("chunks that are cut")
        return grid
    itemsize = variable.element.dtype.itemsize
    if not sources:
        return blocks.grid_of_block(variable.shape, itemsize)
    grid = grid_of_runs(
        [(fit, source.shape) for source in sources for fit in source.fits],
        itemsize,
    )
    if prod(grid) * itemsize < min(_LEAST, variable.nbytes):
        raise _ReasonError(f"runs of {prod(grid) * itemsize} bytes")
    return grid


def _decoding(codecs: tuple[JSON, ...]) -> list[Any]:
    """Leave out of codecs what only an encoder looks at."""
    kept: list[Any] = []
    for codec in codecs:
        assert isinstance(codec, dict)
        settings = codec.get("configuration") or {}
        assert isinstance(settings, dict)
        decoder = {key: value for key, value in settings.items() if key not in _ENCODER_ONLY}
        kept.append((codec["name"], decoder))
    return kept


def _table(variable: HDF5Variable, source: _Source, grid: Shape) -> ChunkTable:
    pairs = [fit.chunks(grid) for fit in source.fits]
    index = np.concatenate([mine for mine, _ in pairs])
    theirs = np.concatenate([their for _, their in pairs])
    if source.table is None:
        return _runs(variable, source, grid, index, theirs)
    rows = source.table.rows_of(theirs)
    if not source.same_fill and bool((rows < 0).any()):
        raise _ReasonError("holes of another fill value in sources")
    there = rows >= 0
    return replace(
        source.table.take(rows[there]), index=np.ascontiguousarray(index[there], np.uint32)
    )


def _runs(
    variable: HDF5Variable,
    source: _Source,
    grid: Shape,
    index: NDArray[np.int64],
    theirs: NDArray[np.int64],
) -> ChunkTable:
    """Cut a contiguous source into chunks."""
    itemsize = variable.element.dtype.itemsize
    if source.offset is None:
        if not source.same_fill:
            raise _ReasonError("holes of another fill value in sources")
        return ChunkTable.empty(len(grid))
    edges = source.fits[0].grid_there(grid)
    if not all(is_run(fit.grid_there(grid), source.shape) for fit in source.fits):
        raise _ReasonError("parts of contiguous sources")
    if any(fit.grid_there(grid) != edges for fit in source.fits):
        raise _ReasonError("parts of contiguous sources")
    strides = np.cumprod([itemsize, *source.shape[:0:-1]], dtype=np.int64)[::-1]
    steps = strides[: len(edges)] * np.array(edges, np.int64)
    offset = source.offset + (theirs * steps).sum(axis=1)
    length = np.full(len(offset), itemsize * prod(grid), np.int64)
    blocks.check_inside(offset, length, size=source.size, url=source.url, variable=variable.path)
    return ChunkTable.virtual(index=index, offset=offset, length=length, locations=source.locations)
