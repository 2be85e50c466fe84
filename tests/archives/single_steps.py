"""Archives some of whose files are a single step, saved without its dimension."""

import numpy as np
import xarray as xr

from archives.archive import DECODED, archive

LIKE_A_STEP = {
    "p",
    "forecast_period",
    "time_bnds",
    "level",
}  # what has the dimension in other files


def steps(begin, count, *, dim="time", bounds=False):
    """Return some steps of a field; no two values of an archive are equal."""
    values = np.arange(count * 144, dtype="f4").reshape(count, 12, 12) + 1000 * begin
    labels = np.arange(begin, begin + count, dtype="f8")
    said = {"units": "hours since 1970-01-01", "calendar": "360_day", "standard_name": "time"}
    made = xr.Dataset(
        {"p": ((dim, "y", "x"), values, {"units": "Pa"})},
        {dim: (dim, labels, said if dim == "time" else {"units": "m"}),
         "y": np.arange(12.0), "x": np.arange(12.0),
         "forecast_period": (dim, labels - begin, {"standard_name": "forecast_period"})},
    )  # fmt: skip
    if bounds:
        made[dim].attrs["bounds"] = f"{dim}_bnds"
        made[f"{dim}_bnds"] = (dim, "bnds"), labels[:, None] + np.array([-0.5, 0.5])
    return made


def save(made, path, *, dim="time", single=False, chunked=True, like=()):
    """Write a file; a single step without its dimension, as Iris and ``isel`` leave it."""
    made = made.isel({dim: 0}) if single else made
    shape = made.p.shape
    how = {"zlib": True, "chunksizes": (1, *shape[-2:])[-len(shape) :]} if chunked else {}
    made.to_netcdf(path, encoding={"p": how | {"_FillValue": None}} | dict(like))


def along(dim):
    """Return xarray's answer, where single steps get their dimension back."""

    def answer(files):
        parts = []
        for file in files:
            part = xr.open_dataset(file, decode_times=DECODED).load()
            if dim not in part.dims:
                lacking = [n for n in part.variables if n in LIKE_A_STEP | {dim}]
                part = part.assign({n: part[n].variable.expand_dims(dim) for n in lacking})
            parts.append(part)
        how = {"data_vars": "minimal", "coords": "minimal", "compat": "override"}
        return xr.concat(parts, dim, join="exact", combine_attrs="override", **how)

    return answer


@archive("The last file is a single step without the dimension time", tool="xarray (isel)",
         oracle=along("time"))  # fmt: skip
def make_last_step_scalar(folder):
    for number in range(3):
        save(steps(2 * number, 2), folder / f"run_{number}.nc")
    save(steps(6, 1), folder / "run_3.nc", single=True)


@archive("The first files are single steps without the dimension time, with bounds", tool="xarray (isel)",
         oracle=along("time"))  # fmt: skip
def make_first_steps_scalar(folder):
    for number in range(2):
        save(steps(number, 1, bounds=True), folder / f"run_{number}.nc", single=True)
    save(steps(2, 3, bounds=True), folder / "run_2.nc")


@archive("A single step among uncompressed files of several steps", tool="xarray (isel)",
         oracle=along("time"))  # fmt: skip
def make_scalar_step_contiguous(folder):
    for number, count in enumerate((2, 1, 3)):
        save(
            steps(4 * number, count), folder / f"run_{number}.nc", single=count == 1, chunked=False
        )


@archive("A single step among compressed files whose chunks hold several steps", tool="xarray (isel)",
         oracle=along("time"), choose="native")  # fmt: skip
def make_scalar_step_other_chunks(folder):
    for number, count in enumerate((2, 1, 2)):
        like = {"p": {"zlib": True, "_FillValue": None}}
        save(steps(2 * number, count), folder / f"run_{number}.nc", single=count == 1, like=like)


@archive("A level without its dimension among files that have it", tool="xarray (isel)",
         oracle=along("level"))  # fmt: skip
def make_scalar_level(folder):
    for number, count in enumerate((2, 1, 2)):
        made = steps(2 * number, count, dim="level")
        save(made, folder / f"l{number}.nc", dim="level", single=count == 1)


@archive("A single step among files whose time is the last dimension", tool="xarray (isel)",
         oracle=along("time"))  # fmt: skip
def make_scalar_step_last_dimension(folder):
    for number, count in enumerate((2, 1, 3)):
        made = steps(3 * number, count).transpose("y", "x", "time")
        how = (
            {"p": {"zlib": True, "chunksizes": (12, 12, 1)}} if count > 1 else {"p": {"zlib": True}}
        )
        save(made, folder / f"run_{number}.nc", single=count == 1, chunked=False, like=how)


@archive("A single step of uncompressed files whose time is in the middle, with bounds", tool="xarray (isel)",
         oracle=along("time"), choose="native")  # fmt: skip
def make_scalar_step_middle_dimension(folder):
    for number, count in enumerate((1, 2, 1)):
        made = steps(3 * number, count, bounds=True).transpose("y", "time", "x", "bnds")
        save(made, folder / f"run_{number}.nc", single=count == 1, chunked=False)
