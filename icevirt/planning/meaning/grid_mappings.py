"""Compare how files project their grid: equal x and y of two UTM zones are two places on earth.

The variables that ``grid_mapping`` names (CF 5.6) have attributes and no values. They are compared
by path, and data by what places them in each file: the mapping that they name there, what they say
themselves, and what the scan noted of variables and groups that are left out (``placed_by``).
"""

from __future__ import annotations

from collections import ChainMap, defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from icevirt.archive.facts import CatalogFacts, by_path, distinct
from icevirt.archive.roles import resolve, words_of
from icevirt.archive.schema import ArraySchema
from icevirt.errors import CombineError, Fix
from icevirt.model import paths
from icevirt.planning.axes.candidates import groups_in_order
from icevirt.planning.meaning.places import (
    NAMING,
    OF_NO_PLACE,
    PROJECTING,
    Statement,
    number_places,
    only_places,
    says_degrees,
    text_of,
    unlike_names,
)
from icevirt.planning.remedies import choose, list_names
from icevirt.remedy_notation import Remedy, write_remedy

_SAYING = ("grid_mapping_name", "crs_wkt", "spatial_ref")
_CODES = range(1024, 1 << 17)  # of EPSG, which some tools store as the value of a mapping
_NAMED = 3  # attributes in a message
_LONGEST = 60  # letters of a value
_SINCE = "geotiff_keys"  # of systems without a code, of which older versions say nothing
_ABSENT = -1  # in the place of a code

type _ByCode = Mapping[int, Statement]  # attributes by code of the schema


class Placed(NamedTuple):
    """Where a variable is: in which files, and how it is described there."""

    row: NDArray[np.integer]
    file: NDArray[np.integer]
    code: NDArray[np.integer]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class UnlikeMapping:
    """A variable whose files project their grid in several ways."""

    path: str
    row: NDArray[np.integer]  # of the variable
    kind: NDArray[np.int64]  # of each row
    said: tuple[Statement, ...]  # by kind: the attributes in which kinds differ


def unlike_mappings(facts: CatalogFacts) -> list[UnlikeMapping]:
    """Return the grid mappings whose files contradict one another, and data that name such."""
    names = [f'"{name}"' for name in (NAMING, "placed_by", *_SAYING, *PROJECTING)]
    texts = (text.lower() for text in facts.arrays.schema.values)
    if not any(name in text for text in texts for name in names):
        return []  # schemas of many files take time to read
    arrays, known = facts.arrays, dict[str, NDArray[np.integer]]()

    def rows_of(path: str) -> Placed:
        if not known:
            known.update(by_path(facts))
        row = known[path]
        return Placed(row, arrays.file[row], arrays.schema.codes[row])

    everywhere = {
        path
        for path, count in zip(arrays.path.values, arrays.path.counts().tolist(), strict=True)
        if count == len(facts.files)
    }
    schemas = {code: ArraySchema.loads(text) for code, text in enumerate(arrays.schema.values)}
    held = hold_attributes(facts)
    placed = {
        path: {code: found for code in by_code if (found := schemas[code].placed_by)}
        for path, by_code in held.items()
    }
    unnoted = {
        path: {code for code in by_code if schemas[code].placed_by is None}
        for path, by_code in held.items()
    }
    lists = {
        path
        for path, by_code in held.items()
        if not all(_is_geographic(schemas[code].dimension_names) for code in by_code)
    }
    return contradictions(
        held, rows_of, placed=placed, unnoted=unnoted, everywhere=everywhere, strict=lists
    )


def _is_geographic(names: Iterable[str | None]) -> bool:
    """Say whether latitudes and longitudes are dimensions, which say all without a mapping."""
    return {"lat", "lon"} <= {(name or "").lower()[:3] for name in names}


