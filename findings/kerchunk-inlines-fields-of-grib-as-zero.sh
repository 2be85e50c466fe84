#!/usr/bin/env bash
# A field of GRIB that kerchunk's scan_grib stores inline reads as zeros.
#
# Versions: kerchunk 0.2.10, ecCodes 2.50.0, cfgrib 0.9.15.1, xarray 2026.9.0, zarr 3.4.2
# Expected: 250 to 261 with every inline_threshold: it only says how small a field has to be to
#   stand in the references itself.
# Seen: Zeros, without an error, once the field is smaller than the threshold (100 bytes by
#   default): its bytes are stored under the key "t/0", and readers look for "t/0.0".
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
uv venv --quiet --python 3.13 env
uv pip install --quiet --python env/bin/python \
  eccodes==2.50.0 eccodeslib==2.50.0.33 numpy==2.5.5 kerchunk==0.2.10 cfgrib==0.9.15.1 \
  xarray==2026.9.0 zarr==3.4.2 fsspec==2026.9.0

env/bin/python -W ignore - <<'EOF'
import json
import os

import eccodes
import numpy as np
import xarray as xr
from kerchunk.grib2 import scan_grib

GRID = {
    "Ni": 4,
    "Nj": 3,
    "numberOfDataPoints": 12,
    "latitudeOfFirstGridPoint": 20_000_000,
    "latitudeOfLastGridPoint": 0,
    "longitudeOfFirstGridPoint": 0,
    "longitudeOfLastGridPoint": 30_000_000,
    "iDirectionIncrement": 10_000_000,
    "jDirectionIncrement": 10_000_000,
}
handle = eccodes.codes_grib_new_from_samples("regular_ll_sfc_grib2")
for key, value in GRID.items():
    eccodes.codes_set(handle, key, value)
eccodes.codes_set_values(handle, np.arange(12.0) + 250)
with open("m.grib", "wb") as file:
    file.write(eccodes.codes_get_message(handle))


def read(threshold):
    (references,) = scan_grib(f"file://{os.getcwd()}/m.grib", inline_threshold=threshold)
    name = f"{threshold}.json"
    with open(name, "w") as file:
        json.dump(references, file)
    keys = sorted(key for key in references["refs"] if key.startswith("t/0"))
    values = xr.open_dataset(name, engine="kerchunk")["t"].values.ravel()
    print("threshold", threshold, "key", keys, "values", values[:3])
    return keys, values


keys, values = read(20)
assert keys == ["t/0.0"]
assert np.allclose(values, np.arange(12.0) + 250)
keys, values = read(100)
assert keys == ["t/0"]
assert (values == 0).all()
EOF
