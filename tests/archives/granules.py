"""Granules of different length: swaths, scans, years; files that follow one another along a dimension."""

import h5py
import netCDF4
import numpy as np
import xarray as xr

from archives.archive import archive, by_coords, nested

ALONG = ("--concat-dim", "along_track")
LENGTHS = (120, 117, 124, 119)


def swath(begin, steps, pixels=20, **more):
    """Return a swath of an imager, without coordinates of its dimensions, as level 2 products are."""
    at = np.arange(begin, begin + steps, dtype="f4")
    field = np.add.outer(at * 100, np.arange(pixels, dtype="f4"))
    return xr.Dataset(
        {"radiance": (("along_track", "cross_track"), field, {"units": "W m-2"}),
         "quality": (("along_track", "cross_track"), (field % 7).astype("i1"))},
        {"latitude": (("along_track", "cross_track"), field / 1e4),
         "longitude": (("along_track", "cross_track"), field / 1e4 + 1),
         "scan_time": (("along_track",), at.astype("f8"), {"units": "seconds since 2001-01-01"})},
    )  # fmt: skip


def granules(folder, lengths=LENGTHS, encoding=lambda steps: {}, make=swath, **how):
    """Write granules one behind the other."""
    begin = 0
    for number, steps in enumerate(lengths):
        made = make(begin, steps, **how)
        names = [name for name in made.variables if made[name].ndim > 1]
        made.to_netcdf(folder / f"g{number}.nc", encoding={name: encoding(steps) for name in names})
        begin += steps


@archive(
    "L2 swaths of different length, compressed, one chunk each",
    tool="xarray (netCDF4)",
    oracle=nested("along_track"),
    options=ALONG,
    choose="rectilinear",
)
def make_swaths_of_one_chunk(folder):
    granules(folder, encoding=lambda steps: {"zlib": True, "chunksizes": (steps, 20)})


@archive(
    "L2 swaths of different length, compressed, chunks of 40 lines",
    tool="xarray (netCDF4)",
    oracle=nested("along_track"),
    options=ALONG,
)
def make_swaths_in_chunks(folder):
    granules(folder, encoding=lambda steps: {"zlib": True, "chunksizes": (40, 20)})


@archive(
    "L2 swaths of different length, contiguous",
    tool="xarray (netCDF4)",
    oracle=nested("along_track"),
    options=ALONG,
)
def make_swaths_contiguous(folder):
    granules(folder)


@archive(
    "L2 swaths of different length, chunked, not compressed",
    tool="xarray (netCDF4)",
    oracle=nested("along_track"),
    options=ALONG,
)
def make_swaths_uncompressed_chunks(folder):
    granules(folder, encoding=lambda steps: {"chunksizes": (steps, 600)}, pixels=600)


SWATH = "HDFEOS/SWATHS/ColumnAmount/Data Fields"


def fields_of(files):
    """Return the fields of all granules; the library names dimensions that the file leaves unnamed."""
    held = [
        xr.open_dataset(each, group=SWATH, phony_dims="sort", engine="h5netcdf") for each in files
    ]
    return xr.concat(held, "phony_dim_0").load()


@archive(
    "HDF-EOS5 swaths: fields in groups, dimensions named in StructMetadata only", tool="h5py",
    oracle=fields_of, choose="rectilinear",
    options=("--source-group", SWATH, "--concat-dim", "phony_dim_0"),
)  # fmt: skip
def make_hdf_eos5(folder):
    begin = 0
    for number, steps in enumerate(LENGTHS):
        made = swath(begin, steps)
        with h5py.File(folder / f"OMI-Aura_L2_o{number:05d}.he5", "w") as file:
            top = file.create_group("HDFEOS/SWATHS/ColumnAmount")
            fields, places = top.create_group("Data Fields"), top.create_group("Geolocation Fields")
            for name in ("radiance", "quality"):
                values = made[name].values
                fields.create_dataset(name, data=values, chunks=(steps, 20), compression="gzip")
            places.create_dataset("Latitude", data=made.latitude.values)
            places.create_dataset("Time", data=made.scan_time.values)
            output = file.create_group("HDFEOS INFORMATION")
            output["StructMetadata.0"] = np.bytes_(f'DimensionName="nTimes"\nSize={steps}\n')
        begin += steps


