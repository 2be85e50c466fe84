"""Read and write the Parquet tables of a catalog.

A damaged table raises an error that says how to repair it.
"""

from __future__ import annotations

import io
from array import array
from collections import deque
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from icevirt.archive import catalog
from icevirt.archive.sources import SourceFile
from icevirt.catalog.array_rows import NumberedColumn
from icevirt.errors import FormatError, IcevirtError
from icevirt.storage.protocol import Storage
from icevirt.threads import Threads

_SHOWN = 200  # characters of a cause
_AHEAD = 16  # tables that are read or waited for at a time
_MOST = (1 << 31) - 1  # bytes of the texts of one array
_ROWS = 1 << 16  # of a table that are Python objects at a time
_RUN = b"icevirt_run"
REQUESTED = (
    ("url", "string"),
    ("size", "int64"),
    ("etag", "string"),
    ("last_modified", "int64"),  # nanoseconds since 1970
)
"""The columns of a note of requested files."""
_TYPES = {
    table: {name: getattr(pa, kind)() for name, kind in columns}
    for table, columns in (
        ("files", catalog.FILES),
        ("arrays", catalog.ARRAYS),
        ("more", catalog.MORE),
        ("asked", REQUESTED),
    )
}
_OFTEN = 4  # times that texts of a column come, from which on each is encoded once
_MAY_LACK = ("labels", "labels_dtype", "digest", "values")  # columns with missing values
_DAMAGE = (
    pa.ArrowException,
    ArithmeticError,
    AttributeError,
    LookupError,
    OSError,
    RecursionError,
    TypeError,
    ValueError,
)
"""What reading hostile bytes may raise, where nothing else but them is looked at."""


def of_run(schema: pa.Schema, run: str) -> pa.Schema:
    """Return the schema of a table that says which part it belongs to."""
    return schema.with_metadata({_RUN: run.encode()}) if run else schema


def check_run(schema: pa.Schema, path: str) -> None:
    """Make sure that a table belongs to its part; tables of earlier versions do not say.

    Tables of different parts fit each other: offsets of one file would be taken for another's.

    Raises:
        FormatError: It is another part's.
    """
    run = (schema.metadata or {}).get(_RUN)
    part = path.rpartition("/")[2].removesuffix(".parquet")
    if run is not None and run.decode("utf-8", "replace") != catalog.run_of(part):
        raise damage_error(path, "it belongs to another part")


def table_of(columns: Mapping[str, Sequence[Any]], schema: pa.Schema) -> Any:
    """Return a table of texts, bytes and numbers, None for those that are missing, or of Arrow's.

    `pyarrow.array` would look whether it is given something of pandas and import that to know it:
    half a second and 40 MiB of every process that scans files.
    """
    arrays = [_array(columns[field.name], field.type) for field in schema]
    table = pa.Table.from_arrays(arrays, names=schema.names)
    return table.replace_schema_metadata(schema.metadata)


def _array(values: Any, kind: pa.DataType) -> Any:
    if isinstance(values, pa.Array | pa.ChunkedArray):
        return values
    if isinstance(values, NumberedColumn | array):
        return _of_known(values, kind)
    if kind == pa.string() and (distinct := {*values}) and _are_few(distinct, len(values)):
        return _of_few_texts(values, sorted(distinct))
    there = [value is not None for value in values]
    known = None if all(there) else pa.py_buffer(np.packbits(there, bitorder="little"))
    if kind not in {pa.string(), pa.binary()}:
        numbers = np.array([value or 0 for value in values], str(kind).replace("double", "float64"))
        return pa.Array.from_buffers(kind, len(values), [known, pa.py_buffer(numbers)])
    raw = [(value or "").encode() if isinstance(value, str) else value or b"" for value in values]
    ends = np.cumsum([0, *map(len, raw)])
    if ends[-1] > _MOST:
        return pa.array(values, kind)
    buffers = [known, pa.py_buffer(ends.astype(np.int32)), pa.py_buffer(b"".join(raw))]
    return pa.Array.from_buffers(kind, len(values), buffers)


