"""Compare how files project their grid: equal x and y of two UTM zones are two places on earth.

The variables that ``grid_mapping`` names (CF 5.6) have attributes and no values. Attributes that
place values on earth must not contradict one another. Words may differ, and so may what only some
files say.
"""

from __future__ import annotations

from collections import ChainMap, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from icevirt.archive.facts import CatalogFacts, distinct
from icevirt.archive.roles import resolve, words_of
from icevirt.archive.schema import ArraySchema
from icevirt.errors import CombineError, Fix
from icevirt.model import paths
from icevirt.planning.axes.candidates import groups_in_order
from icevirt.planning.remedies import choose, list_names
from icevirt.remedy_notation import write_remedy

_NAMING = "grid_mapping"
_SAYING = ("grid_mapping_name", "crs_wkt", "spatial_ref")
PROJECTING = frozenset((
    *("crs", "crs_wkt", "spatial_ref", "esri_pe_string", "projection_wkt", "proj4", "proj4text"),
    *("proj4_string", "proj4_params", "proj_string", "epsg", "epsg_code", "spatial_epsg"),
    *("utm_zone", "utm_zone_number"),
))  # fmt: skip
"""Attributes, in lower case, by which data or groups say themselves how they are projected."""
_OF_NO_PLACE = frozenset({
    *("long_name", "standard_name", "comment", "description", "history", "units", "coordinates"),
    *("geotransform", "_fillvalue", "missing_value", "valid_range", "valid_min", "valid_max"),
})  # fmt: skip
"""Attributes, in lower case, that say nothing of a projection; where files lie, x and y say."""
_CODES = range(1024, 1 << 17)  # of EPSG, which some tools store as the value of a mapping
_TERMS = 6  # of a GeoTransform
_NAMED = 3  # attributes in a message
_LONGEST = 60  # letters of a value

type _Attributes = Mapping[str, Any]
type _ByCode = Mapping[int, _Attributes]  # attributes by code of the schema


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class UnlikeMapping:
    """A variable whose files project their grid in several ways."""

    path: str
    kind: Mapping[int, int]  # of each code of its schemas, or other number of files
    said: tuple[_Attributes, ...]  # by kind: attributes that contradict those of others


def unlike_mappings(facts: CatalogFacts) -> list[UnlikeMapping]:
    """Return the grid mappings whose files contradict one another, and data that name such."""
    names = [f'"{name}"' for name in (_NAMING, *_SAYING, *PROJECTING)]
    texts = (text.lower() for text in facts.arrays.schema.values)
    if not any(name in text for text in texts for name in names):
        return []  # schemas of many files take time to read
    return contradictions(hold_attributes(facts))


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


def _says(attributes: _Attributes, *, is_named: bool) -> bool:
    if any(name in attributes for name in _SAYING):
        return True
    return is_named and any(name.lower() not in _OF_NO_PLACE for name in attributes)


def are_no_codes(values: Iterable[NDArray[Any]]) -> bool:
    """Say whether values of grid mappings mean nothing (CF 5.6), as no codes of projections do.

    Args:
        values: In several files.
    """
    numbers = (each for held in values if held.dtype.kind in "iuf" for each in held.ravel())
    return len({int(each) for each in numbers if each in _CODES}) < 2


def hold_attributes(facts: CatalogFacts) -> dict[str, dict[int, _Attributes]]:
    """Return the attributes of variables, by path and code of the schema."""
    arrays = facts.arrays
    held: dict[str, dict[int, _Attributes]] = defaultdict(dict)
    named, codes = (each.tolist() for each in distinct((arrays.path, arrays.schema)))
    for path, code in zip(named, codes, strict=True):
        attributes = ArraySchema.loads(arrays.schema.values[code]).attributes.values
        held[arrays.path.values[path]][code] = attributes
    return held


def contradictions(held: Mapping[str, _ByCode]) -> list[UnlikeMapping]:
    """Return the grid mappings that contradict one another, and data that name such.

    Args:
        held: Attributes of variables, by path and a number of the files that say so.
    """
    named = _name_mappings(held)
    targets = {each for by_code in named.values() for each in by_code.values()}
    mappings = [
        path
        for path, by_code in held.items()
        if path in targets or any(name in each for each in by_code.values() for name in _SAYING)
    ]
    compared = {path: held[path] for path in mappings}
    compared |= {
        path: _projecting(by_code) for path, by_code in held.items() if path not in compared
    }
    found = [each for path in compared if (each := _unlike(path, compared[path])) is not None]
    for path, by_code in named.items():
        named_here = dict.fromkeys(by_code.values())
        merged = {
            target: dict(ChainMap(*map(dict, held[target].values()))) for target in named_here
        }
        if len(merged) > 1 and _conflicts(merged.values()):
            first = {target: code for code, target in reversed(by_code.items())}
            said = tuple({_NAMING: held[path][first[target]][_NAMING]} for target in merged)
            number = {target: at for at, target in enumerate(merged)}
            kind = {code: number[by_code[code]] if code in by_code else 0 for code in held[path]}
            found.append(UnlikeMapping(path=path, kind=kind, said=said))
    return found


