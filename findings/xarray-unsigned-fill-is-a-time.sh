#!/usr/bin/env bash
# A missing time of type uint64 whose `_FillValue` is the largest uint64 becomes one second before
# the reference date.
#
# Versions: xarray 2026.9.0, numpy 2.5.5, pandas 3.1.1
# Expected: NaT, as with any other type and fill value.
# Seen: 1999-12-31T23:59:59. The same with uint32 is NaT.
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

units = "seconds since 2000-01-01"
for kind, expected in (("u8", np.datetime64("1999-12-31T23:59:59")), ("u4", np.datetime64("NaT"))):
    fill = np.iinfo(kind).max
    numbers = np.array([0, 86400, fill], kind)
    attributes = {"units": units, "_FillValue": np.dtype(kind).type(fill)}
    ds = xr.decode_cf(xr.Dataset({"t": ("x", numbers, attributes)}))
    print(kind, ds.t.values)
    assert ds.t.values[1] == np.datetime64("2000-01-02")
    assert np.array_equal(ds.t.values[2], expected) or (np.isnat(expected) and np.isnat(ds.t.values[2]))
EOF
