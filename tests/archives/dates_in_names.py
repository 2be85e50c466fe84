"""Archives without a time dimension: names, folders and attributes say when a file is from."""

import numpy as np
import pandas as pd
import xarray as xr

from archives.archive import DECODED, archive, by_coords


def grid(value, name="sst", **attrs):
    """Return a map of one moment, without a time."""
    values = np.arange(12, dtype="f4").reshape(3, 4) + value
    return xr.Dataset(
        {name: (("lat", "lon"), values, {"units": "K"})},
        {"lat": ("lat", [-10.0, 0, 10], {"units": "degrees_north"}),
         "lon": ("lon", [0.0, 1, 2, 3], {"units": "degrees_east"})},
        attrs,
    )  # fmt: skip


def times(*texts, dim="time"):
    """Stack the files along a new axis with these dates, as ``preprocess=expand_dims`` does."""

    def answer(files):
        opened = [xr.open_dataset(file, decode_times=DECODED).load() for file in files]
        index = pd.DatetimeIndex(texts).as_unit("us").rename(dim)
        order = np.argsort(index, kind="stable")
        return xr.concat(
            [opened[at] for at in order], index[order],
            data_vars="all", coords="minimal", compat="equals", join="exact",
            combine_attrs="override",
        )  # fmt: skip

    return answer


def box(outer, inner):
    """Stack files along two new dimensions: a file for each pair of labels, the inner ones first."""

    def answer(files):
        (one, first), (other, second) = outer, inner
        opened = iter([xr.open_dataset(file, decode_times=DECODED).load() for file in files])
        how = {"data_vars": "all", "coords": "minimal", "compat": "equals", "join": "exact",
               "combine_attrs": "override"}  # fmt: skip
        rows = [
            xr.concat([next(opened) for _ in second], pd.Index(second, name=other), **how)
            for _ in first
        ]
        found = xr.concat(rows, pd.Index(first, name=one), **how)
        # the engine shows texts as it shows those of netCDF files
        found = found.assign_coords({one: np.asarray(first)})
        return found.transpose(one, other, ...)

    return answer


HOURS = ("20240011200206_e20240011209514_c20240011209583",
         "20240011210206_e20240011219514_c20240011219589",
         "20240011220206_e20240011229514_c20240011229570")  # fmt: skip


@archive(
    "GOES ABI granules: day of the year and tenths of seconds in the name",
    tool="GOES-R ground system",
    choose="{time:%Y%j%H%M%S%f}",
    oracle=times("2024-01-01T12:00:20.6", "2024-01-01T12:10:20.6", "2024-01-01T12:20:20.6"),
)
def make_goes_abi_names(folder):
    for at, hour in enumerate(HOURS):
        grid(at, "CMI").to_netcdf(folder / f"OR_ABI-L2-CMIPF-M6C13_G16_s{hour}.nc")


@archive(
    "MODIS tiles: year and day of the year behind an A, and the day of production",
    tool="MODIS land processing",
    choose="{time:%Y%j}",
    oracle=times("2024-01-01", "2024-01-17", "2024-02-02"),
)
def make_modis_a2024001(folder):
    for at, (day, made) in enumerate((("001", "018"), ("017", "034"), ("033", "051"))):
        name = f"MOD13A2.A2024{day}.h09v05.061.2024{made}123456.nc"
        grid(at, "NDVI").to_netcdf(folder / name)


@archive(
    "VIIRS granules: d20240101_t0000000_e0001241_b63210_c20240101010203",
    tool="NOAA S-NPP",
    choose="{time:%Y%m%d_t%H%M%S%f}",
    oracle=times("2024-01-01T00:00:00.0", "2024-01-01T00:01:24.3", "2024-01-02T00:00:00.1"),
)
def make_viirs_granules(folder):
    for at, name in enumerate((
        "d20240101_t0000000_e0001241_b63210_c20240101010203450",
        "d20240101_t0001243_e0002485_b63210_c20240101010203999",
        "d20240102_t0000001_e0001242_b63224_c20240102010203111",
    )):  # fmt: skip
        grid(at, "brightness").to_netcdf(folder / f"SVM15_npp_{name}_oebc_ops.h5")


@archive(
    "SEVIRI land surface temperature: twelve digits at the end of the name",
    tool="LSA SAF",
    choose="{time:%Y%m%d%H%M}",
    oracle=times("2024-01-31T23:45", "2024-02-01T00:00", "2024-02-01T00:15"),
)
def make_lst_seviri(folder):
    for at, name in enumerate(("202401312345", "202402010000", "202402010015")):
        grid(at, "LST").to_netcdf(folder / f"NETCDF4_LSASAF_MSG_LST_MSG-Disk_{name}.nc")


