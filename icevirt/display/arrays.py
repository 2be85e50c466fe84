"""Format the table of arrays that reports and plans share."""

from __future__ import annotations

from collections.abc import Iterable

from rich.table import Table
from rich.text import Text

from icevirt.archive.reports.build import ArraySummary
from icevirt.display.text import box, references, size, words

_HEADINGS = ("array", "type", "shape", "chunks of", "references", "in files", "stored", "read by")


def array_table(arrays: Iterable[ArraySummary]) -> Table:
    """Return a row for each array: what it is, its chunks and where they lie, who reads them."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    for heading in _HEADINGS:
        right = heading in ("in files", "stored")
        table.add_column(heading, overflow="fold", justify="right" if right else "left")
    for array in arrays:
        table.add_row(
            words(array.path, "bold"),
            words(array.data_type),
            box(array.shape),
            box(array.chunk_shape),
            references(array.references),
            size(array.references.bytes_referenced) if array.references.bytes_referenced else "",
            size(array.references.bytes_stored) if array.references.bytes_stored else "",
            words(array.readers.text),
        )
    return table


def facts(rows: dict[str, str]) -> Text:
    """Return a line for each row: what it is, in grey, and its value."""
    wide = max(map(len, rows), default=0)
    lines = [Text.assemble((f"  {name:<{wide}}  ", "dim"), words(rows[name])) for name in rows]
    return Text("\n").join(lines)
