"""Compare two copies of files wherever a dataset does not refer to them.

What a dataset copied of a file stays what it was when references get a new checksum. So all bytes
of such a file are compared but those that are only referred to, which a reader takes from the file
as it is.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from icevirt.archive import catalog
from icevirt.archive.blocks.packing import Block
from icevirt.archive.plan import FileRows
from icevirt.archive.reports.relocation import Moved
from icevirt.archive.reports.verification import MOST_SHOWN, Difference, DifferenceKind
from icevirt.archive.scanned import SourceFile
from icevirt.catalog.file_hashes import hash_of_url
from icevirt.catalog.parquet import read_table
from icevirt.catalog.references import RefsReader
from icevirt.errors import IcevirtError, StaleReferenceError
from icevirt.model import paths
from icevirt.model.chunks import ChunkType
from icevirt.objects.answers import GONE, Checksum
from icevirt.objects.authorize import Authorizer
from icevirt.objects.comparing import Copy, first_difference, pieces
from icevirt.objects.source_access import SourceAccess, granted
from icevirt.objects.source_lists.listing import changed_since
from icevirt.planning.containers import Relocation
from icevirt.storage.protocol import Storage
from icevirt.tasks.verify.references import kind_of

type _Ranges = tuple[NDArray[np.int64], NDArray[np.int64]]  # (offset, length)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CopiesTask:
    """Some files at two places."""

    files: tuple[tuple[SourceFile, SourceFile], ...]  # as a dataset lists them, and as they are
    rows: FileRows  # that describe the first of them; the catalog lacks the others
    catalog: Storage
    referenced: frozenset[str]  # names of variables of which nothing is copied
    relocation: Relocation
    access: Mapping[str, Any]  # by authorized prefix


def compare_copies(task: CopiesTask) -> Moved:
    """Compare the files; what is not the same is among the differences."""
    containers = task.relocation.readable_before
    old = Authorizer(containers, task.access)
    new = Authorizer(task.relocation.after, task.access)
    size, differences, wrong = 0, list[Difference](), set[int]()
    with granted(SourceAccess.of_containers(containers, task.access)):
        others = changed_since(before for before, _ in task.files)  # readers accept older ones
    for (before, now), (offset, length) in zip(task.files, _ranges(task), strict=True):
        try:
            one = Copy(old.grant(before.url), _checksum_of(before))
            other = Copy(new.grant(now.url), _checksum_of(now))
            if (how := others.get(before.url)) not in (None, GONE):
                raise StaleReferenceError(f"its old copy is no longer as listed: {how}")
            at = first_difference(one, other, *pieces(offset.astype("u8"), length.astype("u8")))
        except IcevirtError as error:
            kind, what = kind_of(error), error.what
        else:
            size += int(length.sum())
            if at is None:
                continue
            kind = DifferenceKind.value
            what = f"byte {at:,}, to which nothing refers, is another one than at its old place"
        differences.append(Difference(kind=kind, file=now.url, what=what))
        wrong.add(hash_of_url(before.url))
    return Moved(
        compared_bytes=size,
        differences=tuple(differences[:MOST_SHOWN]),
        wrong=np.array(sorted(wrong), np.uint64),
    )


def _checksum_of(file: SourceFile) -> Checksum:
    seconds = 0 if file.etag else file.last_modified_seconds
    return Checksum(etag=file.etag, last_modified=seconds)


def _ranges(task: CopiesTask) -> Iterator[_Ranges]:
    """Yield for each file the ranges that are not only referred to."""
    taken: list[list[_Ranges]] = [[] for _ in task.files]
    reader, everything = RefsReader(task.catalog), np.ones(len(task.rows), np.bool_)
    for path in sorted(_paths(task)):
        for block in reader.located(task.rows, everything, path):
            own = (block.kind == ChunkType.virtual) & (block.source == 0)
            for at in np.unique(block.file[own]).tolist():
                taken[at].append(_of_file(block, np.flatnonzero(own & (block.file == at))))
    for (before, _), each in zip(task.files, taken, strict=True):
        offsets, lengths = zip(_NONE, *each, strict=True)
        yield gaps(np.concatenate(offsets), np.concatenate(lengths), before.size)


_NONE: _Ranges = (np.zeros(0, np.int64), np.zeros(0, np.int64))


def _of_file(block: Block, rows: NDArray[np.int64]) -> _Ranges:
    return block.offset[rows].astype(np.int64), block.length[rows].astype(np.int64)


def _paths(task: CopiesTask) -> set[str]:
    """Return the variables in these files of which nothing is copied."""
    found: set[str] = set()
    for part in task.rows.parts:
        table = read_table(task.catalog, catalog.path_of("arrays", part), ["path"])
        found |= {*table["path"].to_pylist()}
    return {path for path in found if paths.name(path) in task.referenced}


def gaps(offset: NDArray[np.int64], length: NDArray[np.int64], size: int) -> _Ranges:
    """Return the ranges of an object of some size that lie outside of ranges."""
    order = np.argsort(offset, kind="stable")
    ends = np.maximum.accumulate(np.append(0, offset[order] + length[order]))
    begins = np.append(offset[order], size)
    kept = begins > ends
    return ends[kept], begins[kept] - ends[kept]
