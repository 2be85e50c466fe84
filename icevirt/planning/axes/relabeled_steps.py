"""Give files with one step along a dimension other labels than their coordinate has, or has not.

Archives hold files that all say ``time = 0``, or that have a time without its values; their names
know better. It is what ``preprocess=lambda ds: ds.assign_coords(time=[...])`` does in xarray.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from icevirt.archive.facts import CatalogFacts
from icevirt.archive.schema import ArraySchema
from icevirt.errors import CombineError
from icevirt.model import paths
from icevirt.planning.axes.new_dimensions import Labels, NewDimension, labelled, variable_of
from icevirt.planning.axes.placement import NOWHERE, files_along
from icevirt.planning.groups.dimension_scopes import lengths_along
from icevirt.planning.remedies import scan_fix
from icevirt.planning.times.units import bounds_of


def relabeled(
    facts: CatalogFacts, name: str, labels: Labels, said: Mapping[str, Any]
) -> tuple[CatalogFacts, NewDimension]:
    """Return the facts without the coordinate of a dimension, and the labels in its place.

    Raises:
        CombineError: A file has more steps than its one label, its coordinate has bounds, or it
            does not tell its label.
        InvalidInputError: There are too few or too many labels, or a pattern is not valid.
    """
    if variable_of(labels) is not None:
        raise CombineError(
            "labels of a variable need a new dimension, but the files already have this one",
            do="Name a new dimension with concat_dim (--concat-dim), or take the labels from the"
            " names of the files.",
            concat_dim=name,
        )
    _refuse_several(facts, name)
    without = _without_coordinate(facts, name)
    made = labelled(facts, name, labels, said)
    there = files_along(without, name)
    used, cell = np.unique(made.cell[there], return_inverse=True)
    cells = np.full(len(facts.files), NOWHERE, np.int64)
    cells[there] = cell
    values = None if made.values is None else made.values[used]
    return without, replace(made, cell=cells, count=len(used), values=values, is_new=False)


def _refuse_several(facts: CatalogFacts, name: str) -> None:
    steps = lengths_along(facts.arrays, name)
    several = np.flatnonzero(steps.astype(np.int64) > 1)
    if len(several):
        row = int(several[0])
        raise CombineError(
            f"a label stands for one step, but a file has {steps[row]} steps along {name!r}",
            do="Name a new dimension with concat_dim (--concat-dim), or omit its labels.",
            file=facts.url_of(row),
            concat_dim=name,
        )


def _without_coordinate(facts: CatalogFacts, name: str) -> CatalogFacts:
    """Leave out the coordinate that labels replace.

    Raises:
        CombineError: It has bounds, which labels have not.
    """
    arrays = facts.arrays
    gone = {
        code: path
        for code, path in enumerate(arrays.path.values)
        if paths.name(path) == name and paths.parent(path) == paths.ROOT
    }
    for code, path in gone.items():
        for schema in arrays.schema.used(arrays.schema.codes[arrays.path.codes == code]).tolist():
            attributes = ArraySchema.loads(arrays.schema.values[schema]).attributes.values
            for bounds in bounds_of(path, attributes):
                if bounds in arrays.path.values:
                    raise CombineError(
                        f"labels would replace {path}, which has the bounds {bounds}",
                        fixes=[scan_fix(f"{bounds} is left out", drop_variables=[bounds])],
                        concat_dim=name,
                        variable=path,
                    )
    kept = ~np.isin(arrays.path.codes, [*gone])
    return replace(facts, arrays=arrays.take(np.flatnonzero(kept)))
