#!/usr/bin/env bash
# What xarray decodes a float32 duration to depends on the other values beside it.
#
# Versions: xarray 2026.9.0, numpy 2.5.5, pandas 3.1.1
# Expected: 16,777,215 seconds, which float32 holds exactly, are 16,777,215 seconds in any array.
# Seen: Beside 0.0 they are; beside 0.5 they lose 24 ms, beside 0.0001 they lose 73 ms: the whole
#   array is multiplied by 1000 in float32 until its smallest fraction is gone. As times ("seconds
#   since") they stay exact.
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


def decode(neighbor, units):
    numbers = np.array([16_777_215, neighbor], "f4")
    ds = xr.decode_cf(xr.Dataset({"v": ("x", numbers, {"units": units})}), decode_timedelta=True)
    return ds.v.values[0]


for neighbor, lost in ((0.0, 0), (0.5, 24), (0.0001, 73)):
    duration = decode(neighbor, "seconds")
    missing = (np.timedelta64(16_777_215, "s") - duration) // np.timedelta64(1, "ms")
    print(f"beside {neighbor}: {duration.astype('m8[ns]')}, {missing} ms lost")
    assert missing == lost
    time = decode(neighbor, "seconds since 2000-01-01") - np.datetime64("2000-01-01")
    assert time == np.timedelta64(16_777_215, "s")
EOF
