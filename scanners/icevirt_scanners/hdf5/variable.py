"""Describe one HDF5 dataset with everything that decides its representation."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from contextlib import suppress
from functools import cache, lru_cache
from math import prod
from typing import Any, NamedTuple

import numpy as np
from h5py import h5d, h5s
from numpy.typing import NDArray

from icevirt.archive.scanned import ScannedArray
from icevirt.model import paths
from icevirt.model.attributes import Attributes, with_enumeration
from icevirt.model.chunks import ChunkTable, ChunkType
from icevirt.model.json import JSON
from icevirt_scanners.blocks import LARGE
from icevirt_scanners.encoding import default_fill
from icevirt_scanners.hdf5.attributes import FoundAttributes
from icevirt_scanners.hdf5.datatypes import Element
from icevirt_scanners.hdf5.files import FileContext, Handle, beside, check_elsewhere
from icevirt_scanners.hdf5.filters import BUILT_IN, Pipeline, filters_of_plist, pipeline_of
from icevirt_scanners.hdf5.hierarchy import Dimensions, FoundDataset, VariableAxis
from icevirt_scanners.hdf5.libhdf5_values import fill_json, fill_of, has_default, is_filled
from icevirt_scanners.hdf5.raw.arrays import ChunkEntries
from icevirt_scanners.hdf5.raw.chunks import Leaf, layout_of, without_address
from icevirt_scanners.hdf5.raw.header import (
    DATASPACE,
    DATATYPE,
    EXTERNAL_FILES,
    FILL,
    FILTERS,
    SHARED,
    ObjectHeader,
    RawFile,
    StorageLayout,
)
from icevirt_scanners.hdf5.raw.header import fill_of as fill_in
from icevirt_scanners.hdf5.raw.header import filters_of as filters_in
from icevirt_scanners.hdf5.raw.header import place_values as placed_by
from icevirt_scanners.hdf5.raw.space import NotUnderstoodError, number


class _KnownArray(NamedTuple):
    """An array without the offsets and lengths of its chunks."""

    rows: NDArray[np.uint32]  # index of the references
    kind: NDArray[np.uint8]
    source: NDArray[np.uint32]
    chunks: NDArray[np.int64]  # the index of the entries it was made of
    rest: dict[str, Any]  # of `ScannedArray`


class KnownChunks:
    """What is known of the chunks of one variable in all files of a pattern."""

    __slots__ = ("_array", "_leaf")

    def __init__(self) -> None:
        self._leaf: Leaf | None = None
        self._array: _KnownArray | None = None

    def entries(self, header: ObjectHeader | None, raw: RawFile | None) -> ChunkEntries | None:
        """Return the chunks of a file, or None if they are not like those that were kept."""
        leaf = self._leaf
        if leaf is None or header is None or raw is None:
            return None
        try:
            return leaf.read(raw.space, header.layouts[0].data)
        except NotUnderstoodError:
            return None

    def keep_entries(
        self, found: ChunkEntries, header: ObjectHeader | None, raw: RawFile | None
    ) -> None:
        """Keep how the chunks of a file are stored; none may have been added or removed."""
        self._leaf = self._array = None
        if header is None or raw is None:
            return
        try:
            self._leaf = Leaf.of(found, raw.space, header.layout)
        except NotUnderstoodError:
            return

    def array(self, found: ChunkEntries, *, size: int, context: Any) -> ScannedArray | None:
        """Return the array of a file of ``size`` bytes, or None if it is not like the kept one."""
        known = self._array
        if known is None or found.index is not known.chunks:
            return None
        offset, length = found.offset, found.length
        inside = np.minimum.reduce(offset) >= 0 and np.maximum.reduce(offset) <= size
        if not inside or np.maximum.reduce(offset + length) > size:
            return None
        if np.maximum.reduce(length) > LARGE:
            return None
        table = ChunkTable(
            index=known.rows,
            kind=known.kind,
            source=known.source,
            offset=offset.view(np.uint64),
            length=length.view(np.uint64),
            locations=context.location,
        )
        return ScannedArray(**known.rest, references=table)

    def keep_array(self, array: ScannedArray, found: ChunkEntries) -> None:
        """Keep an array if only its references depend on offsets and lengths."""
        table = array.references
        leaf, count = self._leaf, len(found.index)
        if leaf is None or leaf.index is not found.index or table.count(ChunkType.virtual) != count:
            return
        if len(table) != count or not np.array_equal(table.index, found.index):
            return
        rest = {name: getattr(array, name) for name in _REST}
        self._array = _KnownArray(table.index, table.kind, table.source, found.index, rest)


_REST = tuple(name for name in ScannedArray.__dataclass_fields__ if name != "references")


class HDF5Variable(NamedTuple):
    """A dataset of the file, in zarr's terms."""

    path: str
    handle: Handle
    element: Element
    axes: tuple[VariableAxis, ...]
    address: int  # of the object header
    own_shape: tuple[int, ...]  # as stored
    limits: tuple[int, ...]  # how far its own axes may grow
    shape: tuple[int, ...]  # in netCDF's lengths, with the axes of an array type
    layout: int
    chunk: tuple[int, ...] | None  # with the axes of an array type
    header: ObjectHeader | None  # where its bytes could be read
    placed: StorageLayout | None  # place of all values, if not chunked and the header states it
    pipeline: Pipeline
    elsewhere: str  # in which other files the values lie; "" for this one
    fill: np.ndarray[Any, Any]
    unfilled: bool  # longer in netCDF than stored, and no fill value was given for the rest
    attributes: Attributes
    known: KnownChunks | None = None  # of the variables of a pattern

    @property
    def dsid(self) -> Any:
        """The h5py DatasetID; libhdf5 opens file and dataset where it did not yet."""
        return self.handle.id

    @property
    def nbytes(self) -> int:
        """Bytes of all values."""
        return self.element.dtype.itemsize * prod(self.shape)

    @property
    def not_plain(self) -> str:
        """Why the bytes of the file cannot be referenced; "" when they can."""
        return self.element.not_plain or self.pipeline.not_plain or self.elsewhere

    @property
    def plist(self) -> Any:
        """A copy of its creation properties, which is dear to make."""
        return self.dsid.get_create_plist()

    @property
    def stored_size(self) -> int:
        """Bytes of an element as stored."""
        with suppress(NotUnderstoodError):
            if self.header is not None:
                return number(self.header.datatype, 4, 4)
        size: int = self.dsid.get_type().get_size()
        return size

    @property
    def own_chunk(self) -> tuple[int, ...]:
        """The chunk shape as stored; empty where the dataset has no chunks."""
        return (self.chunk or ())[: len(self.own_shape)]

    @property
    def is_coordinate(self) -> bool:
        """Whether it is 1-D and named like its dimension."""
        return len(self.axes) == 1 and self.axes[0].name == paths.name(self.path)

    def array(
        self, chunk: tuple[int, ...], codecs: tuple[JSON, ...], table: ChunkTable, **more: Any
    ) -> ScannedArray:
        """Return the scanned array under the given representation."""
        return ScannedArray(
            path=self.path,
            dimension_names=tuple(axis.name for axis in self.axes),
            shape=self.shape,
            chunk_shape=chunk,
            data_type=self.element.data_type,
            codecs=codecs,
            fill_value=fill_json(self.fill, self.element),
            attributes=self.attributes,
            references=table,
            **more,
        )


