"""Read the names of the files that a write task needs from the catalog.

A task knows the part and row of its files: a few bytes each, however long their names are. If the
plan gives files other names than the catalog, these travel with the task instead.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from icevirt.archive import catalog
from icevirt.archive.facts import FileColumns
from icevirt.archive.plan import FileRows
from icevirt.catalog.arrow_columns import bytes_of, numbers_of, rows_of
from icevirt.catalog.parquet import read_table
from icevirt.errors import FormatError
from icevirt.model.strings import Strings
from icevirt.storage.protocol import Storage

_COLUMNS = ["row", "url", "etag", "size", "last_modified"]


class TaskFiles:
    """The files of some items: where they are described, and their names once these are needed.

    Args:
        storage: The catalog.
        files: The files, with their names where the catalog has not the same.
        led: URL prefixes into which references of the files may lead.
    """

    def __init__(
        self, storage: Storage, files: FileRows | FileColumns, *, led: Sequence[str] = ()
    ) -> None:
        self._storage = storage
        self.led = led
        self._named = files if isinstance(files, FileColumns) else None
        self._last: tuple[int, Any] | None = None  # the part that was read last
        self.rows = files if isinstance(files, FileRows) else FileRows.of(files)

    def __len__(self) -> int:
        return len(self.rows)

    def named(self) -> FileColumns:
        """Return the files with their names.

        Raises:
            FormatError: The catalog is damaged.
        """
        if self._named is None:
            self._named = self._read()
        return self._named

    def url(self, place: int) -> str:
        """Return the name of one file; nothing is read of parts that do not describe it."""
        if self._named is not None:
            return self._named.url[place]
        part = int(self.rows.part[place])
        if self._last is None or self._last[0] != part:
            self._last = part, self._table(part)
        table = self._last[1]
        (at,) = self._places(part, table, self.rows.row[[place]]).tolist()
        url: str = table["url"][at].as_py()
        return url

    def _read(self) -> FileColumns:
        part = self.rows.part
        order = np.argsort(part, kind="stable")
        ends = np.searchsorted(part[order], np.arange(len(self.rows.parts)), side="right")
        runs = np.split(order, ends[:-1])
        found = [self._taken(number, run) for number, run in enumerate(runs) if len(run)]
        table = pa.concat_tables(found) if found else None
        place = np.empty(len(order), np.int64)
        place[order] = np.arange(len(order))
        return FileColumns(
            parts=self.rows.parts,
            part=part,
            row=self.rows.row,
            url=_texts(table, "url", place),
            etag=_texts(table, "etag", place),
            size=_numbers(table, "size", place),
            last_modified=_numbers(table, "last_modified", place),
        )

    def _taken(self, part: int, places: NDArray[np.int64]) -> Any:
        """Return the rows of a part's table for some files that it describes."""
        table = self._table(part)
        return rows_of(table, self._places(part, table, self.rows.row[places]))

    def _table(self, part: int) -> Any:
        path = catalog.path_of("files", self.rows.parts[part])
        return read_table(self._storage, path, _COLUMNS)

    def _places(self, part: int, table: Any, rows: NDArray[np.int32]) -> NDArray[np.int64]:
        """Return where rows of a part stand in its table.

        Raises:
            FormatError: One is not there.
        """
        held = numbers_of(table["row"])
        order = np.argsort(held, kind="stable")
        at = np.minimum(np.searchsorted(held[order], rows), len(held) - 1)
        if not len(held) or (held[order[at]] != rows).any():
            raise FormatError(
                "a part of the catalog lacks files that the plan needs",
                do="Delete the catalog and scan again.",
                part=self.rows.parts[part],
            )
        places: NDArray[np.int64] = order[at]
        return places


def _texts(table: Any, name: str, place: NDArray[np.int64]) -> Strings:
    return Strings.empty(0) if table is None else Strings(*bytes_of(table[name]))[place]


def _numbers(table: Any, name: str, place: NDArray[np.int64]) -> NDArray[np.int64]:
    empty = np.zeros(0, np.int64)
    return empty if table is None else numbers_of(table[name])[place]
