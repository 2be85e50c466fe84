"""Observations from space and by radar, as their producers publish them."""

import h5py
import netCDF4
import numpy as np
import xarray as xr

from archives.archive import archive, by_coords, nested
from archives.writing import LAT, LON, numbers, put


@archive(
    "OSTIA: a file a day, packed, with mask and uncertainty, seconds since 1981",
    tool="Met Office (GHRSST L4)",
    oracle=by_coords(),
)
def make_ostia_days(folder):
    for day in range(3):
        with netCDF4.Dataset(
            folder / f"2020010{day + 1}120000-UKMO-L4_GHRSST-SSTfnd-OSTIA.nc", "w"
        ) as file:
            file.setncatts(
                {
                    "uuid": f"0000-{day}",
                    "start_time": f"2020010{day + 1}T000000Z",
                    "gds_version_id": "2.0",
                }
            )
            put(file, "time", ("time",), np.array([1230768000 + 86400 * day], "i4"), units="seconds since 1981-01-01 00:00:00",
                axis="T")  # fmt: skip
            for name, values in (("lat", LAT), ("lon", LON)):
                put(
                    file,
                    name,
                    (name,),
                    values.astype("f4"),
                    valid_min=np.float32(-180),
                    axis="YX"[name == "lon"],
                )
            dims, how = ("time", "lat", "lon"), {"zlib": True, "complevel": 3}
            packed = np.arange(12, dtype="i2").reshape(1, 3, 4) * 10 + day
            packed[0, 0, 0] = -32768
            put(file, "analysed_sst", dims, packed, fill=np.int16(-32768), scale_factor=0.01, add_offset=273.15,
                units="kelvin", how=how)  # fmt: skip
            put(file, "mask", dims, np.array([[[1, 2, 5, 9]] * 3], "i1"), flag_masks=np.array([1, 2, 4, 8, 16], "i1"),
                flag_meanings="water land optional_lake_surface sea_ice optional_river_surface", how=how)  # fmt: skip
            put(file, "sea_ice_fraction", dims, packed.astype("i1"), fill=np.int8(-128), scale_factor=0.01, add_offset=0.0, how=how)  # fmt: skip


@archive(
    "IMERG: HDF5 with the grid in a group, longitude before latitude",
    tool="PPS (HDF5)",
    oracle=by_coords(group="Grid", engine="h5netcdf"),
    options=("--source-group", "Grid"),
    attrs=False,
)
def make_imerg(folder):
    for step in range(3):
        path = folder / f"3B-HHR.MS.MRG.3IMERG.20200101-S00{step * 30:02d}00.V06B.HDF5"
        with h5py.File(path, "w") as file:
            file.attrs["FileHeader"] = np.bytes_(f"FileName={path.name};\nEmptyGranule=NOT_EMPTY;\n")  # fmt: skip
            root = file.create_group("Grid")
            root.attrs["GridHeader"] = np.bytes_("BinMethod=ARITHMETIC_MEAN;\n")
            made = {
                "time": np.array([1577836800 + 1800 * step], "i4"),
                "lon": LON.astype("f4"),
                "lat": LAT.astype("f4"),
            }
            for name, values in made.items():
                root.create_dataset(name, data=values, chunks=values.shape, compression="gzip", maxshape=(None,) if name == "time" else None)  # fmt: skip
                root[name].make_scale(name)
            root["time"].attrs["units"] = np.bytes_("seconds since 1970-01-01 00:00:00 UTC")
            root["time"].attrs["calendar"] = np.bytes_("standard")
            for name, values in (
                ("precipitationCal", numbers(1, 4, 3, begin=step * 10)),
                ("HQprecipSource", np.full((1, 4, 3), step, "i2")),
            ):
                data = root.create_dataset(
                    name, data=values, chunks=(1, 4, 3), compression="gzip", shuffle=True
                )
                fill = values.dtype.type(-9999)
                data.attrs["_FillValue"] = data.attrs["CodeMissingValue"] = fill
                data.attrs["DimensionNames"] = np.bytes_("time,lon,lat")
                for axis, dim in enumerate(made):
                    data.dims[axis].attach_scale(root[dim])


