"""Make the arrays of a file: references to messages, and coordinates that are stored."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from icevirt.archive.joining import Fact
from icevirt.archive.scanned import FactsBeside, ScannedArray
from icevirt.model import paths
from icevirt.model.attributes import Attributes
from icevirt.model.chunks import ChunkTable
from icevirt.model.json import JSON
from icevirt_scanners import blocks
from icevirt_scanners.context import ScanContext
from icevirt_scanners.encoding import GZIP, bytes_codec, hash_values, squeeze
from icevirt_scanners.grib.cube import NUMBER, STEP, TIME, Cube, LevelAxis
from icevirt_scanners.grib.described import GridOfFile
from icevirt_scanners.grib.grid_values import DEGREES, Grid
from icevirt_scanners.grib.variables import VariableKey
from icevirt_scanners.stored import hold

MAPPING = "spatial_ref"
VALID_TIME = "valid_time"
_FLOAT = np.dtype("<f8")
_FLOAT_NAME = _FLOAT.name  # one text: what files share is described once
_NO_TIME = -9_223_372_036_854_775_806  # NC_FILL_INT64: of a lead that a run lacks
_EPOCH = {"units": "seconds since 1970-01-01T00:00:00", "calendar": "proleptic_gregorian"}
_ATTRIBUTES: Mapping[str, Mapping[str, Any]] = {
    TIME: {
        **_EPOCH,
        "standard_name": "forecast_reference_time",
        "long_name": "initial time of forecast",
    },
    STEP: {
        "dtype": "timedelta64[ns]",
        "standard_name": "forecast_period",
        "long_name": "time since forecast_reference_time",
    },
    VALID_TIME: {
        **_EPOCH,
        "standard_name": "time",
        "long_name": "time",
        "_FillValue": _NO_TIME,
    },
    NUMBER: {
        "units": "1",
        "standard_name": "realization",
        "long_name": "ensemble member numerical id",
    },
    "depthBelowLand": {"units": "m", "positive": "down", "standard_name": "depth"},
    "depthBelowLandLayer": {"units": "m", "positive": "down", "standard_name": "depth"},
    "heightAboveGround": {"units": "m", "positive": "up", "standard_name": "height"},
    "heightAboveSea": {"units": "m", "positive": "up", "standard_name": "altitude"},
    "hybrid": {
        "units": "1",
        "positive": "down",
        "standard_name": "atmosphere_hybrid_sigma_pressure_coordinate",
    },
    "isobaricInhPa": {"units": "hPa", "positive": "down", "standard_name": "air_pressure"},
    "isobaricLayer": {"units": "hPa", "positive": "down", "standard_name": "air_pressure"},
}


def codec_of(variable: str) -> tuple[JSON, ...]:
    """Return the codec that decodes a message to its values, or the places of its points."""
    return ({"name": "gribberish", "configuration": {"var": variable}},)


_VALUES, _PLACES = codec_of("values"), {name: codec_of(name) for name in ("latitude", "longitude")}


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PlacedFields:
    """A variable, and where its fields are in the cube."""

    path: str
    key: VariableKey
    cube: Cube
    grid: Grid
    index: NDArray[np.int64]  # (n, axes)
    placed_by: Mapping[str, Any] | None = None  # see `ScannedArray`

    def refer(
        self, offset: NDArray[np.int64], length: NDArray[np.int64], context: ScanContext
    ) -> ScannedArray:
        """Return the array whose chunks are messages."""
        table = blocks.virtual(self.path, self._chunks(), offset, length, context)
        return self._array(table.sort(), _VALUES)

    def store(self, fields: Sequence[NDArray[np.float64]]) -> ScannedArray:
        """Return the array whose chunks are stored."""
        chunks = [squeeze(np.ascontiguousarray(each, _FLOAT).tobytes()) for each in fields]
        table = ChunkTable.of_inline(index=self._chunks(), chunks=chunks)
        return self._array(table.sort(), (bytes_codec(_FLOAT), GZIP))

    def _chunks(self) -> NDArray[np.int64]:
        first = np.zeros((len(self.index), len(self.grid.shape)), np.int64)
        return np.column_stack([self.index, first])

    def _array(self, table: ChunkTable, codecs: tuple[JSON, ...]) -> ScannedArray:
        axes = self.cube.dimensions(self.key)
        return ScannedArray(
            path=self.path,
            dimension_names=(*axes, *self.grid.dimensions),
            shape=(*map(self.cube.length, axes), *self.grid.shape),
            chunk_shape=(*(1 for _ in axes), *self.grid.shape),
            data_type=_FLOAT_NAME,
            codecs=codecs,
            fill_value="NaN",
            attributes=_attributes_of(self.key, self.grid),
            references=table,
            placed_by=self.placed_by,
        )


@lru_cache(4096)  # files of an archive have the same variables
def _attributes_of(key: VariableKey, grid: Grid) -> Attributes:
    return Attributes.of(describe(key, grid))


def describe(key: VariableKey, grid: Grid) -> dict[str, Any]:
    """Return the attributes of a variable, as cfgrib names them."""
    parameter = key.parameter
    beside = [VALID_TIME]
    if grid.mapping:
        beside += [MAPPING]
    if grid.places or grid.is_located:
        beside += ["latitude", "longitude"]
    found: dict[str, Any] = {
        "GRIB_paramId": parameter.param_id,
        "GRIB_shortName": parameter.short_name,
        "GRIB_cfVarName": parameter.cf_var_name,
        "GRIB_name": parameter.name,
        "GRIB_units": parameter.units,
        "GRIB_typeOfLevel": key.type_of_level,
        "GRIB_stepType": key.step_type,
        "GRIB_gridType": grid.kind,
        "GRIB_uvRelativeToGrid": int(grid.is_relative),
        "long_name": parameter.name,
        "units": parameter.units,
        "standard_name": parameter.cf_name,
        "cell_methods": key.cell_methods,
        "time_window": key.time_window,
        "coordinates": " ".join(beside),
        "grid_mapping": MAPPING if grid.mapping else "",
    }
    if key.level is not None:
        found["GRIB_level"] = key.level
    return {name: value for name, value in found.items() if value not in ("", "unknown", "~")}


def coordinates(cube: Cube, place: GridOfFile, context: ScanContext) -> Iterator[ScannedArray]:
    """Yield the coordinates of a file; those that files have alike are made once."""
    grid = place.grid
    yield from _times(cube.times.tobytes(), cube.steps.tobytes())
    if len(cube.members):
        yield _members(cube.members.tobytes())
    for kind, axis in cube.levels.items():
        yield from _levels(kind, axis)
    yield from _points(grid)
    if grid.is_located and not grid.places and place.first is not None:
        yield from (_locate(name, place, place.first, context) for name in _PLACES)


@lru_cache(1024)
def _times(times: bytes, steps: bytes) -> tuple[ScannedArray, ...]:
    runs, leads = np.frombuffer(times, np.int64), np.frombuffer(steps, np.int64)
    valid = runs[:, None] + leads
    return (
        hold(TIME, (TIME,), runs, _ATTRIBUTES[TIME]),
        _steps(leads),
        hold(VALID_TIME, (TIME, STEP), valid, _ATTRIBUTES[VALID_TIME]),
    )


@lru_cache(256)
def _members(members: bytes) -> ScannedArray:
    return hold(NUMBER, (NUMBER,), np.frombuffer(members, np.int64), _ATTRIBUTES[NUMBER])


@lru_cache(64)
def _points(grid: Grid) -> tuple[ScannedArray, ...]:
    """Return the coordinates of a grid that are computed here."""
    axes = (hold(name, (name,), axis.values, axis.attributes) for name, axis in grid.axes.items())
    mapping = (hold(MAPPING, (), np.int64(grid.number), grid.mapping),) if grid.mapping else ()
    places = zip(_PLACES, grid.places or (), strict=grid.places is not None)
    degrees = (hold(name, grid.dimensions, each, DEGREES[name]) for name, each in places)
    return (*axes, *mapping, *degrees)


@lru_cache(256)
def _levels(kind: str, axis: LevelAxis) -> tuple[ScannedArray, ...]:
    attributes = {
        "long_name": f"original GRIB coordinate for key: level({kind})",
        "units": "1",
        **_ATTRIBUTES.get(kind, {}),
    }
    if axis.bounds is None:
        return (hold(kind, (kind,), axis.values, attributes),)
    attributes["bounds"] = f"{kind}_bounds"
    bounds = hold(f"{kind}_bounds", (kind, "bounds"), axis.bounds, {})
    return bounds, hold(kind, (kind,), axis.values, attributes)


def _steps(seconds: NDArray[np.int64]) -> ScannedArray:
    """Return the steps in the largest unit of which all are multiples; plans join any units."""
    size, unit = next(
        (size, unit)
        for size, unit in ((3600, "hours"), (60, "minutes"), (1, "seconds"))
        if not (seconds % size).any()
    )
    return hold(STEP, (STEP,), seconds // size, {"units": unit, **_ATTRIBUTES[STEP]})


def _locate(
    name: str, place: GridOfFile, first: tuple[int, int], context: ScanContext
) -> ScannedArray:
    """Return the places of the points of a map, which the codec computes from a message."""
    path, shape = paths.join(paths.ROOT, name), place.grid.shape
    offset, length = (np.array([each]) for each in first)
    array = ScannedArray(
        path=path,
        dimension_names=place.grid.dimensions,
        shape=shape,
        chunk_shape=shape,
        data_type=_FLOAT.name,
        codecs=_PLACES[name],
        fill_value="NaN",
        attributes=Attributes.of(DEGREES[name]),
        references=blocks.virtual(path, np.zeros((1, 2), np.int64), offset, length, context),
    )
    if Fact.digest not in context.choose_facts(array):
        return array
    # files that describe their grid alike have the same places
    digest = hash_values(_FLOAT.name, shape, [name.encode(), place.section])
    return replace(array, beside=FactsBeside(digest=digest))
