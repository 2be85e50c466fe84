"""Let indices count all elements of a dataset where several files follow one another.

The numbers of a file grow by how many elements lie before its own. Some mean "no element": declared
missing values, those below the first element, and the greatest one of a type where the file has
fewer elements. They stay where all files say it in one way and the numbers of the dataset do not
reach them; else all become one fill value. Other numbers beyond the last element of the file are
refused: then the file counts otherwise than it says.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from icevirt.archive.facts import CatalogFacts
from icevirt.archive.index_shift import IndexShift
from icevirt.archive.joining import find_fixed_dtype
from icevirt.archive.schema import ArraySchema
from icevirt.errors import CombineError
from icevirt.model import paths
from icevirt.model.attributes import Attributes
from icevirt.planning.axes.axis import NOWHERE, AxisPlacement, Placement
from icevirt.planning.axes.dimension_scopes import DimensionScopes
from icevirt.planning.meaning.local_indices import START, LocalIndex
from icevirt.planning.times.units import missing_of

_PACKED = ("scale_factor", "add_offset")


def index_shift(
    facts: CatalogFacts,
    rows: NDArray[np.integer],
    path: str,
    index: LocalIndex,
    cells: Placement,
) -> IndexShift:
    """Return what is added to the numbers of each file.

    Args:
        facts: Of the files.
        rows: Of the array columns: the index in each file, in the order of the dataset.
        path: Of the index.
        index: What it numbers: elements along one dimension, which is placed.
        cells: Where files lie.

    Raises:
        CombineError: A file has no variable along what is numbered, or packs the numbers.
    """
    (dimension,) = index.numbers
    group = index.group or paths.parent(path)
    (axis,) = cells.along(paths.join(group, dimension), [dimension])
    lengths = DimensionScopes.of(facts, dimension).lengths_for(group)
    assert lengths is not None, "files are placed along it"
    begins, total = _begins(axis, lengths)
    files = facts.arrays.file[rows]
    if (lost := (axis.cell[files] == NOWHERE) | (lengths[files] < 0)).any():
        raise CombineError(
            f"{path} numbers elements along {dimension!r}, and a file that holds it has no variable"
            " along that dimension, so their number is unknown",
            do="Leave the file or the variable out.",
            variable=path,
            file=facts.url_of(rows[int(np.argmax(lost))]),
        )
    used, own = facts.arrays.schema.renumber(rows)
    schemas = [ArraySchema.loads(facts.arrays.schema.values[code]) for code in used.tolist()]
    for each in schemas:
        _refuse_odd_numbers(each, path)
    firsts = np.array([first_of(each, index) for each in schemas], np.int64)[own]
    start = int(firsts[0])
    return IndexShift(
        dimension=dimension,
        first=firsts,
        count=lengths[files],
        added=begins[axis.cell[files]] + start - firsts,
        start=start,
        total=total,
        fill=_find_fill(schemas, firsts, total),
    )


def _begins(axis: AxisPlacement, lengths: NDArray[np.int64]) -> tuple[NDArray[np.int64], int]:
    """Return the element at which each cell begins, and the elements of all."""
    if axis.steps is not None:
        return axis.steps.begins, len(axis.steps.values)
    there = (axis.cell != NOWHERE) & (lengths > 0)
    of_cell = np.zeros(axis.count, np.int64)
    of_cell[axis.cell[there]] = lengths[there]
    return np.cumsum(of_cell) - of_cell, int(of_cell.sum())


def first_of(schema: ArraySchema, index: LocalIndex) -> int:
    """Return the number of the first element in files of a schema."""
    said = schema.attributes.values.get(START)
    return int(said) if isinstance(said, int | float) else index.first


def _refuse_odd_numbers(schema: ArraySchema, path: str) -> None:
    dtype = find_fixed_dtype(schema.data_type)
    said = schema.attributes.values
    why = ""
    if not {*_PACKED}.isdisjoint(said):
        why = "packed"
    elif dtype is None or dtype.kind not in "iuf":
        why = f"{schema.data_type} and no numbers"
    elif {"i": "true", "u": "false"}.get(dtype.kind) == str(said.get("_Unsigned")).lower():
        why = f"{schema.data_type}, and _Unsigned says that they are something else"
    if why:
        raise CombineError(
            f"{path} numbers elements, but its values are {why}",
            do="Leave the variable out, or build each file into a group of its own.",
            variable=path,
        )


def _find_fill(
    schemas: Sequence[ArraySchema], firsts: NDArray[np.int64], total: int
) -> int | float | None:
    """Return the number for "no element" in the dataset; None where those of files can stay."""
    start, end = int(firsts[0]), int(firsts[0]) + total
    known = [numbers_of_none(each) for each in schemas]
    dtype = _dtype_for(schemas, end)
    is_one = len({*map(frozenset, known)}) == 1 and (firsts == start).all()
    is_apart = not any(start <= number < end for numbers in known for number in numbers)
    if is_one and is_apart and all(each.data_type == dtype.name for each in schemas):
        return None
    if dtype.kind == "f":
        return float("nan")
    free = [int(n) for n in known[0] if not start <= n < end and _holds(dtype, n)]
    return [*free, -1 if dtype.kind == "i" and start >= 0 else int(np.iinfo(dtype).max)][0]


def _holds(dtype: np.dtype[Any], number: float) -> bool:
    limits = np.iinfo(dtype)
    return float(number).is_integer() and limits.min <= int(number) <= limits.max


def _dtype_for(schemas: Sequence[ArraySchema], last: int) -> np.dtype[Any]:
    """Return the data type of numbers up to one, a file's own where that holds it."""
    return max((_wide_enough(each, last) for each in schemas), key=lambda each: each.itemsize)