@archive(
    "SEVIRI: a scan each quarter of an hour on x and y in radians, times of lines",
    tool="a Level 2 processor",
    oracle=by_coords(),
)
def make_seviri(folder):
    for scan in range(3):
        with netCDF4.Dataset(folder / f"MSG_2020010100{scan * 15:02d}.nc", "w") as file:
            put(file, "time", ("time",), np.array([900.0 * scan]), units="seconds since 2020-01-01 00:00:00")  # fmt: skip
            for name in ("y", "x"):
                put(
                    file,
                    name,
                    (name,),
                    np.array([300, 200, 100], "i2"),
                    scale_factor=5.6e-5,
                    add_offset=-0.15,
                    units="radian",
                )
            put(file, "geostationary", (), np.int32(0), grid_mapping_name="geostationary", sweep_angle_axis="y",
                perspective_point_height=35785831.0)  # fmt: skip
            put(
                file,
                "ctth",
                ("time", "y", "x"),
                numbers(1, 3, 3, begin=scan * 10).astype("u1"),
                fill=np.uint8(255),
                grid_mapping="geostationary",
                how={"zlib": True},
            )
            put(
                file,
                "quality",
                ("time", "y", "x"),
                np.full((1, 3, 3), scan, "u1"),
                flag_values=np.arange(3, dtype="u1"),
                flag_meanings="a b c",
            )


@archive("AVHRR Pathfinder: packed days, two orbits each, no time in the grid", tool="NCEI", oracle=by_coords())  # fmt: skip
def make_avhrr(folder):
    for day in range(2):
        with netCDF4.Dataset(
            folder / f"2010010{day + 1}-NODC-L3C_GHRSST-AVHRR_Pathfinder.nc", "w"
        ) as file:
            put(file, "time", ("time",), np.array([915148800 + 86400 * day], "i4"), units="seconds since 1981-01-01 00:00:00")  # fmt: skip
            for name, values in (("lat", LAT[::-1]), ("lon", LON)):
                put(file, name, (name,), values.astype("f4"))
            put(file, "sst_dtime", ("time", "lat", "lon"), np.arange(12, dtype="i2").reshape(1, 3, 4), units="seconds",
                fill=np.int16(-32768), scale_factor=120.0, add_offset=0.0)  # fmt: skip
            put(
                file,
                "wind_speed",
                ("time", "lat", "lon"),
                np.arange(12, dtype="u1").reshape(1, 3, 4) + day,
                fill=np.uint8(255),
                scale_factor=0.2,
                add_offset=25.4,
            )


def dated(files):
    """Stack files without time by the dates in their names."""
    days = [np.datetime64(f"2020-01-0{number + 1}", "us") for number in range(len(files))]
    opened = [xr.open_dataset(each).load() for each in files]
    return xr.concat(
        opened,
        xr.DataArray(days, dims="time", name="time"),
        data_vars="all",
        coords="minimal",
        compat="equals",
        join="exact",
        combine_attrs="override",
    )


@archive("Ocean color Level 3: a file a day, the date in name and attributes alone", tool="OBPG l3mapgen", oracle=dated,
         choose="time", attrs=False)  # fmt: skip
def make_ocean_color(folder):
    for day in range(3):
        with netCDF4.Dataset(
            folder / f"AQUA_MODIS.2020010{day + 1}.L3m.DAY.CHL.chlor_a.9km.nc", "w"
        ) as file:
            file.setncatts({"time_coverage_start": f"2020-01-0{day + 1}T00:00:00.000Z", "processing_level": "L3 Mapped"})  # fmt: skip
            for name, values in (("lat", LAT[::-1]), ("lon", LON)):
                put(file, name, (name,), values.astype("f4"), fill=np.float32(-999), units="degrees")  # fmt: skip
            put(file, "chlor_a", ("lat", "lon"), numbers(3, 4, begin=day * 10), fill=np.float32(-32767), units="mg m^-3",
                how={"zlib": True, "chunksizes": (3, 4)})  # fmt: skip
            put(file, "palette", ("rgb", "eightbitcolor"), np.arange(12, dtype="u1").reshape(3, 4))


def reserved(files):
    """Combine, where the first file lacks a variable; xarray fills what it lacks."""
    return by_coords(combine="nested", concat_dim="time")(files)


