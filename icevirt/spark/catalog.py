"""Catalog parts on a storage: written by scan tasks, read by the plan.

Parquet through pyarrow and the repository's own storage verbs, because pip's Spark has no cloud
file systems. The bytes of a part depend on its content only.
"""

from __future__ import annotations

import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from icevirt.archive import catalog
from icevirt.archive.attributes import Attributes
from icevirt.archive.facts import ArrayColumns, CatalogFacts, Coded, FileColumns
from icevirt.archive.packing import PackedBlock
from icevirt.archive.report import BadFile
from icevirt.archive.scanned import ScannedGroup
from icevirt.errors import AlreadyExistsError, FormatError, NotFoundError, ObjectNotFoundError
from icevirt.model.strings import Strings
from icevirt.spark import refs
from icevirt.storage.protocol import Storage

_MARK = "catalog.json"
_KEY = "icevirt_catalog"


@dataclass(frozen=True, slots=True, kw_only=True)
class PartTables:
    """The rows of a part, as columns by name, in the order of `icevirt.archive.catalog`."""

    files: Mapping[str, Sequence[Any]]
    arrays: Mapping[str, Sequence[Any]]
    refs: Sequence[tuple[str, PackedBlock]]  # (path of the array, block)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Chosen:
    """Rows of files in the parts of a catalog, in an order of their own."""

    part: NDArray[np.int32]  # (n,) index into the parts
    row: NDArray[np.int32]  # (n,)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClosedCatalog:
    """What the driver reads of a finished scan: facts of the good files, and the bad ones."""

    facts: CatalogFacts
    bad: tuple[BadFile, ...]
    bad_rows: Chosen  # of the bad files, in the parts that were read
    findings: tuple[tuple[str, str], ...]  # (url, text), one per distinct text
    left_out: frozenset[str]  # paths of variables that were not asked for


def mark(storage: Storage) -> None:
    """Make the storage a catalog, or check that it is one of this version.

    Raises:
        AlreadyExistsError: It holds something that is no catalog.
        FormatError: It is a catalog of another version.
    """
    if storage.exists():
        check_mark(storage)
    else:
        storage.put(_MARK, json.dumps({_KEY: catalog.VERSION}).encode())


def check_mark(storage: Storage) -> None:
    """Check that the storage is a catalog of this version.

    Raises:
        NotFoundError: Nothing is there.
        AlreadyExistsError: It holds something that is no catalog.
        FormatError: It is a catalog of another version.
    """
    if not storage.exists():
        raise NotFoundError("no such catalog", do="Check the path.", catalog=storage.url)
    found = _version(storage)
    if found != catalog.VERSION:
        raise FormatError(
            "the catalog was written by another version of icevirt",
            do="Name another directory for the catalog.",
            catalog=storage.url,
            found=found,
            expected=catalog.VERSION,
        )


def _version(storage: Storage) -> Any:
    """Return the version in the mark; other formats have a ``catalog.json`` too."""
    try:
        return json.loads(storage.get(_MARK))[_KEY]
    except (ObjectNotFoundError, ValueError, KeyError, TypeError) as error:
        raise AlreadyExistsError(
            "the path of the catalog holds something that is no catalog",
            do="Name an empty or new directory for the catalog.",
            catalog=storage.url,
        ) from error


def complete_parts(storage: Storage) -> frozenset[str]:
    """Return the names of the parts whose three files are there."""
    names = (info.path for info in storage.list("files"))
    return frozenset(
        name.removeprefix("files/").removesuffix(".parquet")
        for name in names
        if name.endswith(".parquet")
    )


def write_part(storage: Storage, name: str, tables: PartTables) -> None:
    """Write a part; it counts from the moment its ``files`` table is there."""
    storage.put(catalog.path_of("refs", name), refs.encode(tables.refs))
    storage.put(catalog.path_of("arrays", name), _parquet(tables.arrays, catalog.ARRAYS))
    storage.put(catalog.path_of("files", name), _parquet(tables.files, catalog.FILES))


def _parquet(columns: Mapping[str, Sequence[Any]], schema: Sequence[tuple[str, str]]) -> bytes:
    types = pa.schema([(name, getattr(pa, kind)()) for name, kind in schema])
    table = pa.table({name: columns[name] for name, _ in schema}, schema=types)
    sink = io.BytesIO()
    pq.write_table(table, sink, compression="zstd", write_statistics=False)
    return sink.getvalue()


# -- the driver's side -------------------------------------------------------------------------


def read_facts(
    storage: Storage, parts: Sequence[str], chosen: Chosen | None = None
) -> ClosedCatalog:
    """Read the facts of a closed catalog: files and arrays, no references.

    ``chosen`` says which rows of the parts count, and their order; by default all do.
    """
    files = _read(storage, "files", parts, [name for name, _ in catalog.FILES if name != "groups"])
    arrays = _read(storage, "arrays", parts, [name for name, _ in catalog.ARRAYS])
    if chosen is not None:
        wanted = chosen.part.astype(np.int64) << 32 | chosen.row
        there = _keys(files)
        order = np.argsort(there)
        files = files.take(pa.array(order[np.searchsorted(there, wanted, sorter=order)]))
        arrays = arrays.filter(pa.array(np.isin(_keys(arrays), wanted)))
    good = np.array([status == "ok" for status in files["status"].to_pylist()], np.bool_)
    rows = np.flatnonzero(good)
    columns = FileColumns(
        parts=tuple(parts),
        part=files["part"].to_numpy()[rows].astype(np.int32),
        row=files["row"].to_numpy()[rows].astype(np.int32),
        url=_strings(files["url"])[rows],
        etag=_strings(files["etag"])[rows],
        size=files["size"].to_numpy()[rows],
        last_modified=files["last_modified"].to_numpy()[rows],
    )
    return ClosedCatalog(
        facts=CatalogFacts(
            files=columns,
            arrays=_array_columns(arrays, columns),
            groups_of=_GroupReader(storage, columns),
            places=_places(files, good, columns),
        ),
        bad=tuple(
            BadFile(url=row["url"], code=row["code"], error=row["error"])
            for row in files.select(["url", "code", "error"]).filter(pa.array(~good)).to_pylist()
        ),
        bad_rows=_chosen(files.filter(pa.array(~good))),
        findings=_findings(files),
        left_out=frozenset(
            path for text in set(files["left_out"].to_pylist()) for path in json.loads(text)
        ),
    )


