"""Keep the list of files that a dataset is made of, beside the dataset.

A list is an immutable object named by a digest of all its files. A list that grew holds its new
files and the name of the list that it continues, until joining the two costs little: so a dataset
that grows by single files writes few bytes, and reading the list takes few objects.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import batched

import pyarrow as pa
import pyarrow.parquet as pq

from icevirt.archive.catalog import path_of
from icevirt.archive.scanned import SourceFile
from icevirt.archive.sources import SourceFiles
from icevirt.catalog.parquet import REQUESTED, damaged, opened, table_of, telling_damage
from icevirt.storage.protocol import Storage

_FOLDER = "listings"
_NAME = re.compile("[0-9a-f]{20}")
_BASE, _BEFORE = b"icevirt_base", b"icevirt_before"
_ROWS = 1 << 16  # that are encoded at a time
_WORTH = 2  # a piece that is at most so many times as long as what follows is written once more
_SCHEMA = pa.schema([(name, getattr(pa, kind)()) for name, kind in REQUESTED])


@dataclass(frozen=True, slots=True, kw_only=True)
class FileListing:
    """The files of a dataset, and the objects that hold them."""

    files: SourceFiles
    pieces: tuple[tuple[str, int], ...]  # name of each, and the row that it begins with


def write_listing(
    storage: Storage, name: str, files: Sequence[SourceFile], *, grown: FileListing | None = None
) -> None:
    """Write the list of a dataset's files.

    Args:
        storage: The folder of icevirt in a repository.
        name: A digest of the files.
        files: All of them, in their order.
        grown: The list that these files begin with.
    """
    pieces = [] if grown is None else [*grown.pieces]
    begin = 0 if grown is None else len(grown.files)
    while pieces and begin - pieces[-1][1] <= _WORTH * (len(files) - begin):
        begin = pieces.pop()[1]
    base = pieces[-1][0] if pieces else ""
    schema = _SCHEMA.with_metadata({_BASE: base.encode(), _BEFORE: str(begin).encode()})
    sink = io.BytesIO()
    columns = [column for column, _ in REQUESTED]
    with pq.ParquetWriter(sink, schema, compression="zstd", write_page_checksum=True) as writer:
        for some in batched((files[at] for at in range(begin, len(files))), _ROWS):
            held = {column: [getattr(file, column) for file in some] for column in columns}
            writer.write_table(table_of(held, schema))
    storage.put(path_of(_FOLDER, name), sink.getvalue())


def read_listing(storage: Storage, name: str) -> FileListing:
    """Read the list of a dataset's files.

    The caller compares its digest with the name: anybody may have written it.

    Raises:
        FormatError: It is damaged.
        ObjectNotFoundError: It is not there.
    """
    tables, pieces, before = [], [], None
    while name:
        path = path_of(_FOLDER, name)
        with telling_damage(path):
            file = opened(storage.get(path))
            held = file.schema_arrow.metadata or {}
            base, begin = held[_BASE].decode(), int(held[_BEFORE])
            table = file.read(columns=[column for column, _ in REQUESTED])
            is_whole = table.schema.equals(_SCHEMA) and not any(
                column.null_count for column in table.columns
            )
        is_sound = begin == 0 if not base else begin > 0 and _NAME.fullmatch(base) is not None
        if not (is_whole and is_sound) or before not in (None, begin + table.num_rows):
            raise damaged(path, "it does not fit the list that continues it")
        tables.append(table)
        pieces.append((name, begin))
        name, before = base, begin
    return FileListing(files=SourceFiles(_files(tables[::-1])), pieces=tuple(pieces[::-1]))


def _files(tables: Sequence[pa.Table]) -> Iterator[SourceFile]:
    for table in tables:
        for some in table.to_batches(max_chunksize=_ROWS):
            columns = (some.column(column).to_pylist() for column, _ in REQUESTED)
            for url, size, etag, time in zip(*columns, strict=True):
                yield SourceFile(url=url, size=size, etag=etag, last_modified=time)
