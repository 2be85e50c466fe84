"""Runs that overlap: forecasts that roll, restarts, days that two files hold, versions."""

import os

import numpy as np
import xarray as xr

from archives.archive import DECODED, archive, by_coords

HOUR = np.timedelta64(1, "h")


def at(start, hours=0):
    """Return a time."""
    return np.datetime64(start, "us") + hours * HOUR


def steps(start, count, every=1, *, value=0.0, name="t2m", **more):
    """Return a variable on a small grid, some hours apart, whose values tell time and run."""
    time = at(start) + np.arange(count) * every * HOUR
    hours = ((time - at("2000-01-01")) // HOUR).astype("f8")
    values = hours[:, None, None] % 1000 + np.arange(6.0).reshape(2, 3) / 8
    return xr.Dataset(
        {name: (("time", "lat", "lon"), (values + value).astype("f4"), {"units": "K"})},
        {"time": time, "lat": ("lat", [0.0, 1], {"units": "degrees_north"}),
         "lon": ("lon", [0.0, 1, 2], {"units": "degrees_east"})},
        more or {"institution": "a center"},
    )  # fmt: skip


def save(dataset, path, *, modified=0, chunks=None, since="2000-01-01", **encoding):
    """Write a file, with one chunk a step unless told otherwise."""
    name = next(iter(dataset.data_vars))
    shape = [dataset.sizes[each] for each in dataset[name].dims]
    encoding = {name: {"chunksizes": (chunks or 1, *shape[1:]), "zlib": True} | encoding,
                "time": {"units": f"hours since {since}", "dtype": "f8"}}  # fmt: skip
    dataset.to_netcdf(path, unlimited_dims="time", encoding=encoding)
    os.utime(path, (1_600_000_000 + modified,) * 2)


def preferring(rank, dim="time", *, ascending=True):
    """Concatenate the steps for which no file of a higher rank exists; rank takes paths."""

    def answer(files):
        taken, parts = set(), []
        for path in sorted(files, key=rank, reverse=True):
            dataset = xr.open_dataset(path, decode_times=DECODED).load()
            labels = dataset[dim].values.tolist()
            kept = [at for at, label in enumerate(labels) if label not in taken]
            taken |= set(labels)
            parts.append(dataset.isel({dim: kept}))
        parts = [each for each in parts if each.sizes[dim]]
        parts.sort(key=lambda each: each[dim].values[0])
        made = xr.concat(parts, dim, data_vars="minimal", coords="minimal", compat="override",
                         combine_attrs="override", join="exact")  # fmt: skip
        return made.sortby(dim, ascending=ascending)

    return answer


def latest(path):
    return os.stat(path).st_mtime


def given(path):
    return path


@archive(
    "Forecasts of 24 hours, one run every 6 hours; the newest run counts", tool="ICON, netCDF4",
    oracle=preferring(latest), choose="--duplicates newest",
)  # fmt: skip
def make_rolling_forecasts(folder):
    for run in range(4):
        one = steps(at("2024-01-01", 6 * run), 24, value=run * 0.25)
        save(one, folder / f"icon_20240101{6 * run:02}.nc", modified=run)


@archive(
    "Forecasts whose steps grow from 1 to 3 hours; the first run counts", tool="GFS, wgrib2",
    oracle=preferring(lambda path: -int(path[-5:-3])), choose="--duplicates first",
)  # fmt: skip
def make_forecasts_with_growing_steps(folder):
    for run in (0, 6, 12):
        whole = steps(at("2024-01-01", run), 40, value=run * 0.25)
        save(whole.isel(time=[*range(12), *range(12, 40, 3)]), folder / f"gfs.t{run:02}.nc")


@archive(
    "Each run ends with the first step of the next (restart)", tool="a climate model",
    oracle=preferring(given), choose="--duplicates last",
)  # fmt: skip
def make_restart_step_twice(folder):
    for year in (2001, 2002, 2003):
        save(steps(f"{year}-01-01", 13, 730, value=year / 8), folder / f"run_{year}.nc")


@archive(
    "Each run ends with the first step of the next; bounds, calendar without leap days",
    tool="CESM", oracle=preferring(lambda path: -int(path[-7:-3])), choose="--duplicates first",
)  # fmt: skip
def make_restart_step_noleap_bounds(folder):
    for year in (2001, 2002):
        one = steps("2000-01-01", 4, value=year / 8).drop_vars("time")
        days = np.arange(4.0) * 120 + 480 * (year - 2001) - 120 * (year == 2002)
        one["time"] = ("time", days, {"units": "days since 2001-01-01", "calendar": "noleap",
                                      "bounds": "time_bnds"})  # fmt: skip
        one["time_bnds"] = (("time", "bnds"), np.stack([days - 120, days], 1))
        one.to_netcdf(folder / f"cam.h0.{year}.nc", unlimited_dims="time")


@archive(
    "Monthly files with a day of the next month, chunks of a day", tool="ERA5, CDS",
    oracle=preferring(given), choose="--duplicates last",
)  # fmt: skip
def make_months_with_a_day_more(folder):
    for month, days in ((1, 31), (2, 28), (3, 31)):
        start, count = f"2023-{month:02}-01", (days + 1) * 4
        save(steps(start, count, 6, value=month / 8), folder / f"era5_{month:02}.nc", chunks=4)


@archive(
    "Monthly files with half a day of the next month: chunks of a day are cut", tool="xarray",
    oracle=preferring(given), choose="--duplicates last",
)  # fmt: skip
def make_chunks_that_are_cut(folder):
    for month, days in ((1, 31), (2, 28), (3, 31)):
        start, count = f"2023-{month:02}-01", days * 4 + 2
        save(steps(start, count, 6, value=month / 8), folder / f"era5_{month:02}.nc", chunks=4)


@archive(
    "Overlapping runs in contiguous variables, with times since each run's start", tool="NCO, NetCDF-3",
    oracle=preferring(latest), choose="--duplicates newest",
)  # fmt: skip
def make_overlapping_classic(folder):
    for run in range(3):
        one = steps(f"2024-01-0{run + 1}", 10, 6, value=run / 8)
        encoding = {"time": {"units": f"hours since 2024-01-0{run + 1}", "dtype": "f8"}}
        one.to_netcdf(folder / f"run{run}.nc", format="NETCDF3_64BIT", encoding=encoding)
        os.utime(folder / f"run{run}.nc", (1_600_000_000 + run,) * 2)


@archive(
    "A year was processed again: some of its days have a second version", tool="ESA CCI",
    oracle=preferring(given), choose="--duplicates version",
)  # fmt: skip
def make_reprocessed_days(folder):
    for day in range(1, 6):
        for version in (1, 2) if day in (2, 4) else (1,):
            one = steps(f"2020-03-0{day}", 1, value=version)
            save(one, folder / f"2020030{day}-CCI-v{version}.nc")


@archive(
    "A second version of some days lies in the middle of a file", tool="a data center",
    oracle=preferring(lambda path: path[-5:]), choose="--duplicates newest",
)  # fmt: skip
def make_correction_in_the_middle(folder):
    save(steps("2020-01-01", 12, 24), folder / "all_v1.nc", chunks=2)
    save(steps("2020-01-05", 4, 24, value=0.5), folder / "fix_v2.nc", chunks=2, modified=9)


@archive(
    "One variable in monthly files, another one in files of two months", tool="CMIP6, ESGF",
    oracle=by_coords(),
)  # fmt: skip
def make_variables_in_files_of_other_lengths(folder):
    for month in range(4):
        save(steps(f"2001-0{month + 1}-01", 2, 16 * 24), folder / f"tas_{month}.nc", chunks=2)
    times = xr.open_mfdataset(sorted(folder.glob("tas*.nc"))).time
    for number in range(2):
        own = times.values[4 * number : 4 * number + 4]
        one = steps("2001-01-01", 4, value=3, name="pr").assign_coords(time=own)
        save(one, folder / f"pr_{number}.nc", chunks=4)


@archive(
    "Overlapping runs, each with its own reference date and packing of time", tool="WRF, ncrcat",
    oracle=preferring(given), choose="--duplicates last",
)  # fmt: skip
def make_overlap_with_other_reference_dates(folder):
    for run in range(3):
        start = at("2024-01-01", 9 * run)
        since = str(start).replace("T", " ")
        save(steps(start, 12, value=run), folder / f"run_{run}.nc", since=since)


@archive(
    "Tiles that share their edge rows (halo)", tool="a regional model",
    oracle=preferring(given, "lat", ascending=False), choose="--duplicates last", options=("--concat-dim", "lat"),
)  # fmt: skip
def make_tiles_with_a_halo(folder):
    for tile in range(3):
        lat = 50.0 - np.arange(5) - 4 * tile
        values = np.outer(lat, [1.0, 2, 3]).astype("f4")
        xr.Dataset({"z": (("lat", "lon"), values)}, {"lat": lat, "lon": [0.0, 1, 2]}).to_netcdf(
            folder / f"tile_{tile}.nc", encoding={"z": {"chunksizes": (1, 3)}}
        )


@archive(
    "Runs that overlap, of two ensemble members in folders", tool="xarray",
    oracle=lambda files: xr.concat(
        [preferring(given)([each for each in files if f"/{member}/" in each])
         for member in ("r1", "r2")], "member", combine_attrs="override",
    ).assign_coords(member=["r1", "r2"]),
    files="*/*", choose="--duplicates last",
    options=("--concat-dim", "member", "--concat-dim", "time", "--labels", "member=regex:/(r[0-9])/"),
)  # fmt: skip
def make_members_that_overlap(folder):
    for member in ("r1", "r2"):
        (folder / member).mkdir()
        for run in range(2):
            value = run + 2 * (member == "r2")
            save(
                steps(at("2024-01-01", 4 * run), 6, value=value), folder / member / f"run_{run}.nc"
            )
