"""Reanalyses and analyses on grids, as their data centers publish them."""

import netCDF4
import numpy as np
import xarray as xr

from archives.archive import archive, by_coords
from archives.writing import LAT, LON, numbers, put


def grid(file, **names):
    """Write latitudes and longitudes, by other names where given."""
    for dim, values in (("lat", LAT), ("lon", LON)):
        name = names.get(dim, dim)
        put(file, name, (name,), values.astype("f4"), units=f"degrees_{'north' if dim == 'lat' else 'east'}")  # fmt: skip


@archive("ERA5 of the old CDS: years packed anew, each with its own scale", tool="ecCodes grib_to_netcdf",
         oracle=by_coords(), choose="--on-mismatch eras", opened={"eras": "concat"}, attrs=False)  # fmt: skip
def make_era5_old_packing(folder):
    for year in range(2):
        with netCDF4.Dataset(
            folder / f"era5_t2m_{1979 + year}.nc", "w", format="NETCDF3_64BIT_OFFSET"
        ) as file:
            file.Conventions = "CF-1.6"
            put(file, "longitude", ("longitude",), LON.astype("f4"), units="degrees_east")
            put(file, "latitude", ("latitude",), LAT[::-1].astype("f4"), units="degrees_north")
            put(file, "time", ("time",), (np.arange(3) + 692496 + 8760 * year).astype("i4"),
                units="hours since 1900-01-01 00:00:00.0", calendar="gregorian")  # fmt: skip
            put(file, "t2m", ("time", "latitude", "longitude"), np.arange(36, dtype="i2").reshape(3, 3, 4) - 7,
                fill=np.int16(-32767), missing_value=np.int16(-32767), scale_factor=0.0017 + 0.0001 * year,
                add_offset=259.3 + year, units="K")  # fmt: skip


def era5_new(path, begin, expver="0001"):
    """Write a file as the CDS does since 2024."""
    with netCDF4.Dataset(path, "w") as file:
        file.setncatts({"GRIB_centre": "ecmf", "history": f"made {begin}"})
        put(file, "number", (), np.int64(0), units="1", standard_name="realization")
        put(file, "valid_time", ("valid_time",), 1672531200 + 3600 * (np.arange(4) + begin),
            units="seconds since 1970-01-01", calendar="proleptic_gregorian", standard_name="time")  # fmt: skip
        put(file, "latitude", ("latitude",), LAT[::-1], fill=np.nan, stored_direction="decreasing")
        put(file, "longitude", ("longitude",), LON, fill=np.nan)
        text = file.createVariable("expver", str, ("valid_time",))
        text[:] = np.array([expver] * 4, object)
        put(file, "t2m", ("valid_time", "latitude", "longitude"), numbers(4, 3, 4, begin=begin),
            fill=np.float32(np.nan), coordinates="number valid_time latitude longitude expver",
            how={"zlib": True, "complevel": 1, "shuffle": True, "chunksizes": (2, 3, 4)},
            GRIB_missingValue=np.float64(3.4028234663852886e38), units="K")  # fmt: skip


@archive(
    "ERA5 of the new CDS: valid_time, number, expver as text", tool="cfgrib", oracle=by_coords()
)
def make_era5_new(folder):
    for day in range(3):
        era5_new(folder / f"data_stream-oper_{day}.nc", 4 * day)


@archive("ERA5 of the new CDS: final and preliminary data (ERA5T) in one archive", tool="cfgrib", oracle=by_coords())  # fmt: skip
def make_era5_with_preliminary(folder):
    for day in range(3):
        era5_new(folder / f"data_{day}.nc", 4 * day, expver="0001" if day < 2 else "0005")


@archive("ERA5 of the old CDS: the last file has a dimension expver that others lack", tool="ecCodes grib_to_netcdf",
         oracle=by_coords(), refused="expver|dimension|eras")  # fmt: skip
