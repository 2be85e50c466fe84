"""Decide which variables get a dimension that they lack: xarray's ``data_vars`` rules.

``data_vars`` of xarray's ``concat`` and ``open_mfdataset``, with the default that xarray calls
None: a new dimension goes to every data variable, a dimension that the files have goes to none.
Coordinates get it only where they are named. Values never decide: a variable without the dimension
whose values differ between files is refused.

Rules count in this order: the user's ``data_vars``; without it, what the last build of the group
made; the variable that gives labels has their dimension; words of ``data_vars``; xarray's default.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from icevirt.errors import InvalidInputError
from icevirt.model import paths
from icevirt.remedy_notation import write_option, write_remedy

type DataVarsLike = str | Iterable[str] | Mapping[str, str | Iterable[str]] | None
type DataVars = Mapping[str, tuple[str, ...]]
"""Words and names of variables by dimension; those under `EVERY` are for all others."""
type Named = tuple[str, Sequence[str | None]]
"""Path and dimensions of an array."""
EVERY = ""
ALL, MINIMAL = "all", "minimal"
WORDS = (ALL, MINIMAL)


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
            do=write_remedy("Add them to ", write_option("concat_dim"), "."),
            unknown=unknown,
            concat_dim=list(dimensions),
        )


def refuse_unknown_names(rules: DataVars, there: Collection[str]) -> None:
    """Raise ``InvalidInputError`` where a name fits none of the paths."""
    known = {*there, *map(paths.name, there)}
    wanted = dict.fromkeys(name for each in rules.values() for name in each)
    if unknown := [name for name in wanted if name not in WORDS and name not in known]:
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
    return path in words or (paths.name(path) in words and paths.name(path) not in WORDS)


def gets(rules: DataVars, dimension: str, path: str, *, is_new: bool, is_coordinate: bool) -> bool:
    """Say whether a variable that lacks a dimension gets it."""
    words = find_rule(rules, dimension)
    if words is None:
        words = (ALL,) if is_new else (MINIMAL,)
    return is_named(words, path) or (ALL in words and not is_coordinate)