@archive(
    "PRISM daily, converted from BIL: eight digits, and a 4km in the name",
    tool="GDAL",
    choose="{time:%Y%m%d}",
    oracle=times("2024-01-01", "2024-01-02"),
)
def make_prism_daily(folder):
    for at, day in enumerate(("20240101", "20240102")):
        grid(at, "Band1").to_netcdf(folder / f"PRISM_ppt_stable_4kmD2_{day}_bil.nc")


@archive(
    "CHIRPS months: dots between year and month, behind a version",
    tool="GDAL",
    choose="{time:%Y.%m}",
    oracle=times("2023-12-01", "2024-01-01", "2024-02-01"),
)
def make_chirps_months(folder):
    for at, month in enumerate(("2023.12", "2024.01", "2024.02")):
        grid(at, "precip").to_netcdf(folder / f"chirps-v2.0.{month}.nc")


@archive(
    "OSTIA without time: the date in front, a dataset version with digits behind",
    tool="CMEMS, squeezed by a user",
    choose="{time:%Y%m%d%H%M%S}",
    oracle=times("2024-01-01T12:00", "2024-01-02T12:00"),
)
def make_ostia_squeezed(folder):
    for at, day in enumerate(("20240101", "20240102")):
        name = f"{day}120000-UKMO-L4_GHRSST-SSTfnd-OSTIA-GLOB-v02.0-fv02.0.nc"
        grid(at, "analysed_sst", id="OSTIA").to_netcdf(folder / name)


@archive(
    "SMAP: date and time joined by a T, among orbit numbers and versions",
    tool="NSIDC",
    choose="{time:%Y%m%dT%H%M%S}",
    oracle=times("2024-01-01T00:30", "2024-01-01T03:30", "2024-01-01T06:30"),
)
def make_smap_names(folder):
    for at, hour in enumerate(("003000", "033000", "063000")):
        name = f"SMAP_L4_SM_gph_20240101T{hour}_Vv7032_001.h5"
        grid(at, "sm_surface").to_netcdf(folder / name)


@archive(
    "IMERG half hours: start and end of the day's minutes, and a version",
    tool="GPM",
    choose="{time:%Y%m%d-S%H%M%S}",
    oracle=times("2024-01-01T00:00", "2024-01-01T00:30"),
)
def make_imerg_half_hours(folder):
    for at, name in enumerate(("20240101-S000000-E002959.0000", "20240101-S003000-E005959.0030")):
        grid(at, "precipitation").to_netcdf(folder / f"3B-HHR.MS.MRG.3IMERG.{name}.V07B.nc4")


@archive(
    "Two dates in a name, start and end of each file",
    tool="ESGF, squeezed by a user",
    choose="{time:%Y%m%d}",
    oracle=times("2000-01-01", "2000-02-01", "2000-03-01"),
)
def make_start_and_end(folder):
    for at, name in enumerate(("20000101-20000131", "20000201-20000229", "20000301-20000331")):
        grid(at, "pr").to_netcdf(folder / f"pr_mon_model_{name}.nc")


@archive(
    "Dates in folders, the same name in each",
    tool="a run script",
    files="**/*.nc",
    choose="{time:%Y%m%d%H}",
    oracle=times("2024-01-01T00", "2024-01-01T12", "2024-01-02T00"),
)
def make_run_folders(folder):
    for at, run in enumerate(("2024010100", "2024010112", "2024010200")):
        (folder / f"run_{run}").mkdir()
        grid(at, "t2m").to_netcdf(folder / f"run_{run}" / "out.nc")


@archive(
    "Year and month in folders, the day in the name",
    tool="an archive script",
    files="**/*.nc",
    choose="{time:%Y}/{time:%m}/",
    oracle=times("2023-12-31", "2024-01-01", "2024-02-01"),
)
def make_year_month_folders(folder):
    for at, (year, month, day) in enumerate(
        (("2023", "12", "31"), ("2024", "01", "01"), ("2024", "02", "01"))
    ):
        (folder / year / month).mkdir(parents=True)
        grid(at, "chl").to_netcdf(folder / year / month / f"chl_{day}.nc")


