#!/usr/bin/env bash
# GDAL turns the rows of a GRIB field that is scanned from east to west, and places the picture as
# if it had not.
#
# Versions: rasterio 1.5.2 (GDAL 3.12.2), ecCodes 2.50.0 (to make the messages), numpy 2.5.5
# Expected: The same picture at the same place as for the field from west to east: columns at 0,
#   1, 2, 3 degrees.
# Seen: Values run from west to east, and the geotransform begins at 3 degrees: all is 3 degrees
#   off (the width of the field less one column). Fields by columns and in alternating rows, which
#   other readers get wrong, are right here.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
uv venv --quiet --python 3.13 env
uv pip install --quiet --python env/bin/python \
  rasterio==1.5.2 eccodes==2.50.0 eccodeslib==2.50.0.33 numpy==2.5.5

env/bin/python -W ignore - <<'EOF'
import subprocess
import sys

import rasterio

# ecCodes and rasterio bring libraries of their own: each has its process.
MAKE = '''
import eccodes, numpy as np, sys
GRID = {"Ni": 4, "Nj": 3, "numberOfDataPoints": 12,
    "latitudeOfFirstGridPointInDegrees": 50, "latitudeOfLastGridPointInDegrees": 48,
    "longitudeOfFirstGridPointInDegrees": 0, "longitudeOfLastGridPointInDegrees": 3,
    "iDirectionIncrementInDegrees": 1, "jDirectionIncrementInDegrees": 1, "shortName": "sp"}
EAST = {"iScansNegatively": 1, "longitudeOfFirstGridPointInDegrees": 3,
    "longitudeOfLastGridPointInDegrees": 0}
FORMS = {"west": {}, "east": EAST, "columns": {"jPointsAreConsecutive": 1}}
for name, keys in FORMS.items():
    handle = eccodes.codes_grib_new_from_samples("regular_ll_sfc_grib2")
    for key, value in (GRID | keys).items():
        eccodes.codes_set(handle, key, value)
    rows = np.arange(12.0).reshape(3, 4)
    rows = {"west": rows, "east": rows[:, ::-1], "columns": rows.T}[name]
    eccodes.codes_set_values(handle, rows.ravel())
    open(name + ".grib", "wb").write(eccodes.codes_get_message(handle))
'''
subprocess.run([sys.executable, "-c", MAKE], check=True)
for name, first in (("west", 0.0), ("columns", 0.0), ("east", 3.0)):
    with rasterio.open(f"{name}.grib") as source:
        west, _ = source.transform * (0.5, 0.5)
        print(name, "first column at", west, "first row", source.read(1)[0].tolist())
        assert source.read(1)[0].tolist() == [0.0, 1.0, 2.0, 3.0]
        assert west == first
EOF