def find_mappings(held: Mapping[str, _ByCode]) -> frozenset[str]:
    """Return the variables whose attributes say in all files how a grid is projected.

    Args:
        held: Attributes of variables, by path and a number of the files that say so.
    """
    targets = {each for found in _name_mappings(held).values() for each in found.values()}
    return frozenset(
        path
        for path, by_code in held.items()
        if all(_says(each, is_named=path in targets) for each in by_code.values())
    )


def _says(attributes: Statement, *, is_named: bool) -> bool:
    if any(name in attributes for name in _SAYING):
        return True
    return is_named and any(name.lower() not in OF_NO_PLACE for name in attributes)


def are_no_codes(values: Iterable[NDArray[Any]]) -> bool:
    """Say whether values of grid mappings mean nothing (CF 5.6), as no codes of projections do.

    Args:
        values: In several files.
    """
    numbers = (each for held in values if held.dtype.kind in "iuf" for each in held.ravel())
    return len({int(each) for each in numbers if each in _CODES}) < 2


def hold_attributes(facts: CatalogFacts) -> dict[str, dict[int, Statement]]:
    """Return the attributes of variables, by path and code of the schema."""
    arrays = facts.arrays
    held: dict[str, dict[int, Statement]] = defaultdict(dict)
    named, codes = (each.tolist() for each in distinct((arrays.path, arrays.schema)))
    for path, code in zip(named, codes, strict=True):
        attributes = ArraySchema.loads(arrays.schema.values[code]).attributes.values
        held[arrays.path.values[path]][code] = attributes
    return held


