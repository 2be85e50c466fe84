"""Gather facts about files and arrays from a catalog on the driver, part by part.

Each part is dropped before the next is read, so no fact about a million files is in memory twice,
and repeated strings are numbers from the start. References stay in the catalog.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from icevirt.archive import catalog
from icevirt.archive.facts import ArrayColumns, CatalogFacts, FileColumns
from icevirt.archive.kinds import EvenRuns, spread
from icevirt.archive.reports.build import BadFile
from icevirt.archive.reports.card import plural
from icevirt.archive.scanned import ScannedGroup
from icevirt.archive.schema import file_signature
from icevirt.archive.sources import SourceFiles
from icevirt.catalog.arrow_columns import (
    LabelColumns,
    are,
    first_unlike,
    numbers_of,
    place_of,
    places_by_part,
    rows_of,
)
from icevirt.catalog.facts_beside import BesideReader
from icevirt.catalog.gathered_arrays import TEXTS, GatheredArrays
from icevirt.catalog.parquet import read_table, read_tables, telling_damage
from icevirt.catalog.row_checks import finding_of, group_of, places_of, texts
from icevirt.model.strings import Strings
from icevirt.redaction import without_secrets
from icevirt.storage.protocol import Storage

_REMARKS = ("code", "error", "findings", "places", "left_out")  # alike in most files
_FILES = ["row", "status", "signature", *_REMARKS]
_ARRAYS = [name for name, _ in catalog.ARRAYS]
_NUMBERED = (*TEXTS, "labels_dtype", "status", "signature", *_REMARKS)
_WITHOUT_ARRAYS = file_signature(())


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
    findings: tuple[str, ...]  # each once, with how many files have it
    left_out: frozenset[str]  # paths of variables that were not asked for
    beside: BesideReader  # of facts that some ways of combining need


def read_facts(
    storage: Storage, files: SourceFiles, parts: Sequence[str], chosen: Chosen
) -> ClosedCatalog:
    """Read the facts of a closed catalog: files and arrays, no references.

    ``chosen`` says which rows of the parts describe the files; the columns of these are shared.
    """
    found = _GatheredFacts(files, chosen)
    order = [*_in_order(len(parts), chosen.part)]
    names = [parts[part] for part, _ in order]
    both = zip(
        order,
        _read(storage, "files", names, _FILES),
        _read(storage, "arrays", names, _ARRAYS),
        strict=True,
    )
    for (part, places), table, arrays in both:
        with telling_damage(catalog.path_of("files", parts[part])):
            rows = _rows_at(numbers_of(table["row"]), chosen.row[places])
            found.add(rows_of(table, rows), arrays, places)
    pa.default_memory_pool().release_unused()
    return found.closed(storage, parts)


def _in_order(parts: int, part: NDArray[np.int32]) -> Iterator[tuple[int, NDArray[np.int64]]]:
    """Yield parts and the places of their files, in the order of the first of these.

    Files of one part are neighbours nearly always, so that the columns come in order.
    """
    runs = places_by_part(part, parts)
    for number in sorted(range(parts), key=lambda number: int(runs[number][:1].sum())):
        if len(runs[number]):
            yield number, runs[number]


def _read(storage: Storage, table: str, parts: Iterable[str], columns: list[str]) -> Iterator[Any]:
    paths = (catalog.path_of(table, part) for part in parts)
    coded = [name for name in columns if name in _NUMBERED]
    return read_tables(storage, paths, columns, coded=coded)


def _rows_at(there: NDArray[np.int64], rows: NDArray[np.int32]) -> NDArray[np.int64]:
    """Return where the files with these row numbers stand in the table."""
    order = np.argsort(there)
    at: NDArray[np.int64] = order[np.searchsorted(there, rows, sorter=order)]
    return at


class _GatheredFacts:
    """What was gathered so far."""

    def __init__(self, files: SourceFiles, chosen: Chosen) -> None:
        self._sources = files
        self._chosen = chosen
        self._arrays = GatheredArrays()
        self._labels = LabelColumns()
        self._bad: list[tuple[int, BadFile]] = []  # place, file
        self._findings: dict[str, tuple[int, int]] = {}  # text -> first place, number of files
        self._left_out: set[str] = set()
        self._referring: list[tuple[int, str]] = []  # place of a file, and where it leads

    def add(self, files: Any, arrays: Any, places: NDArray[np.int64]) -> None:
        """Take the facts of one part; ``places`` are those of its files in the dataset."""
        good = are(files["status"], catalog.OK)
        for at in np.flatnonzero(~good).tolist():
            code, error = (files[name][at].as_py() for name in ("code", "error"))
            place = int(places[at])
            self._bad.append(
                (place, BadFile(url=self._sources.urls[place], code=code, error=error))
            )
        self._add_remarks(files, places, good)
        self._add_arrays(arrays, self._chosen.row[places[good]], places[good])
        bare = ~np.isin(numbers_of(files["row"]), numbers_of(arrays["row"]))
        if (good & bare & ~are(files["signature"], _WITHOUT_ARRAYS)).any():
            raise ValueError("variables of a file are missing")

    def _add_remarks(self, files: Any, places: NDArray[np.int64], good: NDArray[np.bool_]) -> None:
        """Note what is said once, however many files say it."""
        for text in files["left_out"].unique().to_pylist():
            self._left_out |= {*texts(json.loads(text))}
        for at in np.flatnonzero(good & ~are(files["places"], "")).tolist():
            text = files["places"][at].as_py()
            places_of(json.loads(text))
            self._referring.append((int(places[at]), text))
        rows, numbers = first_unlike(files["findings"], "[]", places)
        for at, number in zip(rows.tolist(), numbers.tolist(), strict=True):
            for finding in json.loads(files["findings"][at].as_py()):
                shown = ": ".join(finding_of(finding))
                place, before = self._findings.get(shown, (int(places[at]), 0))
                self._findings[shown] = min(place, int(places[at])), before + number

    def _add_arrays(self, arrays: Any, rows: NDArray[np.int32], places: NDArray[np.int64]) -> None:
        found = numbers_of(arrays["row"])
        if (found < 0).any():
            raise ValueError("a variable without a file")
        file = place_of(found, rows, places).astype(np.int32)
        kept = file >= 0
        if not kept.all():
            arrays, file = rows_of(arrays, np.flatnonzero(kept)), file[kept]
        self._labels.add(self._arrays.rows, arrays["labels"], arrays["labels_dtype"])
        self._arrays.add(arrays, file)

    def closed(self, storage: Storage, parts: Sequence[str]) -> ClosedCatalog:
        """Return all of it, in the order of the files."""
        bad = sorted(self._bad, key=lambda each: each[0])
        of_bad = np.array([place for place, _ in bad], np.int64)
        good = np.ones(len(self._sources), np.bool_)
        good[of_bad] = False
        files = np.flatnonzero(good)
        columns = _columns(self._sources, self._chosen, parts)
        columns = columns.take(files) if bad else columns
        return ClosedCatalog(
            facts=CatalogFacts(
                files=columns,
                arrays=self._array_columns(files),
                groups_of=_GroupReader(storage, columns),
                places=self._places(columns, files),
            ),
            bad=tuple(file for _, file in bad),
            bad_rows=Chosen(part=self._chosen.part[of_bad], row=self._chosen.row[of_bad]),
            findings=tuple(self._found(len(files))),
            left_out=frozenset(self._left_out),
            beside=BesideReader(storage),
        )

    def _found(self, files: int) -> Iterator[str]:
        """Yield the findings by their first files, with the number of files that have each."""
        for text, (place, number) in sorted(self._findings.items(), key=lambda item: item[1]):
            name = without_secrets(self._sources.urls[place]).rpartition("/")[2]
            some = f" ({number:,} of {plural(files, 'file')}, first {name})"
            yield f"{text}{some if number < files else ' (all files)' if files > 1 else ''}"

    def _array_columns(self, files: NDArray[np.int64]) -> ArrayColumns:
        """Return the arrays in the order of their files, which are numbered by it."""
        place, columns, order = self._arrays.taken()
        labels = self._labels.taken()
        if len(files) < len(self._sources):
            number = np.full(len(self._sources), -1, np.int32)
            number[files] = np.arange(len(files))
            place = spread(number, place)
        return ArrayColumns(
            file=EvenRuns.of(place, len(files)),
            labels=labels if order is None else labels.of_rows(order, len(order)),
            **columns,
        )

    def _places(self, files: FileColumns, places: NDArray[np.int64]) -> Strings:
        """Return the files, or in the place of those that refer to others, what they refer to."""
        if all(text == "[]" for _, text in self._referring):
            return files.url
        own = np.ones(len(files), np.bool_)
        own[np.searchsorted(places, [place for place, _ in self._referring])] = False
        others = {place for _, text in self._referring for place in json.loads(text)}
        return Strings.of([*files.url[np.flatnonzero(own)], *sorted(others)])


def _columns(files: SourceFiles, chosen: Chosen, parts: Sequence[str]) -> FileColumns:
    return FileColumns(
        parts=tuple(parts),
        part=chosen.part,
        row=chosen.row,
        url=files.urls,
        etag=files.etags,
        size=files.sizes,
        last_modified=files.times,
    )


class _GroupReader:
    """Reads the groups of files on demand; files that are asked for in a row share one reading.

    Two parts are kept, as every plan compares the groups of the first file and of the last.
    """

    def __init__(self, storage: Storage, files: FileColumns) -> None:
        self._storage = storage
        self._files = files
        self._texts: dict[int, dict[int, str]] = {}  # by part and row, the part used last at last

    def __call__(self, row: int, *, saying: str = "") -> tuple[ScannedGroup, ...]:
        part = int(self._files.part[row])
        texts = self._texts.pop(part) if part in self._texts else self._read(part)
        self._texts[part] = texts
        text = texts[int(self._files.row[row])]
        if saying and json.dumps(saying) not in text:
            return ()  # most files do not, and their histories are long
        with telling_damage(catalog.path_of("files", self._files.parts[part])):
            return tuple(map(group_of, json.loads(text)))

    def _read(self, part: int) -> dict[int, str]:
        path = catalog.path_of("files", self._files.parts[part])
        if len(self._texts) > 1:
            del self._texts[next(iter(self._texts))]
        table: Any = read_table(self._storage, path, ["row", "groups"])
        return dict(zip(table["row"].to_pylist(), table["groups"].to_pylist(), strict=True))
