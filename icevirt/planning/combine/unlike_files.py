"""Find all that differs between files where it must not: values of arrays, and lengths.

A refusal names one variable. What it proposes solves all: every variable that has to get a
dimension, and every dimension that has to be padded.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from icevirt.archive.facts import CatalogFacts
from icevirt.archive.schema import ArraySchema
from icevirt.errors import CombineError, Fix
from icevirt.model import paths
from icevirt.planning.axes.placement import AxisPlacement, Placement
from icevirt.planning.combine.data_vars import Unequal, fixes_of, refusal
from icevirt.planning.combine.dimension_lengths import FullLengths, distinct
from icevirt.planning.combine.hints import limits_of
from icevirt.planning.combine.options import CombineSpec
from icevirt.planning.remedies import fix, list_names, of_arguments, scan_fix

_SHOWN = 3  # names in a price


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Array:
    """One array of all files."""

    path: str
    names: tuple[str | None, ...]
    shapes: NDArray[np.int64]  # (m, ndim) that occur
    is_equal: bool  # in all files, as far as the scan compared values

    @property
    def uneven(self) -> tuple[str, ...]:
        """The dimensions whose lengths differ."""
        unlike = (self.shapes != self.shapes[:1]).any(axis=0)
        return tuple(
            name for name, is_uneven in zip(self.names, unlike, strict=True) if is_uneven and name
        )


def unequal_arrays(facts: CatalogFacts, cells: Placement, spec: CombineSpec) -> list[Unequal]:
    """Return the arrays without a concatenated dimension that are not known to be equal."""
    placed = {axis.dimension for axis in cells.axes}
    texts = FullLengths.of(facts, ()).texts
    limits = limits_of(facts, spec.tolerance)
    found = []
    for array in _list_arrays(facts):
        if array.is_equal or not placed.isdisjoint(array.names):
            continue
        if not array.uneven and array.path in limits:
            continue
        rows, axis = _find_pair(facts, cells.axes, array.path)
        named = array.path, array.names
        uneven = tuple(name for name in array.uneven if name not in texts)
        found.append(Unequal(array=named, rows=rows, axis=axis, uneven=uneven))
    return found


def unequal_refusal(facts: CatalogFacts, cells: Placement, spec: CombineSpec) -> CombineError:
    """Return the error for arrays that must be equal in all files and are not."""
    found = unequal_arrays(facts, cells, spec)
    error = refusal(facts, found, spec.dimension_rules)
    if not (ragged := _follow_ragged(facts, found, spec)):
        return error
    fixes = [ragged, *error.fixes]
    return CombineError(error.what, do=error.do, fixes=fixes, **error.facts)


def _follow_ragged(facts: CatalogFacts, found: Sequence[Unequal], spec: CombineSpec) -> Fix | None:
    """Return the fix for contiguous ragged arrays: an attribute of counts names their dimension."""
    texts = facts.arrays.schema.values
    said = {ArraySchema.loads(t).attributes.values.get("sample_dimension") for t in texts}
    names = list(dict.fromkeys(n for each in found for n in each.array[1] if n and n in said))
    if not names:
        return None
    return fix(
        f"variables along {list_names(names, _SHOWN)} follow one another, as in ragged arrays",
        concat_dim=[*spec.concat_dim, *names],
    )


def ways_to_fit(
    facts: CatalogFacts, cells: Placement, spec: CombineSpec, variable: str
) -> list[Fix]:
    """Return how arrays whose lengths differ, one of them ``variable``, become one array each."""
    placed = {axis.dimension for axis in cells.axes}
    settled = {*placed, *spec.pad, *FullLengths.of(facts, ()).texts}
    uneven: dict[str, None] = {}
    for array in _list_arrays(facts):
        if not placed.isdisjoint(array.names):
            uneven |= dict.fromkeys(name for name in array.uneven if name not in settled)
    fixes = []
    unequal = unequal_arrays(facts, cells, spec)
    given = [each for each in unequal if each.axis is not None and not each.is_coordinate]
    pad = [*spec.pad, *uneven]
    if uneven:
        price = f"along {list_names([*uneven], _SHOWN)}, what shorter files lack reads as missing"
        made = fix(price, pad=pad)
        if given:
            also = fixes_of(given, spec.dimension_rules)[0]
            options = {**also.arguments["combine_options"]}
            options["pad"] = [*pad, *(n for n in options.get("pad", ()) if n not in pad)]
            made = of_arguments(
                {**also.arguments, "combine_options": options}, f"{price}; {also.price}"
            )
        fixes.append(made)
    elif given:
        fixes.append(fixes_of(given, spec.dimension_rules)[0])
    if (ragged := _follow_ragged(facts, unequal, spec)) is not None:
        fixes.insert(0, ragged)
    return [*fixes, scan_fix(f"{paths.name(variable)} is left out", drop_variables=[variable])]


def _list_arrays(facts: CatalogFacts) -> Iterator[_Array]:
    arrays = facts.arrays
    columns = (arrays.path, arrays.schema, arrays.shape, arrays.digest)
    held: dict[int, list[tuple[int, int, int]]] = {}
    for path, *kind in zip(*(each.tolist() for each in distinct(columns)), strict=True):
        held.setdefault(path, []).append((kind[0], kind[1], kind[2]))
    alone = arrays.path.counts() < 2
    for path, found in held.items():
        names = ArraySchema.loads(arrays.schema.values[found[0][0]]).dimension_names
        shapes = [json.loads(arrays.shape.values[shape]) for _, shape, _ in found]
        if any(len(shape) != len(names) for shape in shapes):
            continue  # refused for their dimensions
        used = {digest for _, _, digest in found}
        is_compared = all(arrays.digest.values[digest] for digest in used)
        yield _Array(
            path=arrays.path.values[path],
            names=names,
            shapes=np.array(shapes, np.int64).reshape(len(shapes), len(names)),
            is_equal=bool(alone[path]) or (len(used) == 1 and is_compared),
        )


def _find_pair(
    facts: CatalogFacts, axes: Sequence[AxisPlacement], path: str
) -> tuple[tuple[int, int], AxisPlacement | None]:
    """Return two rows of an array that differ, and an axis along which their files lie apart."""
    arrays = facts.arrays
    rows = np.flatnonzero(arrays.path.codes == arrays.path.values.index(path))
    unlike = arrays.digest.codes[rows] != arrays.digest.codes[rows[0]]
    unlike |= arrays.shape.codes[rows] != arrays.shape.codes[rows[0]]
    if not unlike.any():  # nothing was compared
        unlike[1:] = True
    files = arrays.file[rows]
    for axis in axes:
        apart = unlike & (axis.cell[files] != axis.cell[files[0]])
        if apart.any():
            return (int(rows[0]), int(rows[np.argmax(apart)])), axis
    return (int(rows[0]), int(rows[np.argmax(unlike)])), None
