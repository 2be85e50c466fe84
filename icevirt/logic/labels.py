"""The values of the coordinate that orders files, by file."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from icevirt.archive.facts import CatalogFacts
from icevirt.archive.schema import ArraySchema
from icevirt.logic.ordering import decoded
from icevirt.model import paths


def labels_of(
    facts: CatalogFacts, dimension: str, files: NDArray[np.int64]
) -> Sequence[NDArray[np.generic]] | None:
    """Return the coordinate's values in files: of the root group's, else of the first group's.

    None where no group has numbers for it in all of these files.
    """
    arrays = facts.arrays
    attributes = {
        code: ArraySchema.loads(arrays.schema.values[code]).attributes.values
        for code in np.unique(arrays.schema.codes[np.array(list(arrays.labels), np.int64)]).tolist()
    }
    found: dict[str, dict[int, NDArray[np.generic]]] = {}
    for row, raw in arrays.labels.items():
        dtype = np.dtype(arrays.labels_dtype[row])
        path = arrays.path[row]
        if paths.name(path) == dimension and dtype.kind in "iuf":
            told = attributes[int(arrays.schema.codes[row])]
            values = decoded(np.frombuffer(raw, dtype), told)
            found.setdefault(path, {})[int(arrays.file[row])] = values
    wanted = files.tolist()
    complete = [path for path, labels in found.items() if labels.keys() >= set(wanted)]
    if not complete:
        return None
    chosen = found[min(complete, key=lambda path: (path.count("/"), path))]
    return [chosen[file] for file in wanted]
