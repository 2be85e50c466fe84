"""Raise the error for an array without the concatenated dimension whose values differ."""

from __future__ import annotations

from collections.abc import Sequence

from icevirt.archive.facts import CatalogFacts
from icevirt.errors import CombineError
from icevirt.model import paths
from icevirt.planning.axes.placement import AxisPlacement
from icevirt.planning.combine import data_vars
from icevirt.planning.combine.data_vars import DimensionRules

type Named = tuple[str, Sequence[str | None]]
"""Path and dimensions of an array."""


def lacking(
    facts: CatalogFacts,
    names: Sequence[str | None],
    rows: tuple[int, int],
    axes: Sequence[AxisPlacement],
) -> AxisPlacement | None:
    """Return the first axis along which two files lie apart and which an array does not have."""
    one, other = (int(facts.arrays.file[row]) for row in rows)
    return next(
        (a for a in axes if a.dimension not in names and a.cell[one] != a.cell[other]), None
    )


def refusal(
    facts: CatalogFacts,
    array: Named,
    rows: tuple[int, int],
    axis: AxisPlacement | None,
    rules: DimensionRules,
) -> CombineError:
    """Return the error for two files that hold other values of an array, or were not compared.

    Args:
        facts: Of all files.
        array: Its path and dimensions.
        rows: Of the array in the two files.
        axis: That it lacks; None where the files do not lie apart.
        rules: That give dimensions.
    """
    arrays, path = facts.arrays, array[0]
    digests = [arrays.digest[row] for row in rows]
    urls = [facts.files.url[int(arrays.file[row])] for row in rows]
    own = [path if arrays.own_path is None else arrays.own_path[row] for row in rows]
    lacks = "concatenated dimension" if axis is None else f"dimension {axis.dimension!r}"
    if not all(digests):
        return CombineError(
            f"variable {path} does not have the {lacks}, so its values must be equal in all"
            " files, but the scan did not compare them",
            do=_sentence(
                f"{how_given(array, axis, rules)}leave it out with drop_variables=[{path!r}]"
                f"{_named(axis)}"
            ),
            variable=path,
            first=urls[0],
            other=urls[1],
        )
    seen = None if facts.compare is None else facts.compare(*zip(urls, own, strict=True))
    return CombineError(
        f"variable {path} does not have the {lacks}, and its values differ between files",
        do=_sentence(
            f"{how_given(array, axis, rules)}leave it out with drop_variables=[{path!r}], pass a "
            "tolerance for its values, or build the files of each grid into a group of its own."
        ),
        variable=path,
        first=urls[0],
        other=urls[1],
        **({} if seen is None else seen),
    )


def _named(axis: AxisPlacement | None) -> str:
    if axis is None or not axis.is_new:
        return "."
    return ", or list in data_vars the variables that get the dimension; all others are compared."


def how_given(array: Named, axis: AxisPlacement | None, rules: DimensionRules) -> str:
    """Return how the array gets the dimension; the coordinate of another one cannot."""
    path, names = array
    if axis is None or tuple(names) == (paths.name(path),):
        return ""
    told = data_vars.remedy(rules, path, axis.dimension, is_new=axis.is_new)
    if axis.dimension not in rules.kept.dimensions.get(path, (axis.dimension,)):
        told += " and allow_changes=True (--allow-changes), because the last build made it without"
    return f"give it the dimension with {told}, "


def _sentence(text: str) -> str:
    return text[0].upper() + text[1:]
