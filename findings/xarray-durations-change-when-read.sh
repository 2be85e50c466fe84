#!/usr/bin/env bash
# xarray decodes fractional seconds of a duration in place: each look at the variable multiplies
# it by 1000, and the caller's array changes with it.
#
# Versions: xarray 2026.9.0, numpy 2.5.5, pandas 3.1.1
# Expected: `ds.lead.values` gives half a second, however often it is read, and the array it
#   was made of stays.
# Seen: 0.5 s the first time, 500 s the second; the caller's array holds 500.0. Whole numbers, and
#   units above a second, are right.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
uv venv --quiet --python 3.13 env
uv pip install --quiet --python env/bin/python \
  xarray==2026.9.0 numpy==2.5.5 pandas==3.1.1

env/bin/python -W ignore - <<'EOF'
import numpy as np
import xarray as xr

numbers = np.array([0.5, 1.0])
raw = xr.Dataset({"lead": ("x", numbers, {"units": "seconds"})})
ds = xr.decode_cf(raw, decode_timedelta=True)
first, second = ds.lead.values / np.timedelta64(1, "s"), ds.lead.values / np.timedelta64(1, "s")
print("first look:", first, "second look:", second, "caller's array:", numbers)
assert first.tolist() == [0.5, 1.0]
assert second.tolist() == [500.0, 1000.0]
assert numbers.tolist() == [500.0, 1000.0]
EOF
