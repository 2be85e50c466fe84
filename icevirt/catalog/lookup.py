"""Find which files a catalog already describes, and in which rows, without objects per file.

A file is found by hashes of URL, size, checksum and time: a changed file is another file. Hashes
are looked up in indexes of many parts (`icevirt.catalog.part_index`); the tables of a part are read
where no index covers it, and where limits may have stopped a file that is found.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from icevirt.archive import catalog
from icevirt.archive.scanned import DEFAULT, ScanLimits
from icevirt.archive.sources import SourceFiles
from icevirt.catalog.arrow_columns import are, bytes_of, numbers_of
from icevirt.catalog.facts_reader import Chosen
from icevirt.catalog.file_hashes import WantedFiles, hash_of_url, hashes_by_column
from icevirt.catalog.parquet import read_tables, telling_damage
from icevirt.catalog.part_index import FEWEST, IndexWriter, PartIndex, read_indexes, table_of
from icevirt.catalog.parts import tables_of_files
from icevirt.errors import ObjectNotFoundError, ScanMemoryError, ScanTimeoutError
from icevirt.model.strings import Strings
from icevirt.storage.protocol import ObjectInfo, Storage
from icevirt.threads import Threads

_KEY = ["url", "etag", "size", "last_modified"]
_STOPPED = ["code", "time_limit", "memory_limit"]
_FORGOTTEN = "forgotten"
_NOWHERE = (1 << 63) - 1
_ROW = (1 << 32) - 1


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CatalogLookup:
    """The rows of some files in the complete parts of one scan's identity."""

    parts: tuple[str, ...]
    part: NDArray[np.int32]  # (files,) index into ``parts``, -1: not described yet
    row: NDArray[np.int32]  # (files,)
    attempt: int  # how often bad files were forgotten
    outgrown: Chosen  # rows that lower limits stopped; not among `row`

    @property
    def missing(self) -> NDArray[np.int64]:
        """The files that have to be scanned."""
        return np.flatnonzero(self.part < 0)

    @property
    def chosen(self) -> tuple[tuple[str, ...], Chosen]:
        """The parts that are needed, and the row of each file in them."""
        is_used = np.bincount(self.part, minlength=len(self.parts)) > 0
        if is_used.all():
            return self.parts, Chosen(part=self.part, row=self.row)
        number = np.cumsum(is_used, dtype=np.int32) - 1
        names = tuple(self.parts[at] for at in np.flatnonzero(is_used).tolist())
        return names, Chosen(part=number[self.part], row=self.row)


def look_up_files(
    storage: Storage,
    identity: str,
    files: SourceFiles,
    limits: ScanLimits = DEFAULT,
    also: Sequence[str] = (),
    *,
    writer: IndexWriter | None = None,
    known: KnownTables | None = None,
    listed: CatalogTables | None = None,
) -> CatalogLookup:
    """Look files up in the catalog. Those that lower ``limits`` stopped are not described by it.

    Args:
        storage: The catalog.
        identity: Of the scan.
        files: To be looked up.
        limits: Of the scan of a file.
        also: Identities of other scans, which count for files that this one does not describe.
        writer: Writes an index of parts that have none, where these are many.
        known: Of what was read already; takes what is read now.
        listed: What the catalog held a moment ago; by default it is listed now.
    """
    order = {name: at for at, name in enumerate(dict.fromkeys((identity, *also)))}
    listed = list_tables(storage) if listed is None else listed
    tables, forgotten, indexes = listed
    mine = (part for part in tables if catalog.scan_of(part) in order)
    parts = tuple(sorted(mine, key=lambda part: (order[catalog.scan_of(part)], part)))
    search = _Search(files, parts, [tables[name] for name in parts])
    search.leave_out(each for note in forgotten for each in note)
    if len(parts) >= FEWEST:
        indexes = read_indexes(storage, order) if indexes is None else indexes
        search.look_into_indexes([each for each in indexes if each.scan in order])
    search.read_tables(storage, limits, writer, {} if known is None else known)
    return search.finish(len(forgotten))


class CatalogTables(NamedTuple):
    """The parts of a catalog, as they were listed."""

    by_part: dict[str, ObjectInfo]  # tables of files
    forgotten: list[list[tuple[str, int]]]  # part and row of bad files, for each time
    indexes: Sequence[PartIndex] | None = None  # None: they were not listed