def _of_known(column: NumberedColumn | array[int], kind: pa.DataType) -> Any:
    """Return a column of Arrow; of texts that repeat a dictionary, which Parquet takes as it is."""
    if isinstance(column, array):
        return pa.Array.from_buffers(kind, len(column), [None, pa.py_buffer(column)])
    if kind not in {pa.string(), pa.binary()}:
        numbers = np.array(column.values, kind.to_pandas_dtype())[column.numbers]
        return pa.Array.from_buffers(kind, len(column), [None, pa.py_buffer(numbers)])
    distinct = dict.fromkeys(column.values)
    if len(distinct) * _OFTEN > len(column):
        return _array([*column], kind)
    lacks = distinct.pop(None, ...) is None
    place = {text: at for at, text in enumerate(distinct)}
    codes = np.array([place.get(text, -1) for text in column.values], np.int32)[column.numbers]
    known = pa.py_buffer(np.packbits(codes >= 0, bitorder="little")) if lacks else None
    numbers = np.maximum(codes, 0)
    indices = pa.Array.from_buffers(pa.int32(), len(column), [known, pa.py_buffer(numbers)])
    return pa.DictionaryArray.from_arrays(indices, _array([*distinct], kind))


def _are_few(distinct: Collection[str | None], rows: int) -> bool:
    """Say whether texts are so few that each is encoded once, and make one array."""
    return (
        len(distinct) * _OFTEN <= rows
        and None not in distinct
        and rows * 4 * max(len(text or "") for text in distinct) <= _MOST
    )


def _of_few_texts(values: Sequence[str], distinct: Sequence[str]) -> Any:
    """Return a column of texts that repeat, each of which is encoded once."""
    place = {text: at for at, text in enumerate(distinct)}
    codes = np.fromiter(map(place.__getitem__, values), np.int32, len(values))
    numbers = pa.Array.from_buffers(pa.int32(), len(values), [None, pa.py_buffer(codes)])
    texts = _array(distinct, pa.string())
    return pa.DictionaryArray.from_arrays(numbers, texts).dictionary_decode()


def read_table(
    storage: Storage, path: str, columns: Sequence[str], *, coded: Sequence[str] = ()
) -> Any:
    """Return columns of a stored table.

    Args:
        storage: The catalog.
        path: Of the table in it.
        columns: Their names.
        coded: Columns whose texts are numbered.

    Raises:
        FormatError: It is damaged.
        ObjectNotFoundError: It is not there.
    """
    return _table(storage.get(path), path, columns, coded)


def read_tables(
    storage: Storage, paths: Iterable[str], columns: Sequence[str], *, coded: Sequence[str] = ()
) -> Iterator[Any]:
    """Yield columns of stored tables, in their order; raises as `read_table` does.

    The next tables are requested meanwhile: a bucket answers after milliseconds in which nothing
    else would happen. They are decoded one by one, because threads that decode keep waiting for
    each other's turn of the interpreter, in a third more processor time.
    """
    under_way: deque[tuple[str, Future[bytes]]] = deque()

    def following() -> Any:
        path, raw = under_way.popleft()
        return _table(raw.result(), path, columns, coded)

    with Threads(_AHEAD, "icevirt-catalog") as pool:
        try:
            for path in paths:
                under_way.append((path, pool.submit(storage.get, path)))
                if len(under_way) == _AHEAD:
                    yield following()
            while under_way:
                yield following()
        finally:
            for _, each in under_way:
                each.cancel()


def _table(raw: bytes, path: str, columns: Sequence[str], coded: Sequence[str]) -> Any:
    with telling_damage(path):
        # `read_table` of a dataset takes several times as long for tables as small as these
        file: Any = open_parquet(raw, read_dictionary=list(coded))
        table = file.read(columns=list(columns), use_threads=False)
        if lacking := {*columns} - {*table.column_names}:
            raise pa.ArrowInvalid(f"no column {sorted(lacking)}")
        _check_columns(table, _TYPES.get(path.partition("/")[0], {}))
        check_run(file.schema_arrow, path)
        return table


