#!/usr/bin/env bash
# xarray.open_groups decodes although decode_cf=False says that it must not.
#
# Versions: xarray 2026.9.0, netCDF4 1.7.5.1, h5netcdf 1.8.2, zarr 3.4.2
# Expected: int16 as stored, as open_dataset and open_datatree give it: the parameter is in the
#   signature of all three, with the same text.
# Seen: float64, unpacked and masked, and times as dates, with every engine. mask_and_scale=False and
#   decode_times=False do count.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
uv venv --quiet --python 3.13 env
uv pip install --quiet --python env/bin/python \
  xarray==2026.9.0 netCDF4==1.7.5.1.post1 h5netcdf==1.8.2 h5py==3.16.0 zarr==3.4.2 pandas==3.1.1 \
  numpy==2.5.5

env/bin/python -W ignore - <<'EOF'
import numpy as np
import xarray as xr

packed = {"dtype": "i2", "scale_factor": 0.5, "_FillValue": -9}
day = np.array(["2001-02-03"], "M8[ns]")
tree = xr.DataTree(xr.Dataset({"v": ("x", [1.5, np.nan])}, {"time": ("time", day)}))
tree.to_netcdf("a.nc", encoding={"/": {"v": packed}})
tree.to_zarr("a.zarr", encoding={"/": {"v": packed}}, consolidated=False)
for path, engine in (("a.nc", "netcdf4"), ("a.nc", "h5netcdf"), ("a.zarr", "zarr")):
    how = {"engine": engine, "decode_cf": False}
    if engine == "zarr":
        how["consolidated"] = False
    shown = {
        "open_dataset": xr.open_dataset(path, **how),
        "open_datatree": xr.open_datatree(path, **how)["/"],
        "open_groups": xr.open_groups(path, **how)["/"],
    }
    kinds = {name: (str(each["v"].dtype), each["time"].dtype.kind) for name, each in shown.items()}
    print(engine, kinds)
    assert kinds["open_dataset"] == kinds["open_datatree"] == ("int16", "i")
    assert kinds["open_groups"] == ("float64", "M")
EOF
