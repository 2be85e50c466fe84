"""Files that are no data, and files that differ in what their numbers mean."""

import h5py
import netCDF4
import numpy as np
import xarray as xr

from archives.archive import DECODED, archive, by_coords, nested
from archives.instruments import plain
from archives.time_axes import write
from archives.writing import numbers, put


def but(name):
    """Return xarray's answer for all files but one."""
    return lambda files: by_coords()([each for each in files if not each.endswith(name)])


def among_days(folder, content):
    """Write three days, of which the one in the middle has another content."""
    for day in range(3):
        write(folder / f"f{day}.nc", [2 * day, 2 * day + 1], "days since 2000-01-01")
    (folder / "f1.nc").write_bytes(content)


BROKEN = {"oracle": but("f1.nc"), "choose": "--max-bad-files 1"}


@archive("Days of which one is a page that asks for a login", tool="a download", **BROKEN)
def make_a_login_page(folder):
    among_days(folder, b"<!DOCTYPE html>\n<html><head><title>Earthdata Login</title></head></html>")


@archive("Days of which one is a pointer of Git LFS", tool="git clone", often=False, **BROKEN)
def make_a_pointer_of_git_lfs(folder):
    among_days(folder, b"version https://git-lfs.github.com/spec/v1\noid sha256:abc\nsize 12345\n")


@archive(
    "Days of which one is the answer of an object store", tool="a download", often=False, **BROKEN
)
def make_an_answer_of_an_object_store(folder):
    among_days(folder, b"<?xml version='1.0'?><Error><Code>AccessDenied</Code></Error>")


@archive("Days of which one is an empty file", tool="a full disk", often=False, **BROKEN)
def make_an_empty_file(folder):
    among_days(folder, b"")


# -- what numbers mean -----------------------------------------------------------------------------


def sky(folder, *members, flags=False):
    """Write a file for each numbering of the same words; all say the same word."""
    for number, names in enumerate(members):
        with netCDF4.Dataset(folder / f"f{number}.nc", "w") as file:
            times = np.array([2.0 * number, 2 * number + 1])
            put(file, "time", ("time",), times, units="days since 2000-01-01")
            kind = "u1" if flags else file.createEnumType("u1", "sky_t", names)
            made = file.createVariable("sky", kind, ("time",))
            if flags:
                made.flag_values = np.array(sorted(names.values()), "u1")
                made.flag_meanings = " ".join(sorted(names, key=names.get))
            made[:] = names["clear"]


TWO = {"clear": 0, "cloud": 1}, {"cloud": 0, "clear": 1}


def words(files):
    """Return xarray's answer where all files number words like the first one: "clear" everywhere."""
    found = nested("time")(files[:1])
    times = [xr.open_dataset(each, decode_times=DECODED).time for each in files]
    return found.isel(time=[0] * 4).assign_coords(time=xr.concat(times, "time"))


@archive("Enumerations that number the same words otherwise", tool="netCDF4", oracle=words,
         choose="--on-mismatch native", attrs=False)  # fmt: skip
def make_other_numbers_of_members(folder):
    sky(folder, *TWO)


@archive("Enumerations, one of which has a word more", tool="netCDF4", oracle=words,
         choose="--on-mismatch native", attrs=False, often=False)  # fmt: skip
def make_a_member_more(folder):
    sky(folder, {"clear": 0, "cloud": 1, "fog": 2}, {"clear": 0, "cloud": 1})


@archive("Flags that number the same words otherwise", tool="netCDF4",
         oracle=lambda files: by_coords()(files[1:]), choose="--on-mismatch eras",
         opened={"group": "era_1"}, attrs=False, often=False)  # fmt: skip
def make_other_numbers_of_flags(folder):
    sky(folder, *TWO, flags=True)


@archive("Numbers that an attribute of the convention scales, otherwise in one file", tool="NWB",
         oracle=plain("v", "phony_dim_0", dim="member"), choose="--combine-attrs drop_conflicts",
         opened={"group": "v"}, attrs=False, often=False)  # fmt: skip
def make_a_conversion_of_each_file(folder):
    for number, factor in enumerate((1.0, 0.001)):
        with h5py.File(folder / f"s{number}.nwb", "w") as file:
            file.attrs["nwb_version"] = "2.6.0"
            data = file.create_dataset("v/data", data=np.array([1000, 2000], "i2"))
            data.attrs.update({"conversion": factor, "unit": "V"})


@archive("Numbers that an attribute of the convention shifts, otherwise in one file", tool="NWB",
         oracle=plain("v", "phony_dim_0", dim="member"), choose="--combine-attrs drop_conflicts",
         opened={"group": "v"}, attrs=False, often=False)  # fmt: skip
def make_an_offset_of_each_file(folder):
    for number, offset in enumerate((0.0, 273.15, 0.0)):
        with h5py.File(folder / f"s{number}.nwb", "w") as file:
            file.attrs["nwb_version"] = "2.8.0"
            data = file.create_dataset("v/data", data=np.array([1, 2, 3], "f4") + number)
            data.attrs.update({"conversion": 1.0, "offset": offset, "unit": "K"})


# -- what one file stores otherwise ----------------------------------------------------------------


def signal(folder, *kinds):
    """Write a file without a time for each type of numbers."""
    for number, kind in enumerate(kinds):
        with netCDF4.Dataset(folder / f"run_2000010{number + 1}.nc", "w") as file:
            put(file, "signal", ("x",), np.arange(3).astype(kind) + number)
            put(file, "gain", (), np.float32(number))


def dated_with(files):
    """Return xarray's answer with the dates of the names, and a scalar for each."""
    times = xr.date_range("2000-01-01", periods=len(files), unit="us")
    return nested("time", data_vars="all")(files).assign_coords(time=times)


@archive("Files without a time: numbers of another type in one, and a scalar of each", tool="h5wasm",
         oracle=dated_with, choose="--on-mismatch native", attrs=False)  # fmt: skip
def make_a_signal_of_another_type(folder):
    signal(folder, "i4", "f8", "i4")


@archive("Forecasts whose step is a scalar, in minutes and in hours, and a time of each", tool="cfgrib",
         oracle=nested("valid_time", data_vars="all", coords=["valid_time", "step"], decode_timedelta=True),
         choose="--labels valid_time=variable:valid_time", opened={"decode_timedelta": True})  # fmt: skip
def make_scalar_steps_in_other_units(folder):
    start = np.datetime64("2024-01-01", "ns")
    for number, unit in enumerate(("minutes", "hours", "hours")):
        step = np.timedelta64(number + 1, "h").astype("m8[ns]")
        labels = {"time": start, "step": step, "valid_time": start + step, "x": np.arange(3.0)}
        xr.Dataset({"t2m": ("x", numbers(3, begin=10 * number))}, labels).to_netcdf(
            folder / f"s{number}.nc", encoding={"step": {"units": unit}}
        )
