#!/usr/bin/env bash
# zarr-python does not store a chunk in which all is NaN, whatever the bits of the NaN are; other
# writers of the same format do.
#
# Versions: zarr 3.4.2, zarrs 0.2.3, tensorstore 0.1.86, numpy 2.5.5
# Expected: A chunk is left out if it equals the fill value bit by bit: zarr keeps a chunk of -0.0
#   beside the fill value 0.0 for that reason.
# Seen: R's missing value (a NaN with payload 1954) comes back as plain NaN from a chunk that
#   holds nothing else, and with its payload from a chunk that holds a number, too. zarrs and
#   tensorstore store both chunks.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
uv venv --quiet --python 3.13 env
uv pip install --quiet --python env/bin/python \
  zarr==3.4.2 numpy==2.5.5 zarrs==0.2.3 tensorstore==0.1.86

env/bin/python -W ignore - <<'EOF'
import os

import numpy as np
import tensorstore
import zarr

missing = np.array([0x7FF80000000007A2], "u8").view("f8")[0]
values = np.array([missing, missing, missing, 1.0])


def payloads(path):
    return [int(bits) & 0xFFFF for bits in zarr.open_array(path)[:3].view("u8")]


def create(path):
    return zarr.create_array(path, shape=(4,), chunks=(2,), dtype="f8", fill_value=np.nan)


create("zarr")[:] = values
with zarr.config.set({"codec_pipeline.path": "zarrs.ZarrsCodecPipeline"}):
    create("zarrs")[:] = values
create("tensorstore")
location = {"driver": "file", "path": os.path.abspath("tensorstore")}
tensorstore.open({"driver": "zarr3", "kvstore": location}).result()[...] = values
for path in ("zarr", "zarrs", "tensorstore"):
    print(path, payloads(path), sorted(os.listdir(f"{path}/c")))
assert payloads("zarr") == [0, 0, 1954]
assert payloads("zarrs") == payloads("tensorstore") == [1954, 1954, 1954]
EOF