def variable_of(
    found: FoundDataset,
    attributes: FoundAttributes,
    *,
    element: Element,
    axes: tuple[VariableAxis, ...],
    shape: tuple[int, ...],
    context: FileContext,
) -> HDF5Variable:
    """Gather what decides how a dataset is represented, with its shape in netCDF's lengths."""
    found.handle = context.reopened.get(found.address, found.handle)
    stored = _read_stored(found, element, context)
    chunk = None if stored.chunk is None else (*stored.chunk, *element.inner)
    longer = shape != (*(found.shape or ()), *element.inner)
    unfilled = longer and has_default(element) and not stored.filled

    def warn(code: str, message: str) -> None:
        context.warn(found.path, code, message)

    return HDF5Variable(
        path=found.path,
        handle=found.handle,
        element=element,
        axes=axes,
        address=found.address,
        own_shape=found.shape or (),
        limits=found.limits,
        shape=shape,
        layout=stored.layout,
        chunk=chunk,
        header=found.header,
        placed=stored.placed,
        pipeline=stored.pipeline,
        elsewhere=stored.elsewhere,
        fill=np.array(default_fill(element.dtype), element.dtype) if unfilled else stored.fill,
        unfilled=unfilled,
        attributes=with_enumeration(
            attributes.fit(element.dtype, warn), element.named, element.dtype
        ),
    )


