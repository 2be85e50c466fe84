"""Values that the plan compares: where a file lies along a new dimension, and what must be alike.

Whatever scanner described the file, the value is read by the references and metadata that it gave.
"""

from __future__ import annotations

from dataclasses import replace
from math import prod
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from icevirt.archive.scanned import ScannedArray, ScannedFile
from icevirt.errors import ScanError
from icevirt.model.chunks import ChunkType
from icevirt.scan.contract import ByteSource, ScanOptions
from icevirt.scan.values import read

_COMPARED = 1 << 18  # values of a variable that are compared with a tolerance
_ORDERS: dict[Any, Literal["<", ">"]] = {"little": "<", "big": ">"}


def with_labels(scanned: ScannedFile, source: ByteSource, options: ScanOptions) -> ScannedFile:
    """Return the file with the values that the plan has to see, beside those that order files.

    They are those of `ScanOptions.label_variables`, where variables with more than one value get
    none, and of `ScanOptions.tolerant`, where large ones get none; both of which the plan tells.

    Raises:
        ScanError: A value cannot be read.
    """
    if not options.label_variables and not options.tolerant:
        return scanned
    arrays = tuple(
        _labelled(array, source) if _is_wanted(array, options) else array
        for array in scanned.arrays
    )
    return replace(scanned, arrays=arrays)


def _is_wanted(array: ScannedArray, options: ScanOptions) -> bool:
    if options.is_label(array.path) and prod(array.shape) == 1:
        return True
    few = prod(array.shape) <= _COMPARED
    return few and options.keeps_values(array.path, array.dimension_names)


def _labelled(array: ScannedArray, source: ByteSource) -> ScannedArray:
    value = _plain(array)
    if value is None:
        value = np.asarray(read(array, lambda *where: _fetched(source, *where))).reshape(-1)
        if value.dtype.kind in "OT":
            value = np.array([_text(each) for each in value.tolist()])
    if value.dtype.kind not in "iufU":
        return array
    kind = value.dtype.newbyteorder("<")
    return replace(array, labels=value.astype(kind).tobytes(), labels_dtype=kind.str)


def _text(value: Any) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


def _plain(array: ScannedArray) -> NDArray[Any] | None:
    """Return a number that lies in the references as it is; importing zarr costs a second."""
    table, codec = array.references, array.codecs[0] if len(array.codecs) == 1 else None
    if not isinstance(codec, dict) or codec.get("name") != "bytes" or len(table) != 1:
        return None
    try:
        dtype = np.dtype(str(array.data_type))
    except TypeError:
        return None
    order = (codec.get("configuration") or {}).get("endian", "little")
    if dtype.kind not in "iuf" or table.kind[0] != ChunkType.inline or order not in _ORDERS:
        return None
    at = int(table.offset[0])
    raw = table.inline[at : at + int(table.length[0])].tobytes()
    return np.frombuffer(raw, dtype.newbyteorder(_ORDERS[order]))[: prod(array.shape)]


def _fetched(source: ByteSource, url: str, offset: int, length: int) -> bytes:
    if url != source.file.url:
        raise ScanError(
            "a variable that tells labels lies in another file",
            do="List the labels.",
            file=source.file.url,
            other=url,
        )
    return source.read(offset, length)
