"""Number the decode signatures of arrays per file, in which eras differ, and describe differences.

Times are labels: "hours since" another date in every file makes no era, and neither does a
compression level. Neither does it matter whether the scan read the values: such arrays are encoded
anew, as the referenced ones are.

One array cannot hold variables of two grids, so files of each grid are an era. Where there are more
than a few grids, files rather have swaths or profiles of different lengths, which are padded, or
coordinates that differ by rounding. These are no eras.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from icevirt.archive.facts import ArrayColumns, CatalogFacts, by_path, describe_variables
from icevirt.archive.schema import DURATION, ArraySchema
from icevirt.model import paths
from icevirt.model.attributes import restore
from icevirt.planning.combine.dimension_lengths import FullLengths
from icevirt.planning.combine.hints import find_limits
from icevirt.planning.combine.options import CombineSpec
from icevirt.planning.meaning.grid_mappings import unlike_mappings
from icevirt.planning.meaning.local_indices import local_indices
from icevirt.planning.normal_form import differences, normalize
from icevirt.planning.times.units import units_to_count

_MOST = 5  # grids of a variable

LENGTHS = "lengths"
"""Name of the lengths of dimensions, among the facts of a signature."""

VALUES = "values"
"""Name of the values of a coordinate, by their digest."""

type _Axes = tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Grids:
    """The grid of each array, numbered; 0 where all files have the same one."""

    of_row: NDArray[np.integer]  # (arrays,)
    facts: tuple[Mapping[str, Any], ...]  # by number

    @classmethod
    def of(cls, facts: CatalogFacts, spec: CombineSpec) -> Grids | None:
        """Compare the grids of all files; None where they have the same one."""
        full = FullLengths.of(facts, spec.pad)
        rounded = find_limits(spec.tolerance, describe_variables(facts))
        indices = local_indices(facts, declared=spec.options.index_of or {})
        found: list[Mapping[str, Any]] = [{}]
        of_row = np.zeros(len(facts.arrays.path), np.int32)
        for path, rows in by_path(facts):
            codes = facts.arrays.schema.codes[rows]
            schemas = (
                ArraySchema.loads(facts.arrays.schema.values[code])
                for code in facts.arrays.schema.find_used(codes).tolist()
            )
            names = {schema.dimension_names for schema in schemas}
            if len(names) > 1:
                continue  # which is a difference of another kind
            (own,) = names
            fixed = tuple(
                axis
                for axis, name in enumerate(own)
                if name not in spec.concat_dim and axis not in full.of_array(path, own)
            )
            is_coordinate = own == (paths.name(path),) and bool(fixed) and path not in rounded
            numbers, kinds = _number_lengths(facts, rows, own, fixed)
            if path in indices and fixed:
                of_row[rows], kinds = _number_indices(facts, rows, numbers, kinds, len(found))
                found += kinds
                continue
            if is_coordinate and len(kinds) == 1:
                numbers, kinds = _number_values(facts, rows)
            if 1 < len(kinds) <= _MOST:
                of_row[rows] = numbers + len(found)
                found += kinds
        for each in unlike_mappings(facts):
            of_row[each.row] = each.kind + len(found)
            found += [
                {f"attribute {name}": [value, None] for name, value in said.items()}
                for said in each.said
            ]
        return cls(of_row=of_row, facts=tuple(found)) if len(found) > 1 else None


def _number_lengths(
    facts: CatalogFacts, rows: NDArray[np.integer], names: Sequence[str | None], axes: _Axes
) -> tuple[NDArray[np.integer], list[Mapping[str, Any]]]:
    used, codes = facts.arrays.shape.renumber(rows)
    known: dict[tuple[int, ...], int] = {}
    numbers = []
    for code in used.tolist():
        shape = json.loads(facts.arrays.shape.values[code])
        fixed = tuple(shape[axis] for axis in axes) if len(shape) == len(names) else ()
        numbers.append(known.setdefault(fixed, len(known)))
    called = [str(names[axis]) for axis in axes]
    kinds: list[Mapping[str, Any]] = [
        {LENGTHS: dict(zip(called, each, strict=False))} for each in known
    ]
    return np.array(numbers, np.int64)[codes], kinds


def _number_indices(
    facts: CatalogFacts,
    rows: NDArray[np.integer],
    numbers: NDArray[np.integer],
    kinds: Sequence[Mapping[str, Any]],
    begin: int,
) -> tuple[NDArray[np.integer], list[Mapping[str, Any]]]:
    """Number the values of indices, however many: each mesh is another grid.

    Returns:
        The number of each row, from ``begin`` on, 0 where all are alike; and what is numbered.
    """
    digest = facts.arrays.digest
    many = len(digest.values)
    key = numbers.astype(np.int64) * many + digest.codes[rows]
    used, number = np.unique(key, return_inverse=True)
    if len(used) < 2:
        return np.zeros(len(rows), np.int64), []
    pairs = (divmod(each, many) for each in used.tolist())
    return number.reshape(-1) + begin, [
        {**kinds[kind], VALUES: digest.values[code]} for kind, code in pairs
    ]


def _number_values(
    facts: CatalogFacts, rows: NDArray[np.integer]
) -> tuple[NDArray[np.integer], list[Mapping[str, Any]]]:
    """Number the values of a coordinate; digests are of bytes, and -0 is 0."""
    digest = facts.arrays.digest
    used, codes = digest.renumber(rows)
    texts = [digest.values[code] for code in used.tolist()]
    if not 1 < len(texts) <= _MOST or not all(texts):
        return np.zeros(len(rows), np.int64), [{}]
    rows_of = (rows[int(np.argmax(codes == number))] for number in range(len(texts)))
    places = [facts.place_of(row) for row in rows_of]
    numbers: list[int] = []
    for at, place in enumerate(places):
        same = (
            numbers[other]
            for other in range(at)
            if facts.compare is not None and facts.compare(places[other], place) is None
        )
        numbers.append(next(same, len(set(numbers))))
    kinds: list[Mapping[str, Any]] = [
        {VALUES: texts[numbers.index(number)]} for number in range(len(set(numbers)))
    ]
    return np.array(numbers, np.int64)[codes], kinds


_OF_TIMES = (
    "attribute units",
    "attribute calendar",
    "attribute _FillValue",
    "attribute missing_value",
    "data type",
)
_ATTRIBUTE = "attribute "
_NONE = "none"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Signatures:
    """The decode signatures of all arrays of a catalog, numbered."""

    of_row: NDArray[np.integer]  # (arrays,) number of the signature
    admits: tuple[frozenset[int], ...]  # by number: those that files of one array may have with it
    facts: tuple[Mapping[str, Any], ...]  # by number
    values: NDArray[np.int64]  # by number: one of those whose values mean the same

    @classmethod
    def of(cls, arrays: ArrayColumns, grids: Grids | None = None) -> Signatures:
        """Read every schema once."""
        numbers: dict[str, int] = {}
        codes: list[int] = []
        facts: list[Mapping[str, Any]] = []
        bases: list[tuple[str, bool]] = []  # of the values alone; whether the scan read them
        stored: dict[str, set[int]] = defaultdict(set)
        for schema in map(ArraySchema.loads, arrays.schema.values):
            base = _leave_out_units(schema, schema.decode_signature(stored=False))
            found = base if schema.whole else schema.decode_signature()
            key = json.dumps([schema.whole, normalize(found)], sort_keys=True)
            codes.append(numbers.setdefault(key, len(numbers)))
            if len(facts) < len(numbers):
                facts.append(found)
                bases.append((json.dumps(normalize(base), sort_keys=True), schema.whole))
                if not schema.whole:
                    stored[bases[-1][0]].add(codes[-1])
        admits = (
            stored[base] if is_whole and base in stored else {number}
            for number, (base, is_whole) in enumerate(bases)
        )
        first: dict[str, int] = {}  # number of a base, of referenced chunks where there are any
        for number in sorted(range(len(bases)), key=lambda at: bases[at][1]):
            first.setdefault(bases[number][0], number)
        narrow = np.min_scalar_type(len(numbers))
        made = cls(
            of_row=np.array(codes, narrow)[arrays.schema.codes],
            admits=tuple(map(frozenset, admits)),
            facts=tuple(facts),
            values=np.array([first[base] for base, _ in bases], np.int64),
        )
        return made if grids is None else made.cross(grids)

    def cross(self, grids: Grids) -> Signatures:
        """Return signatures that differ between grids, too."""
        many = len(grids.facts)
        pairs, of_row = np.unique(
            self.of_row.astype(np.int64) * many + grids.of_row, return_inverse=True
        )
        number = {pair: at for at, pair in enumerate(pairs.tolist())}
        every = [divmod(pair, many) for pair in number]
        return Signatures(
            of_row=of_row.astype(np.min_scalar_type(len(number))),
            admits=tuple(
                frozenset(
                    number[other * many + grid]
                    for other in self.admits[own]
                    if other * many + grid in number
                )
                for own, grid in every
            ),
            facts=tuple({**self.facts[own], **grids.facts[grid]} for own, grid in every),
            values=np.array(
                [
                    number.get(int(self.values[own]) * many + grid, at)
                    for at, (own, grid) in enumerate(every)
                ],
                np.int64,
            ),
        )


def _leave_out_units(schema: ArraySchema, signature: dict[str, Any]) -> dict[str, Any]:
    """Leave out how times are stored that can be recoded, and spell their calendar in one way."""
    units = units_to_count(schema.attributes.values) if schema.whole else None
    if units is None:
        return signature
    left = {*_OF_TIMES, "attribute dtype"} if units.calendar == DURATION else {*_OF_TIMES}
    kept = {name: value for name, value in signature.items() if name not in left}
    return {**kept, "attribute calendar": [units.calendar, None]}


def describe_difference(before: Mapping[str, Any], after: Mapping[str, Any]) -> str:
    """Say what is different in the signature ``after``; "" where nothing is."""
    unlike = differences(before, after)
    found = [part for name, (one, other) in unlike.items() for part in _describe(name, one, other)]
    return "; ".join(found)


def _describe(name: str, one: Any, other: Any) -> Sequence[str]:
    if name.startswith(_ATTRIBUTE):
        return (_describe_attribute(name.removeprefix(_ATTRIBUTE), one, other),)
    match name:
        case _ if name in {LENGTHS, VALUES}:
            are_lengths = isinstance(one, Mapping) and isinstance(other, Mapping)
            lengths = differences(one, other).items() if are_lengths else ()
            found = [f"length of {axis} {was} → {now}" for axis, (was, now) in lengths]
            return found if are_lengths else ["other values"]
        case "codecs":
            return _describe_codecs(one or [], other or [])
        case "chunk shape":
            return (f"chunks of {_box(one)} → {_box(other)}",)
        case "data type":
            name = "dtype"
        case "dimension names":
            return (f"dimensions {_names(one)} → {_names(other)}",)
        case _:
            pass
    return (f"{name} {_plain(one)} → {_plain(other)}",)


def _describe_attribute(name: str, one: Any, other: Any) -> str:
    if one is None:
        return f"{name} {_text_of(*other)} added"
    if other is None:
        return f"{name} {_text_of(*one)} removed"
    if one[0] == other[0] or _text_of(*one) == _text_of(*other):
        return f"{name} of type {one[1] or 'text'} → {other[1] or 'text'}"
    return f"{name} {_text_of(*one)} → {_text_of(*other)}"


def _text_of(value: Any, dtype: str | None) -> str:
    """Write a value as its own type does: 0.01, where a double would be 0.009999999776482582."""
    if dtype is None:
        return str(value)
    shown = restore({"": value}, {"": dtype})[""]
    return " ".join(map(str, np.atleast_1d(shown)))


def _describe_codecs(one: Sequence[Any], other: Sequence[Any]) -> Sequence[str]:
    """Name codecs that came and went, and settings of those that stayed."""
    before, after = {_name(each): each for each in one}, {_name(each): each for each in other}
    found = [f"{name} removed" for name in before if name not in after]
    found += [f"{name} added" for name in after if name not in before]
    for name, codec in before.items():
        if name in after and codec != after[name]:
            found += _describe_settings(name, _settings_of(codec), _settings_of(after[name]))
    if not found:
        found = [f"filters {' + '.join(before)} → {' + '.join(after)}"]
    return found


def _describe_settings(name: str, one: Mapping[str, Any], other: Mapping[str, Any]) -> list[str]:
    what = "byte order" if name == "bytes" else name
    return [
        f"{what}{'' if what != name else f' {key}'} {_plain(was)} → {_plain(now)}"
        for key, (was, now) in differences(one, other).items()
    ]


def _name(codec: Any) -> str:
    name = codec.get("name") if isinstance(codec, Mapping) else codec
    return str(name).removeprefix("numcodecs.")


def _settings_of(codec: Any) -> Mapping[str, Any]:
    found = codec.get("configuration") if isinstance(codec, Mapping) else None
    return found if isinstance(found, Mapping) else {}


def _box(edges: Any) -> str:
    return "×".join(map(str, edges or ())) or _NONE


def _names(names: Any) -> str:
    return f"({', '.join(map(str, names or ()))})"


def _plain(value: Any) -> str:
    if value is None:
        return _NONE
    if isinstance(value, Mapping) and "name" in value:
        return str(value["name"])
    return str(value)