def _name_mappings(held: Mapping[str, _ByCode]) -> dict[str, dict[int, str]]:
    """Return the mappings that variables name, by schema."""
    there: dict[str, set[str]] = defaultdict(set)
    for name in held:
        there[paths.name(name)].add(name)
    return {path: _find_named(path, by_code, there) for path, by_code in held.items()}


def _projecting(by_code: _ByCode) -> dict[int, _Attributes]:
    """Return what variables of data say themselves of their projection."""
    return {
        code: {name: value for name, value in attributes.items() if name.lower() in PROJECTING}
        for code, attributes in by_code.items()
    }


def _find_named(path: str, by_code: _ByCode, there: Mapping[str, set[str]]) -> dict[int, str]:
    """Return the mapping that a variable names, by schema; the first of several."""
    found = {}
    for code, attributes in by_code.items():
        text = attributes.get(_NAMING)
        for word in words_of(_NAMING, text)[:1] if isinstance(text, str) else ():
            if (target := resolve(paths.parent(path), word, there)) is not None:
                found[code] = target
    return found


def _unlike(path: str, by_code: _ByCode) -> UnlikeMapping | None:
    """Return how files contradict one another about a mapping, if they do."""
    if not (names := _conflicts(by_code.values())):
        return None
    said: dict[str, _Attributes] = {}  # by what it means
    kind = {}
    for code, attributes in by_code.items():
        own = {name: attributes[name] for name in names if name in attributes}
        text = repr({name: _compared(name, value) for name, value in own.items()})
        said.setdefault(text, own)
        kind[code] = [*said].index(text)
    return UnlikeMapping(path=path, kind=kind, said=tuple(said.values()))


def _conflicts(found: Iterable[_Attributes]) -> list[str]:
    """Return the names of attributes that contradict one another."""
    held: dict[str, set[str]] = {}
    for attributes in found:
        for name, value in attributes.items():
            if name.lower() not in _OF_NO_PLACE or _is_turned(name, value):
                held.setdefault(name, set()).add(repr(_compared(name, value)))
    return [name for name, values in held.items() if len(values) > 1]


def _is_turned(name: str, value: Any) -> bool:
    """Say whether a transform is of turned rows and columns, for which x and y say nothing."""
    terms = str(value).split() if name.lower() == "geotransform" else []
    return len(terms) == _TERMS and not {terms[2], terms[4]} <= {"0", "0.0", "-0.0"}


def _compared(name: str, value: Any) -> Any:
    """Return what is compared of an attribute; letters of a projection may be large or small."""
    found = _normalize(value)
    is_folded = name.lower() in PROJECTING and isinstance(found, str)
    return found.casefold() if is_folded else found


def _normalize(value: Any) -> Any:
    """Return a value of an attribute, numbers to nine digits, texts without their layout."""
    if isinstance(value, np.generic | np.ndarray):
        value = value.tolist()
    if isinstance(value, bool) or value is None:
        return value
    if isinstance(value, int | float):
        return f"{value:.9g}"
    if isinstance(value, list | tuple):
        return [_normalize(each) for each in value] if len(value) != 1 else _normalize(value[0])
    return " ".join(str(value).split())


def refuse_unlike_mappings(facts: CatalogFacts) -> None:
    """Refuse files whose grids are projected in several ways.

    Raises:
        CombineError: There are some; the message says which attributes contradict one another.
    """
    for each in unlike_mappings(facts):
        arrays = facts.arrays
        rows = np.flatnonzero(arrays.path.codes == arrays.path.values.index(each.path))
        kind = np.array([each.kind[code] for code in arrays.schema.codes[rows].tolist()])
        other = int(np.argmax(kind != kind[0]))
        count, one, two = int((kind != kind[0]).sum()), *(each.said[kind[at]] for at in (0, other))
        unlike = [
            n
            for n in dict.fromkeys((*one, *two))
            if _compared(n, one.get(n)) != _compared(n, two.get(n))
        ]
        same = choose(attrs={each.path: {name: one.get(name) for name in unlike[:1]}})
        raise CombineError(
            f"files project their grid in several ways, so equal x and y are other places on earth:"
            f" {list_names(unlike, _NAMED)} of {each.path}"
            f" differs in {count:,} of {len(rows):,} files",
            do=write_remedy("If all mean one projection, say so for all files, like ", same, "."),
            variable=each.path,
            first=facts.url_of(rows[0]),
            first_has=_show(one, unlike),
            other=facts.url_of(rows[other]),
            other_has=_show(two, unlike),
        )


def mapping_fixes(facts: CatalogFacts) -> list[Fix]:
    """Return the fix that makes a group of each projection, where labels do not order files."""
    price = "files of one projection get a group, in the order given"
    return groups_in_order(facts, price) if unlike_mappings(facts) else []


def _show(said: _Attributes, names: Iterable[str]) -> str:
    texts = ((name, str(said[name])) for name in [e for e in names if e in said][:_NAMED])
    found = (f"{n} {t if len(t) <= _LONGEST else f'{t[:_LONGEST]}...'}" for n, t in texts)
    return ", ".join(found) or "none of them"
