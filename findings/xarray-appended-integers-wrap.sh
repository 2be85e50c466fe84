#!/usr/bin/env bash
# `to_zarr(append_dim=...)` refuses text that is longer than what is stored, and wraps integers
# that are larger.
#
# Versions: xarray 2026.9.0, zarr 3.4.2, numpy 2.5.5, pandas 3.1.1
# Expected: The check that raises 'Mismatched dtypes' for `<U6` into `<U2` also sees int32 into
#   int16, or the number that does not fit is an error.
# Seen: 70000 is stored as 4464, without an error; so is a packed value beyond the range of its
#   int16 (20000.0 with a scale of 0.5 reads -12768.0).
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
uv venv --quiet --python 3.13 env
uv pip install --quiet --python env/bin/python \
  xarray==2026.9.0 numpy==2.5.5 pandas==3.1.1 zarr==3.4.2

env/bin/python -W ignore - <<'EOF'
import numpy as np
import xarray as xr


def append(path, stored, added, encoding=None):
    xr.Dataset({"v": ("t", stored)}).to_zarr(path, encoding={"v": encoding or {}})
    xr.Dataset({"v": ("t", added)}).to_zarr(path, append_dim="t")
    return xr.open_zarr(path).v.values[-1]


integers = append("i.zarr", np.array([1, 2], "i2"), np.array([70_000], "i4"))
packing = {"dtype": "i2", "scale_factor": 0.5, "_FillValue": -9}
packed = append("p.zarr", np.array([1.0, 2.0]), np.array([20_000.0]), packing)
print("70000 reads", integers, "and 20000.0 reads", packed)
assert integers == 4464
assert packed == -12_768.0
try:
    append("s.zarr", np.array(["ab"]), np.array(["abcdef"]))
except ValueError as error:
    print("text:", error)
    assert "Mismatched dtypes" in str(error)
else:
    raise AssertionError("no error")
EOF