def make_era5_expver_dimension(folder):
    for month in range(2):
        with netCDF4.Dataset(
            folder / f"era5_{month}.nc", "w", format="NETCDF3_64BIT_OFFSET"
        ) as file:
            grid(file, lat="latitude", lon="longitude")
            put(file, "time", ("time",), (np.arange(2) + 1000000 + 2 * month).astype("i4"),
                units="hours since 1900-01-01 00:00:00.0", calendar="gregorian")  # fmt: skip
            dims, shape = ("time", "latitude", "longitude"), (2, 3, 4)
            if month:
                put(file, "expver", ("expver",), np.array([1, 5], "i4"))
                dims, shape = ("time", "expver", "latitude", "longitude"), (2, 2, 3, 4)
            put(file, "sp", dims, numbers(*shape, begin=month), units="Pa")


@archive(
    "MERRA-2: hours of a day in minutes since that day, one file a day",
    tool="GEOS",
    oracle=by_coords(),
)
def make_merra2(folder):
    for day in range(3):
        with netCDF4.Dataset(
            folder / f"MERRA2_400.tavg1_2d_slv_Nx.2020010{day + 1}.nc4", "w"
        ) as file:
            file.setncatts(
                {
                    "RangeBeginningDate": f"2020-01-0{day + 1}",
                    "Filename": f"MERRA2_400.2020010{day + 1}.nc4",
                }
            )
            file.createDimension("time", None)
            put(file, "time", ("time",), np.arange(30, 240, 60, dtype="i4"), units=f"minutes since 2020-01-0{day + 1} 00:30:00",
                begin_date=np.int32(20200101 + day), begin_time=np.int32(3000), time_increment=np.int32(10000))  # fmt: skip
            grid(file)
            put(file, "T2M", ("time", "lat", "lon"), numbers(4, 3, 4, begin=day * 50), fill=np.float32(1e15),
                missing_value=np.float32(1e15), fmissing_value=np.float32(1e15), vmax=np.float32(1e15),
                how={"zlib": True, "complevel": 1, "chunksizes": (1, 3, 4)})  # fmt: skip


@archive(
    "NCEP/NCAR: leap years among years, hours since 1800, actual_range of each",
    tool="NOAA PSL",
    oracle=by_coords(),
)
def make_ncep_years(folder):
    begin = 1875912.0
    for year, steps in ((2014, 5), (2015, 5), (2016, 6), (2017, 5)):
        with netCDF4.Dataset(folder / f"air.{year}.nc", "w", format="NETCDF4_CLASSIC") as file:
            file.createDimension("time", None)
            hours = begin + 24 * np.arange(steps)
            begin += 24.0 * steps
            put(file, "time", ("time",), hours, units="hours since 1800-01-01 00:00:0.0", delta_t="0000-00-01 00:00:00",
                actual_range=hours[[0, -1]], avg_period="0000-00-01 00:00:00")  # fmt: skip
            put(file, "level", ("level",), np.array([1000, 850], "f4"), units="millibar", GRIB_id=np.int16(100))  # fmt: skip
            grid(file)
            values = numbers(steps, 2, 3, 4, begin=year)
            put(file, "air", ("time", "level", "lat", "lon"), values, fill=np.float32(-9.96921e36),
                missing_value=np.float32(-9.96921e36), actual_range=np.array([values.min(), values.max()]),
                how={"zlib": True, "complevel": 2, "chunksizes": (1, 2, 3, 4)})  # fmt: skip


@archive(
    "OISST: a file a day, packed, with a dimension of one height", tool="NCEI", oracle=by_coords()
)
def make_oisst_days(folder):
    for day in range(3):
        with netCDF4.Dataset(
            folder / f"oisst-avhrr-v02r01.2020010{day + 1}.nc", "w", format="NETCDF4_CLASSIC"
        ) as file:
            file.setncatts(
                {
                    "id": f"oisst-avhrr-v02r01.2020010{day + 1}.nc",
                    "time_coverage_start": f"2020-01-0{day + 1}",
                }
            )
            file.createDimension("time", None)
            put(file, "time", ("time",), np.array([15340.0 + day], "f4"), units="days since 1978-01-01 12:00:00")  # fmt: skip
            put(file, "zlev", ("zlev",), np.array([0], "f4"), units="meters", positive="down")
            grid(file)
            packed = np.arange(12, dtype="i2").reshape(1, 1, 3, 4) * 100 + day
            for name in ("sst", "anom"):
                put(file, name, ("time", "zlev", "lat", "lon"), packed, fill=np.int16(-999), add_offset=np.float32(0),
                    scale_factor=np.float32(0.01), valid_min=np.int16(-300), valid_max=np.int16(4500), how={"zlib": True})  # fmt: skip


