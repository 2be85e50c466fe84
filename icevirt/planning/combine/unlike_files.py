"""Find what differs between files where it must not (values of arrays, lengths), and refuse it.

A refusal names one variable. What it proposes solves all: every variable that has to get a
dimension, and every dimension that has to be padded.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from icevirt.archive.facts import CatalogFacts, describe_variables, distinct
from icevirt.archive.schema import ArraySchema
from icevirt.errors import CombineError, Fix, OverlapError
from icevirt.model import paths
from icevirt.planning.axes.axis import AxisPlacement, Placement
from icevirt.planning.axes.dimension_scopes import AMBIGUOUS, DimensionScopes
from icevirt.planning.combine.data_vars import ALL, MINIMAL, WORDS, DimensionRules, Named, find_rule
from icevirt.planning.combine.dimension_lengths import FullLengths
from icevirt.planning.combine.hints import find_limits
from icevirt.planning.combine.options import CombineSpec
from icevirt.planning.remedies import fix, list_names, of_arguments, scan_fix
from icevirt.remedy_notation import write_code, write_remedy

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
    limits = find_limits(spec.tolerance, describe_variables(facts))
    scopes = {a.dimension: DimensionScopes.of(facts, a.dimension) for a in cells.axes[1:]}
    if scopes:
        scopes[cells.axes[0].dimension] = DimensionScopes.of(facts, cells.axes[0].dimension)
    found = []
    for array in _list_arrays(facts):
        if array.is_equal or not placed.isdisjoint(array.names):
            continue
        if not array.uneven and array.path in limits:
            continue
        axes = sorted(cells.axes, key=lambda each: _is_unclear(scopes, each.dimension, array.path))
        rows, axis = _find_pair(facts, axes, array.path)
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
    moved = coordinates_as_values(unequal)
    given = [*moved] or [e for e in unequal if e.axis is not None and not e.is_coordinate]
    pad = [*spec.pad, *uneven]
    if uneven:
        price = f"along {list_names([*uneven], _SHOWN)}, what shorter files lack reads as missing"
        made = fix(price, pad=pad)
        if given:
            also = _give_dimension(given, spec.dimension_rules, moved)
            options = {**also.arguments["combine_options"]}
            options["pad"] = [*pad, *(n for n in options.get("pad", ()) if n not in pad)]
            made = of_arguments(
                {**also.arguments, "combine_options": options}, f"{price}; {also.price}"
            )
        fixes.append(made)
    elif given:
        fixes.append(_give_dimension(given, spec.dimension_rules, moved))
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


def _is_unclear(scopes: Mapping[str, DimensionScopes], dimension: str, path: str) -> bool:
    """Say whether an array cannot get a dimension: groups have one each, of other lengths."""
    lengths = scopes[dimension].lengths_for(paths.parent(path)) if dimension in scopes else None
    return lengths is not None and bool((lengths == AMBIGUOUS).any())


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


def lacking(
    facts: CatalogFacts,
    names: Sequence[str | None],
    rows: tuple[int, int],
    axes: Sequence[AxisPlacement],
) -> AxisPlacement | None:
    """Return the first axis along which two files lie apart and which an array does not have."""
    one, other = (int(facts.arrays.file[row]) for row in rows)
    return next(
        (a for a in axes if a.dimension not in names and a.cell[one] != a.cell[other]), None
    )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Unequal:
    """An array whose values differ between two files, or were not compared."""

    array: Named
    rows: tuple[int, int]  # of the array in the two files
    axis: AxisPlacement | None  # that it lacks; None where the files do not lie apart
    uneven: tuple[str, ...] = ()  # dimensions whose lengths differ

    @property
    def path(self) -> str:
        """Of the array."""
        return self.array[0]

    @property
    def is_coordinate(self) -> bool:
        """Whether it is the coordinate of a dimension, which cannot get another one."""
        return tuple(self.array[1]) == (paths.name(self.path),)


def refusal(facts: CatalogFacts, found: Sequence[Unequal], rules: DimensionRules) -> CombineError:
    """Return the error for arrays that must be equal in all files and are not, about the first."""
    array, rows, axis = found[0].array, found[0].rows, found[0].axis
    path = array[0]
    fixes = fixes_of(found, rules)
    more = {"others": [each.path for each in found[1:]]} if found[1:] else {}
    places = [facts.place_of(row) for row in rows]
    found_in: dict[str, Any] = {**more, "first": places[0][0], "other": places[1][0]}
    lacks = "concatenated dimension" if axis is None else f"dimension {axis.dimension!r}"
    is_placed = axis is None and not {*rules.dimensions}.isdisjoint(array[1])
    if not all(facts.arrays.digest[row] for row in rows):
        others = (
            "Or list in data_vars the variables that get the dimension; all others are compared."
        )
        return CombineError(
            f"variable {path} does not have the {lacks}, so its values must be equal in all"
            " files, but the scan did not compare them",
            do=others if axis is not None and axis.is_new else "",
            fixes=fixes,
            variable=path,
            **found_in,
        )
    seen = None if facts.compare is None else facts.compare(places[0], places[1])
    return (OverlapError if is_placed else CombineError)(
        f"two files hold different values of {path} for the same steps"
        if is_placed
        else f"variable {path} does not have the {lacks}, and its values differ between files",
        do=write_remedy(
            "If they differ by rounding, pass ",
            write_code(
                f'tolerance={{"{paths.name(path)}": DIFFERENCE}}',
                f"--tolerance {paths.name(path)}=DIFFERENCE",
            ),
            ". Files of one grid can also be built on their own, into another group: ",
            write_code('group="..."', "--group NAME"),
            ".",
        ),
        fixes=fixes,
        variable=path,
        **found_in,
        **(seen or {}),
    )


def fixes_of(found: Sequence[Unequal], rules: DimensionRules) -> list[Fix]:
    """Return how arrays that are not equal in all files get the dimension, or are left out."""
    fixes = []
    if all(each.axis is not None and not each.is_coordinate for each in found):
        fixes.append(_give_dimension(found, rules))
    elif moved := coordinates_as_values(found):
        fixes.append(_give_dimension([*moved], rules, moved))
    they = "these variables are" if len(found) > 1 else f"{_shorten(found[0].path)} is"
    fixes.append(scan_fix(f"{they} left out", drop_variables=[each.path for each in found]))
    return fixes


def coordinates_as_values(found: Sequence[Unequal]) -> dict[Unequal, str]:
    """Return arrays with the names by which they get a dimension that no file has, and old paths.

    The coordinate of a dimension has one value for each step; under another name it has more. None
    where an array is there that cannot get the dimension.
    """
    if not all(each.axis is not None and each.axis.is_new for each in found):
        return {}
    return {
        replace(each, array=(f"{each.path}_values", each.array[1]))
        if each.is_coordinate
        else each: each.path
        for each in found
    }


def _give_dimension(
    given: Sequence[Unequal],
    rules: DimensionRules,
    called: Mapping[Unequal, str] = MappingProxyType({}),
) -> Fix:
    """Return the fix that gives arrays a dimension, some under names that are new to them."""
    along = dict.fromkeys(each.axis.dimension for each in given if each.axis is not None)
    price = (
        f"{list_names([_shorten(each.path) for each in given], _SHOWN)} get the dimension"
        if len(given) > 1
        else f"{_shorten(given[0].path)} gets the dimension"
    )
    price += f" {', '.join(map(repr, along))}: a value for each step"
    renamed = {old: paths.name(e.path) for e, old in called.items() if e.path != old}
    if renamed:
        which = list_names([*renamed], _SHOWN)
        price = f"{which} {'gets' if len(renamed) == 1 else 'get'} other names; {price}"
    pad = list(dict.fromkeys(name for each in given for name in each.uneven))
    more: dict[str, Any] = {"pad": pad} if pad else {}
    if renamed:
        more["rename"] = renamed
    if pad:
        price += ", its end read as missing where a file has less"
    made = fix(price, data_vars=remedy(rules, given), **more)
    kept = rules.kept.dimensions
    if any(a.dimension not in kept.get(e.path, (a.dimension,)) for e in given if (a := e.axis)):
        allowed = {**made.arguments, "commit_options": {"allow_changes": True}}
        made = of_arguments(allowed, f"{price}, which the last build made without")
    return made


def remedy(rules: DimensionRules, found: Sequence[Unequal]) -> Any:
    """Return the data_vars with which variables get a dimension too, and no other one changes."""
    by_dimension = {
        each: words for each in rules.dimensions if (words := find_rule(rules.lasting, each))
    }
    for each in found:
        assert each.axis is not None
        dimension = each.axis.dimension
        recorded: tuple[str, ...] = ()
        if each.axis.is_new:  # what has it by the last build, else by default
            has = [path for path, names in rules.kept.dimensions.items() if dimension in names]
            recorded = tuple(_shorten(p) for p in has if paths.name(p) != dimension) or (ALL,)
        kept = (word for word in by_dimension.get(dimension, recorded) if word != MINIMAL)
        by_dimension[dimension] = tuple(dict.fromkeys((*kept, _shorten(each.path))))
    if len(rules.dimensions) == 1:
        return list(by_dimension[rules.dimensions[0]])
    return {name: list(words) for name, words in by_dimension.items()}


def _shorten(path: str) -> str:
    """Return the name of a variable where its path says no more."""
    name = paths.name(path)
    return name if path.count("/") == 1 and ":" not in name and name not in WORDS else path
