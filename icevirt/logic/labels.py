"""The values of the coordinate that orders files, by file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from icevirt.archive.attributes import Attributes
from icevirt.archive.facts import CatalogFacts
from icevirt.archive.schema import ArraySchema
from icevirt.logic.ordering import decoded
from icevirt.model import paths


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Coordinate:
    """The coordinate of a dimension in some files."""

    path: str
    values: Sequence[NDArray[np.generic]]  # (files,) as they decode, offsets apart
    attributes: Attributes  # of the first file


def coordinate_of(
    facts: CatalogFacts, dimension: str, files: NDArray[np.int64]
) -> Coordinate | None:
    """Return the coordinate of the root group, else of the first group that has it.

    None where no group has numbers for it in all of these files.
    """
    arrays = facts.arrays
    attributes = {
        code: ArraySchema.loads(arrays.schema.values[code]).attributes
        for code in np.unique(arrays.schema.codes[np.array(list(arrays.labels), np.int64)]).tolist()
    }
    found: dict[str, dict[int, int]] = {}
    for row in arrays.labels:
        path = arrays.path[row]
        if paths.name(path) == dimension and np.dtype(arrays.labels_dtype[row]).kind in "iuf":
            found.setdefault(path, {})[int(arrays.file[row])] = row
    wanted = files.tolist()
    complete = [path for path, rows in found.items() if rows.keys() >= set(wanted)]
    if not complete or not wanted:
        return None
    path = min(complete, key=lambda path: (path.count("/"), path))
    rows = [found[path][file] for file in wanted]
    return Coordinate(
        path=path,
        values=[
            decoded(
                np.frombuffer(arrays.labels[row], np.dtype(arrays.labels_dtype[row])),
                attributes[int(arrays.schema.codes[row])].values,
            )
            for row in rows
        ],
        attributes=attributes[int(arrays.schema.codes[rows[0]])],
    )
