"""Make the variables of a TIFF file: an image, and the mask that says which of its pixels count."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from math import prod
from typing import Any

import numpy as np

from icevirt.archive.scanned import ScannedArray
from icevirt.model.attributes import FILL, Attributes
from icevirt.model.chunks import Locations
from icevirt.scan.contract import ByteSource
from icevirt_scanners.context import ScanContext
from icevirt_scanners.encoding import spell
from icevirt_scanners.given import with_facts
from icevirt_scanners.tiff.attributes import GDAL_NODATA, describe, nodata_of
from icevirt_scanners.tiff.codecs import codecs_of
from icevirt_scanners.tiff.directories import Directory
from icevirt_scanners.tiff.geokeys import GeoKeys
from icevirt_scanners.tiff.images import Image, UnreadImageError, describe_image
from icevirt_scanners.tiff.references import refer

VARIABLE, MASK, MAPPING = "band_data", "mask", "spatial_ref"
DIMENSIONS = ("band", "y", "x")

type Names = tuple[str, str, str]


class _OwnBytes:
    """Reads the chunks of the scanned file itself."""

    def __init__(self, source: ByteSource) -> None:
        self._source = source

    def readable(self, locations: Locations) -> bool:
        """Say that they are."""
        del locations
        return True

    def read(self, url: str, offset: int, length: int) -> bytes:
        """Return bytes of a chunk."""
        del url
        return self._source.read(offset, length)


def make_variable(
    path: str,
    *,
    directory: Directory,
    full: Directory,
    keys: GeoKeys,
    names: Names,
    beside: tuple[str, ...],
    placed_by: Mapping[str, str] | None,
    context: ScanContext,
) -> ScannedArray:
    """Return the variable of an image, which is ``full`` or an overview of it.

    Raises:
        UnsupportedError: It is not one that readers of zarr decode.
    """
    image, array = _refer(path, directory, names, context)
    warn = partial(context.warn, path)
    shown = describe(directory, full, image, keys, warn)
    missing = nodata_of(directory, image, warn)
    if missing is not None:
        shown[FILL] = missing
    elif directory.text(GDAL_NODATA).strip() and _is_sparse(array):
        raise context.refusal(
            path, "pieces that were never written, and no value that stands there"
        )
    if MAPPING in beside:
        shown |= {"coordinates": MAPPING, "grid_mapping": MAPPING}
    if "scales" in shown or "offsets" in shown:
        warn("scales-by-band", "its bands have scales or offsets of their own, which none applies")
    fill = image.dtype.type(0) if missing is None else missing
    array = replace(
        array,
        fill_value=spell(fill, image.dtype),
        attributes=Attributes.of(shown),
        placed_by=placed_by,
    )
    return with_facts(array, image.dtype, context, _OwnBytes(context.source))


def _is_sparse(array: ScannedArray) -> bool:
    edges = zip(array.shape, array.chunk_shape, strict=True)
    return len(array.references) < prod(-(-length // edge) for length, edge in edges)


def make_mask(
    path: str, directory: Directory, *, names: Names, context: ScanContext
) -> ScannedArray:
    """Return the mask of an image, which has no bands.

    Raises:
        UnsupportedError: As `make_variable`, or the mask has several bands.
    """
    image, array = _refer(path, directory, names, context)
    if image.samples != 1:
        raise context.refusal(path, "a mask of several bands")
    shown: dict[str, Any] = {"long_name": "mask of the dataset"}
    if image.bits == 1:
        values = np.array([0, 1], np.uint8)
        shown |= {"flag_values": values, "flag_meanings": "masked valid"}
    table = array.references
    array = replace(
        array,
        dimension_names=names[1:],
        shape=array.shape[1:],
        chunk_shape=array.chunk_shape[1:],
        references=table.reindex(table.index[:, 1:]),
        attributes=Attributes.of(shown),
    )
    context.warn(path, "mask-beside", "no reader applies this mask of the file to its image")
    return with_facts(array, image.dtype, context, _OwnBytes(context.source))


def _refer(
    path: str, directory: Directory, names: Names, context: ScanContext
) -> tuple[Image, ScannedArray]:
    """Return an image, and the array of its pieces."""
    try:
        image = describe_image(directory)
        codecs = codecs_of(image)
        chunk, table = refer(path, image, directory, context)
    except UnreadImageError as error:
        raise context.refusal(
            path, "an image that readers of zarr cannot decode", cause=str(error)
        ) from error
    return image, ScannedArray(
        path=path,
        dimension_names=names,
        shape=image.shape,
        chunk_shape=chunk,
        data_type=image.dtype.name,
        codecs=codecs,
        fill_value=0,
        references=table,
    )
