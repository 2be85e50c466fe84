#!/usr/bin/env bash
# GDAL takes the fill value of a Zarr 3 array for nodata and ignores `_FillValue`, so that in
# xarray's packed variables zeros are missing and missing values are data.
#
# Versions: rasterio 1.5.2 (GDAL 3.12.2), xarray 2026.9.0, zarr 3.4.2, numpy 2.5.5, pandas 3.1.1
# Expected: Nodata -9, as for the same dataset in netCDF and in Zarr 2; GDAL does take scale and
#   offset from the attributes.
# Seen: Nodata 0: Zarr 3 keeps what unwritten chunks hold (0 by default) apart from what is
#   missing, and xarray writes the latter as attribute.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
uv venv --quiet --python 3.13 env
uv pip install --quiet --python env/bin/python \
  rasterio==1.5.2 netCDF4==1.7.5.1.post1 zarr==3.4.2 xarray==2026.9.0 numpy==2.5.5 \
  pandas==3.1.1

env/bin/python -W ignore - <<'EOF'
import numpy as np
import rasterio
import xarray as xr

packing = {"dtype": "i2", "scale_factor": 0.5, "_FillValue": -9}
ds = xr.Dataset({"v": (("y", "x"), np.array([[0.0, np.nan], [2.0, 3.0]]))}, {"y": [2, 1], "x": [1, 2]})
ds.to_netcdf("a.nc", engine="netcdf4", encoding={"v": packing})
for version in (2, 3):
    path = f"a{version}.zarr"
    ds.to_zarr(path, zarr_format=version, consolidated=False, encoding={"v": packing})
SOURCES = {"a.nc": -9, 'ZARR:"a2.zarr":/v': -9, 'ZARR:"a3.zarr":/v': 0}
for name, nodata in SOURCES.items():
    with rasterio.open(name) as source:
        values = source.read(1, masked=True)
        print(name, "nodata", source.nodata, "scale", source.scales[0], values.tolist())
        assert source.nodata == nodata
        assert source.scales == (0.5,)
assert values.mask.tolist() == [[True, False], [False, False]]
assert values.data[0, 1] == -9
EOF
