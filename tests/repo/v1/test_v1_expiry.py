"""Snapshots of V1 repositories expire as the official client lets them."""

import shutil
import time
from datetime import UTC, datetime

import icechunk
import numpy as np
import pytest
import zarr

from icevirt.repo.repository import Repository
from repo.v1.clients import official


@pytest.mark.parametrize("delete", [False, True])
def test_expiry_leaves_what_the_official_client_leaves(tmp_path, delete):
    """Of histories, branches and tags, for both clients; what survives reads as before."""
    repo = icechunk.Repository.create(
        icechunk.local_filesystem_storage(str(tmp_path / "a")), spec_version=1
    )
    for number in range(6):
        session = repo.writable_session("main")
        zarr.create_array(session.store, name="a", data=np.full(2, number), overwrite=True)
        session.commit(f"n{number}")
        if number == 1:
            repo.create_branch("old", repo.lookup_branch("main"))
            repo.create_tag("old", repo.lookup_branch("main"))
        if number == 3:
            time.sleep(0.01)
            before = datetime.now(UTC)
            time.sleep(0.01)
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    how = {"delete_expired_branches": delete, "delete_expired_tags": delete}
    gone = Repository.open(tmp_path / "a").expire_snapshots(before, **how)
    theirs = official(tmp_path / "b").expire_snapshots(before, **how)
    assert theirs - gone == (set() if delete else {repo.lookup_tag("old")})  # which is still there
    seen = []
    for client in (Repository.open, official):
        for path in (tmp_path / "a", tmp_path / "b"):
            repo = client(path)
            store = repo.readonly_session("main").store
            refs = repo.list_branches() | repo.list_tags()
            history = [(s.id, s.message) for s in repo.ancestry(branch="main")]
            seen.append((sorted(refs), history, zarr.open_array(store, path="a")[:].tolist()))
    assert seen == [seen[0]] * 4
    assert [message for _, message in seen[0][1]][:2] == ["n5", "n4"]
    assert ("old" in seen[0][0]) is not delete
