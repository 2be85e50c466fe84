"""Pauses are spread without the numbers that a user seeds."""

import random

from icevirt.connect.retry import jitter


def test_who_seeds_alike_does_not_wait_alike_and_keeps_his_numbers():
    random.seed(1)
    before = random.getstate()
    found = {jitter(0.5, 1.0) for _ in range(100)}
    assert random.getstate() == before
    random.seed(1)
    assert found.isdisjoint(jitter(0.5, 1.0) for _ in range(100))
    assert all(0.5 <= each <= 1.0 for each in found)
