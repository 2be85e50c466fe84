"""Archives whose files say one thing in several ways, because half of them went through another tool."""

import netCDF4
import numpy as np

from archives.archive import archive, by_coords
from archives.writing import put

SHAPE = (2, 12, 12)
CHUNKS = {"zlib": True, "chunksizes": (1, 12, 12)}
HOLE = (slice(None), 3, slice(2, 5))


def field(path, number, *, values=None, fill=None, calendar=None, lat=None, lat_fill=None, lat_attrs=None,
          since="days since 2000-01-01", time=None, more=None, **attrs):  # fmt: skip
    """Write two days of a field, chunks of a day; no two values of an archive are equal."""
    days = np.arange(2.0) + 2 * number if time is None else time
    values = np.arange(288, dtype="f4").reshape(SHAPE) + 288 * number if values is None else values
    with netCDF4.Dataset(path, "w") as file:
        file.createDimension("time", None)
        said = {"units": since, "standard_name": "time"}
        put(file, "time", ("time",), days, **said, **({"calendar": calendar} if calendar else {}))
        lat = np.linspace(-55, 55, 12) if lat is None else lat
        put(file, "lat", ("lat",), lat, fill=lat_fill, units="degrees_north", **(lat_attrs or {}))
        put(file, "lon", ("lon",), np.arange(0, 360, 30.0), fill=lat_fill, units="degrees_east")
        put(file, "tas", ("time", "lat", "lon"), values, fill=fill, how=CHUNKS, units="K", **attrs)
        if more is not None:
            more(file)


def holed(number, mark, kind="f4"):
    """Return values some of which are missing."""
    values = (np.arange(288).reshape(SHAPE) + 288 * number).astype(kind)
    values[HOLE] = mark
    return values


@archive("A calendar without leap days, called 365_day in half of the files", tool="cdo copy",
         oracle=by_coords())  # fmt: skip
def make_noleap_called_365_day(folder):
    for number in range(4):
        field(folder / f"y{number}.nc", number, calendar=("noleap", "365_day")[number // 2])


@archive("A calendar of leap years, called all_leap in the second file", tool="CDO",
         oracle=by_coords())  # fmt: skip
def make_all_leap_called_366_day(folder):
    for number, name in enumerate(("366_day", "all_leap", "366_day")):
        field(folder / f"y{number}.nc", number, calendar=name)


@archive("A calendar without leap days in three spellings, counted from each year", tool="NCL and CDO",
         oracle=by_coords())  # fmt: skip
def make_noleap_from_each_year(folder):
    for number, name in enumerate(("NOLEAP", "365_day", "noleap")):
        since = f"days since {2000 + number}-01-01 00:00:00"
        field(folder / f"y{number}.nc", number, calendar=name, since=since, time=[10.0, 20.5])


def observed(since, calendar):
    """Return what adds times of observation of every point, which are references."""

    def add(file):
        seconds = np.arange(288.0).reshape(SHAPE) * 60
        put(
            file,
            "obs_time",
            ("time", "lat", "lon"),
            seconds,
            how=CHUNKS,
            units=since,
            calendar=calendar,
        )

    return add


@archive("Times of observation of every point, whose reference date and calendar half of the files"
         " spell in another way", tool="a level-3 processor", oracle=by_coords())  # fmt: skip
def make_observed_since_one_date(folder):
    said = (
        ("seconds since 2000-01-01", "standard"),
        ("seconds since 2000-1-1 00:00:00", "gregorian"),
    )
    for number in range(4):
        field(folder / f"d{number}.nc", number, more=observed(*said[number % 2]))


@archive("missing_value beside an equal _FillValue in half of the files", tool="cdo copy",
         oracle=by_coords())  # fmt: skip
def make_missing_value_added(folder):
    mark = np.float32(1e20)
    for number in range(4):
        more = {"missing_value": mark} if number % 2 else {}
        field(folder / f"d{number}.nc", number, values=holed(number, mark), fill=mark, **more)


@archive("missing_value in some files, an equal _FillValue in others, both in the rest",
         tool="NCL and cdo", oracle=by_coords())  # fmt: skip
def make_missing_value_or_fill_value(folder):
    mark = np.float32(-999)
    said = (({}, mark), ({"missing_value": mark}, None), ({"missing_value": mark}, mark))
    for number, (more, fill) in enumerate(said):
        field(folder / f"d{number}.nc", number, values=holed(number, mark), fill=fill, **more)


@archive("Packed numbers, missing_value as a list beside an equal _FillValue in half of the files",
         tool="ncatted and cdo", oracle=by_coords())  # fmt: skip
def make_packed_missing_value_added(folder):
    mark, packing = np.int16(-32767), {"scale_factor": np.float32(0.1), "add_offset": np.float32(5)}
    for number in range(4):
        more = {"missing_value": np.array([mark])} if number > 1 else {}
        values = holed(number, mark, "i2")
        field(folder / f"d{number}.nc", number, values=values, fill=mark, **packing, **more)


@archive("_FillValue NaN on coordinates that have none in half of the files",
         tool="CMOR, then xarray", oracle=by_coords())  # fmt: skip
def make_nan_on_coordinates(folder):
    for number in range(4):
        field(folder / f"d{number}.nc", number, lat_fill=np.nan if number % 2 else None)


@archive("_FillValue NaN on a field that has none in half of the files", tool="R, then xarray",
         oracle=by_coords())  # fmt: skip
def make_nan_on_a_field(folder):
    for number in range(4):
        fill = np.float32("nan") if number % 2 else None
        field(folder / f"d{number}.nc", number, values=holed(number, np.nan), fill=fill)


@archive("_FillValue NaN, missing_value NaN, and none", tool="R, MATLAB and xarray",
         oracle=by_coords())  # fmt: skip
def make_nan_by_two_names(folder):
    said = (({}, None), ({"missing_value": np.float32("nan")}, None), ({}, np.float32("nan")))
    for number, (more, fill) in enumerate(said):
        field(folder / f"d{number}.nc", number, values=holed(number, np.nan), fill=fill, **more)


@archive("_FillValue NaN of scaled floats, which decode to another type where none is said",
         tool="MATLAB, then xarray", oracle=by_coords(), choose="float-variable")  # fmt: skip
def make_nan_of_scaled_floats(folder):
    for number in range(2):
        fill = np.float32("nan") if number else None
        field(folder / f"d{number}.nc", number, fill=fill, scale_factor=np.float64(2))


@archive("A missing_value that only half of the files say, whose numbers the others lack",
         tool="cdo setmissval", oracle=by_coords(), choose="native")  # fmt: skip
def make_missing_value_in_half(folder):
    for number in range(4):
        mark = np.float32(-999)
        more = {"missing_value": mark} if number % 2 else {}
        values = holed(number, mark if number % 2 else 5)
        field(folder / f"d{number}.nc", number, values=values, **more)
