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

from icevirt.amounts import plural
from icevirt.archive import catalog
from icevirt.archive.facts import (
    ArrayColumns,
    CatalogFacts,
    Coded,
    Counts,
    FileColumns,
    by_first_appearance,
)
from icevirt.archive.kinds import EvenRuns, KindColumn, RunColumn, narrow, spread
from icevirt.archive.repeated import Repeated
from icevirt.archive.reports.build import BadFile
from icevirt.archive.schema import ScannedGroup
from icevirt.archive.sources import SourceFiles, name_of_url
from icevirt.catalog.arrow_columns import (
    Codes,
    GrowingColumns,
    LabelColumns,
    are,
    first_unlike,
    numbers_of,
    one_array,
    place_of,
    places_by_part,
    rows_at,
    rows_of,
)
from icevirt.catalog.facts_beside import BesideReader
from icevirt.catalog.parquet import read_table, read_tables, telling_damage
from icevirt.catalog.row_checks import CHECKS, check_alike, finding_of, group_of, places_of, texts
from icevirt.model.strings import Strings
from icevirt.planning.normal_form import file_signature
from icevirt.redaction import without_secrets
from icevirt.remedy_notation import load_remedy
from icevirt.storage.protocol import Storage

_REMARKS = ("code", "error", "findings", "places", "left_out")  # alike in most files
_FILES = ["row", "status", "signature", *_REMARKS]
_ARRAYS = [name for name, _ in catalog.ARRAYS]
TEXTS = ("path", "schema", "shape", "digest")
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
    runs = places_by_part(chosen.part, len(parts))
    # by the first of their files: those of one part are neighbours nearly always, and so the
    # columns come in order
    first = sorted((int(run[0]), part) for part, run in enumerate(runs) if len(run))
    order = [(part, runs[part]) for _, part in first]
    names = [parts[part] for part, _ in order]
    both = zip(
        order,
        _read(storage, "files", names, _FILES),
        _read(storage, "arrays", names, _ARRAYS),
        strict=True,
    )
    for (part, places), table, arrays in both:
        with telling_damage(catalog.path_of("files", parts[part])):
            rows = rows_at(numbers_of(table["row"]), chosen.row[places])
            if (rows < 0).any():
                raise ValueError("files are missing")
            found.add(rows_of(table, rows), arrays, places)
    pa.default_memory_pool().release_unused()
    return found.close(storage, parts)


def _read(storage: Storage, table: str, parts: Iterable[str], columns: list[str]) -> Iterator[Any]:
    paths = (catalog.path_of(table, part) for part in parts)
    coded = [name for name in columns if name in _NUMBERED]
    return read_tables(storage, paths, columns, coded=coded)


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
                (place, BadFile(url=self._sources.urls[place], code=code, error=load_remedy(error)))
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

    def close(self, storage: Storage, parts: Sequence[str]) -> ClosedCatalog:
        """Return all of it, in the order of the files."""
        bad = sorted(self._bad, key=lambda each: each[0])
        of_bad = np.array([place for place, _ in bad], np.int64)
        good = np.ones(len(self._sources), np.bool_)
        good[of_bad] = False
        files = np.flatnonzero(good)
        columns = FileColumns(
            parts=tuple(parts),
            part=self._chosen.part,
            row=self._chosen.row,
            url=self._sources.urls,
            etag=self._sources.etags,
            size=self._sources.sizes,
            last_modified=self._sources.times,
        )
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
            findings=tuple(self._list_findings(len(files))),
            left_out=frozenset(self._left_out),
            beside=BesideReader(storage),
        )

    def _list_findings(self, files: int) -> Iterator[str]:
        """Yield the findings by their first files, with the number of files that have each."""
        for text, (place, number) in sorted(self._findings.items(), key=lambda item: item[1]):
            name = name_of_url(without_secrets(self._sources.urls[place]))
            some = f" ({number:,} of {plural(files, 'file')}, first {name})"
            yield f"{text}{some if number < files else ' (all files)' if files > 1 else ''}"

    def _array_columns(self, files: NDArray[np.int64]) -> ArrayColumns:
        """Return the arrays in the order of their files, which are numbered by it."""
        place, columns, order = self._arrays.take()
        labels = self._labels.take()
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


COUNTS = ("virtual", "inline", "virtual_bytes", "inline_bytes")
_MOST = 1 << 12  # kinds; a column that makes more of them is held row by row
_WIDE = 1 << 40  # combinations of numbers up to which they are one number

type Distinct = tuple[NDArray[np.int64], NDArray[np.integer]]
"""The numbers that occur in a column, and which of them each row has."""


