"""Archives that are refused at first, whose first command keeps every value.

Scans whose positions begin anew, vertices that only bounds have, beams of other lengths, names and types
that differ between files. `test_proposals.py` runs all commands of each, and counts what is missing.
"""

import h5py
import netCDF4
import numpy as np
import xarray as xr

from archives.archive import DECODED, archive, by_coords, nested

FIELD = np.arange(24, dtype="f4").reshape(4, 6)


def variable(file, name, kind, dims, values, *, chunks=None, **attrs):
    """Write a variable with its attributes."""
    fill = attrs.pop("_FillValue", None)
    made = file.createVariable(
        name, kind, dims, fill_value=fill, zlib=chunks is not None, chunksizes=chunks
    )
    made.setncatts(attrs)
    made[...] = values


def reading(group, **how):
    """Return xarray's answer for a group of files, which follow one another along a dimension."""

    def answer(files):
        held = [xr.open_dataset(each, group=group, decode_times=DECODED).load() for each in files]
        options = {"data_vars": "minimal", "coords": "minimal", "compat": "override"}
        return xr.concat(held, **(options | {"combine_attrs": "override", "join": "outer"} | how))

    return answer


# -- positions that begin anew -------------------------------------------------------------------


def granule(path, begin, *, seed, steps=4, first=0):
    with netCDF4.Dataset(path, "w") as file:
        file.createDimension("mirror_step", steps)
        file.createDimension("xtrack", 6)
        variable(file, "mirror_step", "i4", ("mirror_step",), first + np.arange(steps))
        variable(file, "xtrack", "i4", ("xtrack",), np.arange(6))
        times = {"units": "seconds since 1980-01-06"}
        variable(file, "time", "f8", ("mirror_step",), begin + np.arange(steps), **times)
        column = np.arange(steps * 6).reshape(steps, 6) + 1000 * seed
        along = ("mirror_step", "xtrack")
        variable(file, "column", "f4", along, column, chunks=(steps, 6), _FillValue=-1e30)


@archive(
    "Scans of a satellite of two granules each: the mirror's positions begin anew in each scan",
    tool="TEMPO",
    oracle=nested("mirror_step"),
    choose="--combine nested",
)
def make_scans_of_several_granules(folder):
    for scan in range(2):
        for part in range(2):
            begin, seed = scan * 3600 + part * 4, 2 * scan + part
            granule(folder / f"s{scan}_g{part}.nc", begin, seed=seed, first=4 * part)


@archive(
    "Orbits of other lengths, with positions for coordinates",
    tool="OMPS",
    oracle=nested("mirror_step"),
    choose="--combine nested",
    often=False,
)
def make_orbits_whose_positions_begin_anew(folder):
    for orbit, steps in enumerate((5, 6, 7)):
        granule(folder / f"o{orbit}.nc", orbit * 6000, seed=orbit, steps=steps)


@archive(
    "Orbits of other lengths whose positions begin with 1, in chunks of all steps",
    tool="OMPS",
    oracle=nested("mirror_step"),
    choose="--combine nested",
)
def make_orbits_whose_positions_begin_with_one(folder):
    for orbit, steps in enumerate((3, 5, 3)):
        granule(folder / f"o{orbit}.nc", orbit * 6000, seed=orbit, steps=steps, first=1)


def sentinel(path, day, orbit, lines):
    with netCDF4.Dataset(path, "w") as file:
        file.time_reference = f"2019-07-{day + 1:02}"
        group = file.createGroup("PRODUCT")
        for name, length in (("scanline", lines), ("ground_pixel", 3), ("time", 1)):
            group.createDimension(name, length)
        variable(group, "scanline", "i4", ("scanline",), np.arange(lines), units="1")
        variable(group, "ground_pixel", "i4", ("ground_pixel",), np.arange(3), units="1")
        times = {"units": "seconds since 2010-01-01"}
        variable(group, "time", "i4", ("time",), [299116800 + 86400 * day], **times)
        column = 1000 * orbit + np.arange(3 * lines).reshape(1, lines, 3)
        along = ("time", "scanline", "ground_pixel")
        variable(group, "no2", "f4", along, column, chunks=(1, lines, 3), _FillValue=9.96921e36)


@archive(
    "Orbits of one day, in a group, with scan lines counted in each",
    tool="Sentinel-5P",
    oracle=reading("PRODUCT", dim="scanline"),
    choose="--concat-dim scanline --combine nested",
    opened={"group": "PRODUCT"},
)
def make_orbits_of_one_day(folder):
    for orbit, lines in enumerate((4, 5, 4)):
        sentinel(folder / f"S5P_{orbit}.nc", 0, orbit, lines)


