"""Refuse steps that no file of an array holds, or reserve them so that they read as missing.

An unwritten chunk reads as the array's Zarr fill value. That is a gap only if a reader takes this
value for "missing": if it is the ``_FillValue`` (or ``missing_value``) of the array, or NaN. HDF5's
own fill value is often 0, which is a plausible amount of rain. So the fill value is set to the
missing one. If files have unwritten chunks of their own, which must go on reading as what HDF5
shows for them, nothing can be reserved.
"""

from __future__ import annotations

import math
from base64 import standard_b64encode
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from icevirt.archive.facts import CatalogFacts
from icevirt.archive.joining import find_fixed_dtype
from icevirt.archive.schema import ArraySchema
from icevirt.errors import CombineError, Fix
from icevirt.model import paths
from icevirt.model.json import JSON
from icevirt.planning.axes.axis import NOWHERE, AxisSteps, CombinedVariable
from icevirt.planning.axes.dimension_scopes import ABSENT, DimensionScopes
from icevirt.planning.combine.cf_packing import packing_of
from icevirt.planning.combine.options import Missing
from icevirt.planning.remedies import drop_fixes, fix, list_names
from icevirt.planning.times.units import DECODED_DURATIONS, missing_of
from icevirt.remedy_notation import write_option, write_remedy

_SHOWN = 5  # places in a message
_NAMED = 5  # variables
_UTF32 = "fixed_length_utf32"
_WHERE_DECODED = ", for readers that decode durations (decode_timedelta=True of xarray)"
_UNUSED = {  # NC_FILL of netcdf.h
    "int8": -127,
    "uint8": 255,
    "int16": -32_767,
    "uint16": 65_535,
    "int32": -2_147_483_647,
    "uint32": 4_294_967_295,
    "int64": -9_223_372_036_854_775_806,
}


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Gap:
    """What of an array no file holds: whole boxes, steps between them, ends of ragged axes."""

    missing: int  # boxes
    of: int  # boxes in all
    along: tuple[str, ...]  # dimensions
    first: str  # what people call the first of them; "" where there is none
    lengths: tuple[NDArray[np.int64], ...]  # elements of each cell, by axis
    fill: JSON  # what they read as

    def readable(self, schema: ArraySchema) -> ArraySchema:
        """Return the schema with the fill value that readers take for "missing"."""
        return replace(schema, fill_value=self.fill)


def can_reserve(schemas: Iterable[ArraySchema]) -> bool:
    """Say whether steps that lack a variable could read as missing, whatever files hold."""
    return all(missing_value(each) is not None for each in schemas)


def find(
    facts: CatalogFacts, members: Sequence[CombinedVariable], *, rule: Missing
) -> dict[str, Gap]:
    """Return the gaps of the arrays that have some, by path.

    Raises:
        CombineError: There are some, and they were not asked to be reserved, or cannot be.
    """
    found: dict[str, Gap] = {}
    refused: list[tuple[CombinedVariable, int, NDArray[np.int64]]] = []
    wrong = []
    scopes = cache(partial(DimensionScopes.of, facts))
    for member in members:
        counts = tuple(axis.count for axis in member.along)
        there = _places(member, counts)
        missing = math.prod(counts) - len(there)
        if (not missing and not member.is_incomplete) or steps_of_label(member) is not None:
            continue  # nothing is missing, or a coordinate whose steps are all known
        # rank: how many are missing before each that is there
        wanted, rank = np.arange(min(_SHOWN, missing)), there - np.arange(len(there))
        flat = wanted + np.searchsorted(rank, wanted, side="right")
        first = np.stack(np.unravel_index(flat, counts), axis=1)
        if missing and rule == "refuse":
            refused.append((member, missing, first))
            continue
        fill, why = ("NaN", "") if member.as_floats else _fill(facts, member)
        if why:
            wrong.append((member, why))
            continue
        found[member.path] = Gap(
            missing=missing,
            of=math.prod(counts),
            along=tuple(axis.dimension for axis in member.along),
            first=_call(member, first[0]) if missing else "",
            lengths=tuple(_cell_lengths(facts, scopes, member, at) for at in range(len(counts))),
            fill=fill,
        )
    if refused:
        raise _refusal(facts, refused)
    if wrong:
        raise _refusal_to_reserve(facts, wrong)
    return found


def _places(member: CombinedVariable, counts: Sequence[int]) -> NDArray[np.int64]:
    """Return the numbers of the cells that have files, each once; files are in their order."""
    if not counts:
        return np.zeros(1, np.int64)
    flat: NDArray[np.int64] = np.ravel_multi_index(tuple(member.cell.T), tuple(counts))
    new = np.ones(len(flat), np.bool_)
    new[1:] = flat[1:] != flat[:-1]
    return flat if new.all() else flat[new]


