"""Keep facts beside a catalog's parts: digests, labels and values that some ways of combining need.

An object describes rows of one part and is named by what it holds. Nothing is ever changed: what a
later plan needs is another object, and all objects of a part count together.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from icevirt.archive import catalog
from icevirt.archive.blocks.packing import Block
from icevirt.archive.facts import BesideColumns, Counts, FileColumns
from icevirt.archive.joining import Fact
from icevirt.archive.scanned import FactsBeside, ScannedArray
from icevirt.archive.schema import ArraySchema
from icevirt.catalog.arrow_columns import (
    Codes,
    Column,
    LabelColumns,
    are,
    numbers_of,
    place_of,
    places_by_part,
    rows_of,
)
from icevirt.catalog.parquet import encode_table, read_table, read_tables, telling_damage
from icevirt.catalog.row_checks import CHECKS, check_schema
from icevirt.model.chunks import ChunkType, Locations
from icevirt.storage.protocol import Storage

FOLDER = "more"
_FACTS = ["row", "path", "asked", "digest", "labels", "labels_dtype", "schema", "nbytes"]
_CODED = ["path", "digest", "labels_dtype", "schema"]


def fact_row(row: int, array: ScannedArray, asked: Fact) -> dict[str, Any]:
    """Return what is known beside an array of a file, and which facts were looked for."""
    beside = array.beside or FactsBeside()
    values = beside.values
    raw = b"" if values is None else values.references.inline.tobytes()
    return {
        "row": row,
        "path": array.path,
        "asked": int(asked),
        "digest": beside.digest,
        "labels": beside.labels,
        "labels_dtype": beside.labels_dtype,
        "schema": "" if values is None else values.schema.dumps(),
        "nbytes": len(raw),
        "values": None if values is None else raw,
    }


def write_facts(storage: Storage, part: str, rows: Sequence[Mapping[str, Any]]) -> None:
    """Write facts of some files of a part."""
    if rows:
        columns = {name: [row[name] for row in rows] for name, _ in catalog.MORE}
        write_fact_columns(storage, part, columns)


def write_fact_columns(storage: Storage, part: str, columns: Mapping[str, Sequence[Any]]) -> None:
    """Write facts of some files of a part, given as the columns of a table."""
    tables = catalog.tables_of(part)
    raw = encode_table(columns, catalog.MORE, tables)
    name = f"{tables}-{hashlib.blake2b(raw, digest_size=8).hexdigest()}"
    storage.put(catalog.path_of(FOLDER, name), raw)


def objects_of(storage: Storage, parts: Collection[str]) -> dict[str, list[str]]:
    """Return the objects of some parts, by part."""
    there = defaultdict[str, list[str]](list)
    for info in storage.list(FOLDER):
        there[catalog.run_of(info.path.removeprefix(f"{FOLDER}/"))].append(info.path)
    of_parts = ((part, there.get(catalog.tables_of(part))) for part in parts)
    return {part: paths for part, paths in of_parts if paths}


@dataclass(slots=True)
class BesideReader:
    """Reads facts beside the same files for several plans, and again where there are more."""

    storage: Storage
    _objects: dict[str, list[str]] | None = None
    _columns: BesideColumns | None = None

    def read(self, files: FileColumns) -> BesideColumns:
        """Return the facts beside the files, which are the same ones every time."""
        there = objects_of(self.storage, files.parts)
        if self._columns is None or there != self._objects:
            self._columns = read_beside(self.storage, files.parts, files.part, files.row)
            self._objects = there
        return self._columns


def read_beside(
    storage: Storage, parts: Sequence[str], part: NDArray[np.int32], row: NDArray[np.int32]
) -> BesideColumns:
    """Read the facts beside some files, given as rows of parts.

    Args:
        storage: The catalog.
        parts: Names of parts.
        part: (n,) The part of each file.
        row: (n,) Its row in the part.
    """
    objects = objects_of(storage, parts)
    named = [(number, path) for number, name in enumerate(parts) for path in objects.get(name, ())]
    files = places_by_part(part, len(parts)) if named else []
    coded = {
        "path": Codes(CHECKS["path"]),
        "digest": Codes(),
        "schema": Codes(lambda text: check_schema(text) if text else None),
    }
    columns = {name: Column(np.dtype(np.int64)) for name in ("file", "asked", "nbytes", *coded)}
    labels = LabelColumns()
    tables = read_tables(storage, (path for _, path in named), _FACTS, coded=_CODED)
    for (number, path), table in zip(named, tables, strict=True):
        mine = files[number]
        with telling_damage(path):
            found = numbers_of(table["row"]).astype(np.int64)
            if (found < 0).any():
                raise ValueError("facts of no file")
            place = place_of(found, row[mine], mine)
            kept = np.flatnonzero(place >= 0)
            some = rows_of(table, kept)
            labels.add(columns["file"].rows, some["labels"], some["labels_dtype"])
            columns["file"].add(place[kept])
            for name in ("asked", "nbytes"):
                columns[name].add(numbers_of(some[name]).astype(np.int64))
            for name, codes in coded.items():
                columns[name].add(codes.number(some[name]).astype(np.int64))
    taken = {name: column.take() for name, column in columns.items()}
    texts = {name: codes.encode(taken[name]) for name, codes in coded.items()}
    return BesideColumns(
        file=taken["file"].astype(np.int32),
        asked=taken["asked"].astype(np.uint8),
        path=texts["path"],
        digest=texts["digest"],
        schema=texts["schema"],
        nbytes=Counts(taken["nbytes"]),
        labels=labels.take(),
    )


@dataclass(slots=True)
class ValuesReader:
    """Reads values that lie beside the references of arrays."""

    storage: Storage
    _objects: dict[str, list[str]] = field(default_factory=dict)

    def locate(
        self,
        parts: Sequence[str],
        part: NDArray[np.int32],
        row: NDArray[np.int32],
        path: str,
    ) -> Block | None:
        """Return the values of one array in some files, each as one inline chunk.

        Args:
            parts: Names of parts.
            part: (n,) The part of each file; -1 where the file is not wanted.
            row: (n,) Its row in the part.
            path: Of the array.
        """
        used = [parts[number] for number in np.unique(part[part >= 0]).tolist()]
        if any(name not in self._objects for name in used):
            self._objects |= objects_of(self.storage, parts)
        found: dict[int, bytes] = {}
        ndim = 0
        for number, name in enumerate(parts):
            mine = np.flatnonzero(part == number)
            if not len(mine):
                continue
            places: dict[int, list[int]] = {}  # a file may have several
            for of, at in zip(row[mine].tolist(), mine.tolist(), strict=True):
                places.setdefault(of, []).append(at)
            for each in self._objects.get(name, ()):
                columns = ["row", "path", "schema", "values"]
                table = read_table(self.storage, each, columns, coded=["path"])
                with telling_damage(each):
                    table = rows_of(table, np.flatnonzero(are(table["path"], path)))
                    taken = (table[name].to_pylist() for name in ("row", "schema", "values"))
                    for of, schema, raw in zip(*taken, strict=True):
                        if schema and of in places:
                            ndim = len(ArraySchema.loads(schema).dimension_names)
                            found |= dict.fromkeys(places[of], raw)
        held = [(place, raw) for place, raw in sorted(found.items()) if raw]
        if not held:
            return None
        length = np.array([len(raw) for _, raw in held], np.uint64)
        return Block(
            file=np.array([place for place, _ in held], np.int32),
            index=np.zeros((len(held), ndim), np.uint32),
            kind=np.full(len(held), ChunkType.inline, np.uint8),
            offset=(np.cumsum(length) - length).astype(np.uint64),
            length=length,
            data=np.frombuffer(b"".join(raw for _, raw in held), np.uint8),
            source=np.zeros(len(held), np.uint32),
            targets=Locations.none(),
        )
