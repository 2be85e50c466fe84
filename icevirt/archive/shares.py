"""Define the limits of scanning a file, and the share of a huge file that one task scans."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

ATTEMPTS = 3
"""Attempts of a task before its job fails; Spark's own default in local mode is 1."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScanLimits:
    """Time and memory that the scan of one file may take."""

    seconds: float = 600.0
    memory: int = 4 << 30  # bytes of address space, beside what the process has before


DEFAULT = ScanLimits()


@dataclass(frozen=True, slots=True, kw_only=True)
class Weight:
    """Estimate of what scanning one variable costs, from headers.

    ``cost`` is in chunk references, which take about half a microsecond each; ``chunks`` are the
    places of its chunk grid where its index can be read in runs, 0 where it cannot.
    """

    path: str
    cost: int
    chunks: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """One share of a file; all shares together hold each variable once.

    A run (low, high) is of places in the chunk grid, counted in C order.
    """

    order: tuple[str, ...] = ()  # the variables of the file, of all shares
    whole: frozenset[str] = frozenset()
    runs: Mapping[str, tuple[int, int]] = field(default_factory=dict)

    def covers(self, path: str) -> bool:
        """Say whether the variable, or a run of its chunks, is in this share."""
        return path in self.whole or path in self.runs