def list_tables(storage: Storage, files: int = 0) -> CatalogTables:
    """List the parts of a catalog, and their indexes if it has so many files that there may be."""
    with Threads(2, "icevirt-look-up") as pool:  # else a server is waited for several times
        forgetting = pool.submit(rows_forgotten, storage)
        indexes = pool.submit(read_indexes, storage) if files >= FEWEST else None
        found = tables_of_files(storage)
        return CatalogTables(
            found, forgetting.result(), None if indexes is None else indexes.result()
        )


def parts_with(storage: Storage, urls: Collection[str]) -> list[str]:
    """Return the parts that may describe files of these URLs, however they were listed."""
    names = {table_of(info): name for name, info in tables_of_files(storage).items()}
    left = {*names.values()}
    found = set[str]()
    wanted = WantedFiles(np.array([*map(hash_of_url, urls)], np.uint64))
    for index in read_indexes(storage) if len(names) >= FEWEST else ():
        with suppress(ObjectNotFoundError):  # another scan merged it meanwhile: tables are read
            tables = np.unique(
                np.concatenate([np.zeros(0, np.uint32), *(e[1] for e in index.find(wanted))])
            )
            found |= {names.get(index.tables[at], "") for at in tables.tolist()}
            left -= {names.get(table, "") for table in index.tables}
    return sorted((found | left) - {""})


class _Search:
    """Files that are looked for in some parts: the first part that has one counts.

    Files that two scans described at once are taken from the part whose name comes first.
    """

    def __init__(
        self, files: SourceFiles, parts: tuple[str, ...], tables: Sequence[ObjectInfo]
    ) -> None:
        self._parts, self._tables = parts, tables
        self._wanted = WantedFiles.of(files if parts else SourceFiles())
        self._best = np.full(len(files), _NOWHERE, np.int64)  # (files,) part << 32 | row
        self._gone = np.zeros(0, np.int64)
        self._indexed = np.zeros(len(parts), np.bool_)
        self._read = np.ones(len(parts), np.bool_)  # parts whose tables have to be read
        self._outgrown: list[NDArray[np.int64]] = [np.zeros(0, np.int64)]
        self._indexes: Sequence[PartIndex] = ()

    def leave_out(self, rows: Iterable[tuple[str, int]]) -> None:
        """Let rows of parts not count, nor what other parts say of them."""
        forgotten: dict[str, list[int]] = {}
        for name, row in rows:
            forgotten.setdefault(catalog.tables_of(name), []).append(row)
        gone = [
            at << 32 | row
            for at, name in enumerate(self._parts if forgotten else ())
            for row in forgotten.get(catalog.tables_of(name), ())
        ]
        self._gone = np.array(gone, np.int64)

    def look_into_indexes(self, indexes: Sequence[PartIndex]) -> None:
        """Look for files in indexes of parts."""
        self._indexes = indexes
        number = {table_of(info): at for at, info in enumerate(self._tables)}
        for index in indexes:
            part = np.array([number.get(table, -1) for table in index.tables], np.int64)
            part[self._indexed[part]] = -1
            if (part < 0).all():
                continue
            judged = np.zeros(len(self._parts), np.bool_)  # in tables, which say what stopped
            try:
                for at, table, row in index.find(self._wanted):
                    there = part[table] >= 0
                    judged[part[table[there & index.may_stop[table]]]] = True
                    there &= ~index.may_stop[table]
                    self._add(at[there], part[table[there]] << 32 | row[there])
            except ObjectNotFoundError:  # another scan merged it meanwhile: tables are read
                continue
            covered = part[part >= 0]
            self._indexed[covered] = True
            self._read[covered] = judged[covered]

    def read_tables(
        self,
        storage: Storage,
        limits: ScanLimits,
        writer: IndexWriter | None,
        known: KnownTables,
    ) -> None:
        """Look for files in the tables that no index stands for."""
        left = np.flatnonzero(self._read).tolist()
        worth = self._worth_an_index() if writer is not None else frozenset()
        keys = {number: (storage.url, self._tables[number], limits) for number in left}
        paths = [key[1].path for key in keys.values() if key not in known]
        columns = [*_KEY, "row", *_STOPPED]
        tables = zip(paths, read_tables(storage, paths, columns, coded=["code"]), strict=True)
        for number, key in keys.items():
            if (rows := known.get(key)) is None:
                path, table = next(tables)
                with telling_damage(path):
                    rows = _rows(table, limits)
                if len(left) < FEWEST:
                    known[key] = rows
            self._find(number, rows)
            if writer is not None and number in worth:
                writer.add(key[1], rows.hashes, rows.row, may_stop=rows.may_stop)
        if writer is not None:
            writer.close(self._indexes, {table_of(info) for info in self._tables})

    def _find(self, number: int, rows: _FileRows) -> None:
        """Look for files in the table of a part."""
        at, found = self._wanted.among(rows.hashes)
        code = number << 32 | rows.row[found].astype(np.int64)
        stopped = rows.stopped[found]
        self._outgrown.append(code[stopped][~np.isin(code[stopped], self._gone)])
        self._add(at[~stopped], code[~stopped])

    def _worth_an_index(self) -> frozenset[int]:
        """Return the parts that no index covers, of scans that have many of them."""
        left = np.flatnonzero(~self._indexed).tolist()
        scans = Counter(catalog.scan_of(self._parts[number]) for number in left)
        return frozenset(
            number for number in left if scans[catalog.scan_of(self._parts[number])] >= FEWEST
        )

    def _add(self, at: NDArray[np.int32], code: NDArray[np.int64]) -> None:
        if len(self._gone):
            kept = ~np.isin(code, self._gone)
            at, code = at[kept], code[kept]
        np.minimum.at(self._best, at, code)

    def finish(self, attempt: int) -> CatalogLookup:
        """Return what was found."""
        is_found, outgrown = self._best != _NOWHERE, np.concatenate(self._outgrown)
        return CatalogLookup(
            parts=self._parts,
            part=np.where(is_found, self._best >> 32, -1).astype(np.int32),
            row=np.where(is_found, self._best & _ROW, 0).astype(np.int32),
            attempt=attempt,
            outgrown=Chosen(
                part=(outgrown >> 32).astype(np.int32), row=(outgrown & _ROW).astype(np.int32)
            ),
        )


