#!/usr/bin/env bash
# ecCodes gives wrong points for fields whose rows alternate in direction, though it reads the
# flag.
#
# Versions: ecCodes 2.50.0 (eccodes and eccodeslib of PyPI), cfgrib 0.9.15.1, numpy 2.5.5
# Expected: With `alternativeRowScanning` the second row goes from east to west (flag table 3.4,
#   bit 4): its first value belongs to 3 E.
# Seen: `codes_grib_get_data` and the key `longitudes` give 0 E for it, as without the flag.
#   cfgrib, which turns the rows itself, and ecCodes' own points of one message differ.
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


message = encode(alternativeRowScanning=1)
handle = eccodes.codes_new_from_message(message)
assert eccodes.codes_get(handle, "alternativeRowScanning") == 1
points = [(p["lat"], p["lon"], p["value"]) for p in eccodes.codes_grib_get_data(handle)]
print("second row by ecCodes:", points[4:8])
assert points[4:8] == [(49.0, 0.0, 4.0), (49.0, 1.0, 5.0), (49.0, 2.0, 6.0), (49.0, 3.0, 7.0)]
assert eccodes.codes_get_array(handle, "longitudes")[4:8].tolist() == [0, 1, 2, 3]
with open("m.grib", "wb") as file:
    file.write(message)
ds = xr.open_dataset("m.grib", engine="cfgrib", backend_kwargs={"indexpath": ""})
(field,) = ds.data_vars.values()
row = field.sel(latitude=49)
print("second row by cfgrib:", dict(zip(row.longitude.values.tolist(), row.values.tolist())))
assert row.longitude.values.tolist() == [0, 1, 2, 3]
assert row.values.tolist() == [7, 6, 5, 4]
EOF
