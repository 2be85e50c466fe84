"""Add dimensions to arrays that lack them, by declared rules.

A new dimension becomes a first axis of length one; after that, files are placed along it as along
any other. An array that gets a dimension of its file is repeated for each of the file's steps.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from icevirt.archive.facts import ArrayColumns, CatalogFacts, Coded, Counts
from icevirt.archive.plan import ArrayMode, PlannedArray
from icevirt.archive.reports.build import ReferenceCounts
from icevirt.archive.scanned import ScannedArray
from icevirt.archive.schema import ArraySchema
from icevirt.errors import CombineError
from icevirt.ids import ObjectId8
from icevirt.model import paths
from icevirt.model.chunks import ChunkTable
from icevirt.model.json import JSON
from icevirt.planning.axes.dimension_scopes import ABSENT, DimensionScopes
from icevirt.planning.axes.new_dimensions import NewDimension
from icevirt.planning.combine.data_vars import Declared
from icevirt.planning.remedies import scan_fix

_TEXT: tuple[JSON, ...] = ({"name": "vlen-utf8"},)
_NUMBERS: tuple[JSON, ...] = ({"name": "bytes", "configuration": {"endian": "little"}},)


def stacked(
    facts: CatalogFacts, declared: Declared
) -> tuple[CatalogFacts, dict[str, tuple[str, ...]]]:
    """Return the facts as if arrays had the dimensions that the rules give them, and these by path.

    Along a dimension that the files have, an array is there once for each step of its file.

    Raises:
        CombineError: An array is encoded in a way that takes no further axis, or is in a file that
            has nothing along a dimension which it should get.
    """
    arrays = facts.arrays
    schemas, shapes = list(arrays.schema.values), list(arrays.shape.values)
    schema_codes, shape_codes = (c.codes.astype(np.int32) for c in (arrays.schema, arrays.shape))
    times = np.ones(len(arrays.file), np.int64)
    lengths = _Lengths(facts)
    known: dict[tuple[int, tuple[str, ...]], int] = {}
    given: dict[str, tuple[str, ...]] = {}
    for code, path in enumerate(arrays.path.values):
        rows = np.flatnonzero(arrays.path.codes == code)
        for old in np.unique(arrays.schema.codes[rows]).tolist():
            schema = declared.schemas[old]
            if not (names := declared.dimensions_of(path, schema)):
                continue
            given[path] = max(names, given.get(path, ()), key=len)
            if (old, names) not in known:
                known[old, names] = len(schemas)
                schemas.append(_with_axes(schema, names, path).dumps())
            mine = rows[arrays.schema.codes[rows] == old]
            schema_codes[mine] = known[old, names]
            more = lengths.of(mine, names, path)
            times[mine] = more.prod(axis=1)
            shape = arrays.shape.codes[mine].astype(np.int64)[:, None]
            kinds, kind = np.unique(np.hstack([more, shape]), axis=0, return_inverse=True)
            shape_codes[mine] = len(shapes) + kind.reshape(-1)
            shapes += [
                json.dumps([*own, *json.loads(arrays.shape.values[at])])
                for *own, at in kinds.tolist()
            ]
    everything = np.arange(len(schema_codes))
    made = replace(
        arrays,
        schema=Coded(schema_codes, tuple(schemas)).take(everything),
        shape=Coded(shape_codes, tuple(shapes)).take(everything),
    )
    made = made if (times == 1).all() else _repeated(made, times)
    return replace(facts, arrays=made), given


def _repeated(arrays: ArrayColumns, times: NDArray[np.int64]) -> ArrayColumns:
    """Return arrays whose references stand several times in the dataset."""

    def counted(column: Counts) -> Counts:
        return Counts(column[np.arange(len(times))] * times)

    return replace(
        arrays,
        virtual=counted(arrays.virtual),
        inline=counted(arrays.inline),
        virtual_bytes=counted(arrays.virtual_bytes),
        inline_bytes=counted(arrays.inline_bytes),
    )


class _Lengths:
    """How many steps each file has along dimensions: one along those that no file has."""

    def __init__(self, facts: CatalogFacts) -> None:
        self._facts = facts
        self._known: dict[str, DimensionScopes] = {}

    def of(self, rows: NDArray[np.integer], names: Sequence[str], path: str) -> NDArray[np.int64]:
        """Return the lengths of the files of some rows, shape (rows, names)."""
        files = self._facts.arrays.file[rows]
        found = np.ones((len(rows), len(names)), np.int64)
        for at, name in enumerate(names):
            if name not in self._known:
                self._known[name] = DimensionScopes.of(self._facts, name)
            if (lengths := self._known[name].seen_from(paths.parent(path))) is None:
                continue
            found[:, at] = lengths[files]
            if (found[:, at] < 0).any():
                raise self._unknown(path, name, int(files[int(np.argmin(found[:, at]))]))
        return found

    def _unknown(self, path: str, name: str, file: int) -> CombineError:
        of_groups = {
            group: int(lengths[file])
            for group, lengths in self._known[name].lengths.items()
            if lengths[file] != ABSENT
        }
        return CombineError(
            f"{path} cannot get the dimension {name!r}: groups of a file have one each, of other"
            " lengths, and none of them holds the variable"
            if of_groups
            else f"a file holds {path} but no variable along {name!r}, so its steps are unknown",
            do=f"Leave {path} out of data_vars along {name!r}, or leave the file out.",
            variable=path,
            file=self._facts.files.url[file],
            **({"lengths": of_groups} if of_groups else {}),
        )


def _with_axes(schema: ArraySchema, names: tuple[str, ...], path: str) -> ArraySchema:
    first = schema.codecs[0] if schema.codecs else None
    name = first.get("name") if isinstance(first, dict) else first
    if name not in ("bytes", "vlen-utf8", "vlen-bytes"):
        raise CombineError(
            f"variable {path} uses the codec {name!r}, which cannot take another axis",
            fixes=[scan_fix(f"the dataset lacks {path}", drop_variables=[path])],
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
        mode=ArrayMode.given,
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
