"""Archives that are refused at first: the error prints the command that builds them."""

import warnings

import netCDF4
import numpy as np
import xarray as xr

import icevirt
from archives.archive import archive, by_coords, nested
from archives.climate_models import monthly

OUTER = by_coords(join="outer", data_vars="all")


def daily(folder, days, *, hours=24, steps=1, **variables):
    """Write files that hold values of some steps each, as functions of the first of them."""
    for day in days:
        held = {
            name: (("time", "x"), np.stack([values(day)] * steps), {"long_name": name})
            for name, values in variables.items()
            if values(day) is not None
        }
        times = np.arange(day, day + steps) * hours
        xr.Dataset(
            held, {"time": ("time", times, {"units": "hours since 2000-01-01"}), "x": [1.0, 2, 3]}
        ).to_netcdf(folder / f"day_{day:03}.nc", unlimited_dims="time")


def field(day):
    """Return the values of a day."""
    return np.arange(3, dtype="f4") + day


def absent(*days, of=field):
    """Return a function that has nothing for some days."""
    return lambda day: None if day in days else of(day)


def less(oracle, *names):
    """Return xarray's answer without some variables."""
    return lambda files: oracle(files).drop_vars(names)


# -- variables that files lack -------------------------------------------------------------------


@archive(
    "Daily files, some without a variable: an instrument was off",
    tool="xarray",
    oracle=OUTER,
    choose="--missing reserve",
)
def make_an_instrument_was_off(folder):
    daily(folder, range(5), tas=field, pr=absent(1, 3))


@archive(
    "Daily files, some without a variable, which is not wanted",
    tool="xarray",
    oracle=less(OUTER, "pr"),
    choose="--drop-variable",
)
def make_a_variable_that_is_left_out(folder):
    daily(folder, range(5), tas=field, pr=absent(1, 3))


@archive(
    "Daily files, some without a quality flag that has no _FillValue",
    tool="xarray",
    oracle=less(OUTER, "flag"),
    choose="--drop-variable /flag",
)
def make_a_flag_that_cannot_be_missing(folder):
    flag = absent(2, of=lambda day: np.array([0, 1, 2], "i1"))
    daily(folder, range(4), tas=field, flag=flag)


@archive(
    "Daily files, some without a field, some without a flag that has no _FillValue",
    tool="xarray",
    oracle=OUTER,
    choose="--missing reserve --attr /flag:_FillValue=-127",
)
def make_a_field_and_a_flag_are_missing(folder):
    flag = absent(2, of=lambda day: np.array([0, 1, 2], "i1"))
    daily(folder, range(4), tas=field, pr=absent(1), flag=flag)


@archive(
    "Daily files, some without a variable that is packed and has no _FillValue",
    tool="xarray",
    oracle=OUTER,
    choose="--missing reserve --float-variable /pr",
    attrs=False,
)
def make_a_packed_variable_is_missing(folder):
    daily(folder, range(4), tas=field, pr=absent(2, of=lambda day: np.array([0, 1, 2], "i2")))
    for file in folder.glob("*.nc"):
        with xr.open_dataset(file, decode_cf=False) as held:
            made = held.load()
        if "pr" in made:
            made["pr"].attrs["scale_factor"] = np.float32(0.5)
        made.to_netcdf(file, unlimited_dims="time")


# -- attributes ------------------------------------------------------------------------------------


@archive(
    "Yearly files with a history each, to be combined with no_conflicts",
    tool="xarray",
    oracle=by_coords(combine_attrs="drop_conflicts"),
    options=("--combine-attrs", "no_conflicts"),
    choose="--combine-attrs drop_conflicts",
)
def make_histories_that_conflict(folder):
    for year in (1999, 2000):
        monthly(year, 2, history=f"made for {year}").to_netcdf(
            folder / f"tas_{year}.nc", unlimited_dims="time",
            encoding={"time": {"units": "days since 1850-01-01", "dtype": "f8"}},
        )  # fmt: skip


@archive(
    "Yearly files of which one lacks an attribute, to be combined with identical",
    tool="xarray",
    oracle=by_coords(combine_attrs="override"),
    options=("--combine-attrs", "identical"),
    choose="--combine-attrs override",
)
def make_an_attribute_that_one_file_lacks(folder):
    for year, more in ((1999, {"comment": "preliminary"}), (2000, {})):
        monthly(year, 2, **more).to_netcdf(
            folder / f"tas_{year}.nc", unlimited_dims="time",
            encoding={"time": {"units": "days since 1850-01-01", "dtype": "f8"}},
        )  # fmt: skip


