"""Shards stay whole, and both clients read parts of them by range."""

from pathlib import Path

import icechunk
import numpy as np
import pytest
import xarray as xr
import zarr

import icevirt

READ = Path("/proc/self/io")  # of Linux
VALUES = np.random.default_rng(1).integers(0, 1 << 15, (1024, 1024), np.uint16)


def bytes_read():
    return int(dict(line.split(": ") for line in READ.read_text().splitlines())["rchar"])


@pytest.mark.ci
@pytest.mark.skipif(not READ.exists(), reason="this system does not count what a process reads")
@pytest.mark.parametrize("location", ["start", "end"])
def test_an_inner_chunk_is_read_without_its_shard(location, tmp_path):
    shards = {"shape": VALUES.shape, "index_location": location}
    root = zarr.open_group(tmp_path / "s.zarr", mode="w")
    how = {"chunks": (64, 64), "shards": shards, "dtype": "u2", "compressors": None}
    root.create_array("a", shape=VALUES.shape, **how)[...] = VALUES
    repo = str(tmp_path / "repo")
    report = icevirt.build(tmp_path / "s.zarr", repo, executor="in-process")
    assert report.references.virtual == 1
    given = dict.fromkeys(report.containers, icechunk.credentials.LocalFileSystemAccess)
    official = icechunk.Repository.open(
        icechunk.local_filesystem_storage(repo), authorize_virtual_chunk_access=given
    )
    readers = (
        zarr.open_array(official.readonly_session("main").store, path="a", mode="r"),
        xr.open_dataset(repo, engine="icevirt", authorize_virtual_chunk_access=report.containers)[
            "a"
        ].variable,
    )
    for read in readers:
        np.asarray(read[:1, :1])  # manifests and metadata
        before = bytes_read()
        found = np.asarray(read[128:192, 640:704])
        assert bytes_read() - before < VALUES.nbytes // 16
        np.testing.assert_array_equal(found, VALUES[128:192, 640:704])
