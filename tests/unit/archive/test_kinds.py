"""Columns by kind, and of even runs, are the arrays that they stand for."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from icevirt.archive import kinds
from icevirt.archive.facts import Coded, Counts, Taken
from icevirt.archive.kinds import (
    EvenRuns,
    KindColumn,
    count_codes,
    joint,
    map_columns,
    narrow,
    occurring,
    spread,
)
from icevirt.archive.repeated import Repeated

TABLES = st.integers(1, 5).flatmap(
    lambda count: st.tuples(
        st.lists(st.tuples(st.integers(0, 3), st.integers(0, 300)), min_size=count, max_size=count),
        st.lists(st.integers(0, count - 1), max_size=12),
    )
)
"""What is said of kinds, in two columns; and the kind of each row."""


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    monkeypatch.setattr(kinds, "_BLOCK", 4)


def columns_of(table, rows):
    """Return two columns by kind, and as arrays."""
    kind = np.array(rows, np.uint8)
    by_kind = [KindColumn(kind, narrow(np.array(column))) for column in zip(*table, strict=True)]
    return by_kind, [np.array([table[row][at] for row in rows], np.int64) for at in (0, 1)]


@given(TABLES, st.data())
def test_a_column_by_kind_is_read_like_an_array(made, drawn):
    by_kind, arrays = columns_of(*made)
    for column, array in zip(by_kind, arrays, strict=True):
        assert_like(column, array, drawn)
        assert column.tolist() == array.tolist()
        assert spread(np.arange(1000), column).tolist() == array.tolist()
        mask = np.arange(301) % 2 == 0
        assert spread(mask, column).tolist() == mask[array].tolist()
        assert sorted({made[0][kind][0] for kind in column.kinds()}) == sorted(
            {made[0][row][0] for row in made[1]}
        )


@given(st.integers(0, 4), st.integers(0, 4), st.data())
def test_even_runs_are_read_like_an_array(count, each, drawn):
    array = np.repeat(np.arange(count), each)
    column = EvenRuns(count, each)
    assert_like(column, array, drawn)
    assert (column >= 2).tolist() == (array >= 2).tolist()
    assert len(EvenRuns.of(array.astype(np.int32), count)) == len(array)
    if len(array):
        other = array.astype(np.int32)
        other[-1] += 1
        assert EvenRuns.of(other, count) is other


@given(st.integers(1, 20), st.integers(0, 4), st.data())
def test_what_files_repeat_is_read_like_an_array(each, files, drawn):
    base = np.arange(each, dtype=np.uint8) % 3
    place = np.array(drawn.draw(st.lists(st.integers(0, each - 1), unique=True)), np.int64)
    own = np.array(
        drawn.draw(
            st.lists(st.integers(0, 300), min_size=files * len(place), max_size=files * len(place))
        ),
        np.int64,
    ).reshape(files, len(place))
    array = np.tile(base.astype(np.int64), (files, 1))
    array[:, place] = own
    column = Repeated(base, place, own)
    by_kind = KindColumn(column, np.arange(301))
    for each_form in (by_kind, column.by_kind()):
        assert_like(each_form, array.reshape(-1), drawn)
    assert spread(np.arange(301), column).tolist() == array.reshape(-1).tolist()


def assert_like(column, array, drawn):
    rows = st.lists(st.integers(0, len(array) - 1) if len(array) else st.nothing())
    some = np.array(drawn.draw(rows), np.int64)
    mask = np.array(drawn.draw(st.lists(st.booleans(), min_size=len(array), max_size=len(array))))
    part = drawn.draw(st.slices(len(array)))
    assert len(column) == len(array)
    assert np.asarray(column).tolist() == array.tolist()
    assert np.asarray(column, np.float64).dtype == np.float64
    assert column.astype(np.int16).tolist() == array.tolist()
    assert column[some].tolist() == array[some].tolist()
    assert column[some.tolist()].tolist() == array[some].tolist() if len(some) else True
    assert column[mask.astype(np.bool_)].tolist() == array[mask.astype(np.bool_)].tolist()
    assert column[part].tolist() == array[part].tolist()
    assert [int(column[row]) for row in range(len(array))] == array.tolist()
    assert (column == 1).tolist() == (array == 1).tolist()
    if isinstance(column, KindColumn):
        assert (column != 1).tolist() == (array != 1).tolist()
    with pytest.raises(ValueError, match="computed"):
        np.asarray(column, copy=False)


@given(TABLES, st.booleans(), st.sampled_from([1 << 22, 0]))
def test_rows_are_numbered_by_what_they_have_in_several_columns(made, shared, table):
    by_kind, arrays = columns_of(*made)
    columns = by_kind if shared else [by_kind[0], arrays[1]]
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(kinds, "_TABLE", table)
        distinct, number = joint(columns, [4, 301])
    wanted = sorted({*zip(*(array.tolist() for array in arrays), strict=True)})
    assert [tuple(each) for each in distinct.tolist()] == wanted
    assert distinct[np.asarray(number)].tolist() == np.stack(arrays, axis=1).tolist()
    found = map_columns(columns, lambda one, other: one * 1000 + other)
    assert np.asarray(found).tolist() == (arrays[0] * 1000 + arrays[1]).tolist()
    assert isinstance(found, KindColumn) == shared


def test_kinds_of_more_codes_than_a_number_counts_stay_apart():
    """Multiplied, the numbers of codes pass 2**63; the last column alone tells these rows apart."""
    sizes = [1 << 24, 1 << 24, 1 << 24]
    arrays = [np.array(codes, np.int64) for codes in ([0, 1 << 16, 0], [0, 0, 0], [0, 0, 1])]
    wanted = [[0, 0, 0], [0, 0, 1], [1 << 16, 0, 0]]
    by_kind = [KindColumn(np.arange(3, dtype=np.uint8), each) for each in arrays]
    for columns in (arrays, by_kind):
        distinct, number = joint(columns, sizes)
        assert distinct.tolist() == wanted
        assert np.asarray(number).tolist() == [0, 2, 1]


@given(st.lists(st.integers(0, 4), max_size=12))
def test_codes_are_counted(codes):
    held = np.array(codes, np.uint8)
    assert count_codes(held, 5).tolist() == [codes.count(each) for each in range(5)]
    assert occurring(held, 5).tolist() == sorted({*codes})


@given(TABLES, st.data())
def test_texts_and_counts_by_kind_are_those_of_their_rows(made, drawn):
    by_kind, arrays = columns_of(*made)
    texts = tuple("abcd")
    coded, plain = Coded(by_kind[0], texts), Coded(arrays[0], texts)
    counts = Counts(by_kind[1])
    rows = np.array(
        drawn.draw(
            st.lists(st.integers(0, len(arrays[0]) - 1) if len(arrays[0]) else st.nothing())
        ),
        np.int64,
    )
    assert [coded[row] for row in range(len(coded))] == [texts[code] for code in arrays[0].tolist()]
    assert coded.counts().tolist() == plain.counts().tolist()
    assert [each.tolist() for each in coded.renumber(rows)] == [
        each.tolist() for each in plain.renumber(rows)
    ]
    taken = Taken(rows)
    for one, other in (
        (coded.take(rows), plain.take(rows)),
        (coded.take_with(taken), plain.take(rows)),
        (coded.compact(), plain.compact()),
    ):
        assert one.values == other.values
        assert np.asarray(one.codes).tolist() == np.asarray(other.codes).tolist()
    everything = np.arange(len(counts.held))
    assert counts[everything].tolist() == arrays[1].tolist()
    assert counts[rows].dtype == np.int64
    assert counts.take_with(taken)[np.arange(len(rows))].tolist() == arrays[1][rows].tolist()
    assert replace(coded, codes=arrays[0]).compact().values == plain.compact().values