@archive(
    "A version that looks like a date, the same in all files",
    tool="a reprocessing",
    choose="{time:%Y%m%d}",
    oracle=times("2024-01-01", "2024-01-02"),
)
def make_version_like_a_date(folder):
    for at, day in enumerate(("20240101", "20240102")):
        grid(at, "aod").to_netcdf(folder / f"aod_v20230601_{day}.nc")


@archive(
    "Names that are only numbered; an attribute is the ISO date",
    tool="Sentinel toolbox",
    choose="attribute:time_coverage_start",
    oracle=times("2024-01-01T10:00:00.5", "2024-01-02T10:00", "2024-01-03T10:00"),
)
def make_iso_attribute(folder):
    for at, start in enumerate(
        ("2024-01-01T10:00:00.5Z", "2024-01-02T10:00:00Z", "2024-01-03T10:00:00Z")
    ):
        grid(at, "ndvi", title="a title", time_coverage_start=start).to_netcdf(
            folder / f"granule_{'abc'[at]}.nc"
        )


@archive(
    "Members in names, without a date",
    tool="an ensemble script",
    choose="{member:d}",
    oracle=lambda files: xr.concat(
        [xr.open_dataset(file).load() for file in (files[0], files[2], files[1])],
        pd.Index([1, 2, 10], name="member"), data_vars="all", coords="minimal",
        compat="equals", join="exact", combine_attrs="override",
    ),
)  # fmt: skip
def make_member_names(folder):
    for at, member in enumerate(("1", "10", "2")):
        grid(at, "t2m").to_netcdf(folder / f"t2m_member{member}.nc")


@archive(
    "A member and a month in each name",
    tool="a seasonal forecast",
    choose="{member}_{time:%Y%m}",
    oracle=box(
        ("member", np.array(["r1i1p1f1", "r2i1p1f1"])),
        ("time", pd.DatetimeIndex(["2000-01-01", "2000-02-01"]).as_unit("us")),
    ),
)
def make_members_and_months(folder):
    for member in (1, 2):
        for month in (1, 2):
            name = f"tas_r{member}i1p1f1_2000{month:02d}.nc"
            grid(10 * member + month, "tas").to_netcdf(folder / name)


@archive(
    "Months spelled in English",
    tool="a spreadsheet",
    choose="{time:%b%Y}",
    oracle=times("2000-04-01", "2000-02-01", "2000-01-01", "2000-03-01"),
)
def make_names_of_months(folder):
    for at, month in enumerate(("Apr", "Feb", "Jan", "Mar")):
        grid(at, "snow").to_netcdf(folder / f"snow-{month}2000.nc")


@archive(
    "Each file has a scalar time, and the same name but for a number",
    tool="xarray isel(time=0)",
    choose="variable:time",
    oracle=lambda files: xr.concat(
        [xr.open_dataset(file, decode_times=DECODED).load() for file in files],
        "time", data_vars="all", coords="minimal", compat="equals", join="exact",
        combine_attrs="override",
    ),
)  # fmt: skip
def make_scalar_time(folder):
    for at in range(3):
        grid(at).assign_coords(time=pd.Timestamp("2024-01-01") + pd.Timedelta(at, "D")).to_netcdf(
            folder / f"map_{at}.nc", encoding={"time": {"units": "hours since 2024-01-01"}}
        )


def assigned(*texts):
    """Give each file the date of its name, as ``preprocess=assign_coords`` does."""

    def answer(files):
        opened = [
            xr.open_dataset(file, decode_times=False).assign_coords(
                time=pd.DatetimeIndex([text]).as_unit("us")
            )
            for file, text in zip(files, texts, strict=True)
        ]
        return xr.combine_by_coords(
            opened, data_vars="minimal", coords="minimal", join="exact", compat="no_conflicts",
            combine_attrs="override",
        ).load()  # fmt: skip

    return answer


@archive(
    "Every file says time = 0; the names know the days",
    tool="CDO output before settaxis",
    choose="{time:%Y%m%d}",
    oracle=assigned("2024-02-28", "2024-02-29", "2024-03-01"),
)
def make_time_is_zero_everywhere(folder):
    for at, day in enumerate(("20240228", "20240229", "20240301")):
        made = grid(at, "pr").expand_dims(time=[0.0])
        made["area"] = (("lat", "lon"), np.ones((3, 4), "f4"))
        made.time.attrs["units"] = "days since 1970-01-01"
        made.to_netcdf(folder / f"pr_{day}.nc")