@archive(
    "Files with a history each, of which some lack a variable: two refusals, one command",
    tool="xarray",
    oracle=lambda files: OUTER(files).drop_attrs(deep=False),
    options=("--combine-attrs", "no_conflicts"),
    choose="--missing reserve --combine-attrs drop_conflicts",
)
def make_two_refusals(folder):
    daily(folder, range(3), tas=field, pr=absent(1))
    for file in sorted(folder.glob("*.nc")):
        with xr.open_dataset(file, decode_cf=False) as held:
            made = held.load()
        made.attrs["history"] = f"made as {file.name}"
        made.to_netcdf(file, unlimited_dims="time")


# -- names -----------------------------------------------------------------------------------------


@archive(
    "A variable that changed its name, in files that hold both for a while",
    tool="xarray",
    oracle=lambda files: by_coords(drop_variables="tas")(files).rename(t2m="tas"),
    options=("--concat-dim", "time", "--rename", "t2m=tas"),
    choose="--drop-variable /tas",
)
def make_two_names_at_once(folder):
    daily(folder, range(3), tas=field, t2m=field)


@archive(
    "A dimension that the command misspells",
    tool="xarray",
    oracle=by_coords(),
    options=("--concat-dim", "tme"),
    choose="--concat-dim time",
)
def make_a_misspelled_dimension(folder):
    daily(folder, range(3), tas=field)


@archive(
    "A dimension to pad that the command misspells",
    tool="xarray",
    oracle=by_coords(),
    options=("--pad", "y"),
    choose="nothing is called y",
)
def make_a_dimension_to_pad_that_is_not_there(folder):
    daily(folder, range(3), tas=field)


@archive(
    "A variable to rename that the command misspells",
    tool="xarray",
    oracle=lambda files: by_coords()(files).rename(tas="t2m"),
    options=("--concat-dim", "time", "--rename", "tass=t2m"),
    choose="--rename tas=t2m",
)
def make_a_variable_to_rename_that_is_not_there(folder):
    daily(folder, range(3), tas=field)


@archive(
    "A variable to leave out that the command misspells",
    tool="xarray",
    oracle=less(by_coords(), "pr"),
    options=("--drop-variable", "prr"),
    choose="--drop-variable /pr",
)
def make_a_variable_to_drop_that_is_not_there(folder):
    daily(folder, range(3), tas=field, pr=field)


@archive(
    "Files whose times count from a date each, of which the command names one",
    tool="xarray",
    oracle=by_coords(),
    options=("--attr", "time:units=hours since 1999-01-01"),
    choose="are converted exactly",
    attrs=False,
)
def make_times_that_a_command_moves(folder):
    for month in (1, 2, 3):
        time = ("time", np.arange(2), {"units": f"hours since 2000-{month:02}-01"})
        xr.Dataset(
            {"tas": (("time", "x"), np.stack([field(month)] * 2))}, {"time": time}
        ).to_netcdf(folder / f"m{month}.nc", unlimited_dims="time")


@archive(
    "A coordinate to compare with a tolerance that the command misspells",
    tool="xarray",
    oracle=nested("time", join="override"),
    options=("--concat-dim", "time", "--tolerance", "xx=1e-3"),
    choose="--tolerance x=0.001",
)
def make_a_coordinate_to_tolerate_that_is_not_there(folder):
    daily(folder, range(3), tas=field)
    with xr.open_dataset(folder / "day_001.nc", decode_cf=False) as held:
        made = held.load()
    made["x"] = made["x"] + 1e-9
    made.to_netcdf(folder / "day_001.nc", unlimited_dims="time")


def without_covariance(files):
    """Return xarray's answer without a variable that it warns of."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Duplicate dimension names")
        return by_coords(drop_variables="cov")(files)


@archive(
    "A covariance matrix with the dimension time twice",
    tool="xarray",
    oracle=without_covariance,
    choose="--drop-variable /cov",
)
def make_a_dimension_twice(folder):
    daily(folder, range(3), tas=field)
    for file in folder.glob("*.nc"):
        with netCDF4.Dataset(file, "a") as held:
            held.createVariable("cov", "f4", ("time", "time"))[:] = 1


# -- steps -----------------------------------------------------------------------------------------


def regular(files):
    """Return xarray's answer at steps of six hours."""
    found = by_coords()(files)
    times = xr.date_range(found.time.values[0], found.time.values[-1], freq="6h", unit="us")
    return found.reindex(time=times)


