"""Decide which variables get a dimension that they lack: xarray's ``data_vars`` rules.

``data_vars`` of xarray's ``concat`` and ``open_mfdataset``, with the default that xarray calls
None: a new dimension goes to every data variable, a dimension that the files have goes to none.
Coordinates get it only where they are named. Values never decide: different values are refused.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from shlex import quote
from typing import Any

from icevirt.errors import InvalidInputError
from icevirt.model import paths

type DataVarsLike = str | Iterable[str] | Mapping[str, str | Iterable[str]] | None
type DataVars = Mapping[str, tuple[str, ...]]
"""Words and names of variables by dimension; those under `EVERY` are for all others."""

EVERY = ""
ALL, MINIMAL = "all", "minimal"
_WORDS = (ALL, MINIMAL)


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """What the last build of the group says of dimensions, which the next one keeps."""

    dimensions: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # by path in the files
    data_vars: DataVars = field(default_factory=dict)  # that it was asked for

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
        """What the next build keeps: what was asked for now, and before where nothing was said."""
        return {**({} if EVERY in self.asked else self.kept.data_vars), **self.asked}


def data_vars_of(given: Any) -> dict[str, tuple[str, ...]]:
    """Return what a person asked for, by dimension.

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
    """Raise ``InvalidInputError`` where rules are for a dimension that is not asked for."""
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
    """Return what was asked for along a dimension, None where nothing was."""
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


def remedy(rules: DimensionRules, path: str, dimension: str, *, is_new: bool) -> str:
    """Return what to paste so that a variable gets a dimension too, and no other one changes."""
    told = {each: words for each in rules.dimensions if (words := said(rules.lasting, each))}
    before = told.get(dimension, _recorded(rules, dimension) if is_new else ())
    told[dimension] = (*(word for word in before if word != MINIMAL), _short(path))
    if len(rules.dimensions) == 1:
        flags = (f"--data-vars {quote(word)}" for word in told[dimension])
        return f"data_vars={list(told[dimension])!r} ({' '.join(flags)})"
    flags = (
        f"--data-vars {quote(f'{each}:{word}')}" for each, words in told.items() for word in words
    )
    listed = {each: list(words) for each, words in told.items()}
    return f"data_vars={listed!r} ({' '.join(flags)})"


def _recorded(rules: DimensionRules, dimension: str) -> tuple[str, ...]:
    """Return what has a new dimension by the last build, else by default."""
    has = [path for path, names in rules.kept.dimensions.items() if dimension in names]
    return tuple(_short(path) for path in has if paths.name(path) != dimension) or (ALL,)


def _short(path: str) -> str:
    """Return the name of a variable where its path says no more."""
    name = paths.name(path)
    return name if path.count("/") == 1 and ":" not in name and name not in _WORDS else path
