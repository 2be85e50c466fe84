"""Times that count from dates written in several ways, and numbers that are times without such a date."""

import netCDF4
import numpy as np
import xarray as xr

from archives.archive import archive, by_coords, nested
from archives.time_axes import finer, write
from archives.writing import numbers, put


def dated(folder, *said):
    """Write a file for each reference date: steps of an hour or a day, as the units count."""
    for number, units in enumerate(said):
        write(folder / f"f{number}.nc", [0, 1, 2], units, calendar=None)


@archive("Local time of winter in one file, of summer in the next: the reference date has a zone",
         tool="ACT", oracle=by_coords())  # fmt: skip
def make_zones_of_winter_and_summer(folder):
    dated(
        folder,
        "hours since 2019-01-01 00:00:00 -6:00",
        "hours since 2019-07-01 00:00:00 -5:00",
        "hours since 2019-12-01",
    )


@archive("A zone that moves the steps of one file between the steps of the next", tool="a station",
         oracle=lambda files: nested("time")(files).sortby("time"), often=False)  # fmt: skip
def make_zones_that_interleave(folder):
    dated(folder, "days since 1992-10-8 15:15:42.5 -6:00", "days since 1992-10-9 15:15:42.5 +06:00")


@archive("An hour with Z and no minutes", tool="GrADS", oracle=by_coords(), often=False)
def make_hours_with_z(folder):
    dated(folder, "hours since 2000-01-01 06Z", "hours since 2000-01-02 18Z")


@archive("Times to the nanosecond, counted from the first of each file", tool="xarray",
         oracle=finer(by_coords(), "time"), often=False)  # fmt: skip
def make_reference_dates_with_nanoseconds(folder):
    for number in range(2):
        first = np.datetime64("2022-11-12T00:00:37.123456789") + number * 3_600_000_000_333
        labels = first + np.arange(3) * np.timedelta64(1, "s")
        xr.Dataset({"a": ("time", numbers(3, begin=10 * number))}, {"time": labels}).to_netcdf(
            folder / f"f{number}.nc"
        )


@archive("A reference date with the day first, which two readers take for two dates", tool="a script",
         oracle=by_coords(), refused="01-02-2000", often=False)  # fmt: skip
def make_days_first(folder):
    dated(folder, "days since 01-01-2000", "days since 01-02-2000")


# -- times that no reader decodes ------------------------------------------------------------------


def tiles(folder, times, kind, **attrs):
    """Write two tiles of each time, a file each."""
    for step, time in enumerate(times):
        for tile in range(2):
            with netCDF4.Dataset(folder / f"t{step}x{tile}.nc", "w") as file:
                put(file, "time", ("time",), np.array([time], kind), **attrs)
                put(file, "x", ("x",), np.arange(3.0) + 3 * tile)
                put(file, "v", ("time", "x"), numbers(1, 3, begin=10 * tile + 100 * step))


@archive("Two tiles of each day, whose time is a day and its fraction, without a date to count from",
         tool="cdo -a", oracle=by_coords())  # fmt: skip
def make_tiles_of_absolute_times(folder):
    tiles(folder, (20000101.5, 20000102.5), "f8", units="day as %Y%m%d.%f")


@archive("Two tiles of each day, whose time is a whole number like 20000101", tool="a script",
         oracle=by_coords(), often=False)  # fmt: skip
def make_tiles_of_whole_days(folder):
    tiles(folder, (20000101, 20000102), "i4")


@archive("Two tiles of each minute, in seconds of an epoch that no attribute names", tool="h5py",
         oracle=by_coords(), often=False)  # fmt: skip
def make_tiles_of_epoch_seconds(folder):
    tiles(folder, (946684800, 946684860), "i8", units="s")
