"""Time coordinates that files count from several dates, in several units and several data types."""

import warnings

import netCDF4
import numpy as np
import xarray as xr

from archives.archive import archive, by_coords, nested


def finer(oracle, *names):
    """Return xarray's answer for times that are not whole microseconds, and those stored like them."""

    def answer(files):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", xr.SerializationWarning)
            found = oracle(files)
        return found.assign({name: found[name].astype("M8[ns]") for name in names})

    return answer


def write(path, time, units, *, kind="f8", calendar="standard", name="time", more=None, **attrs):
    """Write a small field along raw times, as netCDF4-python and most models do."""
    with netCDF4.Dataset(path, "w") as file:
        file.createDimension(name, None)
        file.createDimension("lat", 3)
        fill = attrs.pop("_FillValue", None)
        held = file.createVariable(name, kind, (name,), fill_value=fill)
        held.setncatts({"standard_name": "time", "units": units} | attrs)
        if calendar is not None:
            held.calendar = calendar
        held[:] = np.asarray(time, kind)
        file.createVariable("lat", "f8", ("lat",))[:] = [-30.0, 0, 30]
        field = file.createVariable("tas", "f4", (name, "lat"))
        field.units = "K"
        field[:] = np.arange(3 * len(time)).reshape(-1, 3) + len(str(path)) + np.asarray(time)[0]
        if more is not None:
            more(file)


@archive("One step a file, each with the time of the step as its reference date", tool="xarray",
         oracle=by_coords())  # fmt: skip
def make_xarray_default_time_one_step(folder):
    for number, time in enumerate(np.arange("2001-01-01", "2001-01-03", 6, dtype="M8[h]")):
        xr.Dataset(
            {"tas": (("time", "lat"), np.full((1, 3), number, "f4"))},
            {"time": time.astype("M8[ns]")[None], "lat": [-30.0, 0, 30]},
        ).to_netcdf(folder / f"s{number:02}.nc")


@archive("Hours since 1900 as 32-bit integers, then seconds since 1970 as 64-bit ones: two"
         " generations of a reanalysis", tool="CDS, legacy and new", oracle=by_coords())  # fmt: skip
def make_era5_two_generations(folder):
    for day in range(4):
        steps = np.arange(f"2024-01-{day + 1:02}", f"2024-01-{day + 2:02}", 6, dtype="M8[h]")
        if day < 2:
            hours = (steps - np.datetime64("1900-01-01T00", "h")).astype("i8")
            write(folder / f"d{day}.nc", hours, "hours since 1900-01-01 00:00:00.0", kind="i4",
                  calendar="gregorian")  # fmt: skip
        else:
            seconds = steps.astype("M8[s]").astype("i8")
            write(folder / f"d{day}.nc", seconds, "seconds since 1970-01-01", kind="i8",
                  calendar="proleptic_gregorian")  # fmt: skip


@archive("Fractions of a day as 32-bit floats, a reference date for each file", tool="a model",
         oracle=by_coords())  # fmt: skip
def make_float32_times_of_each_file(folder):
    for day in range(1, 4):
        write(folder / f"d{day}.nc", np.arange(8) / 8 + 1 / 16, f"days since 2010-06-{day:02}",
              kind="f4")  # fmt: skip


@archive("Hours as fractions of a day as 64-bit floats, a reference date for each file",
         tool="a model", oracle=by_coords())  # fmt: skip
def make_hours_as_days(folder):
    for month in (1, 5, 9):
        write(folder / f"m{month}.nc", np.arange(4) / 24, f"days since 2010-{month:02}-01")


@archive("Sevenths of a day as floats, a reference date for each file", tool="MATLAB",
         oracle=finer(by_coords()))  # fmt: skip
def make_sevenths_of_a_day(folder):
    for month in (1, 5, 9):
        write(folder / f"m{month}.nc", np.arange(1, 7) / 7, f"days since 2010-{month:02}-01")


@archive("A reference date set anew in half of the files, in another unit", tool="cdo -setreftime",
         oracle=by_coords())  # fmt: skip
def make_cdo_setreftime(folder):
    write(folder / "a1.nc", [0, 6, 12, 18], "hours since 2000-1-1 00:00:00",
          calendar="proleptic_gregorian")  # fmt: skip
    write(folder / "a2.nc", [1440, 1800], "minutes since 2000-1-1 00:00:00",
          calendar="proleptic_gregorian")  # fmt: skip
    write(folder / "a3.nc", [2.0, 2.25], "days since 2000-1-1 00:00:00",
          calendar="proleptic_gregorian")  # fmt: skip


@archive("Units changed in some files, and their type with them", tool="ncap2 -s 'time=time*24'",
         oracle=by_coords())  # fmt: skip
