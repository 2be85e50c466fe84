#!/usr/bin/env bash
# hidefix opens no file in which any chunk of any variable was never written.
#
# Versions: hidefix 0.12.0, h5py 3.16.0, numpy 2.5.5
# Expected: The fill value for the chunk that is not there, which is how HDF5 stores what was not
#   written; other variables are not concerned.
# Seen: RuntimeError, 'unexpected number of chunks', for the file.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
uv venv --quiet --python 3.13 env
uv pip install --quiet --python env/bin/python \
  hidefix==0.12.0 h5py==3.16.0 xarray==2026.9.0 numpy==2.5.5 pandas==3.1.1 \
  netCDF4==1.7.5.1.post1

env/bin/python -W ignore - <<'EOF'
import os

os.environ["RUST_BACKTRACE"] = "0"
import h5py
import hidefix
import numpy as np


def index(path):
    try:
        return f"datasets {sorted(hidefix.Index(path).datasets())}"
    except RuntimeError as error:
        return f"RuntimeError: {error}".splitlines()[0]


def create(path, written):
    with h5py.File(path, "w") as file:
        file.create_dataset("whole", data=np.arange(4), chunks=(2,))
        part = file.create_dataset("part", shape=(6,), chunks=(2,), dtype="i8", fillvalue=-9)
        part[:written] = 1


create("whole.h5", 6)
create("part.h5", 2)
print("all written:", index("whole.h5"))
print("one of three:", index("part.h5"))
assert index("whole.h5").startswith("datasets")
assert "unexpected number of chunks" in index("part.h5")
EOF
