"""One HDF5 dataset with everything that decides how it is represented."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
from h5py import h5d, h5s

from icevirt.archive.attributes import Attributes
from icevirt.archive.scanned import ScannedArray
from icevirt.model import paths
from icevirt.model.chunks import ChunkTable
from icevirt.model.json import JSON
from icevirt_scanners.cf import default_fill, with_fit_fill
from icevirt_scanners.hdf5.attributes import FoundAttributes
from icevirt_scanners.hdf5.context import FileContext
from icevirt_scanners.hdf5.datatypes import Element
from icevirt_scanners.hdf5.dimensions import Axis, Dimensions
from icevirt_scanners.hdf5.elsewhere import beside, check_elsewhere
from icevirt_scanners.hdf5.fill import fill_json, fill_of, has_default, is_filled
from icevirt_scanners.hdf5.filters import Pipeline, pipeline_of
from icevirt_scanners.hdf5.index.layout import layout_of
from icevirt_scanners.hdf5.raw.fields import NotUnderstoodError
from icevirt_scanners.hdf5.raw.header import FILL, FILTERS, layout_message
from icevirt_scanners.hdf5.walk import FoundDataset


@dataclass(frozen=True, slots=True, kw_only=True)
class Variable:
    """A dataset as it lies in the file, in zarr's terms."""

    path: str
    dsid: Any  # h5py DatasetID
    element: Element
    axes: tuple[Axis, ...]
    address: int  # of the object header
    own_shape: tuple[int, ...]  # as stored
    limits: tuple[int, ...]  # how far its own axes may grow
    shape: tuple[int, ...]  # in netCDF's lengths, with the axes of an array type
    layout: int
    chunk: tuple[int, ...] | None  # with the axes of an array type
    pipeline: Pipeline
    elsewhere: str  # in which other files the values lie; "" for this one
    fill: np.ndarray[Any, Any]
    unfilled: bool  # longer in netCDF than stored, and no fill value was given for the rest
    attributes: Attributes

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
    def own_chunk(self) -> tuple[int, ...]:
        """The chunk shape as stored; empty where the dataset has no chunks."""
        return (self.chunk or ())[: len(self.own_shape)]

    @property
    def is_coordinate(self) -> bool:
        """Whether it is 1-D and named like its dimension."""
        return len(self.axes) == 1 and self.axes[0].name == paths.name(self.path)

    def axis(self, name: str | None) -> int | None:
        """Return the number of the axis called ``name``, None where there is none."""
        names = [axis.name for axis in self.axes]
        return names.index(name) if name in names else None

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


def describe(
    found: FoundDataset,
    attributes: FoundAttributes,
    *,
    element: Element,
    axes: tuple[Axis, ...],
    dimensions: Dimensions,
    context: FileContext,
) -> Variable:
    """Gather what decides how a dataset is represented."""
    own = _chunk_in_header(found, context)
    found.dsid = context.reopened.get(found.address, found.dsid)
    plist = _Late(found.dsid.get_create_plist)
    if own is None and plist().get_external_count() and found.address not in context.reopened:
        found.dsid = context.reopened[found.address] = beside(found.dsid)
    layout = h5d.CHUNKED if own is not None else plist().get_layout()
    if layout == h5d.CHUNKED:
        own = own or plist().get_chunk()
    chunk = (*own, *element.inner) if own is not None else None
    shape = _netcdf_shape(found, element, axes, dimensions, context)
    longer = shape != (*(found.shape or ()), *element.inner)
    # an element lives as long as the scan, so that no other has its id
    fill = context.once(
        found.header, FILL, id(element), lambda: fill_of(found.dsid, plist(), element)
    )
    unfilled = longer and not is_filled(plist()) and has_default(element)
    size = element.dtype.itemsize * prod(chunk or ())

    def warn(code: str, message: str) -> None:
        context.warn(found.path, code, message)

    return Variable(
        path=found.path,
        dsid=found.dsid,
        element=element,
        axes=axes,
        address=found.address,
        own_shape=found.shape or (),
        limits=found.limits,
        shape=shape,
        layout=layout,
        chunk=chunk,
        pipeline=context.once(found.header, FILTERS, size, lambda: pipeline_of(plist(), size))
        if chunk
        else Pipeline(),
        elsewhere=""
        if chunk
        else check_elsewhere(
            found.dsid,
            plist(),
            layout,
            file=context.source.file.url,
            path=context.source.local_path,
            variable=found.path,
        ),
        fill=np.array(default_fill(element.dtype), element.dtype) if unfilled else fill,
        unfilled=unfilled,
        attributes=with_fit_fill(attributes.shown, element.dtype, warn),
    )


class _Late:
    """Makes a thing when it is first asked for."""

    __slots__ = ("_made", "_make")

    def __init__(self, make: Callable[[], Any]) -> None:
        self._make = make
        self._made: Any = None

    def __call__(self) -> Any:
        if self._made is None:
            self._made = self._make()
        return self._made


def _chunk_in_header(found: FoundDataset, context: FileContext) -> tuple[int, ...] | None:
    """Return the chunk shape as the layout message says it, None where libhdf5 must be asked."""
    if found.header is None or context.raw is None:
        return None
    try:
        layout = layout_of(layout_message(found.header.messages), context.raw.space)
    except NotUnderstoodError:
        return None
    return layout.edges[:-1] if len(layout.edges) == len(found.shape or ()) + 1 else None


def _netcdf_shape(
    found: FoundDataset,
    element: Element,
    axes: tuple[Axis, ...],
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
