#!/usr/bin/env bash
# ZFP's fixed accuracy does not hold beside netCDF's fill value: its neighbors become zero.
#
# Versions: hdf5plugin 7.1.0, h5py 3.16.0, zfpy 1.0.1, numcodecs 0.17.1, numpy 2.5.5
# Expected: With accuracy 0.001 every value is off by at most 0.001, as the names of the
#   parameters say.
# Seen: All values of a block of 4 by 4 that holds 9.97e36 become 0.0, for HDF5's filter and for
#   numcodecs. -9999 does no harm; NaN becomes a number.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
uv venv --quiet --python 3.13 env
uv pip install --quiet --python env/bin/python \
  hdf5plugin==7.1.0 h5py==3.16.0 zfpy==1.0.1 numcodecs==0.17.1 numpy==2.5.5

env/bin/python -W ignore - <<'EOF'
import h5py
import hdf5plugin
import numpy as np
from numcodecs.zfpy import ZFPY


def by_hdf5(values):
    with h5py.File("a.h5", "w") as file:
        file.create_dataset("a", data=values, chunks=values.shape, **hdf5plugin.Zfp(accuracy=1e-3))
    with h5py.File("a.h5") as file:
        return file["a"][:]


def by_numcodecs(values):
    codec = ZFPY(mode=4, tolerance=1e-3)
    return codec.decode(codec.encode(values))


for route in (by_hdf5, by_numcodecs):
    values = np.full((8, 8), 288.15, "f4")
    for fill, worst in ((-9999.0, 0.001), (9.969209968386869e36, 288.15)):
        values[2, 2] = fill
        read = route(values)
        error = np.abs(read - values)[values != values[2, 2]].max()
        print(f"{route.__name__}, beside {fill}: largest error {error:.4f}")
        assert abs(error - worst) <= 0.001
    assert not read[:4, :4][values[:4, :4] != values[2, 2]].any()
    values[2, 2] = np.nan
    assert np.isfinite(route(values)[2, 2])
EOF