class _StorageFacts(NamedTuple):
    """Properties of a dataset beside its type, its shape and its attributes."""

    layout: int
    chunk: tuple[int, ...] | None  # as stored
    placed: StorageLayout | None  # see `HDF5Variable`
    pipeline: Pipeline
    elsewhere: str  # see `HDF5Variable`
    fill: np.ndarray[Any, Any]
    filled: bool  # a fill value was given


_known: dict[Hashable, tuple[Element, _StorageFacts]] = {}
_REMEMBERED = 1024
_DECIDING = {DATASPACE, DATATYPE, EXTERNAL_FILES, *FILL, *FILTERS}


def _read_stored(found: FoundDataset, element: Element, context: FileContext) -> _StorageFacts:
    """Read storage properties from the object header, or from libhdf5; cached by messages.

    Raises:
        ValueError: Values are fewer than there should be.
    """
    key = _key(found, element, context)
    known = _known.get(key) if key is not None else None
    if known is not None:
        with suppress(NotUnderstoodError):
            return _place(known[1], found, context)
    made = _as_stored(found, element, context)
    if key is not None and not found.handle.is_open:
        if len(_known) == _REMEMBERED:
            _known.clear()
        made.fill.flags.writeable = False  # it is shared
        _known[key] = element, made  # an element that is held leaves its id to no other
    return made


def _key(found: FoundDataset, element: Element, context: FileContext) -> Hashable | None:
    """Return all that decides the storage properties, None where the header has only a part."""
    if found.header is None or context.raw is None:
        return None
    shared, space = found.header.shared, context.raw.space
    stand_elsewhere = (one for one in shared.messages if one.flags & SHARED)
    if not shared.is_kept or any(one.kind in _DECIDING for one in stand_elsewhere):
        return None
    try:
        layout = without_address(found.header.layout, space.address_width)
    except NotUnderstoodError:
        return None
    packages = context.options.codecs
    return shared, layout, found.shape, space.address_width, id(element), packages


def _place(known: _StorageFacts, found: FoundDataset, context: FileContext) -> _StorageFacts:
    """Return the properties of a dataset like another one, whose values have another place.

    Raises:
        NotUnderstoodError: They would not be inside the file.
    """
    if known.placed is None or known.placed.inside is not None:
        return known
    assert found.header is not None
    assert context.raw is not None
    return known._replace(placed=placed_by(found.header.layout, context.raw.space))


def _as_stored(found: FoundDataset, element: Element, context: FileContext) -> _StorageFacts:
    handle = found.handle

    @cache
    def plist() -> Any:
        return handle.id.get_create_plist()

    own = _chunk_in_header(found, context)
    placed = _place_in_header(found, context) if own is None else None
    if (
        own is None
        and placed is None
        and plist().get_external_count()
        and found.address not in context.reopened
    ):
        found.handle = context.reopened[found.address] = Handle(id=beside(found.dsid))
    if placed is not None:
        layout = h5d.COMPACT if placed.inside is not None else h5d.CONTIGUOUS
    else:
        layout = h5d.CHUNKED if own is not None else plist().get_layout()
    if layout == h5d.CHUNKED:
        own = own or plist().get_chunk()
    # filters matter where there are chunks; other files where there are none
    pipeline, elsewhere = Pipeline(), ""
    if own is not None:
        size = element.dtype.itemsize * prod((*own, *element.inner))
        pipeline = _pipeline(found, plist, size, context.options.codecs)
    elif placed is None:
        elsewhere = check_elsewhere(
            found.dsid, plist(), layout, context=context, variable=found.path
        )
    fill, filled = _fill(found, plist, element)
    return _StorageFacts(
        layout=layout,
        chunk=own,
        placed=placed,
        pipeline=pipeline,
        elsewhere=elsewhere,
        fill=fill,
        filled=filled,
    )


