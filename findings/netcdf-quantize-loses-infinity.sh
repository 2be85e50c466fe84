#!/usr/bin/env bash
# Two of netCDF-C's three ways to quantize do not keep infinity: one stores -0.0, the other NaN.
#
# Versions: netCDF4 1.7.5.1.post1 (netCDF-C 4.10.1), numpy 2.5.5
# Expected: Infinity stays infinity, as with BitRound, or is an error.
# Seen: GranularBitRound stores -0.0, an ordinary number; BitGroom stores NaN. Neighbors keep
#   their digits.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
uv venv --quiet --python 3.13 env
uv pip install --quiet --python env/bin/python \
  netCDF4==1.7.5.1.post1 numpy==2.5.5

env/bin/python -W ignore - <<'EOF'
import netCDF4
import numpy as np

EXPECTED = {"BitRound": np.inf, "GranularBitRound": -0.0, "BitGroom": np.nan}
for mode, expected in EXPECTED.items():
    with netCDF4.Dataset("a.nc", "w") as file:
        file.createDimension("x", 4)
        variable = file.createVariable("v", "f4", ("x",), quantize_mode=mode, significant_digits=3)
        variable[:] = np.array([1.0, 2.5, 1000.0, np.inf], "f4")
    with netCDF4.Dataset("a.nc") as file:
        file.set_auto_mask(False)
        read = file["v"][:]
    print(mode, read)
    assert np.allclose(read[:3], [1.0, 2.5, 1000.0], rtol=0.05)
    assert np.array_equal(read[3], expected, equal_nan=True)
    assert np.isnan(expected) or np.signbit(read[3]) == np.signbit(expected)
EOF
