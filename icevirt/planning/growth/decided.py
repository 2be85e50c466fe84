"""State what a plan decided about arrays and groups, so that a later plan can be held against it.

Two plans whose statements are equal make the same dataset, but for its length along the dimension
that grows. Chunks of values that a build stores are cut anew as they become more, so how they are
cut and whether they are compressed is no decision.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from icevirt.archive.facts import ArrayColumns
from icevirt.archive.plan import ArrayMode, BuildPlan, PlannedArray
from icevirt.model.json import JSON
from icevirt.planning.combine.plan_variable import STORED_CODEC

_MOST_KINDS = 1 << 24  # combinations of path and schema that are looked at
_OTHERS = 6  # files beside the first and the last, one for each other schema


class Growing(StrEnum):
    """How an array becomes longer."""

    never = "never"  # it is the same in all files
    by_references = "references"
    by_values = "values"  # that are stored


@dataclass(frozen=True, slots=True, kw_only=True)
class Decided:
    """What a plan decided about one array."""

    kind: Growing
    digest: str  # of its metadata, but for what growth changes
    shape: tuple[int, ...]

    def dumps(self) -> list[JSON]:
        """Return it as JSON."""
        return [self.kind.value, self.digest, list(self.shape)]

    @classmethod
    def loads(cls, raw: Any) -> Decided:
        """Undo `dumps`. Raises ``ValueError``, ``TypeError``."""
        kind, digest, shape = raw
        return cls(kind=Growing(kind), digest=str(digest), shape=tuple(map(int, shape)))


def decided_of(array: PlannedArray) -> Decided:
    """Return what was decided about an array."""
    kind = kind_of(array)
    document = json.loads(array.zarr_json)
    document.pop("shape")
    if kind is Growing.by_values:
        document.pop("chunk_grid")
        document["codecs"] = [each for each in document["codecs"] if each != STORED_CODEC]
    return Decided(kind=kind, digest=_digest(document), shape=array.shape)


def kind_of(array: PlannedArray) -> Growing:
    """Return how an array becomes longer."""
    if array.mode is ArrayMode.once:
        return Growing.never
    if array.mode is not ArrayMode.concat or (array.hybrid is None and bool(array.whole.all())):
        return Growing.by_values
    return Growing.by_references


def groups_decided(groups: Mapping[str, bytes]) -> dict[str, str]:
    """Return digests of the metadata of groups, by path."""
    return {path: _digest(json.loads(raw)) for path, raw in groups.items()}


def _digest(document: Any) -> str:
    text = json.dumps(document, sort_keys=True)
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()


def files_at_ends(plan: BuildPlan) -> NDArray[np.int64] | None:
    """Return the files at both ends of the dimension that grows; None where none can grow.

    Returns:
        Rows of the plan's files, ascending.
    """
    growing = [each for each in plan.arrays if each.mode is not ArrayMode.once]
    if plan.eras is not None or len(plan.concat_dim) != 1 or not growing:
        return None
    ends = [np.array([0, len(plan.files) - 1], np.int64)]
    for array in growing:
        if array.mode is ArrayMode.given:
            continue
        if len(array.axes) != 1 or not len(array.files):
            return None
        begin = array.starts[:, 0]
        last = begin + array.lengths[:, 0] == array.shape[array.axes[0]]
        ends.append(array.files[(begin == 0) | last].astype(np.int64))
    return np.unique(np.concatenate(ends))


def files_of_schemas(arrays: ArrayColumns) -> NDArray[np.int64]:
    """Return files (rows of the facts) that show how arrays are described otherwise than first.

    They spare plans that differ for want of a file; no decision depends on them.
    """
    schemas = len(arrays.schema.values)
    kinds = schemas * len(arrays.path.values)
    if not len(arrays.file) or kinds > _MOST_KINDS or schemas == len(arrays.path.values):
        return np.zeros(0, np.int64)
    key = arrays.path.codes.astype(np.int64) * schemas + arrays.schema.codes
    first = np.full(kinds, -1, np.int64)
    first[key[::-1]] = arrays.file[::-1]
    found = np.unique(first[first >= 0])
    return found[:_OTHERS]
