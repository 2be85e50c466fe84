#!/usr/bin/env bash
# A time that is appended with `to_zarr(append_dim=...)` and does not fit the stored unit is
# written in another unit than the one that stays in the store.
#
# Versions: xarray 2026.9.0, zarr 3.4.2, numpy 2.5.5, pandas 3.1.1
# Expected: An error, or the right time: the third step is 3 January 2000, 12:00.
# Seen: 1 March 2000: 2.5 days become 60 hours, and 60 is stored below "days since". A warning
#   speaks of "hours since"; the store keeps days.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
uv venv --quiet --python 3.13 env
uv pip install --quiet --python env/bin/python \
  xarray==2026.9.0 numpy==2.5.5 pandas==3.1.1 zarr==3.4.2

env/bin/python -W ignore - <<'EOF'
import pandas as pd
import xarray as xr

stored = pd.to_datetime(["2000-01-01", "2000-01-02"])
xr.Dataset({"v": ("time", [1.0, 2.0])}, {"time": stored}).to_zarr("s.zarr")
added = pd.to_datetime(["2000-01-03 12:00"])
xr.Dataset({"v": ("time", [3.0])}, {"time": added}).to_zarr("s.zarr", append_dim="time")
time = pd.to_datetime(xr.open_zarr("s.zarr").time.values)
print("appended:", added[0], "read:", time[2])
assert time[2] == pd.Timestamp("2000-03-01")
EOF
