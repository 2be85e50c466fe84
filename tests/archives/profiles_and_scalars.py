"""Profiles, stations and trajectories of many lengths, texts, and small variables that vary by file.

The structure of the Argo files is that of the profiles which the data centers AOML, BODC, Coriolis,
CSIRO and KMA distribute; the values are made up.
"""

import netCDF4
import numpy as np
import xarray as xr

from archives.archive import DECODED, archive, by_coords

LEVELS = "N_LEVELS"


def opened(files, **how):
    """Return the datasets of files, as xarray decodes them."""
    return [xr.open_dataset(each, decode_times=DECODED, **how).load() for each in files]


def texts_filled(dataset, fill):
    """Return a dataset with texts in the place of what xarray calls missing texts."""
    for name, variable in dataset.variables.items():
        if variable.dtype.kind == "O":
            lacks = [isinstance(each, float) for each in variable.values.flat]
            filled = variable.values.copy()
            filled.flat[np.flatnonzero(lacks)] = fill(name)
            dataset[name] = variable.dims, filled, variable.attrs
    return dataset


def one_after_another(dim, given=(), fill=None):
    """Concatenate in the order of the files; shorter ones are filled, some variables get the dimension."""

    def answer(files):
        datasets = opened(files)
        longest = {}
        for each in datasets:
            for name, length in each.sizes.items():
                longest[name] = max(length, longest.get(name, 0))
        made = []
        for each in datasets:
            short = {
                name: (0, longest[name] - length)
                for name, length in each.sizes.items()
                if name != dim and length < longest[name]
            }
            padded = each.pad(short) if short else each
            made.append(
                padded.assign({n: padded[n].expand_dims({dim: padded.sizes[dim]}) for n in given})
            )
        found = xr.concat(
            made, dim, data_vars="minimal", coords="minimal", compat="override",
            join="outer", combine_attrs="override",
        )  # fmt: skip
        return found if fill is None else texts_filled(found, fill)

    return answer


# -- small variables that vary by file ---------------------------------------------------------


def overpass(number, steps=3):
    """Return a granule of a satellite, with what its processor says of this file alone."""
    time = np.arange(number * steps, (number + 1) * steps)
    return xr.Dataset(
        {"sst": (("time", "x"), np.full((steps, 2), 280.0 + number, "f4"), {"units": "K"}),
         "orbit": ((), np.int32(1200 + number)),
         "reference_time": ((), np.float64(3600 * number), {"units": "seconds since 2020-01-01"}),
         "sun_distance": ((), np.float32(0.98 + number / 100), {"units": "AU"}),
         "calibration": (("band",), np.array([number, 2.0], "f4")),
         "band": (("band",), np.array([3.7, 11.0], "f4"), {"units": "um"})},
        {"time": ("time", time, {"units": "hours since 2020-01-01"})},
    )  # fmt: skip


@archive(
    "Overpasses with four small variables that differ in every file (orbit, reference time ...)",
    tool="xarray", choose="--data-vars calibration",
    oracle=one_after_another(
        "time", ("orbit", "reference_time", "sun_distance", "calibration")
    ),
)  # fmt: skip
def make_overpasses_with_varying_scalars(folder):
    for number in range(3):
        overpass(number).to_netcdf(folder / f"pass{number}.nc")


@archive(
    "The same, left out instead", tool="xarray", choose="--drop-variable",
    oracle=by_coords(
        preprocess=lambda each: each.drop_vars(["orbit", "reference_time", "sun_distance", "calibration"])
    ),
)  # fmt: skip
def make_overpasses_without_varying_scalars(folder):
    make_overpasses_with_varying_scalars.make(folder)


