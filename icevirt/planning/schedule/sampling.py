"""Sample the chunks that a verification reads: at random over all references, by manifest."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def sample(counts: NDArray[np.integer], size: int, *, seed: int) -> list[NDArray[np.int64]]:
    """Draw ``size`` references without repetition, all equally likely.

    Args:
        counts: References by manifest, shape (m,).
        size: How many are wanted; at most all there are.
        seed: The same one draws the same sample.

    Returns:
        For each manifest the sorted numbers of the references drawn from it.
    """
    ends = np.cumsum(counts, dtype=np.int64)
    there = int(ends[-1]) if len(ends) else 0
    if size >= there:
        return [np.arange(count, dtype=np.int64) for count in counts.tolist()]
    drawn = np.sort(_draw(there, size, np.random.default_rng(seed)))
    parts = np.split(drawn, np.searchsorted(drawn, ends)[:-1])
    return [part - start for part, start in zip(parts, (ends - counts).tolist(), strict=True)]


def _draw(there: int, size: int, random: np.random.Generator) -> NDArray[np.int64]:
    """Draw numbers below ``there``; memory follows ``size``, not ``there``."""
    drawn = np.unique(random.integers(0, there, size))
    while len(drawn) < size:
        drawn = np.unique(np.concatenate([drawn, random.integers(0, there, size)]))
    return random.permutation(drawn)[:size]
