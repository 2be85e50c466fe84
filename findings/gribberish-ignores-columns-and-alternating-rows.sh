#!/usr/bin/env bash
# gribberish reads fields that are stored by columns, or in rows that alternate in direction, as
# plain rows.
#
# Versions: gribberish 1.9.0, ecCodes 2.50.0 (to make the messages), xarray 2026.9.0, zarr 3.4.2,
#   numpy 2.5.5
# Expected: The values in their places, or a refusal: gribberish does honor the flag for fields
#   from east to west.
# Seen: Four messages that differ in scanning mode alone give the same array; two of them are
#   wrong, without an error.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
uv venv --quiet --python 3.13 env
uv pip install --quiet --python env/bin/python \
  eccodes==2.50.0 eccodeslib==2.50.0.33 numpy==2.5.5 gribberish[xarray]==1.9.0 \
  obstore==0.12.1 xarray==2026.9.0 zarr==3.4.2 pandas==3.1.1

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


def read(message):
    with open("m.grib", "wb") as file:
        file.write(message)
    tree = xr.open_datatree("m.grib", engine="gribberish")
    (node,) = [node for node in tree.leaves if node.data_vars]
    (field,) = node.data_vars.values()
    return field.squeeze().transpose("latitude", "longitude").load()


rows = [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 11]]
plain = read(encode())
assert plain.values.tolist() == rows
backwards = {"longitudeOfFirstGridPointInDegrees": 3, "longitudeOfLastGridPointInDegrees": 0}
east = read(encode(iScansNegatively=1, **backwards))
assert float(east.sel(latitude=50, longitude=3)) == 0  # right
columns = read(encode(jPointsAreConsecutive=1))
print("by columns: 49 N, 0 E should be 1, is", float(columns.sel(latitude=49, longitude=0)))
assert columns.values.tolist() == rows
alternating = read(encode(alternativeRowScanning=1))
print("alternating: 49 N, 0 E should be 7, is", float(alternating.sel(latitude=49, longitude=0)))
assert alternating.values.tolist() == rows
EOF
