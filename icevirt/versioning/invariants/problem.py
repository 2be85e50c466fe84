"""Define one violated invariant."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """Something that is not as it must be."""

    file: str  # path below the root, like "snapshots/1CECHNKREP0F1RSTCMT0"
    code: str  # stable
    what: str
    advice: bool = False  # legal, but worth mending

    def __str__(self) -> str:
        return f"{self.file}: {self.what} [{self.code}{', advice' if self.advice else ''}]"
