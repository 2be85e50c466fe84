"""Files of radars, lidars and imagers: a group for each sweep, beam or channel, each on its own scale."""

import h5py
import netCDF4
import numpy as np
import xarray as xr

from archives.archive import DECODED, archive
from archives.proposals import reading, tile
from archives.writing import numbers, put


def scale(group, name, values, **attrs):
    """Add a dimension of no fixed length with its labels, as HDF5 has them."""
    made = group.create_dataset(name, data=values, maxshape=(None,), chunks=(4,))
    made.make_scale(name)
    made.attrs.update({key: np.bytes_(value) for key, value in attrs.items()})
    return made


def along(group, name, values, *scales):
    """Add a variable along dimensions."""
    chunks = tuple(min(4, length) for length in values.shape)
    made = group.create_dataset(
        name, data=values, chunks=chunks, maxshape=(None,) * values.ndim, compression="gzip"
    )
    for axis, held in enumerate(scales):
        made.dims[axis].attach_scale(held)
    return made


def plain(group, *dims, dim):
    """Return an oracle: a group of files without dimensions of their own names, side by side or in a row.

    Args:
        group: Of the files.
        dims: What the dimensions of the field are called.
        dim: Along which files stand, or follow one another.
    """

    def answer(files):
        how = {"engine": "h5netcdf", "phony_dims": "access", "group": group}
        held = [xr.open_dataset(each, **how).load() for each in files]
        names = {old: new for old, new in zip(held[0].sizes, dims, strict=True) if old != new}
        return xr.concat(
            [each.rename_dims(names) for each in held], dim, data_vars="all", coords="minimal",
            compat="override", combine_attrs="override", join="outer",
        )  # fmt: skip

    return answer


# -- radars ----------------------------------------------------------------------------------------


def odim(folder, *rays, more=()):
    """Write volumes in HDF5 without dimensions: two sweeps of some rays each."""
    for number, count in enumerate(rays):
        with h5py.File(folder / f"T_PAGZ41_C_LFPW_2026072719{number:02}00.h5", "w") as file:
            for sweep in (1, 2, *([3] if number in more else [])):
                values = numbers(count + sweep, 6, begin=1000 * number + 100 * sweep)
                made = file.create_group(f"dataset{sweep}/data1")
                made.create_dataset("data", data=values, chunks=values.shape)


@archive("ODIM: volumes of a radar with equal sweeps, and the minute in the name", tool="a weather service",
         oracle=plain("dataset2/data1", "phony_dim_2", "phony_dim_3", dim="time"),
         choose="--labels", opened={"group": "dataset2/data1"}, attrs=False)  # fmt: skip
def make_odim_volumes(folder):
    odim(folder, 4, 4, 4)


@archive("ODIM: volumes of a radar, of which one has a ray more", tool="a weather service",
         oracle=plain("dataset2/data1", "phony_dim_2", "phony_dim_3", dim="phony_dim_2"),
         choose="--on-mismatch native", opened={"group": "dataset2/data1"}, often=False)  # fmt: skip
def make_odim_volumes_with_a_ray_more(folder):
    odim(folder, 4, 4, 5)


@archive("ODIM: volumes of a radar, of which one has a sweep more", tool="a weather service",
         oracle=plain("dataset1/data1", "phony_dim_0", "phony_dim_1", dim="time"),
         choose="--labels", opened={"group": "dataset1/data1"}, attrs=False, often=False)  # fmt: skip
def make_odim_volumes_with_a_sweep_more(folder):
    odim(folder, 4, 4, 4, more=[1])


def rays_of_all(files):
    """Return xarray's answer: rays follow one another, and sweeps name the rays of all files."""
    held = [xr.open_dataset(each, decode_times=DECODED).load() for each in files]
    before = np.cumsum([0, *(each.sizes["time"] for each in held)])
    made = []
    for each, rays in zip(held, before[:-1].tolist(), strict=True):
        names = ("sweep_start_ray_index", "sweep_end_ray_index")
        moved = {n: each[n].copy(data=(each[n] + rays).values.astype("i4")) for n in names}
        made.append(each.assign(moved))
    parts = []
    for dim in ("time", "sweep"):
        other = "sweep" if dim == "time" else "time"
        parts.append(xr.concat([e.drop_dims(other) for e in made], dim, data_vars="minimal",
                               coords="minimal", compat="override", combine_attrs="override"))  # fmt: skip
    return xr.merge(parts, combine_attrs="override", join="exact")


@archive("CfRadial 1: volumes of a radar, whose sweeps begin and end with a ray of their own file",
         tool="Radx", oracle=rays_of_all, choose="--rebase-indices")  # fmt: skip
