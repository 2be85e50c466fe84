"""Small repositories over real source files, and the official client to ask about them."""

import os

import icechunk
import numpy as np
import pytest

from icevirt.repo.repository import Repository
from repo.support import Source


@pytest.fixture
def source(tmp_path) -> Source:
    path = tmp_path / "source" / "values.bin"
    path.parent.mkdir()
    values = np.arange(4800, dtype="<i4")
    path.write_bytes(values.tobytes())
    os.utime(path, (1_600_000_000, 1_600_000_000))
    return Source(path, values)


@pytest.fixture
def repo(repo_path, source) -> Repository:
    """An empty repository whose config has the source's container."""
    return Repository.create(repo_path, source.config())


@pytest.fixture
def official(repo_path, source):
    """Open the repository with the official client."""

    def opened(config=None) -> icechunk.Repository:
        return icechunk.Repository.open(
            icechunk.local_filesystem_storage(repo_path),
            config=config,
            authorize_virtual_chunk_access={
                source.prefix: icechunk.credentials.LocalFileSystemAccess
            },
        )

    return opened


@pytest.fixture(scope="session", autouse=True)
def _quiet_official_client():
    icechunk.set_logs_filter("error")
