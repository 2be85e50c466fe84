"""Stored tables of a catalog, read; one that is damaged is an error that says how to mend it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from icevirt.errors import FormatError
from icevirt.storage.protocol import Storage


def read_table(
    storage: Storage,
    path: str,
    columns: Sequence[str],
    *,
    coded: Sequence[str] = (),
    schema: Mapping[str, pa.DataType] | None = None,
) -> Any:
    """Return columns of a stored table.

    Args:
        storage: The catalog.
        path: Of the table in it.
        columns: Their names.
        coded: Those whose texts are numbered.
        schema: Types of the columns, where they are to be just these.

    Raises:
        FormatError: It is damaged.
        ObjectNotFoundError: It is not there.
    """
    raw = storage.get(path)
    with telling_damage(path):
        # `read_table` of a dataset takes several times as long for tables as small as these
        file: Any = pq.ParquetFile(pa.BufferReader(raw), read_dictionary=list(coded))
        table = file.read(columns=list(columns), use_threads=False)
        if lacking := {*columns} - {*table.column_names}:
            raise pa.ArrowInvalid(f"no column {sorted(lacking)}")
        return table if schema is None else table.select(list(schema)).cast(pa.schema(schema))


@contextmanager
def telling_damage(path: str) -> Iterator[None]:
    """Make an error of what Arrow says of a damaged table.

    Raises:
        FormatError: In place of Arrow's errors.
    """
    try:
        yield
    except (pa.ArrowException, OSError) as error:
        folder, _, name = path.rpartition("/")
        raise FormatError(
            "a table of a catalog is damaged",
            do="Name the sources, or another directory for the catalog."
            if folder == "asked"
            else f"Delete files/{name} from the catalog; the next scan makes its part anew.",
            path=path,
            cause=str(error).partition("\n")[0],
        ) from error