def make_cfradial_volumes_with_sweeps(folder):
    for number, rays in enumerate((6, 7, 6)):
        with netCDF4.Dataset(folder / f"cfrad.20260727_19{number:02}44_KLOT.nc", "w") as file:
            times = 60.0 * number + np.arange(rays) * 0.5
            put(file, "time", ("time",), times, units="seconds since 2026-07-27T19:00:44Z")
            put(file, "range", ("range",), 250 * np.arange(5, dtype="f4"), units="meters")
            put(file, "azimuth", ("time",), numbers(rays, begin=100 * number))
            for name, values in (("start", [0, 3]), ("end", [2, rays - 1])):
                put(file, f"sweep_{name}_ray_index", ("sweep",), np.array(values, "i4"))
            put(file, "DBZ", ("time", "range"), numbers(rays, 5, begin=1000 * number))


# -- lidars ----------------------------------------------------------------------------------------


def beams(folder, *spec, lacking=()):
    """Write granules with a group for each beam, whose segments lie along times."""
    for number, lengths in enumerate(spec):
        with h5py.File(folder / f"ATL06_2023010{number}_0295180{number}_006_02.h5", "w") as file:
            for beam, count in zip(("gt1l", "gt1r"), lengths, strict=True):
                if (number, beam) in lacking:
                    continue
                held = file.create_group(f"{beam}/land_ice_segments")
                times = 100.0 * number + np.arange(count) * 0.25
                said = {"units": "seconds since 2018-01-01", "standard_name": "time"}
                labels = scale(held, "delta_time", times, **said)
                along(held, "h_li", numbers(count, begin=1000 * number), labels)


def of_beam(files):
    """Return xarray's answer for a beam, from the files that have it."""
    held = []
    for each in files:
        with h5py.File(each) as file:
            if "gt1l" not in file:
                continue
        how = {"engine": "h5netcdf", "decode_times": DECODED}
        held.append(xr.open_dataset(each, group="gt1l/land_ice_segments", **how).load())
    return xr.concat(held, "delta_time", combine_attrs="override")


@archive("ICESat-2: granules of two beams, of which one granule lacks one", tool="NSIDC", oracle=of_beam,
         opened={"group": "gt1l/land_ice_segments"})  # fmt: skip
def make_granules_without_a_beam(folder):
    beams(folder, (8, 8), (8, 8), (4, 4), lacking=[(1, "gt1l")])


@archive("ICESat-2: granules of two beams that do not fill their chunks", tool="NSIDC", oracle=of_beam,
         opened={"group": "gt1l/land_ice_segments"}, often=False)  # fmt: skip
def make_granules_of_partial_chunks(folder):
    beams(folder, (7, 5), (9, 6), (3, 4))


def shots(folder, *spec):
    """Write granules without dimensions: a group for each beam, a shot for each value."""
    for number, lengths in enumerate(spec):
        with h5py.File(folder / f"GEDI02_A_{number}.h5", "w") as file:
            for beam, count in zip(("BEAM0000", "BEAM0101"), lengths, strict=True):
                held = file.create_group(beam)
                held["elev"] = numbers(count, begin=1000 * number)
                held["rh"] = numbers(count, 3, begin=1000 * number + 100)


@archive("GEDI: beams in groups, with a number of shots each, in files without dimensions", tool="LP DAAC",
         oracle=plain("BEAM0101", "phony_dim_2", "phony_dim_3", dim="phony_dim_2"),
         choose="--concat-dim phony_dim_0 --concat-dim phony_dim_2", opened={"group": "BEAM0101"})  # fmt: skip
def make_beams_in_groups(folder):
    shots(folder, (7, 5), (9, 6), (3, 4))


@archive("GEDI: the same, and one beam has as many shots in all files", tool="LP DAAC",
         oracle=plain("BEAM0101", "phony_dim_2", "phony_dim_3", dim="phony_dim_2"),
         choose="--concat-dim phony_dim_0 --concat-dim phony_dim_2", opened={"group": "BEAM0101"},
         often=False)  # fmt: skip
def make_beams_in_groups_of_one_length(folder):
    shots(folder, (7, 5), (9, 5), (3, 5))


# -- imagers ---------------------------------------------------------------------------------------


def scan(path, number, first, *, rows=4):
    """Write a granule of a scan: positions and dimensions in the root, statistics in a group."""
    with netCDF4.Dataset(path, "w") as file:
        put(file, "mirror_step", ("mirror_step",), (first + np.arange(rows)).astype("i4"))
        put(file, "xtrack", ("xtrack",), np.arange(3, dtype="i4"))
        held = file.createGroup("product")
        field = numbers(rows, 3, begin=1000 * number)
        put(held, "column", ("mirror_step", "xtrack"), field, how={"chunksizes": (rows, 3)})
        put(file.createGroup("qa"), "samples", (), np.int32(100 + number))


