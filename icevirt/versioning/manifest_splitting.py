"""Decide how the manifests of an array are split.

Spec of the configuration: `manifest.splitting`. An array's rules accumulate: each axis takes the
first rule that says something about it, and an axis without one is not split.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from icevirt.errors import InvalidInputError
from icevirt.ids import ObjectId12
from icevirt.model import paths
from icevirt.model.snapshot import ArrayNode


@dataclass(frozen=True, slots=True)
class SplitGrid:
    """Cells into which an array's chunk grid is split: regular steps along each axis."""

    num_chunks: tuple[int, ...]
    steps: tuple[int, ...]  # chunks per cell; the last cell of an axis may be smaller

    @property
    def counts(self) -> tuple[int, ...]:
        """Number of cells along each axis."""
        return tuple(
            -(-chunks // step) for chunks, step in zip(self.num_chunks, self.steps, strict=True)
        )

    def cells_of(self, index: NDArray[np.integer]) -> NDArray[np.int64]:
        """Return the number of the cell of each chunk index, in C order of the cells."""
        if math.prod(self.counts) >= 1 << 62:
            raise InvalidInputError("the splitting creates too many manifests", steps=self.steps)
        cell = np.asarray(index, np.int64) // np.array(self.steps, np.int64)
        number = np.zeros(len(index), np.int64)
        for axis, count in enumerate(self.counts):
            number = number * count + cell[:, axis]
        return number

    def cells_under(self, low: Sequence[int], high: Sequence[int]) -> NDArray[np.int64]:
        """Return the numbers of the cells that a box, cut to the grid, meets."""
        ranges = [
            np.arange(max(first, 0) // step, -(-min(last, chunks) // step), dtype=np.int64)
            for first, last, step, chunks in zip(
                low, high, self.steps, self.num_chunks, strict=True
            )
        ]
        number = np.zeros(1, np.int64)
        for cells, count in zip(ranges, self.counts, strict=True):
            number = (number[:, None] * count + cells).reshape(-1)
        return number


def grid_of(
    rules: Sequence[Any] | None,
    *,
    path: str,
    num_chunks: tuple[int, ...],
    dimension_names: tuple[str | None, ...] | None,
) -> SplitGrid:
    """Apply the persisted ``split_sizes`` to an array. Raises ``InvalidInputError``."""
    names = dimension_names or (None,) * len(num_chunks)
    steps: list[int | None] = [None] * len(num_chunks)
    for condition, sizes in rules or ():
        if all(step is not None for step in steps) or not _matches(condition, path):
            continue
        for axis, name in enumerate(names):
            if steps[axis] is None:
                fitting = (size for size in sizes if _is_axis(size["condition"], axis, name))
                steps[axis] = next((max(1, int(size["num_chunks"])) for size in fitting), None)
    whole = [max(chunks, 1) for chunks in num_chunks]
    return SplitGrid(num_chunks, tuple(s or w for s, w in zip(steps, whole, strict=True)))


def along_arrays(nodes: Iterable[ArrayNode]) -> list[ObjectId12]:
    """Return the manifests of arrays, by how far along their arrays they begin.

    Manifests of several arrays that begin at the same fraction usually refer to the same files.
    """
    begins: dict[ObjectId12, float] = {}
    for node in nodes:
        for ref in node.manifests:
            parts = zip(ref.extents, node.num_chunks, strict=False)  # no extents: from the start
            along = max((low / max(count, 1) for (low, _), count in parts), default=0.0)
            begins[ref.object_id] = min(along, begins.get(ref.object_id, 1.0))
    return sorted(begins, key=lambda key: (begins[key], bytes(key)))


def _is_axis(condition: object, axis: int, name: str | None) -> bool:
    match condition:
        case "Any":
            return True
        case {"Axis": wanted}:
            return bool(wanted == axis)
        case {"DimensionName": pattern}:
            return name is not None and _search(str(pattern), name)
        case _:
            raise _unknown(condition)


def _matches(condition: object, path: str) -> bool:
    match condition:
        case "any_array":
            return True
        case {"path_matches": {"regex": pattern}}:
            return _search(str(pattern), path)
        case {"name_matches": {"regex": pattern}}:
            return _search(str(pattern), paths.name(path))
        case {"or": [*parts]}:
            return any(_matches(part, path) for part in parts)
        case {"and": [*parts]}:
            return all(_matches(part, path) for part in parts)
        case _:
            raise _unknown(condition)


def _search(pattern: str, text: str) -> bool:
    import re2  # linear in the text, like the regexes of the official client

    try:
        return re2.search(pattern, text) is not None
    except re2.error as error:
        raise InvalidInputError(
            "a splitting rule has an invalid regular expression",
            do="Correct `manifest.splitting` in the repository's config.",
            pattern=pattern,
        ) from error


def _unknown(condition: object) -> InvalidInputError:
    return InvalidInputError(
        "a splitting rule has an unknown condition",
        do="Correct `manifest.splitting` in the repository's config.",
        condition=condition,
    )
