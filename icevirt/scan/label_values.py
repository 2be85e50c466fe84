"""Read the values that a plan compares: labels along a new dimension, and values to be equal.

Values are read by the references and metadata that the scanner gave, whichever scanner that was.
"""

from __future__ import annotations

from dataclasses import replace
from math import prod
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from icevirt.archive.joining import Fact
from icevirt.archive.scanned import FactsBeside, ScannedArray, ScannedFile
from icevirt.errors import ScanError
from icevirt.model.chunks import ChunkType
from icevirt.planning.combine.hints import Recorded
from icevirt.scan.contract import ByteSource, ScannerOptions
from icevirt.scan.values import read

_ORDERS: dict[Any, Literal["<", ">"]] = {"little": "<", "big": ">"}


def with_labels(scanned: ScannedFile, source: ByteSource, options: ScannerOptions) -> ScannedFile:
    """Return the file with the values that a plan will look at, beside its description.

    They are those of `CombineHints.label_variables`, where variables with more than one value get
    none, and of `CombineHints.tolerant`, where large ones get none; both of which the plan tells.
    A coordinate whose texts are stored as characters gets them as its labels.

    Raises:
        ScanError: A value cannot be read.
    """
    arrays = tuple(_with_values(array, source, options) for array in scanned.arrays)
    changed = any(one is not other for one, other in zip(arrays, scanned.arrays, strict=True))
    return replace(scanned, arrays=arrays) if changed else scanned


def _with_values(array: ScannedArray, source: ByteSource, options: ScannerOptions) -> ScannedArray:
    beside = array.beside or FactsBeside()
    known = array.labels is not None or beside.labels is not None
    if known or Fact.labels not in options.wanted_of(array, ()):
        return array
    spelt = options.spells(Recorded.of(array.path, array.shape, array.chunk_shape, array))
    if spelt and {*array.references.locations.url} - {source.file.url}:
        return array
    labels, dtype = _labels(array, source, texts=spelt)
    if labels is None:
        return array
    return replace(array, beside=replace(beside, labels=labels, labels_dtype=dtype))


def _labels(array: ScannedArray, source: ByteSource, *, texts: bool) -> tuple[bytes | None, str]:
    value = _plain(array)
    if value is None:
        value = np.asarray(read(array, lambda *where: _fetched(source, *where)))
        value = _joined(value) if texts else value.reshape(-1)
        if value.dtype.kind in "OT":
            value = np.array([_text(each) for each in value.tolist()])
    if value.dtype.kind not in "iufU":
        return None, ""
    kind = value.dtype.newbyteorder("<")
    return value.astype(kind).tobytes(), kind.str


def _joined(characters: NDArray[Any]) -> NDArray[Any]:
    """Return a text for each row of characters."""
    rows = np.ascontiguousarray(characters).astype("S1").view(f"S{max(1, characters.shape[1])}")
    return np.array([_text(row) for row in rows.reshape(-1).tolist()], "U")


def _text(value: Any) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


def _plain(array: ScannedArray) -> NDArray[Any] | None:
    """Return a number that lies in the references as it is; importing zarr costs a second."""
    table, codec = array.references, array.codecs[0] if len(array.codecs) == 1 else None
    if not isinstance(codec, dict) or codec.get("name") != "bytes" or len(table) != 1:
        return None
    try:
        dtype = np.dtype(str(array.data_type))
    except (TypeError, ValueError):
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
            "a label variable lies in another file",
            do="Pass a list of labels.",
            file=source.file.url,
            other=url,
        )
    return source.read(offset, length)
