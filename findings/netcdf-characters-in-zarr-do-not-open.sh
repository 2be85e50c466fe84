#!/usr/bin/env bash
# Characters that netCDF-C writes to Zarr 2 do not open in zarr-python 3.
#
# Versions: netCDF4 1.7.5.1.post1 (netCDF-C inside), zarr 3.4.2 and 2.18.7
# Expected: A variable of characters opens as an array of texts of one byte, as in zarr 2.
# Seen: netCDF-C writes the type `>S1`. The order of bytes means nothing there and numpy ignores it,
#   so zarr 2 opens it. zarr 3 raises a ValueError: it knows only `|S1`. Numbers in the same file are
#   read.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
uv venv --quiet --python 3.13 env
uv pip install --quiet --python env/bin/python netCDF4==1.7.5.1.post1 zarr==3.4.2
uv venv --quiet --python 3.13 two
uv pip install --quiet --python two/bin/python zarr==2.18.7 numcodecs==0.15.1 numpy==2.2.6

env/bin/python -W ignore - <<'EOF'
import json
import os

import netCDF4
import numpy as np
import zarr

with netCDF4.Dataset(f"file://{os.getcwd()}/s.zarr#mode=zarr,file", "w") as file:
    file.createDimension("x", 3)
    file.createVariable("letters", "S1", ("x",))[:] = np.array(list("abc"), "S1")
    file.createVariable("numbers", "i2", ("x",))[:] = [1, 2, 3]
print("netCDF-C", netCDF4.__netcdf4libversion__)
print(json.load(open("s.zarr/letters/.zarray"))["dtype"])
assert zarr.open_array("s.zarr", path="numbers", mode="r")[:].tolist() == [1, 2, 3]
try:
    zarr.open_array("s.zarr", path="letters", mode="r")
except ValueError as error:
    print("zarr 3:", error)
else:
    raise AssertionError("it opened")
EOF

two/bin/python -W ignore - <<'EOF'
import zarr

letters = zarr.open_array("s.zarr", path="letters", mode="r")[:]
print("zarr 2:", letters.tolist())
assert letters.tolist() == [b"a", b"b", b"c"]
EOF