@archive(
    "A time dimension without its coordinate; the names know the months",
    tool="ncrcat of maps",
    choose="{time:%Y-%m}",
    oracle=assigned("2024-02", "2024-01"),
)
def make_time_without_coordinate(folder):
    for at, month in enumerate(("2024-02", "2024-01")):
        grid(at, "et").expand_dims("time").to_netcdf(folder / f"{'ab'[at]}_et_{month}.nc")


@archive(
    "Every file says time = 0, and no file name holds a date",
    tool="CDO output before settaxis",
    choose="--combine nested",
    oracle=lambda files: xr.open_mfdataset(
        files, combine="nested", concat_dim="time", data_vars="minimal", coords="minimal",
        compat="override", join="override",
    ).load(),
)  # fmt: skip
def make_time_is_zero_and_names_tell_nothing(folder):
    for at, name in enumerate(("first", "second", "third")):
        made = grid(at, "pr").expand_dims(time=[0.0])
        made.to_netcdf(folder / f"{name}.nc")


@archive(
    "Variables in files of their own, a file for each variable and day",
    tool="cdo splitname",
    choose="{time:%Y%m%d}",
    oracle=lambda files: xr.merge(
        [times("2024-01-01", "2024-01-02")(files[at : at + 2]) for at in (0, 2)],
        join="exact", compat="equals", combine_attrs="override",
    ),
)  # fmt: skip
def make_variables_and_days(folder):
    for at, name in enumerate(("pr", "tas")):
        for day in ("20240101", "20240102"):
            grid(at + int(day) % 10, name).to_netcdf(folder / f"{name}_{day}.nc")


@archive(
    "Forecast hours behind the time of the run",
    tool="a forecast model",
    choose="{step:d}",
    oracle=box(
        ("time", pd.DatetimeIndex(["2024-01-01T00", "2024-01-01T12"]).as_unit("us")),
        ("step", np.array([0, 6, 12])),
    ),
)
def make_runs_and_steps(folder):
    for run in ("2024010100", "2024010112"):
        for step in (0, 6, 12):
            grid(step + int(run[-2:]), "t2m").to_netcdf(folder / f"fc_{run}_step{step:03d}.nc")


@archive(
    "A global attribute says which member a file is of",
    tool="a climate model",
    choose="attribute:realization_index",
    oracle=lambda files: xr.concat(
        [xr.open_dataset(file).load() for file in (files[1], files[0])],
        pd.Index([1, 2], name="member"), data_vars="all", coords="minimal",
        compat="equals", join="exact", combine_attrs="override",
    ),
)  # fmt: skip
def make_member_attribute(folder):
    for name, member in (("x", 2), ("yy-z", 1)):
        grid(member, "tas", realization_index=np.int32(member)).to_netcdf(folder / f"{name}.nc")


@archive(
    "Stations by their names, which are sorted in no file's order but by the letters",
    tool="a network of stations",
    oracle=by_coords(),
)
def make_stations_by_name(folder):
    for at, names in enumerate((["\u00c9vora"], ["Zagreb"], ["Aachen", "Bern"], ["abisko"])):
        xr.Dataset(
            {"t": ("station", np.arange(len(names)) + 10.0 * at)}, {"station": names}
        ).to_netcdf(folder / f"{at}.nc")


@archive(
    "Stations by names that are rows of characters, as NetCDF classic has it",
    tool="ncgen",
    oracle=by_coords(),
)
def make_stations_of_characters(folder):
    for at, names in enumerate(([b"Zagreb"], [b"Aachen", b"Bern  "])):
        xr.Dataset(
            {"t": ("station", np.arange(len(names)) + 10.0 * at)},
            {"station": np.array(names, "S6")},
        ).to_netcdf(folder / f"{at}.nc", format="NETCDF3_CLASSIC", engine="netcdf4")


@archive(
    "A file for each variable, with the same coordinates",
    tool="cdo splitname",
    choose="--concat-dim time",
    oracle=by_coords(compat="equals"),
)
def make_variables_in_files_of_their_own(folder):
    for at, name in enumerate(("pr", "tas")):
        made = grid(at, name).expand_dims(time=pd.date_range("2000-01-01", periods=3))
        made["crs"] = ((), np.int32(0))
        made.to_netcdf(folder / f"{name}.nc", encoding={"time": {"units": "days since 2000-01-01"}})


@archive(
    "A map for each variable, without a time",
    tool="gdal_translate",
    choose="--concat-dim lat",
    oracle=by_coords(compat="equals"),
)
def make_maps_in_files_of_their_own(folder):
    for at, name in enumerate(("elevation", "slope", "aspect")):
        grid(at, name).to_netcdf(folder / f"{name}.nc")
