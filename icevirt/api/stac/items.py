"""Write the files of a dataset as STAC items, a row each, in the columns of stac-geoparquet.

Rows are columns all the way: geometries are made once for each distinct box of the grid, and times
are looked up in the times of the dataset.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute
from numpy.typing import NDArray

from icevirt.api.stac.collection import STAC_VERSION
from icevirt.api.stac.space import Box, EarthSpace, wkb_of
from icevirt.api.stac.times import StepTimes
from icevirt.model.json import JSON

pc: Any = pyarrow.compute  # whose overloads know no arrays of arrays

FILE = "https://stac-extensions.github.io/file/v2.1.0/schema.json"
_MEDIA = {  # types of files, by the ends of their names
    r"\.nc4?$|\.cdf$": "application/netcdf",
    r"\.(h5|hdf5|he5)$": "application/x-hdf5",
    r"\.(grb2?|grib2?)$": "application/wmo-GRIB2",
    r"\.tiff?$": "image/tiff; application=geotiff",
    r"\.zarr(/|$)": "application/vnd.zarr",
}
_MOMENT = pa.timestamp("us", tz="UTC")
_BOX = ["xmin", "ymin", "xmax", "ymax"]


def items_of(
    files: pa.Table, *, collection: str, space: EarthSpace, times: StepTimes | None
) -> pa.Table:
    """Return the table.

    Args:
        files: A row a file: url, etag, last_modified (seconds), size, and where it lies along the
            dimensions: ``low_NAME`` and ``high_NAME``, null where it is not known.
        collection: Id of the collection.
        space: Where the dataset lies.
        times: When.
    """
    count = len(files)
    boxes, which = _boxes(files, space)
    known: Any = pa.array(which, mask=which < 0)
    geometry = pa.array([wkb_of(box) for box in boxes], pa.binary()).take(known)
    sides = [
        pa.array([box[side] for box in boxes], pa.float64()).take(known)
        for side in range(len(_BOX))
    ]
    start, end = _times(files, times)
    single = pc.fill_null(pc.equal(start, end), False)
    columns: dict[str, Any] = {
        "type": _same("Feature", count),
        "stac_version": _same(STAC_VERSION, count),
        "stac_extensions": _same([FILE], count),
        "id": _ids(files["url"]),
        "geometry": geometry,
        "bbox": pa.StructArray.from_arrays(sides, _BOX, mask=pc.is_null(geometry)),
        "links": pa.array([[_COLLECTION]], pa.list_(_LINK)).take(_zeros(count)),
        "assets": _assets(files),
        "collection": _same(collection, count),
        "datetime": pc.if_else(single, start, pa.scalar(None, _MOMENT)),
        "start_datetime": start,
        "end_datetime": end,
    }
    table = pa.table(columns)
    return table.replace_schema_metadata({b"geo": json.dumps(_geo(boxes, which)).encode()})


_COLLECTION = {"href": "./collection.json", "rel": "collection", "type": "application/json"}
_LINK = pa.struct([("href", pa.string()), ("rel", pa.string()), ("type", pa.string())])


def _zeros(count: int) -> Any:
    return pa.array(np.zeros(count, np.int64))


def _same(value: Any, count: int) -> Any:
    return pa.array([value]).take(_zeros(count))


def _ids(urls: Any) -> Any:
    """Return names without folders and suffixes; with folders where two files have one name."""
    plain = pc.replace_substring_regex(urls, r"/?$", "")
    names = pc.replace_substring_regex(plain, r"^.*/", "")
    short = pc.replace_substring_regex(names, r"\.[A-Za-z0-9]{1,5}$", "")
    for found in (short, names):
        if pc.count_distinct(found).as_py() == len(found):
            return found
    whole = pc.replace_substring_regex(plain, r"^[a-z0-9+.-]+:/*", "")
    return pc.replace_substring_regex(whole, r"[/:]+", "_")


def _assets(files: pa.Table) -> Any:
    urls = files["url"].combine_chunks()
    media = pa.scalar("application/octet-stream")
    for pattern, kind in _MEDIA.items():
        media = pc.if_else(pc.match_substring_regex(urls, pattern), kind, media)
    moments = pc.cast(pc.cast(files["last_modified"], pa.int64()), pa.timestamp("s"))
    parts = {
        "href": urls,
        "type": media,
        "roles": _same(["data"], len(files)),
        "file:size": files["size"],
        "updated": pc.strftime(moments, "%Y-%m-%dT%H:%M:%SZ"),
        "icevirt:etag": files["etag"],
    }
    parts = {name: column for name, column in parts.items() if column.null_count < len(files)}
    data = pa.StructArray.from_arrays([_whole(each) for each in parts.values()], list(parts))
    return pa.StructArray.from_arrays([data], ["data"])


def _whole(column: Any) -> Any:
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column


def _numbers(files: pa.Table, name: str) -> NDArray[np.int64]:
    column = pc.fill_null(files[name], -1)
    found: NDArray[np.int64] = column.to_numpy().astype(np.int64)
    return found


def _boxes(files: pa.Table, space: EarthSpace) -> tuple[list[Box], NDArray[np.int64]]:
    """Return the distinct boxes, and which one each file has; -1 where it is not known."""
    names = [f"{end}_{name}" for name in space.dimensions for end in ("low", "high")]
    if space.x is None:
        return [], np.full(len(files), -1, np.int64)
    ends = np.column_stack([_numbers(files, name) for name in names])
    distinct, which = np.unique(ends, axis=0, return_inverse=True)
    found: list[Box] = []
    place = np.full(len(distinct), -1, np.int64)
    for at, row in enumerate(distinct.tolist()):
        whole = [(0, length) for length in space.x.shape]
        pairs = list(zip(row[::2], row[1::2], strict=True))
        some = [own if own[0] >= 0 else full for own, full in zip(pairs, whole, strict=True)]
        if (box := space.box([low for low, _ in some], [high for _, high in some])) is not None:
            place[at] = len(found)
            found.append(box)
    return found, place[which.ravel()]


def _times(files: pa.Table, times: StepTimes | None) -> tuple[Any, Any]:
    if times is None:
        none = pa.nulls(len(files), _MOMENT)
        return none, none
    low, high = (_numbers(files, f"{end}_{times.dimension}") for end in ("low", "high"))
    ends = times.ranges(np.maximum(low, 0), np.where(low < 0, 0, high))
    start, end = (pa.array(each, pa.timestamp("us")).cast(_MOMENT) for each in ends)
    return start, end


def _geo(boxes: Sequence[Box], which: NDArray[np.int64]) -> Mapping[str, JSON]:
    """Return the metadata of GeoParquet."""
    kinds = sorted({"MultiPolygon" if west > east else "Polygon" for west, _, east, _ in boxes})
    column: dict[str, JSON] = {
        "encoding": "WKB",
        "geometry_types": kinds,
        "covering": {"bbox": {side: ["bbox", side] for side in _BOX}},
    }
    used = [boxes[at] for at in np.unique(which[which >= 0]).tolist()]
    if used and not any(west > east for west, _, east, _ in used):
        west, south, east, north = np.array(used).T
        ends = west.min(), south.min(), east.max(), north.max()
        column["bbox"] = list(map(float, ends))
    return {"version": "1.1.0", "primary_column": "geometry", "columns": {"geometry": column}}
