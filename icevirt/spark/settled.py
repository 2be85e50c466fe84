"""Which files a catalog describes already, and in which rows; nothing per file is a Python object.

A file is found by URL, size and checksum: one that changed since is another file.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from icevirt.archive import catalog
from icevirt.archive.scanned import SourceFile
from icevirt.errors import ScanMemoryError, ScanTimeoutError
from icevirt.spark.catalog import complete_parts
from icevirt.spark.facts import Chosen
from icevirt.spark.growing import are
from icevirt.spark.limits import DEFAULT, Limits
from icevirt.spark.tables import read_table
from icevirt.storage.protocol import Storage

_KEY = ["url", "etag", "size", "last_modified"]
_STOPPED = ["code", "time_limit", "memory_limit"]
_FORGOTTEN = "forgotten"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Settled:
    """The rows of some files in the complete parts of one scan's identity."""

    parts: tuple[str, ...]
    part: NDArray[np.int32]  # (files,) index into ``parts``, -1: not described yet
    row: NDArray[np.int32]  # (files,)
    attempt: int  # how often bad files were forgotten
    outgrown: Chosen  # rows that lower limits stopped, which are not among those of the files

    @property
    def missing(self) -> NDArray[np.int64]:
        """The files that have to be scanned."""
        return np.flatnonzero(self.part < 0)

    @property
    def chosen(self) -> tuple[tuple[str, ...], Chosen]:
        """The parts that are needed, and the row of each file in them."""
        used, part = np.unique(self.part, return_inverse=True)
        names = tuple(self.parts[number] for number in used.tolist())
        return names, Chosen(part=part.astype(np.int32), row=self.row)


def settled(
    storage: Storage, identity: str, files: Sequence[SourceFile], limits: Limits = DEFAULT
) -> Settled:
    """Look files up in the catalog. Those that lower ``limits`` stopped are not described by it."""
    parts = tuple(sorted(p for p in complete_parts(storage) if catalog.scan_of(p) == identity))
    forgotten = rows_forgotten(storage)
    wanted = _Wanted(files)
    part, row = np.full(len(files), -1, np.int32), np.zeros(len(files), np.int32)
    outgrown: list[tuple[int, int]] = []
    for number, name in enumerate(parts):
        gone = {row for each in forgotten for where, row in each if where == name}
        rows, stopped = _rows(storage, name, limits)
        for at, found in wanted.among(rows):
            if found in gone:
                continue
            if found in stopped:
                outgrown.append((number, found))
            # files that two scans described at once are taken from the part whose name comes first
            elif part[at] < 0:
                part[at], row[at] = number, found
    return Settled(
        parts=parts, part=part, row=row, attempt=len(forgotten), outgrown=_chosen(outgrown)
    )


class _Wanted:
    """The files that are looked for, by a number that tells them apart nearly always."""

    def __init__(self, files: Sequence[SourceFile]) -> None:
        self._files = files
        numbers = np.fromiter((hash(_key(file)) for file in files), np.int64, len(files))
        self._order = np.argsort(numbers, kind="stable")
        self._numbers = numbers[self._order]

    def among(self, rows: Sequence[tuple[_Key, int]]) -> Iterator[tuple[int, int]]:
        """Yield the files that are among the rows, and their row."""
        numbers = np.fromiter((hash(key) for key, _ in rows), np.int64, len(rows))
        low = np.searchsorted(self._numbers, numbers, side="left").tolist()
        high = np.searchsorted(self._numbers, numbers, side="right").tolist()
        for (key, row), first, end in zip(rows, low, high, strict=True):
            for at in self._order[first:end].tolist():
                if _key(self._files[at]) == key:
                    yield at, row


type _Key = tuple[str, str, int, int]


def _key(file: SourceFile) -> _Key:
    return file.url, file.etag, file.size, file.last_modified


def forget(storage: Storage, parts: Sequence[str], rows: Chosen) -> None:
    """Let bad files be tried again by the next scan.

    The note is named by what it says: two scans that forget at once keep each other's.
    """
    told = [
        [parts[part], row] for part, row in zip(rows.part.tolist(), rows.row.tolist(), strict=True)
    ]
    note = json.dumps(told).encode()
    name = hashlib.blake2b(note, digest_size=16).hexdigest()
    storage.put(f"{_FORGOTTEN}/{name}.json", note)


def rows_forgotten(storage: Storage) -> list[list[tuple[str, int]]]:
    """Return part and row of the bad files that were to be tried again, for each time."""
    return [
        [(part, row) for part, row in json.loads(storage.get(info.path))]
        for info in storage.list(_FORGOTTEN)
    ]


def _rows(
    storage: Storage, part: str, limits: Limits
) -> tuple[list[tuple[_Key, int]], frozenset[int]]:
    """Return the rows of a part, and which of them limits stopped that were lower."""
    path = catalog.path_of("files", part)
    table: Any = read_table(storage, path, [*_KEY, "row", *_STOPPED], coded=["code"])
    columns = [table[name].to_pylist() for name in _KEY]
    code, seconds, memory = (table[name] for name in _STOPPED)
    stopped = table["row"].to_numpy()[
        (are(code, ScanTimeoutError.code) & (seconds.to_numpy() < limits.seconds))
        | (are(code, ScanMemoryError.code) & (memory.to_numpy() < limits.memory))
    ]
    rows = list(zip(zip(*columns, strict=True), table["row"].to_pylist(), strict=True))
    return rows, frozenset(stopped.tolist())


def _chosen(rows: Sequence[tuple[int, int]]) -> Chosen:
    columns = np.array(rows, np.int32).reshape(-1, 2)
    return Chosen(part=columns[:, 0], row=columns[:, 1])
