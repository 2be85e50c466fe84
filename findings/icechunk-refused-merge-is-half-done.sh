#!/usr/bin/env bash
# A merge of forks that icechunk refuses has merged some of them.
#
# Versions: icechunk 2.3.0, zarr 3.4.2, numpy 2.5.5
# Expected: After an error the session is as it was, or cannot be committed: half of the workers'
#   results is a state that no caller wants.
# Seen: The forks before the refused one are in the session, and the next commit publishes them.
#   Which ones depends on the order of the arguments.
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


def merge(order):
    repository = create()
    session = repository.writable_session("main")
    forks = [session.fork(), session.fork()]
    for fork, name in zip(forks, ("a", "b")):
        array(fork).attrs[name] = 1
    try:
        session.merge(*(forks[i] for i in order))
    except icechunk.IcechunkError as error:
        assert "Multiple writers updated the same arrays" in str(error)
    else:
        raise AssertionError("no error")
    session.commit("after the refusal")
    return dict(array(repository.readonly_session("main")).attrs)


print("merge(a, b) refused, committed:", merge((0, 1)))
print("merge(b, a) refused, committed:", merge((1, 0)))
assert merge((0, 1)) == {"a": 1}
assert merge((1, 0)) == {"b": 1}
EOF