def _call(member: CombinedVariable, box: NDArray[np.int64]) -> str:
    pairs = zip(member.along, box.tolist(), strict=True)
    return ", ".join(f"{axis.dimension}={axis.name(cell)}" for axis, cell in pairs)


def _refusal(
    facts: CatalogFacts, absent: Sequence[tuple[CombinedVariable, int, NDArray[np.int64]]]
) -> CombineError:
    """Return the error; files that lie in the first of the boxes and lack the array are named.

    Args:
        facts: Of the files.
        absent: Variables that some boxes lack, how many, and the first of them.
    """
    member, missing, first = absent[0]
    count = math.prod(axis.count for axis in member.along)
    names = ", ".join(repr(axis.dimension) for axis in member.along)
    gone = [each for each, _, _ in absent]
    others = list_names([each.path for each in gone[1:]], _NAMED)
    lacking = np.ones(len(facts.files), np.bool_)
    for axis, cell in zip(member.along, first[0].tolist(), strict=True):
        lacking &= axis.cell == cell
    of_files: dict[str, Any] = {"first": None}
    if lacking.any():
        of_files = {
            "first": facts.files.url[int(np.argmax(lacking))],
            "first_has": f"no {member.path}",
            "other": facts.url_of(member.rows[0]),
            "other_has": member.path,
        }
    return CombineError(
        f"variable {member.path} is missing at {missing} of {count} file positions along"
        f" {names}{f', as well as {others} at some' if others else ''}",
        fixes=[
            fix("these steps read as missing values", missing="reserve"),
            *_without(facts, gone),
        ],
        do="You can also leave out files.",
        variable=member.path,
        missing=[_call(member, box) for box in first],
        **of_files,
    )


def _without(facts: CatalogFacts, gone: Sequence[CombinedVariable]) -> list[Fix]:
    return drop_fixes(facts.arrays, np.concatenate([each.rows for each in gone]))


def _cell_lengths(
    facts: CatalogFacts, scopes: Callable[[str], DimensionScopes], member: CombinedVariable, at: int
) -> NDArray[np.int64]:
    """Return the length of each cell along an axis: the member's own, else that of its file's."""
    axis = member.along[at]
    known = scopes(axis.dimension)
    held = known.lengths[known.owner[paths.parent(member.path)]]
    lengths = np.full(axis.count, ABSENT, np.int64)
    there = np.flatnonzero((held != ABSENT) & (axis.cell != NOWHERE))
    lengths[axis.cell[there]] = held[there]
    lengths[member.cell[:, at]] = member.lengths[:, at]
    unknown = np.flatnonzero(lengths == ABSENT)
    if len(unknown):
        raise CombineError(
            f"the number of steps of {member.path} that are missing in a file is unknown",
            fixes=_without(facts, [member]),
            do="You can also leave the file out.",
            variable=member.path,
            file=facts.files.url[int(np.argmax(axis.cell == unknown[0]))],
        )
    return lengths


def steps_of_label(member: CombinedVariable) -> AxisSteps | None:
    """Return all steps of an axis, if the array is their coordinate."""
    steps = (axis.steps for axis in member.along if axis.steps is not None)
    return next((each for each in steps if each.path == member.path), None)


