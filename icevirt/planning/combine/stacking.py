"""Give arrays the dimensions that they get, and make coordinates that no file has.

A new dimension becomes a first axis of length one; an array that gets a dimension of its file is
repeated for each of the file's steps.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from icevirt.archive.facts import (
    CatalogFacts,
    Coded,
    Counts,
    describe_variables,
    listing_groups,
    variables_of,
)
from icevirt.archive.plan import ArrayMode, PlannedArray
from icevirt.archive.reports.build import ReferenceCounts
from icevirt.archive.roles import coordinates_of
from icevirt.archive.scanned import ScannedArray
from icevirt.archive.schema import ArraySchema
from icevirt.errors import CombineError, InvalidInputError
from icevirt.ids import ObjectId8
from icevirt.model import paths
from icevirt.model.chunks import ChunkTable
from icevirt.model.json import JSON
from icevirt.planning.axes.axis import NewDimension
from icevirt.planning.axes.dimension_scopes import ABSENT, DimensionScopes
from icevirt.planning.combine.data_vars import (
    DimensionRules,
    find_rule,
    gets,
    is_named,
    refuse_unknown_dimensions,
    refuse_unknown_names,
)
from icevirt.planning.reader_support import name_of
from icevirt.planning.remedies import scan_fix
from icevirt.planning.times.units import units_of

_TEXT: tuple[JSON, ...] = ({"name": "vlen-utf8"},)
_NUMBERS: tuple[JSON, ...] = ({"name": "bytes", "configuration": {"endian": "little"}},)


def stack(
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
                schemas.append(_add_axes(schema, names, path).dumps())
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
    if (times != 1).any():  # references stand several times in the dataset
        counted = ("virtual", "inline", "virtual_bytes", "inline_bytes")
        repeated: dict[str, Any] = {
            name: Counts(getattr(made, name)[everything] * times) for name in counted
        }
        made = replace(made, **repeated)
    return replace(facts, arrays=made), given


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
            if (lengths := self._known[name].lengths_for(paths.parent(path))) is None:
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


_SHAPELESS = frozenset(
    (
        "bytes",
        "vlen-utf8",
        "vlen-bytes",
        "gribberish",
        "imagecodecs_floatpred",
        "imagecodecs_lerc",
        "imagecodecs_packints",
    )
)
"""Codecs that give what they decode the shape of the chunk, whatever axes of length one that has.

Of gribberish and imagecodecs tests hold that against ecCodes and rasterio, in icevirt and in the
official client.
"""
_FLAT = frozenset(
    (
        "numcodecs.astype",
        "numcodecs.bitround",
        "numcodecs.delta",
        "numcodecs.fixedscaleoffset",
        "numcodecs.quantize",
        "scale_offset",
    )
)
"""Codecs that take values one by one, or one after the other in the order of C.

