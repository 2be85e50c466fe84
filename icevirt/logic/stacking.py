"""Files that are stacked along dimensions that none of them has.

An array gets a new dimension, as a first axis of length one, where its values differ along it, or
were too many to compare, or are not there for every label; from there on files are placed along it
as along any other. What is alike for all labels of a dimension does not get it.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from icevirt.archive.facts import CatalogFacts, Coded
from icevirt.archive.plan import Mode, PlannedArray
from icevirt.archive.report import ReferenceCounts
from icevirt.archive.scanned import ScannedArray
from icevirt.archive.schema import ArraySchema
from icevirt.errors import CombineError
from icevirt.ids import ObjectId8
from icevirt.logic.cells import NOWHERE, Axis, numbered
from icevirt.logic.new_dimensions import NewDimension
from icevirt.model import paths
from icevirt.model.chunks import ChunkTable
from icevirt.model.json import JSON

_TEXT: tuple[JSON, ...] = ({"name": "vlen-utf8"},)
_NUMBERS: tuple[JSON, ...] = ({"name": "bytes", "configuration": {"endian": "little"}},)


def stacked(
    facts: CatalogFacts, new: Sequence[NewDimension], others: Sequence[Axis]
) -> CatalogFacts:
    """Return the facts as if arrays had the new dimensions that they differ along.

    Args:
        facts: Of all files.
        new: The new dimensions.
        others: Where files lie along dimensions that they have.

    Raises:
        CombineError: An array is encoded in a way that takes no further axis.
    """
    look = _Look(facts, new, others)
    arrays = facts.arrays
    schemas, shapes = list(arrays.schema.values), list(arrays.shape.values)
    schema_codes, shape_codes = (c.codes.astype(np.int32) for c in (arrays.schema, arrays.shape))
    known: dict[tuple[int, tuple[str, ...]], int] = {}
    for code, path in enumerate(arrays.path.values):
        rows = np.flatnonzero(arrays.path.codes == code)
        names = look.dimensions_of(path, rows)
        if not names:
            continue
        for old in np.unique(arrays.schema.codes[rows]).tolist():
            if (old, names) not in known:
                schema = ArraySchema.loads(arrays.schema.values[old])
                known[old, names] = len(schemas)
                schemas.append(_with_axes(schema, names, path).dumps())
            mine = rows[arrays.schema.codes[rows] == old]
            schema_codes[mine] = known[old, names]
        for old in np.unique(arrays.shape.codes[rows]).tolist():
            shapes.append(json.dumps([*[1] * len(names), *json.loads(arrays.shape.values[old])]))
            shape_codes[rows[arrays.shape.codes[rows] == old]] = len(shapes) - 1
    everything = np.arange(len(schema_codes))
    return replace(
        facts,
        arrays=replace(
            arrays,
            schema=Coded(schema_codes, tuple(schemas)).take(everything),
            shape=Coded(shape_codes, tuple(shapes)).take(everything),
        ),
    )


class _Look:
    """Which of the new dimensions arrays differ along."""

    def __init__(
        self, facts: CatalogFacts, new: Sequence[NewDimension], others: Sequence[Axis]
    ) -> None:
        self._facts = facts
        self._new = {each.name: each for each in new}
        self._others = {axis.dimension: axis for axis in others}
        self._schemas = [ArraySchema.loads(text) for text in facts.arrays.schema.values]
        counted = [_counting(schema) for schema in self._schemas]
        number = {each: at for at, each in enumerate(dict.fromkeys(counted))}
        self._counting = np.array([number[each] for each in counted], np.int64)

    def dimensions_of(self, path: str, rows: NDArray[np.integer]) -> tuple[str, ...]:
        """Return the new dimensions of an array; coordinates never get one, so unlike ones refuse.

        One that has a single label goes to what gets all the others.
        """
        for each in self._new.values():
            if each.variable == path:
                return (each.name,)
        own = self._schemas[int(self._facts.arrays.schema.codes[rows[0]])].dimension_names
        if own == (paths.name(path),):
            return ()
        everything = tuple(self._new)
        digests = self._facts.arrays.digest.codes[rows]
        empty = [code for code, text in enumerate(self._facts.arrays.digest.values) if not text]
        if np.isin(digests, empty).any():
            return everything
        several = tuple(name for name in everything if self._new[name].count > 1)
        if not self._follows(rows, own, several):
            return everything  # two files of one place hold other values, which is told there
        kept = several
        for name in reversed(several):
            rest = tuple(each for each in kept if each != name)
            if self._is_alike(rows, own, rest, name):
                kept = rest
        return everything if kept and kept == several else kept

    def _is_alike(
        self, rows: NDArray[np.integer], own: Sequence[str | None], rest: Sequence[str], name: str
    ) -> bool:
        """Say whether values follow from the other dimensions, and are there for all labels."""
        if not self._follows(rows, own, rest):
            return False
        # the other labels' files of the same places, whatever they hold
        group, files = self._group(own, rest), self._facts.arrays.file[rows]
        there = np.isin(group, group[files])
        for each in own:
            if each in self._others:
                there &= self._others[each].cell != NOWHERE
        label = self._new[name].cell
        return _pairs(group[files], label[files]) == _pairs(group[there], label[there])

    def _follows(
        self, rows: NDArray[np.integer], own: Sequence[str | None], names: Sequence[str]
    ) -> bool:
        """Say whether values follow from the place along the array's own and some dimensions."""
        arrays = self._facts.arrays
        group = self._group(own, names)[arrays.file[rows]]
        counting = self._counting[arrays.schema.codes[rows]]
        values = numbered([arrays.digest.codes[rows], counting], len(rows))
        return _pairs(group, values) == len(np.unique(group))

    def _group(self, own: Sequence[str | None], names: Sequence[str]) -> NDArray[np.int64]:
        """Number the places of all files along the array's own and some of the new dimensions."""
        cells = [self._others[each].cell for each in own if each in self._others]
        cells += [self._new[each].cell for each in names]
        return numbered(cells, len(self._facts.files))


