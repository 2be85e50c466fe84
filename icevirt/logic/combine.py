"""From the facts of a closed catalog to the plan of a build, or to the reason why there is none.

Files combine when every array decodes alike in all files that have it, their grids agree, chunks
line up, and arrays without the concatenated dimension hold the same values everywhere. Files may
hold different variables of the same steps. Anything else is refused with the files, the variable
and the difference.
"""

from __future__ import annotations

import numpy as np

from icevirt.archive.facts import ArrayColumns, CatalogFacts
from icevirt.archive.plan import BuildPlan, LeftOut, Mode, PlannedArray
from icevirt.archive.scanned import ScannedGroup
from icevirt.archive.schema import ArraySchema
from icevirt.archive.times import Recoding
from icevirt.errors import CombineError
from icevirt.logic import duplicates, holes, recoding
from icevirt.logic.attributes import combine_attributes
from icevirt.logic.cells import Cells, as_given, place_files, stacked_files
from icevirt.logic.containers import containers_for
from icevirt.logic.members import members_of
from icevirt.logic.planned import planned
from icevirt.logic.stacking import Labels, Stack, coordinate, labels_told, stacked
from icevirt.logic.windows import split_rules
from icevirt.logic.wish import Wish
from icevirt.model import paths
from icevirt.model.config import SplitRule


def combine(facts: CatalogFacts, wish: Wish) -> BuildPlan:
    """Decide how the files of a catalog become one dataset.

    Raises:
        CombineError: They do not, without changing values; the message says which and why.
    """
    stack = None
    if wish.labels is not None:
        facts, stack = _stacked(facts, wish, wish.labels)
    _check_dimension(facts, wish)
    facts, times, left_out = _alike(facts, wish)
    # files that disagree have no order to speak of
    members_of(facts, as_given(facts, wish.concat_dim), wish.concat_dim)
    cells = _cells(facts, wish, stack)
    members = members_of(facts, cells, wish.concat_dim)
    gaps = holes.find(facts, members, cells, dimension=wish.concat_dim, rule=wish.holes)
    arrays = tuple(
        planned(
            facts,
            member,
            cells,
            wish,
            gap=gaps.get(member.path),
            times=_in_order(times.get(member.path), cells),
        )
        for member in members
    )
    if stack is not None and wish.concat_dim is not None:
        arrays += (coordinate(stack, wish.concat_dim, wish.group, wish.build_id),)
    reasons = (cells.reason,) if cells.reason else ()
    return BuildPlan(
        build_id=wish.build_id,
        group=paths.canonical(wish.group),
        concat_dim=wish.concat_dim,
        files=facts.files.take(cells.rows),
        groups=_groups(facts, cells, wish),
        arrays=arrays,
        containers=containers_for(facts.places),
        split_rules=_split_rules(arrays),
        notes=(
            *reasons,
            *recoding.told(times),
            *duplicates.told(left_out, wish.duplicates),
            *holes.told(gaps, wish.concat_dim),
            *_static_told(facts, arrays),
        ),
        left_out=left_out,
    )


def _stacked(facts: CatalogFacts, wish: Wish, labels: Labels) -> tuple[CatalogFacts, Stack]:
    """Give the arrays the new dimension that was asked for.

    Raises:
        CombineError: The files have it already, or it is not named.
    """
    dimension = wish.concat_dim
    if dimension is None or dimension in {
        *_dimensions(facts.arrays),
        *(paths.name(path) for path in facts.arrays.path.values),
    }:
        raise CombineError(
            "labels are for a new dimension, which the files do not have",
            do="Name it with concat_dim (on the command line --concat-dim), or leave labels out.",
            concat_dim=dimension,
        )
    stack = labels_told(facts, labels, dimension)
    return stacked(facts, dimension, stack), stack


def _cells(facts: CatalogFacts, wish: Wish, stack: Stack | None) -> Cells:
    if stack is None or wish.concat_dim is None:
        return place_files(facts, wish.concat_dim)
    return stacked_files(stack, wish.concat_dim)


def _check_dimension(facts: CatalogFacts, wish: Wish) -> None:
    if len(facts.files) > 1 and wish.concat_dim is None:
        raise CombineError(
            f"{len(facts.files)} files, and no dimension to concatenate them along",
            do="Pass concat_dim (on the command line --concat-dim).",
            dimensions=_dimensions(facts.arrays),
        )
    if wish.concat_dim is not None and wish.concat_dim not in _dimensions(facts.arrays):
        raise CombineError(
            f"no variable has the dimension {wish.concat_dim!r}",
            do="Name a dimension that the files have; to stack them along a new one, pass labels.",
            dimensions=_dimensions(facts.arrays),
        )


def _dimensions(arrays: ArrayColumns) -> list[str]:
    names = {
        name
        for text in arrays.schema.values
        for name in ArraySchema.loads(text).dimension_names
        if name is not None
    }
    return sorted(names)


def _alike(
    facts: CatalogFacts, wish: Wish
) -> tuple[CatalogFacts, dict[str, Recoding], tuple[LeftOut, ...]]:
    """Bring times to one count, and leave out files that hold what others hold."""
    facts, times = recoding.recode_times(facts, wish.concat_dim)
    kept, left_out = duplicates.without_duplicates(facts, wish.concat_dim, wish.duplicates)
    if not left_out:
        return facts, times, ()
    return (
        facts.only(kept),
        {path: each.take(kept) for path, each in times.items()},
        left_out,
    )


def _in_order(times: Recoding | None, cells: Cells) -> Recoding | None:
    return None if times is None else times.take(cells.rows)


def _split_rules(arrays: tuple[PlannedArray, ...]) -> tuple[SplitRule, ...]:
    return split_rules(
        {
            array.path: (
                array.grid,
                array.window,
                None if array.mode is Mode.once else array.axis,
            )
            for array in arrays
        }
    )


def _static_told(facts: CatalogFacts, arrays: tuple[PlannedArray, ...]) -> list[str]:
    """Return a line for each array that is stored once though some files lack it."""
    counts = np.bincount(facts.arrays.path.codes, minlength=len(facts.arrays.path.values))
    held = dict(zip(facts.arrays.path.values, counts.tolist(), strict=True))
    return [
        f"{array.path} is in {held[array.source_path]} of {len(facts.files)} files and stored once"
        for array in arrays
        if array.mode is Mode.once and held[array.source_path] < len(facts.files)
    ]


# -- groups ------------------------------------------------------------------------------------


def _groups(facts: CatalogFacts, cells: Cells, wish: Wish) -> dict[str, bytes]:
    """Return the groups of the dataset; those of later files count unless "override" was asked.

    Where files hold different arrays they may have different groups, and all are looked at.
    """
    rows = cells.rows
    if wish.combine_attrs == "override" and _is_uniform(facts):
        rows = rows[:1]
    found: dict[str, list[ScannedGroup]] = {}
    for row in rows.tolist():
        for group in facts.groups_of(row):
            found.setdefault(group.path, []).append(group)
    return {
        paths.join(wish.group, path): groups[0].zarr_json(
            combine_attributes([each.attributes for each in groups], wish.combine_attrs, path=path)
        )
        for path, groups in found.items()
    }


def _is_uniform(facts: CatalogFacts) -> bool:
    """Say whether every file has every array."""
    return len(facts.arrays.file) == len(facts.files) * len(facts.arrays.path.values)
