#!/usr/bin/env bash
# A process that commits again and again with icechunk keeps in memory each manifest that it wrote.
#
# Versions: icechunk 2.3.0, zarr 3.4.2, numpy 2.5.5
# Expected: The memory of the last few manifests: what a commit replaces, this process asks for
#   only if it goes back in history.
# Seen: Each commit of one chunk to an array of 40,000 chunks adds 2.6 MB, and 0.2 MB if the cache
#   may hold 100,000 references. By default it may hold 15 million, which is about 1 GB here; what
#   an attempt wrote that lost a race stays in it, too.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
uv venv --quiet --python 3.13 env
uv pip install --quiet --python env/bin/python icechunk==2.3.0 zarr==3.4.2 numpy==2.5.5

cat > writer.py <<'EOF'
import sys

import icechunk
import numpy as np
import zarr

CHUNKS, COMMITS = 40_000, 60


def megabytes():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096 / 1e6


config = icechunk.RepositoryConfig.default()
config.inline_chunk_threshold_bytes = 0
prefix = "s3://no-bucket/"
config.set_virtual_chunk_container(
    icechunk.VirtualChunkContainer(prefix, icechunk.s3_store(region="us-east-1"))
)
if len(sys.argv) > 2:
    config.caching = icechunk.CachingConfig(num_chunk_refs=int(sys.argv[2]))
repo = icechunk.Repository.create(icechunk.local_filesystem_storage(sys.argv[1]), config)
session = repo.writable_session("main")
zarr.create_array(session.store, name="a", shape=(CHUNKS,), chunks=(1,), dtype="f8", compressors=None)
refs = [icechunk.VirtualChunkSpec([at], f"{prefix}{at}", 0, 8) for at in range(CHUNKS)]
session.store.set_virtual_refs("a", refs)
session.commit("all")
before = megabytes()
for number in range(COMMITS):
    session = repo.writable_session("main")
    session.store.set_virtual_ref("a/c/0", f"{prefix}x", offset=number, length=8)
    session.commit(str(number))
print(round((megabytes() - before) / COMMITS, 2))
EOF
by_default=$(env/bin/python -W ignore writer.py first 2>errors)
bounded=$(env/bin/python -W ignore writer.py second 100000 2>errors)
echo "MB a commit: $by_default by default, $bounded with a cache of 100,000 references"
env/bin/python -c "assert $by_default > 3 * $bounded + 0.5"
