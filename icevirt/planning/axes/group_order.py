"""Hold one order of files against the labels of all groups: ``/a/y`` places them, ``/b/y`` agrees.

A group with labels of its own has a dimension of its own (see `DimensionScopes`). Files follow one
another there as they do along the axis, and no two hold the same steps, or they are refused: values
of one of the groups would stand at other places than its labels say. Labels that give no order
(unsorted, missing) contradict none.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from icevirt.archive.facts import CatalogFacts
from icevirt.errors import CombineError, Fix, OverlapError
from icevirt.model import paths
from icevirt.planning.axes.axis import NOWHERE, AxisPlacement, Placement
from icevirt.planning.axes.coordinates import Coordinate, coordinates_of_groups
from icevirt.planning.axes.dimension_scopes import ABSENT, DimensionScopes
from icevirt.planning.axes.overlaps import FileLabels, FilePieces, labels_by, pieces_of
from icevirt.planning.axes.placement import place_by
from icevirt.planning.remedies import fix
from icevirt.remedy_notation import write_code, write_remedy


def with_groups(
    facts: CatalogFacts,
    cells: Placement,
    known: Mapping[str, AxisPlacement],
    regular: Mapping[str, str | float],
) -> Placement:
    """Return where files lie, with their cells along dimensions that groups have of their own.

    A file that lacks such a group has no steps there, and leaves no gap.

    Raises:
        CombineError: Files overlap along one of them, or follow one another otherwise.
    """
    alone = len(cells.axes) == 1
    found: dict[tuple[str, str], AxisPlacement] = {}
    for axis in cells.axes:
        spacing = regular.get(axis.dimension)
        if axis.dimension not in known and (len(facts.files) > 1 or spacing is not None):
            found |= _of_axis(facts, axis, alone=alone, spacing=spacing)
    return replace(cells, of_groups=found) if found else cells


def _of_axis(
    facts: CatalogFacts, axis: AxisPlacement, *, alone: bool, spacing: str | float | None
) -> dict[tuple[str, str], AxisPlacement]:
    """Return the cells that are not those of the axis, by group of arrays and dimension."""
    found: dict[tuple[str, str], AxisPlacement] = {}
    for held, files, scopes in _own_coordinates(facts, axis.dimension, but=axis.coordinate):
        group = paths.parent(held.path)
        mine = _place(facts, axis, held, files, alone=alone, spacing=spacing)
        is_whole = len(files) == int((scopes.lengths[group] != ABSENT).sum())
        if mine and is_whole and (mine.count != axis.count or mine.steps is not None):
            groups = (each for each, owner in scopes.owner.items() if owner == group)
            found |= {(each, axis.dimension): mine for each in groups}
    return found


def _own_coordinates(
    facts: CatalogFacts, dimension: str, *, but: str = ""
) -> Iterator[tuple[Coordinate, NDArray[np.int64], DimensionScopes]]:
    """Yield the coordinates of groups with a dimension of their own, and files with their labels.

    None where one group has all labels, as in most archives.
    """
    named = [path for path in facts.arrays.path.values if paths.name(path) == dimension]
    if len(named) < 2:
        return
    scopes = DimensionScopes.of(facts, dimension)
    for held, files in coordinates_of_groups(facts, dimension):
        group = paths.parent(held.path)
        if held.path != but and scopes.owner.get(group) == group:
            yield held, files, scopes


def _place(
    facts: CatalogFacts,
    axis: AxisPlacement,
    held: Coordinate,
    files: NDArray[np.int64],
    *,
    alone: bool,
    spacing: str | float | None,
) -> AxisPlacement | None:
    """Return where the files of a group lie by its labels; None where these give no order."""
    group = paths.parent(held.path)
    try:
        how = {"alone": alone, "falling": axis.falls}
        mine = place_by(facts, axis.dimension, files, held, spacing=spacing, **how)
    except OverlapError as error:
        what = f"two files overlap along {axis.dimension!r} in {group}"
        made = _refusal(what, axis.dimension, group, alone=alone, **error.facts)
        raise OverlapError(made.what, do=made.do, fixes=made.fixes, **made.facts) from error
    except CombineError:
        if spacing is not None:
            raise
        return None
    order = np.argsort(axis.cell[files], kind="stable")
    steps, own = np.diff(axis.cell[files][order]), np.diff(mine.cell[files][order])
    wrong = np.flatnonzero(np.where(steps > 0, own <= 0, own != 0))
    if len(wrong):
        one, other = files[order[wrong[0] : wrong[0] + 2]].tolist()
        where = f"in {paths.parent(axis.coordinate)}" if axis.coordinate else "in the order given"
        raise _refusal(
            f"files hold the same steps along {axis.dimension!r} in one group and not in another"
            if 0 in (steps[wrong[0]], own[wrong[0]])
            else f"files follow one another along {axis.dimension!r} in {group} in another order"
            f" than {where}",
            axis.dimension,
            group,
            alone=alone,
            first=facts.files.url[one],
            first_steps=_call(axis, mine, held.path, one),
            other=facts.files.url[other],
            other_steps=_call(axis, mine, held.path, other),
        )
    return mine


def _call(axis: AxisPlacement, mine: AxisPlacement, path: str, file: int) -> dict[str, str]:
    """Return the first label of a file in both groups."""
    led = {axis.coordinate: str(axis.name(int(axis.cell[file])))} if axis.coordinate else {}
    return {**led, path: str(mine.name(int(mine.cell[file])))}


def _refusal(what: str, dimension: str, group: str, *, alone: bool, **facts: Any) -> CombineError:
    fixes: list[Fix] = []
    if alone:
        price = "files follow one another in the order given, in all groups, and all steps are kept"
        fixes = [fix(price, combine="nested", concat_dim=[dimension])]
    return CombineError(
        what,
        do=write_remedy(
            f"You can also build {group} on its own: ",
            write_code(
                f'source_group="{group}", group="{group}"',
                f"--source-group {group} --group {group}",
            ),
            ".",
        ),
        fixes=fixes,
        **facts,
    )


def describe_groups(cells: Placement) -> Iterator[str]:
    """Yield a line for each dimension of a group that some files lack."""
    axes = {axis.dimension: axis for axis in cells.axes}
    first: dict[AxisPlacement, tuple[str, str]] = {}  # of the groups that share it
    for key, mine in cells.of_groups.items():
        first.setdefault(mine, key)
    for mine, (group, dimension) in first.items():
        lacking = int(((mine.cell == NOWHERE) & (axes[dimension].cell != NOWHERE)).sum())
        if lacking:
            count = len(mine.cell)
            yield f"{lacking:,} of {count:,} files have no steps along {dimension!r} in {group}"


# -- duplicates ----------------------------------------------------------------------------------


def refuse_other_duplicates(facts: CatalogFacts, labels: Mapping[str, FileLabels]) -> None:
    """Refuse to leave out steps that files do not repeat in all groups.

    Args:
        facts: Of all files.
        labels: Those that say which steps repeat, by dimension.

    Raises:
        CombineError: The labels of a group say otherwise.
    """
    for name, mine in labels.items():
        one = pieces_of(len(facts.files), {name: mine})
        for held, files, _ in _own_coordinates(facts, name):
            own = labels_by(held, files, len(facts.files))
            if not _cut_alike(one, pieces_of(len(facts.files), {name: own}), files, name):
                raise _refusal(
                    f"files repeat other steps along {name!r} in {paths.parent(held.path)} than in"
                    " other groups, so no rule of duplicates holds for all of them",
                    name,
                    paths.parent(held.path),
                    alone=len(labels) == 1,
                    variable=held.path,
                )


def _cut_alike(one: FilePieces, other: FilePieces, files: NDArray[np.int64], name: str) -> bool:
    """Say whether files are cut at the same places, and the same pieces are equal."""
    mine, theirs = (each.take(np.flatnonzero(np.isin(each.file, files))) for each in (one, other))
    columns = [(mine.file, theirs.file)]
    if mine.skip and theirs.skip:
        columns += [(mine.skip[name], theirs.skip[name]), (mine.count[name], theirs.count[name])]
    if bool(mine.skip) != bool(theirs.skip) or not all(np.array_equal(*pair) for pair in columns):
        return False
    pairs = np.unique(np.stack([mine.cell[name], theirs.cell[name]]), axis=1)
    return all(len(np.unique(column)) == pairs.shape[1] for column in pairs)
