"""Files of a field and all that CF can name beside it, one for each run or day."""

import json

import netCDF4
import numpy as np
import xarray as xr

import icevirt
from builds.support import verified
from builds.xarray_answer import combined
from grouping import grouped


def write(path, run=1, day=0, *, steps=2, n=4, layout=None, **values):
    """Write a field in time, a mask, a scalar, text, and a grid that CF names in all ways."""
    with netCDF4.Dataset(path, "w", format=layout or "NETCDF4") as file:
        for name, length in (("time", steps), ("y", n), ("x", n), ("two", 2)):
            file.createDimension(name, length)
        time = file.createVariable("time", "f8", ("time",))
        time.units, time.bounds = "days since 2000-01-01", "time_bnds"
        time[:] = np.arange(steps) + steps * day
        bounds = file.createVariable("time_bnds", "f8", ("time", "two"))
        bounds[:] = time[:][:, None] + [0, 1]
        file.createVariable("crs", "i4", ()).grid_mapping_name = "latitude_longitude"
        file["crs"][...] = 1
        grid = np.arange(n * n, dtype="f4").reshape(n, n)
        for name in ("lat", "area", "mask", "flag"):
            file.createVariable(name, "f4", ("y", "x"))[:] = values.get(name, 1) * grid
        field = file.createVariable("field", "f4", ("time", "y", "x"))
        field.coordinates, field.grid_mapping = "lat", "crs"
        field.cell_measures, field.ancillary_variables = "area: area", "flag"
        field[:] = grid + 1000 * run + 10 * time[:][:, None, None]
        file.createVariable("number", "i4", ())[...] = values.get("number", 7)
        if layout is None:
            file.createVariable("name", str, ())[...] = values.get("name", "a text")
    return str(path)


def runs(folder, count=2, **spec):
    """Write a file for each run."""
    return [write(folder / f"run{n}.nc", n, **spec) for n in range(count)]


def days(folder, count=2, **spec):
    """Write a file for each day of one run."""
    return [write(folder / f"day{n}.nc", day=n, **spec) for n in range(count)]


def dims(plan):
    """Return the dimensions of each array of a plan."""
    return {array.path[1:]: array.schema.dimension_names for array in plan.arrays}


def opened(repo, report):
    """Open a repository whose every chunk was compared with its file."""
    verified(repo, report.containers)
    return xr.open_dataset(
        repo, engine="icevirt", authorize_virtual_chunk_access=report.containers,
        decode_coords="all",
    ).load()  # fmt: skip


def by_xarray(files, dimension, data_vars):
    """Return what xarray makes of the files by the same words."""
    return combined(
        files, combine="nested", concat_dim=dimension, data_vars=data_vars, coords="minimal",
        compat="equals", join="exact", combine_attrs="override", decode_coords="all",
    )  # fmt: skip


def planned(files, **how):
    """Plan files."""
    return icevirt.plan(files, **grouped(how))


def stacked(files, repo=None, **how):
    """Plan or build files along a new dimension."""
    how = {"concat_dim": "run", "labels": list(range(len(files))), **how}
    return (
        icevirt.plan(files, **grouped(how))
        if repo is None
        else icevirt.build(files, repo, **grouped(how))
    )


def recorded(repo):
    """Return the dimensions of the arrays of a repository."""
    snapshot = icevirt.Repository.open(repo).readonly_session("main").snapshot
    return {
        node.path[1:]: tuple(json.loads(node.user_data).get("dimension_names", ()))
        for node in snapshot.arrays()
    }
