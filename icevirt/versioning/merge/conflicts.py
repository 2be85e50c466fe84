"""Define the kinds of conflict and the solvers that decide who wins; names are icechunk's.

`icevirt.versioning.merge.rebase` finds them.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from dataclasses import dataclass
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from icevirt.escaping import escape_line
from icevirt.ids import ObjectId8


class ConflictType(IntEnum):
    """Kinds of conflicts; names and numbers are icechunk's."""

    NewNodeConflictsWithExistingNode = 1
    NewNodeInInvalidGroup = 2
    ZarrMetadataDoubleUpdate = 3
    ZarrMetadataUpdateOfDeletedArray = 4
    ZarrMetadataUpdateOfDeletedGroup = 5
    ChunkDoubleUpdate = 6
    ChunksUpdatedInDeletedArray = 7
    ChunksUpdatedInUpdatedArray = 8
    DeleteOfUpdatedArray = 9
    DeleteOfUpdatedGroup = 10
    MoveOperationCannotBeRebased = 11

    def __str__(self) -> str:
        """Return the name as words."""
        return re.sub(r"(?<=[a-z])([A-Z])", lambda found: f" {found[1].lower()}", self.name)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Conflict:
    """One conflict between the changes of a session and a commit that came first."""

    conflict_type: ConflictType
    path: str
    node_id: ObjectId8 | None = None
    conflicted_chunks: NDArray[np.uint32] | None = None  # (n, ndim)

    def __repr__(self) -> str:
        chunks = self.conflicted_chunks
        where = "" if chunks is None else f" in {len(chunks)} chunks, {chunks[0].tolist()} first"
        return f"<{self.conflict_type.name} {escape_line(self.path)}{where}>"


class Conflicts(tuple[Conflict, ...]):
    """Several conflicts; only the first few are shown."""

    __slots__ = ()

    def __repr__(self) -> str:
        more = f", and {len(self) - 5} more" if len(self) > 5 else ""
        return ", ".join(map(repr, self[:5])) + more


# -- who wins --------------------------------------------------------------------------------------


class VersionSelection(IntEnum):
    """Which side of a conflict is kept."""

    Fail = 0
    UseOurs = 1
    UseTheirs = 2


class ConflictSolver(ABC):
    """Decides how to resolve a conflict."""

    @abstractmethod
    def choose(self, conflict: Conflict) -> VersionSelection:
        """Return whose version is kept; `VersionSelection.Fail` leaves the conflict unresolved."""


class ConflictDetector(ConflictSolver):
    """Solves no conflict, so only changes without conflicts are rebased."""

    def __repr__(self) -> str:
        return "ConflictDetector()"

    def choose(self, conflict: Conflict) -> VersionSelection:  # noqa: ARG002
        """Leave every conflict unresolved."""
        return VersionSelection.Fail


@dataclass(frozen=True, slots=True, kw_only=True)
class BasicConflictSolver(ConflictSolver):
    """Solves conflicts of chunks, and of deletes with updates; leaves all others unresolved."""

    on_chunk_conflict: VersionSelection = VersionSelection.UseOurs
    fail_on_delete_of_updated_array: bool = False  # False: our delete wins
    fail_on_delete_of_updated_group: bool = False  # False: our delete wins

    def choose(self, conflict: Conflict) -> VersionSelection:
        """Return whose version is kept."""
        match conflict.conflict_type:
            case ConflictType.ChunkDoubleUpdate:
                return self.on_chunk_conflict
            case ConflictType.DeleteOfUpdatedArray:
                fail = self.fail_on_delete_of_updated_array
            case ConflictType.DeleteOfUpdatedGroup:
                fail = self.fail_on_delete_of_updated_group
            case _:
                fail = True
        return VersionSelection.Fail if fail else VersionSelection.UseOurs


@dataclass(frozen=True, slots=True, kw_only=True)
class AppendConflictSolver(BasicConflictSolver):
    """Also reconciles appends to the same array: ours moves behind theirs. Only in icevirt.

    Both must append whole chunks along ``append_dim`` and change nothing else of the metadata. Two
    writers that append the same data append it twice.
    """

    append_dim: str  # name of the dimension
