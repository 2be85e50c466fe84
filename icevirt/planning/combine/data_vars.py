"""Decide which variables get a dimension that they lack: xarray's ``data_vars`` rules.

``data_vars`` of xarray's ``concat`` and ``open_mfdataset``, with the default that xarray calls
None: a new dimension goes to every data variable, a dimension that the files have goes to none.
Coordinates get it only where they are named. Values never decide: a variable without the dimension
whose values differ between files is refused.

Rules count in this order: the user's ``data_vars``; without it, what the last build of the group
made; the variable that gives labels has their dimension; words of ``data_vars``; xarray's default.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from icevirt.archive.facts import CatalogFacts
from icevirt.archive.roles import coordinates_of
from icevirt.archive.schema import ArraySchema
from icevirt.errors import CombineError, Fix, InvalidInputError, OverlapError
from icevirt.model import paths
from icevirt.planning.axes.new_dimensions import NewDimension
from icevirt.planning.axes.placement import AxisPlacement
from icevirt.planning.combine.dimension_lengths import distinct
from icevirt.planning.remedies import fix, list_names, of_arguments, scan_fix
from icevirt.planning.times.units import units_of

type DataVarsLike = str | Iterable[str] | Mapping[str, str | Iterable[str]] | None
type DataVars = Mapping[str, tuple[str, ...]]
"""Words and names of variables by dimension; those under `EVERY` are for all others."""
type Named = tuple[str, Sequence[str | None]]
"""Path and dimensions of an array."""
EVERY = ""
ALL, MINIMAL = "all", "minimal"
_WORDS = (ALL, MINIMAL)
_SHOWN = 3  # names in a price


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """What the last build of the group says of dimensions, which the next one keeps."""

    dimensions: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # by path in the files
    data_vars: DataVars = field(default_factory=dict)  # of its options

    def has(self, dimension: str) -> bool:
        """Say whether the last build made something along a dimension."""
        return any(dimension in names for names in self.dimensions.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class DimensionRules:
    """All that decides which variables get a dimension that they do not have."""

    dimensions: tuple[str, ...]  # of the dataset, along which files are placed
    asked: DataVars
    kept: Kept

    @property
    def lasting(self) -> dict[str, tuple[str, ...]]:
        """What the next build keeps: the rules of this build, else of the last one."""
        return {**({} if EVERY in self.asked else self.kept.data_vars), **self.asked}


def data_vars_of(given: Any) -> dict[str, tuple[str, ...]]:
    """Return the rules of ``data_vars`` by dimension.

    Raises:
        InvalidInputError: It is something else than words and names.
    """
    if given is None:
        return {}
    if isinstance(given, Mapping):
        return {str(name): _list_names(each) for name, each in given.items()}
    return {EVERY: _list_names(given)}


def _list_names(given: Any) -> tuple[str, ...]:
    names = (given,) if isinstance(given, str) else given
    if not isinstance(names, Iterable) or isinstance(names, bytes):
        names = (None,)
    found = tuple(names)
    if not found or not all(isinstance(name, str) and name for name in found):
        raise InvalidInputError(
            'data_vars must be "all", "minimal" or names of variables',
            do='Pass "all", "minimal" or a list of names; or a mapping by dimension, like'
            ' {"member": ["all", "lat"], "time": "minimal"}.',
            given=given,
        )
    if "different" in found:
        raise InvalidInputError(
            'data_vars="different" lets values decide which variables get a dimension, and values'
            " change from build to build",
            do='Name the variables. A variable of that name is "/different".',
            given=given,
        )
    return found


def refuse_unknown_dimensions(rules: DataVars, dimensions: Sequence[str]) -> None:
    """Raise ``InvalidInputError`` where rules name a dimension that is not in ``concat_dim``."""
    if unknown := [name for name in rules if name != EVERY and name not in dimensions]:
        raise InvalidInputError(
            "data_vars names dimensions that are not in concat_dim",
            do="Add them to concat_dim (on the command line --concat-dim).",
            unknown=unknown,
            concat_dim=list(dimensions),
        )


def refuse_unknown_names(rules: DataVars, there: Collection[str]) -> None:
    """Raise ``InvalidInputError`` where a name fits none of the paths."""
    known = {*there, *map(paths.name, there)}
    wanted = dict.fromkeys(name for each in rules.values() for name in each)
    if unknown := [name for name in wanted if name not in _WORDS and name not in known]:
        raise InvalidInputError(
            "data_vars names variables that no file has",
            do="Use the variable names after rename.",
            unknown=unknown,
            there=sorted(there),
        )


def find_rule(rules: DataVars, dimension: str) -> tuple[str, ...] | None:
    """Return the rule for a dimension; None if there is none."""
    return rules.get(dimension, rules.get(EVERY))


def is_named(words: Sequence[str], path: str) -> bool:
    """Say whether a variable is named, by its name or path."""
    return path in words or (paths.name(path) in words and paths.name(path) not in _WORDS)


def gets(rules: DataVars, dimension: str, path: str, *, is_new: bool, is_coordinate: bool) -> bool:
    """Say whether a variable that lacks a dimension gets it."""
    words = find_rule(rules, dimension)
    if words is None:
        words = (ALL,) if is_new else (MINIMAL,)
    return is_named(words, path) or (ALL in words and not is_coordinate)


class Declared:
    """What the rules make of the arrays of some files."""

    def __init__(
        self, facts: CatalogFacts, new: Sequence[NewDimension], rules: DimensionRules
    ) -> None:
        self._facts = facts
        self._new = {each.name: each for each in new if each.is_new}
        self._rules = rules
        self._of_one_label: dict[str, frozenset[str]] = {}
        self.schemas = [ArraySchema.loads(text) for text in facts.arrays.schema.values]
        refuse_unknown_dimensions(rules.asked, rules.dimensions)
        refuse_unknown_names(rules.asked, facts.arrays.path.values)

    def dimensions_of(self, path: str, schema: ArraySchema) -> tuple[str, ...]:
        """Return the dimensions that an array gets, in the order of the dataset's.

        Raises:
            InvalidInputError: The coordinate of a dimension is to have another one.
        """
        own = schema.dimension_names
        return tuple(
            name
            for name in self._rules.dimensions
            if name not in own
            and self._gets(name, path, own)
            and not self._is_lone(name, path, own)
        )

    def _gets(self, dimension: str, path: str, own: Sequence[str | None]) -> bool:
        axis, kept = self._new.get(dimension), self._rules.kept
        if any(each.variable == path for each in self._new.values()):
            return axis is not None and axis.variable == path
        words = find_rule(self._rules.asked, dimension)
        if words is not None and is_named(words, path):
            if tuple(own) == (paths.name(path),):
                raise InvalidInputError(
                    f"{path} is a dimension coordinate and cannot have another dimension",
                    do="Remove it from data_vars.",
                    data_vars=list(words),
                )
            return True
        if tuple(own) == (paths.name(path),):
            return False
        if words is None and axis is not None and kept.has(dimension) and path in kept.dimensions:
            return dimension in kept.dimensions[path]
        if any(each.label_variable == path for each in self._new.values()):
            return axis is not None and axis.label_variable == path
        return gets(
            kept.data_vars if words is None else self._rules.asked,
            dimension,
            path,
            is_new=axis is not None,
            is_coordinate=path in self._coordinates,
        )

    def _is_lone(self, dimension: str, path: str, own: Sequence[str | None]) -> bool:
        """Say whether one label has a field alone that gets the dimension by default only."""
        axis, kept = self._new.get(dimension), self._rules.kept
        if axis is None or find_rule(self._rules.lasting, dimension) is not None:
            return False
        is_label = any(path in (e.variable, e.label_variable) for e in self._new.values())
        is_placed = not {*own}.isdisjoint((*self._rules.dimensions, *self._times))
        is_kept = dimension in kept.dimensions.get(path, ())
        return not (is_label or is_placed or is_kept) and path in self._alone(axis)

    def _alone(self, axis: NewDimension) -> frozenset[str]:
        """Return the paths of arrays that the files of one label hold, and no others.

        They say nothing of the new dimension, unless all arrays are of that kind.
        """
        if axis.name not in self._of_one_label:
            arrays = self._facts.arrays
            cell, paths_there = axis.cell[arrays.file], arrays.path.values
            one = np.zeros(len(paths_there), np.int64)
            one[arrays.path.codes] = cell
            others = np.bincount(arrays.path.codes[cell != one[arrays.path.codes]])
            is_shared = np.zeros(len(paths_there), np.bool_)
            is_shared[: len(others)] = others > 0
            alone = frozenset(np.array(paths_there, object)[~is_shared].tolist())
            shared = {*paths_there} - alone - self._coordinates
            self._of_one_label[axis.name] = alone if shared else frozenset()
        return self._of_one_label[axis.name]

    @cached_property
    def _times(self) -> frozenset[str]:
        """The dimensions along which values vary in time: fields that have one are data."""
        return frozenset(
            paths.name(path)
            for path, schema in variables_of(self._facts)
            if units_of(schema.attributes.values) is not None
        )

    @cached_property
    def _coordinates(self) -> frozenset[str]:
        return coordinates_of(describe_variables(self._facts), listing_groups(self._facts))


def variables_of(facts: CatalogFacts) -> Iterator[tuple[str, ArraySchema]]:
    """Yield each path with each schema that files have it in, once."""
    arrays = facts.arrays
    pairs = (each.tolist() for each in distinct((arrays.path, arrays.schema)))
    for path, code in zip(*pairs, strict=True):
        yield arrays.path.values[path], ArraySchema.loads(arrays.schema.values[code])


def describe_variables(
    facts: CatalogFacts,
) -> list[tuple[str, tuple[str | None, ...], Mapping[str, Any]]]:
    """Return path, dimensions and attributes of all variables; a path may come several times."""
    return [(path, s.dimension_names, s.attributes.values) for path, s in variables_of(facts)]


def listing_groups(facts: CatalogFacts) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield path and attributes of groups that list coordinates, equal lists once."""
    found = {
        (group.path, text): group.attributes.values
        for row in range(len(facts.files))
        for group in facts.groups_of(row, saying="coordinates")
        if isinstance(text := group.attributes.values.get("coordinates"), str)
    }
    return ((path, values) for (path, _), values in found.items())


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


