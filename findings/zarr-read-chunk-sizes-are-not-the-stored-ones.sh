#!/usr/bin/env bash
# `read_chunk_sizes` of an array with a rectilinear grid is clipped to its shape, though a chunk
# at the end is stored whole.
#
# Versions: zarr 3.4.2, numpy 2.5.5
# Expected: Sizes that say how large the buffers are: what a reader of raw chunks, or a writer of
#   references, needs.
# Seen: (4, 4, 2) for chunks of 4, of which the last holds 4 elements in the store.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
uv venv --quiet --python 3.13 env
uv pip install --quiet --python env/bin/python \
  zarr==3.4.2 numpy==2.5.5

env/bin/python -W ignore - <<'EOF'
import numpy as np
import zarr

keys = {}
store = zarr.storage.MemoryStore(keys)
with zarr.config.set({"array.rectilinear_chunks": True}):
    array = zarr.create_array(store, shape=(12,), chunks=[[4, 4, 4]], dtype="i4", compressors=None)
    array.resize((10,))
    array[:] = np.arange(10)
    array = zarr.open_array(store)
    stored = [len(keys[f"c/{i}"].to_bytes()) // 4 for i in range(3)]
    print("read_chunk_sizes", array.read_chunk_sizes, "stored", stored)
    assert array.read_chunk_sizes == ((4, 4, 2),)
    assert stored == [4, 4, 4]
    assert array.metadata.chunk_grid.chunk_shapes == ((4, 4, 4),)
EOF