class _FileRows(NamedTuple):
    """Files of a part."""

    hashes: NDArray[np.void]
    row: NDArray[np.int32]
    stopped: NDArray[np.bool_]  # by limits that were lower
    may_stop: bool  # limits stopped some, whichever those were


type KnownTables = dict[tuple[str, ObjectInfo, ScanLimits], _FileRows]
"""Tables that were read, by catalog and listing: another one of a name has another."""

_KEPT = 1 << 20  # files in tables that are remembered


def known_tables(whose: str) -> KnownTables:
    """Return what this process read of a repository's tables, for who looks again and again."""
    found = _known_tables(whose)
    if len(found) > 4 * FEWEST or sum(len(rows.row) for rows in found.values()) > _KEPT:
        found.clear()
    return found


@lru_cache(8)
def _known_tables(_whose: str) -> KnownTables:
    return {}


def forget(storage: Storage, parts: Sequence[str], rows: Chosen) -> str:
    """Let bad files be tried again by the next scan; return the path of the note that says so.

    The note is named by what it says: two scans that forget at once keep each other's.
    """
    pairs = zip(rows.part.tolist(), rows.row.tolist(), strict=True)
    note = json.dumps([[parts[part], row] for part, row in pairs]).encode()
    name = hashlib.blake2b(note, digest_size=16).hexdigest()
    path = f"{_FORGOTTEN}/{name}.json"
    storage.put(path, note)
    return path


def rows_forgotten(storage: Storage) -> list[list[tuple[str, int]]]:
    """Return part and row of the bad files that were to be tried again, for each time."""
    found = []
    for info in storage.list(f"{_FORGOTTEN}/"):
        note = storage.get(info.path)
        with telling_damage(info.path):
            found.append([(str(part), int(row)) for part, row in json.loads(note)])
    return found


def _rows(table: Any, limits: ScanLimits) -> _FileRows:
    """Return the rows of a part. Raises ``ValueError`` where two describe one file."""
    code, seconds, memory = (table[name] for name in _STOPPED)
    row = numbers_of(table["row"])
    if (np.sort(row) != np.arange(len(row))).any():
        raise ValueError("its rows are not numbered from 0")
    slow, large = are(code, ScanTimeoutError.code), are(code, ScanMemoryError.code)
    return _FileRows(
        hashes=hashes_by_column(
            Strings(*bytes_of(table["url"])),
            Strings(*bytes_of(table["etag"])),
            numbers_of(table["size"]),
            numbers_of(table["last_modified"]),
        ),
        row=row.astype(np.int32),
        stopped=(slow & (numbers_of(seconds) < limits.seconds))
        | (large & (numbers_of(memory) < limits.memory)),
        may_stop=bool(slow.any() or large.any()),
    )
