"""Groups of a file with dimensions of one name: lengths, order and proposals are those of each group."""

import netCDF4
import numpy as np
import xarray as xr

from archives.archive import DECODED, archive
from archives.writing import numbers, put


def opened(files, group):
    """Open a group of the files that have it."""
    found = []
    for each in files:
        with netCDF4.Dataset(each) as file:
            parts = group.split("/")
            held = file
            while parts and parts[0] in held.groups:
                held = held[parts.pop(0)]
        if not parts:
            found.append(xr.open_dataset(each, group=group, decode_times=DECODED).load())
    return found


def along(name, group, *, given=()):
    """Return an oracle: a group of all files, one after the other along a dimension.

    Args:
        name: Of the dimension.
        group: Of the files.
        given: Variables with one value in each file, which are repeated for each of its steps.
    """

    def answer(files):
        each_file = opened(files, group)
        repeated = [
            each.assign({v: (name, np.full(each.sizes[name], each[v].values), each[v].attrs) for v in given})
            for each in each_file
        ]  # fmt: skip
        return xr.concat(
            repeated, name, data_vars="minimal", coords="minimal", compat="override",
            combine_attrs="override",
        )  # fmt: skip

    return answer


def channels(path, sizes, *, labels=True, row=None, absent=()):
    """Write a file with a group for each channel, of which each has its own ``y``."""
    with netCDF4.Dataset(path, "w") as file:
        for number, (group, rows) in enumerate(sizes.items()):
            if group in absent:
                continue
            held = file.createGroup(group)
            values = np.asarray(rows, "f8")
            if labels:
                put(held, "y", ("y",), values)
            put(held, "data", ("y",), (values * 10 + 1000 * number).astype("f4"))
            if row is not None:
                put(held, "start_position_row", (), np.uint16(row + number))


@archive(
    "Groups whose dimensions of one name have other lengths in each file", tool="a multi-resolution imager",
    oracle=along("y", "b"), opened={"group": "b"},
)  # fmt: skip
def make_groups_of_other_lengths(folder):
    begin = np.zeros(2, int)
    for number, (one, other) in enumerate([(4, 2), (4, 4), (4, 6)]):
        channels(
            folder / f"part{number}.nc",
            {"a": begin[0] + np.arange(one), "b": begin[1] + np.arange(other)},
        )
        begin += one, other


@archive(
    "MTG FCI: body parts of a disk, resolutions in groups, the first row of each part a scalar",
    tool="EUMETSAT", oracle=along("y", "data/ir_105/measured", given=["start_position_row"]),
    choose="--data-vars", opened={"group": "data/ir_105/measured"},
)  # fmt: skip
def make_body_parts(folder):
    for part in range(3):
        channels(
            folder / f"FCI-1C-RRAD-FDHSI-FD--CHK-BODY---NC4E_C_EUMT_{part + 1:04d}.nc",
            {
                "data/vis_04/measured": 4 * part + np.arange(4),
                "data/ir_105/measured": 2 * part + np.arange(2),
            },
            row=4 * part,
        )


@archive(
    "MTG FCI: body parts, of which one lacks a channel", tool="EUMETSAT",
    oracle=along("y", "data/ir_105/measured"), opened={"group": "data/ir_105/measured"},
)  # fmt: skip
def make_body_parts_without_a_channel(folder):
    for part in range(3):
        channels(
            folder / f"BODY_{part + 1:04d}.nc",
            {
                "data/vis_04/measured": 4 * part + np.arange(4),
                "data/ir_105/measured": 2 * part + np.arange(2),
            },
            absent=["data/ir_105/measured"] if part == 1 else [],
        )


@archive(
    "Groups of which one overlaps from file to file", tool="an imager", oracle=along("y", "b"),
    choose="--combine nested", opened={"group": "b"},
)  # fmt: skip
def make_a_group_that_overlaps(folder):
    channels(folder / "part0.nc", {"a": [0, 1], "b": [0, 1]})
    channels(folder / "part1.nc", {"a": [2, 3], "b": [1, 2]})


@archive(
    "Groups of which one runs the other way", tool="an imager", oracle=along("y", "b"),
    choose="--combine nested", opened={"group": "b"},
)  # fmt: skip
def make_a_group_in_reverse(folder):
    channels(folder / "part0.nc", {"a": [0, 1], "b": [12, 13]})
    channels(folder / "part1.nc", {"a": [2, 3], "b": [10, 11]})


# -- volumes of radars -----------------------------------------------------------------------------


