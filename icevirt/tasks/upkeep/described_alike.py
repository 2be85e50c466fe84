"""Compare what a catalog says of files with what it said of them before they changed.

Of a file that was touched, or rewritten in place, every reference lies where it lay, and all that
the catalog holds of it is equal. The bytes that references lead to cannot be compared: those from
before are gone.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from icevirt.archive import catalog
from icevirt.archive.blocks.cutting import joined, part_of
from icevirt.archive.blocks.packing import Block
from icevirt.archive.plan import FileRows
from icevirt.catalog.arrow_columns import numbers_of
from icevirt.catalog.parquet import read_table
from icevirt.catalog.references import RefsReader
from icevirt.model.chunks import ChunkType
from icevirt.storage.protocol import Storage
from icevirt.wire.manifests.distinct_rows import first_uses

_OF_FILES = ("row", "status", "signature", "groups", "places", "left_out")
_OF_ARRAYS = tuple(name for name, _ in catalog.ARRAYS)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class AlikeTask:
    """Some files, as they were and as they are."""

    before: FileRows  # (n,)
    now: FileRows  # (n,)
    catalog: Storage


def described_alike(task: AlikeTask) -> NDArray[np.bool_]:
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
        for block in reader.located(files, everything, path):
            for at in np.unique(block.file).tolist():
                held[at].append(block)
        for at, blocks in held.items():
            found[at][f"refs {path}"] = _of_references(blocks, at)
    return [repr(sorted(each.items())) for each in found]


def _of_references(blocks: list[Block], at: int) -> str:
    """Return a digest of the references of one array in one file."""
    parts = ((block, np.flatnonzero(block.file == at)) for block in blocks)
    mine = joined([part_of(block, rows, block.file[rows]) for block, rows in parts])
    codes, targets = _numbered_targets(mine)
    offset = np.where(mine.kind == ChunkType.inline, 0, mine.offset).astype(np.uint64)
    digest = hashlib.blake2b(repr(targets).encode(), digest_size=16)
    # bytes of inline rows stand in the order of the rows
    for column in (mine.index, mine.kind, offset, mine.length, mine.data, codes):
        digest.update(column.tobytes())
    return digest.hexdigest()


type _Target = tuple[str, str, int] | None  # None: the file itself


def _numbered_targets(block: Block) -> tuple[NDArray[np.uint32], list[_Target]]:
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
