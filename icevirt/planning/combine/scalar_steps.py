"""Take a file whose coordinate is one value for a file of one step, where other files have steps.

Tools save a single step without its dimension: Iris, and ``ds.isel(time=0)`` of xarray. Among files
that have the dimension, such a file is a step of it. Its variables lack an axis that they have in
others, which `ArraySchema.lacks` tells. What has no such axis in any file stays as it is.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial

import numpy as np
from numpy.typing import NDArray

from icevirt.archive.facts import ArrayColumns, CatalogFacts, Coded
from icevirt.archive.schema import ArraySchema
from icevirt.model import paths

_SCALAR = '"dimension_names": []'  # in the text of a schema

type _Names = tuple[str | None, ...]


def with_scalars_as_steps(facts: CatalogFacts, dimensions: Sequence[str]) -> CatalogFacts:
    """Return the facts of files with one value of a coordinate as those of files with one step.

    Args:
        facts: Of the catalog.
        dimensions: Along which files are concatenated.
    """
    for code, path in enumerate(facts.arrays.path.values):
        if (name := paths.name(path)) in dimensions:
            arrays = _with_steps(facts.arrays, code, name, len(facts.files))
            facts = facts if arrays is facts.arrays else replace(facts, arrays=arrays)
    return facts


def _with_steps(arrays: ArrayColumns, coordinate: int, name: str, files: int) -> ArrayColumns:
    """Return the arrays of the files, whose coordinate ``name`` is an array with this code."""
    here = np.flatnonzero(arrays.path.codes == coordinate)
    is_scalar = np.array([_SCALAR in text for text in arrays.schema.values], np.bool_)
    scalar = is_scalar[arrays.schema.codes[here]]
    if scalar.all() or not scalar.any():
        return arrays
    lone = np.zeros(files, np.bool_)
    lone[arrays.file[here[scalar]]] = True
    group = paths.parent(arrays.path.values[coordinate]).rstrip("/")
    schema, shape = (each.codes.astype(np.int64) for each in (arrays.schema, arrays.shape))
    schemas, shapes = list(arrays.schema.values), list(arrays.shape.values)
    for code, path in enumerate(arrays.path.values):
        if not path.startswith(f"{group}/"):
            continue
        rows = np.flatnonzero(arrays.path.codes == code)
        is_lone = lone[arrays.file[rows]]
        names = _find_names(arrays, rows[~is_lone])
        mine = rows[is_lone]
        if name not in names or not len(mine):
            continue
        axis, rest = names.index(name), tuple(each for each in names if each != name)
        lacks = [ArraySchema.loads(text).dimension_names == rest for text in arrays.schema.values]
        mine = mine[np.array(lacks, np.bool_)[arrays.schema.codes[mine]]]
        _change(schema, mine, schemas, partial(_with_axis, name=name, axis=axis))
        _change(shape, mine, shapes, partial(_with_length, axis=axis))
    return replace(arrays, schema=_coded(schema, schemas), shape=_coded(shape, shapes))


def _find_names(arrays: ArrayColumns, rows: NDArray[np.integer]) -> _Names:
    """Return the dimensions of an array; none where files do not agree on them."""
    used = arrays.schema.find_used(arrays.schema.codes[rows]).tolist()
    found = {ArraySchema.loads(arrays.schema.values[each]).dimension_names for each in used}
    return found.pop() if len(found) == 1 else ()


def _change(
    codes: NDArray[np.int64],
    rows: NDArray[np.integer],
    texts: list[str],
    change: Callable[[str], str],
) -> None:
    """Give some rows a text that is made of their own."""
    for code in np.unique(codes[rows]).tolist():
        mine = rows[codes[rows] == code]
        codes[mine] = len(texts)
        texts.append(change(texts[code]))


def _with_axis(text: str, name: str, axis: int) -> str:
    schema = ArraySchema.loads(text)
    names, edges = schema.dimension_names, schema.chunk_shape
    before = tuple(each + (each >= axis) for each in schema.lacks)
    return replace(
        schema,
        dimension_names=(*names[:axis], name, *names[axis:]),
        chunk_shape=None if edges is None else (*edges[:axis], 1, *edges[axis:]),
        lacks=(*before, axis),
    ).dumps()


def _with_length(text: str, axis: int) -> str:
    lengths = json.loads(text)
    return json.dumps([*lengths[:axis], 1, *lengths[axis:]])


def _coded(codes: NDArray[np.int64], texts: Iterable[str]) -> Coded:
    numbers: dict[str, int] = {}  # equal texts count once
    mapped = np.array([numbers.setdefault(text, len(numbers)) for text in texts], np.int64)
    return Coded(mapped[codes], tuple(numbers)).compact()
