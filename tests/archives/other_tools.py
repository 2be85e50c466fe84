"""What tools make of archives: CDO, NCO, nccopy, GDAL, h5repack, iris, Dask, h5netcdf, netCDF4.

The outputs of programs that the tests do not install lie in ``fixtures/archives/files.zip``; the
commands stand in ``make.sh`` beside it.
"""

import warnings
import zipfile
from pathlib import Path

import dask
import netCDF4
import numpy as np
import xarray as xr

from archives.archive import archive, by_coords
from archives.climate_models import monthly
from archives.writing import LAT, LON, numbers, put

ZIP = Path(__file__).parents[2] / "fixtures" / "archives" / "files.zip"


def unpacked(name, folder):
    """Write the files of a fixture into a folder."""
    with zipfile.ZipFile(ZIP) as held:
        for each in held.namelist():
            if each.startswith(f"{name}/"):
                (folder / Path(each).name).write_bytes(held.read(each))


@archive("Years of one file, split", tool="cdo -f nc4c -z zip_1 splityear", oracle=by_coords())
def make_cdo_splityear(folder):
    unpacked("cdo_splityear", folder)


@archive("A merged file and later data, each of other months", tool="cdo mergetime, shifttime", oracle=by_coords())  # fmt: skip
def make_cdo_mergetime(folder):
    unpacked("cdo_mergetime", folder)


@archive(
    "Files packed by themselves, each with its own scale",
    tool="cdo -b I16 pack",
    oracle=by_coords(),
    choose="--on-mismatch eras",
    opened={"eras": "concat"},
    attrs=False,
)
def make_cdo_packed(folder):
    unpacked("cdo_packed", folder)


@archive("A file for each variable, of the same times", tool="cdo selname", oracle=by_coords(),
         choose="--concat-dim time")  # fmt: skip
def make_cdo_selname(folder):
    unpacked("cdo_selname", folder)


@archive(
    "Relative time axes: each file counts from its first month",
    tool="cdo -r settaxis",
    oracle=by_coords(),
)
def make_cdo_relative_days(folder):
    unpacked("cdo_relative_1day", folder)


@archive(
    "Relative time axes in months, which have no fixed length",
    tool="cdo -r settaxis,...,1mon",
    oracle=by_coords(),
    refused="months since",
)
def make_cdo_relative_months(folder):
    unpacked("cdo_relative_1mon", folder)


@archive("Concatenated records, NetCDF-4 classic", tool="ncrcat -7, ncap2", oracle=by_coords())
def make_nco_ncrcat(folder):
    unpacked("nco_ncrcat", folder)


@archive(
    "A file of fixed length, then one whose time is the record dimension",
    tool="ncks --fix_rec_dmn, --mk_rec_dmn",
    oracle=by_coords(),
)
def make_nco_record_dimension(folder):
    unpacked("nco_record", folder)


@archive(
    "Files packed by themselves, NetCDF-3",
    tool="ncpdq -P all_new",
    oracle=by_coords(),
    choose="--on-mismatch eras",
    opened={"eras": "concat"},
    attrs=False,
)
def make_nco_packed(folder):
    unpacked("nco_packed", folder)


@archive(
    "Time as the last dimension of every variable",
    tool="ncpdq -a lat,lon,time",
    oracle=by_coords(),
)
def make_nco_permuted(folder):
    unpacked("nco_permuted", folder)


@archive(
    "NetCDF-4, compressed, chunks of one step", tool="ncks -4 -L 1 --cnk_dmn", oracle=by_coords()
)
def make_nco_deflated(folder):
    unpacked("nco_deflated", folder)


@archive("Means of years, one step a file", tool="ncra", oracle=by_coords())
def make_nco_means(folder):
    unpacked("nco_ncra", folder)


@archive("Classic NetCDF-3", tool="nccopy -k nc3", oracle=by_coords())
def make_nccopy_classic(folder):
    unpacked("nccopy_nc3", folder)


@archive("CDF-5", tool="nccopy -k cdf5", oracle=by_coords())
def make_nccopy_cdf5(folder):
    unpacked("nccopy_cdf5", folder)


@archive("NetCDF-4 classic model", tool="nccopy -k nc7", oracle=by_coords())
def make_nccopy_netcdf4_classic(folder):
    unpacked("nccopy_nc7", folder)


@archive("64-bit offsets", tool="nccopy -k nc6", oracle=by_coords())
def make_nccopy_64bit_offset(folder):
    unpacked("nccopy_nc6", folder)


