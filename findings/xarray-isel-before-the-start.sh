#!/usr/bin/env bash
# `isel` with an index before the start of an axis gives an element, if the values are still in a
# file.
#
# Versions: xarray 2026.9.0 with h5netcdf 1.8.2, netCDF4 1.7.5.1 and scipy 1.18.1
# Expected: IndexError, as with values in memory: an axis of 9 has no element -10.
# Seen: Element 8, as if -10 were -1, by every engine; -18 gives element 0 and -19 element 8
#   again.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
uv venv --quiet --python 3.13 env
uv pip install --quiet --python env/bin/python \
  xarray==2026.9.0 numpy==2.5.5 pandas==3.1.1 h5netcdf==1.8.2 h5py==3.16.0 \
  netCDF4==1.7.5.1.post1 scipy==1.18.1

env/bin/python -W ignore - <<'EOF'
import numpy as np
import xarray as xr

ds = xr.Dataset({"v": ("d", np.arange(9))})
ds.to_netcdf("four.nc", engine="h5netcdf")
ds.to_netcdf("three.nc", engine="scipy", format="NETCDF3_64BIT")
for path, engine in (("four.nc", "h5netcdf"), ("four.nc", "netcdf4"), ("three.nc", "scipy")):
    with xr.open_dataset(path, engine=engine) as lazy:
        values = [int(lazy.v.isel(d=index)) for index in (-9, -10, -18, -19)]
        print(engine, values)
        assert values == [0, 8, 0, 8]
try:
    ds.v.isel(d=-10)
except IndexError as error:
    print("in memory:", error)
else:
    raise AssertionError("no error in memory")
EOF