@archive(
    "Orbits of several days, in a group, with scan lines counted in each",
    tool="Sentinel-5P",
    oracle=reading("PRODUCT", dim="time"),
    choose="--pad scanline",
    opened={"group": "PRODUCT"},
)
def make_orbits_of_several_days(folder):
    for orbit, lines in enumerate((4, 5, 4)):
        sentinel(folder / f"S5P_{orbit}.nc", orbit, orbit, lines)


# -- which dimension -----------------------------------------------------------------------------


def image(path, at, *, bounds="time_bounds"):
    with netCDF4.Dataset(path, "w") as file:
        for name, length in (("y", 4), ("x", 6), ("number_of_time_bounds", 2)):
            file.createDimension(name, length)
        variable(file, "y", "f4", ("y",), np.arange(4))
        variable(file, "x", "f4", ("x",), np.arange(6))
        seconds = 7.9e8 + 300 * at
        times = {"units": "seconds since 2000-01-01 12:00:00", "bounds": bounds}
        variable(file, "t", "f8", (), seconds, **times)
        variable(file, bounds, "f8", ("number_of_time_bounds",), [seconds - 10, seconds + 10])
        variable(file, "CMI", "f4", ("y", "x"), FIELD + at, chunks=(2, 6), coordinates="t y x")


def stacked(files):
    """Return xarray's answer along a time that each file has one of."""
    return nested("t", data_vars="all", coords=["t"])(files)


@archive(
    "Images of a geostationary satellite: only bounds have the dimension of vertices",
    tool="GOES ABI",
    oracle=stacked,
    choose="variable:t",
    attrs=False,
)
def make_images_with_bounds_of_their_time(folder):
    for at in range(3):
        image(folder / f"OR_ABI-L2-CMIPC_s2025001000{at}173_c2025001000{at}271.nc", at)


def each_along(*dims):
    """Concatenate each variable along the one of some dimensions that it has."""

    def answer(files):
        held = [xr.open_dataset(each).load() for each in files]
        found = {}
        for name in held[0].variables:
            own = [each[name].variable for each in held]
            dim = next((each for each in dims if each in own[0].dims), None)
            found[name] = own[0] if dim is None else xr.Variable.concat(own, dim)
        return xr.Dataset(found, attrs=held[0].attrs)

    return answer


def beams(path, seed, lengths):
    with netCDF4.Dataset(path, "w") as file:
        for beam, shots in enumerate(lengths):
            file.createDimension(f"shot_{beam}", shots)
            for name in ("elevation", "latitude"):
                values = np.arange(shots) + 100 * seed + 10 * beam
                variable(file, f"{name}_{beam}", "f4", (f"shot_{beam}",), values)


@archive(
    "Beams of a lidar, each with a dimension of its own without coordinate",
    tool="GEDI",
    oracle=each_along("shot_0", "shot_1", "shot_2"),
    choose="--concat-dim shot_0 --concat-dim shot_1 --concat-dim shot_2",
)
def make_beams_of_other_lengths(folder):
    for at, lengths in enumerate(((7, 5, 3), (9, 6, 4), (3, 4, 8))):
        beams(folder / f"GEDI_{at}.nc", at, lengths)


@archive(
    "Two beams of a lidar, one of which is as long in two of three files",
    tool="ICESat-2",
    oracle=each_along("shot_0", "shot_1"),
    choose="--concat-dim shot_0 --concat-dim shot_1",
    often=False,
)
def make_two_beams(folder):
    for at, lengths in enumerate(((7, 5), (9, 5), (3, 4))):
        beams(folder / f"ATL_{at}.nc", at, lengths)


def tile(path, day, north, east):
    data = {"v": (("time", "y", "x"), (FIELD + 100 * day)[None], {"_FillValue": np.float32(-1)})}
    labels = {
        "time": ("time", [19000 + day], {"units": "days since 1970-01-01"}),
        "y": north + np.arange(4.0),
        "x": east + np.arange(6.0),
    }
    xr.Dataset(data, labels).to_netcdf(path, encoding={"v": {"chunksizes": (1, 2, 3)}})


@archive(
    "Tiles of which only one in the middle lies farther east",
    tool="ITS_LIVE",
    oracle=by_coords(join="outer", data_vars="all"),
    choose="--concat-dim time --concat-dim y --concat-dim x --missing reserve",
)
def make_a_tile_in_the_middle_farther_east(folder):
    for at, (north, east) in enumerate(((0.0, 0.0), (0.0, 6.0), (4.0, 0.0))):
        tile(folder / f"tile_{at}.nc", at, north, east)


@archive(
    "Tiles of one day around a corner, the last in the column of the first",
    tool="ITS_LIVE",
    oracle=by_coords(join="outer", data_vars="all"),
    choose="--concat-dim y --concat-dim x",
)
def make_tiles_around_a_corner(folder):
    for at, (north, east) in enumerate(((0.0, 0.0), (0.0, 6.0), (4.0, 6.0), (4.0, 0.0))):
        tile(folder / f"tile_{at}.nc", 0, north, east)


