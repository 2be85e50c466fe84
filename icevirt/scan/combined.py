"""Convert a scanned file to the form that combining needs: runs cut, or values stored whole."""

from __future__ import annotations

from dataclasses import replace
from math import prod
from typing import Any

import numpy as np

from icevirt.archive.blocks.cutting import cut
from icevirt.archive.blocks.packing import Block
from icevirt.archive.joining import Fact, cut_along, itemsize_of
from icevirt.archive.scanned import FactsBeside, ScannedArray, ScannedFile
from icevirt.model.chunks import ChunkTable, Locations
from icevirt.scan.contract import ScannerOptions


def combined(scanned: ScannedFile, options: ScannerOptions) -> ScannedFile:
    """Return the file with its arrays in the form that they have beside those of other files."""
    return replace(scanned, arrays=tuple(_combined(array, options) for array in scanned.arrays))


def _combined(array: ScannedArray, options: ScannerOptions) -> ScannedArray:
    beside = array.beside or FactsBeside()
    wanted = options.wanted_of(array, ())
    labels = array if array.labels is not None else beside
    has_labels = Fact.labels in wanted
    digest = array.digest or beside.digest
    if Fact.values in wanted and beside.values is not None:
        array = beside.values
    facts: dict[str, Any] = {
        "digest": "" if array.whole and Fact.digest not in wanted else digest,
        "labels": labels.labels if has_labels else None,
        "labels_dtype": labels.labels_dtype if has_labels else "",
        "beside": None,
    }
    if any(getattr(array, name) != value for name, value in facts.items()):
        array = replace(array, **facts)
    return _cut(array, options)


def _cut(array: ScannedArray, options: ScannerOptions) -> ScannedArray:
    if array.whole or not array.contiguous:
        return array
    size = itemsize_of(array.data_type)
    axes = options.joined_axes(array.dimension_names)
    edges = cut_along(array.chunk_shape, axes, size)
    if edges == array.chunk_shape:
        return array
    table = array.references
    if len(table):
        table = _cut_table(table, prod(edges) * size, array.shape[0])
    return replace(array, chunk_shape=edges, references=table)


def _cut_table(table: ChunkTable, step: int, extent: int) -> ChunkTable:
    block = Block(
        file=np.zeros(len(table), np.int32),
        index=table.index,
        kind=table.kind,
        offset=table.offset,
        length=table.length,
        data=table.inline,
        source=table.source + np.uint32(1),
        targets=table.locations if len(table.locations) else Locations.none(),
    )
    rows = np.arange(len(block))
    found = cut(block, rows, step, np.full(len(rows), extent, np.int64))
    return ChunkTable(
        index=found.index,
        kind=found.kind,
        source=np.where(found.source > 0, found.source - 1, 0).astype(np.uint32),
        offset=found.offset,
        length=found.length,
        locations=found.targets,
        inline=found.data,
    ).sorted()
