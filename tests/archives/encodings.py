"""Archives whose files encode one variable in several ways, as tools and years of operation leave them."""

import zipfile
from pathlib import Path

import h5py
import numpy as np
import xarray as xr

from archives.archive import archive, by_coords

ZIP = Path(__file__).parents[2] / "fixtures" / "archives" / "encodings" / "files.zip"
"""Outputs of tools that are not installed everywhere; `make.sh` beside it says how."""

CHUNKED = {"zlib": True, "complevel": 4, "shuffle": True, "chunksizes": (1, 12, 12)}


def day(number, steps=4, name="t2m", **changes):
    """Return some steps of a small field; no two values of a dataset are equal."""
    time = np.arange(number * steps, (number + 1) * steps)
    values = np.add.outer(time * 100.0, np.arange(144.0).reshape(12, 12)).astype("f4")
    return xr.Dataset(
        {name: (("time", "lat", "lon"), values, {"units": "K"})},
        {"time": ("time", time, {"units": "hours since 2001-01-01", "standard_name": "time"}),
         "lat": ("lat", np.linspace(50, 55, 12)), "lon": ("lon", np.linspace(0, 7, 12))},
        {"Conventions": "CF-1.8"},
    ).assign(changes)  # fmt: skip


def written(dataset, path, encoding, *, name="t2m", **how):
    """Write a file as netCDF4 does."""
    encoding = {name: encoding, "time": {"dtype": "i4"}}
    dataset.to_netcdf(path, unlimited_dims="time", encoding=encoding, **how)


@archive(
    "Shuffle was switched on after three days", tool="xarray (netCDF4)", oracle=by_coords(),
    choose="native",
)  # fmt: skip
def make_shuffle_switched_on(folder):
    for number in range(8):
        written(day(number), folder / f"d{number}.nc", CHUNKED | {"shuffle": number >= 3})


@archive(
    "Shuffle was switched on after three days, kept as eras", tool="xarray (netCDF4)",
    oracle=by_coords(), choose="eras", opened={"eras": "concat"},
)  # fmt: skip
def make_shuffle_as_eras(folder):
    make_shuffle_switched_on.make(folder)


@archive("Deflate level 1, then 9", tool="xarray (netCDF4)", oracle=by_coords())
def make_deflate_level(folder):
    for number in range(4):
        written(
            day(number), folder / f"d{number}.nc", CHUNKED | {"complevel": 1 + 8 * (number % 2)}
        )


@archive(
    "zstd after zlib", tool="netCDF4", oracle=by_coords(), choose="native",
)  # fmt: skip
def make_zstd_after_zlib(folder):
    for number in range(5):
        more = {"compression": "zstd", "complevel": 3} if number > 2 else {"compression": "zlib"}
        encoding = {k: v for k, v in CHUNKED.items() if k not in ("zlib", "complevel")} | more
        written(day(number), folder / f"d{number}.nc", encoding, engine="netcdf4")


@archive(
    "Half of the files compressed later (nccopy -d)", tool="xarray (netCDF4)", oracle=by_coords(),
    choose="native",
)  # fmt: skip
def make_half_compressed(folder):
    for number in range(6):
        encoding = CHUNKED if number < 3 else {"chunksizes": (1, 12, 12)}
        written(day(number), folder / f"d{number}.nc", encoding)


@archive(
    "Half of the files in other chunks", tool="xarray (netCDF4)", oracle=by_coords(),
    choose="native",
)  # fmt: skip
def make_half_rechunked(folder):
    for number in range(6):
        chunks = (1, 12, 12) if number < 3 else (4, 6, 12)
        written(day(number), folder / f"d{number}.nc", CHUNKED | {"chunksizes": chunks})


@archive(
    "Uncompressed files in other chunks", tool="xarray (netCDF4)", oracle=by_coords(),
)  # fmt: skip
def make_uncompressed_rechunked(folder):
    for number in range(6):
        chunks = (2, 12, 12) if number < 3 else (4, 12, 12)
        written(day(number), folder / f"d{number}.nc", {"chunksizes": chunks})


@archive(
    "Classic NetCDF-3 beside NetCDF-4", tool="xarray (netCDF4)", oracle=by_coords(),
    choose="native",
)  # fmt: skip
def make_netcdf3_beside_netcdf4(folder):
    for number in range(6):
        if number < 2:
            written(day(number), folder / f"d{number}.nc", {}, format="NETCDF3_CLASSIC")
        else:
            written(day(number), folder / f"d{number}.nc", CHUNKED)


