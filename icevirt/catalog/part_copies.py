"""Join small parts of a catalog into larger ones, as appends of single files leave a part each.

The rows stay what they are, under other numbers. The new part is complete before the old ones go; a
process that dies between leaves both, and a lookup takes either. A plan that looked its files up
before would miss old parts, so only those of some age are joined, and those that share no tables.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import fields, replace
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from icevirt.archive import catalog
from icevirt.archive.blocks.packing import PackedBlock
from icevirt.archive.facts import FileColumns
from icevirt.archive.scanned import SourceFile
from icevirt.catalog.arrow_columns import numbers_of, rows_column, rows_of
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


_KEY = ("url", "size", "etag", "last_modified")


def rename_files(
    storage: Storage, moved: Callable[[str], str], changed: Mapping[SourceFile, SourceFile]
) -> dict[str, str]:
    """Describe files that moved by their new names; return the new part of each part with some.

    Files that refer to other files are left alone: what they refer to may not have moved.

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
        table = read_table(storage, path, [name for name, _ in catalog.FILES])
        columns: dict[str, Any] = {name: table[name] for name in table.column_names}
        keys = zip(*(columns[name].to_pylist() for name in _KEY), strict=True)
        files = [SourceFile(**dict(zip(_KEY, key, strict=True))) for key in keys]
        new = [
            file if places else _renamed(file, moved, changed)
            for file, places in zip(files, table["places"].to_pylist(), strict=True)
        ]
        if new == files:
            continue
        name = found[part] = catalog.renamed_part(part, new)
        if name not in there:
            columns |= {key: pa.array([getattr(file, key) for file in new]) for key in _KEY}
            raw = encode_table(columns, catalog.FILES, catalog.run_of(name))
            storage.put(catalog.path_of("files", name), raw)
    return found


def _renamed(
    file: SourceFile, moved: Callable[[str], str], changed: Mapping[SourceFile, SourceFile]
) -> SourceFile:
    if file in changed:
        return changed[file]
    url = moved(file.url)
    if url == file.url:
        return file
    return SourceFile(url=url, size=file.size, etag=file.etag, last_modified=file.last_modified)


_SCHEMAS = {"files": catalog.FILES, "arrays": catalog.ARRAYS, "more": catalog.MORE}


def copy_files(source: Storage, files: FileColumns, into: Storage, identity: str) -> str:
    """Copy the rows of some files as one part; return its name.

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
    tables = {kind: _rows(source, files, kind) for kind in _SCHEMAS}
    refs, arrays = encode((), run), _encoded(tables["arrays"], "arrays", run)
    name = f"{run}-{hashlib.blake2b(refs + arrays, digest_size=8).hexdigest()}"
    into.put(catalog.path_of("refs", name), refs)
    into.put(catalog.path_of("arrays", name), arrays)
    if any(len(table) for table in tables["more"]):
        more = _encoded(tables["more"], "more", name)
        digest = hashlib.blake2b(more, digest_size=8).hexdigest()
        into.put(catalog.path_of(FOLDER, f"{name}-{digest}"), more)
    into.put(catalog.path_of("files", name), _encoded(tables["files"], "files", run))
    return name


def _rows(source: Storage, files: FileColumns, kind: str) -> list[Any]:
    """Return the tables of each part, with the rows of the files, numbered as these are."""
    found = []
    for number in np.unique(files.part).tolist():
        mine = np.flatnonzero(files.part == number)
        for path in _paths(source, kind, files.parts[number]):
            names = [name for name, _ in _SCHEMAS[kind] if name != "values"]
            table = read_table(source, path, names)
            found.append(_numbered(table, files.row[mine], mine))
    return found


def _paths(source: Storage, kind: str, part: str) -> Iterator[str]:
    if kind == "more":
        yield from objects_of(source, [part]).get(part, ())
    else:
        yield catalog.path_of(kind, part)


def _numbered(table: Any, rows: NDArray[np.int32], places: NDArray[np.int64]) -> Any:
    held = numbers_of(table["row"])
    order = np.argsort(rows, kind="stable")
    at = np.minimum(np.searchsorted(rows[order], held), len(rows) - 1)
    mine = np.flatnonzero(rows[order[at]] == held)
    kept = rows_of(table, mine)
    number = places[order[at[mine]]].astype(np.int32)
    return kept.set_column(kept.column_names.index("row"), "row", rows_column(number))


def _encoded(tables: list[Any], kind: str, run: str) -> bytes:
    schema = _SCHEMAS[kind]
    held = pa.concat_tables(tables) if tables else None
    columns = {name: [] if held is None else _column(held, name) for name, _ in schema}
    return encode_table(columns, schema, run)


def _column(table: Any, name: str) -> Any:
    return table[name] if name in table.column_names else [None] * len(table)
