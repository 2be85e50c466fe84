"""Show the share of a table that a task has."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import pyarrow as pa

from icevirt.tasks.tables.counted_rows import array_rows, counted_rows
from icevirt.tasks.tables.history_rows import operation_rows, snapshot_rows
from icevirt.tasks.tables.reference_rows import reference_rows
from icevirt.tasks.tables.shares import TableShare

_ROWS: Mapping[str, Callable[[TableShare], Iterator[pa.RecordBatch]]] = {
    "references": reference_rows,
    "locations": counted_rows,
    "files": counted_rows,
    "arrays": array_rows,
    "snapshots": snapshot_rows,
    "ops_log": operation_rows,
}


def rows_of(share: TableShare) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a share.

    Raises:
        FormatError: A manifest, or the metadata of an array, is damaged.
        StorageError: The repository cannot be read.
    """
    return _ROWS[share.table](share)
