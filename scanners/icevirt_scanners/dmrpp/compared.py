"""Compare what a DMR++ document says with what the file itself says."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from icevirt.archive.scanned import ScannedArray, ScannedFile
from icevirt.errors import ScanError
from icevirt.model.chunks import ChunkType
from icevirt.model.json import JSON
from icevirt.remedy_notation import write_remedy
from icevirt.scan.contract import ByteSource, ChunkReader, ScannerOptions, SidecarUse
from icevirt.scan.values import read
from icevirt_scanners.context import ScanContext

DIMENSION = "a dimension, or values of it that were never written"
"""What a document has where netCDF stored the dimension alone: only the file tells which."""

_SHOWN = 3  # values in a message
_DECODING = ("_FillValue", "missing_value", "scale_factor", "add_offset", "units", "calendar")
"""Attributes that change what a reader makes of the stored values."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GranuleFile:
    """The file that a document describes."""

    url: str
    document: str  # its URL
    open: Callable[[], AbstractContextManager[ByteSource] | None]  # None: there is no such file
    scanning: Callable[[ByteSource, ScannerOptions], ScannedFile]  # the scan of its format
    instead: str = ""  # how it is scanned without the document, behind a colon

    def scan(self, options: ScannerOptions) -> ScannedFile:
        """Scan the file itself. Raises as its scanner does."""
        opened = self.open()
        if opened is None:
            raise self.contradiction(cause="there is no such file")
        with opened as source:
            return self.scanning(source, replace(options, sidecar=SidecarUse.ignore.value))

    def contradiction(self, **facts: Any) -> ScanError:
        """Return the error for a document that says something else than its file."""
        return ScanError(
            "a DMR++ document contradicts the file that it describes",
            do=write_remedy("Make the document again, or scan the file itself", self.instead, "."),
            file=self.document,
            target=self.url,
            **facts,
        )


def compare_with_file(
    file: GranuleFile, arrays: Sequence[ScannedArray], context: ScanContext, reading: ChunkReader
) -> frozenset[str]:
    """Scan the file that a document describes, and compare; return the variables that it has.

    Raises:
        ScanError: The document contradicts the file, or there is no such file.
    """
    options = ScannerOptions(group=context.options.group, policy=(("*", "skip"),))
    scanned = file.scan(options)
    found = {each.path: each for each in scanned.arrays}
    there = frozenset({*found, *scanned.left_out})
    for array in arrays:
        if array.path not in found:
            if array.references.count(ChunkType.inline) and array.path not in there:
                continue  # archives add values that files lack
            cause = "of another type" if array.path in there else "not in the file"
            raise file.contradiction(variable=array.path, cause=cause)
        for what, said, true in _differences(array, found.pop(array.path), reading):
            raise file.contradiction(
                variable=array.path, cause=what, said=str(said), found=str(true)
            )
    return there


def read_from_file(
    file: GranuleFile, lacking: Mapping[str, str], context: ScanContext
) -> tuple[ScannedArray, ...]:
    """Return the variables of which the document does not say all, as the file's own scan does.

    Args:
        file: What the document describes.
        lacking: What the document lacks, by path.
        context: Of the document's scan, which gets what is found on the way.

    Raises:
        ScanError: There is no such file, or it lacks a variable.
        UnsupportedError: One cannot be represented, and may not be left out.
    """
    options = replace(context.options, variables=tuple(lacking), share=None)
    found = file.scan(options)
    context.findings += found.findings
    there = {each.path: each for each in found.arrays}
    for path, cause in lacking.items():
        if cause == DIMENSION and path not in there:
            continue
        if path not in there and path not in found.left_out:
            what = f"not in the file, and the document has {cause}"
            raise file.contradiction(variable=path, cause=what)
        why = f"read from the file, for its DMR++ document has {cause}"
        context.tell(path, "read-from-file", why)
    context.left_out += [path for path in found.left_out if path in lacking]
    return tuple(there[path] for path in lacking if path in there)


def _differences(
    said: ScannedArray, true: ScannedArray, reading: ChunkReader
) -> Iterator[tuple[str, Any, Any]]:
    """Yield what the document says otherwise than the file: what, by the document, by the file."""
    yield from _unequal("the shape", said.shape, true.shape)
    yield from _unequal("the data type", said.data_type, true.data_type)
    for name in _DECODING:
        yield from _unequal(name, _plain(said, name), _plain(true, name))
    if any(each.references.count(ChunkType.inline) for each in (said, true)):
        one, other = (read(each, reading.read) for each in (said, true))
        if one.tobytes() != other.tobytes():  # one of them has no references to compare
            yield "the values", one.ravel()[:_SHOWN], other.ravel()[:_SHOWN]
        return
    yield from _unequal("filters", _undoing(said.codecs), _undoing(true.codecs))
    if len(said.references) < _count(said):
        yield from _unequal("the fill value", said.fill_value, true.fill_value)
    if said.contiguous and true.contiguous:
        yield from _unequal("the place", _extent(said), _extent(true))
        return
    yield from _unequal("the shape of chunks", said.chunk_shape, true.chunk_shape)
    ours, theirs = said.references.sort(), true.references.sort()
    yield from _unequal("the number of chunks", len(ours), len(theirs))
    for column in ("index", "offset", "length"):
        one, other = getattr(ours, column), getattr(theirs, column)
        if not np.array_equal(one, other):
            row = int(np.argmax((one != other).reshape(len(one), -1).any(axis=1)))
            yield f"{column} of the chunk {ours.index[row].tolist()}", one[row], other[row]


def _unequal(what: str, said: Any, true: Any) -> Iterator[tuple[str, Any, Any]]:
    if said != true:
        yield what, said, true


def _plain(array: ScannedArray, name: str) -> Any:
    value = array.attributes.values.get(name)
    return "NaN" if isinstance(value, float) and value != value else value  # noqa: PLR0124


def _undoing(codecs: Sequence[JSON]) -> list[JSON]:
    """Return codecs without the level of compression, which decoders do not need."""
    found: list[JSON] = []
    for codec in codecs:
        if not isinstance(codec, Mapping):
            found.append(codec)
            continue
        settings = codec.get("configuration")
        kept = settings if isinstance(settings, Mapping) else {}
        found.append({**codec, "configuration": {k: v for k, v in kept.items() if k != "level"}})
    return found


def _extent(array: ScannedArray) -> tuple[int, int]:
    """Return where the values of a contiguous array begin, and how many bytes they are."""
    table = array.references
    return int(table.offset.min()) if len(table) else 0, int(table.length.sum())


def _count(array: ScannedArray) -> int:
    """Return how many chunks the grid of an array has."""
    edges = zip(array.shape, array.chunk_shape, strict=True)
    return math.prod(-(-length // edge) for length, edge in edges)