@archive(
    "Daily files of years with 365 and 366 days in chunks of 30 days",
    tool="xarray (netCDF4)",
    oracle=by_coords(),
)
def make_years_in_chunks_of_30(folder):
    for year in (1999, 2000, 2001):
        time = xr.date_range(f"{year}-01-01", f"{year}-12-31", freq="D", use_cftime=False)
        values = np.add.outer(np.arange(len(time)) + year * 1000.0, np.arange(12.0).reshape(3, 4))
        made = xr.Dataset(
            {"pr": (("time", "lat", "lon"), values.astype("f4"))},
            {"time": time, "lat": [0.0, 1, 2], "lon": [0.0, 1, 2, 3]},
        )
        made.to_netcdf(
            folder / f"pr_{year}.nc", unlimited_dims="time",
            encoding={"pr": {"zlib": True, "chunksizes": (30, 3, 4)},
                      "time": {"units": "days since 1950-01-01"}},
        )  # fmt: skip


@archive(
    "Radar sweeps with different numbers of rays",
    tool="netCDF4",
    oracle=nested("time"),
    choose="rectilinear",
)
def make_radar_sweeps(folder):
    begin = 0
    for number, rays in enumerate((360, 361, 359)):
        with netCDF4.Dataset(folder / f"cfrad.sweep{number}.nc", "w") as file:
            file.createDimension("time", rays)
            file.createDimension("range", 50)
            file.Conventions = "CF-1.7 CF/Radial instrument_parameters"
            time = file.createVariable("time", "f8", ("time",))
            time.units = "seconds since 2001-01-01T00:00:00Z"
            time[:] = np.arange(begin, begin + rays) / 8
            file.createVariable("azimuth", "f4", ("time",))[:] = np.arange(rays)
            file.createVariable("range", "f4", ("range",))[:] = np.arange(50) * 100
            moment = file.createVariable(
                "DBZH", "i2", ("time", "range"), zlib=True, fill_value=-32768
            )
            moment.scale_factor, moment.add_offset = np.float32(0.01), np.float32(0)
            moment[:] = np.add.outer(np.arange(begin, begin + rays) % 100, np.arange(50)) / 10
        begin += rays


def long_swath(begin, steps):
    """Return one value a line, in more than a megabyte: what is smaller is stored in any case."""
    at = np.arange(begin, begin + steps, dtype="f8")
    return xr.Dataset({"lat": (("along_track", "one"), at[:, None])})


@archive(
    "Narrow granules, contiguous, lengths with a common divisor",
    tool="xarray (netCDF4)",
    oracle=nested("along_track"),
    options=ALONG,
)
def make_narrow_contiguous(folder):
    granules(folder, (150_000, 140_000, 160_000), make=long_swath)


@archive(
    "Months of daily values in uncompressed chunks of 10 days", tool="xarray (netCDF4)",
    oracle=by_coords(),
)  # fmt: skip
def make_months_in_plain_chunks(folder):
    for month in (1, 2, 3):
        time = xr.date_range(f"2001-{month:02}-01", periods=(31, 28, 31)[month - 1], freq="D")
        step = np.arange(12_000.0).reshape(100, 120)
        values = np.add.outer(np.arange(len(time)) + month * 1e5, step).astype("f4")
        made = xr.Dataset({"pr": (("time", "lat", "lon"), values)}, {"time": time})
        made.to_netcdf(
            folder / f"pr_2001{month:02}.nc", unlimited_dims="time",
            encoding={"pr": {"chunksizes": (10, 100, 120)}, "time": {"units": "days since 1950-01-01"}},
        )  # fmt: skip


@archive(
    "L2 swaths of different length, compressed, copied where they do not fit",
    tool="xarray (netCDF4)", oracle=nested("along_track"), options=ALONG, choose="native",
)  # fmt: skip
def make_swaths_copied(folder):
    make_swaths_of_one_chunk.make(folder)


@archive(
    "The last granule has shorter chunks (GPM)", tool="netCDF4",
    oracle=nested("nscan"), options=("--concat-dim", "nscan"), choose="eras", opened={"eras": "concat"},
)  # fmt: skip
def make_granule_of_other_chunks(folder):
    begin = 0
    for number, scans in enumerate((80, 80, 40)):
        with netCDF4.Dataset(folder / f"GPM_{number}.nc", "w") as file:
            file.createDimension("nscan", None)
            file.createDimension("nray", 49)
            chunks = (20 if number == 2 else 40, 49)
            rain = file.createVariable(
                "precipRate", "f4", ("nscan", "nray"), zlib=True, chunksizes=chunks,
                fill_value=-9999.9,
            )  # fmt: skip
            rain.units = "mm/hr"
            rain[:] = np.add.outer(np.arange(begin, begin + scans), np.arange(49) / 49)
        begin += scans