def open_parquet(raw: bytes, **options: Any) -> Any:
    """Return a Parquet file, whose pages are checked where they carry checksums."""
    return pq.ParquetFile(pa.BufferReader(raw), page_checksum_verification=True, **options)


def _check_columns(table: Any, types: Mapping[str, pa.DataType]) -> None:
    for field in table.schema:
        kind = field.type.value_type if pa.types.is_dictionary(field.type) else field.type
        if kind != types.get(field.name, kind):
            raise pa.ArrowInvalid(f"column {field.name} is {kind}")
        if field.name in types and field.name not in _MAY_LACK and table[field.name].null_count:
            raise pa.ArrowInvalid(f"a value of {field.name} is missing")


def files_of(table: Any) -> Iterator[SourceFile]:
    """Yield the files of a table with the columns `REQUESTED`."""
    for some in table.to_batches(max_chunksize=_ROWS):
        columns = (some.column(name).to_pylist() for name, _ in REQUESTED)
        for url, size, etag, time in zip(*columns, strict=True):
            yield SourceFile(url=url, size=size, etag=etag, last_modified=time)


def encode_table(
    columns: Mapping[str, Sequence[Any]], schema: Sequence[tuple[str, str]], run: str = ""
) -> bytes:
    """Return a table as Parquet; ``run`` names what it belongs to."""
    table = table_of(columns, pa.schema([(name, getattr(pa, kind)()) for name, kind in schema]))
    # readers need not know which columns were made of dictionaries
    how: dict[str, Any] = {"write_statistics": False, "store_schema": False}
    how["write_page_checksum"] = True
    sink = io.BytesIO()
    with pq.ParquetWriter(sink, table.schema, compression="zstd", **how) as writer:
        writer.write_table(table)
        if run:
            writer.add_key_value_metadata({_RUN.decode(): run})
    return sink.getvalue()


@contextmanager
def telling_damage(path: str) -> Iterator[None]:
    """Make an error of what reading a damaged table raises.

    Raises:
        FormatError: In place of errors of Arrow and of parsers.
    """
    try:
        yield
    except _DAMAGE as error:
        raise damage_error(
            path, str(error).partition("\n")[0][:_SHOWN] or type(error).__name__
        ) from error


def damage_error(path: str, cause: str) -> FormatError:
    """Return the error of a damaged object of a catalog."""
    folder, _, name = path.rpartition("/")
    part = name.removesuffix(".parquet")
    if folder == "files":
        do = rewritten(part)
    elif folder in ("arrays", "refs"):  # parts may share them
        scan, _, rest = part.partition("-")
        do = rewritten(f"{scan}-*{rest}")
    elif folder in ("forgotten", "known", "more", "scans"):
        do = f"Delete {path} from the catalog; the next scan writes it again if needed."
    else:
        do = "Pass the sources, or choose another directory for the catalog."
    return FormatError("a table of a catalog is damaged", do=do, path=path, cause=cause)


def rewritten(part: str) -> str:
    """Return what to do to have a part written again."""
    return f"Delete files/{part}.parquet from the catalog; the next scan writes this part again."


@contextmanager
def naming(parts: Sequence[str]) -> Iterator[None]:
    """Name the parts of references that do not fit together.

    Raises:
        FormatError: They do not fit.
    """
    try:
        yield
    except (FormatError, ValueError) as error:
        if isinstance(error, IcevirtError) and error.facts.keys() & {"file", "path"}:
            raise  # it says which part
        what = error.what if isinstance(error, FormatError) else str(error)
        path = catalog.path_of("refs", parts[0])
        if len(parts) == 1:
            raise damage_error(path, what) from error
        raise FormatError(
            f"tables of a catalog are damaged: {what}",
            do="Delete these parts from the folder files/ of the catalog; the next scan writes them"
            " again.",
            parts=[f"{part}.parquet" for part in parts],
        ) from error
