"""Describe the eras of an archive: runs of files that decode equally, and how they differ.

These values appear in plans, errors and JSON. They name files, but never more than a bounded
number, whatever the archive's size.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from icevirt.archive.sources import name_of_url
from icevirt.errors import Fix, IcevirtError
from icevirt.escaping import Pictured, escape_line

type EraRule = Literal["refuse", "group"]
"""How to build an archive with several eras: refuse it, or make a group for each."""

REFUSED = 'on_mismatch="refuse"'
"""The choice to build nothing, the default."""

MARK = "icevirt_eras"
"""Attribute of the group that holds eras: ``{"version": 1, "dimension", "groups", "order",
"contiguous"}``.

``dimension`` is that along which they follow one another, null where it is not one; ``groups`` are
names in the order of the eras; ``order`` is "coordinate" where steps are in the order of its
values, "given" where the user gave it; ``contiguous`` says that each era is one run of steps, so
that they follow one another even if no coordinate has the order.
"""

ERA = "icevirt_era"
"""Prefix of the attributes of an era's group: ``icevirt_era`` (its number), ``_files``, ``_first``,
``_last`` (labels, else URLs) and ``_changes``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """How a variable of one era differs from that of another."""

    variable: str
    what: str  # like "scale_factor 0.01 → 0.02; shuffle added"

    def __str__(self) -> str:
        return escape_line(f"{self.variable}: {self.what}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """Files of one era that follow one another in the order of the dataset."""

    era: int
    files: int
    first: str  # URL
    last: str
    first_label: str  # of the concatenated dimension; "" where there is none
    last_label: str
    inside: int | None = None  # the era that goes on behind it as it was before


@dataclass(frozen=True, slots=True, kw_only=True)
class Absence:
    """Files of an era that lack a variable, whose steps can be reserved."""

    variable: str
    era: int
    places: int  # along the dimension
    examples: tuple[str, ...]  # URLs


@dataclass(frozen=True, slots=True, kw_only=True)
class Era:
    """Files that decode alike. They need not follow one another."""

    number: int
    files: int
    first: str  # URL
    last: str
    first_label: str
    last_label: str
    runs: int  # in how many pieces it lies along the dimension
    since: int | None  # the era that it is compared with: the one right before it
    changes: tuple[Change, ...]

    @property
    def name(self) -> str:
        """What its group is called."""
        return f"era_{self.number}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """One thing that can be done about eras, and what it costs."""

    option: str  # as it is passed
    does: str
    groups: int = 0
    bytes_stored: int = 0
    max_error: float | None = None  # by which values could be off; None where all survive exactly
    fix: Fix | None = None  # the change of the call, where it surely works
    why: IcevirtError | None = None  # what stands in its way


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Eras(Pictured):
    """All eras of an archive, the first ones in full."""

    dimension: str
    count: int
    eras: tuple[Era, ...]  # the first of them
    apart: tuple[Run, ...]  # files that lie within another era, the first of them
    more_apart: int  # runs that are not listed
    absences: tuple[Absence, ...]
    choices: tuple[Choice, ...]
    ordered: bool  # the dimension's labels say which files follow which
    as_one: bool = True  # whether the engine can show them as one dataset

    def __repr__(self) -> str:
        begins = [f"{era.name} at {name_of_url(era.first)}" for era in self.eras[:3]]
        more = ", ..." if self.count > len(begins) else ""
        return escape_line(f"<{self.count} eras: {', '.join(begins)}{more}>")
