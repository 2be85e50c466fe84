"""Match a reference of a repository to the variable and group of its file."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from icevirt.archive.reports.verification import Checked, Difference
from icevirt.archive.scanned import ScannedArray
from icevirt.ids import ObjectId12
from icevirt.model import paths
from icevirt.model.chunks import ChunkTable, ChunkType
from icevirt.model.snapshot import ArrayNode, Node
from icevirt.objects.answers import Checksum
from icevirt.objects.authorize import Authorizer
from icevirt.repo.session import Session
from icevirt.tasks.index_ranges import region_of
from icevirt.tasks.verify_references import checksum_of


@dataclass(frozen=True, slots=True, kw_only=True)
class ChunkToCompare:
    """A chunk whose values are to be compared."""

    array: str
    index: tuple[int, ...]
    offset: int
    length: int
    file: tuple[str, Checksum]  # URL as the reference has it, and what the scan saw


def row_of(wanted: ChunkToCompare, array: ScannedArray) -> int | None:
    """Return the row of a scanned array that leads to the wanted bytes."""
    table = array.references
    at = np.flatnonzero(
        (table.kind == ChunkType.virtual)
        & (table.offset == wanted.offset)
        & (table.length == wanted.length)
    )
    return int(at[0]) if len(at) else None


def covers(wanted: ChunkToCompare, array: ScannedArray) -> bool:
    """Say whether the wanted bytes lie in the uncompressed block that an array is."""
    table = array.references
    virtual = table.take(table.kind == ChunkType.virtual)
    if len(array.codecs) != 1 or not len(virtual):
        return False
    end = int((virtual.offset + virtual.length).max())
    return int(virtual.offset.min()) <= wanted.offset and wanted.offset + wanted.length <= end


def group_of(held: str, variables: Iterable[str]) -> str:
    """Return the group of a file that became the root, as paths of one and the same chunk tell.

    The path that has most of its end in common with the repository's tells it, because a dataset
    can have several names in a file; it is the root where not even the last part is the same.
    """
    best, group = 0, paths.ROOT
    for variable in variables:
        mine, theirs = held.split("/"), variable.split("/")
        common = 0
        while mine and theirs and mine[-1] == theirs[-1]:
            mine.pop()
            theirs.pop()
            common += 1
        if common > best:
            best, group = common, "/".join(theirs) or paths.ROOT
    return group


def is_elsewhere(node: Node | None, other: ScannedArray, shift: Mapping[str, int]) -> bool:
    """Say whether nothing tells where a file's variable lies, along an axis missing in ``shift``.

    That is one along which the dataset has more elements than the file.
    """
    if not isinstance(node, ArrayNode):
        return False
    own = zip(
        reversed(other.dimension_names), reversed(other.shape), reversed(node.shape), strict=False
    )
    return any((name or "") not in shift and mine != whole for name, mine, whole in own)


def chosen_of(
    session: Session, key: ObjectId12, rows: NDArray[np.int64]
) -> dict[str, list[ChunkToCompare]]:
    """Return the virtual references among the chosen rows of a manifest, by file."""
    authorizer = Authorizer(session.config.virtual_chunk_containers, ())
    names = {node.id: node.path for node in session.snapshot.arrays()}
    chosen: dict[str, list[ChunkToCompare]] = {}
    start = 0
    for node, table in session.assets.read_manifest(key).arrays.items():
        mine = rows[(rows >= start) & (rows < start + len(table))] - start
        start += len(table)
        if node in names:
            for url, wanted in _virtual(table.take(mine), names[node]):
                chosen.setdefault(authorizer.absolute(url), []).append(wanted)
    return chosen


def _virtual(table: ChunkTable, array: str) -> Iterator[tuple[str, ChunkToCompare]]:
    for row in np.flatnonzero(table.kind == ChunkType.virtual).tolist():
        yield (
            table.locations.url[int(table.source[row])],
            ChunkToCompare(
                array=array,
                index=tuple(table.index[row].tolist()),
                offset=int(table.offset[row]),
                length=int(table.length[row]),
                file=(
                    table.locations.url[int(table.source[row])],
                    checksum_of(table, int(table.source[row])),
                ),
            ),
        )


def regions_of(
    session: Session, difference: Difference, wanted: Sequence[ChunkToCompare]
) -> Checked:
    """Return what is wrong with a file, for each array that was to be compared with it."""
    indexes: dict[str, list[tuple[int, ...]]] = {}
    for each in wanted:
        indexes.setdefault(each.array, []).append(each.index)
    return Checked(
        differences=tuple(
            replace(difference, array=array, region=region_of(session, array, np.array(found)))
            for array, found in indexes.items()
        )
    )
