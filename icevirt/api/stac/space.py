"""Find where on Earth a dataset lies: from latitude and longitude, or through its projection.

A box of longitudes may cross the antimeridian: then its west is greater than its east, as GeoJSON
has it. Longitudes from 0 to 360 are those from -180 to 180.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from xarray import DataArray, Dataset

type Box = tuple[float, float, float, float]
"""West, south, east, north, in degrees."""

WORLD: Box = (-180.0, -90.0, 180.0, 90.0)
_LATITUDE = ("latitude", ("degrees_north", "degree_north", "degreesN"), ("lat", "latitude"))
_LONGITUDE = ("longitude", ("degrees_east", "degree_east", "degreesE"), ("lon", "longitude"))
_EVEN = 1.5  # gaps between longitudes that are called equal, by their median
_DENSE = 1.0  # degrees that no gap between swaths of the whole Earth is wider than
_POINTS = 33  # along each side of a projected box


@dataclass(frozen=True, slots=True, kw_only=True)
class EarthSpace:
    """Where the points of a dataset lie, along the dimensions that place them."""

    dimensions: tuple[str, ...] = ()  # of latitude and longitude, or y and x
    x: NDArray[np.float64] | None = None  # by those dimensions; None: it is not known
    y: NDArray[np.float64] | None = None
    system: Any = None  # a pyproj.CRS where x and y are projected
    reference: Any = 4326  # what STAC calls their system: a code of EPSG, or PROJJSON
    note: str = ""  # why it is not known

    def box(self, low: Sequence[int] = (), high: Sequence[int] = ()) -> Box | None:
        """Return the box around the points from ``low`` up to ``high``; all of them by default."""
        if self.x is None or self.y is None:
            return None
        part = tuple(slice(*ends) for ends in zip(low, high, strict=True))
        x, y = self.x[part], self.y[part]
        if self.system is not None:
            x, y = _unproject(self.system, x, y)
        x, y = _once(x), _once(y)
        known = np.isfinite(x), np.isfinite(y)
        if x.shape == y.shape:
            known = (known[0] & known[1],) * 2
        x, y = x[known[0]], y[known[1]]
        if not x.size or not y.size:
            return None
        south, north = float(y.min()), float(y.max())
        west, east = span_of_longitudes(x)
        return west, max(south, -90.0), east, min(north, 90.0)


def space_of(dataset: Dataset) -> EarthSpace:
    """Return where the points of a dataset lie."""
    latitude, longitude = _find(dataset, *_LATITUDE), _find(dataset, *_LONGITUDE)
    if latitude is not None and longitude is not None:
        if latitude.ndim == longitude.ndim == 1 and latitude.dims != longitude.dims:
            dims = (str(latitude.dims[0]), str(longitude.dims[0]))
            y, x = np.meshgrid(_numbers(latitude), _numbers(longitude), indexing="ij", copy=False)
            return EarthSpace(dimensions=dims, x=x, y=y)
        if latitude.dims == longitude.dims:
            both = tuple(map(str, latitude.dims))
            return EarthSpace(dimensions=both, x=_numbers(longitude), y=_numbers(latitude))
    return _projected(dataset)


def _projected(dataset: Dataset) -> EarthSpace:
    x, y = (axis_of(dataset, sign) for sign in ("x", "y"))
    mapping = _mapping_of(dataset)
    if x is None or y is None or mapping is None:
        return EarthSpace(note="it has neither latitudes and longitudes nor a grid mapping")
    try:
        from pyproj import CRS
        from pyproj.exceptions import CRSError
    except ImportError:
        return EarthSpace(note="pyproj is not installed, which undoes its projection")
    try:
        system = CRS.from_cf(dict(mapping.attrs))
    except (CRSError, KeyError, ValueError, TypeError) as error:
        return EarthSpace(note=f"pyproj does not know its grid mapping {mapping.name}: {error}")
    code = system.to_epsg()
    factor = _height_of(mapping) if system.to_cf().get("grid_mapping_name") == _SEEN else 1.0
    yy, xx = np.meshgrid(_numbers(y) * factor, _numbers(x) * factor, indexing="ij", copy=False)
    return EarthSpace(
        dimensions=(str(y.dims[0]), str(x.dims[0])),
        x=xx,
        y=yy,
        system=system,
        reference=code if code is not None else system.to_json_dict(),
    )


_SEEN = "geostationary"


def _height_of(mapping: DataArray) -> float:
    """Return what angles of a geostationary grid are multiplied by, to be lengths."""
    return float(mapping.attrs.get("perspective_point_height", 1.0))


def _mapping_of(dataset: Dataset) -> DataArray | None:
    named = (
        each.attrs.get("grid_mapping") or each.encoding.get("grid_mapping")
        for each in dataset.variables.values()
    )
    for text in named:
        for word in str(text or "").replace(":", " ").split():
            if word in dataset.variables:
                return dataset[word]
    return next(
        (each for name in ("spatial_ref", "crs") if (each := dataset.get(name)) is not None), None
    )


def axis_of(dataset: Dataset, axis: str) -> DataArray | None:
    """Return the coordinate of a dimension that is this axis: x, y or z."""
    return next(
        (dataset[name] for name in dataset.dims if kind_of(dataset, str(name)) == axis), None
    )


def kind_of(dataset: Dataset, dimension: str) -> str:
    """Return the axis that a dimension is by its coordinate: x, y, z, or "" for none of them."""
    if dimension not in dataset.variables:
        return ""
    attrs = dataset[dimension].attrs
    name = str(attrs.get("standard_name", ""))
    units, axis = str(attrs.get("units", "")), str(attrs.get("axis", "")).lower()
    for sign, (standard, spelled, called) in (("x", _LONGITUDE), ("y", _LATITUDE)):
        if name in (standard, f"projection_{sign}_coordinate", f"grid_{standard}"):
            return sign
        if name == f"projection_{sign}_angular_coordinate" or axis == sign or units in spelled:
            return sign
        if dimension.lower() in (*called, sign) and not name:
            return sign
    return "z" if axis == "z" or attrs.get("positive") in ("up", "down") else ""


def _find(
    dataset: Dataset, standard: str, units: Iterable[str], names: Iterable[str]
) -> DataArray | None:
    """Return the variable of latitudes or longitudes."""
    there = {str(name): dataset[name] for name in dataset.variables}
    tests = (
        lambda _, attrs: attrs.get("standard_name") == standard,
        lambda _, attrs: attrs.get("units") in units and "bounds" not in attrs.get("long_name", ""),
        lambda name, _: name.lower() in names,
    )
    for test in tests:
        for name, each in there.items():
            if each.dtype.kind in "iuf" and test(name, each.attrs) and not name.endswith("_bnds"):
                return each
    return None


def _numbers(values: DataArray) -> NDArray[np.float64]:
    found: NDArray[np.float64] = np.asarray(values.values, np.float64)
    return found


def _once(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Drop the axes along which values only repeat, as coordinates of a grid do."""
    return values[tuple(slice(None) if step else slice(0, 1) for step in values.strides)]


