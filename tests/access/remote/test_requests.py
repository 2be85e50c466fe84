"""How many requests of a bucket it takes to open a dataset cold, beside the official client."""

import json

import icechunk
import numpy as np
import pytest
import xarray as xr
import zarr

from icevirt.model.chunks import ChunkTable, Locations
from icevirt.model.config.containers import ObjectStoreConfig, VirtualChunkContainer
from icevirt.model.config.document import RepositoryConfig
from icevirt.repo.repository import Repository

VARIABLES, STEPS, CHUNK = 100, 1_000_000, 1_000


@pytest.fixture
def bucket(s3_proxy):
    """A repository of 100 virtual variables along a time of a million steps."""
    config = RepositoryConfig()
    store = ObjectStoreConfig("http", {})
    config.set_virtual_chunk_container(VirtualChunkContainer("https://nowhere.test/", store))
    session = Repository.create(s3_proxy.direct.icevirt(), config).writable_session("main")
    time = zarr.create_array(
        session.store,
        name="time",
        data=np.arange(STEPS),
        chunks=(STEPS,),
        dimension_names=("time",),
        attributes={"units": "seconds since 2000-01-01"},
    )
    number = np.arange(STEPS // CHUNK)
    table = ChunkTable.virtual(
        index=number[:, None],
        offset=number * CHUNK * 4,
        length=np.full(len(number), CHUNK * 4),
        locations=Locations.one("https://nowhere.test/all.bin"),
    )
    for variable in range(VARIABLES):
        session.add_array(f"/v{variable:03d}", document(time.metadata), table)
    session.commit("all")
    return s3_proxy


def document(time):
    """Return the document of a variable along the time."""
    return json.dumps(
        time.to_dict()
        | {
            "data_type": "float32",
            "fill_value": "NaN",
            "attributes": {"units": "K"},
            "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [CHUNK]}},
            "codecs": [{"name": "bytes", "configuration": {"endian": "little"}}],
        }
    ).encode()


def asked(bucket, work):
    bucket.rules.clear()
    work()
    return [f"{request.method} {request.target}" for request in bucket.rules.requests]


def test_a_dataset_of_a_hundred_variables_opens_in_ten_requests(bucket):
    def icevirts():
        storage = bucket.place.icevirt()
        access = ["https://nowhere.test/"]
        ds = xr.open_dataset(storage, engine="icevirt", authorize_virtual_chunk_access=access)
        assert len(ds.data_vars) == VARIABLES
        assert "v099" in repr(ds)

    def icechunks():
        repo = icechunk.Repository.open(bucket.place.official())
        store = repo.readonly_session("main").store
        repr(xr.open_zarr(store, consolidated=False, chunks=None))

    ours, theirs = asked(bucket, icevirts), asked(bucket, icechunks)
    assert len(ours) <= min(10, len(theirs)), (ours, theirs)
    assert all(request.startswith("GET ") for request in ours)