@archive("TEMPO: two scans of granules, positions in the root begin anew, and statistics in a group",
         tool="LaRC", oracle=reading("product", dim="mirror_step"), choose="--combine nested",
         opened={"group": "product"}, attrs=False, often=False)  # fmt: skip
def make_scans_with_statistics(folder):
    for number in range(4):
        scan(folder / f"TEMPO_S{number // 2}_G{number % 2}.nc", number, 4 * (number % 2))


@archive("TEMPO: the last granule of each scan is shorter", tool="LaRC", often=False,
         oracle=reading("product", dim="mirror_step"), choose="--combine nested",
         opened={"group": "product"}, attrs=False)  # fmt: skip
def make_scans_that_end_early(folder):
    for number in range(4):
        rows = 4 - number % 2
        path = folder / f"TEMPO_S{number // 2}_G{number % 2}.nc"
        scan(path, number, 4 * (number % 2), rows=rows)


def times_of_group(files):
    """Return xarray's answer along the time of a group, of which each file has one."""
    held = [xr.open_dataset(each, group="image", decode_times=DECODED).load() for each in files]
    held = [each.set_coords("time") for each in held]
    how = {"data_vars": "all", "coords": ["time"], "combine_attrs": "override"}
    return xr.concat(held, "time", **how).reset_index("time").reset_coords("time")


@archive("GOES ABI: images in a group, whose time is a scalar there, with bounds", tool="a script",
         oracle=times_of_group, choose="--labels time=variable:/image/time",
         opened={"group": "image"}, attrs=False)  # fmt: skip
def make_images_in_a_group(folder):
    for number in range(3):
        with netCDF4.Dataset(folder / f"f{number}.nc", "w") as file:
            held = file.createGroup("image")
            said = {"units": "hours since 2000-01-01", "bounds": "time_bounds"}
            put(held, "time", (), 24.0 * number, **said)
            put(held, "time_bounds", ("number_of_time_bounds",), 24.0 * number + np.arange(2.0))
            put(held, "CMI", ("y", "x"), numbers(2, 3, begin=10 * number))


def parts(folder, *rows):
    """Write parts of an image: two channels in groups, and times along a dimension in the root."""
    begin = 0
    for number, count in enumerate(rows):
        with netCDF4.Dataset(folder / f"BODY_{number + 1:04}.nc", "w") as file:
            for name, edge in (("vis_04", 2), ("ir_105", 1)):
                held, lines = file.createGroup(f"data/{name}/measured"), count * edge
                put(held, "y", ("y",), (begin * edge + np.arange(lines)).astype("i2"))
                field = numbers(lines, 3 * edge, begin=1000 * number)
                put(
                    held,
                    "radiance",
                    ("y", "x"),
                    field,
                    how={"chunksizes": field.shape, "zlib": True},
                )
            times = 10.0 * number + np.arange(2 + number)
            put(file, "index", ("index",), (10 * number + np.arange(2 + number)).astype("u2"))
            put(file, "time", ("index",), times, units="seconds since 2000-01-01")
        begin += count


@archive("MTG FCI: parts of an image of other heights, each a chunk, and times along a dimension of their own",
         tool="EUMETSAT", oracle=reading("data/ir_105/measured", dim="y"), choose="--chunk-grid rectilinear",
         opened={"group": "data/ir_105/measured"})  # fmt: skip
def make_parts_of_other_heights(folder):
    parts(folder, 4, 6, 4)


def orbits(folder):
    """Write granules of a day in HDF-EOS 5's form: lines of no fixed number, counted in each file."""
    for number in range(3):
        with h5py.File(folder / f"OMPS_2022m061{number}.h5", "w") as file:
            place, science = file.create_group("Geolocation"), file.create_group("Science")
            lines = scale(place, "DimAlongTrack", np.arange(5 + number, dtype="i4"))
            pixels = scale(place, "DimCrossTrack", np.arange(3, dtype="i4"))
            for held, name in ((place, "Latitude"), (science, "Ozone")):
                values = numbers(5 + number, 3, begin=1000 * number + len(name))
                along(held, name, values, lines, pixels)


@archive("OMPS: dimensions of one group, which fields of another group have, and that no file fixes",
         tool="GES DISC", oracle=lambda files: reading_h5(files, "Geolocation", "DimAlongTrack"),
         choose="--concat-dim DimAlongTrack --combine nested", opened={"group": "Geolocation"},
         often=False)  # fmt: skip
def make_orbits_of_two_groups(folder):
    orbits(folder)


def reading_h5(files, group, dim):
    how = {"engine": "h5netcdf", "group": group}
    held = [xr.open_dataset(each, **how).load() for each in files]
    return xr.concat(held, dim, combine_attrs="override")


FIELDS = "HDFEOS/GRIDS/VIIRS_Grid/Data Fields"