def volume(path, number, *, rays=(6, 6, 4), jitter=0.0, own_dates=False):
    """Write a volume as CfRadial 2 has it: a group for each sweep, rays along its azimuth."""
    date = f"2026-07-27T19:0{number}:44Z"
    with netCDF4.Dataset(path, "w") as file:
        file.setncatts({"Conventions": "CF/Radial 2", "instrument_name": "KLOT"})
        put(file, "volume_number", (), np.int32(number))
        put(file, "latitude", (), 41.6)
        for sweep, count in enumerate(rays):
            held = file.createGroup(f"sweep_{sweep}")
            shift = jitter * np.sin(np.arange(count) + number) + 0.5
            put(held, "azimuth", ("azimuth",), np.arange(count) * 360.0 / count + shift)
            put(
                held,
                "range",
                ("range",),
                (2125 + 250 * np.arange(5 + sweep)).astype("f4"),
                units="meters",
            )
            put(held, "time", ("azimuth",), np.arange(count) * 0.125 + sweep + (0 if own_dates else 60 * number),
                units=f"seconds since {date if own_dates else '2026-07-27T19:00:44Z'}")  # fmt: skip
            put(held, "elevation", ("azimuth",), numbers(count, begin=sweep + 0.01 * number))
            values = (np.arange(count * (5 + sweep)) + 100 * number).reshape(count, -1)
            put(held, "DBZH", ("azimuth", "range"), values.astype("i2"), fill=np.int16(-32768),
                scale_factor=0.01, add_offset=0.0, coordinates="elevation azimuth range")  # fmt: skip


def stacked(group, *, renamed=False, counted=False):
    """Return an oracle: a sweep of all volumes along their dates, padded where one has fewer rays.

    Args:
        group: Of the sweep.
        renamed: Whether azimuths are values of each volume, and no coordinate of all.
        counted: Whether times are converted to nanoseconds.
    """

    def answer(files):
        found = opened(files, group)
        if renamed:
            found = [
                each.assign_coords(
                    azimuth_values=("azimuth", each.azimuth.values, each.azimuth.attrs)
                ).drop_vars("azimuth")
                for each in found
            ]
        longest = max(each.sizes["azimuth"] for each in found)
        padded = [each.pad(azimuth=(0, longest - each.sizes["azimuth"])) for each in found]
        has_date = ["elevation", *(["azimuth_values"] if renamed else [])]
        made = xr.concat(
            padded, "date", data_vars="all", coords=has_date, compat="override",
            combine_attrs="override",
        )  # fmt: skip
        times = made.time.astype("datetime64[ns]")
        return made.assign(time=times) if counted else made

    return answer


def volumes(folder, **how):
    odd = how.pop("odd", 0)
    for number in range(3):
        rays = (6, 6 + odd * (number == 1), 4)
        volume(folder / f"KLOT20260727_190{number}44_V06.nc", number, rays=rays, **how)


@archive(
    "CfRadial 2: volumes of a radar with equal sweeps, a file each", tool="xradar",
    oracle=stacked("sweep_1"), choose="--labels", opened={"group": "sweep_1"},
)  # fmt: skip
def make_volumes(folder):
    volumes(folder)


@archive(
    "CfRadial 2: volumes of a radar whose azimuths differ a little", tool="xradar",
    oracle=stacked("sweep_1", renamed=True), choose="--labels", opened={"group": "sweep_1"},
)  # fmt: skip
def make_volumes_with_other_azimuths(folder):
    volumes(folder, jitter=0.1)


@archive(
    "CfRadial 2: volumes of a radar, one of which has a ray more in a sweep", tool="xradar",
    oracle=stacked("sweep_1", renamed=True), choose="--pad", opened={"group": "sweep_1"},
)  # fmt: skip
def make_volumes_with_a_ray_more(folder):
    volumes(folder, odd=1)


@archive(
    "CfRadial 2: the same, and a group for the volumes of each shape", tool="xradar",
    oracle=lambda files: stacked("sweep_1")([files[1]]),
    choose="--on-mismatch eras", opened={"group": "era_1/sweep_1"},
)  # fmt: skip
def make_volumes_in_groups(folder):
    volumes(folder, odd=1)


@archive(
    "CfRadial 2: volumes of which each counts seconds from its own date, with a ray more in one",
    tool="xradar", oracle=stacked("sweep_1", renamed=True, counted=True), choose="--pad",
    opened={"group": "sweep_1"},
)  # fmt: skip
def make_volumes_with_dates_of_their_own(folder):
    volumes(folder, odd=1, jitter=0.1, own_dates=True)


@archive(
    "CfRadial 2: the same, times of a sweep that has as many rays in all volumes", tool="xradar",
    oracle=stacked("sweep_0", renamed=True, counted=True), choose="--pad", opened={"group": "sweep_0"},
    often=False,
)  # fmt: skip
def make_volumes_with_equal_numbers_of_other_dates(folder):
    volumes(folder, odd=1, jitter=0.1, own_dates=True)
