"""Say who vouches for values that a codec of another tool decodes.

The codecs of zarr-python and numcodecs are general: what they decode to follows from a description
that is checked. Any other codec reads a file format on its own. Its values are compared with those
of a reference library where there is one, while a file is scanned; else a warning says that nobody
compared them.

GRIB messages are compared with what ecCodes reads, which gives each point with its latitude and
longitude. The array gives each value the coordinates beside it. They must be the same field.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from importlib import metadata
from typing import Any

import numpy as np
from numpy.typing import NDArray

from icevirt.archive.scanned import ScannedArray
from icevirt.errors import ScanError
from icevirt.model import paths
from icevirt.model.chunks import ChunkType
from icevirt.scan.elsewhere import Elsewhere
from icevirt.scan.values import read
from icevirt_scanners.context import ScanContext

_GENERAL = frozenset(("zarr", "numcodecs"))  # packages
_GRIBBERISH = "gribberish"


def vouch(
    arrays: Sequence[ScannedArray], context: ScanContext, elsewhere: Elsewhere
) -> tuple[ScannedArray, ...]:
    """Return arrays whose values nobody knows to be wrong, with a warning of those not compared.

    Raises:
        UnsupportedError: A codec decodes to other values than the reference library, and the
            variable may not be left out.
    """
    by_path = {each.path: each for each in arrays}
    kept = (
        context.represent(each.path, partial(_vouch, each, by_path, context, elsewhere))
        for each in arrays
    )
    return tuple(each for each in kept if each is not None)


def _vouch(
    array: ScannedArray,
    others: Mapping[str, ScannedArray],
    context: ScanContext,
    elsewhere: Elsewhere,
) -> ScannedArray:
    # codecs that are neither zarr's nor numcodecs'
    names = [str(each["name"] if isinstance(each, Mapping) else each) for each in array.codecs]
    own = [name for name in dict.fromkeys(names) if _package_of(name) not in _GENERAL]
    if not own:
        return array
    why = "no reference library is known"
    if own == [_GRIBBERISH]:
        why = why_not_compared(array, others, elsewhere)
        why = why or refuse_other_values(array, others, context, elsewhere)
        if not why:
            return array
    context.warn(
        array.path,
        "values-not-compared",
        f"values not compared by icevirt: {', '.join(map(_with_version, own))} alone answers for"
        f" them; {why}",
    )
    return array


def _package_of(codec: str) -> str:
    from zarr.registry import get_codec_class

    try:
        return get_codec_class(codec).__module__.partition(".")[0]
    except (KeyError, ValueError, ImportError):
        return ""


def _with_version(codec: str) -> str:
    package = _package_of(codec)
    try:
        return f"the codec {codec} of {package} {metadata.version(package)}"
    except (metadata.PackageNotFoundError, ValueError):
        return f"the codec {codec}"


_AXES = ("latitude", "longitude")
_MISSING = 1e34
_DEGREES = 0.01  # that coordinates of one point may differ by, unless points are closer
_RELATIVE = 1e-6  # of the largest value; single precision


def why_not_compared(
    array: ScannedArray, others: Mapping[str, ScannedArray], elsewhere: Elsewhere
) -> str:
    """Return why an array cannot be compared; "" where it can."""
    try:
        import eccodes  # noqa: F401
    except (ImportError, RuntimeError):  # the latter where its library is missing
        return "with the package eccodes installed, a scan compares them with ecCodes"
    if array.references.count(ChunkType.virtual) < len(array.references):
        return "some messages are not in a file"
    if not elsewhere.readable(array.references.locations):
        return "they lie in remote files"
    if len(array.shape) < 2 or any(_beside(array, name, others) is None for name in _AXES):
        return "no latitude and longitude stand beside it"
    return ""


def refuse_other_values(
    array: ScannedArray,
    others: Mapping[str, ScannedArray],
    context: ScanContext,
    elsewhere: Elsewhere,
) -> str:
    """Compare all messages of an array with ecCodes; return why one could not be, else "".

    Raises:
        UnsupportedError: A value is another one, or is at another place.
    """
    from eccodes import CodesInternalError

    if paths.name(array.path) in _AXES:
        return ""  # compared with each field that stands on it
    try:
        why = _difference(array, others, elsewhere)
    except CodesInternalError as error:
        return f"ecCodes cannot read one: {error}"
    except ScanError as error:
        why = str(error)
    if why:
        raise context.refusal(
            array.path,
            "the codec of its adapter does not read these GRIB messages as ecCodes does",
            do="Leave the variable out with drop_variables, or convert the files to NetCDF"
            " (`cdo -f nc4 copy`, `grib_to_netcdf`) and build these.",
            cause=why,
        )
    return ""


def _beside(
    array: ScannedArray, name: str, others: Mapping[str, ScannedArray]
) -> ScannedArray | None:
    found = others.get(paths.join(paths.parent(array.path), name))
    return found if found is not None and len(found.shape) in (1, 2) else None


def _degrees(
    array: ScannedArray, name: str, others: Mapping[str, ScannedArray], elsewhere: Elsewhere
) -> NDArray[np.float64]:
    """Return a coordinate of each point of the grid, shape (ny, nx)."""
    beside = _beside(array, name, others)
    assert beside is not None, "arrays without coordinates are not compared"
    values = read(beside, elsewhere.read).astype(np.float64)
    if values.ndim == 1 and beside.dimension_names[0] == array.dimension_names[-2]:
        values = values[:, None]
    return np.broadcast_to(values, array.shape[-2:])


def _difference(
    array: ScannedArray, others: Mapping[str, ScannedArray], elsewhere: Elsewhere
) -> str:
    """Return how a message is read otherwise than by ecCodes; "" where none is.

    Raises:
        ScanError: The codec cannot decode one.
    """
    table, degrees = array.references, None
    for row in range(len(table)):  # each is decoded twice, which takes far longer
        one = table.take(np.array([row]))
        url = one.locations.url[int(one.source[0])]
        theirs = _Field(elsewhere.read(url, int(one.offset[0]), int(one.length[0])))
        rows, columns = array.shape[-2:]
        if theirs.values.size != rows * columns:
            return (
                f"message {row} has the grid {theirs.grid} of {theirs.values.size:,} points, the"
                f" array {rows} × {columns}"
            )
        if degrees is None:
            degrees = [_degrees(array, name, others, elsewhere) for name in _AXES]
        placed = _place(theirs, *degrees)
        if placed is None:
            return f"the points of message {row} ({theirs.order}) are not at its coordinates"
        at = one.shift((-one.index[0].astype(np.int64)).tolist())
        alone = replace(array, shape=array.chunk_shape, references=at, beside=None)
        values = read(alone, elsewhere.read).astype(np.float64).reshape(rows, columns)
        wrong = np.isnan(placed) != np.isnan(values)
        wrong |= np.abs(placed - values) > theirs.tolerance
        if wrong.any():
            first = tuple(int(each[0]) for each in np.nonzero(wrong))
            return (
                f"{int(wrong.sum()):,} of {wrong.size:,} values of message {row} are others"
                f" ({theirs.order}); at {first} {values[first]:g} instead of {placed[first]:g}"
            )
    return ""


class _Field:
    """A message as ecCodes reads it, in the order in which its points stand."""

    def __init__(self, message: bytes) -> None:
        import eccodes

        handle = eccodes.codes_new_from_message(message)
        try:
            self._read(handle)
        finally:
            eccodes.codes_release(handle)

    def _read(self, handle: Any) -> None:
        import eccodes

        eccodes.codes_set(handle, "missingValue", _MISSING)
        found = eccodes.codes_get_values(handle)
        self.values = np.where(found == _MISSING, np.nan, found)
        self.grid = str(eccodes.codes_get(handle, "gridType"))
        keys = ("latitudes", "longitudes") if self.grid != "sh" else ()
        self.degrees = [eccodes.codes_get_array(handle, key) for key in keys]
        order = ("jPointsAreConsecutive", "iScansNegatively", "jScansPositively")
        self.order = ", ".join(
            f"{key}={eccodes.codes_get_long(handle, key)}"
            for key in order
            if eccodes.codes_is_defined(handle, key)
        )
        largest = float(np.nanmax(np.abs(self.values), initial=0.0))
        self.tolerance = max(
            eccodes.codes_get_double(handle, "packingError")
            if eccodes.codes_is_defined(handle, "packingError")
            else 0.0,
            _RELATIVE * largest,
        )


def _place(
    theirs: _Field, latitude: NDArray[np.float64], longitude: NDArray[np.float64]
) -> NDArray[np.float64] | None:
    """Return the values of ecCodes at the places of the array; None where points differ."""
    if len(theirs.degrees) != 2 or theirs.degrees[0].size != latitude.size:
        return None
    for turned in _orders((*theirs.degrees, theirs.values), latitude.shape):
        by_row = np.abs(_apart(turned[1][0] - longitude[0, 0]))
        shift = -int(np.argmin(by_row))  # parsers may let the rows begin elsewhere
        mine = [np.roll(each, shift, axis=1) for each in turned]
        near = _nearness(mine[0])
        if (np.abs(mine[0] - latitude) <= near).all() and (
            np.abs(_apart(mine[1] - longitude)) <= near
        ).all():
            return mine[2]
    return None


def _orders(
    columns: tuple[NDArray[np.float64], ...], shape: tuple[int, ...]
) -> Iterator[list[NDArray[np.float64]]]:
    """Yield the grid in each order in which points can stand in a message."""
    rows, length = shape
    for is_by_column in (False, True):
        grids = [
            each.reshape(length, rows).T if is_by_column else each.reshape(rows, length)
            for each in columns
        ]
        for down in (1, -1):
            for across in (1, -1):
                yield [each[::down, ::across] for each in grids]


def _apart(degrees: NDArray[np.float64]) -> NDArray[np.float64]:
    return (degrees + 180.0) % 360.0 - 180.0


def _nearness(latitude: NDArray[np.float64]) -> float:
    """Return by how much coordinates of one point may differ."""
    spacing = np.abs(np.diff(latitude, axis=0))
    spacing = spacing[spacing > 0]
    return min(_DEGREES, float(spacing.min()) / 4) if spacing.size else _DEGREES