@dataclass(frozen=True, slots=True, kw_only=True)
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
        do=f'If they differ by rounding, pass tolerance={{"{paths.name(path)}": DIFFERENCE}}'
        f" (--tolerance {paths.name(path)}=DIFFERENCE). Files of one grid can also be built on"
        ' their own, into another group: group="..." (--group NAME).',
        fixes=fixes,
        variable=path,
        **found_in,
        **(seen or {}),
    )


def fixes_of(found: Sequence[Unequal], rules: DimensionRules) -> list[Fix]:
    """Return how arrays that are not equal in all files get the dimension, or are left out."""
    fixes = []
    given = [each for each in found if each.axis is not None and not each.is_coordinate]
    if len(given) == len(found):
        along = dict.fromkeys(each.axis.dimension for each in given if each.axis is not None)
        price = (
            f"{list_names([_shorten(each.path) for each in given], _SHOWN)} get the dimension"
            if len(given) > 1
            else f"{_shorten(given[0].path)} gets the dimension"
        )
        price += f" {', '.join(map(repr, along))}: a value for each step"
        pad = list(dict.fromkeys(name for each in given for name in each.uneven))
        more: dict[str, Any] = {"pad": pad} if pad else {}
        if pad:
            price += ", its end read as missing where a file has less"
        made = fix(price, data_vars=remedy(rules, given), **more)
        kept = rules.kept.dimensions
        if any(a.dimension not in kept.get(e.path, (a.dimension,)) for e in given if (a := e.axis)):
            allowed = {**made.arguments, "commit_options": {"allow_changes": True}}
            made = of_arguments(allowed, f"{price}, which the last build made without")
        fixes.append(made)
    they = "these variables are" if len(found) > 1 else f"{_shorten(found[0].path)} is"
    fixes.append(scan_fix(f"{they} left out", drop_variables=[each.path for each in found]))
    return fixes


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
    return name if path.count("/") == 1 and ":" not in name and name not in _WORDS else path