@archive(
    "Daily files that say in characters and in a string when they were made",
    tool="netCDF4", choose="--data-vars date_created",
    oracle=one_after_another("time", ("date_created", "product_id")),
)  # fmt: skip
def make_dates_of_creation(folder):
    for day in range(3):
        with netCDF4.Dataset(folder / f"day{day}.nc", "w") as file:
            file.createDimension("time", None)
            file.createDimension("DATE_TIME", 14)
            time = file.createVariable("time", "i4", ("time",))
            time.units, time[:] = "days since 2020-01-01", [day]
            file.createVariable("u", "f4", ("time",))[:] = [day]
            made = file.createVariable("date_created", "S1", ("DATE_TIME",))
            made[:] = np.array(list(f"2024010{day}000000"), "S1")
            file.createVariable("product_id", str, ())[...] = f"P-{day}"


# -- Argo ------------------------------------------------------------------------------------------

BLANK = {"_FillValue": " "}


def argo(
    path, profiles, levels, params=("PRES", "TEMP"), history=2, cycle=1, made="20200101000000"
):
    """Write profiles of a float: the structure of the Argo user's manual, version 3.1."""
    with netCDF4.Dataset(path, "w", format="NETCDF3_CLASSIC") as file:
        file.title, file.Conventions = "Argo float vertical profile", "Argo-3.1 CF-1.6"
        for size in (256, 64, 32, 16, 8, 4, 2):
            file.createDimension(f"STRING{size}", size)
        file.createDimension("DATE_TIME", 14)
        sizes = {"N_PROF": profiles, "N_PARAM": len(params), LEVELS: levels, "N_CALIB": 1}
        for name, size in sizes.items():
            file.createDimension(name, size)
        file.createDimension("N_HISTORY", None)

        def chars(name, dims, value, **attrs):
            made = file.createVariable(name, "S1", dims, fill_value=" ")
            made.setncatts(attrs)
            shape = [len(file.dimensions[each]) for each in dims]
            if dims[0] == "N_HISTORY":
                shape[0] = history
            if 0 not in shape:
                width = shape[-1] if dims[-1].startswith(("STRING", "DATE")) else 1
                text = np.array([f"{value:<{width}}"], f"S{width}").view("S1")
                made[:] = np.broadcast_to(text, shape)

        chars("DATA_TYPE", ("STRING16",), "Argo profile", conventions="Argo reference table 1")
        chars("FORMAT_VERSION", ("STRING4",), "3.1")
        chars("REFERENCE_DATE_TIME", ("DATE_TIME",), "19500101000000")
        chars("DATE_CREATION", ("DATE_TIME",), made, conventions="YYYYMMDDHHMISS")
        chars("DATE_UPDATE", ("DATE_TIME",), "20210101000000", conventions="YYYYMMDDHHMISS")
        chars(
            "PLATFORM_NUMBER", ("N_PROF", "STRING8"), "13857", long_name="Float unique identifier"
        )
        station = file.createVariable(
            "STATION_PARAMETERS", "S1", ("N_PROF", "N_PARAM", "STRING16"), fill_value=" "
        )
        for at, param in enumerate(params):
            station[:, at] = np.array([f"{param:<16}"], "S16").view("S1")
        numbers = file.createVariable("CYCLE_NUMBER", "i4", ("N_PROF",), fill_value=99999)
        numbers[:] = cycle + np.arange(profiles)
        chars("DATA_MODE", ("N_PROF",), "R")
        day = file.createVariable("JULD", "f8", ("N_PROF",), fill_value=999999.0)
        day.units, day[:] = (
            "days since 1950-01-01 00:00:00 UTC",
            17000 + cycle + np.arange(profiles),
        )
        for name in ("LATITUDE", "LONGITUDE"):
            place = file.createVariable(name, "f8", ("N_PROF",), fill_value=99999.0)
            place[:] = 0.5 * cycle
        for param in params:
            chars(f"PROFILE_{param}_QC", ("N_PROF",), "A")
            held = file.createVariable(param, "f4", ("N_PROF", LEVELS), fill_value=99999.0)
            held[:] = np.arange(profiles * levels).reshape(profiles, levels) + cycle
            chars(f"{param}_QC", ("N_PROF", LEVELS), "1", long_name="quality flag")
        chars("SCIENTIFIC_CALIB_COMMENT", ("N_PROF", "N_CALIB", "N_PARAM", "STRING256"), "none")
        chars("HISTORY_INSTITUTION", ("N_HISTORY", "N_PROF", "STRING4"), "AO")
        chars("HISTORY_DATE", ("N_HISTORY", "N_PROF", "DATE_TIME"), made)
        pressures = file.createVariable(
            "HISTORY_START_PRES", "f4", ("N_HISTORY", "N_PROF"), fill_value=99999.0
        )
        if history:
            pressures[:] = np.full((history, profiles), cycle)


