"""Copy what a catalog says of a few files, without references, into another catalog.

A plan of the copy sees these files as it would see them in the first catalog. Values that lie
beside are left out: a plan only asks how large they are.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from icevirt.archive import catalog
from icevirt.archive.facts import FileColumns
from icevirt.catalog.arrow_columns import numbers_of, rows_column, rows_of
from icevirt.catalog.facts_beside import FOLDER, objects_of
from icevirt.catalog.parquet import encode_table, read_table
from icevirt.catalog.references import encode
from icevirt.storage.protocol import Storage

_COLUMNS = {"files": catalog.FILES, "arrays": catalog.ARRAYS, "more": catalog.MORE}


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
    tables = {kind: _rows(source, files, kind) for kind in _COLUMNS}
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
            names = [name for name, _ in _COLUMNS[kind] if name != "values"]
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
    schema = _COLUMNS[kind]
    held = pa.concat_tables(tables) if tables else None
    columns = {name: [] if held is None else _column(held, name) for name, _ in schema}
    return encode_table(columns, schema, run)


def _column(table: Any, name: str) -> Any:
    return table[name] if name in table.column_names else [None] * len(table)