@archive(
    "Half of an archive converted to compressed NetCDF-4, half left as NetCDF-3",
    tool="nccopy -k nc4 -d 1 -s",
    oracle=by_coords(),
    choose="--on-mismatch native",
)
def make_nccopy_half(folder):
    unpacked("nccopy_mixed", folder)


@archive(
    "One file compressed again, the others as they were",
    tool="h5repack -f GZIP=5",
    oracle=by_coords(),
    choose="--on-mismatch native",
)
def make_h5repack_half(folder):
    unpacked("h5repack", folder)


def rasters(files):
    """Stack rasters along the dates in their names."""
    days = np.array(["2020-01-01", "2020-01-02"], "M8[us]")
    opened = [xr.open_dataset(each).load() for each in files]
    return xr.concat(opened, xr.DataArray(days, dims="time", name="time"), data_vars=["tas"], coords="minimal",
                     compat="equals", join="exact", combine_attrs="override")  # fmt: skip


@archive("Rasters without time, with crs, dates in the names", tool="gdal_translate -of netCDF", oracle=rasters,
         choose="time", attrs=False)  # fmt: skip
def make_gdal_rasters(folder):
    unpacked("gdal", folder)


@archive("Cubes with scalar coordinates, years by themselves", tool="iris.save", oracle=by_coords())
def make_iris_saved(folder):
    unpacked("iris", folder)


@archive("NetCDF-3 of to_netcdf(engine='scipy')", tool="xarray with scipy", oracle=by_coords())
def make_xarray_scipy(folder):
    unpacked("scipy", folder)


@archive("to_netcdf with its defaults: each file counts hours from its first step", tool="xarray", oracle=by_coords())  # fmt: skip
def make_xarray_defaults(folder):
    for day in range(3):
        times = xr.date_range(f"2020-01-0{day + 1}", periods=4, freq="6h")
        xr.Dataset(
            {"t": (("time", "x"), numbers(4, 3, begin=day * 10, kind="f8"))}, {"time": times}
        ).to_netcdf(folder / f"day_{day}.nc")


@archive("to_netcdf(engine='h5netcdf')", tool="xarray with h5netcdf", oracle=by_coords())
def make_xarray_h5netcdf(folder):
    for year in range(2):
        monthly(2000 + year, 3).to_netcdf(folder / f"{year}.nc", engine="h5netcdf", unlimited_dims="time",
            encoding={"tas": {"zlib": True}, "time": {"units": "days since 1850-01-01"}})  # fmt: skip


