"""Read values with the reference library of a format, for comparisons with what an adapter says.

The first bytes of a file choose the library: ecCodes for GRIB, tifffile or rasterio for TIFF, and
for formats that icevirt scans itself what its scanners compare with. There is none for others.

A message of GRIB is found by its place in the file, and its values are put where the coordinates
beside the array say that its points are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from icevirt.archive.scanned import ScannedArray
from icevirt.errors import ScanError, UnsupportedError
from icevirt.model import paths
from icevirt.model.chunks import ChunkTable, ChunkType
from icevirt.scan.contract import ByteSource
from icevirt.scan.registry import HEAD, is_recognized, oracle_for
from icevirt.scan.values import read
from icevirt_scanners.tiff.directories import MAGICS
from icevirt_scanners.tiff.reference import open_image, read_page
from icevirt_scanners.virtualizarr.messages import (
    AXES,
    GribField,
    Points,
    eccodes_lacks,
    place,
)

type Box = tuple[slice, ...]

_SECONDS = "seconds since 1970-01-01 00:00:00"


def read_values(
    describe: Callable[[], Points], source: ByteSource, path: str, region: Box
) -> NDArray[Any]:
    """Return the values of a variable in a box.

    Args:
        describe: Returns the arrays of the file, and where their points are.
        source: The file.
        path: Of the variable.
        region: A slice for each dimension.

    Raises:
        UnsupportedError: There is no library for this format, it is not installed, or it has no
            such values.
        ScanError: The file is not what its arrays say.
    """
    head = source.read(0, HEAD)
    if b"GRIB" in head:
        return _Messages(source, describe()).read(path, region)
    if head.startswith(MAGICS):
        return _read_tiff(source, path, region)
    if is_recognized(source):
        return oracle_for(source).read_values(source, path, region)
    raise UnsupportedError("no reference library is known for files like this")


class _Messages:
    """A file of GRIB as ecCodes reads it, for arrays that an adapter made of it."""

    def __init__(self, source: ByteSource, points: Points) -> None:
        self._source, self._points, self._arrays = source, points, points.arrays

    def read(self, path: str, region: Box) -> NDArray[Any]:
        """Return the values of a box."""
        if lacks := eccodes_lacks():
            raise UnsupportedError(lacks)
        array = self._arrays[path]
        name = paths.name(path)
        if name in AXES:
            return self._degrees(array)[region]
        if name == "time" and array.attributes.values.get("units") == _SECONDS:
            return self._seconds(array)[region]
        if not array.references.count(ChunkType.virtual):
            raise UnsupportedError("ecCodes has no key of that name")
        return self._fields(array, region)

    def _fields(self, array: ScannedArray, region: Box) -> NDArray[Any]:
        found = np.full([part.stop - part.start for part in region], np.nan)
        degrees = self._points_of(array)
        for one in _inside(array, region):
            field = self._field(one)
            values = place(field, *degrees)
            if values is None:
                raise ScanError(
                    "the points of a message are not at the coordinates of its array",
                    do="Leave the variable out with drop_variables.",
                    file=self._source.file.url,
                    variable=array.path,
                    order=field.order,
                )
            low = one.index[0].astype(np.int64) * array.chunk_shape
            begins = [part.start - int(at) for part, at in zip(region, low, strict=True)]
            target = tuple(slice(max(0, -at), max(0, -at) + 1) for at in begins[:-2])
            rows, columns = (
                slice(at, at + part.stop - part.start)
                for at, part in zip(begins[-2:], region[-2:], strict=True)
            )
            found[target] = values[rows, columns]
        return found

    def _field(self, one: ChunkTable) -> GribField:
        """Return the message that a reference leads to."""
        if one.locations.url[int(one.source[0])] != self._source.file.url:
            raise UnsupportedError("a message lies in another file")
        return GribField(self._source.read(int(one.offset[0]), int(one.length[0])))

    def _points_of(self, array: ScannedArray) -> tuple[NDArray[np.float64], ...]:
        if not self._points.are_known(array):
            raise UnsupportedError("no latitude and longitude stand beside it")
        return self._points.of(array, self._fetch)

    def _fetch(self, url: str, offset: int, length: int) -> bytes:
        del url  # references into other files are refused before
        return self._source.read(offset, length)

    def _on(self, coordinate: ScannedArray) -> tuple[ScannedArray, ChunkTable]:
        """Return an array of messages that stands on a coordinate, and its references."""
        names = {*coordinate.dimension_names}
        for array in self._arrays.values():
            is_beside = paths.parent(array.path) == paths.parent(coordinate.path)
            table = array.references
            if is_beside and names <= {*array.dimension_names} and array.path != coordinate.path:
                table = table.take(table.kind == ChunkType.virtual)
                if len(table) and paths.name(array.path) not in AXES:
                    return array, table
        raise UnsupportedError("no messages stand on it")

    def _degrees(self, array: ScannedArray) -> NDArray[Any]:
        """Return a coordinate of points, which are where ecCodes says, as it says it."""
        fields, table = self._on(array)
        field = self._field(table.take(np.array([0])))
        if place(field, *self._points_of(fields)) is None:
            raise ScanError(
                "the points of a message are not at these coordinates",
                do="Leave the variables on them out with drop_variables.",
                file=self._source.file.url,
                variable=array.path,
                order=field.order,
            )
        return read(array, self._fetch)

    def _seconds(self, array: ScannedArray) -> NDArray[Any]:
        """Return when messages are valid, one for each step."""
        fields, table = self._on(array)
        axis = fields.dimension_names.index(array.dimension_names[0]) if array.shape else None
        found = np.zeros(array.shape, np.int64)
        for row in range(len(table)):
            one = table.take(np.array([row]))
            step = () if axis is None else int(one.index[0, axis])
            found[step] = self._field(one).seconds
        return found


def _inside(array: ScannedArray, region: Box) -> Iterator[ChunkTable]:
    """Yield the references of an array that a box meets."""
    table = array.references
    low = table.index.astype(np.int64) * array.chunk_shape
    starts = np.array([part.start for part in region])
    stops = np.array([part.stop for part in region])
    meets = ((low < stops) & (low + array.chunk_shape > starts)).all(axis=1)
    for row in np.flatnonzero(meets & (table.kind == ChunkType.virtual)).tolist():
        yield table.take(np.array([row]))


def _read_tiff(source: ByteSource, path: str, region: Box) -> NDArray[Any]:
    """Return values as tifffile reads them, or rasterio where tifffile does not."""
    name = paths.name(path)
    if not name.isdecimal():
        raise UnsupportedError("it is not named by the number of an image")
    values, why = None, []
    for library, read_image in (("tifffile", read_page), ("rasterio", _by_rasterio)):
        try:
            values = read_image(source, int(name))
            break
        except ImportError:
            continue
        except Exception as error:  # noqa: BLE001 - what either library raises
            why.append(f"{library} cannot read the image: {error}")
    if values is None:
        lacking = "with the package tifffile or rasterio installed, they are compared with it"
        raise UnsupportedError("; ".join(why) or lacking)
    if values.ndim != len(region) or any(
        part.stop > length for part, length in zip(region, values.shape, strict=True)
    ):
        raise UnsupportedError(f"{library} reads an image of the shape {values.shape}")
    return values[region]


def _by_rasterio(source: ByteSource, number: int) -> NDArray[Any]:
    with open_image(source, number) as image:
        values: NDArray[Any] = image.read()
        is_by_pixel = image.profile.get("interleave") == "pixel"
    if len(values) > 1:
        return np.moveaxis(values, 0, -1) if is_by_pixel else values
    (only,) = values
    return np.asarray(only)