@archive(
    "MUR: chunks that the grid does not fill, seconds since 1981 as int64",
    tool="JPL",
    oracle=reserved,
    choose="--missing reserve",
)
def make_mur(folder):
    for day in range(3):
        with netCDF4.Dataset(folder / f"2020010{day + 1}090000-JPL-L4_GHRSST-MUR.nc", "w") as file:
            file.createDimension("time", None)
            put(file, "time", ("time",), np.array([1230800400 + 86400 * day], "i8"), units="seconds since 1981-01-01 00:00:00 UTC",
                comment="Nominal time of analyzed fields")  # fmt: skip
            for name, values in (("lat", LAT), ("lon", LON)):
                put(file, name, (name,), values.astype("f4"))
            how = {"zlib": True, "complevel": 7, "shuffle": True, "chunksizes": (1, 2, 3)}
            put(
                file,
                "analysed_sst",
                ("time", "lat", "lon"),
                (np.arange(12).reshape(1, 3, 4) + day).astype("i2"),
                fill=np.int16(-32768),
                add_offset=298.15,
                scale_factor=0.001,
                how=how,
            )
            if day:  # added to later files
                put(
                    file,
                    "dt_1km_data",
                    ("time", "lat", "lon"),
                    np.full((1, 3, 4), day, "i1"),
                    fill=np.int8(-128),
                    how=how,
                )


@archive(
    "Swaths: granules of one day whose lines differ in number, no coordinate along them",
    tool="a Level 2 processor",
    oracle=nested("line"),
    choose="--concat-dim line",
)
def make_swaths(folder):
    begin = 0
    for number, lines in enumerate((3, 4, 2)):
        with netCDF4.Dataset(folder / f"S5P_L2_{number:05d}.nc", "w") as file:
            file.orbit = np.int32(1000 + number)
            for name in ("latitude", "longitude"):
                put(
                    file,
                    name,
                    ("line", "pixel"),
                    numbers(lines, 3, begin=begin + len(name)),
                    units="degrees",
                )
            put(
                file,
                "no2",
                ("line", "pixel"),
                numbers(lines, 3, begin=begin * 10),
                fill=np.float32(9.96921e36),
                coordinates="longitude latitude",
                how={"zlib": True},
            )
        begin += lines


@archive(
    "CfRadial: volumes of a radar, rays in time, the date in the units of each file",
    tool="Radx",
    oracle=by_coords(data_vars=["time_coverage_start"]),
    choose="--data-vars",
)
def make_cfradial(folder):
    for volume in range(3):
        rays = 4
        with netCDF4.Dataset(folder / f"cfrad.20200101_00{volume}000.nc", "w") as file:
            file.setncatts({"Conventions": "CF/Radial instrument_parameters", "scan_id": np.int32(volume)})  # fmt: skip
            file.createDimension("time", None)
            put(
                file,
                "time",
                ("time",),
                np.arange(rays) * 1.5,
                units=f"seconds since 2020-01-01T00:{volume}0:00Z",
                calendar="gregorian",
            )
            put(
                file,
                "range",
                ("range",),
                np.array([125.0, 375, 625], "f4"),
                spacing_is_constant="true",
            )
            put(
                file,
                "time_coverage_start",
                ("string_length",),
                np.array(list(f"2020-01-01T00:{volume}0:00Z"), "S1"),
            )
            put(file, "azimuth", ("time",), np.linspace(0, 270, rays).astype("f4"))
            put(file, "latitude", (), 50.0, units="degrees_north")
            put(
                file,
                "DBZ",
                ("time", "range"),
                (np.arange(rays * 3) + volume).reshape(rays, 3).astype("i2"),
                fill=np.int16(-32768),
                scale_factor=np.float32(0.01),
                add_offset=np.float32(0),
                coordinates="azimuth range",
            )


@archive(
    "ESA CCI: files of a week, of which one week is missing", tool="ESA CCI", oracle=by_coords()
)
def make_cci_weeks(folder):
    for week in (0, 1, 3):
        with netCDF4.Dataset(
            folder / f"ESACCI-OC-L3S-{week}-fv5.0.nc", "w", format="NETCDF4_CLASSIC"
        ) as file:
            put(
                file,
                "time",
                ("time",),
                np.array([18262 + 7 * week], "i4"),
                units="days since 1970-01-01 00:00:00",
            )
            for name, values in (("lat", LAT), ("lon", LON)):
                put(file, name, (name,), values)
            put(
                file,
                "crs",
                (),
                np.int32(-2147483647),
                grid_mapping_name="latitude_longitude",
                spatial_ref="GEOGCS[...]",
            )
            put(
                file,
                "chlor_a",
                ("time", "lat", "lon"),
                numbers(1, 3, 4, begin=week * 10),
                fill=np.float32(9.96921e36),
                grid_mapping="crs",
                how={"zlib": True, "chunksizes": (1, 2, 2)},
            )