def chunk(path, at, *, rows=4):
    """Write lines of two channels, each on a grid of its own, and what the groups share a dimension in."""
    with netCDF4.Dataset(path, "w") as file:
        for name, edge in (("ir_105", 1), ("vis_06", 2)):
            group = file.createGroup(f"data/{name}/measured")
            group.createDimension("y", rows * edge)
            group.createDimension("x", 6 * edge)
            variable(group, "y", "f4", ("y",), rows * edge * at + np.arange(rows * edge))
            variable(group, "x", "f4", ("x",), np.arange(6 * edge))
            lines = np.arange(24 * edge * edge).reshape(rows * edge, 6 * edge) + 1000 * at + edge
            along = ("y", "x")
            variable(group, "radiance", "f4", along, lines, chunks=lines.shape)
        state = file.createGroup("state/celestial")
        state.createDimension("index", 3 + at % 2)
        distance = 100 * at + np.arange(3 + at % 2)
        variable(state, "earth_sun_distance", "f8", ("index",), distance)


@archive(
    "Chunks of an image: two grids in groups, and values of each chunk without labels",
    tool="MTG FCI",
    oracle=reading("state/celestial", dim="index"),
    choose="--concat-dim y --concat-dim index",
    opened={"group": "state/celestial"},
)
def make_chunks_of_an_image(folder):
    for at in range(3):
        chunk(folder / f"FCI_BODY_{at}.nc", at)


# -- names and types -----------------------------------------------------------------------------


def section(path, at, *, time="time", name="sst", lon="lon"):
    data = {name: ((time, lon), FIELD[:3] + 100 * at, {"units": "K"})}
    labels = {
        time: (time, 3 * at + np.arange(3.0), {"units": "days since 2000-01-01"}),
        lon: np.arange(6.0),
    }
    xr.Dataset(data, labels).to_netcdf(path)


def renamed(**names):
    """Return xarray's answer where files call things by other names."""

    def rename(held):
        return held.rename({old: new for old, new in names.items() if old in held.variables})

    return by_coords(preprocess=rename)


@archive(
    "Sections whose time axes are numbered",
    tool="Ferret",
    oracle=renamed(T1="T", T2="T"),
    choose="--rename T1=T --rename T2=T",
)
def make_numbered_time_axes(folder):
    for at in range(2):
        section(folder / f"section_{at}.nc", at, time=f"T{at + 1}", name="SST", lon="LON")


@archive(
    "Three sections whose time axes are numbered with a word before",
    tool="Ferret",
    oracle=renamed(TIME1="TIME", TIME2="TIME", TIME3="TIME"),
    choose="--rename TIME1=TIME",
    often=False,
)
def make_three_numbered_time_axes(folder):
    for at in range(3):
        section(folder / f"section_{at}.nc", at, time=f"TIME{at + 1}", name="SST")


@archive(
    "Sections of which a tool wrote one in upper case",
    tool="Ferret",
    oracle=renamed(TIME="time"),
    choose="--rename TIME=time",
)
def make_one_time_in_upper_case(folder):
    for at in range(3):
        section(folder / f"section_{at}.nc", at, time="TIME" if at == 1 else "time")


def typed(path, at, kind):
    with netCDF4.Dataset(path, "w") as file:
        file.createDimension("y", 4)
        file.createDimension("x", 6)
        variable(file, "x", "f4", ("x",), np.arange(6))
        variable(file, "tas", kind, ("y", "x"), FIELD + at)


def dated(files):
    """Return xarray's answer with the dates of the names."""
    times = xr.date_range("2000-01-01", periods=len(files), unit="us")
    found = nested("time", data_vars=["tas"])(files)
    return found.assign_coords(time=times)


@archive(
    "Files without a time, of which one holds doubles",
    tool="h5wasm",
    oracle=dated,
    choose="--on-mismatch native",
    attrs=False,
)
def make_one_file_of_doubles(folder):
    for at, kind in enumerate(("f4", "f4", "f8")):
        typed(folder / f"field_2000010{at + 1}.nc", at, kind)


@archive(
    "Files without a time, of which one holds integers",
    tool="PyPSA",
    oracle=dated,
    choose="--on-mismatch native",
    attrs=False,
)
def make_one_file_of_integers(folder):
    for at, kind in enumerate(("f4", "i2", "f4")):
        typed(folder / f"field_2000010{at + 1}.nc", at, kind)


def iteration(path, number):
    """Write a file whose groups are named by the iteration, as openPMD has it."""
    with h5py.File(path, "w") as file:
        for name in "xy":
            field = file.create_dataset(f"data/{number}/fields/E/{name}", data=FIELD + number)
            field.attrs["unitSI"] = 1.0