@archive("Copernicus Marine: daily files, packed the same way, hours since 1950 as floats", tool="Copernicus Marine",
         oracle=by_coords())  # fmt: skip
def make_copernicus_marine(folder):
    for day in range(3):
        with netCDF4.Dataset(
            folder / f"mercatorglorys12v1_gl12_mean_1993010{day + 1}.nc", "w"
        ) as file:
            file.setncatts({"field_date": f"1993-01-0{day + 1}", "julday_field": np.int32(15706 + day)})  # fmt: skip
            put(file, "time", ("time",), np.array([376956.0 + 24 * day], "f4"), units="hours since 1950-01-01",
                calendar="gregorian")  # fmt: skip
            put(file, "depth", ("depth",), np.array([0.494, 1.541], "f4"), valid_min=np.float32(0.5))  # fmt: skip
            grid(file, lat="latitude", lon="longitude")
            put(file, "thetao", ("time", "depth", "latitude", "longitude"), np.arange(24, dtype="i2").reshape(1, 2, 3, 4) + day,
                fill=np.int16(-32767), scale_factor=0.000732444226741791, add_offset=21.0, cell_methods="area: mean",
                how={"zlib": True, "complevel": 1, "chunksizes": (1, 1, 3, 4)})  # fmt: skip


@archive(
    "CRU TS: decades of months, dates since 1900, no unlimited dimension",
    tool="a Fortran program",
    oracle=by_coords(),
)
def make_cru_decades(folder):
    for decade in range(2):
        with netCDF4.Dataset(
            folder / f"cru_ts4.{1901 + 10 * decade}.tmp.dat.nc", "w", format="NETCDF3_CLASSIC"
        ) as file:
            for dim in ("lon", "lat"):
                values = LON if dim == "lon" else LAT
                put(file, dim, (dim,), values.astype("f4"), long_name=dim)
            days = 380.0 + 30.4375 * (np.arange(6) + 6 * decade)
            put(file, "time", ("time",), days.round().astype("f4"), units="days since 1900-1-1", calendar="gregorian")  # fmt: skip
            put(file, "tmp", ("time", "lat", "lon"), numbers(6, 3, 4, begin=decade * 100), fill=np.float32(9.96921e36),
                missing_value=np.float32(9.96921e36), correlation_decay_distance=np.float32(1200))  # fmt: skip
            put(file, "stn", ("time", "lat", "lon"), np.arange(72, dtype="i4").reshape(6, 3, 4), fill=np.int32(-999999))  # fmt: skip


@archive("E-OBS: chunks of time that years do not fill", tool="CDO", oracle=by_coords())
def make_eobs_periods(folder):
    begin = 0
    for number, steps in enumerate((7, 7, 5)):
        with netCDF4.Dataset(folder / f"tg_ens_mean_{number}.nc", "w") as file:
            put(file, "time", ("time",), (np.arange(steps) + begin).astype("i4"), units="days since 1950-01-01 00:00")  # fmt: skip
            grid(file, lat="latitude", lon="longitude")
            put(file, "tg", ("time", "latitude", "longitude"), (np.arange(steps * 12) + begin).reshape(steps, 3, 4).astype("i2"),
                fill=np.int16(-9999), scale_factor=np.float32(0.01), add_offset=np.float32(0),
                how={"zlib": True, "chunksizes": (3, 3, 4)})  # fmt: skip
        begin += steps


@archive(
    "Stations: one file a station, named by text, of the same times",
    tool="xarray",
    oracle=by_coords(),
)
def make_stations(folder):
    for number, name in enumerate(("Aachen", "Berlin", "Chemnitz")):
        xr.Dataset(
            {"t": (("station", "time"), numbers(1, 4, begin=number * 10))},
            {
                "station": [name],
                "time": xr.date_range("2020-01-01", periods=4),
                "height": ("station", [100.0 + number]),
            },
        ).to_netcdf(folder / f"station_{name}.nc")
