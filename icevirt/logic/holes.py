"""Steps for which an array has no file: refused, or reserved so that they read as missing.

A chunk that nobody wrote reads as the array's Zarr fill value. That is a hole only where a reader
takes this value for "missing": where it is the ``_FillValue`` (or ``missing_value``) of the array,
or NaN. HDF5's own fill value is often 0, which is a plausible number of rain; so the fill value is
set to the missing one, and where files have unwritten chunks of their own, which must go on reading
as what HDF5 shows for them, nothing can be reserved.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from icevirt.archive.facts import CatalogFacts
from icevirt.archive.schema import ArraySchema
from icevirt.errors import CombineError, InvalidInputError
from icevirt.logic.cells import Cells
from icevirt.logic.members import Member
from icevirt.logic.recoding import missing_of
from icevirt.model import paths
from icevirt.model.json import JSON

type Holes = Literal["refuse", "reserve"]

_SHOWN = 3  # files in a message


def check_holes(rule: str) -> None:
    """Raise ``InvalidInputError`` unless ``rule`` is one of ours."""
    known = get_args(Holes.__value__)
    if rule not in known:
        raise InvalidInputError(
            "unknown rule for holes", do=f"Use one of {', '.join(known)}.", holes=rule
        )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Gap:
    """The cells for which an array has no file."""

    cells: NDArray[np.int64]
    of: int  # cells in all
    lengths: NDArray[np.int64]  # (of,) elements of each cell along the axis
    fill: JSON  # what they read as
    first: str  # URL of a file that lacks the array

    def readable(self, schema: ArraySchema) -> ArraySchema:
        """Return the schema with the fill value that readers take for "missing"."""
        return replace(schema, fill_value=self.fill)


def find(
    facts: CatalogFacts,
    members: Sequence[Member],
    cells: Cells,
    *,
    dimension: str | None,
    rule: Holes,
) -> dict[str, Gap]:
    """Return the gaps of the arrays that have some, by path.

    Raises:
        CombineError: There are some, and they were not asked to be reserved, or cannot be.
    """
    found = {}
    for member in members:
        if member.axis is None:
            continue
        missing = np.setdiff1d(np.arange(cells.count), member.cell)
        if not len(missing):
            continue
        first = facts.files.url[int(np.argmax(cells.cell == missing[0]))]
        if rule == "refuse":
            raise _refused(member, len(missing), cells, dimension, first)
        lengths = _lengths(facts, members, member, cells)
        fill = _fill(facts, member, first)
        found[member.path] = Gap(
            cells=missing, of=cells.count, lengths=lengths, fill=fill, first=first
        )
    return found


def _refused(
    member: Member, missing: int, cells: Cells, dimension: str | None, first: str
) -> CombineError:
    return CombineError(
        f"variable {member.path} is missing in {missing} of {cells.count} places along"
        f" {dimension!r}",
        do='Reserve these steps with holes="reserve", so that they read as missing; or leave those'
        f" files out, or the variable with drop_variables=[{member.path!r}].",
        variable=member.path,
        first=first,
    )


def _lengths(
    facts: CatalogFacts, members: Sequence[Member], member: Member, cells: Cells
) -> NDArray[np.int64]:
    """Return the length of each cell: the member's own, else that of its group's other arrays."""
    lengths = np.full(cells.count, -1, np.int64)
    group = paths.parent(member.path)
    others = [each for each in members if paths.parent(each.path) == group]
    for each in (*others, member):  # its own lengths are set last
        if each.axis is not None:
            lengths[each.cell] = each.shapes[:, each.axis]
    unknown = np.flatnonzero(lengths < 0)
    if len(unknown):
        raise CombineError(
            f"nothing tells how many steps of {member.path} are missing in a file",
            do="Leave the file out, or build the group from the files that have it.",
            variable=member.path,
            file=facts.files.url[int(np.argmax(cells.cell == unknown[0]))],
        )
    return lengths


def _fill(facts: CatalogFacts, member: Member, first: str) -> JSON:
    """Return the fill value with which unwritten chunks read as missing."""
    wanted = _missing_value(member)
    if wanted is None or member.whole.all():
        raise _cannot(
            member,
            "its values are stored by the scan"
            if member.whole.all()
            else "it has no _FillValue that its data type can hold",
            first,
        )
    has = member.schema.fill_value
    if _equal(has, wanted):
        return has
    counts = facts.arrays.virtual[member.rows] + facts.arrays.inline[member.rows]
    edges = np.array(member.schema.chunk_shape or (1,), np.int64)
    full = np.prod(-(-member.shapes // edges), axis=1)
    if (~member.whole & (counts < full)).any():
        raise _cannot(
            member,
            f"some of its chunks were never written and read as {has!r}, which is not its missing"
            f" value {wanted!r}",
            first,
        )
    return wanted


def _cannot(member: Member, why: str, first: str) -> CombineError:
    return CombineError(
        f"steps of variable {member.path} cannot be reserved, because {why}",
        do=f"Leave those files out, or the variable with drop_variables=[{member.path!r}].",
        variable=member.path,
        first=first,
    )


def _missing_value(member: Member) -> JSON:
    kind = member.schema.data_type
    try:
        dtype = np.dtype(kind) if isinstance(kind, str) else None
    except TypeError:
        return None
    if dtype is None or dtype.kind not in "iuf":
        return None
    for value in missing_of(member.schema.attributes):
        # the attribute of unsigned data packed as signed may be of either sign; its bits count
        if dtype.kind in "iu" and isinstance(value, int):
            if np.iinfo(dtype).min <= value <= np.iinfo(dtype).max:
                return value
        elif dtype.kind == "f":
            held = dtype.type(value)
            return "NaN" if np.isnan(held) else float(held)
    return "NaN" if dtype.kind == "f" else None


def _equal(one: JSON, other: JSON) -> bool:
    if isinstance(one, int | float) and isinstance(other, int | float):
        return one == other or (math.isnan(one) and math.isnan(other))
    return one == other


def told(found: Mapping[str, Gap], dimension: str | None) -> list[str]:
    """Return a line for each array with gaps."""
    return [
        f"{path} has no file in {len(gap.cells)} of {gap.of} places along {dimension!r}; they read"
        f" as missing ({gap.fill}); the first: {gap.first}"
        for path, gap in found.items()
    ]
