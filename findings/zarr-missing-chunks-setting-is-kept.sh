#!/usr/bin/env bash
# zarr's setting `array.read_missing_chunks` counts when an array is opened, not when it is read.
#
# Versions: zarr 3.4.2, numpy 2.5.5
# Expected: A sweep that puts the setting to False around its reads fails on a chunk that is
#   absent, as other settings (threads, concurrency) count for what runs below them.
# Seen: An array that was opened before goes on filling; one that was opened below the setting
#   goes on raising after it.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
uv venv --quiet --python 3.13 env
uv pip install --quiet --python env/bin/python \
  zarr==3.4.2 numpy==2.5.5

env/bin/python -W ignore - <<'EOF'
import zarr

store = zarr.storage.MemoryStore()
zarr.create_array(store, shape=(4,), chunks=(2,), dtype="i4", fill_value=-1)[:2] = [1, 2]
before = zarr.open_array(store)
with zarr.config.set({"array.read_missing_chunks": False}):
    print("opened before:", before[:])
    assert before[:].tolist() == [1, 2, -1, -1]
    below = zarr.open_array(store)
try:
    below[:]
except Exception as error:
    print("opened below, read after it:", type(error).__name__)
    assert type(error).__name__ == "ChunkNotFoundError"
else:
    raise AssertionError("no error")
EOF