def contradictions(
    held: Mapping[str, _ByCode],
    rows_of: Callable[[str], Placed] | None = None,
    *,
    placed: Mapping[str, _ByCode] | None = None,
    unnoted: Mapping[str, Collection[int]] | None = None,
    everywhere: Iterable[str] = (),
    strict: Iterable[str] | None = None,
) -> list[UnlikeMapping]:
    """Return the grid mappings that contradict one another, and data that name such.

    Args:
        held: Attributes of variables, by path and a number of the files that say so.
        rows_of: Returns where a variable is; None: in one file of each number.
        placed: What places variables beside these attributes, as `held`.
        unnoted: Of variables, numbers of which no scan noted what places them.
        everywhere: Variables that are in all files.
        strict: Data of which files must say as others that x and y are degrees; None: all.
    """
    find = rows_of or (lambda path: Placed(*[np.array([*held[path]])] * 3))
    comparing = _Comparing(
        held=held,
        placed=placed or {},
        unnoted=unnoted or {},
        named=_name_mappings(held),
        everywhere=frozenset(everywhere),
        strict=frozenset(held if strict is None else strict),
        rows_of=find,
    )
    return [each for path in held if (each := comparing.unlike(path)) is not None]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Comparing:
    held: Mapping[str, _ByCode]
    placed: Mapping[str, _ByCode]
    unnoted: Mapping[str, Collection[int]]
    named: Mapping[str, Mapping[int, str]]  # mappings, by path and code
    everywhere: frozenset[str]
    strict: frozenset[str]
    rows_of: Callable[[str], Placed]

    def unlike(self, path: str) -> UnlikeMapping | None:
        """Return how files contradict one another about a variable, if they do."""
        by_code = self.held[path]
        if self._is_mapping(path):
            statements = self._complete(path)
            naming = {each for each, found in self.named.items() if path in found.values()}
            is_lax = bool(naming) and not naming & self.strict
            numbers = number_places(
                statements, is_lax=is_lax and all(map(says_degrees, statements))
            )
            if max(numbers, default=0) == 0:
                return None
            rows = self.rows_of(path)
            number = dict(zip(by_code, numbers, strict=True))
            kind = np.array([number[code] for code in rows.code.tolist()], np.int64)
            return _describe(path, rows.row, kind, statements, numbers)
        if not self._may_differ(path):
            return None
        rows = self.rows_of(path)
        pairs, which = self._pair(path, rows)
        statements = [self._statement(path, code, there) for code, there in pairs]
        first = next(filter(only_places, statements), {})
        statements = [
            {**first, **each} if self._is_unknown(path, *pair) else each
            for pair, each in zip(pairs, statements, strict=True)
        ]
        is_lax = path not in self.strict and all(map(says_degrees, statements))
        numbers = number_places(statements, is_lax=is_lax)
        if max(numbers, default=0) == 0:
            return None
        named = {self.named[path].get(code) for code, _ in pairs}
        if len(named - {None}) > 1:  # the names are shorter than what they stand for
            statements = [{NAMING: self.held[path][code].get(NAMING)} for code, _ in pairs]
        kind = np.array(numbers, np.int64)[which]
        return _describe(path, rows.row, kind, statements, numbers)

    def _is_mapping(self, path: str) -> bool:
        is_named = any(path in by_code.values() for by_code in self.named.values())
        return is_named or any(
            name in each for each in self.held[path].values() for name in _SAYING
        )

    def _may_differ(self, path: str) -> bool:
        by_code, named = self.held[path], self.named[path]
        if {*named} == {*by_code} and len(targets := {*named.values()}) == 1:
            if targets <= self.everywhere and not self.placed.get(path):
                return any(_own(each) for each in by_code.values())
            return True
        return bool(named or self.placed.get(path)) or any(map(_own, by_code.values()))

    def _pair(self, path: str, rows: Placed) -> tuple[list[tuple[int, int]], NDArray[np.intp]]:
        """Return pairs of a code, and that of the mapping in the same file; which each row has."""
        there = np.full(len(rows.row), _ABSENT, np.int64)
        targets = self.named[path]
        for target in dict.fromkeys(targets.values()):
            mapping = self.rows_of(target)
            size = int(max(rows.file.max(initial=0), mapping.file.max(initial=0))) + 1
            code_of = np.full(size, _ABSENT, np.int64)
            code_of[mapping.file] = mapping.code
            naming = np.isin(rows.code, [code for code, name in targets.items() if name == target])
            there[naming] = code_of[rows.file[naming]]
        found, first, which = np.unique(
            np.stack([rows.code, there], axis=1), axis=0, return_index=True, return_inverse=True
        )
        order = np.argsort(first)  # as files come
        place = np.empty(len(order), np.intp)
        place[order] = np.arange(len(order))
        pairs = [(int(code), int(mapping)) for code, mapping in found[order].tolist()]
        return pairs, place[which.reshape(-1)]

    def _is_unknown(self, path: str, code: int, mapping: int) -> bool:
        """Say whether a mapping is named that an older version left out without a note."""
        is_named = NAMING in self.held[path][code]
        return is_named and mapping == _ABSENT and code in self.unnoted.get(path, ())

    def _complete(self, path: str) -> list[Statement]:
        """Return what files say of a mapping; a file of an older catalog gets a newer statement."""
        by_code, old = self.held[path], self.unnoted.get(path, ())
        said = next((each for each in by_code.values() if _SINCE in each), {})
        return [
            said if code in old and not only_places(each) else each
            for code, each in by_code.items()
        ]

    def _statement(self, path: str, code: int, mapping: int) -> Statement:
        beside = self.placed.get(path, {}).get(code, {})
        if NAMING in beside:
            return {NAMING: beside[NAMING]}  # said for all files
        own, named = _own(self.held[path][code]), self.named[path].get(code, "")
        target = self.held[named][mapping] if mapping != _ABSENT else {}
        return dict(ChainMap(*map(dict, (target, own, beside))))


def _own(attributes: Statement) -> dict[str, Any]:
    """Return what data say themselves of their projection."""
    return {name: value for name, value in attributes.items() if name.lower() in PROJECTING}


