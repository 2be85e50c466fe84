"""icechunk's names of conflicts and of what solves them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from icevirt.errors import RebaseFailedError
from icevirt.icechunk._shims.shown import Shown
from icevirt.versioning.merge import conflicts as engine
from icevirt.versioning.merge.conflicts import (
    BasicConflictSolver,
    ConflictDetector,
    ConflictSolver,
    ConflictType,
    VersionSelection,
)

__all__ = [
    "BasicConflictSolver",
    "Conflict",
    "ConflictDetector",
    "ConflictSolver",
    "ConflictType",
    "VersionSelection",
]


@dataclass(frozen=True, slots=True, repr=False)
class Conflict(Shown):
    """One conflict between the changes of a session and a commit that came first."""

    _home = "icechunk.conflicts"

    conflict_type: ConflictType
    path: str
    conflicted_chunks: list[list[int]] | None = None


@contextmanager
def as_lists() -> Iterator[None]:
    """Show the chunks of conflicts as lists, in the error of a rebase that failed."""
    try:
        yield
    except RebaseFailedError as error:
        error.facts["conflicts"] = [
            each if isinstance(each, Conflict) else _with_lists(each) for each in error.conflicts
        ]
        raise


def _with_lists(found: engine.Conflict) -> Conflict:
    chunks = found.conflicted_chunks
    return Conflict(found.conflict_type, found.path, None if chunks is None else chunks.tolist())
