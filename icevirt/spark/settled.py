"""Which files a catalog describes already, and in which rows; nothing per file is a Python object.

A file is found by URL, size and checksum: one that changed since is another file.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from icevirt.archive import catalog
from icevirt.archive.scanned import SourceFile
from icevirt.spark.catalog import Chosen, complete_parts
from icevirt.storage.protocol import Storage

_KEY = ["url", "etag", "size", "last_modified"]
_FORGOTTEN = "forgotten"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Settled:
    """The rows of some files in the complete parts of one scan's identity."""

    parts: tuple[str, ...]
    part: NDArray[np.int32]  # (files,) index into ``parts``, -1: not described yet
    row: NDArray[np.int32]  # (files,)
    attempt: int  # how often bad files were forgotten

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


def settled(storage: Storage, identity: str, files: Sequence[SourceFile]) -> Settled:
    """Look files up in the catalog."""
    parts = tuple(sorted(p for p in complete_parts(storage) if p.startswith(f"{identity}-")))
    forgotten = rows_forgotten(storage)
    tables = [_rows(storage, part, number, forgotten) for number, part in enumerate(parts)]
    wanted = _wanted(files)
    part, row = np.full(len(files), -1, np.int32), np.zeros(len(files), np.int32)
    if tables:
        found = wanted.join(pa.concat_tables(tables), keys=_KEY, join_type="inner")
        number = found["number"].to_numpy()
        # files that two scans described at once are taken from the part whose name comes first
        order = np.lexsort((found["row"].to_numpy(), found["part"].to_numpy(), number))
        first = order[np.unique(number[order], return_index=True)[1]]
        part[number[first]] = found["part"].to_numpy()[first]
        row[number[first]] = found["row"].to_numpy()[first]
    return Settled(parts=parts, part=part, row=row, attempt=len(forgotten))


def forget(storage: Storage, parts: Sequence[str], rows: Chosen) -> None:
    """Let bad files be tried again by the next scan."""
    told = [
        [parts[part], row] for part, row in zip(rows.part.tolist(), rows.row.tolist(), strict=True)
    ]
    number = len(rows_forgotten(storage))
    storage.put(f"{_FORGOTTEN}/{number:06d}.json", json.dumps(told).encode())


def rows_forgotten(storage: Storage) -> list[list[tuple[str, int]]]:
    """Return part and row of the bad files that were to be tried again, for each time."""
    return [
        [(part, row) for part, row in json.loads(storage.get(info.path))]
        for info in storage.list(_FORGOTTEN)
    ]


def _wanted(files: Sequence[SourceFile]) -> pa.Table:
    return pa.table(
        {
            "url": pa.array([file.url for file in files], pa.string()),
            "etag": pa.array([file.etag for file in files], pa.string()),
            "size": pa.array([file.size for file in files], pa.int64()),
            "last_modified": pa.array([file.last_modified for file in files], pa.int64()),
            "number": pa.array(np.arange(len(files))),
        }
    )


def _rows(
    storage: Storage, part: str, number: int, forgotten: Sequence[Sequence[tuple[str, int]]]
) -> pa.Table:
    raw = storage.get(catalog.path_of("files", part))
    table = pq.read_table(pa.BufferReader(raw), columns=[*_KEY, "row"])
    gone = [row for each in forgotten for name, row in each if name == part]
    if gone:
        table = table.filter(pa.array(~np.isin(table["row"].to_numpy(), gone)))
    return table.append_column("part", pa.array(np.full(len(table), number, np.int32)))
