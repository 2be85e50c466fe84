"""Say what a coarser copy of a variable is: overviews for maps, kept in step as twins are.

A level is a group below the group of the variable. It holds means of blocks, and coordinates that
fit them, under the names of the dataset. The group of the variable says which levels there are, in
the words of the convention *multiscales*, version 1 (uuid below), which GeoZarr uses.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from icevirt.archive.joining import find_fixed_dtype
from icevirt.model import paths
from icevirt.model.attributes import (
    COARSENED_FROM,
    EXTENSION,
    FLAGS,
    Attributes,
    read_dtypes,
    read_replacements,
)
from icevirt.model.json import JSON
from icevirt.model.snapshot import ArrayNode, Snapshot, document_of
from icevirt.planning.combine.cf_packing import PACKING, decode, packing_of

FOLDER = "coarsened"
"""The group of the levels, below the group of the variables."""

_TILE = 256  # elements of a chunk along each dimension that is made coarser
_CHUNK = 4 << 20  # bytes of it at most
_DECODING = (*PACKING, "valid_min", "valid_max", "valid_range", "actual_range")
_ELSEWHERE = ("coordinates", "bounds", "ancillary_variables", "cell_measures", "grid_mapping")
_GROUP: dict[str, JSON] = {"zarr_format": 3, "node_type": "group"}
_CONVENTION: dict[str, JSON] = {
    "schema_url": "https://raw.githubusercontent.com/zarr-conventions/multiscales/refs/tags/v1/schema.json",
    "spec_url": "https://github.com/zarr-conventions/multiscales/blob/v1/README.md",
    "uuid": "d35379db-88df-4056-af3a-620245f8e347",
    "name": "multiscales",
    "description": "Multiscale layout of zarr datasets",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Coarsening:
    """How values of blocks become one: their mean, without missing ones."""

    factors: tuple[int, ...]  # elements of a block along each axis; the last one may have less
    area: str | None = None  # path of the latitudes whose cosine weighs values; None: all alike
    axis: int = 0  # of the latitudes

    def __post_init__(self) -> None:
        if not all(type(each) is int and each > 0 for each in self.factors):
            raise ValueError(f"blocks {self.factors!r}")
        if self.area is not None and not isinstance(self.area, str):
            raise ValueError(f"latitudes {self.area!r}")
        if type(self.axis) is not int or not 0 <= self.axis < max(1, len(self.factors)):
            raise ValueError(f"axis {self.axis!r}")

    @property
    def is_identity(self) -> bool:
        """Whether values stay as they are."""
        return all(factor == 1 for factor in self.factors)

    @property
    def size(self) -> int:
        """How many values a block has."""
        return math.prod(self.factors)

    def record(self) -> JSON:
        """Return it as a snapshot records it."""
        return {"factors": list(self.factors), "area": self.area, "axis": self.axis}

    @classmethod
    def of_record(cls, raw: Mapping[str, Any]) -> Coarsening:
        """Undo `record`. Raises ``ValueError``, ``TypeError``, ``AttributeError``."""
        return cls(
            factors=tuple(raw.get("factors", ())), area=raw.get("area"), axis=raw.get("axis", 0)
        )

    def shape(self, fine: Sequence[int]) -> tuple[int, ...]:
        """Return the shape of a level, given that of the variable."""
        return tuple(-(-n // factor) for n, factor in zip(fine, self.factors, strict=True))

    def misfit(self, planned: Mapping[str, Any]) -> str | None:
        """Say why an array of this zarr.json has no such level; None where it has."""
        if len(planned["shape"]) != len(self.factors):
            return "it has another number of dimensions"
        if self.is_identity:
            return None
        dtype = find_fixed_dtype(planned["data_type"])
        if dtype is None or dtype.kind not in "iuf":
            return "its values are no numbers"
        if any(name in (planned.get("attributes") or {}) for name in FLAGS):
            return "its numbers are flags, which have no mean"
        return None

    def apply(self, planned: Mapping[str, Any], of: str, path: str) -> dict[str, Any]:
        """Return the zarr.json of a level, but for its chunks.

        Args:
            planned: zarr.json of the variable.
            of: Path of the variable.
            path: Of the level's array.
        """
        away = _ELSEWHERE if self.is_identity else (*_ELSEWHERE, *_DECODING)
        document = _without(planned, away)
        attributes = document["attributes"]
        if not self.is_identity:
            dtype = self.dtype(planned)
            document |= {
                "shape": list(self.shape(planned["shape"])),
                "data_type": dtype.name,
                "fill_value": "NaN",
            }
            names = planned.get("dimension_names") or ()
            over = [str(n) for n, each in zip(names, self.factors, strict=False) if each > 1]
            if len(self.factors) > 1:
                said = f"{': '.join(over)}: mean" + (" (area-weighted)" if self.area else "")
                before = attributes.get("cell_methods")
                is_text = isinstance(before, str) and before
                attributes["cell_methods"] = f"{before} {said}" if is_text else said
        up = "../" * (len(paths.ancestors(path)) - len(paths.ancestors(of)))
        attributes[COARSENED_FROM] = f"{up}{paths.name(of)}"
        return document | {"attributes": attributes}

    def dtype(self, planned: Mapping[str, Any]) -> np.dtype[Any]:
        """Return the type of means: what xarray decodes values to, a float."""
        dtype = find_fixed_dtype(planned["data_type"])
        assert dtype is not None
        decoded = decode_as(planned, np.zeros(1, dtype)).dtype
        return np.dtype("f4") if decoded.kind == "f" and decoded.itemsize <= 4 else np.dtype("f8")

    def reduce(self, values: NDArray[Any], weights: NDArray[np.float64] | None) -> NDArray[Any]:
        """Return the means of blocks of decoded values; NaN where a block has none.

        A missing value takes its weight with it.

        Args:
            values: Of whole blocks, but for the last along each axis.
            weights: Along the axis of the latitudes.
        """
        weight = np.ones(1) if weights is None else weights
        if weights is not None:
            others = values.ndim - 1 - self.axis
            weight = weight.reshape((-1,) + (1,) * others)
        is_there = ~np.isnan(values)
        total = np.where(is_there, values.astype("f8") * weight, 0.0)
        count = is_there * weight
        for axis, factor in enumerate(self.factors):
            if factor > 1:
                begins = np.arange(0, values.shape[axis], factor)
                total = np.add.reduceat(total, begins, axis=axis)
                count = np.add.reduceat(count, begins, axis=axis)
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.where(count > 0, total / count, np.nan)


def decode_as(document: Mapping[str, Any], values: NDArray[Any]) -> NDArray[Any]:
    """Return values as xarray decodes them: unpacked, and NaN where they are missing."""
    return decode(values, packing_of(_attributes_of(document)))


def _attributes_of(document: Mapping[str, Any]) -> Attributes:
    return Attributes(
        values=document.get("attributes") or {},
        dtypes=read_dtypes(document),
        replaced=read_replacements(document),
    )


def _without(document: Mapping[str, Any], names: Iterable[str]) -> dict[str, Any]:
    """Return a zarr.json without some attributes, and without what it says of them beside."""
    left = _attributes_of(document).without(*names)
    made = {**document, "attributes": dict(left.values)}
    if isinstance(extension := made.pop(EXTENSION, None), dict):
        named = ("attribute_dtypes", "replaced_attributes")
        others = {key: each for key, each in extension.items() if key not in named}
        said = left.extension().get(EXTENSION)
        made[EXTENSION] = {**others, **(said if isinstance(said, dict) else {})}
    return made


def weigh(latitudes: NDArray[Any]) -> NDArray[np.float64]:
    """Return weights of latitudes in degrees: cells of a regular grid have areas like these."""
    return np.maximum(np.cos(np.deg2rad(latitudes.astype("f8"))), 1e-17)


@dataclass(frozen=True, slots=True, kw_only=True)
class Level:
    """A coarser copy that is to be made: the array, and coordinates that fit it."""

    group: str  # path
    variable: ArrayNode
    arrays: Mapping[str, tuple[ArrayNode, Coarsening, tuple[int, ...]]]  # of what, how, in chunks

    @property
    def path(self) -> str:
        """Of the array."""
        return paths.join(self.group, paths.name(self.variable.path))


def plan_level(
    snapshot: Snapshot, node: ArrayNode, blocks: Mapping[str, int], chunks: Mapping[str, int]
) -> Level:
    """Say what a level consists of.

    Args:
        snapshot: Of the variable.
        node: The variable.
        blocks: How many elements become one, by dimension.
        chunks: Lengths of chunks that a person named, by dimension.
    """
    top, names = paths.parent(node.path), node.dimension_names or (None,) * len(node.shape)
    label = "_".join(f"{name}{factor}" for name, factor in blocks.items())
    group = paths.join(paths.join(top, FOLDER), label)
    axes: dict[str, ArrayNode] = {}
    for name in names:
        found = snapshot.find(paths.join(top, name)) if name is not None else None
        if isinstance(found, ArrayNode) and found.dimension_names == (name,):
            axes[str(name)] = found
    factors = tuple(blocks.get(str(name), 1) for name in names)
    north = next((n for n in axes if _has_units(axes[n], "degree", "N", "north")), None)
    is_regular = any(_has_units(each, "degree", "E", "east") for each in axes.values())
    area = axes[north].path if north in blocks and north is not None and is_regular else None
    own = Coarsening(factors=factors, area=area, axis=0 if area is None else names.index(north))
    arrays: dict[str, tuple[ArrayNode, Coarsening, tuple[int, ...]]] = {}
    for name, axis in axes.items():
        how = Coarsening(factors=(blocks.get(name, 1),))
        if find_fixed_dtype(document_of(axis)["data_type"]) is None or how.misfit(
            document_of(axis)
        ):
            continue  # texts
        arrays[paths.join(group, name)] = (axis, how, (max(1, *how.shape(axis.shape), 8192),))
    edges = _chunks_of(node, own, names, chunks)
    arrays[paths.join(group, paths.name(node.path))] = (node, own, edges)
    return Level(group=group, variable=node, arrays=arrays)


def _has_units(node: ArrayNode, word: str, letter: str, direction: str) -> bool:
    units = (document_of(node).get("attributes") or {}).get("units")
    ends = (f"_{direction}", f"_{letter}", letter)
    return units in {f"{word}{many}{end}" for many in ("", "s") for end in ends}


def _chunks_of(
    node: ArrayNode,
    how: Coarsening,
    names: Sequence[str | None],
    chunks: Mapping[str, int],
) -> tuple[int, ...]:
    """Return chunks for maps: tiles, and as many steps as the variable has, within limits."""
    document = document_of(node)
    regular = document["chunk_grid"]["configuration"].get("chunk_shape")
    fine, width = how.shape(node.shape), 8  # bytes of a mean, at most
    edges = [
        min(n, _TILE) if factor > 1 else 1 if regular is None else regular[axis]
        for axis, (n, factor) in enumerate(zip(fine, how.factors, strict=True))
    ]
    free = [axis for axis, factor in enumerate(how.factors) if factor == 1]
    while width * math.prod(edges) > _CHUNK and any(edges[axis] > 1 for axis in free):
        axis = max(free, key=edges.__getitem__)
        edges[axis] = -(-edges[axis] // 2)
    for axis, name in enumerate(names):
        length = chunks.get(str(name))
        if length is not None:
            edges[axis] = max(1, fine[axis]) if length == -1 else length
    return tuple(max(1, edge) for edge in edges)


def say_levels(
    attributes: Mapping[str, Any], group: str, levels: Iterable[tuple[str, str, Coarsening]]
) -> dict[str, Any]:
    """Return attributes of a group that say which coarser copies its variables have.

    Args:
        attributes: As they are.
        group: Path of the group.
        levels: Paths of the variable and of the copy, and how it was made.
    """
    own: dict[str, list[tuple[str, Coarsening]]] = {}
    for of, path, how in levels:
        own.setdefault(of, []).append((path, how))
    layout: list[dict[str, JSON]] = []
    for of, copies in sorted(own.items()):
        name, ndim = _relative(of, group), len(copies[0][1].factors)
        layout.append({"asset": name, "transform": {"scale": [1.0] * ndim}})
        layout += [
            {
                "asset": _relative(path, group),
                "derived_from": name,
                "transform": {
                    "scale": [float(factor) for factor in how.factors],
                    "translation": [(factor - 1) / 2 for factor in how.factors],
                },
                "resampling_method": "average",
            }
            for path, how in sorted(copies, key=lambda each: each[1].size)
        ]
    others = [
        each
        for each in attributes.get("zarr_conventions") or ()
        if not (isinstance(each, dict) and each.get("uuid") == _CONVENTION["uuid"])
    ]
    return {
        **attributes,
        "zarr_conventions": [*others, _CONVENTION],
        "multiscales": {"layout": layout, "resampling_method": "average"},
    }


def hide_levels(attributes: Mapping[str, Any]) -> dict[str, Any]:
    """Return attributes of a group without those that `say_levels` gave it."""
    said = attributes.get("zarr_conventions")
    if not isinstance(said, list) or _CONVENTION not in said:
        return dict(attributes)
    left = {name: value for name, value in attributes.items() if name not in SAID}
    others = [each for each in said if each != _CONVENTION]
    return {**left, "zarr_conventions": others} if others else left


SAID = ("zarr_conventions", "multiscales")
"""Attributes of a group that say which levels there are."""


def _relative(path: str, group: str) -> str:
    return path.removeprefix(group.rstrip("/") + "/")


def group_json(zarr_json: bytes | None, attributes: Mapping[str, Any]) -> bytes:
    """Return the zarr.json of a group with other attributes."""
    document = _GROUP if zarr_json is None else json.loads(zarr_json)
    return json.dumps({**document, "attributes": attributes}, ensure_ascii=False).encode()
