"""A sample of references holds as many as were asked for, each once, and all are equally likely."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from icevirt.planning.schedule.sampling import sample

COUNTS = st.lists(st.integers(0, 40), max_size=8)


@given(counts=COUNTS, size=st.integers(0, 200), seed=st.integers(0, 2**32 - 1))
def test_as_many_as_asked_for_are_drawn_each_once_in_order(counts, size, seed):
    drawn = sample(np.array(counts, np.int64), size, seed=seed)
    assert len(drawn) == len(counts)
    assert sum(map(len, drawn)) == min(size, sum(counts))
    for numbers, count in zip(drawn, counts, strict=True):
        assert np.all(np.diff(numbers) > 0)
        assert all(0 <= number < count for number in numbers)


@given(counts=COUNTS, size=st.integers(0, 200), seed=st.integers(0, 2**32 - 1))
def test_a_seed_draws_the_same_again(counts, size, seed):
    one, other = (sample(np.array(counts, np.int64), size, seed=seed) for _ in range(2))
    assert all(np.array_equal(a, b) for a, b in zip(one, other, strict=True))


def test_every_reference_is_equally_likely():
    counts, times = np.array([3, 0, 7]), np.zeros(10)
    for seed in range(2000):
        first, _, last = sample(counts, 2, seed=seed)
        times[first] += 1
        times[last + 3] += 1
    assert times.sum() == 4000
    assert 300 < times.min() <= times.max() < 500
