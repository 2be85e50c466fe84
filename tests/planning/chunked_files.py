"""Files of one variable in chunks, its raw values, and what both clients read."""

from pathlib import Path

import h5py
import numpy as np
import zarr

import icevirt
from builds.support import official

WIDE = (512, 256)
"""As many values a step that a few steps are more than the scan reads itself."""


def write(path, begin, steps, *, chunk=2, dtype="f4", grid=WIDE, space=None, packing=None, **how):
    """Write ``steps`` steps of a variable in chunks of ``chunk`` steps; return its raw values."""
    packing = packing or {}
    with h5py.File(path, "w") as file:
        time = file.create_dataset("time", data=np.arange(begin, begin + steps, dtype="f8"))
        time.make_scale("time")
        held = np.arange(begin, begin + steps)[:, None, None] * 100
        held = (held + np.arange(np.prod(grid)).reshape(grid) % 97).astype(dtype)
        if "compression" not in how:
            how = {"compression": "gzip", "compression_opts": 1} | how
        data = file.create_dataset(
            "data", data=held, chunks=(chunk, *(space or grid)), maxshape=(None, *grid), **how
        )
        for axis, name in enumerate(("y", "x"), 1):
            scale = file.create_dataset(name, data=np.arange(grid[axis - 1], dtype="f4"))
            scale.make_scale(name)
            data.dims[axis].attach_scale(scale)
        data.dims[0].attach_scale(time)
        data.attrs["units"] = "K"
        for name, value in packing.items():
            data.attrs[name] = value
    return held


def raw(files, name="data"):
    """Return what h5py reads from all files, one after the other."""
    parts = []
    for path in files:
        with h5py.File(path) as file:
            parts.append(file[name][...])
    return np.concatenate(parts)


def held(repo, name="data"):
    """Return what both clients read; they have to agree."""
    prefixes = list(icevirt.Repository.open(repo).config.virtual_chunk_containers)
    ours = icevirt.Repository.open(repo, authorize_virtual_chunk_access=prefixes)
    stores = (
        ours.readonly_session("main").store,
        official(repo).readonly_session("main").store,
    )
    found = [np.asarray(zarr.open_array(store, path=name, mode="r")[...]) for store in stores]
    assert found[0].dtype == found[1].dtype
    assert found[0].tobytes() == found[1].tobytes()
    return found[0]


def counts(report, path="/data"):
    """Return the references of one array."""
    return next(array.references for array in report.arrays if array.path == path)


def names(folder: Path, count):
    """Return the paths of some files."""
    return [str(folder / f"f{number:02d}.nc") for number in range(count)]
