"""Builds of a Zarr store that are killed in their scan and in their write, and are run again."""

import os
import re
import signal

import numpy as np
import pytest
import xarray as xr
import zarr

import icevirt
from icevirt.storage.local import LocalStorage

pytestmark = pytest.mark.filterwarnings("ignore:.*use of fork:DeprecationWarning")


def build_and_be_killed(store, repo, moment):
    """Build in a process that kills itself before it writes an object of such a path."""

    def dying(act):
        def acted(self, path, *rest, **more):
            if re.search(moment, path):
                os.kill(os.getpid(), signal.SIGKILL)
            return act(self, path, *rest, **more)

        return acted

    if not (child := os.fork()):
        try:
            LocalStorage.put, LocalStorage.put_if = map(
                dying, (LocalStorage.put, LocalStorage.put_if)
            )
            icevirt.build(store, repo, executor="in-process")
        finally:
            os._exit(0)
    _, status = os.waitpid(child, 0)
    return os.waitstatus_to_exitcode(status)


@pytest.mark.parametrize("moment", ["(^|/)files/", "(^|/)manifests/"], ids=["scan", "write"])
def test_a_build_that_was_killed_is_finished_by_the_same_command(moment, tmp_path):
    """What it left behind neither shows nor stands in the way."""
    store, repo = tmp_path / "s.zarr", tmp_path / "repo"
    root = zarr.open_group(store, mode="w")
    for name in "ab":
        how = {"dtype": "f8", "fill_value": -1, "dimension_names": ["y", "x"]}
        array = root.create_array(name, shape=(3, 4), chunks=(1, 2), **how)
        array[:2] = np.arange(8.0).reshape(2, 4)  # the last row is missing
    assert build_and_be_killed(store, repo, moment) == -signal.SIGKILL

    icevirt.build(store, repo, executor="in-process")
    with (
        xr.open_dataset(repo, engine="icevirt") as found,
        xr.open_zarr(store, consolidated=False) as expected,
    ):
        xr.testing.assert_identical(found.load(), expected.load())
