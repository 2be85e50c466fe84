"""Randomize pauses, so that processes waiting for the same thing do not retry together."""

from __future__ import annotations

import random

# not the numbers of the `random` module: whoever seeds these wants them undisturbed, and processes
# that seed them alike would wait alike
_SYSTEM = random.SystemRandom()


def jitter(low: float, high: float) -> float:
    """Return a number between two others."""
    return _SYSTEM.uniform(low, high)