def make_ncap2_units(folder):
    write(folder / "a1.nc", [0, 1, 2], "days since 1990-01-01", kind="i4")
    write(folder / "a2.nc", [72.0, 96.0], "hours since 1990-01-01", kind="f8")
    write(folder / "a3.nc", [5, 6], "days since 1990-01-01", kind="i2")


@archive("Seconds since the year 1 in two calendars that agree since 1582", tool="ROMS",
         oracle=by_coords())  # fmt: skip
def make_roms_year_one(folder):
    days = {"proleptic_gregorian": 719_162, "standard": 719_164}  # to 1970-01-01
    for number, calendar in enumerate(days):
        seconds = (days[calendar] + 12_000 + 2 * number + np.arange(2)) * 86_400.0
        write(folder / f"his_{number}.nc", seconds, "seconds since 0001-01-01 00:00:00",
              calendar=calendar, name="ocean_time")  # fmt: skip


@archive("Three names of the usual calendar, and none", tool="several centers", oracle=by_coords())
def make_mixed_calendars_since_reform(folder):
    for year, calendar in zip(range(2000, 2004), ["standard", "gregorian", "proleptic_gregorian", None],
                              strict=True):  # fmt: skip
        write(folder / f"y{year}.nc", [15, 45, 75], f"days since {year}-01-01", kind="i4",
              calendar=calendar)  # fmt: skip


@archive("Months of 30 days, a reference date for each file", tool="a climate model",
         oracle=by_coords())  # fmt: skip
def make_days_360(folder):
    for year in (1850, 1851, 1860):
        write(folder / f"y{year}.nc", np.arange(12) * 30 + 15.0, f"days since {year}-01-01",
              calendar="360_day")  # fmt: skip


@archive("Months since a date, in the calendar where they have 30 days", tool="IRI data library",
         oracle=by_coords())  # fmt: skip
def make_months_since_360(folder):
    write(folder / "a.nc", np.arange(12) + 0.5, "months since 1960-01-01", calendar="360_day",
          kind="f4")  # fmt: skip
    write(folder / "b.nc", np.arange(12) + 0.5, "months since 1961-01-01", calendar="360_day",
          kind="f4")  # fmt: skip


@archive("A calendar without leap days beside the usual one", tool="two models",
         oracle=by_coords(), refused="calendar")  # fmt: skip
def make_noleap_beside_standard(folder):
    write(folder / "a.nc", [0, 1], "days since 2000-01-01", calendar="noleap")
    write(folder / "b.nc", [2, 3], "days since 2000-01-01", calendar="standard")


def bounds(days, *, units=None, kind="f8"):
    """Return what adds bounds to a file."""

    def add(file):
        file.createDimension("bnds", 2)
        edges = file.createVariable("time_bnds", kind, ("time", "bnds"))
        edges[:] = np.array(days, kind)
        file["time"].bounds = "time_bnds"
        if units is not None:
            edges.units = units

    return add


@archive("Daily means with bounds that inherit the units of each file", tool="cdo splitmon",
         oracle=by_coords())  # fmt: skip
def make_bounds_inherit_units(folder):
    for month in (1, 2, 3):
        edges = [[day, day + 1] for day in range(3)]
        write(folder / f"m{month}.nc", [0.5, 1.5, 2.5], f"days since 2001-{month:02}-01",
              more=bounds(edges))  # fmt: skip


@archive("Daily means with bounds that repeat the units of each file", tool="NCO",
         oracle=by_coords())  # fmt: skip
def make_bounds_repeat_units(folder):
    for month in (1, 2, 3):
        units = f"hours since 2001-{month:02}-01"
        edges = [[24 * day, 24 * day + 24] for day in range(3)]
        write(folder / f"m{month}.nc", [12, 36, 60], units, kind="i4",
              more=bounds(edges, units=units, kind="i4"))  # fmt: skip


def climatology(files):
    """Return xarray's answer, which decodes no bounds of climatologies: theirs are decoded here."""
    coder = xr.coders.CFDatetimeCoder(time_unit="us")
    parts = []
    for file in files:
        part = xr.open_dataset(file, decode_times=False)
        part["climatology_bounds"].attrs["units"] = part["time"].attrs["units"]
        part["climatology_bounds"].attrs["calendar"] = part["time"].attrs["calendar"]
        parts.append(xr.decode_cf(part, decode_times=coder))
    return xr.concat(parts, "time", data_vars="minimal", coords="minimal", join="exact",
                     compat="override", combine_attrs="override").load()  # fmt: skip


@archive("A climatology, whose bounds say over which years", tool="ncclimo", oracle=climatology,
         attrs=False)  # fmt: skip
