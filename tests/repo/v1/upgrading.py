"""Repositories of V1 by the official client, and their upgrade."""

import icechunk
import numpy as np
import zarr

from icevirt.repo.repo_info_file import RepoInfoFile
from icevirt.repo.repository import Repository
from icevirt.repo.v1.upgrade import upgrade


def run(storage, *, delete=True, dry_run=False):
    """Upgrade, with as many calls each time."""
    return upgrade(
        RepoInfoFile(storage),
        dry_run=dry_run,
        delete_unused_v1_files=delete,
        prefetch_concurrency=1,
    )


def written(path):
    """A V1 repository by the official client, with a configuration, refs and a history."""
    config = icechunk.RepositoryConfig.default()
    config.inline_chunk_threshold_bytes = 16
    config.set_virtual_chunk_container(
        icechunk.VirtualChunkContainer("file:///data/", icechunk.local_filesystem_store("/data"))
    )
    storage = icechunk.local_filesystem_storage(str(path))
    repo = icechunk.Repository.create(storage, config, spec_version=1)
    session = repo.writable_session("main")
    group = zarr.create_group(session.store)
    group.create_array("a", shape=(8,), chunks=(2,), dtype="i4")[:] = np.arange(8)
    first = session.commit("first", metadata={"n": 1})
    repo.create_branch("dev", first)
    repo.create_tag("t", first)
    repo.create_tag("gone", first)
    repo.delete_tag("gone")
    for branch in ("dev", "main"):
        session = repo.writable_session(branch)
        zarr.open_group(session.store)["a"][0] = 10
        session.commit(f"on {branch}")
    repo.create_branch("shared", repo.lookup_branch("dev"))
    return str(path)


def history(storage, branch="main"):
    return [s.id for s in Repository.open(storage).ancestry(branch=branch)]
