"""Number the decode signatures of arrays per file, in which eras differ, and describe differences.

Times are labels: "hours since" another date in every file makes no era, and neither does a
compression level. Neither does it matter whether the scan read the values: such arrays are encoded
anew, as the referenced ones are.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from icevirt.archive.facts import ArrayColumns
from icevirt.archive.schema import ArraySchema, differences
from icevirt.archive.times import DURATION
from icevirt.model.attributes import restore
from icevirt.planning.eras.grids import LENGTHS, VALUES, Grids
from icevirt.planning.times.units import counted_units

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
            base = _without_units(schema, schema.decode_signature(stored=False))
            found = base if schema.whole else schema.decode_signature()
            key = json.dumps([schema.whole, found], sort_keys=True)
            codes.append(numbers.setdefault(key, len(numbers)))
            if len(facts) < len(numbers):
                facts.append(found)
                bases.append((json.dumps(base, sort_keys=True), schema.whole))
                if not schema.whole:
                    stored[bases[-1][0]].add(codes[-1])
        admits = (
            stored[base] if is_whole and base in stored else {number}
            for number, (base, is_whole) in enumerate(bases)
        )
        narrow = np.min_scalar_type(len(numbers))
        made = cls(
            of_row=np.array(codes, narrow)[arrays.schema.codes],
            admits=tuple(map(frozenset, admits)),
            facts=tuple(facts),
            values=_first_stored(bases),
        )
        return made if grids is None else made.crossed(grids)

    def crossed(self, grids: Grids) -> Signatures:
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


def _first_stored(bases: Sequence[tuple[str, bool]]) -> NDArray[np.int64]:
    """Return the first number of each base, of chunks that are referenced where there are any."""
    first: dict[str, int] = {}
    for number in sorted(range(len(bases)), key=lambda number: bases[number][1]):
        first.setdefault(bases[number][0], number)
    return np.array([first[base] for base, _ in bases], np.int64)


def _without_units(schema: ArraySchema, signature: dict[str, Any]) -> dict[str, Any]:
    """Leave out how times are stored that can be recoded, and spell their calendar in one way."""
    units = counted_units(schema.attributes.values) if schema.whole else None
    if units is None:
        return signature
    left = {*_OF_TIMES, "attribute dtype"} if units.calendar == DURATION else {*_OF_TIMES}
    kept = {name: value for name, value in signature.items() if name not in left}
    return {**kept, "attribute calendar": [units.calendar, None]}


def describe_difference(before: Mapping[str, Any], after: Mapping[str, Any]) -> str:
    """Say what is different in the signature ``after``; "" where nothing is."""
    unlike = differences(before, after)
    found = [part for name, (one, other) in unlike.items() for part in _part(name, one, other)]
    return "; ".join(found)


def _part(name: str, one: Any, other: Any) -> Sequence[str]:
    if name.startswith(_ATTRIBUTE):
        return (_attribute(name.removeprefix(_ATTRIBUTE), one, other),)
    match name:
        case _ if name in {LENGTHS, VALUES}:
            return _of_grid(one, other)
        case "codecs":
            return _codecs(one or [], other or [])
        case "chunk shape":
            return (f"chunks of {_box(one)} → {_box(other)}",)
        case "data type":
            name = "dtype"
        case "dimension names":
            return (f"dimensions {_names(one)} → {_names(other)}",)
        case _:
            pass
    return (f"{name} {_plain(one)} → {_plain(other)}",)


def _of_grid(one: Any, other: Any) -> Sequence[str]:
    """Say what is different between two grids: lengths, or else the values of a coordinate."""
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        unlike = differences(one, other).items()
        return [f"length of {axis} {was} → {now}" for axis, (was, now) in unlike]
    return ("other values",)


def _attribute(name: str, one: Any, other: Any) -> str:
    if one is None:
        return f"{name} {_value(*other)} added"
    if other is None:
        return f"{name} {_value(*one)} removed"
    if one[0] == other[0] or _value(*one) == _value(*other):
        return f"{name} of type {one[1] or 'text'} → {other[1] or 'text'}"
    return f"{name} {_value(*one)} → {_value(*other)}"


def _value(value: Any, dtype: str | None) -> str:
    """Write a value as its own type does: 0.01, where a double would be 0.009999999776482582."""
    if dtype is None:
        return str(value)
    shown = restore({"": value}, {"": dtype})[""]
    return " ".join(map(str, np.atleast_1d(shown)))


def _codecs(one: Sequence[Any], other: Sequence[Any]) -> Sequence[str]:
    """Name codecs that came and went, and settings of those that stayed."""
    before, after = {_name(each): each for each in one}, {_name(each): each for each in other}
    found = [f"{name} removed" for name in before if name not in after]
    found += [f"{name} added" for name in after if name not in before]
    for name, codec in before.items():
        if name in after and codec != after[name]:
            found += _settings(name, _settings_of(codec), _settings_of(after[name]))
    if not found:
        found = [f"filters {' + '.join(before)} → {' + '.join(after)}"]
    return found


def _settings(name: str, one: Mapping[str, Any], other: Mapping[str, Any]) -> list[str]:
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