WIDTHS = {"STATION_PARAMETERS": 16, "SCIENTIFIC_CALIB_COMMENT": 256, "HISTORY_INSTITUTION": 4,
          "HISTORY_DATE": 14, "PLATFORM_NUMBER": 8}  # fmt: skip


def blanks(name):
    """Return what Argo writes where there is no text."""
    return b" " * WIDTHS[name] if name in WIDTHS else np.nan


profiles_of_argo = one_after_another("N_PROF", ("DATE_CREATION",), blanks)


@archive(
    "Argo: profiles of a float, a file each; levels, parameters and records of history differ",
    tool="Argo data center", options=("--concat-dim", "N_PROF"), choose="--pad N_HISTORY",
    oracle=profiles_of_argo,
)  # fmt: skip
def make_argo_profiles(folder):
    argo(folder / "R13857_001.nc", 1, 5, history=2, cycle=1)
    argo(folder / "R13857_002.nc", 2, 7, history=0, cycle=2, made="20200111000000")
    argo(folder / "R13857_003.nc", 1, 4, history=3, cycle=4, made="20200121000000")


@archive(
    "Argo: some profiles have an oxygen sensor", tool="Argo data center",
    options=("--concat-dim", "N_PROF"), choose="--missing reserve",
    oracle=profiles_of_argo,
)  # fmt: skip
def make_argo_profiles_of_different_parameters(folder):
    argo(folder / "BR_001.nc", 1, 5, ("PRES", "TEMP", "DOXY"), cycle=1)
    argo(folder / "BR_002.nc", 1, 4, cycle=2, made="20200111000000")


@archive(
    "Argo: all profiles of a float in one file, for several floats, without history",
    tool="Argo data center", options=("--concat-dim", "N_PROF"), choose="--pad",
    oracle=profiles_of_argo,
)  # fmt: skip
def make_argo_floats(folder):
    argo(folder / "13857_prof.nc", 3, 5, history=0)
    argo(
        folder / "2901746_prof.nc",
        2,
        6,
        ("PRES",) * 0 + ("PRES", "TEMP"),
        history=0,
        made="20200111000000",
    )


# -- stations, gliders, moorings -------------------------------------------------------------------


def names_of(folder, groups, **how):
    """Write stations with names, a file for each group of names."""
    number = 0
    for at, names in enumerate(groups):
        xr.Dataset(
            {"t": (("station",), np.arange(number, number + len(names), dtype="f4")),
             "name": (("station",), np.array(names)),
             "code": (("station",), np.array([each[:2].encode() for each in names]))},
            {"station": np.arange(number, number + len(names))},
        ).to_netcdf(folder / f"network{at}.nc", **how)  # fmt: skip
        number += len(names)


@archive(
    "Stations with names in characters, as long as the longest name of each file",
    tool="xarray (NetCDF-3)",
    oracle=by_coords(),
)
def make_station_names_of_different_lengths(folder):
    names_of(folder, [["Bern", "Rom"], ["Reykjavik"], ["Oslo", "Kyiv"]], format="NETCDF3_64BIT")


@archive("Stations with names as strings", tool="xarray (NetCDF-4)", oracle=by_coords())
def make_station_names_as_strings(folder):
    names_of(folder, [["Bern", "Rom"], ["Reykjavik"], ["Oslo", "Kyiv"]])