@archive(
    "Big-endian files beside little-endian ones", tool="h5py", oracle=by_coords(),
    choose="native",
)  # fmt: skip
def make_big_endian_beside_little(folder):
    for number in range(6):
        path = folder / f"d{number}.nc"
        written(day(number), path, CHUNKED)
        if number in {1, 4}:
            with h5py.File(path, "r+") as file:
                old = file["t2m"]
                how = {"chunks": old.chunks, "compression": "gzip", "maxshape": old.maxshape}
                new = file.create_dataset("new", data=old[...], dtype=">f4", **how)
                for axis, name in enumerate(("time", "lat", "lon")):
                    new.dims[axis].attach_scale(file[name])
                new.attrs["units"] = old.attrs["units"]
                new.attrs["_FillValue"] = old.attrs["_FillValue"]
                for axis, name in enumerate(("time", "lat", "lon")):
                    old.dims[axis].detach_scale(file[name])
                del file["t2m"]
                file.move("new", "t2m")


@archive(
    "Each file packed anew, with its own scale (ncpdq)", tool="xarray (netCDF4)", oracle=by_coords(),
    choose="float-variable",
)  # fmt: skip
def make_packed_per_file(folder):
    for number in range(5):
        made = day(number)
        low, high = float(made.t2m.min()), float(made.t2m.max())
        scale = (high - low) / 60000
        packing = {"dtype": "i2", "scale_factor": scale, "add_offset": (low + high) / 2,
                   "_FillValue": np.int16(-32767)}  # fmt: skip
        written(made, folder / f"d{number}.nc", CHUNKED | packing)


@archive(
    "Another _FillValue since the third file", tool="xarray (netCDF4)", oracle=by_coords(),
    choose="native",
)  # fmt: skip
def make_other_fill_value(folder):
    for number in range(5):
        made = day(number)
        made.t2m[1, 2, 3] = np.nan
        fill = np.float32(1e20 if number < 2 else -999)
        written(made, folder / f"d{number}.nc", CHUNKED | {"_FillValue": fill})


@archive(
    "float64 files beside float32 ones", tool="xarray (netCDF4)", oracle=by_coords(),
    choose="native",
)  # fmt: skip
def make_float64_beside_float32(folder):
    for number in range(5):
        made = day(number)
        if number == 3:
            made["t2m"] = (made.t2m.dims, made.t2m.values.astype("f8") + 0.1, made.t2m.attrs)
        written(made, folder / f"d{number}.nc", CHUNKED)


@archive(
    "A fixed field compressed in some files", tool="xarray (netCDF4)", oracle=by_coords(),
)  # fmt: skip
def make_fixed_field_compressed_later(folder):
    field = np.arange(400 * 900, dtype="f4").reshape(400, 900)
    for number in range(4):
        made = day(number).assign(orog=(("y", "x"), field))
        how = {"zlib": True, "chunksizes": (100, 900)} if number > 1 else {}
        encoding = {"orog": how, "t2m": CHUNKED, "time": {"dtype": "i4"}}
        made.to_netcdf(folder / f"d{number}.nc", unlimited_dims="time", encoding=encoding)


# -- what tools make of a part of an archive -------------------------------------------------------


def unpacked(name, folder):
    """Write the files of a fixture into a folder."""
    with zipfile.ZipFile(ZIP) as held:
        for each in held.namelist():
            if each.startswith(f"{name}/"):
                (folder / Path(each).name).write_bytes(held.read(each))


@archive(
    "The last files were compressed later", tool="nccopy -d 5 -s", oracle=by_coords(),
    choose="native",
)  # fmt: skip
def make_nccopy_deflated(folder):
    unpacked("nccopy_deflated", folder)


@archive(
    "The last files got other chunks", tool="nccopy -c", oracle=by_coords(), choose="eras",
    opened={"eras": "concat"},
)  # fmt: skip
def make_nccopy_chunks(folder):
    unpacked("nccopy_chunks", folder)


@archive(
    "Classic files, then NetCDF-4 without compression", tool="nccopy -k", oracle=by_coords(),
    choose="native",
)  # fmt: skip
def make_nccopy_kinds(folder):
    unpacked("nccopy_kinds", folder)


@archive(
    "64-bit offset files (big-endian), then compressed NetCDF-4", tool="cdo -f nc2, -f nc4 -z zip",
    oracle=by_coords(), choose="native",
)  # fmt: skip
def make_cdo_formats(folder):
    unpacked("cdo_formats", folder)


@archive("A file of float64 among float32", tool="cdo -b F64", oracle=by_coords(), choose="native")
def make_cdo_float64(folder):
    unpacked("cdo_float64", folder)


@archive(
    "Packed with another scale in each file, _FillValue of another type", tool="ncpdq -P all_new",
    oracle=by_coords(), choose="float-variable", attrs=False,
)  # fmt: skip
def make_ncpdq_packed(folder):
    unpacked("nco_packed", folder)


@archive(
    "Repacked with shuffle since the third file", tool="h5repack -f SHUF", oracle=by_coords(),
    choose="native",
)  # fmt: skip
def make_h5repacked(folder):
    unpacked("h5repack", folder)
