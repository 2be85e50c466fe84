"""Archives whose files store in several ways what is one: durations, labels, values of grid mappings."""

import netCDF4
import numpy as np
import xarray as xr

from archives.archive import DECODED, archive, by_coords
from archives.spellings import field
from archives.writing import put


def without(*names):
    """Return xarray's answer for variables whose values mean nothing: they are the first file's."""

    def answer(files):
        coder = {"decode_times": DECODED, "decode_coords": False}
        parts = [xr.open_dataset(file, **coder).load() for file in files]
        first, how = parts[0], {"data_vars": "minimal", "coords": "minimal", "join": "exact"}
        parts = [part.drop_vars(names) for part in parts]
        found = xr.combine_by_coords(parts, combine_attrs="override", compat="no_conflicts", **how)
        return found.assign({name: first[name] for name in names})

    return answer


# -- durations and times ---------------------------------------------------------------------------


@archive("A forecast step that one file holds in hours and the next in days", tool="xarray",
         oracle=by_coords(decode_timedelta=True), opened={"decode_timedelta": True})  # fmt: skip
def make_step_in_other_units(folder):
    for number, (kind, unit) in enumerate((("i8", "hours"), ("f8", "days"), ("i4", "minutes"))):
        made = xr.Dataset(
            {"t2m": (("time", "x"), np.arange(24.0).reshape(2, 12) + 24 * number)},
            {"time": np.array([2 * number, 2 * number + 1], "M8[D]").astype("M8[ns]"),
             "step": np.timedelta64(36, "h").astype("m8[ns]"), "x": np.arange(12.0)},
        )  # fmt: skip
        how = {"step": {"units": unit, "dtype": kind}, "time": {"units": "days since 1970-01-01"}}
        made.to_netcdf(folder / f"run{number}.nc", encoding=how)


@archive("Lead times of a dimension, in hours and in fractions of a day", tool="two centers",
         oracle=by_coords(decode_timedelta=True), opened={"decode_timedelta": True})  # fmt: skip
def make_lead_times_in_other_units(folder):
    def leads(unit, values):
        def add(file):
            put(
                file,
                "lead",
                ("lead",),
                np.array(values),
                units=unit,
                standard_name="forecast_period",
            )
            put(file, "error", ("time", "lead"), np.ones((2, 3), "f4"))

        return add

    for number in range(4):
        said = ("hours", [0.0, 6, 12]) if number % 2 else ("days", [0.0, 0.25, 0.5])
        field(folder / f"r{number}.nc", number, more=leads(*said))


@archive("One date of analysis, in hours in one file and in seconds in the next", tool="two centers",
         oracle=by_coords())  # fmt: skip
def make_reference_time_in_other_units(folder):
    said = ("hours since 2000-01-01", 36, "i4"), ("seconds since 2000-01-02", 43_200.0, "f8"), (
        "days since 1999-12-31 12:00", 2.0, "f4")  # fmt: skip
    for number, (units, value, kind) in enumerate(said):

        def add(file, units=units, value=value, kind=kind):
            put(file, "analysis", (), np.array(value, kind), units=units)

        field(folder / f"r{number}.nc", number, more=add)


@archive("A forecast step that is another one in the next file", tool="xarray",
         oracle=by_coords(data_vars=["tas", "step"]), choose="--data-vars step")  # fmt: skip
def make_step_that_differs(folder):
    for number in range(3):

        def add(file, number=number):
            put(file, "step", (), np.int32(6 * number), units="hours since 2000-01-01")

        field(folder / f"r{number}.nc", number, more=add)


# -- labels ----------------------------------------------------------------------------------------


@archive("Latitudes of 32 and of 64 bits, and whole numbers", tool="R and Python", oracle=by_coords())  # fmt: skip
def make_latitudes_of_other_types(folder):
    for number, kind in enumerate(("f8", "f4", "i4", "f8")):
        field(folder / f"d{number}.nc", number, lat=np.arange(-55, 56, 10).astype(kind))


@archive("Latitudes packed in half of the files", tool="ncpdq", oracle=by_coords())
def make_latitudes_packed(folder):
    for number in range(4):
        lat = np.arange(-55.0, 56, 10)
        said = {"scale_factor": 0.5} if number % 2 else {}
        held = (2 * lat).astype("i2") if said else lat
        field(folder / f"d{number}.nc", number, lat=held, lat_attrs=said)


# -- grid mappings ---------------------------------------------------------------------------------


def mapping(value, name="crs", dims=(), **said):
    """Return what adds the variable of a grid mapping."""

    def add(file):
        put(file, name, dims, value, grid_mapping_name="transverse_mercator",
            longitude_of_central_meridian=9.0, **said)  # fmt: skip

    return add


@archive("A grid mapping that is 0 in one file and a fill value in the next", tool="two processors",
         oracle=without("crs"))  # fmt: skip
def make_mapping_of_other_value(folder):
    for number, value in enumerate((0, -2147483647, 1)):
        field(folder / f"s{number}.nc", number, more=mapping(np.int32(value)), grid_mapping="crs")


