"""Join small parts of a catalog into larger ones, as appends of single files leave a part each.

The rows stay what they are, under other numbers. The new part is complete before the old ones go; a
process that dies between leaves both, and a lookup takes either. A plan that looked its files up
before would miss old parts, so only those of some age are joined, and those that share no tables.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import fields, replace
from typing import Any

import numpy as np
import pyarrow as pa

from icevirt.archive import catalog
from icevirt.archive.blocks.packing import PackedBlock
from icevirt.catalog.arrow_columns import numbers_of, rows_column
from icevirt.catalog.facts_beside import FOLDER, objects_of
from icevirt.catalog.lookup import rows_forgotten
from icevirt.catalog.parquet import encode_table, read_table
from icevirt.catalog.parts import complete_parts
from icevirt.catalog.references import encode
from icevirt.storage.protocol import Storage

MOST_FILES = 256
"""Files of a joined part; larger parts are left alone."""

FEWEST = 16
"""Parts that are worth being joined."""

_COLUMNS = {"files": catalog.FILES, "arrays": catalog.ARRAYS, "more": catalog.MORE}
_BLOCK = [column.name for column in fields(PackedBlock)]


def fold_parts(storage: Storage, *, older_than: int, fewest: int = FEWEST) -> int:
    """Join small parts; return how many there are fewer.

    Args:
        storage: The catalog.
        older_than: Microseconds since 1970; parts that were written later are left alone.
        fewest: Small parts of one scan that there have to be.

    Raises:
        FormatError: A part is damaged.
    """
    there = complete_parts(storage)
    stay = {catalog.tables_of(name) for note in rows_forgotten(storage) for name, _ in note}
    stay |= {
        tables for tables, count in Counter(map(catalog.tables_of, there)).items() if count > 1
    }
    by_scan: dict[str, list[str]] = {}
    for name, written in sorted(there.items(), key=lambda each: each[1]):
        if written < older_than and catalog.tables_of(name) not in stay:
            by_scan.setdefault(catalog.scan_of(name), []).append(name)
    gone = 0
    for names in by_scan.values():
        for pile in _piles(storage, names if len(names) >= fewest else ()):
            if len(pile) >= fewest:
                _fold(storage, pile)
                gone += len(pile) - 1
    return gone


def _piles(storage: Storage, names: Sequence[str]) -> Iterator[list[tuple[str, int]]]:
    """Yield parts, with the number of their files, that become one."""
    pile: list[tuple[str, int]] = []
    held = 0
    for name in names:
        count = len(read_table(storage, catalog.path_of("files", name), ["row"]))
        if 2 * count > MOST_FILES:
            continue
        if held + count > MOST_FILES:
            yield pile
            pile, held = [], 0
        pile.append((name, count))
        held += count
    yield pile


def _fold(storage: Storage, pile: Sequence[tuple[str, int]]) -> None:
    """Write the part that stands for others, and remove these."""
    names = [name for name, _ in pile]
    digest = hashlib.blake2b("\n".join(names).encode(), digest_size=16).hexdigest()
    run = f"{catalog.scan_of(names[0])}-{digest}"
    more = objects_of(storage, names)
    paths = {
        "files": [[catalog.path_of("files", name)] for name in names],
        "arrays": [[catalog.path_of("arrays", name)] for name in names],
        "more": [more.get(name, []) for name in names],
    }
    tables = {kind: _joined(storage, kind, paths[kind], pile) for kind in _COLUMNS}
    refs = encode(_blocks(storage, pile), run)
    arrays = encode_table(tables["arrays"], catalog.ARRAYS, run)
    name = f"{run}-{hashlib.blake2b(refs + arrays, digest_size=8).hexdigest()}"
    storage.put(catalog.path_of("refs", name), refs)
    storage.put(catalog.path_of("arrays", name), arrays)
    if len(tables["more"]["row"]):
        beside = encode_table(tables["more"], catalog.MORE, name)
        said = hashlib.blake2b(beside, digest_size=8).hexdigest()
        storage.put(catalog.path_of(FOLDER, f"{name}-{said}"), beside)
    storage.put(catalog.path_of("files", name), encode_table(tables["files"], catalog.FILES, run))
    storage.delete_many([path for each in paths["files"] for path in each])  # they count no more
    storage.delete_many(
        [
            *(catalog.path_of(table, old) for table in ("arrays", "refs") for old in names),
            *(path for each in paths["more"] for path in each),
        ]
    )


def _joined(
    storage: Storage, kind: str, paths: Sequence[Sequence[str]], pile: Sequence[tuple[str, int]]
) -> dict[str, Any]:
    """Return the columns of a table of all parts, in which files are numbered on."""
    names = [name for name, _ in _COLUMNS[kind]]
    found: list[Any] = []
    first = 0
    for mine, (_, count) in zip(paths, pile, strict=True):
        for path in mine:
            table = read_table(storage, path, names)
            row = (numbers_of(table["row"]) + first).astype(np.int32)
            at = table.column_names.index("row")
            found.append(table.set_column(at, "row", rows_column(row)))
        first += count
    held = pa.concat_tables(found) if found else None
    return {name: [] if held is None else held[name] for name in names}


def _blocks(storage: Storage, pile: Sequence[tuple[str, int]]) -> Iterator[tuple[str, PackedBlock]]:
    """Yield the references of all parts, those of one array together."""
    found: list[tuple[str, PackedBlock]] = []
    first = 0
    for name, count in pile:
        table = read_table(storage, catalog.path_of("refs", name), ["path", *_BLOCK])
        for row in table.to_pylist():
            block = PackedBlock(**{column: row[column] for column in _BLOCK})
            files = np.frombuffer(block.files, "<i4") + first
            found.append((row["path"], replace(block, files=files.astype("<i4").tobytes())))
        first += count
    yield from sorted(found, key=lambda each: each[0])
