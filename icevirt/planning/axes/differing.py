"""Infer dimensions to concatenate along: those along which files lie beside each other.

Labels that differ by rounding, or that belong to another grid, do not count: the
plan says what is wrong with these.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from icevirt.archive.facts import CatalogFacts, by_path
from icevirt.archive.facts import distinct as distinct_codes
from icevirt.archive.schema import ArraySchema
from icevirt.model import paths
from icevirt.model.attributes import Attributes
from icevirt.planning.axes.coordinates import decode
from icevirt.planning.measures import are_equal, convert, factor_between
from icevirt.planning.times.units import says_since

EVERY = "*"
"""In the place of a name: all coordinates of dimensions."""

ROUNDING = 1e-3
"""Of the distance between labels: what differs by less is the same grid."""

_PAIRS = 16  # of files whose labels are read

type ComparedLabels = tuple[bytes, str, Mapping[str, Any]]
"""Labels of a dimension: their bytes, their data type, and attributes that say what they mean."""

type LabelsByPath = Mapping[str, ComparedLabels]
"""Labels of the dimensions of a file that have some, in the order of the file.

By path, because groups may have dimensions of one name.
"""


def comparable(labels: bytes, dtype: str, attributes: Attributes) -> ComparedLabels:
    """Return labels as `differing` compares them, with what a time's numbers mean."""
    names = ("units", "calendar", "scale_factor", "add_offset", "_Unsigned")
    known = {name: attributes.values.get(name) for name in names}
    return labels, dtype, {name: value for name, value in known.items() if value is not None}


def differing(
    first: LabelsByPath, last: LabelsByPath, tolerance: Mapping[str, float]
) -> tuple[str, ...]:
    """Return the dimensions along which two files lie beside each other.

    What is inferred must hold for all files, or the plan is refused: it places every file by its
    coordinates, and compares what lacks a dimension.

    Args:
        first: Labels of a file.
        last: Of the other one.
        tolerance: How far labels may differ that are the same, by name or for all.
    """
    both = [(paths.name(path), first[path], last[path]) for path in first if path in last]
    found = (
        name
        for name, one, other in both
        if one != other and _apart(one, other, tolerance.get(name, tolerance.get(EVERY, 0.0)))
    )
    return tuple(dict.fromkeys(found))


def of_many(found: Sequence[LabelsByPath], tolerance: Mapping[str, float]) -> tuple[str, ...]:
    """Return the dimensions along which any file lies beside the first that has them."""
    distinct: dict[tuple[Any, ...], LabelsByPath] = {}
    for each in found:
        key = tuple((path, raw, kind, repr(known)) for path, (raw, kind, known) in each.items())
        distinct.setdefault(key, each)
    firsts: dict[str, ComparedLabels] = {}
    names: dict[str, None] = {}
    for each in distinct.values():
        names |= dict.fromkeys(differing(firsts, each, tolerance))
        firsts = {**each, **firsts}
    return tuple(names)


def dimension_apart(
    facts: CatalogFacts,
    group: NDArray[np.int64],
    files: NDArray[np.int64],
    dimensions: Sequence[str],
) -> tuple[str, int, int] | None:
    """Return a further dimension along which files of one group lie beside each other.

    Such files are tiles of one step, and none repeats the other.

    Args:
        facts: Of all files.
        group: (n,) The group of each of some files.
        files: (n,) Rows of the files.
        dimensions: Along which files are concatenated already.

    Returns:
        The name, and the rows of two files; None where there is no such dimension.
    """
    arrays = facts.arrays
    if facts.values is None:
        return None
    own = [ArraySchema.loads(text).dimension_names for text in arrays.schema.values]
    pairs = [each.tolist() for each in distinct_codes((arrays.path, arrays.schema))]
    forms = {(arrays.path.values[code], own[schema]) for code, schema in zip(*pairs, strict=True)}
    for path, every in by_path(facts):
        name = paths.name(path)
        if name in dimensions or (path, (name,)) not in forms:
            continue
        mine = np.array([names == (name,) for names in own])
        rows = every[mine[arrays.schema.codes[every]]]
        row_of = np.full(len(facts.files), -1, np.int64)
        row_of[arrays.file[rows]] = rows
        row = row_of[files]
        there = np.flatnonzero(row >= 0)
        _, first = np.unique(group[there], return_index=True)
        begin = np.zeros(int(group.max(initial=0)) + 1, np.int64)
        begin[group[there][first]] = row[there][first]
        one, other = begin[group[there]], row[there]
        digests = arrays.digest.codes[one], arrays.digest.codes[other]
        unlike = np.flatnonzero(digests[0] != digests[1])
        both = np.stack([each[unlike] for each in digests], axis=1)
        for at in unlike[np.sort(np.unique(both, axis=0, return_index=True)[1])[:_PAIRS]].tolist():
            pair = int(one[at]), int(other[at])
            labels = [_labels_of(facts, each) for each in pair]
            if None not in labels and _apart(labels[0], labels[1], 0.0):  # type: ignore[arg-type]
                return name, int(arrays.file[pair[0]]), int(arrays.file[pair[1]])
    return None