@archive(
    "to_netcdf(engine='h5netcdf', invalid_netcdf=True): complex values and lzf",
    tool="xarray with h5netcdf",
    oracle=by_coords(engine="h5netcdf"),
)
def make_h5netcdf_invalid(folder):
    for part in range(2):
        values = (numbers(2, 3, begin=part * 10) + 1j).astype("c8")
        made = xr.Dataset(
            {"z": (("time", "x"), values), "ok": (("time", "x"), values.real > 1)},
            {"time": ("time", [2 * part, 2 * part + 1])},
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # "you are writing invalid netcdf features"
            made.to_netcdf(
                folder / f"{part}.nc",
                engine="h5netcdf",
                invalid_netcdf=True,
                encoding={"z": {"compression": "lzf"}},
            )


@archive("save_mfdataset of a Dask array", tool="xarray with Dask", oracle=by_coords())
def make_dask_saved(folder):
    times = xr.date_range("2020-01-01", periods=6)
    made = xr.Dataset(
        {"t": (("time", "y", "x"), numbers(6, 4, 4))}, {"time": times, "y": range(4)}
    ).chunk(time=2, y=2)
    parts = [made.isel(time=slice(at, at + 2)) for at in (0, 2, 4)]
    with dask.config.set(scheduler="synchronous"):
        xr.save_mfdataset(parts, [folder / f"part_{each}.nc" for each in range(3)])


@archive("Tiles of save_mfdataset along two dimensions", tool="xarray with Dask", oracle=by_coords())  # fmt: skip
def make_tiles_of_a_grid(folder):
    made = xr.Dataset({"t": (("y", "x"), numbers(4, 6))}, {"y": range(4), "x": np.arange(6) * 0.5})
    for y in (0, 2):
        for x in (0, 3):
            made.isel(y=slice(y, y + 2), x=slice(x, x + 3)).to_netcdf(folder / f"tile_{y}_{x}.nc")


@archive("Attributes that are lists of texts, an enumeration for flags", tool="netCDF4", oracle=by_coords())  # fmt: skip
def make_netcdf4_types(folder):
    for part in range(2):
        with netCDF4.Dataset(folder / f"{part}.nc", "w") as file:
            file.setncattr_string("references", ["one", "two"])
            kind = file.createEnumType("u1", "cloud_t", {"clear": 0, "cloudy": 1, "missing": 255})
            put(file, "time", ("time",), np.array([part], "i4"), units="days since 2020-01-01")
            flags = file.createVariable("cloud", kind, ("time",), fill_value=255)
            flags[:] = np.array([part], "u1")
            names = file.createVariable("source", str, ("time",))
            names[:] = np.array([f"buoy {part} ä"], object)
            put(file, "t", ("time",), np.array([part * 1.5])).setncattr_string(
                "comment", ["a", "b"]
            )


@archive(
    "A compound type",
    tool="netCDF4",
    oracle=by_coords(),
)
def make_compound(folder):
    for part in range(2):
        with netCDF4.Dataset(folder / f"{part}.nc", "w") as file:
            kind = file.createCompoundType(np.dtype([("u", "f4"), ("v", "f4")]), "wind_t")
            put(file, "time", ("time",), np.array([part], "i4"), units="days since 2020-01-01")
            wind = file.createVariable("wind", kind, ("time",))
            wind[:] = np.array([(part, part + 1)], kind.dtype)


@archive(
    "Variables in a group, their coordinates above it",
    tool="netCDF4",
    oracle=by_coords(group="forecast", combine="nested", concat_dim="time"),
    opened={"group": "forecast"},
    attrs=False,
)
def make_netcdf4_groups(folder):
    for part in range(2):
        with netCDF4.Dataset(folder / f"{part}.nc", "w") as file:
            file.createDimension("time", None)
            put(file, "time", ("time",), np.array([2.0 * part, 2 * part + 1]), units="days since 2020-01-01")  # fmt: skip
            put(file, "lat", ("lat",), LAT)
            group = file.createGroup("forecast")
            made = group.createVariable("t", "f4", ("time", "lat"))
            made[:] = numbers(2, 3, begin=part * 10)


@archive(
    "Trajectories of a model of particles, each file with other particles",
    tool="netCDF4",
    oracle=by_coords(),
)
def make_trajectories(folder):
    for part in range(2):
        with netCDF4.Dataset(folder / f"particles_{part}.nc", "w") as file:
            file.featureType = "trajectory"
            put(file, "trajectory", ("trajectory",), np.arange(3, dtype="i8") + 3 * part, cf_role="trajectory_id")  # fmt: skip
            put(file, "obs", ("obs",), np.arange(4, dtype="i4"))
            put(file, "time", ("trajectory", "obs"), numbers(3, 4, begin=part, kind="f8"), fill=np.nan,
                units="seconds since 2020-01-01")  # fmt: skip
            put(file, "z", ("trajectory", "obs"), numbers(3, 4, begin=part * 100), fill=np.float32(np.nan),
                coordinates="time")  # fmt: skip


@archive(
    "Buoys: hours of each month, positions repeated in each file",
    tool="a script",
    oracle=by_coords(),
)
def make_buoys(folder):
    begin = 0
    for month, steps in enumerate((4, 3, 4)):
        path = folder / f"buoy_2020{month + 1:02d}.nc"
        with netCDF4.Dataset(path, "w", format="NETCDF3_CLASSIC") as file:
            put(file, "time", ("time",), np.arange(begin, begin + steps, dtype="i4"), units="hours since 2020-01-01")  # fmt: skip
            put(
                file,
                "station_name",
                ("station", "strlen"),
                np.array([list("north"), list("south")], "S1"),
                cf_role="timeseries_id",
            )
            put(file, "lat", ("station",), np.array([50.0, 40]), units="degrees_north")
            put(file, "wave", ("time", "station"), numbers(steps, 2, begin=month * 10), fill=np.float32(999),
                coordinates="lat station_name")  # fmt: skip
        begin += steps


@archive("Forecasts: init times in files, leads along a dimension", tool="cfgrib", oracle=by_coords())  # fmt: skip
def make_forecasts(folder):
    for run in range(2):
        xr.Dataset(
            {"t2m": (("time", "step", "x"), numbers(1, 3, 4, begin=run * 100))},
            {
                "time": xr.date_range(f"2020-01-0{run + 1}", periods=1),
                "step": np.array([0, 6, 12], "m8[h]").astype("m8[ns]"),
                "x": LON,
            },
        ).to_netcdf(folder / f"fc_{run}.nc")
