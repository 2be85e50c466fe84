"""Describe the share of a huge file that one task scans: whole arrays and runs of large ones."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class Weight:
    """What the scan of one variable takes, as far as headers tell.

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
