"""Define how a plan differs from what its group holds."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanChange:
    """One difference."""

    what: str  # in words, like "/tos: data type int16 → float32"
    stops: bool  # somebody loses something, or reads other values: a person must have meant it


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanDifference:
    """All differences, those that stop a build first."""

    snapshot_id: str  # of the last build of the group; "" where there was none
    changes: tuple[PlanChange, ...]
    kept: tuple[str, ...] = ()  # paths that stay: the last build of the group did not make them
    replaced: tuple[str, ...] = ()  # paths that the build makes anew
    deleted: tuple[str, ...] = ()  # paths that are no longer there after the build

    @property
    def stopping(self) -> tuple[str, ...]:
        """What a build asks for permission to do."""
        return tuple(change.what for change in self.changes if change.stops)
