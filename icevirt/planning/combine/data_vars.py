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
from icevirt.errors import CombineError, InvalidInputError
from icevirt.model import paths
from icevirt.planning.axes.new_dimensions import NewDimension
from icevirt.planning.axes.placement import AxisPlacement
from icevirt.planning.remedies import choose, leave_out

type DataVarsLike = str | Iterable[str] | Mapping[str, str | Iterable[str]] | None
type DataVars = Mapping[str, tuple[str, ...]]
"""Words and names of variables by dimension; those under `EVERY` are for all others."""
type Named = tuple[str, Sequence[str | None]]
"""Path and dimensions of an array."""
EVERY = ""
ALL, MINIMAL = "all", "minimal"
_WORDS = (ALL, MINIMAL)


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
        return {str(name): _listed(each) for name, each in given.items()}
    return {EVERY: _listed(given)}


def _listed(given: Any) -> tuple[str, ...]:
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


def said(rules: DataVars, dimension: str) -> tuple[str, ...] | None:
    """Return the rule for a dimension; None if there is none."""
    return rules.get(dimension, rules.get(EVERY))


def is_named(words: Sequence[str], path: str) -> bool:
    """Say whether a variable is named, by its name or path."""
    return path in words or (paths.name(path) in words and paths.name(path) not in _WORDS)


def gets(rules: DataVars, dimension: str, path: str, *, is_new: bool, is_coordinate: bool) -> bool:
    """Say whether a variable that lacks a dimension gets it."""
    words = said(rules, dimension)
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
            if name not in own and self._gets(name, path, own)
        )

    def _gets(self, dimension: str, path: str, own: Sequence[str | None]) -> bool:
        axis, kept = self._new.get(dimension), self._rules.kept
        if any(each.variable == path for each in self._new.values()):
            return axis is not None and axis.variable == path
        words = said(self._rules.asked, dimension)
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

    @cached_property
    def _coordinates(self) -> frozenset[str]:
        return coordinates_of(
            (
                (path, schema.dimension_names, schema.attributes.values)
                for path, schema in variables_of(self._facts)
            ),
            listing_groups(self._facts),
        )


def variables_of(facts: CatalogFacts) -> Iterator[tuple[str, ArraySchema]]:
    """Yield each path with each schema that files have it in, once."""
    arrays, count = facts.arrays, len(facts.arrays.schema.values)
    pairs = np.unique(arrays.path.codes.astype(np.int64) * count + arrays.schema.codes)
    for path, code in (divmod(pair, count) for pair in pairs.tolist()):
        yield arrays.path.values[path], ArraySchema.loads(arrays.schema.values[code])


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


def refusal(
    facts: CatalogFacts,
    array: Named,
    rows: tuple[int, int],
    axis: AxisPlacement | None,
    rules: DimensionRules,
) -> CombineError:
    """Return the error for two files that hold other values of an array, or were not compared.

    Args:
        facts: Of all files.
        array: Its path and dimensions.
        rows: Of the array in the two files.
        axis: That it lacks; None where the files do not lie apart.
        rules: That give dimensions.
    """
    arrays, path = facts.arrays, array[0]
    digests = [arrays.digest[row] for row in rows]
    urls = [facts.url_of(row) for row in rows]
    own = [path if arrays.own_path is None else arrays.own_path[row] for row in rows]
    lacks = "concatenated dimension" if axis is None else f"dimension {axis.dimension!r}"
    if not all(digests):
        return CombineError(
            f"variable {path} does not have the {lacks}, so its values must be equal in all"
            " files, but the scan did not compare them",
            do=_sentence(
                f"{how_given(array, axis, rules)}leave it out with {leave_out(path)}{_named(axis)}"
            ),
            variable=path,
            first=urls[0],
            other=urls[1],
        )
    seen = None if facts.compare is None else facts.compare(*zip(urls, own, strict=True))
    return CombineError(
        f"variable {path} does not have the {lacks}, and its values differ between files",
        do=_sentence(
            f"{how_given(array, axis, rules)}leave it out with {leave_out(path)}, pass a "
            "tolerance for its values, or build the files of each grid into a group of its own."
        ),
        variable=path,
        first=urls[0],
        other=urls[1],
        **({} if seen is None else seen),
    )


def _named(axis: AxisPlacement | None) -> str:
    if axis is None or not axis.is_new:
        return "."
    return ", or list in data_vars the variables that get the dimension; all others are compared."


def how_given(array: Named, axis: AxisPlacement | None, rules: DimensionRules, **more: Any) -> str:
    """Return how the array gets the dimension, with ``more`` options; a coordinate cannot."""
    path, names = array
    if axis is None or tuple(names) == (paths.name(path),):
        return ""
    fix = remedy(rules, path, axis.dimension, is_new=axis.is_new, **more)
    if axis.dimension not in rules.kept.dimensions.get(path, (axis.dimension,)):
        fix += (
            ' and commit_options={"allow_changes": True} (--allow-changes), because the last build'
            " made it without"
        )
    return f"give it the dimension with {fix}, "


def remedy(rules: DimensionRules, path: str, dimension: str, *, is_new: bool, **more: Any) -> str:
    """Return what to paste so that a variable gets a dimension too, and no other one changes."""
    by_dimension = {
        each: words for each in rules.dimensions if (words := said(rules.lasting, each))
    }
    before = by_dimension.get(dimension, _recorded(rules, dimension) if is_new else ())
    by_dimension[dimension] = (*(word for word in before if word != MINIMAL), _short(path))
    if len(rules.dimensions) == 1:
        return choose(data_vars=by_dimension[dimension], **more)
    return choose(data_vars=by_dimension, **more)


def _recorded(rules: DimensionRules, dimension: str) -> tuple[str, ...]:
    """Return what has a new dimension by the last build, else by default."""
    has = [path for path, names in rules.kept.dimensions.items() if dimension in names]
    return tuple(_short(path) for path in has if paths.name(path) != dimension) or (ALL,)


def _short(path: str) -> str:
    """Return the name of a variable where its path says no more."""
    name = paths.name(path)
    return name if path.count("/") == 1 and ":" not in name and name not in _WORDS else path


def _sentence(text: str) -> str:
    return text[0].upper() + text[1:]
