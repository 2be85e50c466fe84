#!/usr/bin/env bash
# Once versions are expired, a session that wrote chunks before cannot commit any more, though
# no other writer touched its chunks and nothing was deleted.
#
# Versions: icechunk 2.3.0, zarr 3.4.2, numpy 2.5.5
# Expected: The commit is rebased on the tip, as for sessions that changed attributes or added
#   arrays: expiry keeps the tip, and the chunk was written by this session alone.
# Seen: InternalError (error finding conflicting path ... this probably indicades a bug in
#   `rebase`); without the expiry the same commit passes.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
uv venv --quiet --python 3.13 env
uv pip install --quiet --python env/bin/python \
  icechunk==2.3.0 zarr==3.4.2 numpy==2.5.5

env/bin/python -W ignore - <<'EOF'
import datetime

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


def commit_late(expire, change):
    repository = create()
    session = repository.writable_session("main")
    change(session)
    other = repository.writable_session("main")
    array(other)[0:2] = 90
    other.commit("other")
    if expire:
        assert len(repository.expire_snapshots(datetime.datetime.now(datetime.UTC))) == 1
    try:
        session.commit("late", rebase_with=icechunk.ConflictDetector())
    except icechunk.IcechunkError as error:
        return f"{type(error).__name__}: {error}"
    return "committed"


def write_chunk(session):
    array(session)[6:8] = 50


def set_attribute(session):
    zarr.open_group(session.store).attrs["title"] = "winds"


assert commit_late(False, write_chunk) == "committed"
assert commit_late(True, set_attribute) == "committed"
message = commit_late(True, write_chunk)
print(message.splitlines()[0])
assert message.startswith("InternalError") and "error finding conflicting path" in message
EOF