Tests hold that against zarr-python, in icevirt and in the official client.
"""
_FROM_THE_END = ("imagecodecs_delta", "imagecodecs_floatpred")  # may count axes so


def _add_axes(schema: ArraySchema, names: tuple[str, ...], path: str) -> ArraySchema:
    edges = schema.chunk_shape
    return replace(
        schema,
        dimension_names=(*names, *schema.dimension_names),
        chunk_shape=None if edges is None else (*[1] * len(names), *edges),
        codecs=tuple(_move_axes(schema.codecs, len(names), path)),
    )


def _move_axes(codecs: tuple[JSON, ...], more: int, path: str) -> Iterator[JSON]:
    """Yield the codecs of chunks that have so many more axes, in front of the others."""
    name = None
    for at, codec in enumerate(codecs):
        name, settings = name_of(codec), _settings_of(codec)
        if name in _FROM_THE_END and settings.get("axis", -1) >= 0:
            break
        if name in _SHAPELESS:
            yield from codecs[at:]
            return
        if name == "sharding_indexed":
            yield _move_axes_in_shards(codec, more, path)
            yield from codecs[at + 1 :]
            return
        if name == "transpose":
            order = [*range(more), *(each + more for each in settings["order"])]
            yield {"name": name, "configuration": {"order": order}}
        elif name in _FLAT or name in _FROM_THE_END:
            yield codec
        else:
            break
    raise CombineError(
        f"variable {path} uses the codec {name!r}, which cannot take another axis",
        fixes=[scan_fix(f"the dataset lacks {path}", drop_variables=[path])],
        variable=path,
    )


def _move_axes_in_shards(codec: JSON, more: int, path: str) -> JSON:
    """Return the codec of shards; the index gets axes of length one, too, so its bytes stay."""
    settings = dict(_settings_of(codec))
    settings["chunk_shape"] = [*[1] * more, *settings["chunk_shape"]]
    for each in {"codecs", "index_codecs"} & {*settings}:
        settings[each] = [*_move_axes(tuple(settings[each]), more, path)]
    return {"name": name_of(codec), "configuration": settings}


def _settings_of(codec: JSON) -> Mapping[str, Any]:
    found = codec.get("configuration") if isinstance(codec, Mapping) else None
    return found if isinstance(found, Mapping) else {}


class Declared:
    """What the rules make of the arrays of some files."""

    def __init__(
        self, facts: CatalogFacts, new: Sequence[NewDimension], rules: DimensionRules
    ) -> None:
        self._facts = facts
        self._new = {each.name: each for each in new if each.is_new}
        self._rules = rules
        self._of_one_label: dict[str, frozenset[str]] = {}
        self.schemas = [ArraySchema.loads(text) for text in facts.arrays.schema.values]
        refuse_unknown_dimensions(rules.asked, rules.dimensions)
        refuse_unknown_names(rules.asked, facts.arrays.path.values)

    def dimensions_of(self, path: str, schema: ArraySchema) -> tuple[str, ...]:
        """Return the dimensions that an array gets, in the order of the dataset's.

        Raises:
            InvalidInputError: The coordinate of a dimension is to have another one.
        """
        own = schema.dimension_names
        return tuple(
            name
            for name in self._rules.dimensions
            if name not in own
            and self._gets(name, path, own)
            and not self._is_lone(name, path, own)
        )

    def _gets(self, dimension: str, path: str, own: Sequence[str | None]) -> bool:
        axis, kept = self._new.get(dimension), self._rules.kept
        if any(each.variable == path for each in self._new.values()):
            return axis is not None and axis.variable == path
        words = find_rule(self._rules.asked, dimension)
        if words is not None and is_named(words, path):
            if tuple(own) == (paths.name(path),):
                raise InvalidInputError(
                    f"{path} is a dimension coordinate and cannot have another dimension",
                    do="Remove it from data_vars.",
                    data_vars=list(words),
                )
            return True
        if tuple(own) == (paths.name(path),):
            return False
        if words is None and axis is not None and kept.has(dimension) and path in kept.dimensions:
            return dimension in kept.dimensions[path]
        if any(each.label_variable == path for each in self._new.values()):
            return axis is not None and axis.label_variable == path
        return gets(
            kept.data_vars if words is None else self._rules.asked,
            dimension,
            path,
            is_new=axis is not None,
            is_coordinate=path in self._coordinates,
        )

    def _is_lone(self, dimension: str, path: str, own: Sequence[str | None]) -> bool:
        """Say whether one label has a field alone that gets the dimension by default only."""
        axis, kept = self._new.get(dimension), self._rules.kept
        if axis is None or find_rule(self._rules.lasting, dimension) is not None:
            return False
        is_label = any(path in (e.variable, e.label_variable) for e in self._new.values())
        is_placed = not {*own}.isdisjoint((*self._rules.dimensions, *self._times))
        is_kept = dimension in kept.dimensions.get(path, ())
        return not (is_label or is_placed or is_kept) and path in self._alone(axis)

    def _alone(self, axis: NewDimension) -> frozenset[str]:
        """Return the paths of arrays that the files of one label hold, and no others.

        They say nothing of the new dimension, unless all arrays are of that kind.
        """
        if axis.name not in self._of_one_label:
            arrays = self._facts.arrays
            cell, paths_there = axis.cell[arrays.file], arrays.path.values
            one = np.zeros(len(paths_there), np.int64)
            one[arrays.path.codes] = cell
            others = np.bincount(arrays.path.codes[cell != one[arrays.path.codes]])
            is_shared = np.zeros(len(paths_there), np.bool_)
            is_shared[: len(others)] = others > 0
            alone = frozenset(np.array(paths_there, object)[~is_shared].tolist())
            shared = {*paths_there} - alone - self._coordinates
            self._of_one_label[axis.name] = alone if shared else frozenset()
        return self._of_one_label[axis.name]

    @cached_property
    def _times(self) -> frozenset[str]:
        """The dimensions along which values vary in time: fields that have one are data."""
        return frozenset(
            paths.name(path)
            for path, schema in variables_of(self._facts)
            if units_of(schema.attributes.values) is not None
        )

    @cached_property
    def _coordinates(self) -> frozenset[str]:
        return coordinates_of(describe_variables(self._facts), listing_groups(self._facts))


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
        schema=scanned.schema,
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
