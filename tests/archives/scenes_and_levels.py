"""Archives whose files say with single values, or with the date of each, where they belong."""

import numpy as np
import xarray as xr

from archives.archive import archive, by_coords
from archives.proposals import FIELD


def scene(path, hour, *, steps=("time",)):
    """Write a scene whose lines have times that count from the date of the scene."""
    begin = np.datetime64(f"2024-01-01T0{hour}:00", "ns")
    lines = begin + np.arange(4) * np.timedelta64(1, "m")
    data = {
        "IR_108": ((*steps, "y", "x"), FIELD[(None,) * len(steps)] + 100 * hour),
        "acq_time": ("y", lines),
    }
    labels = {"y": np.arange(4.0), "x": np.arange(6.0)} | {name: [begin] for name in steps}
    xr.Dataset(data, labels).to_netcdf(path)


@archive(
    "Scenes with a time for each line, which counts from the date of its scene",
    tool="satpy",
    oracle=by_coords(data_vars=["acq_time"]),
    choose="--data-vars acq_time",
)
def make_scenes_with_times_of_lines(folder):
    for hour in range(3):
        scene(folder / f"seviri_{hour}.nc", hour)


@archive(
    "Scenes of two channels and a quality of each line, whose times count from their scene",
    tool="satpy",
    oracle=by_coords(data_vars=["acq_time", "quality"]),
    choose="--data-vars acq_time",
    often=False,
)
def make_scenes_of_two_channels(folder):
    for hour in range(3):
        path = folder / f"abi_{hour}.nc"
        scene(path, hour)
        more = {
            "VIS006": (("time", "y", "x"), FIELD[None].astype("f8") - hour),
            "quality": ("y", np.arange(4, dtype="i1") + hour),
        }
        xr.Dataset(more).to_netcdf(path, mode="a")


def beside(name):
    """Return xarray's answer where a single value of each file is the label of a new dimension."""

    def place(held):
        label = held[name].values
        kept = held.drop_vars(name).assign_coords({name: (name, label[None], held[name].attrs)})
        return kept.assign(t=held.t.drop_vars(name).expand_dims({name: label[None]}))

    return by_coords(preprocess=place, data_vars=["t"])


@archive(
    "Fields of two levels and two times, a file for each, with a single level in each",
    tool="Iris",
    oracle=beside("pressure"),
    choose="--labels pressure=variable:pressure",
    attrs=False,
)
def make_levels_as_single_values(folder):
    for level in (850.0, 500.0):
        for at in range(2):
            times = 2 * at + np.arange(2.0)
            data = {"t": (("time", "y", "x"), np.stack([FIELD, FIELD + 50]) + level + 100 * at)}
            labels = {
                "time": ("time", times, {"units": "hours since 2000-01-01"}),
                "pressure": level,
            }
            xr.Dataset(data, labels).to_netcdf(folder / f"t_{level:.0f}_{at}.nc")


@archive(
    "Fields of three heights and two times, a file for each, heights as whole numbers",
    tool="Iris",
    oracle=beside("height"),
    choose="--labels height=variable:height",
    attrs=False,
    often=False,
)
def make_heights_as_single_values(folder):
    for height in (2, 10, 100):
        for at in range(2):
            data = {"t": (("time", "y", "x"), FIELD[None] + height + 1000 * at)}
            labels = {
                "time": ("time", [np.int32(6 * at)], {"units": "hours since 2000-01-01"}),
                "height": ((), np.int32(height), {"units": "m", "positive": "up"}),
            }
            xr.Dataset(data, labels).to_netcdf(folder / f"t_{height}m_{at}.nc")


@archive(
    "Members of a forecast, a file for each and each time, with the member as a single value",
    tool="Iris",
    oracle=beside("realization"),
    choose="--labels realization=variable:realization",
    attrs=False,
    often=False,
)
def make_members_as_single_values(folder):
    for member in range(3):
        for at in range(2):
            data = {"t": (("time", "y", "x"), FIELD[None] * (member + 1) + 10 * at)}
            labels = {
                "time": ("time", [6.0 * at], {"units": "hours since 2000-01-01"}),
                "realization": ((), np.int32(member), {"standard_name": "realization"}),
            }
            xr.Dataset(data, labels).to_netcdf(folder / f"mem{member}_{at}.nc")