class GatheredArrays:
    """Rows of arrays that grow part by part, and the kinds that they are of.

    A kind is a combination of path, schema, shape, digest and counts. Columns in which most rows
    differ, as the bytes of compressed chunks do, are taken out of it.
    """

    def __init__(self) -> None:
        self._codes = {name: Codes(CHECKS.get(name)) for name in TEXTS}
        self._common = [*TEXTS, *COUNTS]  # what kinds differ in
        self._kinds: dict[tuple[int, ...], int] = {}
        self._columns = GrowingColumns()
        self._files = GrowingColumns()  # places of files as they come, and how many rows each has
        self._alike: set[tuple[int, int]] = set()  # numbers of shapes and schemas that go together

    @property
    def rows(self) -> int:
        """How many there are."""
        return self._columns.rows

    def add(self, arrays: Any, place: NDArray[np.int32]) -> None:
        """Append rows of a part, of the files at these places.

        Raises:
            ValueError: A text has a form that no scan writes.
        """
        distinct: dict[str, Distinct] = {
            **{name: codes.distinct(arrays[name]) for name, codes in self._codes.items()},
            **{name: _distinct(one_array(arrays[name])) for name in COUNTS},
        }
        first, local = _combine([distinct[name] for name in self._common], len(place))
        rows = [distinct[name][0][distinct[name][1][first]].tolist() for name in self._common]
        kinds = self._kinds
        number = [kinds.setdefault(each, len(kinds)) for each in zip(*rows, strict=True)]
        self._check_alike(distinct, first)
        apart = {
            name: narrow(values)[at]
            for name, (values, at) in distinct.items()
            if name not in self._common
        }
        begins = np.flatnonzero(np.diff(place, prepend=-1))
        counts = np.diff(begins, append=len(place))
        each = int(counts[0]) if len(counts) and (counts == counts[0]).all() else 0
        self._columns.add(each, kind=narrow(np.array(number, np.int64))[local], **apart)
        self._files.add(place=place[begins], rows=counts)
        while len(self._kinds) > _MOST and len(self._common) > 1:
            self._set_apart()

    def _check_alike(self, distinct: dict[str, Distinct], first: NDArray[np.int64]) -> None:
        """Look at shapes and schemas that are new together."""
        both = [distinct["shape"], distinct["schema"]]
        if not {"shape", "schema"} <= {*self._common}:
            first, _ = _combine(both, len(both[0][1]))
        for pair in zip(*(values[at[first]].tolist() for values, at in both), strict=True):
            if pair not in self._alike:
                shape, schema = (
                    self._codes[name].texts[code]
                    for name, code in zip(("shape", "schema"), pair, strict=True)
                )
                check_alike(shape, schema)
                self._alike.add(pair)

    def _set_apart(self) -> None:
        """Hold the column in which kinds differ most row by row."""
        table = self._table()
        at = int(np.argmax([len(np.unique(column)) for column in table.T]))
        self._columns.derive(self._common.pop(at), "kind", narrow(table[:, at]))
        kinds: dict[tuple[int, ...], int] = {}
        left = map(tuple, np.delete(table, at, axis=1).tolist())
        number = [kinds.setdefault(each, len(kinds)) for each in left]
        self._columns.derive("kind", "kind", narrow(np.array(number, np.int64)))
        self._kinds = kinds

    def _table(self) -> NDArray[np.int64]:
        return np.array([*self._kinds], np.int64).reshape(len(self._kinds), len(self._common))

    def take(self) -> tuple[RunColumn, dict[str, Any], NDArray[np.int64] | None]:
        """Return the places of files, ascending; the columns; and the order of rows if it changed.

        Nothing can be added any more.
        """
        columns = self._columns.take()
        place, order = self._take_places()
        if order is not None:
            columns = {name: held[order] for name, held in columns.items()}
        kind, table = columns["kind"], self._table()
        in_order = by_first_appearance(kind, len(table))
        found: dict[str, Coded | Counts] = {}
        for name in (*TEXTS, *COUNTS):
            if name not in self._common:
                held = columns[name]
                if name in TEXTS:
                    found[name] = self._codes[name].encode(held)
                else:
                    found[name] = Counts(held.by_kind() if isinstance(held, Repeated) else held)
                continue
            of_kind = table[:, self._common.index(name)]
            if name in TEXTS:
                texts = self._codes[name].encode(of_kind[in_order])
                codes = np.zeros(len(table), texts.codes.dtype)
                codes[in_order] = texts.codes
                found[name] = Coded(KindColumn(kind, codes), texts.values)
            else:
                found[name] = Counts(KindColumn(kind, narrow(of_kind)))
        return place, found, order

    def _take_places(self) -> tuple[RunColumn, NDArray[np.int64] | None]:
        """Return the place of each row's file, ascending, and the order of rows if it changed."""
        files = self._files.take()
        first, count = files["place"], files["rows"]
        each = int(count[0]) if len(count) else 0
        if (count == each).all() and np.array_equal(first, np.arange(len(first))):
            return EvenRuns(len(first), each), None
        place = np.repeat(first, count).astype(np.int32)
        if not (place[1:] < place[:-1]).any():
            return place, None
        order = np.argsort(place, kind="stable")
        return place[order], order


def _distinct(column: Any) -> Distinct:
    """Return the numbers of an Arrow array, and which each row has."""
    coded = column.dictionary_encode()
    return numbers_of(coded.dictionary).astype(np.int64), numbers_of(coded.indices)


def _combine(columns: list[Distinct], rows: int) -> tuple[NDArray[np.int64], NDArray[np.integer]]:
    """Number rows by their numbers in several columns.

    Returns:
        The first row of each combination, and which of these each row has.
    """
    key, size = np.zeros(rows, np.int64), 1
    for values, at in columns:
        if size * max(1, len(values)) > _WIDE:
            distinct, number = _distinct(_arrow(key))
            key, size = number.astype(np.int64), len(distinct)
        key = key * len(values) + at
        size *= max(1, len(values))
    distinct, number = _distinct(_arrow(key))
    first = np.zeros(len(distinct), np.int64)
    first[number[::-1]] = np.arange(rows)[::-1]
    return first, number


def _arrow(numbers: NDArray[np.int64]) -> Any:
    return pa.Array.from_buffers(pa.int64(), len(numbers), [None, pa.py_buffer(numbers)])