def _wide_enough(schema: ArraySchema, last: int) -> np.dtype[Any]:
    own = np.dtype(str(schema.data_type))
    if own.kind == "f":
        return own if last <= 2 ** (np.finfo(own).nmant + 1) else np.dtype(np.float64)
    wider = (np.dtype(f"{own.kind}{size}") for size in (own.itemsize, 1, 2, 4, 8))
    return next(
        each for each in wider if each.itemsize >= own.itemsize and last < np.iinfo(each).max
    )


def schema_of_shift(
    schema: ArraySchema, schemas: Sequence[ArraySchema], shift: IndexShift
) -> ArraySchema:
    """Return the schema of numbers that count elements of the dataset.

    Args:
        schema: Of the array.
        schemas: Of the files.
        shift: What is added.
    """
    dtype = _dtype_for(schemas, shift.start + shift.total)
    attributes = schema.attributes
    if START in attributes.values:
        attributes |= Attributes.of({START: np.int32(shift.start)})
    if shift.fill is not None:
        kept = attributes.without("_FillValue", "missing_value")
        attributes = kept | Attributes.of({"_FillValue": dtype.type(shift.fill)})
    return replace(schema, data_type=dtype.name, attributes=attributes)


def numbers_of_none(schema: ArraySchema) -> list[float]:
    """Return the numbers that mean "no element" in files of a schema, but for NaN."""
    return [number for number in missing_of(schema.attributes) if not np.isnan(number)]


class BeyondError(ValueError):
    """A number of no element of its file; the text says which."""


def shift_values(
    values: NDArray[Any],
    shift: IndexShift,
    place: int,
    *,
    missing: Sequence[float],
    dtype: np.dtype[Any],
) -> NDArray[Any]:
    """Return the numbers of one file as the dataset counts.

    Args:
        values: As the file has them.
        shift: What is added.
        place: The row of the file in it.
        missing: Numbers that mean "no element".
        dtype: Of the result.

    Raises:
        BeyondError: One is of no element of the file.
    """
    first, count = int(shift.first[place]), int(shift.count[place])
    is_none = _is_declared(values, missing)
    if values.dtype.kind == "f":
        beyond = ~is_none & ((values != np.floor(values)) | (values >= first + count))
    else:
        is_above = values >= first + count
        is_none |= is_above & (values == np.iinfo(values.dtype).max)
        beyond = ~is_none & is_above
    if beyond.any():
        raise BeyondError(f"{values[beyond][0]}")
    is_element = ~is_none & (values >= first)
    made = values.astype(dtype)
    if shift.fill is not None:
        made[~is_element] = shift.fill
    made[is_element] = values[is_element].astype(np.int64) + int(shift.added[place])
    return made


def _is_declared(values: NDArray[Any], missing: Sequence[float]) -> NDArray[np.bool_]:
    """Say which numbers mean "no element" because a file says so, or are NaN."""
    if values.dtype.kind == "f":
        return np.isin(values, np.array(missing, values.dtype)) | np.isnan(values)
    held = [int(each) for each in missing if _holds(values.dtype, each)]
    return np.isin(values, np.array(held, values.dtype))


def is_shifted(
    mine: NDArray[Any], theirs: NDArray[Any], schema: ArraySchema, index: LocalIndex
) -> bool:
    """Say whether numbers of a dataset are those of a file, all elements of which moved alike.

    Args:
        mine: Of the dataset.
        theirs: Of the file.
        schema: Of the index in the file.
        index: What it numbers.
    """
    is_none = _is_declared(theirs, numbers_of_none(schema)) | ~(theirs >= first_of(schema, index))
    # the greatest number is an element, or means none, by how many elements the file has
    may_be = theirs == (np.inf if theirs.dtype.kind == "f" else np.iinfo(theirs.dtype).max)
    sure = ~is_none & ~may_be
    apart = mine[sure].astype(np.int64) - theirs[sure].astype(np.int64)
    if len(apart) and (apart != apart[0]).any():
        return False
    fill = mine[is_none & (mine != theirs)]
    stays = (mine == theirs) | (np.isnan(mine) if mine.dtype.kind == "f" else False)
    if len(apart):
        stays |= may_be & (mine == theirs.astype(np.float64) + apart[0])
    if len(fill):
        stays |= mine == fill[0]
    elif len(filled := mine[may_be & ~stays]):
        stays |= mine == filled[0]
    return bool(stays[~sure].all())