def _chunk_in_header(found: FoundDataset, context: FileContext) -> tuple[int, ...] | None:
    """Return the chunk shape as the layout message says it, None where libhdf5 must be asked.

    Raises:
        ValueError: Its elements are not those of the dataset's type; libhdf5 before 2.0 would read
            what is behind them.
    """
    if found.header is None or context.raw is None:
        return None
    try:
        layout = layout_of(found.header.layout, context.raw.space)
        size = number(found.header.datatype, 4, 4)
    except NotUnderstoodError:
        return None
    if layout.edges[-1] != size:  # or the message names a type that stands elsewhere
        if layout.edges[-1] != (stated := found.dsid.get_type().get_size()):
            raise ValueError(
                f"chunks of elements of {layout.edges[-1]} bytes, whose type has {stated}"
            )
        return None
    return layout.edges[:-1] if len(layout.edges) == len(found.shape or ()) + 1 else None


def _place_in_header(found: FoundDataset, context: FileContext) -> StorageLayout | None:
    """Return where values without chunks stand, None where libhdf5 must be asked.

    Raises:
        ValueError: They are fewer than there should be.
    """
    if found.header is None or context.raw is None:
        return None
    if any(message.kind == EXTERNAL_FILES for message in found.header.messages):
        return None
    try:
        placed = placed_by(found.header.layout, context.raw.space)
        wanted = prod(found.shape or ()) * number(found.header.datatype, 4, 4)
    except NotUnderstoodError:
        return None
    if placed.nbytes < wanted and (placed.address is not None or placed.inside is not None):
        # libhdf5 would read whatever stands behind as the rest
        raise ValueError(f"{placed.nbytes} bytes are stored where its shape wants {wanted}")
    return placed


def _fill(
    found: FoundDataset, plist: Callable[[], Any], element: Element
) -> tuple[np.ndarray[Any, Any], bool]:
    """Return the fill value, of plain numbers as the header states it, and whether one is given."""
    with suppress(NotUnderstoodError):
        if found.header is not None and element.is_number:
            stored = fill_in(found.header.messages)
            if stored is None:
                return np.zeros((), element.dtype), False
            if len(stored) == element.dtype.itemsize:
                fill = np.frombuffer(stored, element.stored_as).astype(element.dtype)
                return fill.reshape(()), True
    return fill_of(found.dsid, plist(), element), is_filled(plist())


def _pipeline(
    found: FoundDataset, plist: Callable[[], Any], size: int, packages: tuple[str, ...]
) -> Pipeline:
    """Translate the filters, from the header if every libhdf5 has them."""
    with suppress(NotUnderstoodError):
        if found.header is not None:
            filters = filters_in(found.header.messages)
            if all(one[0] in BUILT_IN for one in filters):
                return _pipeline_of(filters, size)
    return pipeline_of(filters_of_plist(plist()), size, packages)


_pipeline_of = lru_cache(1024)(pipeline_of)  # the filters of an archive are few


def netcdf_shape(
    found: FoundDataset,
    element: Element,
    axes: tuple[VariableAxis, ...],
    dimensions: Dimensions,
    context: FileContext,
) -> tuple[int, ...]:
    """Return the shape with unlimited axes as long as the longest variable along them.

    netCDF reads what was not written there as fill values.
    """
    own = (*(found.shape or ()), *element.inner)
    lengths = tuple(dimensions.length(axis, n) for axis, n in zip(axes, own, strict=True))
    if lengths == own:
        return own
    grown = tuple(
        length if at < len(found.limits) and found.limits[at] == h5s.UNLIMITED else n
        for at, (length, n) in enumerate(zip(lengths, own, strict=True))
    )
    if grown != lengths:
        message = f"its shape is {grown}, its dimensions have lengths {lengths}"
        context.warn(found.path, "dimension-lengths-differ", message)
    if grown != own:
        context.tell(found.path, "shorter-than-dimension", f"{own} is read as {grown}")
    return grown