def _fill(facts: CatalogFacts, member: CombinedVariable) -> tuple[JSON, str]:
    """Return the fill value with which unwritten chunks read as missing, or why there is none."""
    wanted = missing_value(member.schema)
    if member.spells and len(member.schema.dimension_names) - 1 in member.ragged:
        wanted = ""  # readers end texts at a NUL
    if member.schema.dimension_names == (paths.name(member.path),):
        return None, "it is a coordinate"
    if wanted is None:
        return None, "it has no _FillValue that its data type can hold"
    used, codes = np.unique(facts.arrays.schema.codes[member.rows], return_inverse=True)
    schemas = [ArraySchema.loads(facts.arrays.schema.values[code]) for code in used.tolist()]
    other = np.array([not _equal(each.fill_value, wanted) for each in schemas])[codes]
    if not other.any():
        return member.schema.fill_value, ""
    if member.whole.all():
        return wanted, ""  # of values that are stored, what is missing is stored too
    counts = facts.arrays.virtual[member.rows] + facts.arrays.inline[member.rows]
    whole = (1,) * member.shapes.shape[1]
    edges = np.array([each.chunk_shape or whole for each in schemas], np.int64)
    full = np.prod(-(-member.shapes // edges.reshape(len(used), -1)[codes]), axis=1)
    sparse = other & ~member.whole & member.alike & (counts < full)
    if sparse.any():
        has = schemas[int(codes[int(np.argmax(sparse))])].fill_value
        return None, (
            f"some of its chunks were never written and read as {has!r}, not as its missing value "
            f"{wanted!r}"
        )
    return wanted, ""


def _refusal_to_reserve(
    facts: CatalogFacts, wrong: Sequence[tuple[CombinedVariable, str]]
) -> CombineError:
    (member, why), gone = wrong[0], [each for each, _ in wrong]
    others = list_names([each.path for each in gone[1:]], _NAMED)
    names = list_names([each.path for each in gone], _NAMED)
    size = sum(math.prod(map(int, each.shapes.max(axis=0))) * len(each.rows) for each in gone)
    do = write_remedy(
        "If it is the same in all files, name in ",
        write_option("data_vars"),
        " only the other variables that get the new dimension.",
    )
    return CombineError(
        f"steps of variable {member.path} cannot be reserved, because {why}"
        f"{f'; neither can steps of {others}' if others else ''}",
        fixes=[
            fix(
                f"{names} {'is' if len(gone) == 1 else 'are'} stored in the repository as floats,"
                f" up to {8 * size:,} bytes; missing steps are NaN",
                float_variables=[each.path for each in gone],
            ),
            *_without(facts, gone),
            *_with_missing_values(gone),
        ],
        do=do if any(axis.is_new for axis in member.along) else "",
        variable=member.path,
        first=facts.url_of(member.rows[0]),
    )


def _with_missing_values(gone: Sequence[CombinedVariable]) -> list[Fix]:
    """Return the fix that takes what netCDF calls unwritten for missing, of integers.

    xarray shows a missing duration of integers as the least of 64 bits, unless it decodes them.
    """
    unused = {each.path: _UNUSED.get(str(each.schema.data_type)) for each in gone}
    if None in unused.values() or any(missing_value(each.schema) is not None for each in gone):
        return []
    said = {path: {"_FillValue": value} for path, value in unused.items()}
    values = list_names(
        [f"{value} in {paths.name(path)}" for path, value in unused.items()], _NAMED
    )
    units = {each.schema.attributes.values.get("units") for each in gone}
    if_decoded = "" if units.isdisjoint(DECODED_DURATIONS) else _WHERE_DECODED
    return [fix(f"{values} reads as missing, wherever it stands{if_decoded}", attrs=said)]


def missing_value(schema: ArraySchema) -> JSON:  # noqa: PLR0911 - a case, a line
    """Return the value that readers take for "missing", as zarr spells it; None if there is none.

    It is the ``_FillValue`` or ``missing_value``; of floats and complex numbers that have neither,
    NaN. Texts that have neither read as empty.
    """
    kind = schema.data_type
    if (text := _missing_text(schema)) is not None:
        return text
    try:
        dtype = np.dtype(kind) if isinstance(kind, str) else None
    except TypeError:
        return None
    if dtype is not None and dtype.kind == "c":
        packing = packing_of(schema.attributes)
        said = [packing[name] for name in ("_FillValue", "missing_value") if name in packing]
        numbers = [each for each in said if isinstance(each, np.number)]
        held = np.complex128(numbers[0] if numbers else complex(math.nan, math.nan))
        return [_spell(held.real), _spell(held.imag)]
    if dtype is None or dtype.kind not in "iuf":
        return None
    for value in missing_of(schema.attributes):
        # the attribute of unsigned data packed as signed may be of either sign; its bits count
        if dtype.kind in "iu" and isinstance(value, int):
            if np.iinfo(dtype).min <= value <= np.iinfo(dtype).max:
                return value
        elif dtype.kind == "f":
            return _spell(dtype.type(value))
    return "NaN" if dtype.kind == "f" else None


def _spell(number: np.floating[Any]) -> JSON:
    return "NaN" if np.isnan(number) else float(number)


def _missing_text(schema: ArraySchema) -> str | None:
    """Return the text that means "missing"; None for arrays of something else."""
    held = (schema.attributes.values.get(name) for name in ("_FillValue", "missing_value"))
    text = next((each for each in held if isinstance(each, str)), "")
    kind = schema.data_type
    if kind == "string" or (isinstance(kind, Mapping) and kind.get("name") == _UTF32):
        return text
    dtype = find_fixed_dtype(kind)
    if dtype is None or dtype.kind != "S":
        return None
    raw = text.encode()
    return standard_b64encode(raw if len(raw) <= dtype.itemsize else b"").decode()


def _equal(one: JSON, other: JSON) -> bool:
    if isinstance(one, int | float) and isinstance(other, int | float):
        return one == other or (math.isnan(one) and math.isnan(other))
    return one == other


def describe_gaps(found: Mapping[str, Gap]) -> list[str]:
    """Return a line for each array with gaps."""
    return [
        f"{path} has no file at {gap.missing} of {gap.of} file positions along "
        f"{', '.join(map(repr, gap.along))}; they read as missing ({gap.fill}); the first: "
        f"{gap.first}"
        for path, gap in found.items()
        if gap.missing
    ]
