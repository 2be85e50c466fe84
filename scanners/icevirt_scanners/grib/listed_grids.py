"""Say where points lie that are a list: of reduced Gaussian, unstructured and HEALPix grids.

Their only dimension is ``values``, as cfgrib calls it. Where places of points follow from the
section, and are not too many to be stored, they are ecCodes'.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from icevirt_scanners.grib.grid_values import Grid
from icevirt_scanners.grib.octets import Octets, UnreadGridError
from icevirt_scanners.grib.projections import gaussian_latitudes

VALUES = "values"
_PLACES = 1 << 16  # points of a grid whose places are stored
_WHOLE = 1  # a list of numbers of points each of which fills its parallel (table 3.11)
_ORDERS = {0: "ring", 1: "nested"}


def _list(held: Octets, kind: str, mapping: Mapping[str, Any], **more: Any) -> Grid:
    digest = hashlib.blake2b(held.section, digest_size=8).digest()
    return Grid(
        kind=kind,
        dimensions=(VALUES,),
        axes={},
        points=held.number(6, 4),
        number=int.from_bytes(digest, "big") >> 1,
        mapping=mapping,
        **more,
    )


def read_reduced(held: Octets) -> Grid:
    """Return a reduced Gaussian grid. Raises `UnreadGridError` for a part of one."""
    size, rows, parallels = held.number(10, 1), held.number(34, 4), held.number(67, 4)
    unit, points = held.unit(), held.number(6, 4)
    if size not in (1, 2, 4) or held.number(11, 1) != _WHOLE or held.number(71, 1):
        raise UnreadGridError("a reduced Gaussian grid in another order, or of other numbers")
    if len(held.section) != 72 + rows * size or rows != 2 * parallels or parallels > 1 << 14:
        raise UnreadGridError("a reduced Gaussian grid that is not the globe")
    counts = np.frombuffer(held.section, f">u{size}", offset=72).astype(np.int64)
    latitudes = gaussian_latitudes(parallels)
    first, west = held.degrees(46, unit), held.degrees(50, unit)
    east = 360 - 360 / max(int(counts.max(initial=1)), 1)
    if (
        int(counts.sum()) != points
        or not counts.all()
        or abs(first - latitudes[0]) > 0.01
        or west
        or held.degrees(59, unit) < east - 0.01
    ):
        raise UnreadGridError("a reduced Gaussian grid that is not the globe")
    places = None
    if points <= _PLACES:
        starts = np.repeat(np.cumsum(counts) - counts, counts)
        turns = (np.arange(points) - starts) * 360.0
        places = np.repeat(latitudes, counts), turns / np.repeat(counts, counts)
    mapping = {
        "grid_mapping_name": "latitude_longitude",
        "GRIB_N": parallels,
        "GRIB_pl": counts.tolist(),
    }
    is_relative = bool(held.number(54, 1) & 8)
    return _list(held, "reduced_gg", mapping, places=places, is_relative=is_relative)


def _unstructured(held: Octets) -> Grid:
    return _list(
        held,
        "unstructured_grid",
        {
            "grid_mapping_name": "latitude_longitude",
            "GRIB_numberOfGridUsed": held.number(15, 3),
            "GRIB_numberOfGridInReference": held.number(18, 1),
            "GRIB_uuidOfHGrid": held.section[19:35].hex(),
        },
    )


def _healpix(held: Octets) -> Grid:
    sides, order = held.number(31, 4), _ORDERS.get(held.number(40, 1))
    if order is None or 12 * sides * sides != held.number(6, 4) or held.number(41, 1):
        raise UnreadGridError("a part of a HEALPix grid, or one in an order of its own")
    return _list(
        held,
        "healpix",
        {"grid_mapping_name": "healpix", "healpix_nside": sides, "healpix_order": order},
        is_relative=bool(held.number(30, 1) & 8),
    )


WITHOUT_ROWS: dict[int, tuple[int, Callable[[Octets], Grid]]] = {
    101: (35, _unstructured),
    150: (42, _healpix),
}
"""By template: bytes of its section at least, and what reads it."""
