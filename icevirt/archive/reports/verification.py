"""Define what `icevirt.verify` checked and what was wrong, for text, JSON and tests."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum

from icevirt.amounts import plural
from icevirt.escaping import Pictured

MOST_SHOWN = 100
"""Differences that a task brings home; the others are counted."""


class DifferenceKind(StrEnum):
    """How a source and the repository differ."""

    missing = "missing"  # the file is gone
    changed = "changed"  # it is not the file that was scanned
    truncated = "truncated"  # it ends before its references do
    unreadable = "unreadable"  # it, or a chunk of the repository, cannot be read
    value = "value"  # a value read through the repository is not that of the file
    place = "place"  # the file holds no such chunk, or coordinates say that it belongs elsewhere


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """One thing that is wrong."""

    kind: DifferenceKind
    file: str  # URL
    array: str = ""  # path in the repository, where it concerns one
    region: str = ""  # index range of the array, like "[3:4, 0:330]"
    what: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    """Counts of what was looked at, and what was found; those of tasks add up."""

    references: int = 0  # virtual references whose file was looked at
    files: int = 0  # looked at; a file is counted once for every task that met it
    unverifiable: int = 0  # references with neither a strong etag nor a modification time
    chunks: int = 0  # whose values were compared
    arrays: int = 0  # compared: pairs of an array that the repository stores and a file
    values: int = 0  # elements
    compared: frozenset[str] = frozenset()  # paths of arrays of which something was compared
    unmatched: tuple[str, ...] = ()  # of a full comparison: arrays that no file was compared with
    not_compared: tuple[tuple[str, str], ...] = ()  # (array, why its values could not be compared)
    differences: tuple[Difference, ...] = ()
    more: int = 0  # differences beyond those shown

    def __add__(self, other: Checked) -> Checked:
        shown = self.differences + other.differences
        return Checked(
            references=self.references + other.references,
            files=self.files + other.files,
            unverifiable=self.unverifiable + other.unverifiable,
            chunks=self.chunks + other.chunks,
            arrays=self.arrays + other.arrays,
            values=self.values + other.values,
            compared=(
                self.compared if other.compared <= self.compared else self.compared | other.compared
            ),
            unmatched=tuple(dict.fromkeys(self.unmatched + other.unmatched)),
            not_compared=tuple(dict.fromkeys(self.not_compared + other.not_compared)),
            differences=shown[:MOST_SHOWN],
            more=self.more + other.more + max(0, len(shown) - MOST_SHOWN),
        )


def total(parts: Iterable[Checked]) -> Checked:
    """Return the sum of what tasks found."""
    return sum(parts, Checked())


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifyReport(Pictured):
    """The outcome of `icevirt.verify`."""

    repo: str  # URL
    snapshot_id: str
    checked: Checked
    seed: int  # of the sample of chunks
    executor: str = ""  # that ran tasks: "spark", "processes" or "in-process"
    seconds: dict[str, float] = field(default_factory=dict)  # by phase, in order

    def __repr__(self) -> str:
        found = len(self.checked.differences) + self.checked.more
        return (
            f"<VerifyReport {self.snapshot_id[:6]}  {plural(self.checked.references, 'reference')}"
            f"  {plural(self.checked.values, 'value')}"
            f"  {plural(found, 'difference') if found else 'no difference'}>"
        )

    @property
    def ok(self) -> bool:
        """Whether nothing differed. Values that could not be compared are listed, not counted."""
        return not self.checked.differences
