"""Coordinates that differ by rounding, tiles, and files whose names or ends say nothing."""

import netCDF4
import numpy as np
import xarray as xr

from archives.archive import archive, by_coords, nested

OVERRIDE = {"join": "override", "compat": "override"}  # xarray's words for "the first file counts"


def field(step, *, lat=(10.0, 20.0, 30.0), lon=(0.0, 120.0, 240.0, 360.0), name="tas"):
    """Return one day on a grid."""
    shape = (1, len(lat), len(lon))
    return xr.Dataset(
        {name: (("time", "lat", "lon"), np.full(shape, step, "f4"), {"units": "K"})},
        {"time": ("time", [float(step)], {"units": "days since 2000-01-01"}),
         "lat": ("lat", np.asarray(lat), {"units": "degrees_north"}),
         "lon": ("lon", np.asarray(lon), {"units": "degrees_east"})},
    )  # fmt: skip


@archive(
    "Latitudes and longitudes that differ in their last digits", tool="CDO, NCO",
    oracle=nested("time", **OVERRIDE), choose="--tolerance",
)  # fmt: skip
def make_rounded_coordinates(folder):
    for step in range(4):
        noise = 3e-14 * (step % 3)
        made = field(step, lat=np.array([10.0, 20, 30]) + noise, lon=np.arange(4) * 120 - noise)
        made.to_netcdf(folder / f"day{step}.nc")


@archive(
    "Latitudes and their bounds that differ after a conversion to floats", tool="NCO",
    oracle=nested("time", **OVERRIDE), choose="--tolerance",
)  # fmt: skip
def make_rounded_bounds(folder):
    lat = np.array([10.1, 20.2, 30.3])
    for step in range(4):
        one = lat.astype("f4").astype("f8") if step % 2 else lat
        made = field(step, lat=one)
        made["lat"].attrs["bounds"] = "lat_bnds"
        made["lat_bnds"] = (("lat", "bnds"), np.stack([one - 5.05, one + 5.05], 1))
        made.to_netcdf(folder / f"day{step}.nc")


@archive(
    "A curvilinear grid, whose 2-D latitudes and longitudes differ by rounding", tool="a regional model",
    oracle=nested("time", **OVERRIDE), choose="--tolerance",
)  # fmt: skip
def make_rounded_curvilinear(folder):
    y, x = np.mgrid[0:3, 0:4]
    for step in range(3):
        noise = 1e-6 * (step == 1)
        xr.Dataset(
            {"tas": (("time", "y", "x"), np.full((1, 3, 4), step, "f4"))},
            {"time": ("time", [float(step)], {"units": "days since 2000-01-01"}),
             "lat": (("y", "x"), 50 + y * 0.5 + x * 0.01 + noise),
             "lon": (("y", "x"), 5 + x * 0.5 - y * 0.02 - noise)},
        ).to_netcdf(folder / f"day{step}.nc")  # fmt: skip


@archive(
    "Latitudes in single precision in some files, with their bounds", tool="CDO, xarray",
    oracle=nested("time", **OVERRIDE), choose="--tolerance",
)  # fmt: skip
def make_coordinates_of_two_precisions(folder):
    lat = np.array([10.1, 20.2, 30.3])
    for step, kind in enumerate(("f4", "f8", "f8", "f4")):
        made = field(step, lat=lat.astype(kind))
        made["lat"].attrs["bounds"] = "lat_bnds"
        made["lat_bnds"] = (("lat", "bnds"), np.stack([lat - 5.05, lat + 5.05], 1).astype(kind))
        made.to_netcdf(folder / f"day{step}.nc")


@archive(
    "A curvilinear grid in single precision in some files", tool="a regional model",
    oracle=nested("time", **OVERRIDE), choose="--tolerance",
)  # fmt: skip
def make_curvilinear_of_two_precisions(folder):
    y, x = np.mgrid[0:3, 0:4]
    for step, kind in enumerate(("f8", "f4", "f8")):
        xr.Dataset(
            {"tas": (("time", "y", "x"), np.full((1, 3, 4), step, "f4"))},
            {"time": ("time", [float(step)], {"units": "days since 2000-01-01"}),
             "lat": (("y", "x"), (50 + y * 0.3 + x * 0.01).astype(kind)),
             "lon": (("y", "x"), (5 + x * 0.7 - y * 0.02).astype(kind))},
        ).to_netcdf(folder / f"day{step}.nc",
                    encoding={"lat": {"chunksizes": (2, 2), "zlib": step == 1}})  # fmt: skip


