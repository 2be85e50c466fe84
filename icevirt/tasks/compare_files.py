"""Compare files with what a scan said of them, and with copies at another place.

A touched file has all references where it had them; the bytes from before are gone. Of a file that
moved, what a dataset copied stays what it was: so all bytes are compared but those that are only
referred to, which readers take from the file as it is.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

from icevirt.archive import catalog
from icevirt.archive.blocks.cutting import join, part_of
from icevirt.archive.blocks.packing import Block
from icevirt.archive.plan import FileRows
from icevirt.archive.reports.relocation import Moved
from icevirt.archive.reports.verification import MOST_SHOWN, Difference, DifferenceKind
from icevirt.archive.sources import SourceFile
from icevirt.catalog.arrow_columns import numbers_of
from icevirt.catalog.file_hashes import hash_of_url
from icevirt.catalog.parquet import read_table
from icevirt.catalog.references import RefsReader
from icevirt.errors import IcevirtError, NotFoundError, ObjectNotFoundError, StaleReferenceError
from icevirt.model import paths
from icevirt.model.chunks import ChunkType
from icevirt.objects.answers import GONE, Checksum
from icevirt.objects.authorize import Authorizer
from icevirt.objects.comparing import Copy, first_difference, pieces
from icevirt.objects.source_access import SourceAccess, grant_access
from icevirt.objects.source_lists.listing import find_changes
from icevirt.planning.containers import Relocation
from icevirt.storage.protocol import Storage
from icevirt.wire.manifests.distinct_rows import first_uses

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
    with grant_access(SourceAccess.of_containers(containers, task.access)):
        others = find_changes(before for before, _ in task.files)  # readers accept older ones
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
    none = np.zeros(0, np.int64)
    taken: list[list[_Ranges]] = [[(none, none)] for _ in task.files]
    reader, everything = RefsReader(task.catalog), np.ones(len(task.rows), np.bool_)
    there: set[str] = set()
    for part in task.rows.parts:
        table = read_table(task.catalog, catalog.path_of("arrays", part), ["path"])
        there |= {*table["path"].to_pylist()}
    for path in sorted(each for each in there if paths.name(each) in task.referenced):
        for block in reader.locate(task.rows, everything, path):
            own = (block.kind == ChunkType.virtual) & (block.source == 0)
            for at in np.unique(block.file[own]).tolist():
                mine = own & (block.file == at)
                ranges = (block.offset[mine], block.length[mine])
                taken[at].append((ranges[0].astype(np.int64), ranges[1].astype(np.int64)))
    for (before, _), each in zip(task.files, taken, strict=True):
        offsets, lengths = zip(*each, strict=True)
        yield gaps(np.concatenate(offsets), np.concatenate(lengths), before.size)


def gaps(offset: NDArray[np.int64], length: NDArray[np.int64], size: int) -> _Ranges:
    """Return the ranges of an object of some size that lie outside of ranges."""
    order = np.argsort(offset, kind="stable")
    ends = np.maximum.accumulate(np.append(0, offset[order] + length[order]))
    begins = np.append(offset[order], size)
    kept = begins > ends
    return ends[kept], begins[kept] - ends[kept]


_OF_FILES = ("row", "status", "signature", "groups", "places", "left_out")
_OF_ARRAYS = tuple(name for name, _ in catalog.ARRAYS)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class AlikeTask:
    """Some files, as they were and as they are."""

    before: FileRows  # (n,)
    now: FileRows  # (n,)
    catalog: Storage


def find_alike(task: AlikeTask) -> NDArray[np.bool_]:
    """Return which of the files are described as before, shape (n,)."""
    reader = RefsReader(task.catalog)
    both = (_digests(task.catalog, reader, files) for files in (task.before, task.now))
    return np.array([one == other for one, other in zip(*both, strict=True)], np.bool_)


def _digests(storage: Storage, reader: RefsReader, files: FileRows) -> list[str]:
    """Return a digest of all that is said of each file, but for its name and checksum."""
    found: list[dict[str, str]] = [{} for _ in range(len(files))]
    paths: set[str] = set()
    for number, part in enumerate(files.parts):
        places = np.flatnonzero(files.part == number)
        of_row = defaultdict[int, list[int]](list)
        for at in places.tolist():
            of_row[int(files.row[at])].append(at)
        for kind, columns in (("files", _OF_FILES), ("arrays", _OF_ARRAYS)):
            table = read_table(storage, catalog.path_of(kind, part), columns)
            mine = table.take(np.flatnonzero(np.isin(numbers_of(table["row"]), [*of_row])))
            for row in mine.to_pylist():
                key = f"{kind} {row.get('path', '')}"
                paths |= {row["path"]} if kind == "arrays" else set()
                for at in of_row[row.pop("row")]:
                    found[at][key] = repr(sorted(row.items()))
    everything = np.ones(len(files), np.bool_)
    for path in sorted(paths):
        held = defaultdict[int, list[Block]](list)
        for block in reader.locate(files, everything, path):
            for at in np.unique(block.file).tolist():
                held[at].append(block)
        for at, blocks in held.items():
            found[at][f"refs {path}"] = _of_references(blocks, at)
    return [repr(sorted(each.items())) for each in found]


def _of_references(blocks: list[Block], at: int) -> str:
    """Return a digest of the references of one array in one file."""
    parts = ((block, np.flatnonzero(block.file == at)) for block in blocks)
    mine = join([part_of(block, rows, block.file[rows]) for block, rows in parts])
    codes, targets = _number_targets(mine)
    offset = np.where(mine.kind == ChunkType.inline, 0, mine.offset).astype(np.uint64)
    digest = hashlib.blake2b(repr(targets).encode(), digest_size=16)
    # bytes of inline rows stand in the order of the rows
    for column in (mine.index, mine.kind, offset, mine.length, mine.data, codes):
        digest.update(column.tobytes())
    return digest.hexdigest()


type _Target = tuple[str, str, int] | None  # None: the file itself


def _number_targets(block: Block) -> tuple[NDArray[np.uint32], list[_Target]]:
    """Return the distinct files that references lead to, by first use, and each row's number.

    However the catalog numbers them, and however many blocks it has of the file.
    """
    first, rank = first_uses(block.source)
    used = block.source[first].astype(np.int64)
    named = block.targets.take(used[used > 0] - 1)
    targets = zip(named.url, named.etag, named.last_modified.tolist(), strict=True)
    keys: list[_Target] = [next(targets) if number else None for number in used.tolist()]
    numbers = {key: number for number, key in enumerate(dict.fromkeys(keys))}
    codes = np.array([numbers[key] for key in keys], np.uint32)
    return codes[rank], list(numbers)


_SHOWN = 20  # changed files that a task returns; the others are counted
_SECOND = 1_000_000_000  # nanoseconds


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TargetTask:
    """Some files of a plan, and the arrays that it takes of them."""

    files: FileRows
    paths: tuple[str, ...]
    catalog: Storage
    access: SourceAccess = field(default_factory=SourceAccess)


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetsChanged:
    """What a task found."""

    looked: int  # at so many targets
    changed: int
    how: dict[str, str] = field(default_factory=dict)  # by URL, of some


def look_at_targets(task: TargetTask) -> TargetsChanged:
    """Compare the targets of references with what they were when they were scanned.

    Targets without a checksum are skipped; the scan reported them.
    """
    reader = RefsReader(task.catalog)
    everything = np.ones(len(task.files), np.bool_)
    found: set[tuple[str, str, int]] = set()
    for path in task.paths:
        for block in reader.locate(task.files, everything, path):
            numbers = np.unique(block.source[block.kind == ChunkType.virtual].astype(np.int64))
            held = block.targets.take(numbers[numbers > 0] - 1)
            found.update(zip(held.url, held.etag, held.last_modified.tolist(), strict=True))
    files = [
        SourceFile(url=url, size=-1, etag=etag, last_modified=seconds * _SECOND)
        for url, etag, seconds in sorted(found)
        if etag or seconds
    ]
    with grant_access(task.access):
        changed = find_changes(files)
    return TargetsChanged(
        looked=len(files), changed=len(changed), how=dict(islice(changed.items(), _SHOWN))
    )


def kind_of(error: IcevirtError) -> DifferenceKind:
    """Return what an error says about a source."""
    if isinstance(error, ObjectNotFoundError | NotFoundError):
        return DifferenceKind.missing
    if isinstance(error, StaleReferenceError):
        return DifferenceKind.changed
    if "available" in error.facts:
        return DifferenceKind.truncated
    return DifferenceKind.unreadable