@archive("A grid mapping that is a character in half of the files and a number in the others",
         tool="GDAL, then rioxarray", oracle=without("crs"))  # fmt: skip
def make_mapping_of_other_type(folder):
    for number in range(4):
        value = np.array(b"", "S1") if number % 2 else np.int64(0)
        field(folder / f"s{number}.nc", number, more=mapping(value), grid_mapping="crs: lat lon")


@archive(
    "Two grid mappings, NaN and 0 in turn",
    tool="a processor",
    oracle=without("crs", "geographic"),
)
def make_two_mappings(folder):
    for number in range(2):

        def add(file, number=number):
            mapping(np.float64(np.nan if number else 0))(file)
            put(file, "geographic", (), np.int32(number), grid_mapping_name="latitude_longitude")

        field(folder / f"s{number}.nc", number, more=add, grid_mapping="crs: lat geographic: lon")


@archive("A grid mapping whose value is the code of another zone", tool="a processor",
         oracle=without("crs"), refused="/crs does not have the dimension")  # fmt: skip
def make_mapping_of_other_code(folder):
    for number, zone in enumerate((32, 33)):
        more = mapping(np.int32(32600 + zone))
        field(folder / f"s{number}.nc", number, more=more, grid_mapping="crs")


def project(zone):
    """Return what adds the projection of a UTM zone, in a variable of its own name."""

    def add(file):
        put(file, f"utm{zone}", (), np.int32(0), grid_mapping_name="transverse_mercator",
            longitude_of_central_meridian=6.0 * zone - 183)  # fmt: skip

    return add


@archive("Zones 32 and 33 of UTM with equal x and y", tool="two tiles", oracle=by_coords(),
         refused="project their grid in several ways")  # fmt: skip
def make_two_utm_zones(folder):
    for number, zone in enumerate((32, 33)):
        central = 6.0 * zone - 183

        def add(file, central=central):
            put(file, "crs", (), np.int32(0), grid_mapping_name="transverse_mercator",
                longitude_of_central_meridian=central)  # fmt: skip

        field(folder / f"s{number}.nc", number, more=add, grid_mapping="crs")


@archive("Zones 32 and 33 of UTM, each in a variable of its own", tool="two tiles", oracle=by_coords(),
         refused="project their grid in several ways")  # fmt: skip
def make_two_utm_variables(folder):
    for number, zone in enumerate((32, 33)):
        field(folder / f"s{number}.nc", number, more=project(zone), grid_mapping=f"utm{zone}")


@archive("Zones 32 and 33 of UTM, which only an attribute of the field says", tool="ArcGIS", oracle=by_coords(),
         refused="project their grid in several ways")  # fmt: skip
def make_two_zones_of_arcgis(folder):
    for number, zone in enumerate((32, 33)):
        field(
            folder / f"s{number}.nc", number, esri_pe_string=f'PROJCS["WGS_1984_UTM_Zone_{zone}N"]'
        )


# -- labels along which files follow one another ---------------------------------------------------


def in_unit(name, unit, factors):
    """Return xarray's answer after labels and their bounds are converted by hand."""

    def convert(held):
        factor = factors[held[name].attrs["units"]]
        for each in (name, f"{name}_bnds"):
            if each in held:
                numbers = held[each].values * (
                    factor if held[each].dtype.kind == "i" else float(factor)
                )
                held = held.assign({each: (held[each].dims, numbers, held[each].attrs)})
        held[name].attrs["units"] = unit
        return held

    return by_coords(preprocess=convert)


def layers(path, number, values, unit, kind, *, bounds=True):
    with netCDF4.Dataset(path, "w") as file:
        said = {"units": unit} | ({"bounds": "level_bnds"} if bounds else {})
        put(file, "level", ("level",), np.array(values, kind), **said)
        if bounds:
            ends = np.array(values)[:, None] + np.array([-0.25, 0.25])
            put(file, "level_bnds", ("level", "nv"), ends)
        field = np.arange(6.0).reshape(len(values), -1) + 10 * number
        put(file, "u", ("level", "x"), field)


@archive("Heights in meters that go on in kilometers, with bounds", tool="two models",
         oracle=in_unit("level", "m", {"m": 1, "km": 1000}))  # fmt: skip
def make_heights_in_kilometers(folder):
    layers(folder / "low.nc", 0, [100.0, 400.0], "m", "f8")
    layers(folder / "middle.nc", 1, [0.5, 0.75], "km", "f8")
    layers(folder / "high.nc", 2, [2.0, 4.0], "km", "f4")


@archive("Pressures in Pa among pressures in hPa, as integers", tool="two centers",
         oracle=in_unit("level", "Pa", {"Pa": 1, "hPa": 100}), attrs=False)  # fmt: skip
def make_pressures_in_hectopascal(folder):
    layers(folder / "a.nc", 0, [1000, 850], "hPa", "i8", bounds=False)
    layers(folder / "b.nc", 1, [50000, 30000], "Pa", "i8", bounds=False)
