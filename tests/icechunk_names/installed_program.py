"""A program of VirtualiZarr, xarray and dask, as their documentation writes it; see test_installed.

Arguments: the directory of the files, and the path of the repository.
"""

# ruff: noqa: E402, T201 - a program, whose first lines install what it imports

import sys

import icevirt.icechunk

icevirt.icechunk.install()

import dask
import dask.array
import icechunk
import icechunk.dask
import xarray as xr
import zarr
from icechunk.xarray import to_icechunk
from obspec_utils.registry import ObjectStoreRegistry
from obstore.store import LocalStore
from virtualizarr import open_virtual_dataset
from virtualizarr.parsers import HDFParser

files, path = sys.argv[1:]
prefix = f"file://{files}/"


def virtual(number: int) -> xr.Dataset:
    """Return one file as references."""
    registry = ObjectStoreRegistry({"file://": LocalStore()})
    return open_virtual_dataset(
        f"{prefix}day{number}.nc", registry, HDFParser(), loadable_variables=["time", "x"]
    )


config = icechunk.RepositoryConfig.default()
store = icechunk.local_filesystem_store(files)
config.set_virtual_chunk_container(icechunk.VirtualChunkContainer(prefix, store))
credentials = icechunk.containers_credentials({prefix: None})
repo = icechunk.Repository.create(
    icechunk.local_filesystem_storage(path), config, authorize_virtual_chunk_access=credentials
)

session = repo.writable_session("main")
virtual(0).vz.to_icechunk(session.store, group="virtual")
session.commit("first")
for number in (1, 2):
    session = repo.writable_session("main")
    virtual(number).vz.to_icechunk(session.store, group="virtual", append_dim="time")
    session.commit(f"append {number}")

session = repo.writable_session("main")
to_icechunk(xr.open_dataset(f"{files}/day0.nc").chunk(x=2), session, group="copied")
session.commit("copied by dask")

session = repo.writable_session("main")
zarr.create_array(session.store, name="stored", shape=(8,), chunks=(2,), dtype="i4")
fork = session.fork()
target = zarr.open_array(fork.store, path="stored")
with dask.config.set(scheduler="threads"):
    merged = icechunk.dask.store_dask(
        sources=[dask.array.arange(8, chunks=2, dtype="i4")], targets=[target]
    )
session.merge(merged)
session.commit("stored by dask")
print(icechunk.__name__)
