"""Columns that grow part by part hold what a list would."""

import numpy as np
import pyarrow as pa
import pytest

from icevirt.archive.facts import Counts
from icevirt.archive.kinds import narrow
from icevirt.catalog.arrow_columns import (
    Codes,
    GrowingColumns,
    LabelColumns,
    numbers_of,
    rows_of,
)


def test_a_column_grows_wider_where_it_must():
    """Numbers of later parts need more bytes than those of the first."""
    columns, wanted = GrowingColumns(), []
    for top in (3, 200, 70_000, 1 << 40):
        values = np.arange(top - 3, top)
        columns.add(place=np.arange(3) + columns.rows, size=narrow(values))
        wanted += values.tolist()
    assert columns.take()["size"].tolist() == wanted


def test_counts_are_read_wide():
    """Sums and differences of narrow numbers would wrap."""
    column = Counts(narrow(np.array([200, 100])))
    assert column.held.itemsize == 1
    rows = np.arange(2)
    assert (column[rows] + column[rows]).tolist() == [400, 200]


@pytest.mark.parametrize("kind", ["int32", "int64", "float64"])
def test_numbers_of_a_column_are_its_values_wherever_they_stand(kind):
    column = pa.chunked_array([pa.array([1, 2, 3], kind), pa.array([4], kind)])
    assert numbers_of(column).tolist() == [1, 2, 3, 4]
    assert numbers_of(column[1:]).tolist() == [2, 3, 4]
    assert numbers_of(column[2:2]).tolist() == []


def test_what_is_missing_has_a_number_of_its_own():
    """Also in a piece of a column, whose values begin within a byte of the bits that say so."""
    codes, texts = Codes(), [None, "a", None, "b", "a", None, "b", None, None, "a", "b"]
    part = pa.chunked_array([pa.array(texts).dictionary_encode()[2:]])
    coded = codes.encode(codes.number(part))
    assert [coded[row] for row in range(9)] == [text or "" for text in texts[2:]]


def test_all_rows_of_a_table_are_the_table():
    table = pa.table({"n": [5, 6, 7]})
    assert rows_of(table, np.arange(3)) is table
    assert rows_of(table, np.array([2, 0])).to_pydict() == {"n": [7, 5]}


def test_more_than_256_texts_keep_their_numbers():
    """Codes are wider than a byte from then on; values stand by first appearance."""
    codes, columns, texts = Codes(), GrowingColumns(), [f"t{n % 300}" for n in range(900)]
    for low in range(0, 900, 100):
        part = pa.array(texts[low : low + 100]).dictionary_encode()
        columns.add(place=np.arange(low, low + 100), text=codes.number(pa.chunked_array([part])))
    coded = codes.encode(columns.take()["text"])
    assert [coded[row] for row in range(900)] == texts
    assert coded.values == tuple(dict.fromkeys(texts))
    kept = coded.take(np.array([899, 5, 899]))
    assert ([*map(kept.__getitem__, range(3))], len(kept.values)) == (["t299", "t5", "t299"], 2)


@pytest.fixture
def labels():
    """Rows 1, 2, 4 and 5 of the arrays have labels; a long one is there twice."""
    long = np.arange(20.0)
    held = [None, np.arange(2.0), long, None, long, np.array([7], "i2")]
    column = LabelColumns()
    for low in (0, 3):
        some = held[low : low + 3]
        raw = pa.chunked_array([pa.array([None if v is None else v.tobytes() for v in some])])
        kinds = pa.array([None if v is None else v.dtype.str for v in some]).dictionary_encode()
        column.add(low, raw, pa.chunked_array([kinds]))
    return held, column.take()


def test_labels_are_found_by_row(labels):
    """With their types; what repeats is held once."""
    held, column = labels
    for row, values in enumerate(held):
        found = column.get(row)
        assert (found is None) == (values is None)
        assert values is None or (found.dtype == values.dtype and found.tolist() == values.tolist())
    assert len(column.data) == 8 * 22 + 2
    data, starts = column.flat(column.places(np.array([5, 1])))
    assert (starts.tolist(), data[:2].view("i2").tolist()) == ([0, 2, 18], [7])


def test_labels_of_some_rows_follow_them(labels):
    """Rows in another order, without one that has labels."""
    held, column = labels
    rows = [5, 0, 2, 1]
    found = column.of_rows(np.array(rows), len(held))
    for new, old in enumerate(rows):
        values = found.get(new)
        assert (values is None) == (held[old] is None)
        assert values is None or values.tolist() == held[old].tolist()


def test_labels_are_replaced_where_they_stand(labels):
    """Others stay, also the one that shared its bytes."""
    _, column = labels
    changed = column
    for row, values in ((2, np.ones(3)), (5, np.array([9], "i2"))):
        at, starts = column.places(np.array([row])), np.array([0, len(values)])
        changed = changed.with_values(at, values, starts)
    assert [len(changed.get(row)) for row in (1, 2, 4, 5)] == [2, 3, 20, 1]
    assert (changed.get(2).tolist(), changed.get(5).tolist()) == ([1, 1, 1], [9])
