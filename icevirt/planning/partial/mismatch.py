"""Say how files encode one variable differently, in words of users, and which packings hold which.

Plans add what can be done, with its price: see `icevirt.planning.eras.report`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from icevirt.archive.facts import CatalogFacts
from icevirt.archive.joining import NUMBERS
from icevirt.archive.schema import MEMBERS, ArraySchema
from icevirt.errors import CombineError, Fix
from icevirt.model.attributes import members_of, restore
from icevirt.model.json import JSON
from icevirt.planning.combine.cf_packing import (
    can_renumber,
    decode,
    packing_of,
    same_packing,
)
from icevirt.planning.normal_form import differences
from icevirt.planning.partial.storage_cost import signature
from icevirt.planning.remedies import drop_fixes, fix
from icevirt.planning.times.units import says_since, units_of, units_to_count, why_unread

_ATTRIBUTE = "attribute "
_CALENDAR = "attribute calendar"
_UNITS = "attribute units"
_AS_READ = (
    "You can also write the units in the files like 'days since 2000-01-31 12:00:00', with a"
    " calendar of CF."
)
_FILL = "attribute _FillValue"
_MISSING = ("_FillValue", "missing_value")
_COMPARED = 64  # packings; each with each
_FACTS = ("bytes_needed", "other_encoding")  # of errors that another way of storing solves


def refusal(  # noqa: PLR0917 - the facts of one array
    facts: CatalogFacts,
    path: str,
    rows: NDArray[np.integer],
    schemas: Sequence[ArraySchema],
    codes: NDArray[np.integer],
    pair: tuple[int, int],
    *,
    stored: bool,
    has_steps: bool,
) -> CombineError:
    """Return the error for files that decode a variable differently.

    Args:
        facts: Of the catalog.
        path: Of the variable.
        rows: Its rows of the array columns.
        schemas: All that occur in the catalog.
        codes: Which of them each row has.
        pair: The two that cannot be in one array.
        stored: Whether they differ in how chunks are cut and encoded, not only in what values mean.
        has_steps: Whether it has a dimension along which files follow one another.
    """
    used, counts = np.unique(codes, return_counts=True)
    files: Counter[str] = Counter()
    for code, count in zip(used.tolist(), counts.tolist(), strict=True):
        if not (stored and schemas[code].whole):
            files[signature(schemas[code], stored=stored)] += count
    total = int(counts.sum())
    differ = sum(files.values()) - max(files.values())
    calendars = {code: _find_calendar(schemas[code]) for code in used.tolist()}
    if None not in calendars.values() and len({*calendars.values()}) > 1:
        # units and reference dates are converted, calendars never
        (begin, own), *others = calendars.items()
        pair = begin, next(code for code, each in others if each != own)
        shares: Counter[str | None] = Counter()
        for code, count in zip(used.tolist(), counts.tolist(), strict=True):
            shares[calendars[code]] += count
        differ = total - max(shares.values())
    one, other = (schemas[code] for code in pair)
    unlike = differences(one.decode_signature(stored=stored), other.decode_signature(stored=stored))
    held: Counter[str] = Counter()
    says = {code: _say(schemas[code], unlike, stored=stored) for code in used.tolist()}
    for code, count in zip(used.tolist(), counts.tolist(), strict=True):
        held[says[code]] += count
    if held[says[pair[1]]] > held[says[pair[0]]]:  # the odd one is the other one
        pair, one, other = pair[::-1], other, one
        unlike = {name: (theirs, mine) for name, (mine, theirs) in unlike.items()}
    if calendars[pair[0]] != calendars[pair[1]] and _CALENDAR in unlike:
        unlike = {_CALENDAR: unlike[_CALENDAR]}
    first, second = (facts.url_of(rows[int(np.argmax(codes == code))]) for code in pair)
    said = in_words(one, other, unlike)
    unread = None
    if _UNITS in unlike:
        unread = next(filter(None, (why_unread(schemas[c].attributes.values) for c in pair)), None)
    return CombineError(
        f"{path} is encoded differently in {differ:,} of {total:,} files: {', '.join(unlike)}"
        + (f", and {unread}" if unread else ""),
        do=_AS_READ if unread else "",
        fixes=[
            *_fix_units(path, [schemas[code] for code in used], unlike),
            *([] if has_steps else _give_steps(path, [schemas[code] for code in used], unlike)),
            *drop_fixes(facts.arrays, rows),
        ],
        variable=path,
        first=first,
        first_encoding=said[0],
        other=second,
        other_encoding=said[1],
    )


def _say(schema: ArraySchema, names: Iterable[str], *, stored: bool) -> str:
    """Return some of the facts of decoding as text, to be compared."""
    facts = schema.decode_signature(stored=stored)
    return repr([facts.get(name) for name in names])


def _find_calendar(schema: ArraySchema) -> str | None:
    """Return the calendar of times, one name for those that are one; None of other values."""
    units = units_of(schema.attributes.values)
    if units is None:
        return None
    return "standard" if units.calendar == "proleptic_gregorian" else units.calendar


def _fix_units(
    path: str, schemas: Sequence[ArraySchema], unlike: Mapping[str, object]
) -> list[Fix]:
    """Return the fix that gives all files the units that only some of them say."""
    said = {each.attributes.values.get("units") for each in schemas}
    known = [each for each in said if isinstance(each, str) and each]
    if {*unlike} != {_UNITS} or len(known) != 1 or says_since(known[0]):
        return []
    return [fix(f"files that say no units hold {known[0]}, too", attrs={path: {"units": known[0]}})]


def _give_steps(
    path: str, schemas: Sequence[ArraySchema], unlike: Mapping[str, object]
) -> list[Fix]:
    """Return the fix that gives times and durations of files, in units of each, a value a step."""
    if not {*unlike} <= {_UNITS, "data type", "attribute dtype"} or any(
        units_to_count(each.attributes.values) is None for each in schemas
    ):
        return []
    own = path if path.count("/") > 1 else path.strip("/")
    return [fix(f"{own} gets a value for each step", data_vars=[own])]


def is_about_storage(error: CombineError) -> bool:
    """Say whether files were refused because of how they store values."""
    return any(name in error.facts for name in _FACTS)


def in_words(
    one: ArraySchema, other: ArraySchema, unlike: Mapping[str, tuple[Any, Any]]
) -> tuple[str, str]:
    """Return the facts of decoding in which two schemas differ, as people write them."""
    # a fill value that differs is nearly always the attribute, too
    shown = {k: v for k, v in unlike.items() if k != "fill value" or _FILL not in unlike}
    pairs = [_describe_pair(one, other, name, facts) for name, facts in shown.items()]
    both = [", ".join(filter(None, said)) or "something else" for said in zip(*pairs, strict=True)]
    return (both[0], both[1]) if both else ("something else", "something else")


def _describe_pair(
    one: ArraySchema, other: ArraySchema, name: str, facts: tuple[Any, Any]
) -> tuple[str, str]:
    """Return a fact of two schemas; where both would read alike, with their types."""
    said = _describe_fact(one, name, facts), _describe_fact(other, name, facts)
    if said[0] == said[1] and name == "data type":
        return _describe_type(one.data_type), _describe_type(other.data_type)
    if said[0] != said[1] or not name.startswith(_ATTRIBUTE):
        return said
    kinds = (_kind_of_attribute(each, name[len(_ATTRIBUTE) :]) for each in (one, other))
    first, second = (f"{text} ({kind})" for text, kind in zip(said, kinds, strict=True))
    return first, second


def _kind_of_attribute(schema: ArraySchema, name: str) -> str:
    """Return the type of an attribute as NumPy calls it."""
    dtype = schema.attributes.dtypes.get(name)
    value = schema.attributes.values[name]
    kind = np.dtype(dtype).name if dtype else "text" if isinstance(value, str) else "list"
    return f"{kind}, an array" if dtype and isinstance(value, list) else kind


def _describe_fact(schema: ArraySchema, name: str, pair: tuple[Any, Any]) -> str:
    match name:
        case "data type":
            kind = schema.data_type
            return str(kind["name"] if isinstance(kind, Mapping) else kind)
        case "chunk shape":
            return f"chunks of {'×'.join(map(str, schema.chunk_shape or ()))}"
        case "dimension names":
            return f"dimensions ({', '.join(map(str, schema.dimension_names))})"
        case "codecs":
            orders = [_find_byte_order(codec) for codecs in pair for codec in codecs or ()]
            is_swapped = {"big", "little"} <= set(orders)
            return ", ".join(_describe_codecs(schema, with_order=is_swapped))
        case "fill value":
            return f"fill value {schema.fill_value}"
        case _:
            is_named = name == MEMBERS
            return (
                _describe_members(schema)
                if is_named
                else _describe_attribute(schema, name[len(_ATTRIBUTE) :])
            )


def _describe_type(data_type: JSON) -> str:
    """Return a data type with the lengths, units or fields that its name does not say."""
    if not isinstance(data_type, Mapping):
        return str(data_type)
    made = data_type.get("configuration")
    said = made if isinstance(made, Mapping) else {}
    return f"{data_type['name']} ({', '.join(map(_describe_setting, said.items()))})"


def _describe_setting(setting: tuple[str, JSON]) -> str:
    """Return a length or unit of a data type, or its fields."""
    name, value = setting
    if not isinstance(value, list):
        return f"{name} {value}"
    fields = (each for each in value if isinstance(each, Mapping))
    return ", ".join(
        f"{each.get('name')}: {_describe_type(each.get('data_type'))}" for each in fields
    )


def _describe_attribute(schema: ArraySchema, name: str) -> str:
    if name not in schema.attributes.values:
        return f"no {name}"
    dtype = schema.attributes.dtypes.get(name)
    kept = {name: schema.attributes.values[name]}
    value: Any = kept[name] if dtype is None else restore(kept, {name: dtype})[name]
    shown = value if isinstance(value, str) else " ".join(map(str, np.atleast_1d(value)))
    return f"{name} {shown}"


def _describe_members(schema: ArraySchema) -> str:
    """Return what the numbers of a variable are called, those of a field behind its name."""

    def describe(named: Any) -> str:
        if "fields" in named:
            return "; ".join(
                f"{field}: {describe(each)}" for field, each in named["fields"].items()
            )
        return ", ".join(f"{name}={number}" for name, number in named["enum"].items())

    named = members_of(schema.attributes)
    return "no members" if named is None else f"members {describe(named)}"


def _describe_codecs(schema: ArraySchema, *, with_order: bool) -> list[str]:
    """Return the filters in the order in which they are applied, with their levels."""
    found = []
    for codec in schema.codecs:
        if (order := _find_byte_order(codec)) is not None:
            found += [f"{order}-endian"] if with_order else []
            continue
        name = str(codec["name"] if isinstance(codec, Mapping) else codec)
        made = codec.get("configuration") if isinstance(codec, Mapping) else None
        level = made.get("level", made.get("clevel")) if isinstance(made, Mapping) else None
        short = name.removeprefix("numcodecs.")
        found.append(short if level is None else f"{short}({level})")
    is_plain = len(found) == int(with_order)
    return [*found, *(["not compressed"] if is_plain else [])]


def _find_byte_order(codec: Any) -> str | None:
    """Return the byte order that a codec writes; None of codecs that only change bytes."""
    if not isinstance(codec, Mapping) or codec.get("name") != "bytes":
        return None
    made = codec.get("configuration")
    return str(made.get("endian", "little")) if isinstance(made, Mapping) else "little"


# -- packings that hold what others hold ---------------------------------------------------------


def holds(target: ArraySchema, source: ArraySchema) -> bool:
    """Say whether every value of a packing has the same meaning in another one.

    A value of the source that is the target's missing value is the exception, which stops a build.
    """
    mine, theirs = packing_of(target.attributes), packing_of(source.attributes)
    scaling, other = ({k: v for k, v in p.items() if k not in _MISSING} for p in (mine, theirs))
    if not same_packing(scaling, other) or not _names_all(target, source):
        return False
    if not {str(target.data_type), str(source.data_type)} <= NUMBERS:
        return target.data_type == source.data_type
    into, of = np.dtype(str(target.data_type)), np.dtype(str(source.data_type))
    is_marked = any(name in mine for name in _MISSING) or into.kind == "f"
    if any(name in theirs for name in _MISSING) and not is_marked:
        return False
    if scaling and decode(np.zeros(1, into), mine).dtype != decode(np.zeros(1, of), theirs).dtype:
        return False  # scaled in another precision
    if into == of:
        return True
    exact = not (of.kind in "iu" and into.kind == "f" and of.itemsize > 4)
    return not scaling and exact and np.can_cast(of, into, "safe")


def _names_all(target: ArraySchema, source: ArraySchema) -> bool:
    """Say whether an enumeration has all members of another one, by whatever number."""
    mine, theirs = (members_of(each.attributes) for each in (target, source))
    if not can_renumber(mine, theirs):
        return mine == theirs
    names: list[set[str]] = [{*each["enum"]} for each in (mine, theirs)]  # type: ignore[index,call-overload,misc]
    return names[0] >= names[1]


def other_missing(target: ArraySchema, source: ArraySchema) -> bool:
    """Say whether a packing has a missing value that is a number in another one."""
    mine, theirs = (
        {
            number
            for name, value in packing_of(each.attributes).items()
            if name in _MISSING and not isinstance(value, str)
            for number in np.atleast_1d(value).tolist()
            if not isinstance(number, str | bytes)
        }
        for each in (target, source)
    )
    return any(number not in theirs for number in mine if number == number)  # noqa: PLR0124 - NaN


def holding(schemas: Sequence[ArraySchema]) -> list[bool]:
    """Say which of some packings hold the values of all others."""
    if len(schemas) > _COMPARED:
        return [False] * len(schemas)
    return [all(holds(target, each) for each in schemas) for target in schemas]
