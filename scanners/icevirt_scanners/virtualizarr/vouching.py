"""Say who vouches for values that a codec of another tool decodes.

The codecs of zarr-python and numcodecs are general: what they decode to follows from a description
that is checked. Any other codec reads a file format on its own. Its values are compared with those
of a reference library where there is one, while a file is scanned; else a warning says that nobody
compared them.

GRIB messages are compared with what ecCodes reads, which gives each point with its latitude and
longitude. The array gives each value the coordinates beside it. They must be the same field.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from importlib import metadata

import numpy as np

from icevirt.archive.scanned import ScannedArray
from icevirt.errors import ScanError
from icevirt.model import paths
from icevirt.model.chunks import ChunkType
from icevirt.scan.elsewhere import Elsewhere
from icevirt.scan.values import read
from icevirt_scanners.context import ScanContext
from icevirt_scanners.virtualizarr.messages import (
    AXES,
    GribField,
    Points,
    eccodes_lacks,
    place,
)

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
    points = Points({each.path: each for each in arrays})
    kept = (
        context.represent(each.path, partial(_vouch, each, points, context, elsewhere))
        for each in arrays
    )
    return tuple(each for each in kept if each is not None)


def _vouch(
    array: ScannedArray,
    points: Points,
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
        why = why_not_compared(array, points, elsewhere)
        why = why or refuse_other_values(array, points, context, elsewhere)
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


def why_not_compared(array: ScannedArray, points: Points, elsewhere: Elsewhere) -> str:
    """Return why an array cannot be compared; "" where it can."""
    if lacks := eccodes_lacks():
        return lacks
    if array.references.count(ChunkType.virtual) < len(array.references):
        return "some messages are not in a file"
    if not elsewhere.readable(array.references.locations):
        return "they lie in remote files"
    if not points.are_known(array):
        return "no latitude and longitude stand beside it"
    return ""


def refuse_other_values(
    array: ScannedArray,
    points: Points,
    context: ScanContext,
    elsewhere: Elsewhere,
) -> str:
    """Compare all messages of an array with ecCodes; return why one could not be, else "".

    Raises:
        UnsupportedError: A value is another one, or is at another place.
    """
    from eccodes import CodesInternalError

    if paths.name(array.path) in AXES:
        return ""  # compared with each field that stands on it
    try:
        why = _difference(array, points, elsewhere)
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


def _difference(array: ScannedArray, points: Points, elsewhere: Elsewhere) -> str:
    """Return how a message is read otherwise than by ecCodes; "" where none is.

    Raises:
        ScanError: The codec cannot decode one.
    """
    table, degrees = array.references, None
    for row in range(len(table)):  # each is decoded twice, which takes far longer
        one = table.take(np.array([row]))
        url = one.locations.url[int(one.source[0])]
        theirs = GribField(elsewhere.read(url, int(one.offset[0]), int(one.length[0])))
        rows, columns = array.shape[-2:]
        if theirs.values.size != rows * columns:
            return (
                f"message {row} has the grid {theirs.grid} of {theirs.values.size:,} points, the"
                f" array {rows} × {columns}"
            )
        if degrees is None:
            degrees = points.of(array, elsewhere.read)
        placed = place(theirs, *degrees)
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