@archive("HDF-EOS 5 grids: fields without dimensions, the day of the year in the name", tool="LP DAAC",
         oracle=plain(FIELDS, "phony_dim_0", "phony_dim_1", dim="time"), choose="--labels",
         opened={"group": FIELDS}, attrs=False, often=False)  # fmt: skip
def make_eos_grids(folder):
    for number in range(3):
        with h5py.File(
            folder / f"VNP43MA4.A202400{number + 1}.h09v05.002.2024011120000.h5", "w"
        ) as file:
            held = file.create_group(FIELDS)
            for name in ("M1", "M2"):
                held.create_dataset(name, data=numbers(4, 6, begin=100 * number), chunks=(2, 6))


@archive("Tiles that overlap, each moved by some cells", tool="ITS_LIVE", often=False,
         oracle=reading(None, dim="time"), choose="--missing reserve")  # fmt: skip
def make_tiles_that_overlap(folder):
    for number, (north, east) in enumerate(((0.0, 0.0), (2.0, 1.0), (1.0, -2.0))):
        tile(folder / f"tile_{number}.nc", number, north, east)


# -- groups of files that are not one dataset ------------------------------------------------------


@archive("openPMD: a group named by the iteration in each file", tool="openPMD-api",
         oracle=lambda files: plain("data/100/fields/E", "phony_dim_0", "phony_dim_1", dim="file")(files[1:2]),
         choose="--on-mismatch eras", opened={"group": "era_1/data/100/fields/E"}, attrs=False)  # fmt: skip
def make_iterations(folder):
    for number in (0, 100, 200):
        with h5py.File(folder / f"data{number:08}.h5", "w") as file:
            for name in "xy":
                file[f"data/{number}/fields/E/{name}"] = numbers(2, 3, begin=number + ord(name))


@archive("openPMD: one name of the iteration in all files, and particles of another number in each",
         tool="openPMD-api", oracle=plain("data/0/particles", "phony_dim_2", dim="phony_dim_2"),
         choose="--concat-dim", opened={"group": "data/0/particles"}, often=False)  # fmt: skip
def make_iterations_of_one_name(folder):
    for number in range(3):
        with h5py.File(folder / f"data{number:08}.h5", "w") as file:
            file["data/0/fields/E"] = numbers(2, 3, begin=1000 * number)
            file["data/0/particles/x"] = numbers(4 + number, begin=1000 * number + 500)


@archive("Groups of which one holds the same steps in all files, and the other one goes on", tool="an imager",
         oracle=reading("a", dim="y"), choose="--combine nested", opened={"group": "a"})  # fmt: skip
def make_a_group_that_repeats(folder):
    for number in range(2):
        with netCDF4.Dataset(folder / f"part{number}.nc", "w") as file:
            for name, begin in (("a", 2 * number), ("b", 0)):
                held = file.createGroup(name)
                put(held, "y", ("y",), np.arange(2.0) + begin)
                put(held, "t", ("y",), numbers(2, begin=100 * number))


# -- eras, one of which is a step ------------------------------------------------------------------


def swaths(folder, *spec):
    """Write orbits of some lines, with the number of each."""
    for number, (time, lines) in enumerate(spec):
        with netCDF4.Dataset(folder / f"f{number}.nc", "w") as file:
            put(file, "time", ("time",), np.array([time]), units="days since 2010-01-01")
            put(file, "no2", ("time", "scan"), numbers(1, lines, begin=100 * number))
            put(file, "orbit", (), np.int32(number))


ERAS = ("--concat-dim", "scan", "--on-mismatch", "eras", "--data-vars", "orbit")


def of_day(*rows):
    """Return xarray's answer for the orbits of one day, with a number for each line."""

    def answer(files):
        held = [xr.open_dataset(files[at], decode_times=DECODED).load() for at in rows]
        given = [e.assign(orbit=("scan", np.full(e.sizes["scan"], e.orbit, "i4"))) for e in held]
        return xr.concat(given, "scan", data_vars="minimal", coords="minimal", compat="override")

    return answer


@archive("Orbits of two days, a group for each day, and a number of each orbit given for each line",
         tool="Sentinel-5P", oracle=of_day(0, 1), options=ERAS, opened={"group": "era_0"},
         attrs=False)  # fmt: skip
def make_eras_with_given_numbers(folder):
    swaths(folder, (0, 4), (0, 5), (9, 6))


@archive("The same of single orbits", tool="Sentinel-5P", oracle=of_day(1), options=ERAS,
         opened={"group": "era_1"}, attrs=False, often=False)  # fmt: skip
def make_eras_of_single_orbits(folder):
    swaths(folder, (0, 4), (9, 6))


@archive("The same of lines of one step", tool="Sentinel-5P", oracle=of_day(0, 1), options=ERAS,
         opened={"group": "era_0"}, attrs=False, often=False)  # fmt: skip
def make_eras_of_one_line(folder):
    swaths(folder, (0, 1), (0, 1), (9, 1))
