"""Say with which labels dimensions begin and end, as people write them."""

from __future__ import annotations

import numpy as np

from icevirt.archive.facts import CatalogFacts
from icevirt.archive.plan import BuildPlan
from icevirt.archive.schema import ArraySchema
from icevirt.model import paths
from icevirt.model.strings import Strings
from icevirt.planning.axes.dates import written
from icevirt.planning.axes.file_order import decoded


def labels_of_files(
    facts: CatalogFacts, dimension: str, files: set[int]
) -> dict[int, tuple[str, str]]:
    """Return the first and the last label of files, as people write them."""
    arrays, labels = facts.arrays, facts.arrays.labels
    found: dict[int, tuple[str, str]] = {}
    wanted = np.zeros(len(facts.files), np.bool_)
    wanted[list(files)] = True
    for place in np.flatnonzero(wanted[arrays.file[labels.row]]).tolist():
        row, raw = int(labels.row[place]), labels.at(place)
        if paths.name(arrays.path[row]) == dimension and len(raw):
            attributes = ArraySchema.loads(arrays.schema[row]).attributes
            ends = written(decoded(raw, attributes.values)[[0, -1]], attributes)
            found.setdefault(int(arrays.file[row]), (ends[0], ends[1]))
    return found


def labels_at_ends(plan: BuildPlan, facts: CatalogFacts) -> dict[str, list[str]]:
    """Return the first and the last label along each dimension whose coordinate files hold."""
    found: dict[str, list[str]] = {}
    for array in plan.arrays:
        name = paths.name(array.path)
        if name not in plan.concat_dim or name in found or len(array.axes) != 1:
            continue
        if not len(array.files):
            continue
        starts = array.starts[:, 0]
        first, last = (int(array.files[at]) for at in (np.argmin(starts), np.argmax(starts)))
        rows = [_row(facts, plan.files.url[at]) for at in (first, last)]
        labels = labels_of_files(facts, name, set(rows))
        if all(row in labels for row in rows):
            found[name] = [labels[rows[0]][0], labels[rows[1]][1]]
    return found


def _row(facts: CatalogFacts, url: str) -> int:
    same = np.flatnonzero(facts.files.url.hashes() == Strings.of([url]).hashes()[0])
    return next(int(row) for row in same if facts.files.url[int(row)] == url)
