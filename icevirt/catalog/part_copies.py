"""Copy parts of a catalog: of some files, of many small parts as one, of files that moved.

The rows stay what they are, under other numbers or names.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import fields, replace
from itertools import chain
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from icevirt.archive import catalog
from icevirt.archive.blocks.cutting import pack_block, part_of
from icevirt.archive.blocks.packing import PackedBlock, unpack
from icevirt.archive.facts import FileColumns
from icevirt.archive.sources import SourceFile
from icevirt.catalog.arrow_columns import numbers_of, rows_at, rows_column, rows_of
from icevirt.catalog.facts_beside import objects_of
from icevirt.catalog.lookup import rows_forgotten
from icevirt.catalog.parquet import REQUESTED, encode_table, files_of, read_table
from icevirt.catalog.parts import complete_parts, write_columns
from icevirt.catalog.references import RefsReader
from icevirt.storage.protocol import Storage

MOST_FILES = 256
"""Files of a joined part; larger parts are left alone."""

FEWEST = 16
"""Parts that are worth being joined."""

_NAMES = {
    kind: [name for name, _ in columns]
    for kind, columns in (
        ("files", catalog.FILES),
        ("arrays", catalog.ARRAYS),
        ("more", catalog.MORE),
    )
}
_BLOCK = [column.name for column in fields(PackedBlock)]


def copy_files(source: Storage, files: FileColumns, into: Storage, identity: str) -> str:
    """Copy what a catalog says of some files, without references, as one part; return its name.

    A plan of the copy sees these files as it would see them in the first catalog. Values that lie
    beside are left out: a plan only asks how large they are.

    Args:
        source: The catalog that describes them.
        files: The files, which get the numbers 0 to n - 1 in this order.
        into: A catalog.
        identity: Of the scan that the copy counts for.

    Raises:
        FormatError: A table is damaged.
    """
    urls = "\n".join(files.url).encode()
    run = f"{identity}-{hashlib.blake2b(urls, digest_size=16).hexdigest()}"
    tables = {kind: _columns_of([*_select(source, files, kind)], kind) for kind in _NAMES}
    return write_columns(into, run, refs=(), **tables)


def _select(source: Storage, files: FileColumns, kind: str) -> Iterator[Any]:
    """Yield the tables of each part, with the rows of the files, numbered as these are."""
    names = [name for name in _NAMES[kind] if name != "values"]
    for number in np.unique(files.part).tolist():
        mine = np.flatnonzero(files.part == number)
        paths = _paths(source, kind, [files.parts[number]])[0]
        for table in (read_table(source, path, names) for path in paths):
            yield _take_files(table, files.row[mine], mine)


def _take_files(table: Any, rows: NDArray[np.integer], numbers: NDArray[np.integer]) -> Any:
    """Return what a table says of some rows of files, under other numbers."""
    at = rows_at(rows, numbers_of(table["row"]))
    kept = np.flatnonzero(at >= 0)
    return _renumber(rows_of(table, kept), numbers[at[kept]])


def copy_others(storage: Storage, gone: Collection[tuple[str, int]]) -> None:
    """Copy parts without some of their files, and without those that are to be tried again.

    Parts that share tables are copied each by itself. The parts stay, and may be deleted then.

    Args:
        storage: The catalog.
        gone: Part and row of each file that the copies lack.

    Raises:
        FormatError: A part is damaged.
    """
    parts = {catalog.tables_of(part) for part, _ in gone}
    rows: dict[str, set[int]] = {}
    for part, row in chain(gone, *rows_forgotten(storage)):
        rows.setdefault(catalog.tables_of(part), set()).add(row)
    for part in complete_parts(storage):
        if (tables := catalog.tables_of(part)) in parts:
            _copy_without(storage, part, sorted(rows[tables]))


def _copy_without(storage: Storage, part: str, gone: Sequence[int]) -> None:
    count = len(read_table(storage, catalog.path_of("files", part), ["row"]))
    rows = np.setdiff1d(np.arange(count), gone)
    if not len(rows):
        return
    tables: dict[str, Any] = {}
    for kind, names in _NAMES.items():
        held = [read_table(storage, path, names) for path in _paths(storage, kind, [part])[0]]
        taken = [_take_files(table, rows, np.arange(len(rows))) for table in held]
        tables[kind] = _columns_of(taken, kind)
    digest = hashlib.blake2b(f"{part} {gone}".encode(), digest_size=16).hexdigest()
    paths = sorted({*tables["arrays"]["path"].to_pylist()})
    refs = _references(storage, part, paths, rows)
    write_columns(storage, f"{catalog.scan_of(part)}-{digest}", refs=refs, **tables)


def _references(
    storage: Storage, part: str, paths: Sequence[str], rows: NDArray[np.integer]
) -> Iterator[tuple[str, PackedBlock]]:
    """Yield the references of some files of a part, which their places number."""
    reader = RefsReader(storage, budget=0)
    for path in paths:
        for block in map(unpack, reader.blocks(part, path)):
            at = rows_at(rows, block.file)
            if len(kept := np.flatnonzero(at >= 0)):
                yield path, pack_block(part_of(block, kept, at[kept]))


def _paths(storage: Storage, kind: str, parts: Sequence[str]) -> list[list[str]]:
    """Return the tables of a kind of each part."""
    if kind == "more":
        objects = objects_of(storage, parts)
        return [objects.get(part, []) for part in parts]
    return [[catalog.path_of(kind, part)] for part in parts]


def _renumber(table: Any, rows: NDArray[np.integer]) -> Any:
    """Return a table whose rows are of other numbers."""
    at = table.column_names.index("row")
    return table.set_column(at, "row", rows_column(rows.astype(np.int32)))


def _columns_of(tables: Sequence[Any], kind: str) -> dict[str, Any]:
    """Return the columns of tables one after the other; what they lack is missing."""
    if not tables:
        return {name: [] for name in _NAMES[kind]}
    held = pa.concat_tables(tables)
    there = {*held.column_names}
    return {name: held[name] if name in there else [None] * len(held) for name in _NAMES[kind]}


def fold_parts(storage: Storage, *, older_than: int, fewest: int = FEWEST) -> int:
    """Join small parts, as appends of single files leave one each; return how many are gone.

    The new part is complete before the old ones go; a process that dies between leaves both, and a
    lookup takes either. A plan that looked its files up before would miss old parts, so only those
    of some age are joined, and those that share no tables.

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
    """Write the part that stands for others, in which files are numbered on, and remove these."""
    names = [name for name, _ in pile]
    firsts = np.cumsum([0, *(count for _, count in pile)]).tolist()
    digest = hashlib.blake2b("\n".join(names).encode(), digest_size=16).hexdigest()
    paths = {kind: _paths(storage, kind, names) for kind in _NAMES}
    tables: dict[str, Any] = {}
    for kind, columns in _NAMES.items():
        found = []
        for first, mine in zip(firsts, paths[kind], strict=False):
            each = [read_table(storage, path, columns) for path in mine]
            found += [_renumber(table, numbers_of(table["row"]) + first) for table in each]
        tables[kind] = _columns_of(found, kind)
    run = f"{catalog.scan_of(names[0])}-{digest}"
    write_columns(storage, run, refs=_blocks(storage, names, firsts), **tables)
    storage.delete_many([path for each in paths["files"] for path in each])  # they count no more
    storage.delete_many(
        [
            *(catalog.path_of(table, old) for table in ("arrays", "refs") for old in names),
            *(path for each in paths["more"] for path in each),
        ]
    )


