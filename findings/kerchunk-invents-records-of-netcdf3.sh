#!/usr/bin/env bash
# kerchunk counts more records than a NetCDF-3 file holds, if its only record variable needs
# padding.
#
# Versions: kerchunk 0.2.10, netCDF4 1.7.5.1.post1, scipy 1.18.1, zarr 3.4.2, numpy 2.5.5
# Expected: 4 records of three int16: NetCDF-3 leaves the padding out if there is one record
#   variable, and scipy, on whose reader kerchunk is built, knows it.
# Seen: 5 records; 8 for a series of one int16. The references of the others name bytes behind the
#   end of the file. With the default `inline_threshold` a small file raises "cannot reshape array
#   of size 0".
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
uv venv --quiet --python 3.13 env
uv pip install --quiet --python env/bin/python \
  kerchunk==0.2.10 netCDF4==1.7.5.1.post1 scipy==1.18.1 zarr==3.4.2 numpy==2.5.5

env/bin/python -W ignore - <<'EOF'
import os

import netCDF4
import numpy as np
from kerchunk.netCDF3 import NetCDF3ToZarr
from scipy.io import netcdf_file

for width, invented in ((3, 5), (1, 8)):
    with netCDF4.Dataset("r.nc", "w", format="NETCDF3_CLASSIC") as file:
        file.createDimension("time", None)
        file.createDimension("x", width)
        file.createVariable("v", "i2", ("time", "x"))[:] = np.ones((4, width))
    with netcdf_file("r.nc", mmap=False) as file:
        assert file.variables["v"].shape == (4, width)
    refs = NetCDF3ToZarr("r.nc", inline_threshold=0).translate()["refs"]
    chunks = [value for key, value in refs.items() if key.startswith("v/") and key[2].isdigit()]
    ends = [offset + length for _, offset, length in chunks]
    print("4 records written, kerchunk:", len(chunks), "ends", ends, "size", os.path.getsize("r.nc"))
    assert len(chunks) == invented
    assert ends[3] == os.path.getsize("r.nc") < ends[-1]
try:
    NetCDF3ToZarr("r.nc").translate()
except ValueError as error:
    print("by default:", error)
else:
    raise AssertionError("no error")
EOF
