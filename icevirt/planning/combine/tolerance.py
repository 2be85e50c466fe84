"""Accept small differences between values that must be equal in all files.

Differences are absolute, in the variable's own units, of decoded values. The first file in the
order of the dataset is the one that others are compared with, and the one that is stored.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from icevirt.archive.facts import CatalogFacts
from icevirt.archive.schema import ArraySchema
from icevirt.errors import CombineError
from icevirt.planning.axes.coordinates import decoded
from icevirt.planning.combine.data_vars import variables_of
from icevirt.planning.combine.hints import covered_by
from icevirt.planning.combine.variables import CombinedVariable


def limits_of(facts: CatalogFacts, tolerance: Mapping[str, float]) -> dict[str, float]:
    """Return how far variables may differ, by path; others may not at all."""
    return covered_by(
        tolerance,
        (
            (path, schema.dimension_names, schema.attributes.values)
            for path, schema in variables_of(facts)
        ),
    )


def largest_difference(facts: CatalogFacts, member: CombinedVariable, limit: float) -> float:
    """Return how far the files' values differ from the first file's values.

    Raises:
        CombineError: By more than the limit, or the values were not kept by the scan.
    """
    codes = facts.arrays.digest.codes[member.rows]
    _, at = np.unique(codes, return_index=True)
    first = _values(facts, member, 0)
    largest = 0.0
    for other in sorted(at.tolist()):
        values = _values(facts, member, other)
        if values.shape != first.shape:
            raise _refusal(facts, member, other, "their lengths differ")
        difference = difference_of(first, values)
        if not difference <= limit:
            amount = "one is missing" if math.isnan(difference) else f"by up to {difference:g}"
            raise _refusal(facts, member, other, f"{amount}, more than the tolerance {limit:g}")
        largest = max(largest, difference)
    return largest


def describe_tolerance(
    facts: CatalogFacts, members: Sequence[CombinedVariable], tolerance: Mapping[str, float]
) -> Iterator[str]:
    """Yield a line for each variable whose values differ within the tolerance."""
    for member in members if tolerance else ():
        limit = tolerance.get(member.path)
        codes = facts.arrays.digest.codes[member.rows]
        if limit is None or member.axes or not (codes != codes[0]).any():
            continue
        largest = largest_difference(facts, member, limit)
        yield (
            f"{member.path} differs between files by up to {largest:g}, within the tolerance "
            f"{limit:g}; the values of {facts.url_of(member.rows[0])} are used"
        )


def _values(facts: CatalogFacts, member: CombinedVariable, at: int) -> NDArray[Any]:
    arrays, row = facts.arrays, int(member.rows[at])
    kept = arrays.labels.get(row)
    if kept is None:
        raise _refusal(facts, member, at, "its values are not numbers, or too many to compare")
    attributes = ArraySchema.loads(arrays.schema[row]).attributes
    return decoded(kept, attributes.values)


def difference_of(one: NDArray[Any], other: NDArray[Any]) -> float:
    """Return the largest difference; NaN where one is missing and the other is not."""
    if not one.size:
        return 0.0
    kind = np.float64 if "f" in (one.dtype.kind, other.dtype.kind) else np.longdouble
    both = np.isnan(one.astype(kind)) & np.isnan(other.astype(kind))
    with np.errstate(invalid="ignore"):  # infinity less itself
        apart = np.asarray(np.abs(one.astype(kind) - other.astype(kind)))  # also of one value
    apart[both | (one == other)] = 0
    return float(np.max(apart))


def _refusal(facts: CatalogFacts, member: CombinedVariable, at: int, why: str) -> CombineError:
    return CombineError(
        f"the values of {member.path} differ between files: {why}",
        do="Pass a larger tolerance if they should be equal, or build the files of each grid into "
        "a group of its own.",
        variable=member.path,
        first=facts.url_of(member.rows[0]),
        other=facts.url_of(member.rows[at]),
    )
