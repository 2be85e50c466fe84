"""Take a file whose coordinate is one value for a file of one step, where other files have steps.

Tools save a single step without its dimension: Iris, and ``ds.isel(time=0)`` of xarray. Among files
that have the dimension, such a file is a step of it. Its variables lack the first axis that they
have in others, which `ArraySchema.lacks` counts. What has no such axis in any file stays as it is.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

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
        rest = _find_rest(arrays, rows[~is_lone], name)
        mine = rows[is_lone]
        if rest is None or not len(mine):
            continue
        lacks = [ArraySchema.loads(text).dimension_names == rest for text in arrays.schema.values]
        mine = mine[np.array(lacks, np.bool_)[arrays.schema.codes[mine]]]
        _change(schema, mine, schemas, lambda text: _with_axis(text, name))
        _change(shape, mine, shapes, lambda text: json.dumps([1, *json.loads(text)]))
    return replace(arrays, schema=_coded(schema, schemas), shape=_coded(shape, shapes))


def _find_rest(arrays: ArrayColumns, rows: NDArray[np.integer], name: str) -> _Names | None:
    """Return the further dimensions of an array that begins with one; None where it does not."""
    used = arrays.schema.find_used(arrays.schema.codes[rows]).tolist()
    found = {ArraySchema.loads(arrays.schema.values[each]).dimension_names for each in used}
    names = found.pop() if len(found) == 1 else ()
    return names[1:] if names[:1] == (name,) else None


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


def _with_axis(text: str, name: str) -> str:
    schema = ArraySchema.loads(text)
    edges = schema.chunk_shape
    return replace(
        schema,
        dimension_names=(name, *schema.dimension_names),
        chunk_shape=None if edges is None else (1, *edges),
        lacks=schema.lacks + 1,
    ).dumps()


def _coded(codes: NDArray[np.int64], texts: Iterable[str]) -> Coded:
    numbers: dict[str, int] = {}  # equal texts count once
    mapped = np.array([numbers.setdefault(text, len(numbers)) for text in texts], np.int64)
    return Coded(mapped[codes], tuple(numbers)).compact()
