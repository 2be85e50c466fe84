"""Requests for ranges: every byte from its own place, bounded waste, bounded size."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from icevirt.objects.coalescing import Coalescing, coalesce

HOW = Coalescing(free_gap=4, max_gap=20, joined=32, most=64)
RANGES = st.lists(
    st.tuples(st.integers(0, 3), st.integers(0, 500), st.integers(1, 150)), max_size=30
)


def content(source, begin, end):
    """Return bytes that tell the object and the place they are from, in two bytes' worth."""
    return [(source, at) for at in range(begin, end)]


def fetch(ranges, how=HOW):
    columns = np.array(ranges, np.int64).reshape(len(ranges), 3).T
    return coalesce(columns[0], columns[1], columns[1] + columns[2], how)


@given(
    RANGES,
    st.sampled_from([HOW, Coalescing(free_gap=0, max_gap=0, joined=1, most=1), Coalescing()]),
)
def test_every_byte_comes_from_its_own_place(ranges, how):
    got = fetch(ranges, how)
    bodies = [
        content(*row)
        for row in zip(got.source.tolist(), got.begin.tolist(), got.end.tolist(), strict=True)
    ]
    for row, (source, begin, length) in enumerate(ranges):
        at, count = int(got.first[row]), int(got.count[row])
        joined = [each for body in bodies[at : at + count] for each in body]
        skip = begin - int(got.begin[at])
        assert joined[skip : skip + length] == content(source, begin, begin + length)
        if count > 1:  # nothing superfluous is waited for
            assert int(got.begin[at]) <= begin < int(got.end[at])
            assert int(got.begin[at + count - 1]) < begin + length


@given(RANGES)
def test_requests_are_ordered_bounded_and_all_needed(ranges):
    got = fetch(ranges)
    size = got.end - got.begin
    assert (size > 0).all()
    assert (size <= HOW.most).all()
    rows = list(zip(got.source.tolist(), got.begin.tolist(), got.end.tolist(), strict=True))
    assert rows == sorted(rows)
    for (source, _, end), (following, begin, _) in pairwise(rows):
        assert following > source or begin >= end, "bytes are fetched twice"
    used = {
        int(at) + n for at, many in zip(got.first, got.count, strict=True) for n in range(int(many))
    }
    assert used == set(range(len(got)))


@given(RANGES)
def test_what_is_thrown_away_is_less_than_what_is_wanted(ranges):
    how = Coalescing(free_gap=0, max_gap=20, joined=32, most=64)
    got = fetch(ranges, how)
    wanted = sum(length for _, _, length in ranges)
    held = {(s, at) for s, begin, length in ranges for at in range(begin, begin + length)}
    read = {
        (s, at)
        for s, begin, end in zip(
            got.source.tolist(), got.begin.tolist(), got.end.tolist(), strict=True
        )
        for at in range(begin, end)
    }
    assert len(read - held) <= wanted


@given(RANGES.filter(lambda ranges: len(ranges) <= 16))
def test_few_ranges_are_planned_as_many_are(ranges):
    """Ranges of other objects make them too many for the short way."""
    alone = fetch(ranges)
    among = fetch([*ranges, *((9 + n, 0, 1) for n in range(17))])
    for name in ("source", "begin", "end"):
        column = getattr(among, name).tolist()
        assert getattr(alone, name).tolist() == column[: len(column) - 17]
    for name in ("first", "count"):
        assert getattr(alone, name).tolist() == getattr(among, name).tolist()[: len(ranges)]


def test_adjacent_chunks_of_one_object_are_one_request():
    got = fetch([(0, 4096 * n, 4096) for n in reversed(range(100))], Coalescing())
    assert (got.source.tolist(), got.begin.tolist(), got.end.tolist()) == ([0], [0], [409600])


def test_the_same_chunk_asked_for_twice_is_fetched_once():
    assert len(fetch([(0, 10, 5), (0, 10, 5)])) == 1


def test_objects_never_share_a_request():
    assert fetch([(1, 0, 10), (0, 10, 10)]).source.tolist() == [0, 1]


CASES = {
    "a free gap": ([(0, 0, 1), (0, 5, 1)], 1),
    "a gap that is too wide for ranges so short": ([(0, 0, 1), (0, 6, 1)], 2),
    "the same gap between long ranges": ([(0, 0, 5), (0, 10, 5)], 1),
    "the widest gap": ([(0, 0, 20), (0, 40, 20)], 1),
    "one wider": ([(0, 0, 21), (0, 42, 21)], 2),
    "the next object at the same place": ([(0, 0, 5), (1, 5, 5)], 2),
    "a long range that reaches over the gap after a short one": (
        [(0, 0, 28), (0, 2, 1), (0, 30, 1)],
        1,
    ),
    "a range in three parts": ([(0, 0, 513)], 3),
    "nothing": ([], 0),
}


@pytest.mark.parametrize(("ranges", "requests"), CASES.values(), ids=CASES.keys())
def test_how_many_requests(ranges, requests):
    assert len(fetch(ranges, Coalescing(free_gap=4, max_gap=20, joined=128, most=256))) == requests


def test_parts_of_a_large_range_are_equal():
    got = fetch([(0, 7, 130)])
    assert (got.end - got.begin).tolist() == [44, 44, 42]
    assert (got.first.tolist(), got.count.tolist()) == ([0], [3])


def test_ranges_that_are_large_themselves_do_not_wait_for_each_other():
    got = fetch([(0, 1 << 20 << n, 1 << 20 << n) for n in range(5)], Coalescing())
    assert len(got) == 5 + 1  # the last one in two parts
