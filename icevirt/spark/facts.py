"""The driver's side of a catalog: facts about files and arrays, gathered part by part.

A part is dropped before the next one is read, so that nothing of a million files is there twice,
and texts that repeat are numbers from the start. References stay where they are.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from icevirt.archive import catalog
from icevirt.archive.attributes import Attributes
from icevirt.archive.facts import ArrayColumns, CatalogFacts, Counts, FileColumns
from icevirt.archive.report import BadFile
from icevirt.archive.scanned import ScannedGroup
from icevirt.model.strings import Strings
from icevirt.spark.growing import (
    Codes,
    Columns,
    LabelColumns,
    Texts,
    are,
    bytes_of,
    first_unlike,
    narrow,
)
from icevirt.spark.tables import read_table
from icevirt.storage.protocol import Storage

_TOLD = ("code", "error", "findings", "places", "left_out")  # alike in most files
_FILES = ["row", "url", "size", "etag", "last_modified", "status", *_TOLD]
_ARRAYS = [name for name, _ in catalog.ARRAYS]
_CODED = ("path", "schema", "shape", "digest")
_NUMBERED = (*_CODED, "labels_dtype", "status", *_TOLD)
_COUNTS = ("virtual", "inline", "virtual_bytes", "inline_bytes")


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


def read_facts(
    storage: Storage, parts: Sequence[str], chosen: Chosen | None = None
) -> ClosedCatalog:
    """Read the facts of a closed catalog: files and arrays, no references.

    ``chosen`` says which rows of the parts count, and their order; by default all do.
    """
    found = _Found()
    for part, places in _in_order(parts, chosen):
        files = _read(storage, "files", parts[part], _FILES)
        arrays = _read(storage, "arrays", parts[part], _ARRAYS)
        if chosen is None:
            found.add(part, files, arrays, found.seen + np.arange(len(files)))
        else:
            files = files.take(pa.array(_rows_at(files, chosen.row[places])))
            found.add(part, files, arrays, places)
    pa.default_memory_pool().release_unused()
    return found.closed(storage, parts)


def _in_order(
    parts: Sequence[str], chosen: Chosen | None
) -> Iterator[tuple[int, NDArray[np.int64]]]:
    """Yield parts and the places of their files, in the order of the first of these.

    Files of one part are neighbours nearly always, so that the columns come in order.
    """
    if chosen is None:
        yield from ((part, np.zeros(0, np.int64)) for part in range(len(parts)))
        return
    order = np.argsort(chosen.part, kind="stable")
    ends = np.searchsorted(chosen.part[order], np.arange(len(parts)), side="right")
    runs = np.split(order, ends[:-1])
    for part in sorted(range(len(parts)), key=lambda part: int(runs[part][:1].sum())):
        if len(runs[part]):
            yield part, runs[part]


def _read(storage: Storage, table: str, part: str, columns: list[str]) -> Any:
    coded = [name for name in columns if name in _NUMBERED]
    return read_table(storage, catalog.path_of(table, part), columns, coded=coded)


def _rows_at(files: Any, rows: NDArray[np.int32]) -> NDArray[np.int64]:
    """Return where the files with these row numbers stand in the table."""
    there = files["row"].to_numpy()
    order = np.argsort(there)
    at: NDArray[np.int64] = order[np.searchsorted(there, rows, sorter=order)]
    return at


class _Found:
    """What was gathered so far."""

    def __init__(self) -> None:
        self.seen = 0  # files, bad ones too
        self._files = Columns()
        self._arrays = Columns()
        self._urls = Texts()
        self._etags = Texts()
        self._coded = {name: Codes() for name in _CODED}
        self._labels = LabelColumns()
        self._bad: list[tuple[int, BadFile, int, int]] = []  # place, file, part, row
        self._findings: dict[str, tuple[int, str]] = {}  # text -> first place, and URL
        self._left_out: set[str] = set()
        self._referring: list[tuple[int, str]] = []  # place of a file, and where it leads

    def add(self, part: int, files: Any, arrays: Any, places: NDArray[np.int64]) -> None:
        """Take the facts of one part; ``places`` are those of its files in the dataset."""
        self.seen += len(files)
        good = are(files["status"], catalog.OK)
        rows = files["row"].to_numpy().astype(np.int32)
        for at in np.flatnonzero(~good).tolist():
            url, code, error = (files[name][at].as_py() for name in ("url", "code", "error"))
            told = BadFile(url=url, code=code, error=error)
            self._bad.append((int(places[at]), told, part, int(rows[at])))
        self._add_told(files, places, good)
        if not good.all():
            files = files.filter(pa.array(good))
        self._files.add(
            place=places[good].astype(np.int32),
            part=np.full(len(files), part, np.int32),
            row=rows[good],
            size=files["size"].to_numpy(),
            last_modified=files["last_modified"].to_numpy(),
        )
        self._urls.add(*bytes_of(files["url"]))
        self._etags.add(*bytes_of(files["etag"]))
        self._add_arrays(arrays, rows[good], places[good])

    def _add_told(self, files: Any, places: NDArray[np.int64], good: NDArray[np.bool_]) -> None:
        """Note what is said once, however many files say it."""
        for text in files["left_out"].unique().to_pylist():
            self._left_out |= {*json.loads(text)}
        for at in np.flatnonzero(good & ~are(files["places"], "")).tolist():
            self._referring.append((int(places[at]), files["places"][at].as_py()))
        for at in first_unlike(files["findings"], "[]", places).tolist():
            for finding in json.loads(files["findings"][at].as_py()):
                told = f"{finding['path']}: {finding['message']}"
                first = (int(places[at]), files["url"][at].as_py())
                self._findings[told] = min(first, self._findings.get(told, first))

    def _add_arrays(self, arrays: Any, rows: NDArray[np.int32], places: NDArray[np.int64]) -> None:
        found = arrays["row"].to_numpy()
        place = np.full(1 + max(int(found.max(initial=0)), int(rows.max(initial=0))), -1, np.int32)
        place[rows] = places
        file = place[found]
        kept = file >= 0
        if not kept.all():
            arrays, file = arrays.filter(pa.array(kept)), file[kept]
        self._labels.add(self._arrays.rows, arrays["labels"], arrays["labels_dtype"])
        self._arrays.add(
            place=file,
            **{name: narrow(arrays[name].to_numpy()) for name in _COUNTS},
            **{name: codes.numbered(arrays[name]) for name, codes in self._coded.items()},
        )

    def closed(self, storage: Storage, parts: Sequence[str]) -> ClosedCatalog:
        """Return all of it, in the order of the files."""
        files, order = self._files.taken()
        columns = FileColumns(
            parts=tuple(parts),
            part=files["part"],
            row=files["row"],
            url=self._urls.taken(order),
            etag=self._etags.taken(order),
            size=files["size"],
            last_modified=files["last_modified"],
        )
        bad = sorted(self._bad, key=lambda each: each[0])
        return ClosedCatalog(
            facts=CatalogFacts(
                files=columns,
                arrays=self._array_columns(files["place"]),
                groups_of=_GroupReader(storage, columns),
                places=self._places(columns, files["place"]),
            ),
            bad=tuple(file for _, file, _, _ in bad),
            bad_rows=Chosen(
                part=np.array([part for _, _, part, _ in bad], np.int32),
                row=np.array([row for _, _, _, row in bad], np.int32),
            ),
            findings=tuple(
                (url, told)
                for told, (_, url) in sorted(self._findings.items(), key=lambda item: item[1])
            ),
            left_out=frozenset(self._left_out),
        )

    def _array_columns(self, files: NDArray[np.int32]) -> ArrayColumns:
        """Return the arrays in the order of their files, which are numbered by it."""
        columns, order = self._arrays.taken()
        labels = self._labels.taken()
        coded: dict[str, Any] = {
            name: codes.coded(columns.pop(name)) for name, codes in self._coded.items()
        }
        counts: dict[str, Any] = {name: Counts(columns.pop(name)) for name in _COUNTS}
        file = np.searchsorted(files, columns.pop("place")).astype(np.int32)
        return ArrayColumns(
            file=file,
            labels=labels if order is None else labels.of_rows(order, len(order)),
            **coded,
            **counts,
        )

    def _places(self, files: FileColumns, places: NDArray[np.int64]) -> Strings:
        """Return the files, or in the place of those that refer to others, what they refer to."""
        if all(text == "[]" for _, text in self._referring):
            return files.url
        own = np.ones(len(files), np.bool_)
        own[np.searchsorted(places, [place for place, _ in self._referring])] = False
        others = {place for _, text in self._referring for place in json.loads(text)}
        return Strings.of([*files.url[np.flatnonzero(own)], *sorted(others)])


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
        path = catalog.path_of("files", self._files.parts[part])
        table: Any = read_table(self._storage, path, ["row", "groups"])
        rows = zip(table["row"].to_pylist(), table["groups"].to_pylist(), strict=True)
        self._part, self._texts = part, dict(rows)