def _chosen(table: Any) -> Chosen:
    return Chosen(
        part=table["part"].to_numpy().astype(np.int32), row=table["row"].to_numpy().astype(np.int32)
    )


def _keys(table: Any) -> NDArray[np.int64]:
    """Return a number for the part and row of each row."""
    part, row = (np.asarray(table[name].to_numpy(), np.int64) for name in ("part", "row"))
    keys: NDArray[np.int64] = part << 32 | row
    return keys


def _places(files: Any, good: NDArray[np.bool_], columns: FileColumns) -> Strings:
    """Return the files, or in the place of those that refer to others, what they refer to."""
    told = files["places"].filter(pa.array(good)).to_pylist()
    if {*told} <= {"", "[]"}:
        return columns.url
    own = (url for url, text in zip(columns.url, told, strict=True) if not text)
    others = {place for text in set(told) if text for place in json.loads(text)}
    return Strings.of([*own, *sorted(others)])


def _read(storage: Storage, name: str, parts: Sequence[str], columns: list[str]) -> Any:
    tables = []
    for number, part in enumerate(parts):
        raw = storage.get(catalog.path_of(name, part))
        table = pq.read_table(
            pa.BufferReader(raw),
            columns=columns,
            read_dictionary=[c for c in columns if c in ("path", "schema", "shape", "digest")],
        )
        tables.append(table.append_column("part", pa.array([number] * len(table), pa.int32())))
    return pa.concat_tables(tables).unify_dictionaries().combine_chunks()


def _array_columns(arrays: Any, files: FileColumns) -> ArrayColumns:
    """Number the arrays' files as the file columns do, and put them in the files' order.

    Parts are in the order of their names, which means nothing. Rows of bad files do not occur.
    """
    keys = files.part.astype(np.int64) << 32 | files.row
    by_key = np.argsort(keys)
    file = by_key[np.searchsorted(keys[by_key], _keys(arrays))]
    order = np.argsort(file, kind="stable")
    arrays = arrays.take(pa.array(order)) if (np.diff(file) < 0).any() else arrays
    labelled = np.flatnonzero(arrays["labels"].is_valid().to_numpy(zero_copy_only=False)).tolist()
    dtypes = arrays["labels_dtype"]
    return ArrayColumns(
        file=file[order],
        path=_coded(arrays["path"]),
        schema=_coded(arrays["schema"]),
        shape=_coded(arrays["shape"]),
        digest=_coded(arrays["digest"]),
        labels={row: arrays["labels"][row].as_py() for row in labelled},
        labels_dtype={row: dtypes[row].as_py() for row in labelled},
        virtual=arrays["virtual"].to_numpy(),
        inline=arrays["inline"].to_numpy(),
        virtual_bytes=arrays["virtual_bytes"].to_numpy(),
        inline_bytes=arrays["inline_bytes"].to_numpy(),
    )


def _coded(column: Any) -> Coded:
    """Take over a dictionary-encoded column: the values that occur, by first appearance."""
    one = column.combine_chunks()
    codes: NDArray[np.int32] = one.indices.to_numpy(zero_copy_only=False).astype(np.int32)
    used, first, compact = np.unique(codes, return_index=True, return_inverse=True)
    appearance = np.argsort(first)
    rank = np.empty(len(used), np.int32)
    rank[appearance] = np.arange(len(used))
    values = one.dictionary.to_pylist()
    return Coded(rank[compact], tuple(values[code] for code in used[appearance].tolist()))


def _strings(column: Any) -> Strings:
    return Strings.of(column.to_pylist())


def _findings(files: Any) -> tuple[tuple[str, str], ...]:
    """Return each distinct finding once, with the first file it was made in."""
    found: dict[str, str] = {}
    texts = files["findings"].to_pylist()
    for url, text in zip(files["url"].to_pylist(), texts, strict=True):
        for finding in json.loads(text) if text != "[]" else ():
            found.setdefault(f"{finding['path']}: {finding['message']}", url)
    return tuple((url, text) for text, url in found.items())


class _GroupReader:
    """Reads the groups of files on demand; files that are asked for in a row share one reading."""

    def __init__(self, storage: Storage, files: FileColumns) -> None:
        self._storage = storage
        self._files = files
        self._part = -1
        self._texts: dict[int, str] = {}

    def __call__(self, row: int) -> tuple[ScannedGroup, ...]:
        part = int(self._files.part[row])
        if part != self._part:
            self._read(part)
        return tuple(
            ScannedGroup(
                path=group["path"],
                attributes=Attributes(values=group["values"], dtypes=group["dtypes"]),
            )
            for group in json.loads(self._texts[int(self._files.row[row])])
        )

    def _read(self, part: int) -> None:
        raw = self._storage.get(catalog.path_of("files", self._files.parts[part]))
        table: Any = pq.read_table(pa.BufferReader(raw), columns=["row", "groups"])
        rows = zip(table["row"].to_pylist(), table["groups"].to_pylist(), strict=True)
        self._part, self._texts = part, dict(rows)
