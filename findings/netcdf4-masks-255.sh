#!/usr/bin/env bash
# netCDF4-python masks 255 in a uint8 variable (and -127 in an int8 one) that has no `_FillValue`,
# if netCDF wrote the file, and not if h5py wrote it.
#
# Versions: netCDF4 1.7.5.1.post1 (netCDF-C 4.10.1), h5py 3.16.0, xarray 2026.9.0, numpy 2.5.5
# Expected: 255: netCDF's User Guide says that the valid range of a byte without an explicit
#   `_FillValue` includes all values, since each is likely to be one (images, masks of bits,
#   quality flags).
# Seen: The cell is masked in files of all formats that netCDF makes; the same values in a file of
#   h5py are not, and xarray never masks them.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
uv venv --quiet --python 3.13 env
uv pip install --quiet --python env/bin/python \
  xarray==2026.9.0 numpy==2.5.5 pandas==3.1.1 netCDF4==1.7.5.1.post1 h5py==3.16.0

env/bin/python -W ignore - <<'EOF'
import h5py
import netCDF4
import numpy as np
import xarray as xr

VALUES = {"u1": np.array([0, 255], "u1"), "i1": np.array([0, -127], "i1")}
for format in ("NETCDF4", "NETCDF3_64BIT_DATA"):
    path = f"{format}.nc"
    with netCDF4.Dataset(path, "w", format=format) as file:
        file.createDimension("x", 2)
        for kind, values in VALUES.items():
            file.createVariable(kind, kind, ("x",))[:] = values
    with netCDF4.Dataset(path) as file:
        read = {kind: file[kind][:] for kind in VALUES}
    print(format, "by netCDF4:", read["u1"], read["i1"])
    assert all(np.ma.getmaskarray(values).tolist() == [False, True] for values in read.values())
with xr.open_dataset("NETCDF4.nc", engine="netcdf4") as ds:
    assert ds["u1"].values.tolist() == [0, 255]
with h5py.File("h5py.nc", "w") as file:
    file["u1"] = VALUES["u1"]
with netCDF4.Dataset("h5py.nc") as file:
    print("h5py's file by netCDF4:", file["u1"][:])
    assert not np.ma.is_masked(file["u1"][:])
EOF
