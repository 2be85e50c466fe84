"""Say where the points of a grid lie, from section 3: dimensions, coordinates, grid mapping.

Numbers are computed as ecCodes does, once for each grid. Values of a message stand in the order in
which its grid is scanned, and so do its dimensions: rows of points, or columns where the points of
a column follow each other.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from icevirt_scanners.grib.grid_values import DEGREES, Axis, Grid
from icevirt_scanners.grib.listed_grids import WITHOUT_ROWS, read_reduced
from icevirt_scanners.grib.octets import Octets, UnreadGridError
from icevirt_scanners.grib.projections import Earth, gaussian_latitudes, unrotate

type Degrees = NDArray[np.float64]


_PROJECTED = {
    "y": {"units": "m", "standard_name": "projection_y_coordinate", "axis": "Y"},
    "x": {"units": "m", "standard_name": "projection_x_coordinate", "axis": "X"},
}
_ROTATED = {
    "y": {"units": "degrees", "standard_name": "grid_latitude", "axis": "Y"},
    "x": {"units": "degrees", "standard_name": "grid_longitude", "axis": "X"},
}
_PLACES = 1 << 16  # points of a grid whose places are stored: they are not in the message
_LONGEST = 1 << 20  # points of an axis
_GAUSSIAN = 40
_UNREAD = "unread_grid"
_OTHERS = {
    **dict.fromkeys((50, 51, 52, 53), "spectral coefficients"),
    **dict.fromkeys((2, 3, 42, 43), "a stretched grid"),
    **dict.fromkeys((4, 5), "a grid of variable resolution"),
    12: "a transverse Mercator grid",
    31: "an Albers grid",
    90: "a space view",
    100: "a triangular grid",
    140: "an azimuthal Lambert grid",
    41: "a rotated Gaussian grid",
}
# shapes of the earth (table 3.2) for which ecCodes and the codec place points alike
_LOCATED = {"lambert": (0, 1, 5, 6), "mercator": (0, 1, 5, 6), "polar_stereographic": (0, 1, 6)}
_NEGATIVE, _POSITIVE, _BY_COLUMN = 0x80, 0x40, 0x20  # of a scanning mode (table 3.4)


@lru_cache(256)
def read_grid(section: bytes) -> Grid:
    """Return the grid that a section 3 describes.

    Raises:
        UnreadGridError: It is of a kind that is not read.
    """
    held = Octets(section)
    template = held.number(12, 2)
    if held.number(5, 1) or template not in _READ:
        what = _OTHERS.get(template, f"grid definition template 3.{template}")
        raise UnreadGridError(what)
    size, read = _READ[template]
    if len(section) < size:
        raise UnreadGridError(f"a section 3 of {len(section)} bytes, too short for its template")
    if template in WITHOUT_ROWS:
        return read(held)
    if held.number(10, 1):
        if template != _GAUSSIAN:
            raise UnreadGridError("a reduced grid of equal latitudes")
        return read_reduced(held)
    columns, rows = held.number(30, 4), held.number(34, 4)
    if columns * rows != held.number(6, 4) or not columns * rows:
        points = held.number(6, 4)
        raise UnreadGridError(f"a grid of {columns} by {rows} points that says it has {points}")
    if max(columns, rows) > _LONGEST:
        raise UnreadGridError(f"a grid of {columns} by {rows} points")
    try:
        return read(held)
    except (ArithmeticError, ValueError) as error:
        raise UnreadGridError(f"a grid whose numbers describe none ({error})") from error


def name_grids(sections: Sequence[bytes]) -> list[str]:
    """Return the name of a group for each grid of a file, each another one.

    They have a digest of the section where kind, shape and first point are those of another grid,
    or where the grid is of a kind that is not read.
    """
    names = [*map(name_grid, sections)]
    return [
        f"{name}_{hashlib.blake2b(section, digest_size=4).hexdigest()}"
        if names.count(name) > 1 or name == _UNREAD
        else name
        for name, section in zip(names, sections, strict=True)
    ]


def name_grid(section: bytes) -> str:
    """Return the name of a grid: its kind, its shape, and where its first point is."""
    try:
        grid, held = read_grid(section), Octets(section)
    except UnreadGridError:
        return _UNREAD
    if grid.points:
        return f"{grid.kind}_{grid.points}"
    is_map, unit = grid.dimensions == ("y", "x") and grid.kind != "rotated_ll", 1e6
    if not is_map:
        unit = held.unit()
    first = (held.degrees(at, unit) for at in ((38, 42) if is_map else (46, 50)))
    return "_".join(
        (grid.kind, "x".join(map(str, grid.shape)), *(f"{each:.10g}" for each in first))
    )


def _order(flags: int, rows: str, columns: str) -> tuple[str, str]:
    return (columns, rows) if flags & _BY_COLUMN else (rows, columns)


def _along(first: float, step: float, count: int) -> NDArray[np.float64]:
    """Return numbers that grow by a step, each from the one before, as ecCodes adds them."""
    return np.add.accumulate(np.concatenate([[first], np.full(count - 1, step)]))


def _longitudes(held: Octets, flags: int) -> NDArray[np.float64]:
    unit, count = held.unit(), held.number(30, 4)
    first, last = held.degrees(50, unit), held.degrees(59, unit)
    if count == 1:
        return np.array([last % 360 if last > 0 else last])
    if flags & _NEGATIVE:
        step = -((first if first > last else first + 360.0) - last) / (count - 1)
    else:
        step = ((last if last > first else last + 360.0) - first) / (count - 1)
        if first + (count - 2) * step > 360:
            first -= 360
    found = _along(first, step, count)
    found[-1] = last - 360 if last > 360 else last
    return found


def _latitudes(held: Octets, flags: int) -> NDArray[np.float64]:
    unit, count = held.unit(), held.number(34, 4)
    first, last, step = (held.degrees(at, unit) for at in (46, 55, 67))
    if held.number(67, 4) == 0xFFFFFFFF:
        step = abs(first - last) / max(count - 1, 1)
    _check_direction(first, last, flags)
    found = _along(first, step if flags & _POSITIVE else -step, count)
    found[-1] = last
    return found


def _check_direction(first: float, last: float, flags: int) -> None:
    if (last < first) if flags & _POSITIVE else (first < last):
        raise UnreadGridError(f"latitudes from {first:g} to {last:g} against its scanning mode")


def _gaussian(held: Octets, flags: int) -> NDArray[np.float64]:
    unit, count, parallels = held.unit(), held.number(34, 4), held.number(67, 4)
    first, last = held.degrees(46, unit), held.degrees(55, unit)
    if not 0 < parallels <= 1 << 14:
        raise UnreadGridError(f"a Gaussian grid of {parallels} parallels")
    _check_direction(first, last, flags)
    every = gaussian_latitudes(parallels)
    every = every[::-1] if flags & _POSITIVE else every
    at = int(np.argmin(np.abs(every - first))) if count != len(every) else 0
    found = every[at : at + count]
    if len(found) != count or abs(found[0] - first) > 0.01 or abs(found[-1] - last) > 0.01:
        raise UnreadGridError(f"a Gaussian grid of {count} rows from {first:g} to {last:g}")
    return found


def _regular(held: Octets) -> Grid:
    return _on_degrees(held, "regular_ll", _latitudes)


def _regular_gaussian(held: Octets) -> Grid:
    return _on_degrees(held, "regular_gg", _gaussian)


def _on_degrees(
    held: Octets, kind: str, latitudes: Callable[[Octets, int], NDArray[np.float64]]
) -> Grid:
    flags = held.scan(71)
    return Grid(
        kind=kind,
        dimensions=_order(flags, "latitude", "longitude"),
        axes={
            "latitude": Axis(values=latitudes(held, flags), attributes=DEGREES["latitude"]),
            "longitude": Axis(values=_longitudes(held, flags), attributes=DEGREES["longitude"]),
        },
        is_relative=bool(held.number(54, 1) & 8),
        is_alternating=held.is_alternating(71),
    )


def _rotated(held: Octets) -> Grid:
    flags = held.scan(71)
    unit = held.unit()
    pole = held.degrees(72, unit), held.degrees(76, unit)
    if held.number(80, 4) & 0x7FFFFFFF:
        raise UnreadGridError("a rotated grid that is turned around its pole as well")
    rows, columns = _latitudes(held, flags), _longitudes(held, flags)
    dimensions = _order(flags, "y", "x")
    places = None
    if len(rows) * len(columns) <= _PLACES:
        y, x = np.meshgrid(rows, columns, indexing="ij")
        places = unrotate(y, x, pole=pole)
        if flags & _BY_COLUMN:
            places = places[0].T, places[1].T
    return Grid(
        kind="rotated_ll",
        dimensions=dimensions,
        axes={
            "y": Axis(values=rows, attributes=_ROTATED["y"]),
            "x": Axis(values=columns, attributes=_ROTATED["x"]),
        },
        mapping={
            "grid_mapping_name": "rotated_latitude_longitude",
            "grid_north_pole_latitude": -pole[0],
            "grid_north_pole_longitude": (pole[1] + 360) % 360 - 180,
        },
        places=places,
        is_relative=bool(held.number(54, 1) & 8),
        is_alternating=held.is_alternating(71),
    )


def _mercator(held: Octets) -> Grid:
    earth, true_scale = held.earth(), held.degrees(47)
    if held.number(60, 4):
        raise UnreadGridError("a Mercator grid that is turned")
    first = earth.mercator(held.degrees(38), held.degrees(42), true_scale=true_scale)
    mapping = {
        "grid_mapping_name": "mercator",
        "standard_parallel": true_scale,
        "longitude_of_projection_origin": 0.0,
    }
    place = _Place(first=first, steps=(64, 68), scan=59, earth=earth)
    return _on_map(held, "mercator", place, mapping)


def _stereographic(held: Octets) -> Grid:
    earth, true_scale, meridian = held.earth(), held.degrees(47), held.degrees(51)
    south = bool(held.number(63, 1) & 0x80)
    if true_scale and (true_scale < 0) != south:
        raise UnreadGridError("a polar grid that is true to scale at the other pole's side")
    first = earth.stereographic(
        held.degrees(38),
        held.degrees(42),
        true_scale=true_scale,
        meridian=meridian,
        south=south,
    )
    mapping = {
        "grid_mapping_name": "polar_stereographic",
        "straight_vertical_longitude_from_pole": meridian,
        "latitude_of_projection_origin": -90.0 if south else 90.0,
        "standard_parallel": true_scale,
    }
    place = _Place(first=first, steps=(55, 59), scan=64, earth=earth)
    return _on_map(held, "polar_stereographic", place, mapping)


def _lambert(held: Octets) -> Grid:
    earth = held.earth()
    origin, parallels = (held.degrees(47), held.degrees(51)), (held.degrees(65), held.degrees(69))
    if min(map(abs, parallels)) == 0 or abs(parallels[0] + parallels[1]) < 1e-6:
        raise UnreadGridError("a Lambert grid whose cone is a cylinder")
    first = earth.lambert(held.degrees(38), held.degrees(42), parallels=parallels, origin=origin)
    mapping = {
        "grid_mapping_name": "lambert_conformal_conic",
        "standard_parallel": list(dict.fromkeys(parallels)),
        "latitude_of_projection_origin": origin[0],
        "longitude_of_central_meridian": origin[1],
    }
    place = _Place(first=first, steps=(55, 59), scan=64, earth=earth)
    return _on_map(held, "lambert", place, mapping)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Place:
    """Where a grid lies on a map: its first point in meters, and octets of steps and scan."""

    first: tuple[float, float]
    steps: tuple[int, int]
    scan: int
    earth: Earth


def _on_map(held: Octets, kind: str, place: _Place, mapping: dict[str, Any]) -> Grid:
    """Return a grid of equal steps on a map, in millimeters from its first point."""
    if (flags := held.scan(place.scan)) != _POSITIVE:
        raise UnreadGridError(f"a grid on a map of scanning mode {flags:#04x}")
    across, up = (held.number(at, 4) / 1000 for at in place.steps)
    columns, rows = held.number(30, 4), held.number(34, 4)
    return Grid(
        kind=kind,
        dimensions=("y", "x"),
        axes={
            "y": Axis(
                values=place.first[1] + up * np.arange(rows, dtype=np.float64),
                attributes=_PROJECTED["y"],
            ),
            "x": Axis(
                values=place.first[0] + across * np.arange(columns, dtype=np.float64),
                attributes=_PROJECTED["x"],
            ),
        },
        mapping={
            **mapping,
            "false_easting": 0.0,
            "false_northing": 0.0,
            "semi_major_axis": place.earth.major,
            "semi_minor_axis": place.earth.minor,
        },
        is_located=held.number(14, 1) in _LOCATED[kind],
        is_relative=bool(held.number(46, 1) & 8),
        is_alternating=held.is_alternating(place.scan),
    )


# by template: bytes of its section at least, and what reads it
_READ: dict[int, tuple[int, Callable[[Octets], Grid]]] = {
    0: (72, _regular),
    1: (84, _rotated),
    10: (72, _mercator),
    20: (65, _stereographic),
    30: (81, _lambert),
    _GAUSSIAN: (72, _regular_gaussian),
} | WITHOUT_ROWS
