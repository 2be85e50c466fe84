#!/usr/bin/env bash
# A time that does not fit the integer type of its encoding is written as another time: from
# memory it wraps, from dask it is clipped.
#
# Versions: xarray 2026.9.0, h5netcdf 1.8.2, h5py 3.16.0, dask 2026.8.0, numpy 2.5.5, pandas 3.1.1
# Expected: An error: xarray looks for loss when a unit is too coarse, and 2040 in int32 seconds
#   since 1970 (an encoding that it takes over from a file that it opened) cannot be stored.
# Seen: 1903-11-25 from memory, 2038-01-19 from dask, without an error or a warning. HDF5 clips
#   where it converts, numpy wraps.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
uv venv --quiet --python 3.13 env
uv pip install --quiet --python env/bin/python \
  xarray==2026.9.0 numpy==2.5.5 pandas==3.1.1 h5netcdf==1.8.2 h5py==3.16.0 dask==2026.8.0

env/bin/python -W ignore - <<'EOF'
import numpy as np
import pandas as pd
import xarray as xr

time = pd.Timestamp("2040-01-01")
encoding = {"t": {"dtype": "int32", "units": "seconds since 1970-01-01"}}
in_memory = xr.Dataset({"t": ("x", [time])})
EXPECTED = {
    "memory": (in_memory, "1903-11-25T17:31:44"),
    "dask": (in_memory.chunk(), "2038-01-19T03:14:07"),
}
for kind, (ds, expected) in EXPECTED.items():
    ds.to_netcdf(f"{kind}.nc", engine="h5netcdf", encoding=encoding)
    read = xr.open_dataset(f"{kind}.nc", engine="h5netcdf").t.values[0]
    print(f"from {kind}: {time} is read as {read}")
    assert read == np.datetime64(expected)
EOF
