"""Every public way to read the arrays of a repository that `access.virtual` made, or one like it.

Each takes what holds the ``root`` and opens the ``store``, and the options of the engine.
"""

import xarray as xr
import zarr
from zarr.core.buffer import default_buffer_prototype
from zarr.core.sync import sync as run

READS = {
    "store.get": lambda at, _: get_all(at),
    "store.get, asynchronously": lambda at, _: get_all(at, sync=False),
    "store.get_partial_values": lambda at, _: get_partial(at),
    "zarr array": lambda at, _: [zarr.open_array(at.store(), path=p, mode="r")[:] for p in PATHS],
    "zarr group": lambda at, _: [a[:] for _, a in zarr.open_group(at.store(), mode="r").arrays()],
    "zarr with fused codecs": lambda at, _: fused(at),
    "xarray's zarr engine": lambda at, _: xr.open_zarr(at.store(), consolidated=False).load(),
    "open_dataset": lambda at, options: open_dataset(at, options).load(),
    "open_dataset with dask": lambda at, options: open_dataset(at, options, chunks={}).compute(),
    "open_datatree": lambda at, options: xr.open_datatree(
        at.root, engine="icevirt", **options
    ).load(),
    "open_groups": lambda at, options: [
        ds.load() for ds in xr.open_groups(at.root, engine="icevirt", **options).values()
    ],
    "a Dataset indexed": lambda at, options: open_dataset(at, options).isel(y=[0, 3], n=1).load(),
}
PATHS = ["v", "inline", "native"]


def get_all(at, *, sync=True):
    store = at.store()
    for key in ("v/c/0/0", "v/c/1/0", "inline/c/1/0", "native/c/0/0"):
        got = store.get_sync(key) if sync else run(store.get(key, default_buffer_prototype()))
        assert got is not None, key


def get_partial(at):
    keys = [(key, None) for key in ("v/c/0/0", "inline/c/1/0", "native/c/0/0")]
    assert None not in run(at.store().get_partial_values(default_buffer_prototype(), keys))


def fused(at):
    with zarr.config.set({"codec_pipeline.path": "zarr.core.codec_pipeline.FusedCodecPipeline"}):
        return [zarr.open_array(at.store(), path=path, mode="r")[:] for path in PATHS]


def open_dataset(at, options, **more):
    return xr.open_dataset(at.root, engine="icevirt", **options, **more)
