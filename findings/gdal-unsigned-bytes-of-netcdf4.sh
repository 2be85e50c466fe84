#!/usr/bin/env bash
# GDAL cannot read signed bytes marked `_Unsigned` from a NetCDF-4 file if one is above 127; from
# NetCDF-3 it can.
#
# Versions: rasterio 1.5.2 (GDAL 3.12.2), netCDF4 1.7.5.1.post1, numpy 2.5.5
# Expected: uint8 with 255, as from the same variable in NetCDF-3, and as netCDF4-python and
#   xarray read both.
# Seen: The type is given as uint8; reading fails with 'NetCDF: Numeric conversion not
#   representable'.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
uv venv --quiet --python 3.13 env
uv pip install --quiet --python env/bin/python \
  rasterio==1.5.2 netCDF4==1.7.5.1.post1 numpy==2.5.5

env/bin/python -W ignore - <<'EOF'
import netCDF4
import numpy as np
import rasterio


def write_and_read(format, values):
    path = f"{format}-{values[0]}.nc"
    with netCDF4.Dataset(path, "w", format=format) as file:
        file.createDimension("y", 1)
        file.createDimension("x", 2)
        variable = file.createVariable("v", "i1", ("y", "x"))
        variable.setncattr("_Unsigned", "true")
        variable.set_auto_maskandscale(False)
        variable[:] = np.array([values], "u1").view("i1")
    with rasterio.open(path) as source:
        assert source.dtypes == ("uint8",)
        try:
            return source.read(1)[0].tolist()
        except rasterio.errors.RasterioIOError as error:
            return str(error.__cause__)


for format in ("NETCDF3_CLASSIC", "NETCDF4"):
    assert write_and_read(format, [127, 1]) == [127, 1]
three, four = write_and_read("NETCDF3_CLASSIC", [255, 1]), write_and_read("NETCDF4", [255, 1])
print("NetCDF-3:", three, "NetCDF-4:", four)
assert three == [255, 1]
assert "Numeric conversion not representable" in four
EOF
