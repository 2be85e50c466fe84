#!/usr/bin/env bash
# pyfive reads a dataset whose values stand in an external raw file as zeros, and a virtual
# dataset as None.
#
# Versions: pyfive 1.3.0, h5py 3.16.0, numpy 2.5.5
# Expected: The values, or an error that names the layout, as pyfive raises for other layouts that
#   it does not know.
# Seen: 0.0 throughout, and None; no error, no warning.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
uv venv --quiet --python 3.13 env
uv pip install --quiet --python env/bin/python \
  pyfive==1.3.0 h5py==3.16.0 numpy==2.5.5

env/bin/python -W ignore - <<'EOF'
import h5py
import numpy as np
import pyfive

np.arange(1.0, 5.0).tofile("raw.bin")
with h5py.File("a.h5", "w") as file:
    file.create_dataset("external", shape=(4,), dtype="f8", external=[("raw.bin", 0, 32)])
    file["source"] = np.arange(1, 5)
    layout = h5py.VirtualLayout((4,), "i8")
    layout[:] = h5py.VirtualSource("a.h5", "source", (4,))
    file.create_virtual_dataset("virtual", layout)
with h5py.File("a.h5") as file:
    assert file["external"][:].tolist() == file["virtual"][:].tolist() == [1, 2, 3, 4]
with pyfive.File("a.h5") as file:
    external, virtual = file["external"][:], file["virtual"][:]
print("external", external, "virtual", virtual)
assert external.tolist() == [0.0, 0.0, 0.0, 0.0]
assert virtual is None
EOF
