"""Define the limits of scanning one file, and how often a task is retried."""

from __future__ import annotations

from dataclasses import dataclass

ATTEMPTS = 3
"""Of a task, before its job fails; Spark's own default in local mode is 1."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScanLimits:
    """What the scan of one file may take."""

    seconds: float = 600.0
    memory: int = 4 << 30  # bytes of address space, beside what the process has before


DEFAULT = ScanLimits()