@archive(
    "Stations with names in characters that one dimension counts, of different length in files",
    tool="netCDF4",
    oracle=by_coords(),
)
def make_station_names_of_one_dimension(folder):
    for at, names in enumerate((["Bern", "Rom"], ["Reykjavik"])):
        width = max(map(len, names))
        with netCDF4.Dataset(folder / f"net{at}.nc", "w") as file:
            file.createDimension("station", len(names))
            file.createDimension("name_strlen", width)
            file.createVariable("station", "i4", ("station",))[:] = np.arange(len(names)) + 2 * at
            held = file.createVariable("station_name", "S1", ("station", "name_strlen"))
            held.cf_role = "timeseries_id"
            held[:] = np.array(names, f"S{width}").view("S1").reshape(-1, width)
            file.createVariable("t", "f4", ("station",))[:] = at


@archive(
    "A glider (EGO): segments of one mission, with the date when each file was made",
    tool="EGO processing chain", choose="--data-vars DATE_CREATION",
    oracle=one_after_another("TIME", ("DATE_CREATION",)),
)  # fmt: skip
def make_glider_segments(folder):
    for segment in range(2):
        with netCDF4.Dataset(folder / f"seg{segment}.nc", "w") as file:
            file.createDimension("TIME", None)
            file.createDimension("DATE_TIME", 14)
            file.createDimension("STRING32", 32)
            time = file.createVariable("TIME", "f8", ("TIME",))
            time.units = "seconds since 1970-01-01T00:00:00Z"
            time[:] = 100.0 * segment + np.arange(4 + segment)
            file.createVariable("PRES", "f4", ("TIME",), fill_value=99999.0)[:] = segment
            quality = file.createVariable("PRES_QC", "i1", ("TIME",), fill_value=-128)
            quality.flag_values, quality[:] = np.array([0, 1, 4], "i1"), 1
            for name, dim, text in (
                ("PLATFORM_TYPE", "STRING32", f"{'slocum':<32}"),
                ("DATE_CREATION", "DATE_TIME", f"2020010{segment + 1}000000"),
            ):
                held = file.createVariable(name, "S1", (dim,), fill_value=" ")
                held[:] = np.array([text]).astype("S").view("S1")


@archive(
    "Drifters (parcels): as many steps as the longest trajectory of each run",
    tool="parcels", options=("--concat-dim", "trajectory"), choose="--pad obs",
    oracle=one_after_another("trajectory"),
)  # fmt: skip
def make_trajectories_of_drifters(folder):
    for run, steps in enumerate((4, 6)):
        xr.Dataset(
            {"lon": (("trajectory", "obs"), np.arange(2 * steps, dtype="f4").reshape(2, steps)),
             "z": (("trajectory", "obs"), np.full((2, steps), run, "f8")),
             "age": (("trajectory", "obs"), np.ones((2, steps), "i4"), {"_FillValue": -1})},
        ).to_netcdf(folder / f"run{run}.nc", encoding={"lon": {"_FillValue": np.float32(np.nan)}})  # fmt: skip


@archive(
    "The same with numbers that have no missing value",
    tool="netCDF4", options=("--concat-dim", "trajectory"), choose="--attr /status",
    oracle=one_after_another("trajectory"),
)  # fmt: skip
def make_trajectories_of_drifters_with_plain_integers(folder):
    for run, steps in enumerate((3, 5)):
        with netCDF4.Dataset(folder / f"run{run}.nc", "w") as file:
            file.createDimension("trajectory", 2)
            file.createDimension("obs", steps)
            file.createVariable("lon", "f4", ("trajectory", "obs"))[:] = run
            file.createVariable("status", "i4", ("trajectory", "obs"))[:] = run


@archive(
    "Argo: only the shorter profile has oxygen", tool="Argo data center",
    options=("--concat-dim", "N_PROF"), choose="--pad", oracle=profiles_of_argo,
)  # fmt: skip
def make_argo_oxygen_of_the_shorter_profile(folder):
    argo(folder / "BR_001.nc", 1, 4, ("PRES", "TEMP", "DOXY"), cycle=1)
    argo(folder / "BR_002.nc", 1, 6, ("PRES", "TEMP"), cycle=2, made="20200111000000")