@archive(
    "Tiles of one map, the first row in the north", tool="a map service",
    oracle=lambda files: by_coords()(files).sortby("lat", ascending=False),
)  # fmt: skip
def make_tiles_with_falling_latitudes(folder):
    lat, lon = np.arange(60.0, 54, -1), np.arange(6.0)
    for row in range(2):
        for column in range(3):
            own = lat[3 * row : 3 * row + 3], lon[2 * column : 2 * column + 2]
            xr.Dataset(
                {"z": (("lat", "lon"), np.add.outer(own[0] * 100, own[1]).astype("f4"))},
                {"lat": own[0], "lon": own[1]},
            ).to_netcdf(folder / f"tile_{row}_{column}.nc")


@archive("Tiles of a map, each day", tool="a map service", oracle=by_coords())
def make_tiles_of_days(folder):
    for step in range(2):
        for tile in range(2):
            made = field(step, lat=np.arange(2.0) + 2 * tile)
            (made + tile).assign_attrs(source="tiles").to_netcdf(folder / f"t{tile}_{step}.nc")


@archive("Variables in files of their own, each year", tool="CMIP6, ESGF", oracle=by_coords())
def make_variables_and_years(folder):
    for step in range(2):
        for name in ("pr", "tas"):
            field(step, name=name).to_netcdf(folder / f"{step}_{name}.nc")


@archive(
    "Variables in files of their own, the first and the last of one year", tool="a model",
    oracle=by_coords(),
)  # fmt: skip
def make_first_and_last_of_one_step(folder):
    for name, variable, step in (("a", "pr", 0), ("b", "pr", 1), ("c", "tas", 1), ("d", "tas", 0)):
        field(step, name=variable).to_netcdf(folder / f"{name}.nc")


@archive(
    "WRF's files, whose names have no suffix, in a directory", tool="WRF",
    oracle=nested("Time"), files="", choose="--concat-dim Time",
)  # fmt: skip
def make_wrf_without_suffix(folder):
    for hour in range(3):
        with netCDF4.Dataset(folder / f"wrfout_d01_2024-01-01_0{hour}:00:00", "w") as file:
            for name, size in (("Time", None), ("south_north", 2), ("west_east", 3)):
                file.createDimension(name, size)
            file.createVariable("T2", "f4", ("Time", "south_north", "west_east"))[:] = np.full(
                (1, 2, 3), hour
            )
            made = file.createVariable("XTIME", "f4", ("Time",))
            made.units = "minutes since 2024-01-01 00:00:00"
            made[:] = [60 * hour]


@archive(
    "The last file is cut short", tool="a transfer that stopped",
    oracle=lambda files: by_coords()(files[:-1]), options=("--max-bad-files", "1"),
)  # fmt: skip
def make_bad_last_file(folder):
    for step in range(4):
        field(step).to_netcdf(folder / f"day{step}.nc")
    whole = (folder / "day3.nc").read_bytes()
    (folder / "day3.nc").write_bytes(whole[: len(whole) // 2])


@archive(
    "Files of two grids of one time", tool="a model with nests", oracle=by_coords(),
    refused="grid",
)  # fmt: skip
def make_two_grids(folder):
    for at, count in enumerate((5, 6)):
        lat = (np.arange(count) + 0.5) / count
        field(0, lat=lat).to_netcdf(folder / f"d0{at + 1}.nc")


@archive(
    "Staggered grids: u and v half a cell apart, under one name", tool="a model on an Arakawa C grid",
    oracle=by_coords(), refused="grid",
)  # fmt: skip
def make_staggered_grids(folder):
    for step in range(2):
        for name, shift in (("u", 0.0), ("v", 5.0)):
            made = field(step, lat=np.array([10.0, 20, 30]) + shift, name=name)
            made.to_netcdf(folder / f"{name}_{step}.nc")


@archive(
    "Longitudes from 0 to 360 in tiles, the last of which wraps around", tool="a map service",
    oracle=by_coords(),
)  # fmt: skip
def make_tiles_around_the_globe(folder):
    for tile in range(4):
        field(0, lon=np.arange(3.0) * 30 + 90 * tile).to_netcdf(folder / f"t{tile}.nc")
