"""Place partitions of a mesh: files of one partition hold the same elements, at other times.

Elements have no labels. What tells partitions apart is what files hold of the elements alone:
connectivities, positions, depths. Partitions follow one another in the order given. Where elements
number labelled steps, as sweeps of a radar number rays, no two files hold the same ones.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from icevirt.archive.facts import CatalogFacts
from icevirt.archive.schema import ArraySchema
from icevirt.model import paths
from icevirt.planning.axes.axis import AxisPlacement
from icevirt.planning.axes.placement import number_rows, place_by_order
from icevirt.planning.combine.options import CombineSpec
from icevirt.planning.meaning.local_indices import (
    dimensions_of_elements,
    indices_among,
    variables_with_indices,
)


def place_partitions(
    facts: CatalogFacts, spec: CombineSpec, existing: Sequence[str]
) -> dict[str, AxisPlacement]:
    """Return where files lie along dimensions of elements, where others place them too.

    Args:
        facts: Of the files.
        spec: Whether indices are to count elements of the dataset.
        existing: The dimensions along which files are placed, and that they have.
    """
    if not spec.options.rebase_indices:
        return {}
    declared = spec.options.index_of or {}
    variables = [*variables_with_indices(facts, {}, declared)]
    indices = indices_among(variables, declared)
    elements = dimensions_of_elements(variables, indices)
    labelled = {paths.name(path) for path in facts.arrays.path.values}
    mine = [name for name in existing if name in elements and name not in labelled]
    if not mine or len(mine) == len(existing):
        return {}
    others = {*existing} - {*mine}
    if any(not others.isdisjoint(each.numbers) for each in indices.values()):
        place = np.arange(len(facts.files))  # equal numbers count other steps in each file
    else:
        place = _number_partitions(facts, mine, others)
    return {name: place_by_order(facts, name, place) for name in mine}


def _number_partitions(
    facts: CatalogFacts, elements: Sequence[str], others: Iterable[str]
) -> NDArray[np.int64]:
    """Return the partition of each file, in the order of their first files."""
    arrays = facts.arrays
    names = [{*ArraySchema.loads(text).dimension_names} for text in arrays.schema.values]
    is_static = np.array(
        [not each.isdisjoint(elements) and each.isdisjoint(others) for each in names], np.bool_
    )
    columns = []
    for code in range(len(arrays.path.values)):
        rows = np.flatnonzero((arrays.path.codes == code) & is_static[arrays.schema.codes])
        for held in (arrays.shape, arrays.digest) if len(rows) else ():
            column = np.full(len(facts.files), -1, np.int64)
            column[arrays.file[rows]] = held.codes[rows]
            columns.append(column)
    number = number_rows(columns, len(facts.files))
    _, first, place = np.unique(number, return_index=True, return_inverse=True)
    rank = np.empty(len(first), np.int64)
    rank[np.argsort(first)] = np.arange(len(first))
    return rank[place.reshape(-1)]