def _unproject(
    system: Any, x: NDArray[np.float64], y: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return degrees of points all over a grid, its edges included."""
    from pyproj import Transformer

    rows, columns = (
        np.unique(np.linspace(0, length - 1, min(length, _POINTS)).round().astype(int))
        for length in x.shape
    )
    some = np.ix_(rows, columns)
    to_degrees = Transformer.from_crs(system, 4326, always_xy=True)
    longitude, latitude = to_degrees.transform(x[some], y[some], errcheck=False)
    return np.asarray(longitude), np.asarray(latitude)


def span_of_longitudes(given: NDArray[np.float64]) -> tuple[float, float]:
    """Return west and east of longitudes: what is left of the Earth without their widest gap."""
    around = np.unique(np.round(given % 360.0, 9))
    gaps = np.diff(around, append=around[0] + 360.0)
    widest = int(gaps.argmax())
    others = np.delete(gaps, widest)
    usual = float(np.median(others)) if len(others) > 1 else 0.0
    if len(around) > 1 and gaps[widest] <= max(_EVEN * usual, _DENSE):
        return -180.0, 180.0
    east, west = _signed(around[widest]), _signed(around[(widest + 1) % len(around)])
    return west, 180.0 if east == -180.0 and west != -180.0 else east


def _signed(longitude: float) -> float:
    return float((longitude + 180.0) % 360.0 - 180.0)


def rings_of(box: Box) -> list[list[tuple[float, float]]]:
    """Return the polygons of a box: two where it crosses the antimeridian."""
    west, south, east, north = box
    parts = [(west, east)] if west <= east else [(west, 180.0), (-180.0, east)]
    return [
        [(low, south), (high, south), (high, north), (low, north), (low, south)]
        for low, high in parts
    ]


def wkb_of(box: Box) -> bytes:
    """Return the polygons of a box as well-known binary."""

    def polygon(ring: list[tuple[float, float]]) -> bytes:
        head = b"\x01" + np.array([3, 1, len(ring)], "<u4").tobytes()
        return head + np.array(ring, "<f8").tobytes()

    parts = [polygon(ring) for ring in rings_of(box)]
    if len(parts) == 1:
        return parts[0]
    return b"\x01" + np.array([6, len(parts)], "<u4").tobytes() + b"".join(parts)


def longest_of(dataset: Dataset, dimension: str) -> tuple[float, float] | None:
    """Return the least and the greatest label of a dimension, None where they are no numbers."""
    with suppress(ValueError, TypeError, KeyError):
        values = np.asarray(dataset[dimension].values, np.float64)
        good = values[np.isfinite(values)]
        if good.size:
            return float(good.min()), float(good.max())
    return None
