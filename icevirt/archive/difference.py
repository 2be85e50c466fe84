"""How a plan differs from what the last build of the same group made, as values."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanChange:
    """One difference."""

    what: str  # in words, like "/tos: data type int16 → float32"
    stops: bool  # readers lose something, or read other values: a person must have meant it


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanDifference:
    """All differences, those that stop a build first."""

    snapshot_id: str  # of the last build
    changes: tuple[PlanChange, ...]

    @property
    def stopping(self) -> tuple[str, ...]:
        """What a build asks for permission to do."""
        return tuple(change.what for change in self.changes if change.stops)