@archive(
    "Stations that their names order, in characters of different length", tool="netCDF4",
    oracle=by_coords(),
)  # fmt: skip
def make_stations_ordered_by_names(folder):
    for at, names in enumerate((["Oslo", "Rom"], ["Berlin", "Bern"])):
        width = max(map(len, names))
        with netCDF4.Dataset(folder / f"net{at}.nc", "w") as file:
            file.createDimension("station", len(names))
            file.createDimension(f"string{width}", width)
            held = file.createVariable("station", "S1", ("station", f"string{width}"))
            held[:] = np.array(names, f"S{width}").view("S1").reshape(-1, width)
            file.createVariable("t", "f4", ("station",))[:] = at


@archive(
    "Names that are characters in one file and strings in the next", tool="xarray",
    oracle=by_coords(), refused="data type",
)  # fmt: skip
def make_names_of_two_types(folder):
    for at, names in enumerate((np.array([b"Bern"]), np.array(["Oslo"]))):
        made = xr.Dataset({"name": ("station", names)}, {"station": [at]})
        made.to_netcdf(folder / f"net{at}.nc")


def ragged(files):
    """Concatenate the variables of each dimension by themselves."""
    datasets = opened(files)
    parts = []
    for dim in ("casts", "z_obs"):
        names = [name for name, held in datasets[0].variables.items() if dim in held.dims]
        parts.append(xr.concat([each[names] for each in datasets], dim, combine_attrs="override"))
    return xr.merge(parts, combine_attrs="override")


@archive(
    "World Ocean Database: contiguous ragged arrays, casts and their observations follow one another",
    tool="WODselect", options=("--concat-dim", "casts"), choose="--concat-dim z_obs",
    oracle=ragged,
)  # fmt: skip
def make_ragged_casts(folder):
    number = 0
    for at, counts in enumerate(([3, 2], [4], [1, 1, 2])):
        with netCDF4.Dataset(folder / f"wod_{at}.nc", "w") as file:
            file.featureType = "profile"
            file.createDimension("casts", len(counts))
            file.createDimension("z_obs", sum(counts))
            file.createDimension("strnlen", 10)
            casts = file.createVariable("wod_unique_cast", "i4", ("casts",))
            casts[:] = np.arange(len(counts)) + 100 * at
            size = file.createVariable("z_row_size", "i4", ("casts",))
            size.sample_dimension, size[:] = "z_obs", counts
            country = file.createVariable("country", "S1", ("casts", "strnlen"))
            country[:] = (
                np.array([f"{'NORWAY':<10}"] * len(counts), "S10").view("S1").reshape(-1, 10)
            )
            file.createVariable("z", "f4", ("z_obs",))[:] = np.arange(sum(counts)) + number
            held = file.createVariable("Temperature", "f4", ("z_obs",), fill_value=-1e10)
            held[:] = np.arange(sum(counts)) / 10 + at
            number += sum(counts)


def runs_of(folder, **files):
    for name, made in files.items():
        made.to_netcdf(folder / f"{name}.nc")


def run_of(member, **more):
    return xr.Dataset(
        {"tas": (("time", "x"), np.full((2, 3), member, "f4"), {"units": "K"}), **more},
        {"time": ("time", [0, 1], {"units": "days since 2000-01-01"}), "x": ("x", [1.0, 2, 3])},
    )


AREA = (("x",), np.array([5.0, 6, 7], "f4"), {"units": "m2"})
MEMBERS = ("--concat-dim", "member", "--labels", r"regex:_(r\d)\.nc")


def members(files):
    """Stack runs; what one of them holds alone has no member."""
    alone = {n for each in opened(files) for n in each.data_vars} - {"tas"}
    found = xr.concat([each[["tas"]] for each in opened(files)], "member", combine_attrs="override")
    for each in opened(files):
        found = found.assign({name: each[name] for name in alone if name in each})
    return found.assign_coords(member=[f"r{n + 1}" for n in range(len(files))])


@archive(
    "An ensemble of which one member holds the area of the cells", tool="CMOR", options=MEMBERS,
    oracle=members,
)  # fmt: skip
def make_area_of_one_member(folder):
    runs_of(folder, tas_r1=run_of(1), tas_r2=run_of(2, areacella=AREA), tas_r3=run_of(3))


