#!/usr/bin/env bash
# HDF5's scale-offset filter for floats turns the only NaN of a chunk into an ordinary number, and
# keeps it if an infinity stands beside it.
#
# Versions: h5py 3.16.0 (HDF5 2.0.0), numpy 2.5.5
# Expected: NaN comes back as NaN, as infinity does, or writing is refused: the filter's documents
#   promise decimal digits.
# Seen: 0.125 for NaN in a chunk of numbers between 0 and 0.875; with an infinity in the same
#   chunk, both come back.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
uv venv --quiet --python 3.13 env
uv pip install --quiet --python env/bin/python \
  h5py==3.16.0 numpy==2.5.5

env/bin/python -W ignore - <<'EOF'
import h5py
import numpy as np


def write_and_read(values):
    with h5py.File("a.h5", "w") as file:
        file.create_dataset("a", data=values, chunks=values.shape, scaleoffset=3)
    with h5py.File("a.h5") as file:
        return file["a"][:]


values = np.arange(8) / 8
assert np.array_equal(write_and_read(values), values)
values[3] = np.nan
read = write_and_read(values)
print("one NaN:", read)
assert np.isfinite(read).all()
assert np.array_equal(np.delete(read, 3), np.delete(values, 3))
values[5] = np.inf
read = write_and_read(values)
print("NaN and infinity:", read)
assert np.array_equal(read, values, equal_nan=True)
EOF
