"""Libraries that import icechunk themselves write with icevirt after `install()`."""

import subprocess
import sys
from pathlib import Path

import icechunk
import numpy as np
import pytest
import xarray as xr
import zarr

pytestmark = pytest.mark.ci
PROGRAM = Path(__file__).parent / "installed_program.py"


def test_virtualizarr_xarray_and_dask_write_what_the_official_client_reads(tmp_path):
    for number in range(3):
        values = np.arange(12, dtype="f4").reshape(2, 6) + 100 * number
        days = np.array([2 * number, 2 * number + 1])
        variables = {"v": (("time", "x"), values, {"units": "K"})}
        day = xr.Dataset(variables, {"time": days, "x": np.arange(6)})
        day.to_netcdf(tmp_path / f"day{number}.nc", engine="h5netcdf", unlimited_dims=["time"])
    command = [sys.executable, str(PROGRAM), str(tmp_path), str(tmp_path / "repo")]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout == "icevirt.icechunk\n"

    prefix = f"file://{tmp_path}/"
    repo = icechunk.Repository.open(
        icechunk.local_filesystem_storage(str(tmp_path / "repo")),
        authorize_virtual_chunk_access={prefix: icechunk.credentials.LocalFileSystemAccess},
    )
    store = repo.readonly_session("main").store
    days = [xr.open_dataset(tmp_path / f"day{number}.nc") for number in range(3)]
    found = xr.open_zarr(store, group="virtual", consolidated=False)
    xr.testing.assert_equal(found.load(), xr.concat(days, "time", data_vars="minimal"))
    assert found.v.attrs == {"units": "K"}
    copied = xr.open_zarr(store, group="copied", consolidated=False)
    xr.testing.assert_identical(copied.load(), days[0].load())
    assert zarr.open_array(store, path="stored", mode="r")[:].tolist() == list(range(8))
    assert any(url.endswith("day2.nc") for url in store.session.all_virtual_chunk_locations())
