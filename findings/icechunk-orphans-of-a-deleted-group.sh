#!/usr/bin/env bash
# A group is deleted while another session creates an array in it: icechunk lets both commit, and
# keeps an array without a parent.
#
# Versions: icechunk 2.3.0, zarr 3.4.2, numpy 2.5.5
# Expected: A conflict in either order, as for an array that is deleted while its chunks are
#   written.
# Seen: Both orders pass with ConflictDetector, and so does the merge of two forks. The group is
#   gone from every listing, the array opens by its path, its chunks are kept, and it appears
#   again when a writer creates a group of that name.
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


def delete(session):
    del zarr.open_group(session.store)["sub"]


def add(session):
    zarr.open_group(session.store)["sub"].create_array("n", shape=(2,), dtype="i4")[:] = 5


def check(repository):
    root = zarr.open_group(repository.readonly_session("main").store, mode="r")
    print("root holds", sorted(root.keys()), "sub/n holds", read(repository, "sub/n"))
    assert sorted(root.keys()) == ["v"]
    assert read(repository, "sub/n") == [5, 5]
    session = repository.writable_session("main")
    assert sorted(zarr.open_group(session.store).create_group("sub").keys()) == ["n"]


for changes in ((delete, add), (add, delete)):
    repository = create()
    sessions = [repository.writable_session("main") for _ in changes]
    for session, change in zip(sessions, changes):
        change(session)
    for session in sessions:
        session.commit("change", rebase_with=icechunk.ConflictDetector())
    check(repository)

repository = create()
session = repository.writable_session("main")
forks = [session.fork() for _ in changes]
for fork, change in zip(forks, changes):
    change(fork)
session.merge(*forks)
session.commit("merged")
check(repository)
EOF
