#!/usr/bin/env bash
# cfgrib labels the values of a GRIB message as if it were scanned from west to east, row by row,
# whatever its scanning mode says.
#
# Versions: cfgrib 0.9.15.1, ecCodes 2.50.0, xarray 2026.9.0, numpy 2.5.5
# Expected: The value at 48 N, 0 E that ecCodes itself gives for that point. Backward scanning of
#   latitudes is right.
# Seen: East-to-west fields (`iScansNegatively`) come mirrored; fields stored by columns
#   (`jPointsAreConsecutive`) are shuffled. No error, no warning; coordinates ascend as in any
#   other file.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
uv venv --quiet --python 3.13 env
uv pip install --quiet --python env/bin/python \
  eccodes==2.50.0 eccodeslib==2.50.0.33 numpy==2.5.5 cfgrib==0.9.15.1 xarray==2026.9.0 \
  pandas==3.1.1

env/bin/python -W ignore - <<'EOF'
import eccodes
import numpy as np
import xarray as xr

GRID = {
    "Ni": 4,
    "Nj": 3,
    "latitudeOfFirstGridPointInDegrees": 50,
    "latitudeOfLastGridPointInDegrees": 48,
    "longitudeOfFirstGridPointInDegrees": 0,
    "longitudeOfLastGridPointInDegrees": 3,
    "iDirectionIncrementInDegrees": 1,
    "jDirectionIncrementInDegrees": 1,
    "numberOfDataPoints": 12,
}


def encode(**keys):
    message = eccodes.codes_grib_new_from_samples("regular_ll_sfc_grib2")
    for key, value in (GRID | keys).items():
        eccodes.codes_set(message, key, value)
    eccodes.codes_set_values(message, np.arange(12.0))
    return eccodes.codes_get_message(message)


def points_of_eccodes(message):
    handle = eccodes.codes_new_from_message(message)
    return {(p["lat"], p["lon"]): p["value"] for p in eccodes.codes_grib_get_data(handle)}


def points_of_cfgrib(message):
    with open("m.grib", "wb") as file:
        file.write(message)
    ds = xr.open_dataset("m.grib", engine="cfgrib", backend_kwargs={"indexpath": ""})
    (field,) = ds.data_vars.values()
    return {
        (float(lat), float(lon)): float(field.sel(latitude=lat, longitude=lon))
        for lat in ds.latitude
        for lon in ds.longitude
    }


MODES = {
    "west to east": ({}, True),
    "south to north": (
        {
            "jScansPositively": 1,
            "latitudeOfFirstGridPointInDegrees": 48,
            "latitudeOfLastGridPointInDegrees": 50,
        },
        True,
    ),
    "east to west": (
        {
            "iScansNegatively": 1,
            "longitudeOfFirstGridPointInDegrees": 3,
            "longitudeOfLastGridPointInDegrees": 0,
        },
        False,
    ),
    "by columns": ({"jPointsAreConsecutive": 1}, False),
}
for name, (keys, equal) in MODES.items():
    message = encode(**keys)
    expected, read = points_of_eccodes(message), points_of_cfgrib(message)
    print(f"{name}: at 48 N, 0 E ecCodes {expected[48, 0]}, cfgrib {read[48, 0]}")
    assert (expected == read) is equal
EOF
