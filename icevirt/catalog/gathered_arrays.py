"""Gather the arrays of a catalog by kind: what they repeat from file to file is held once."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from icevirt.archive.facts import Coded, Counts, by_first_appearance
from icevirt.archive.kinds import KindColumn, narrow, spread
from icevirt.catalog.arrow_columns import Codes, GrowingColumns, numbers_of, one_array
from icevirt.catalog.row_checks import CHECKS, check_alike

TEXTS = ("path", "schema", "shape", "digest")
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
        first, local = _combined([distinct[name] for name in self._common], len(place))
        rows = [distinct[name][0][distinct[name][1][first]].tolist() for name in self._common]
        kinds = self._kinds
        number = [kinds.setdefault(each, len(kinds)) for each in zip(*rows, strict=True)]
        self._check_alike(distinct, first)
        apart = {
            name: narrow(values)[at]
            for name, (values, at) in distinct.items()
            if name not in self._common
        }
        self._columns.add(place=place, kind=narrow(np.array(number, np.int64))[local], **apart)
        while len(self._kinds) > _MOST and len(self._common) > 1:
            self._set_apart()

    def _check_alike(self, distinct: dict[str, Distinct], first: NDArray[np.int64]) -> None:
        """Look at shapes and schemas that are new together."""
        both = [distinct["shape"], distinct["schema"]]
        if not {"shape", "schema"} <= {*self._common}:
            first, _ = _combined(both, len(both[0][1]))
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
        held = self._columns.held("kind")
        self._columns.put(self._common.pop(at), spread(narrow(table[:, at]), held))
        kinds: dict[tuple[int, ...], int] = {}
        left = map(tuple, np.delete(table, at, axis=1).tolist())
        number = [kinds.setdefault(each, len(kinds)) for each in left]
        self._columns.put("kind", spread(narrow(np.array(number, np.int64)), held))
        self._kinds = kinds

    def _table(self) -> NDArray[np.int64]:
        return np.array([*self._kinds], np.int64).reshape(len(self._kinds), len(self._common))

    def taken(
        self,
    ) -> tuple[NDArray[np.int32], dict[str, Any], NDArray[np.int64] | None]:
        """Return the places of files, ascending; the columns; and the order of rows if it changed.

        Nothing can be added any more.
        """
        columns, order = self._columns.taken()
        kind, table = columns["kind"], self._table()
        in_order = by_first_appearance(kind, len(table))
        found: dict[str, Coded | Counts] = {}
        for name in (*TEXTS, *COUNTS):
            if name not in self._common:
                held = columns[name]
                found[name] = self._codes[name].coded(held) if name in TEXTS else Counts(held)
                continue
            of_kind = table[:, self._common.index(name)]
            if name in TEXTS:
                texts = self._codes[name].coded(of_kind[in_order])
                codes = np.zeros(len(table), texts.codes.dtype)
                codes[in_order] = texts.codes
                found[name] = Coded(KindColumn(kind, codes), texts.values)
            else:
                found[name] = Counts(KindColumn(kind, narrow(of_kind)))
        return columns["place"], found, order


def _distinct(column: Any) -> Distinct:
    """Return the numbers of an Arrow array, and which each row has."""
    coded = column.dictionary_encode()
    return numbers_of(coded.dictionary).astype(np.int64), numbers_of(coded.indices)


def _combined(columns: list[Distinct], rows: int) -> tuple[NDArray[np.int64], NDArray[np.integer]]:
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
