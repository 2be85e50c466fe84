"""Find which files a catalog already describes, and in which rows, without objects per file.

A file is found by URL, size and checksum: a changed file is another file.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from icevirt.archive import catalog
from icevirt.archive.shares import DEFAULT, ScanLimits
from icevirt.archive.sources import SourceFiles
from icevirt.catalog.arrow_columns import are, bytes_of, numbers_of
from icevirt.catalog.facts_reader import Chosen
from icevirt.catalog.parquet import read_tables, telling_damage
from icevirt.catalog.parts import complete_parts
from icevirt.errors import ScanMemoryError, ScanTimeoutError
from icevirt.model.strings import Strings
from icevirt.storage.protocol import Storage

_KEY = ["url", "etag", "size", "last_modified"]
_STOPPED = ["code", "time_limit", "memory_limit"]
_FORGOTTEN = "forgotten"


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


def settled(
    storage: Storage,
    identity: str,
    files: SourceFiles,
    limits: ScanLimits = DEFAULT,
    also: Sequence[str] = (),
) -> CatalogLookup:
    """Look files up in the catalog. Those that lower ``limits`` stopped are not described by it.

    Args:
        storage: The catalog.
        identity: Of the scan.
        files: To be looked up.
        limits: Of the scan of a file.
        also: Identities of other scans, which count for files that this one does not describe.
    """
    order = {name: at for at, name in enumerate(dict.fromkeys((identity, *also)))}
    mine = (part for part in complete_parts(storage) if catalog.scan_of(part) in order)
    parts = tuple(sorted(mine, key=lambda part: (order[catalog.scan_of(part)], part)))
    forgotten = rows_forgotten(storage)
    gone: dict[str, list[int]] = {}
    for name, bad in (each for note in forgotten for each in note):
        gone.setdefault(name, []).append(bad)
    wanted = _Wanted(files) if parts else None
    part, row = np.full(len(files), -1, np.int32), np.zeros(len(files), np.int32)
    outgrown: list[tuple[int, int]] = []
    paths = (catalog.path_of("files", name) for name in parts)
    tables = read_tables(storage, paths, [*_KEY, "row", *_STOPPED], coded=["code"])
    for number, (name, table) in enumerate(zip(parts, tables, strict=True)):
        assert wanted is not None
        with telling_damage(catalog.path_of("files", name)):
            rows = _rows(table, limits)
        at, found = wanted.among(rows)
        if name in gone:
            kept = ~np.isin(rows.row[found], gone[name])
            at, found = at[kept], found[kept]
        stopped = rows.stopped[found]
        outgrown += [(number, each) for each in rows.row[found[stopped]].tolist()]
        # files that two scans described at once are taken from the part whose name comes first
        free = ~stopped & (part[at] < 0)
        at, found = at[free][::-1], found[free][::-1]  # of a file's rows the first is set last
        part[at], row[at] = number, rows.row[found]
    columns = np.array(outgrown, np.int32).reshape(-1, 2)
    stopped_rows = Chosen(part=columns[:, 0], row=columns[:, 1])
    return CatalogLookup(
        parts=parts, part=part, row=row, attempt=len(forgotten), outgrown=stopped_rows
    )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _FileRows:
    """Files of a part."""

    url: Strings
    etag: Strings
    size: NDArray[np.int64]
    last_modified: NDArray[np.int64]
    row: NDArray[np.int32]
    stopped: NDArray[np.bool_]  # by limits that were lower


class _Wanted:
    """The files that are looked for, by a hash of their URL that is nearly always unique."""

    def __init__(self, files: SourceFiles) -> None:
        self._files = files
        self._urls, self._etags = files.urls.opened(), files.etags.opened()
        numbers = self._urls.hashes()
        self._order = np.argsort(numbers, kind="stable")
        self._numbers = numbers[self._order]

    def among(self, rows: _FileRows) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the files that are among the rows, and which of these each one is."""
        numbers, files = rows.url.hashes(), self._files
        low = np.searchsorted(self._numbers, numbers, side="left")
        count = np.searchsorted(self._numbers, numbers, side="right") - low
        found = np.repeat(np.arange(len(numbers)), count)
        at = self._order[np.arange(len(found)) + np.repeat(low - np.cumsum(count) + count, count)]
        same = files.sizes[at] == rows.size[found]
        same &= files.times[at] == rows.last_modified[found]
        same &= self._urls[at].same(rows.url[found]) & self._etags[at].same(rows.etag[found])
        return at[same], found[same]


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
    for info in storage.list(_FORGOTTEN):
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
    return _FileRows(
        url=Strings(*bytes_of(table["url"])),
        etag=Strings(*bytes_of(table["etag"])),
        size=numbers_of(table["size"]),
        last_modified=numbers_of(table["last_modified"]),
        row=row.astype(np.int32),
        stopped=(are(code, ScanTimeoutError.code) & (numbers_of(seconds) < limits.seconds))
        | (are(code, ScanMemoryError.code) & (numbers_of(memory) < limits.memory)),
    )
