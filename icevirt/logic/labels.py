"""The values of the coordinate that orders files, by file."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from icevirt.archive.attributes import Attributes
from icevirt.archive.facts import CatalogFacts, Labels
from icevirt.archive.schema import ArraySchema
from icevirt.logic.ordering import Runs, decoded, decoding
from icevirt.model import paths


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Coordinate:
    """The coordinate of a dimension in some files."""

    path: str
    values: Runs  # (files,) as they decode, offsets apart
    attributes: Attributes  # of the first file


def coordinate_of(
    facts: CatalogFacts, dimension: str, files: NDArray[np.integer]
) -> Coordinate | None:
    """Return the coordinate of the root group, else of the first group that has it.

    None where no group has numbers for it in all of these files.
    """
    arrays, labels = facts.arrays, facts.arrays.labels
    is_number = np.array([np.dtype(kind).kind in "iuf" for kind in labels.dtype.values], np.bool_)
    counted = np.flatnonzero(is_number[labels.dtype.codes]) if len(labels.row) else labels.row
    path_of = arrays.path.codes[labels.row[counted]]
    found: dict[str, NDArray[np.int64]] = {}
    for code in arrays.path.used(path_of).tolist() if len(files) else ():
        path = arrays.path.values[code]
        if paths.name(path) != dimension:
            continue
        places = counted[path_of == code]
        place = np.full(len(facts.files), -1, np.int64)
        place[arrays.file[labels.row[places]]] = places
        if (place[files] >= 0).all():
            found[path] = place[files]
    if not found:
        return None
    path = min(found, key=lambda path: (path.count("/"), path))
    schemas = arrays.schema.codes[labels.row[found[path]]]
    attributes = {
        code: ArraySchema.loads(arrays.schema.values[code]).attributes
        for code in arrays.schema.used(schemas).tolist()
    }
    return Coordinate(
        path=path,
        values=_decoded(labels, found[path], schemas, attributes),
        attributes=attributes[int(schemas[0])],
    )


def _decoded(
    labels: Labels,
    places: NDArray[np.int64],
    schemas: NDArray[np.integer],
    attributes: dict[int, Attributes],
) -> Runs:
    """Return the labels at some places as they decode; those that are stored alike at once."""
    ways = {code: decoding(each.values) for code, each in attributes.items()}
    number = {way: at for at, way in enumerate(dict.fromkeys(ways.values()))}
    way_of = np.zeros(max(ways) + 1, np.int64)
    for code, way in ways.items():
        way_of[code] = number[way]
    kind = labels.dtype.codes[places].astype(np.int64) * len(number) + way_of[schemas]
    pieces = []
    for each in np.unique(kind).tolist():
        mine = np.flatnonzero(kind == each)
        data, starts = labels.flat(places[mine])
        dtype = np.dtype(labels.dtype.values[each // len(number)])
        raw = data.view(dtype)
        code = int(schemas[mine[0]])
        pieces.append((mine, decoded(raw, attributes[code].values), starts // dtype.itemsize))
    return Runs.spread(pieces, len(places))