def _describe(
    path: str,
    row: NDArray[np.integer],
    kind: NDArray[np.int64],
    statements: list[Statement],
    numbers: list[int],
) -> UnlikeMapping:
    """Return the unlike kinds, each with the attributes in which it differs from others."""
    merged: list[dict[str, Any]] = [{} for _ in range(max(numbers) + 1)]
    for number, each in zip(numbers, statements, strict=True):
        merged[number] = {**each, **merged[number]}
    names = [NAMING] if all(each.keys() == {NAMING} for each in merged) else unlike_names(merged)
    said = tuple({name: each[name] for name in names if name in each} for each in merged)
    return UnlikeMapping(path=path, row=row, kind=kind, said=said)


def _name_mappings(held: Mapping[str, _ByCode]) -> dict[str, dict[int, str]]:
    """Return the mappings that variables name, by schema."""
    there: dict[str, set[str]] = defaultdict(set)
    for name in held:
        there[paths.name(name)].add(name)
    return {path: _find_named(path, by_code, there) for path, by_code in held.items()}


def _find_named(path: str, by_code: _ByCode, there: Mapping[str, set[str]]) -> dict[int, str]:
    """Return the mapping that a variable names, by schema; the first of several."""
    found = {}
    for code, attributes in by_code.items():
        text = attributes.get(NAMING)
        for word in words_of(NAMING, text)[:1] if isinstance(text, str) else ():
            if (target := resolve(paths.parent(path), word, there)) is not None:
                found[code] = target
    return found


def refuse_unlike_mappings(facts: CatalogFacts) -> None:
    """Refuse files whose grids are projected in several ways.

    Raises:
        CombineError: There are some; the message says which attributes contradict one another.
    """
    for each in unlike_mappings(facts):
        rows, kind = each.row, each.kind
        other = int(np.argmax(kind != kind[0]))
        count, one, two = int((kind != kind[0]).sum()), *(each.said[kind[at]] for at in (0, other))
        unlike = [
            name
            for name in dict.fromkeys((*one, *two))
            if text_of(name, one.get(name)) != text_of(name, two.get(name))
        ]
        how = "differs" if one and two else "is not the same, as only some files say it,"
        raise CombineError(
            "files project their grid in several ways, so equal x and y are other places on earth:"
            f" {list_names(unlike, _NAMED)} of {each.path} {how}"
            f" in {count:,} of {len(rows):,} files",
            do=write_remedy(
                "If all mean one place, say so for all files, like ", _say(facts, each, unlike), "."
            ),
            variable=each.path,
            first=facts.url_of(rows[0]),
            first_has=_show(one, unlike),
            other=facts.url_of(rows[other]),
            other_has=_show(two, unlike),
        )


def _say(facts: CatalogFacts, found: UnlikeMapping, unlike: list[str]) -> Remedy:
    """Return the choice by which all files mean the same."""
    by_code = hold_attributes(facts)[found.path]
    are_own = all(any(name in each for each in by_code.values()) for name in unlike)
    if not are_own or NAMING in unlike:  # a place that other variables or groups say
        named = dict.fromkeys(each[NAMING] for each in by_code.values() if NAMING in each)
        is_held = bool(_name_mappings(hold_attributes(facts))[found.path])
        return choose(attrs={found.path: {NAMING: next(iter(named)) if is_held else None}})
    shortest = [name for name in unlike if name.lower() in PROJECTING][:1] or unlike
    values = {name: next(said[name] for said in found.said if name in said) for name in shortest}
    return choose(attrs={found.path: values})


def mapping_fixes(facts: CatalogFacts) -> list[Fix]:
    """Return the fix that makes a group of each projection, where labels do not order files."""
    price = "files of one projection get a group, in the order given"
    return groups_in_order(facts, price) if unlike_mappings(facts) else []


def _show(said: Statement, names: Iterable[str]) -> str:
    texts = ((name, str(said[name])) for name in [e for e in names if e in said][:_NAMED])
    found = (f"{n} {t if len(t) <= _LONGEST else f'{t[:_LONGEST]}...'}" for n, t in texts)
    return ", ".join(found) or "none of them"