@archive(
    "Six-hourly files with gaps, of which the command says that they are daily",
    tool="xarray",
    oracle=regular,
    options=("--concat-dim", "time", "--spacing", "time=1D"),
    choose="--spacing time=6h",
)
def make_steps_of_another_length(folder):
    daily(folder, (0, 1, 4, 6), hours=6, tas=field)


@archive(
    "Files at irregular times, of which the command says that they are daily",
    tool="xarray",
    oracle=by_coords(),
    options=("--concat-dim", "time", "--spacing", "time=1D"),
    choose="steps that no file holds get no place",
)
def make_irregular_steps(folder):
    daily(folder, (0, 1, 4_000, 4_001, 9_999), hours=1, tas=field)


@archive(
    "A file whose only time is missing",
    tool="xarray",
    oracle=nested("time"),
    choose="--combine nested",
)
def make_a_time_that_is_missing(folder):
    for day in (0.0, np.nan, 48.0):
        time = ("time", [day], {"units": "hours since 2000-01-01", "_FillValue": np.nan})
        name = "lost" if np.isnan(day) else f"{day:.0f}"
        xr.Dataset({"tas": (("time", "x"), field(day)[None])}, {"time": time}).to_netcdf(
            folder / f"hour_{name}.nc", unlimited_dims="time"
        )


@archive(
    "A file whose times are not sorted",
    tool="xarray",
    oracle=nested("time"),
    choose="--combine nested",
)
def make_times_that_are_not_sorted(folder):
    daily(folder, (0, 3, 6), steps=3, tas=field)
    with xr.open_dataset(folder / "day_003.nc", decode_cf=False) as held:
        made = held.load().isel(time=[1, 0, 2])
    made.to_netcdf(folder / "day_003.nc", unlimited_dims="time")


# -- files, cost, repositories -------------------------------------------------------------------------


@archive(
    "Daily files, one of which was cut off by a full disk",
    tool="xarray",
    oracle=lambda files: by_coords()([each for each in files if "day_002" not in each]),
    choose="--max-bad-files 1",
)
def make_a_file_that_was_cut_off(folder):
    daily(folder, range(4), tas=field)
    damaged = folder / "day_002.nc"
    damaged.write_bytes(damaged.read_bytes()[:300])


@archive(
    "Years of 365 and 366 days in chunks of 30 days, of which little may be stored",
    tool="xarray",
    oracle=by_coords(),
    options=("--max-native-bytes", "100"),
    choose="--max-native-bytes 5888000",
)
def make_chunks_that_must_be_stored(folder):
    begin = 0
    for year, days in ((1999, 365), (2000, 366), (2001, 365)):
        values = np.broadcast_to(np.arange(days, dtype="f4")[:, None], (days, 2000))
        time = ("time", np.arange(begin, begin + days), {"units": "days since 1999-01-01"})
        xr.Dataset({"tas": (("time", "x"), values)}, {"time": time}).to_netcdf(
            folder / f"{year}.nc",
            unlimited_dims="time",
            encoding={"tas": {"chunksizes": (30, 2000), "zlib": True}},
        )
        begin += days


@archive(
    "Members to stack, of which the command lets no variable have the dimension",
    tool="xarray",
    oracle=nested("member", data_vars="all"),
    options=("--concat-dim", "member", "--combine", "nested", "--data-vars", "minimal"),
    choose="--data-vars all",
)
def make_members_without_a_variable(folder):
    for member in range(3):
        xr.Dataset({"tas": ("x", field(member))}, {"x": [1.0, 2, 3]}).to_netcdf(
            folder / f"m{member}.nc"
        )


@archive(
    "A repository that holds what the first days gave",
    tool="icevirt",
    oracle=by_coords(),
    choose="--mode w",
)
def make_a_repository_that_holds_a_build(folder):
    daily(folder, range(2), tas=field)
    icevirt.build(str(folder), str(folder.parent / "repo"))
    daily(folder, range(2, 4), tas=field)


@archive(
    "A repository whose dataset had a variable that the files lost",
    tool="icevirt",
    oracle=by_coords(),
    options=("--mode", "w"),
    choose="--allow-changes",
)
def make_a_variable_that_was_withdrawn(folder):
    daily(folder, range(3), tas=field, pr=field)
    icevirt.build(str(folder), str(folder.parent / "repo"))
    daily(folder, range(3), tas=field)