def _counting(schema: ArraySchema) -> tuple[str, str]:
    values = schema.attributes.values
    return repr(values.get("units")), repr(values.get("calendar"))


def _pairs(one: NDArray[np.int64], other: NDArray[np.int64]) -> int:
    """Count the distinct pairs of two columns."""
    return len(np.unique(numbered([one, other], len(one))))


def _with_axes(schema: ArraySchema, names: tuple[str, ...], path: str) -> ArraySchema:
    first = schema.codecs[0] if schema.codecs else None
    name = first.get("name") if isinstance(first, dict) else first
    if name not in ("bytes", "vlen-utf8", "vlen-bytes"):
        raise CombineError(
            f"variable {path} is encoded by {name!r}, which takes no further axis",
            do=f"Leave it out with drop_variables=[{path!r}].",
            variable=path,
        )
    edges = schema.chunk_shape
    return replace(
        schema,
        dimension_names=(*names, *schema.dimension_names),
        chunk_shape=None if edges is None else (*[1] * len(names), *edges),
    )


# -- coordinates that no file holds --------------------------------------------------------------


def coordinate(
    dimension: NewDimension, values: NDArray[Any], group: str, build_id: str
) -> PlannedArray:
    """Return the array of the labels, stored in one chunk."""
    text = values.dtype.kind == "U"
    scanned = ScannedArray(
        path="/",
        dimension_names=(dimension.name,),
        shape=values.shape,
        chunk_shape=values.shape,
        data_type="string" if text else values.dtype.name,
        codecs=_TEXT if text else _NUMBERS,
        fill_value="" if text else 0,
        attributes=dimension.attributes,
        references=ChunkTable.empty(1),
    )
    path = paths.join(group, dimension.name)
    nowhere = np.zeros((1, 0), np.int64)
    return PlannedArray(
        path=path,
        source_path=f"/{dimension.name}",
        node_id=ObjectId8.of_content(build_id.encode(), path.encode()),
        mode=Mode.given,
        axes=(),
        shape=values.shape,
        chunk_shape=values.shape,
        zarr_json=scanned.zarr_json(),
        schema=ArraySchema.of(scanned),
        files=np.zeros(1, np.int64),
        starts=nowhere,
        lengths=nowhere,
        whole=np.zeros(1, np.bool_),
        whole_schema=None,
        window=(1,),
        references=ReferenceCounts(inline=1, bytes_stored=values.nbytes),
        expected=1,
        values=values,
    )
