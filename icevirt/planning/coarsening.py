"""Say what a coarser copy of a variable is: means of blocks, of values as xarray decodes them."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from icevirt.archive.joining import find_fixed_dtype
from icevirt.archive.roles import words_of
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
from icevirt.planning.combine.cf_packing import PACKING, decode, packing_of

_DECODING = (*PACKING, "valid_min", "valid_max", "valid_range", "actual_range")
_ELSEWHERE = ("coordinates", "bounds", "ancillary_variables", "cell_measures", "grid_mapping")
_OF_THE_GRID = ("GeoTransform",)  # of a grid mapping: where the first element lies, and its size
_EAST = re.compile(r"degrees?(_east|_E|E)")
_CIRCLE = 360.0
_ANGLE = re.compile(r"(deg|rad)", re.IGNORECASE)  # begin of units
_DIRECTION = re.compile(r"(^|_)(direction|azimuth)")  # in a standard name


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
        attributes = planned.get("attributes") or {}
        if any(name in attributes for name in FLAGS):
            return "its numbers are flags, which have no mean"
        if _are_directions(attributes) or (are_east(attributes) and len(self.factors) > 1):
            return "its numbers are directions, and 180 is no mean of 359 and 1"
        return None

    def apply(self, planned: Mapping[str, Any], of: str, path: str) -> dict[str, Any]:
        """Return the zarr.json of a level, but for its chunks.

        Args:
            planned: zarr.json of the variable.
            of: Path of the variable.
            path: Of the level's array.
        """
        away = _OF_THE_GRID if self.is_identity else _DECODING
        document = _without(planned, (*_ELSEWHERE, *away))
        attributes = document["attributes"]
        for word in mappings_of(planned):  # the level has it, or a group above
            name = word.rpartition("/")[2]
            attributes |= {"grid_mapping": name, "coordinates": name}
        if not self.is_identity:
            dtype = self.dtype(planned)
            document |= {
                "shape": list(self.shape(planned["shape"])),
                "data_type": dtype.name,
                "fill_value": "NaN",
            }
            names = self.names(planned.get("dimension_names") or ())
            if names:
                document["dimension_names"] = names
            over = [str(n) for n, each in zip(names, self.factors, strict=False) if each > 1]
            if len(self.factors) > 1:
                said = f"{': '.join(over)}: mean" + (" (area-weighted)" if self.area else "")
                before = attributes.get("cell_methods")
                is_text = isinstance(before, str) and before
                attributes["cell_methods"] = f"{before} {said}" if is_text else said
        up = "../" * (len(paths.ancestors(path)) - len(paths.ancestors(of)))
        attributes[COARSENED_FROM] = f"{up}{paths.name(of)}"
        return document | {"attributes": attributes}

    def names(self, fine: Sequence[str | None]) -> list[str | None]:
        """Return the dimension names of a level, given those of the variable."""
        pairs = zip(fine, self.factors, strict=False)
        return [None if name is None else name_shorter(name, factor) for name, factor in pairs]

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


def mappings_of(planned: Mapping[str, Any]) -> list[str]:
    """Return what an array of this zarr.json calls the variable that says how it is projected."""
    text = (planned.get("attributes") or {}).get("grid_mapping")
    return words_of("grid_mapping", text)[:1] if isinstance(text, str) else []


def name_shorter(dimension: str, factor: int) -> str:
    """Return what a dimension is called where so many elements are one.

    In one tree with the variable, xarray refuses two lengths of one name.
    """
    return dimension if factor == 1 else f"{dimension}{factor}"


def are_east(attributes: Mapping[str, Any]) -> bool:
    """Say whether values are longitudes: a circle, of which 359 and 1 are neighbors."""
    return _EAST.fullmatch(str(attributes.get("units"))) is not None


def _are_directions(attributes: Mapping[str, Any]) -> bool:
    is_angle = _ANGLE.match(str(attributes.get("units"))) is not None
    return is_angle and _DIRECTION.search(str(attributes.get("standard_name"))) is not None


def mean_longitudes(values: NDArray[Any], factor: int) -> NDArray[np.float64]:
    """Return the means of blocks of longitudes, also where the circle begins anew in a block.

    Such a mean is 0 to 360, or -180 to 180 where a value of its block is negative.
    """
    values = values.astype("f8")
    steps = np.diff(values, prepend=values[:1])
    turns = np.cumsum(np.where(np.abs(steps) > _CIRCLE / 2, -np.sign(steps) * _CIRCLE, 0.0))
    begins = np.arange(0, len(values), factor)
    turns -= np.repeat(turns[begins], factor)[: len(values)]
    counts = np.diff(np.append(begins, len(values)))
    found = np.add.reduceat(values + turns, begins) / counts
    low = np.where(np.minimum.reduceat(values, begins) < 0, -_CIRCLE / 2, 0.0)
    is_across = np.logical_or.reduceat(turns != 0, begins)
    return np.where(is_across, (found - low) % _CIRCLE + low, found)


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
