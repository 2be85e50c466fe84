"""Vectorised helpers against their obvious loops."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from icevirt.model.indices import ascends
from icevirt.model.strings import Strings, copy_ranges, gather
from icevirt.wire.flatbuffer.reader import array, condense
from icevirt.wire.manifests import distinct_rows
from icevirt.wire.manifests.distinct_rows import equal_ranges, first_uses
from unit.wire.wire_values import indices

DATA = np.random.default_rng(3).integers(0, 4, 400, np.uint8)
rows = st.lists(st.tuples(st.integers(0, 90), st.integers(0, 9)), max_size=40)


def columns(pairs):
    both = np.array(pairs, np.int64).reshape(-1, 2)
    return both[:, 0] * 4, both[:, 1]


@given(rows)
def test_gather_agrees_with_a_loop(pairs):
    start, length = columns(pairs)
    data, starts = gather(DATA, start, length)
    parts = [DATA[s : s + n].tobytes() for s, n in zip(start, length, strict=True)]
    assert data.tobytes() == b"".join(parts)
    assert np.diff(starts).tolist() == length.tolist()


@pytest.mark.parametrize(("step", "size"), [(0, 3), (4, 3), (4, 4), (9, 2), (3, 8)])
def test_evenly_spaced_ranges_are_copied_like_others(step, size):
    start = np.arange(30) * step
    into = np.zeros(10 * 31, np.uint8)
    at, length = np.arange(30) * 10, np.full(30, size)
    copy_ranges(DATA, start, into, at, length)
    for s, a in zip(start, at, strict=True):
        assert into[a : a + size].tobytes() == DATA[s : s + size].tobytes()


@given(st.lists(st.text(max_size=5), max_size=12), st.data())
def test_rows_of_a_column_of_strings_are_taken_as_from_a_list(values, data):
    picked = data.draw(st.lists(st.integers(0, len(values) - 1), max_size=9)) if values else []
    assert list(Strings.of(values)[np.array(picked, np.int64)]) == [values[n] for n in picked]


@given(st.lists(st.integers(0, 5), max_size=30))
def test_first_uses_agree_with_a_loop(keys):
    seen = list(dict.fromkeys(keys))
    first, rank = first_uses(np.array(keys, np.int64))
    assert first.tolist() == [keys.index(key) for key in seen]
    assert rank.tolist() == [seen.index(key) for key in keys]


@given(rows)
def test_equal_ranges_agree_with_a_loop(pairs):
    start, length = columns(pairs)
    values = [DATA[s : s + n].tobytes() for s, n in zip(start, length, strict=True)]
    seen = list(dict.fromkeys(values))
    first, rank = equal_ranges(DATA, start, length)
    assert first.tolist() == [values.index(value) for value in seen]
    assert rank.tolist() == [seen.index(value) for value in values]


@given(rows)
def test_colliding_digests_change_nothing(pairs):
    """The bytes are compared all the same."""
    start, length = columns(pairs)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            distinct_rows, "_digest", lambda data, start, length: np.zeros(len(start), "<u8")
        )
        collided = equal_ranges(DATA, start, length)
    for one, other in zip(collided, equal_ranges(DATA, start, length), strict=True):
        assert one.tolist() == other.tolist()


def test_long_ranges_that_differ_at_their_end_keep_apart():
    data = np.zeros(8000, np.uint8)
    data[3999] = 1
    first, _ = equal_ranges(data, np.array([0, 4000]), np.array([4000, 4000]))
    assert len(first) == 2


@given(indices(3), st.randoms())
def test_only_sorted_rows_ascend(index, rng):
    assert ascends(index)
    order = list(range(len(index)))
    rng.shuffle(order)
    assert ascends(index[order]) is (order == sorted(order))
    assert not ascends(np.concatenate([index, index[-1:]]))


@given(
    st.lists(st.integers(0, 100), max_size=8)
    | st.builds(range, st.integers(0, 9), st.integers(0, 99), st.integers(1, 9))
)
def test_condensed_places_are_the_same_places(places):
    at = np.array(list(places), np.int64)
    assert array(condense(at)).tolist() == at.tolist()


@pytest.mark.parametrize(
    ("repeat", "order", "expected"),
    [
        (1, "runs", True),
        (2, "runs", False),
        (100, "runs", False),
        (100, "rounds", False),
    ],
)
def test_many_ranges_look_distinct_only_if_they_are(repeat, order, expected):
    n = 1 << 17
    numbers = np.arange(n) // repeat if order == "runs" else np.arange(n) % (n // repeat)
    data = numbers.astype("<u8").view(np.uint8)
    assert distinct_rows.looks_distinct(data, np.arange(n) * 8, np.full(n, 8)) is expected
