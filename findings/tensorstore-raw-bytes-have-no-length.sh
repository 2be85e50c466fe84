#!/usr/bin/env bash
# tensorstore reads Zarr's raw bytes as elements without a byte: the array that it gives is empty.
#
# Versions: tensorstore 0.1.86, zarr 3.4.2, numpy 2.5.5
# Expected: Two bytes for each element, as raw_bytes with length_bytes 2 says, or a refusal, which
#   other data types that it does not know get.
# Seen: An array with a second axis of 2, of dtype |V0: it opens, it has a shape, and tobytes()
#   is b"". Copied with numpy, the values are gone.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
uv venv --quiet --python 3.13 env
uv pip install --quiet --python env/bin/python zarr==3.4.2 numpy==2.5.5 tensorstore==0.1.86

env/bin/python -W ignore - <<'EOF'
import os

import numpy as np
import tensorstore
import zarr

values = np.array([b"\1\2", b"\3\4", b"\5\6"], "V2")
zarr.create_array("raw", data=values, compressors=None)
assert zarr.open_array("raw")[:].tobytes() == bytes(range(1, 7))

location = {"driver": "file", "path": os.path.abspath("raw")}
read = tensorstore.open({"driver": "zarr3", "kvstore": location}).result().read().result()
print("zarr", zarr.open_array("raw")[:].dtype, "tensorstore", read.dtype, read.shape, read.tobytes())
assert read.shape == (3, 2)
assert read.dtype.itemsize == 0
assert read.tobytes() == b""
EOF
