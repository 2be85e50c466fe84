"""Define the cost of a plan, and how it differs from what its group holds, for text and JSON."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from operator import itemgetter

from icevirt.archive.reports.build import ReferenceCounts
from icevirt.archive.reports.card import counted


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadCost:
    """What reading one thing takes: at most so many requests, fewer where chunks are neighbours."""

    chunks: int
    manifests: int
    bytes: int  # as stored, of the mean chunk

    @property
    def requests(self) -> int:
        """Of chunks and manifests."""
        return self.chunks + self.manifests


@dataclass(frozen=True, slots=True, kw_only=True)
class ArrayCost:
    """What reading one array takes."""

    path: str
    bytes_per_chunk: int  # mean of the chunks that are referenced, as stored; 0: there are none
    points: int  # values in one step
    map: ReadCost | None  # one step of all; None where files do not lie along any of its dimensions
    series: ReadCost | None  # one point over all steps


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanCost:
    """What executing a plan takes, and reading its dataset afterwards.

    Memory is an estimate in bytes beside what the processes have when they start.
    """

    files: int
    arrays: int
    references: ReferenceCounts
    windows: int  # parts of arrays that become manifests; small ones share a manifest
    route: str  # of references to tasks: "direct" from the catalog, or by a "shuffle"
    route_description: str  # with the reason
    bytes_stored: int  # native and inline, in the repository; before they are compressed
    scan_tasks: int  # parts of a catalog
    write_tasks: int  # at most: of manifests, one or more in each
    task_memory: int  # of the largest window
    driver_memory: int
    of_arrays: tuple[ArrayCost, ...]
    warnings: tuple[str, ...]

    @property
    def map(self) -> ArrayCost | None:
        """The array of which one step takes most requests; among equals, has most values."""
        found = [(each.map.requests, each.points, each) for each in self.of_arrays if each.map]
        return max(found, key=itemgetter(0, 1), default=(0, 0, None))[-1]

    @property
    def series(self) -> ArrayCost | None:
        """The array of which one point over all steps takes most requests, as of `map`."""
        found = [
            (each.series.requests, each.points, each) for each in self.of_arrays if each.series
        ]
        return max(found, key=itemgetter(0, 1), default=(0, 0, None))[-1]


@dataclass(frozen=True, slots=True, kw_only=True)
class StepGap:
    """Labels between which steps are missing."""

    after: str
    before: str
    missing: int  # steps


@dataclass(frozen=True, slots=True, kw_only=True)
class AxisSummary:
    """The labels of a dimension along which files are concatenated, from first to last."""

    dimension: str
    steps: int
    first: str = ""  # label; "" where there are none
    last: str = ""
    calendar: str = ""  # of times, where it is not the standard one
    every: str = ""  # like "day", "6 hours", "3 months", "0.25"; "" where that differs
    spacing: str = ""  # the same as the option of that name takes it; "" where it cannot
    shortest: str = ""  # between labels next to each other, where there is no one step
    longest: str = ""
    gaps: int = 0  # places where steps are missing
    missing: int = 0  # steps in all gaps
    examples: tuple[StepGap, ...] = ()  # the first of them

    def __str__(self) -> str:
        """Return it in words, without the name of the dimension."""
        steps = counted(self.steps, "step")
        ends = f"{self.first} → {self.last}" if self.steps > 1 else self.first
        calendar = f" ({self.calendar} calendar)" if self.calendar else ""
        parts = [steps, f"{ends}{calendar}" if ends else "", self._regularity()]
        return ", ".join(filter(None, parts))

    def _regularity(self) -> str:
        if not self.every:
            return f"{self.shortest} to {self.longest} apart" if self.longest else ""
        gaps = f"{counted(self.gaps, 'gap')} ({counted(self.missing, 'step')} missing)"
        gaps = gaps if self.gaps else ""
        return ", ".join(filter(None, (f"every {self.every}", gaps)))


OTHERS = "work of others"
"""The kind of a change that undoes what another commit than that of a build did."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanChange:
    """One difference."""

    what: str  # in words, like "/tos: data type int16 → float32"
    stops: bool  # something is lost, or reads as other values: a person must confirm it
    kind: str = ""  # "steps" of a concatenated dimension, the "fill value" of missing ones, OTHERS


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

    def stopping_but(self, expected: Collection[str]) -> tuple[str, ...]:
        """Return what a build asks for permission to do beside changes of expected kinds."""
        return tuple(each.what for each in self.changes if each.stops and each.kind not in expected)