def _labels_of(facts: CatalogFacts, row: int) -> ComparedLabels | None:
    arrays = facts.arrays
    path = arrays.path if arrays.own_path is None else arrays.own_path
    held = None if facts.values is None else facts.values(facts.url_of(row), path[row])
    if held is None or held.dtype.kind not in "iuf":
        return None
    return comparable(
        held.tobytes(), held.dtype.str, ArraySchema.loads(arrays.schema[row]).attributes
    )


def _apart(one: ComparedLabels, other: ComparedLabels, limit: float) -> bool:
    """Say whether labels lie beside each other, or follow one another with some in both."""
    if any(says_since(each[2].get("units")) for each in (one, other)):
        return True  # of times, whatever they are: runs may overlap in any way
    left, right = (_numbers(each) for each in (one, other))
    if left is None or right is None:
        return True  # texts
    if not (np.isfinite(left).all() and np.isfinite(right).all()):
        return True  # the plan says what is wrong with these
    left, right = _in_one_unit((left, one[2].get("units")), (right, other[2].get("units")))
    if len(left) == len(right) and within_rounding(left, right, limit):
        return False
    if not len(left) or not len(right) or left.min() > right.max() or right.min() > left.max():
        return True
    low, high = max(left.min(), right.min()), min(left.max(), right.max())
    mine, theirs = (each[(each >= low) & (each <= high)] for each in (left, right))
    is_inside = len(mine) == len(left) or len(theirs) == len(right)
    return not is_inside and np.array_equal(mine, theirs)


def _in_one_unit(
    one: tuple[NDArray[Any], Any], other: tuple[NDArray[Any], Any]
) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return two rows of numbers with their units as numbers of the second one."""
    factor = factor_between(one[1], other[1])
    if factor in (None, 1):
        return one[0], other[0]
    left, right = (each[0].astype(np.float64) for each in (one, other))
    return (right if are_equal(left, right, factor) else convert(left, factor)), right


def within_rounding(left: NDArray[Any], right: NDArray[Any], limit: float = 0.0) -> bool:
    """Say whether two rows of labels are one, as nearly as numbers are written."""
    if are_integers(left, right) and not limit:
        return np.array_equal(left, right)  # doubles do not tell all of them apart
    with np.errstate(invalid="ignore"):
        apart = np.abs(left - right)
    if not np.isfinite(apart).all():
        return False
    return bool((apart <= max(limit, rounding_of(left, right))).all())


def rounding_of(left: NDArray[Any], right: NDArray[Any]) -> float:
    """Return by how much labels of one grid may differ.

    Integers are not rounded. One label says nothing about the distance of labels: it is rounded if
    it is a number of few digits in one file, and the nearest float of 32 bits in the other.
    """
    if are_integers(left, right) or not len(left):
        return 0.0
    if len(left) > 1:
        return ROUNDING * float(np.abs(np.diff(left)).min())
    one, other = float(left[0]), float(right[0])
    is_rounded = _through_32_bits(one) == other or _through_32_bits(other) == one
    return abs(one - other) if is_rounded else 0.0


def are_integers(*labels: NDArray[Any]) -> bool:
    """Say whether all labels are integers, which have no rounding."""
    return all(each.dtype.kind in "iu" for each in labels)


def _through_32_bits(number: float) -> float:
    """Return what a number was before it became a float of 32 bits; itself where it is none."""
    with np.errstate(over="ignore"):
        short = np.float32(number)
    return float(str(short)) if float(short) == number else number


def _numbers(labels: ComparedLabels) -> NDArray[Any] | None:
    raw, dtype, attributes = labels
    if np.dtype(dtype).kind not in "iuf":
        return None
    values = decode(np.frombuffer(raw, dtype), attributes)
    offset = attributes.get("add_offset")
    if isinstance(offset, int | float):
        values = np.add(values, offset)
    return values if are_integers(values) else values.astype(np.float64)
