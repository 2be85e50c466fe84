#!/usr/bin/env bash
# icechunk refuses to commit attributes that are as before, and commits chunks that are as before.
#
# Versions: icechunk 2.3.0, zarr 3.4.2, numpy 2.5.5
# Expected: One rule: a script that brings a repository to a state can run twice. Either both
#   writes count as a change, or neither.
# Seen: The second run fails with "no changes made to the session" if it sets attributes, and adds
#   a snapshot if it writes chunks, or sets an attribute away and back.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
uv venv --quiet --python 3.13 env
uv pip install --quiet --python env/bin/python \
  icechunk==2.3.0 zarr==3.4.2 numpy==2.5.5

env/bin/python -W ignore - <<'EOF'
import icechunk
import zarr

repository = icechunk.Repository.create(icechunk.in_memory_storage())


def commit(change):
    session = repository.writable_session("main")
    change(session.store)
    try:
        return session.commit("again")
    except icechunk.IcechunkError as error:
        assert "no changes made" in str(error)
        return None


def create(store):
    group = zarr.create_group(store, attributes={"title": "winds"})
    group.create_array("v", shape=(4,), chunks=(2,), dtype="i4", attributes={"units": "K"})[:] = 5


def set_away_and_back(store):
    zarr.open_group(store).attrs["title"] = "other"
    zarr.open_group(store).attrs["title"] = "winds"


assert commit(create)
CHANGES = {
    "group attribute": (lambda store: zarr.open_group(store).attrs.update(title="winds"), False),
    "array attribute": (lambda store: zarr.open_array(store, path="v").attrs.update(units="K"), False),
    "chunks": (lambda store: zarr.open_array(store, path="v").__setitem__(slice(None), 5), True),
    "attribute away and back": (set_away_and_back, True),
}
for name, (change, accepted) in CHANGES.items():
    snapshot = commit(change)
    print(f"{name} as before:", snapshot or "refused")
    assert bool(snapshot) is accepted
EOF
