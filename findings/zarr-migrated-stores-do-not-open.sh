#!/usr/bin/env bash
# `zarr migrate v3` makes of a Zarr 2 store that xarray wrote one that xarray cannot open, or
# stops halfway.
#
# Versions: zarr 3.4.2, xarray 2026.9.0, numpy 2.5.5, pandas 3.1.1
# Expected: The names of dimensions move from the attribute `_ARRAY_DIMENSIONS` to
#   `dimension_names`, and the store opens as before.
# Seen: They stay an attribute; xarray raises KeyError. An integer variable (fill value null, as
#   xarray writes it) stops the migration with a TypeError; a store with consolidated metadata,
#   xarray's default, is refused.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
uv venv --quiet --python 3.13 env
uv pip install --quiet --python env/bin/python \
  xarray==2026.9.0 numpy==2.5.5 pandas==3.1.1 zarr[cli]==3.4.2

env/bin/python -W ignore - <<'EOF'
import subprocess

import xarray as xr
import zarr


def migrate(path, values, consolidated=False):
    ds = xr.Dataset({"v": ("x", values)})
    ds.to_zarr(path, zarr_format=2, consolidated=consolidated)
    run = subprocess.run(["env/bin/zarr", "migrate", "v3", path], capture_output=True, text=True)
    return run.returncode, run.stderr


status, message = migrate("floats.zarr", [1.0, 2.0])
assert status == 0, message
array = zarr.open_array("floats.zarr/v", zarr_format=3)
print("dimension_names", array.metadata.dimension_names, "attributes", dict(array.attrs))
assert array.metadata.dimension_names is None
assert array.attrs["_ARRAY_DIMENSIONS"] == ["x"]
try:
    xr.open_zarr("floats.zarr", zarr_format=3, consolidated=False)
except KeyError as error:
    print("xarray:", error)
else:
    raise AssertionError("xarray opened it")
status, message = migrate("integers.zarr", [1, 2])
print("integers: exit code", status)
assert status and "Cannot convert object None" in message
status, message = migrate("consolidated.zarr", [1.0, 2.0], consolidated=True)
print("consolidated: exit code", status)
assert status and "consolidated metadata" in message
EOF
