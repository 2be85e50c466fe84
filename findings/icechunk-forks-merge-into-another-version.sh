#!/usr/bin/env bash
# A fork that was made from one version of a branch merges into a session of a later version, and
# undoes what was committed between.
#
# Versions: icechunk 2.3.0, zarr 3.4.2, numpy 2.5.5
# Expected: An error (the fork belongs to another session), or a conflict as with `rebase`: a
#   chunk was written by both.
# Seen: It merges without a word: of four values that were committed meanwhile, the two in the
#   fork's chunk are replaced. The same into a session of another branch.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
uv venv --quiet --python 3.13 env
uv pip install --quiet --python env/bin/python \
  icechunk==2.3.0 zarr==3.4.2 numpy==2.5.5

env/bin/python -W ignore - <<'EOF'
import icechunk
import numpy as np
import zarr


def create():
    repository = icechunk.Repository.create(icechunk.in_memory_storage())
    session = repository.writable_session("main")
    group = zarr.create_group(session.store)
    group.create_array("v", shape=(8,), chunks=(2,), dtype="i4", fill_value=-1)[:] = np.arange(8)
    group.create_group("sub")
    session.commit("created")
    return repository


def array(session, path="v"):
    return zarr.open_array(session.store, path=path)


def read(repository, path="v"):
    return array(repository.readonly_session("main"), path)[:].tolist()


repository = create()
fork = repository.writable_session("main").fork()
array(fork)[0:2] = 50  # a worker that is slow

between = repository.writable_session("main")
array(between)[0:4] = 99
between.commit("between")

later = repository.writable_session("main")
later.merge(fork)
later.commit("merged")
print("after the merge:", read(repository))
assert read(repository) == [50, 50, 99, 99, 4, 5, 6, 7]

stale = repository.writable_session("main")
array(stale)[0:2] = 70
newer = repository.writable_session("main")
array(newer)[0:2] = 80
newer.commit("newer")
try:
    stale.commit("stale", rebase_with=icechunk.ConflictDetector())
except icechunk.RebaseFailedError:
    print("the same by rebase: refused")
else:
    raise AssertionError("rebase let it pass, too")
EOF