def make_climatology_bounds(folder):
    def add(edges):
        def to(file):
            file.createDimension("nv", 2)
            file.createVariable("climatology_bounds", "f8", ("time", "nv"))[:] = edges
            file["time"].climatology = "climatology_bounds"
            file["climatology_bounds"].units = file["time"].units
            file["climatology_bounds"].calendar = file["time"].calendar

        return to

    for season in (1, 4, 7):
        write(folder / f"s{season}.nc", [45.0], f"days since 1981-{season:02}-01",
              more=add([[0, 10_957.0]]))  # fmt: skip


def observed(values, kind, units, **attrs):
    """Return what adds times of observations, which order nothing."""

    def add(file):
        fill = attrs.pop("_FillValue", None)
        held = file.createVariable("obs_time", kind, ("time", "lat"), fill_value=fill)
        held.units = units
        held[:] = np.asarray(values, kind)[None]

    return add


@archive("Times of observation beside the coordinate, counted from each day", tool="a level-3 processor",
         oracle=finer(by_coords(), "obs_time"))  # fmt: skip
def make_obs_time_of_each_day(folder):
    for day in range(3):
        seconds = np.array([3_600.125, 7_201.1, np.nan]) + day
        write(folder / f"d{day}.nc", [day], "days since 2020-03-01", kind="i4",
              more=observed(seconds, "f8", f"seconds since 2020-03-{day + 1:02} 00:00:00"))  # fmt: skip


@archive("Whole minutes of observation with a fill value, counted from each day",
         tool="a level-3 processor", oracle=by_coords())  # fmt: skip
def make_obs_minutes_with_fill(folder):
    for day in range(3):
        write(folder / f"d{day}.nc", [day], "days since 2020-03-01", kind="i4",
              more=observed([5, -9999, 700 + day], "i2", f"minutes since 2020-03-{day + 1:02}",
                            _FillValue=np.int16(-9999)))  # fmt: skip


@archive("A fill value inside a time coordinate", tool="ncrcat of a broken file",
         oracle=nested("time"), choose="--combine nested")  # fmt: skip
def make_fill_in_time(folder):
    write(folder / "a.nc", [0.0, 1.0], "days since 2000-01-01", _FillValue=9.96921e36)
    write(folder / "b.nc", [2.0, 9.96921e36], "days since 2000-01-01", _FillValue=9.96921e36)


@archive("Times that some files give a fill value and others do not", tool="xarray and NCO",
         oracle=by_coords())  # fmt: skip
def make_fill_value_in_some(folder):
    write(folder / "a.nc", [0.0, 1.0], "days since 2000-01-01", _FillValue=np.nan)
    write(folder / "b.nc", [2.0, 3.0], "days since 2000-01-01")


def wrf(files):
    """Return xarray's answer along the coordinate that WRF writes, a reference date for each file."""
    return finer(nested("Time"), "XTIME")(files)


@archive("Times as characters, and a coordinate in minutes since the start of each run", tool="WRF",
         oracle=wrf, options=("--concat-dim", "Time"))  # fmt: skip
def make_wrf_times(folder):
    for day in (1, 2):
        with netCDF4.Dataset(folder / f"wrfout_d01_2020-01-{day:02}_00:00:00", "w") as file:
            file.createDimension("Time", None)
            file.createDimension("DateStrLen", 19)
            file.createDimension("west_east", 3)
            times = file.createVariable("Times", "S1", ("Time", "DateStrLen"))
            texts = [f"2020-01-{day:02}_{hour:02}:00:00" for hour in (0, 12)]
            times[:] = np.array([list(each) for each in texts], "S1")
            xtime = file.createVariable("XTIME", "f4", ("Time",))
            xtime.units = f"minutes since 2020-01-{day:02} 00:00:00"
            xtime[:] = [0, 720]
            field = file.createVariable("T2", "f4", ("Time", "west_east"))
            field.coordinates = "XTIME"
            field[:] = 280.0 + day


@archive("Large fields of times of observation, counted from each day", tool="a level-3 processor",
         oracle=by_coords(), choose="--on-mismatch native")  # fmt: skip
def make_large_obs_time(folder):
    def more(day):
        def add(file):
            file.createDimension("x", 20_000)
            held = file.createVariable("obs_time", "i4", ("time", "x"), zlib=True, fill_value=-1)
            held.units = f"seconds since 2020-03-{day + 1:02} 00:00:00"
            held[:] = (np.arange(20_000, dtype="i4") - 1)[None]

        return add

    for day in range(3):
        write(folder / f"d{day}.nc", [day], "days since 2020-03-01", kind="i4", more=more(day))
