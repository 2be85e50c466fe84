"""Which variable of a file, and which group of it, a reference of a repository is about."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from icevirt.archive.scanned import ScannedArray
from icevirt.model import paths
from icevirt.model.chunks import ChunkType
from icevirt.objects.answers import Checksum


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """A chunk whose values are to be compared."""

    array: str
    index: tuple[int, ...]
    offset: int
    length: int
    file: tuple[str, Checksum]  # URL as the reference has it, and what the scan saw


def row_of(wanted: Wanted, array: ScannedArray) -> int | None:
    """Return the row of a scanned array that leads to the wanted bytes."""
    table = array.references
    at = np.flatnonzero(
        (table.kind == ChunkType.virtual)
        & (table.offset == wanted.offset)
        & (table.length == wanted.length)
    )
    return int(at[0]) if len(at) else None


def covers(wanted: Wanted, array: ScannedArray) -> bool:
    """Say whether the wanted bytes lie in the uncompressed block that an array is."""
    table = array.references
    virtual = table.take(table.kind == ChunkType.virtual)
    if len(array.codecs) != 1 or not len(virtual):
        return False
    end = int((virtual.offset + virtual.length).max())
    return int(virtual.offset.min()) <= wanted.offset and wanted.offset + wanted.length <= end


def group_beside(held: str, variable: str) -> str:
    """Return the group of a file below which a variable has the path that a repository ends with.

    It is the root where not even their names are the same.
    """
    mine, theirs = held.split("/"), variable.split("/")
    while mine and theirs and mine[-1] == theirs[-1]:
        mine.pop()
        theirs.pop()
    return ("/".join(theirs) or paths.ROOT) if theirs != variable.split("/") else paths.ROOT
