"""A process that ends after a failed or interrupted read says nothing but its error."""

import subprocess
import sys

import numpy as np
import pytest
import zarr

import icevirt

PROGRAM = """
import signal, sys, time
import numpy as np
import zarr
import icevirt

root, how = sys.argv[1:]
granted = None if how == "refused" else [f"file://{root}/"]
repo = icevirt.Repository.open(root + "/repo", authorize_virtual_chunk_access=granted)
array = zarr.open_array(repo.readonly_session("main").store, path="v", mode="r")
if how == "interrupted":
    from icevirt.access.store.locating import InSource
    wait = InSource.wait
    InSource.now = lambda one: None
    InSource.wait = lambda one: time.sleep(0.01) or wait(one)
    signal.signal(signal.SIGALRM, signal.default_int_handler)
    signal.setitimer(signal.ITIMER_REAL, 0.3)
try:
    array[:]
except (icevirt.errors.IcevirtError, KeyboardInterrupt) as error:
    print(type(error).__name__)
"""


@pytest.fixture
def root(tmp_path):
    """A repository of 300 chunks of a file that is gone."""
    config = icevirt.RepositoryConfig.default()
    config.set_virtual_chunk_container(
        icevirt.VirtualChunkContainer(
            f"{tmp_path.as_uri()}/", icevirt.local_filesystem_store(str(tmp_path))
        )
    )
    session = icevirt.Repository.create(tmp_path / "repo", config).writable_session("main")
    zarr.create_array(
        session.store, name="v", shape=(300,), chunks=(1,), dtype="i8", compressors=None
    )
    session.store.set_virtual_refs_arr(
        "/v",
        chunk_grid_shape=[300],
        locations=[(tmp_path / "values").as_uri()] * 300,
        offsets=np.arange(300) * 8,
        lengths=np.full(300, 8),
    )
    session.commit("all")
    return tmp_path


@pytest.mark.parametrize(
    ("how", "printed"),
    [
        ("refused", "UnauthorizedError"),
        pytest.param("gone", "ObjectNotFoundError", marks=pytest.mark.ci),
        pytest.param("interrupted", "KeyboardInterrupt", marks=pytest.mark.ci),
    ],
)
def test_a_process_that_ends_with_requests_left_reports_none_of_them(root, how, printed):
    if how == "interrupted":
        (root / "values").write_bytes(bytes(2400))
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(root), how], capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == [printed]
    assert not done.stderr
