"""Accept small differences between values that must be equal in all files.

Differences are absolute, in the variable's own units, of decoded values. The first file in the
order of the dataset is the one that others are compared with, and the one that is stored.
Tools that convert coordinates to other types and back, or compute them again, change their last
digits. The error about the first of them proposes one tolerance for all of them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from icevirt.archive.facts import CatalogFacts, describe_variables
from icevirt.archive.roles import coordinates_of
from icevirt.archive.schema import ArraySchema
from icevirt.errors import CombineError, Fix
from icevirt.model import paths
from icevirt.planning.axes.axis import CombinedVariable
from icevirt.planning.axes.coordinates import decode
from icevirt.planning.axes.differing import ROUNDING, are_integers, rounding_of
from icevirt.planning.combine.options import CombineSpec
from icevirt.planning.partial.mismatch import is_about_storage
from icevirt.planning.remedies import fix
from icevirt.planning.times.units import bounds_of


def largest_difference(facts: CatalogFacts, member: CombinedVariable, limit: float) -> float:
    """Return how far the files' values differ from the first file's values.

    Raises:
        CombineError: By more than the limit, or the values were not kept by the scan.
    """
    codes = facts.arrays.digest.codes[member.rows]
    _, at = np.unique(codes, return_index=True)
    first = _read_values(facts, member, 0)
    largest = 0.0
    for other in sorted(at.tolist()):
        values = _read_values(facts, member, other)
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


def _read_values(facts: CatalogFacts, member: CombinedVariable, at: int) -> NDArray[Any]:
    arrays, row = facts.arrays, int(member.rows[at])
    kept = arrays.labels.get(row)
    if kept is None:
        raise _refusal(facts, member, at, "its values are not numbers, or too many to compare")
    attributes = ArraySchema.loads(arrays.schema[row]).attributes
    return decode(kept, attributes.values)


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


_READ = 16  # of the different versions of a variable
_OF_DATA = 1e-5  # of the largest value, for what is no coordinate
_UNREAD = 10  # times, where more versions exist than are read


def fixes_of(
    facts: CatalogFacts, path: str, concat_dim: Sequence[str], given: dict[str, float]
) -> tuple[Fix, ...]:
    """Return how a variable that differs, and all coordinates that do, become equal; none may."""
    if facts.values is None:
        return ()
    variables = [*describe_variables(facts)]
    owners = {
        bounds: each for each, _, attributes in variables for bounds in bounds_of(each, attributes)
    }
    coordinates = coordinates_of(variables)
    found: dict[str, tuple[float, float]] = {}  # by name: difference, limit
    for each, rows in _find_unequal(facts, concat_dim):
        if each != path and each not in coordinates:
            continue
        difference = _measure(facts, rows, is_coordinate=each in coordinates)
        if difference is None:
            return ()
        name = paths.name(owners.get(each, each))
        limit = _round_up(difference * (_UNREAD if _count_versions(facts, rows) > _READ else 1))
        before = found.get(name, (0.0, 0.0))
        found[name] = max(before[0], difference), max(before[1], limit)
    if not found:
        return ()
    largest = max(difference for difference, _ in found.values())
    limits = {**given, **{name: limit for name, (_, limit) in found.items()}}
    price = f"they differ by up to {largest:.2g}; the first file's values are stored"
    return (fix(price, tolerance=limits),)


def offer_tolerance(error: CombineError, facts: CatalogFacts, spec: CombineSpec) -> None:
    """Let an error about types of coordinates propose the tolerance within which they are equal."""
    path = error.facts.get("variable")
    if is_about_storage(error) and isinstance(path, str):
        rounding = fixes_of(facts, path, spec.concat_dim, spec.tolerance)
        error.fixes = (*rounding, *error.fixes)


def _find_unequal(
    facts: CatalogFacts, concat_dim: Sequence[str]
) -> Iterator[tuple[str, NDArray[np.int64]]]:
    arrays = facts.arrays
    names = [ArraySchema.loads(text).dimension_names for text in arrays.schema.values]
    static = np.array([{*each}.isdisjoint(concat_dim) for each in names])[arrays.schema.codes]
    for code, path in enumerate(arrays.path.values):
        rows = np.flatnonzero(static & (arrays.path.codes == code))
        if len(rows) and _count_versions(facts, rows) > 1:
            yield path, rows


def _count_versions(facts: CatalogFacts, rows: NDArray[np.int64]) -> int:
    return len(facts.arrays.digest.find_used(facts.arrays.digest.codes[rows]))


def _measure(facts: CatalogFacts, rows: NDArray[np.int64], *, is_coordinate: bool) -> float | None:
    """Return how far values differ from the first file's; None where it is no rounding."""
    digests = facts.arrays.digest.codes[rows]
    kept = rows[np.sort(np.unique(digests, return_index=True)[1])[:_READ]]
    first, *others = (_decode_values(facts, row) for row in kept.tolist())
    largest = 0.0
    for other in others:
        if first is None or other is None or first.shape != other.shape:
            return None
        if are_integers(first, other):
            limit = 0.0
        elif is_coordinate:
            limit = _limit_of_grid(first, other)
        else:
            limit = _OF_DATA * float(np.nanmax(abs(first)))
        difference = difference_of(first, other)
        if not difference <= limit:
            return None
        largest = max(largest, difference)
    return largest


def _decode_values(facts: CatalogFacts, row: int) -> NDArray[Any] | None:
    assert facts.values is not None
    arrays = facts.arrays
    values = facts.values(*facts.place_of(row))
    if values is None or values.dtype.kind not in "iuf" or not values.size:
        return None
    meant = decode(values, ArraySchema.loads(arrays.schema[row]).attributes.values)
    return meant if are_integers(meant) else meant.astype(np.float64)


def _limit_of_grid(one: NDArray[Any], other: NDArray[Any]) -> float:
    """Return by how much coordinates of one grid may differ: a part of the distance of cells."""
    found = []
    for axis in range(one.ndim):
        steps = np.abs(np.diff(one, axis=axis))
        if (steps := steps[steps > 0]).size:
            found.append(ROUNDING * float(np.median(steps)))
    return max(found) if found else rounding_of(one.reshape(-1)[:1], other.reshape(-1)[:1])


def _round_up(value: float) -> float:
    """Return a number of one digit that is not less."""
    exponent = math.floor(math.log10(value)) if value > 0 else 0
    digit = math.ceil(value / 10**exponent * (1 + 1e-9))
    return float(f"{digit}e{exponent}")
