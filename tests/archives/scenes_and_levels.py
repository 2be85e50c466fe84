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


def beside(name):
    """Return xarray's answer where a single value of each file is the label of a new dimension."""

    def place(held):
        label = held[name].item()
        kept = held.drop_vars(name).assign_coords({name: (name, [label], held[name].attrs)})
        return kept.assign(t=held.t.drop_vars(name).expand_dims({name: [label]}))

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
