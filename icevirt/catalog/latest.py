"""Find the latest catalog row of each file, without Python objects per file."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from icevirt.archive import catalog
from icevirt.catalog.lookup import rows_forgotten
from icevirt.catalog.parquet import read_table
from icevirt.catalog.view import PartView
from icevirt.storage.protocol import Storage


def newest(storage: Storage, scan: str | None = None) -> list[PartView]:
    """Return the parts of a catalog, each with the files that no later part describes again.

    A file that was scanned with several options counts once for each of them. ``scan`` takes one.
    """
    times = {
        info.path.removeprefix("files/").removesuffix(".parquet"): info.last_modified
        for info in storage.list("files")
        if info.path.endswith(".parquet")
    }
    names = sorted(
        (name for name in times if scan is None or catalog.scan_of(name) == scan),
        key=lambda name: (times[name], name),
    )
    forgotten = [each for time in rows_forgotten(storage) for each in time]
    rows = _last(storage, names, forgotten)
    return [
        PartView(catalog=storage, name=name, scanned_at=times[name], rows=each)
        for name, each in zip(names, rows, strict=True)
    ]


def _last(
    storage: Storage, names: Sequence[str], forgotten: Sequence[tuple[str, int]]
) -> list[NDArray[np.int32]]:
    """Return for each part, in the order in which they were written, the rows that count."""
    tables = [_rows(storage, name, number) for number, name in enumerate(names)]
    if not tables:
        return []
    found = pa.concat_tables(tables)
    part, row = found["part"].to_numpy(), found["row"].to_numpy()
    file = found["file"].combine_chunks().dictionary_encode().indices.to_numpy()
    # what was tried again, or will be, gives way even within one tick of the storage's clock
    numbers = {name: number for number, name in enumerate(names)}
    gone = [numbers[name] << 32 | row for name, row in forgotten if name in numbers]
    counts = ~np.isin(part.astype(np.int64) << 32 | row, gone)
    order = np.lexsort((row, part, counts, file))
    last = order[np.flatnonzero(np.diff(file[order], append=-1))]
    kept = np.zeros(len(file), np.bool_)
    kept[last] = True
    return [np.sort(row[kept & (part == number)]) for number in range(len(names))]


def _rows(storage: Storage, name: str, number: int) -> pa.Table:
    table: Any = read_table(storage, catalog.path_of("files", name), ["url", "row"])
    scan = catalog.scan_of(name)
    return pa.table(
        {
            "file": pc.binary_join_element_wise(pa.scalar(scan), table["url"], " "),
            "row": table["row"],
            "part": pa.array(np.full(len(table), number, np.int32)),
        }
    )
