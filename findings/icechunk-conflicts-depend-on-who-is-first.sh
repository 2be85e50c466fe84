#!/usr/bin/env bash
# Whether a new chunk and a change of its array's metadata are a conflict depends on which is
# committed first.
#
# Versions: icechunk 2.3.0, zarr 3.4.2, numpy 2.5.5
# Expected: Two changes conflict or they do not: the outcome of both orders is the same array.
# Seen: Chunk first: an attribute and growth pass. Attribute or growth first: the chunk is
#   refused, by ConflictDetector and BasicConflictSolver.
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


def commit_both(first, second, solver):
    repository = create()
    sessions = [repository.writable_session("main") for _ in range(2)]
    first(sessions[0])
    second(sessions[1])
    sessions[0].commit("first")
    try:
        sessions[1].commit("second", rebase_with=solver)
    except icechunk.RebaseFailedError:
        return "refused"
    return read(repository)


def write(session):
    array(session)[6:8] = 50


def annotate(session):
    array(session).attrs["units"] = "K"


CHANGES = {
    "attribute": (annotate, [0, 1, 2, 3, 4, 5, 50, 50]),
    "growth": (lambda s: array(s).resize((10,)), [0, 1, 2, 3, 4, 5, 50, 50, -1, -1]),
}
for name, (change, outcome) in CHANGES.items():
    for solver in (icechunk.ConflictDetector(), icechunk.BasicConflictSolver()):
        chunk_first = commit_both(write, change, solver)
        change_first = commit_both(change, write, solver)
        print(f"{name}: chunk first {chunk_first}, {name} first {change_first}")
        assert chunk_first == outcome
        assert change_first == "refused"
EOF