def _blocks(
    storage: Storage, names: Sequence[str], firsts: Sequence[int]
) -> Iterator[tuple[str, PackedBlock]]:
    """Yield the references of all parts, those of one array together."""
    found: list[tuple[str, PackedBlock]] = []
    for name, first in zip(names, firsts, strict=False):
        table = read_table(storage, catalog.path_of("refs", name), ["path", *_BLOCK])
        for row in table.to_pylist():
            block = PackedBlock(**{column: row[column] for column in _BLOCK})
            files = np.frombuffer(block.files, "<i4") + first
            found.append((row["path"], replace(block, files=files.astype("<i4").tobytes())))
    yield from sorted(found, key=lambda each: each[0])


def rename_files(
    storage: Storage, moved: Callable[[str], str], changed: Mapping[SourceFile, SourceFile]
) -> dict[str, str]:
    """Describe files that moved by their new names; return the new part of each part with some.

    A part whose files moved gets a second one beside it, with new names and checksums, which shares
    the tables of arrays and references. The first one stays: older versions, and branches that were
    not relocated, go by the names before. Files that refer to other files are left alone: what they
    refer to may not have moved.

    Args:
        storage: The catalog.
        moved: Returns the URL of a file now.
        changed: Files whose checksum is another one now, and as they are; both as they are named.

    Raises:
        FormatError: A part is damaged.
    """
    found: dict[str, str] = {}
    there = complete_parts(storage)
    for part in there:
        path = catalog.path_of("files", part)
        table = read_table(storage, path, _NAMES["files"])
        files = [*files_of(table)]
        new = [
            file if places else changed.get(file) or _rename(file, moved)
            for file, places in zip(files, table["places"].to_pylist(), strict=True)
        ]
        if new == files:
            continue
        name = found[part] = catalog.rename_part(part, new)
        if name not in there:
            columns: dict[str, Any] = {name: table[name] for name in table.column_names}
            columns |= {key: pa.array([getattr(file, key) for file in new]) for key, _ in REQUESTED}
            raw = encode_table(columns, catalog.FILES, catalog.run_of(name))
            storage.put(catalog.path_of("files", name), raw)
    return found


def _rename(file: SourceFile, moved: Callable[[str], str]) -> SourceFile:
    url = moved(file.url)
    if url == file.url:
        return file
    return SourceFile(url=url, size=file.size, etag=file.etag, last_modified=file.last_modified)