def days(files):
    first, *others = opened(files)
    made = xr.concat([first.drop_vars("mask"), *others], "time", data_vars="minimal")
    return made.assign(mask=first["mask"])


@archive(
    "Days of which the first file alone holds the mask of the land", tool="xarray", oracle=days
)  # fmt: skip
def make_mask_in_the_first_file(folder):
    for day in range(3):
        mask = {"mask": (("x",), np.array([1, 0, 1], "i1"))} if not day else {}
        made = run_of(day, **mask).isel(time=[0])
        made["time"] = "time", [day], {"units": "days since 2000-01-01"}
        made.to_netcdf(folder / f"day{day}.nc")


@archive(
    "A mooring (OceanSITES): deployments in a file each, times and texts of each deployment",
    tool="OceanSITES", choose="--data-vars", oracle=one_after_another("TIME", ("deployment",)),
)  # fmt: skip
def make_mooring_deployments(folder):
    for number in range(2):
        with netCDF4.Dataset(folder / f"OS_MOORING_2020{number + 1}_D.nc", "w") as file:
            file.data_type, file.format_version = "OceanSITES time-series data", "1.3"
            for name, size in {"TIME": None, "DEPTH": 2, "LATITUDE": 1}.items():
                file.createDimension(name, size)
            time = file.createVariable("TIME", "f8", ("TIME",))
            time.units, time[:] = (
                "days since 1950-01-01T00:00:00Z",
                25567.5 + 3 * number + np.arange(3),
            )
            depth = file.createVariable("DEPTH", "f4", ("DEPTH",))
            depth.positive, depth[:] = "down", [10, 50]
            file.createVariable("LATITUDE", "f4", ("LATITUDE",))[:] = 59.5
            temp = file.createVariable("TEMP", "f4", ("TIME", "DEPTH"), fill_value=99999.0)
            temp[:] = np.arange(6).reshape(3, 2) + number
            quality = file.createVariable("TEMP_QC", "i1", ("TIME", "DEPTH"), fill_value=-128)
            quality[:] = 1
            file.createVariable("deployment", str, ())[...] = f"MOORING-{number + 1}"


def years_of_runs(files):
    runs = [xr.concat(opened(files[at : at + 2]), "time", data_vars="minimal") for at in (0, 2)]
    return xr.concat(runs, "member").assign_coords(member=["r1", "r2"])


@archive(
    "Runs in a file for each year, with a series over time that differs between runs",
    tool="xarray",
    options=("--concat-dim", "member", "--concat-dim", "time", "--labels", MEMBERS[-1].replace("regex", "member=regex")),
    choose="--data-vars member:forcing",
    oracle=years_of_runs,
)  # fmt: skip
def make_series_that_differ_between_runs(folder):
    for run in (1, 2):
        for year in range(2):
            forcing = ("time",), np.array([run, year], "f8")
            made = run_of(run, forcing=forcing)
            made["time"] = "time", [2 * year, 2 * year + 1], {"units": "days since 2000-01-01"}
            made.to_netcdf(folder / f"r{run}_{year}_r{run}.nc")


@archive(
    "Stations of an index that counts within each file (indexed ragged arrays)", tool="netCDF4",
    options=("--concat-dim", "station", "--concat-dim", "obs"), choose="--drop-variable",
    oracle=lambda files: xr.merge(
        [
            xr.concat([each[[name]] for each in opened(files)], dim)
            for name, dim in (("lat", "station"), ("t", "obs"))
        ]
    ),
)  # fmt: skip
def make_indexed_ragged_stations(folder):
    for at in range(2):
        with netCDF4.Dataset(folder / f"net{at}.nc", "w") as file:
            file.createDimension("station", 2)
            file.createDimension("obs", 3 + at)
            file.createVariable("lat", "f4", ("station",))[:] = [at, at + 0.5]
            index = file.createVariable("station_index", "i4", ("obs",))
            index.instance_dimension, index[:] = "station", 0
            file.createVariable("t", "f4", ("obs",))[:] = at
