"""Output of climate and ocean models, as they and the tools of their users write it."""

import re
import shutil
from pathlib import Path

import iris_sample_data
import netCDF4
import numpy as np
import xarray as xr

from archives.archive import DECODED, archive, by_coords, nested
from archives.writing import LAT, LON, numbers, put


def monthly(year, months=12, **more):
    """Return monthly means of one year on a small grid, with bounds, in a calendar without leap days."""
    time = xr.date_range(
        f"{year}-01-16", periods=months, freq="MS", calendar="noleap", use_cftime=True
    )
    values = np.arange(months * 12, dtype="f4").reshape(months, 3, 4) + year
    return xr.Dataset(
        {"tas": (("time", "lat", "lon"), values, {"units": "K", "standard_name": "air_temperature"})},
        {"time": time, "lat": ("lat", [-45.0, 0, 45], {"units": "degrees_north"}),
         "lon": ("lon", [0.0, 90, 180, 270], {"units": "degrees_east"})},
        {"Conventions": "CF-1.8", "source": "a model"} | more,
    )  # fmt: skip


@archive(
    "Monthly means, one file a year, calendar without leap days", tool="xarray", oracle=by_coords()
)
def make_monthly_means_noleap(folder):
    for year in (1999, 2000, 2001):
        monthly(year).to_netcdf(
            folder / f"tas_Amon_{year}.nc", unlimited_dims="time",
            encoding={"time": {"units": "days since 1850-01-01", "dtype": "f8"}},
        )  # fmt: skip


def cmor(
    path, name, begin, months=6, *, since="days since 1850-01-01", levels=None, zlib=1, **attrs
):
    """Write a file as CMOR does: bounds, a scalar height, chunks of one step, a tracking id."""
    with netCDF4.Dataset(path, "w", format="NETCDF4_CLASSIC") as file:
        file.setncatts({"Conventions": "CF-1.7 CMIP-6.2", "variable_id": name, "table_id": "Amon",
                        "tracking_id": f"hdl:21.14100/{path.name}", "grid_label": "gn", **attrs})  # fmt: skip
        file.createDimension("time", None)
        days = 15.5 + 30.0 * np.arange(begin, begin + months)
        put(file, "time", ("time",), days, bounds="time_bnds", units=since, calendar="360_day",
            axis="T", long_name="time", standard_name="time")  # fmt: skip
        put(
            file,
            "time_bnds",
            ("time", "bnds"),
            np.stack([days - 15.5, days + 14.5], 1),
            how={"chunksizes": (1, 2)},
        )
        for dim, values in (("lat", LAT), ("lon", LON)):
            put(file, dim, (dim,), values, bounds=f"{dim}_bnds", axis="YX"[dim == "lon"])
            put(file, f"{dim}_bnds", (dim, "bnds"), values[:, None] + np.array([-10.0, 10]))
        own = ("time", "lat", "lon")
        if levels is not None:
            put(file, "plev", ("plev",), levels, units="Pa", positive="down", axis="Z")
            own = ("time", "plev", "lat", "lon")
        else:
            put(file, "height", (), 2.0, units="m", positive="up", axis="Z")
        shape = tuple(len(file.dimensions[each]) for each in own)
        how = {"zlib": True, "complevel": zlib, "shuffle": True, "chunksizes": (1, *shape[1:])}
        put(file, name, own, numbers(*shape, begin=100.0 * begin), fill=np.float32(1e20), how=how,
            missing_value=np.float32(1e20), units="K", cell_measures="area: areacella",
            **({} if levels is not None else {"coordinates": "height"}))  # fmt: skip


@archive(
    "CMIP6: half years of tas with bounds and a scalar height", tool="CMOR", oracle=by_coords()
)
def make_cmip6_tas(folder):
    for half in range(3):
        cmor(folder / f"tas_Amon_M_historical_r1i1p1f1_gn_{half}.nc", "tas", half * 6)


@archive("CMIP6: tas and the fixed field areacella in one folder", tool="CMOR", oracle=by_coords(),
         choose="--concat-dim time", attrs=False)  # fmt: skip
def make_cmip6_with_areacella(folder):
    for half in range(2):
        cmor(folder / f"tas_Amon_M_historical_r1i1p1f1_gn_{half}.nc", "tas", half * 6)
    with netCDF4.Dataset(
        folder / "areacella_fx_M_historical_r1i1p1f1_gn.nc", "w", format="NETCDF4_CLASSIC"
    ) as file:
        file.setncatts({"variable_id": "areacella", "table_id": "fx", "Conventions": "CF-1.7"})
        for dim, values in (("lat", LAT), ("lon", LON)):
            put(file, dim, (dim,), values, bounds=f"{dim}_bnds", axis="YX"[dim == "lon"])
            put(file, f"{dim}_bnds", (dim, "bnds"), values[:, None] + np.array([-10.0, 10]))
        put(
            file,
            "areacella",
            ("lat", "lon"),
            numbers(3, 4),
            fill=np.float32(1e20),
            units="m2",
            how={"zlib": True, "complevel": 1},
        )


@archive(
    "CMIP6: tas and pr in files of their own, of other periods of time",
    tool="CMOR",
    oracle=by_coords(),
)
def make_cmip6_two_variables(folder):
    for half in range(2):
        cmor(folder / f"tas_Amon_gn_{half}.nc", "tas", half * 6)
    for third in range(3):
        cmor(folder / f"pr_Amon_gn_{third}.nc", "pr", third * 4, months=4)


@archive("CMIP6: ta on pressure levels, compressed more in later files", tool="CMOR", oracle=by_coords())  # fmt: skip
def make_cmip6_pressure_levels(folder):
    for half in range(2):
        cmor(folder / f"ta_Amon_gn_{half}.nc", "ta", half * 6, levels=np.array([1e5, 8.5e4, 5e4]), zlib=1 + half)  # fmt: skip


@archive(
    "CMIP5: scenario after historical, which count days from other dates",
    tool="CMOR",
    oracle=by_coords(),
)
def make_cmip5_historical_and_scenario(folder):
    for half in range(2):
        cmor(folder / f"tas_Amon_M_historical_r1i1p1_{half}.nc", "tas", half * 6)
    cmor(folder / "tas_Amon_M_rcp85_r1i1p1_0.nc", "tas", 12 - 120, since="days since 1860-01-01")


@archive("CORDEX: a rotated pole, two-dimensional lat and lon", tool="a regional model", oracle=by_coords())  # fmt: skip
def make_cordex_rotated_pole(folder):
    for year in range(3):
        with netCDF4.Dataset(folder / f"tas_EUR-44_day_{2001 + year}.nc", "w") as file:
            file.createDimension("time", None)
            days = 18993.5 + 365 * year + np.arange(4)
            put(file, "time", ("time",), days, units="days since 1949-12-01T00:00:00Z", bounds="time_bnds",
                calendar="standard", axis="T")  # fmt: skip
            put(file, "time_bnds", ("time", "bnds"), np.stack([days - 0.5, days + 0.5], 1))
            for dim in ("rlat", "rlon"):
                put(file, dim, (dim,), np.array([-0.44, 0, 0.44]), units="degrees", axis="YX"[dim == "rlon"])  # fmt: skip
            for number, name in enumerate(("lat", "lon")):
                put(file, name, ("rlat", "rlon"), numbers(3, 3, begin=10.0 * number, kind="f8"))
            put(file, "rotated_pole", (), np.array(b"", "S1"), grid_mapping_name="rotated_latitude_longitude",
                grid_north_pole_latitude=39.25, grid_north_pole_longitude=-162.0)  # fmt: skip
            put(file, "height", (), 2.0, units="m")
            put(file, "tas", ("time", "rlat", "rlon"), numbers(4, 3, 3, begin=year * 100.0), fill=np.float32(1e20),
                grid_mapping="rotated_pole", coordinates="lat lon height", units="K",
                how={"zlib": True, "chunksizes": (1, 3, 3)})  # fmt: skip


@archive("CESM: monthly history files of NetCDF-3, dates as characters", tool="a Fortran model", oracle=by_coords())  # fmt: skip
def make_cesm_history(folder):
    for month in range(3):
        path = folder / f"b40.cam2.h0.2000-{month + 1:02d}.nc"
        with netCDF4.Dataset(path, "w", format="NETCDF3_64BIT_OFFSET") as file:
            file.createDimension("time", None)
            end = np.array([31.0, 59.0, 90.0])[month : month + 1]
            put(file, "time", ("time",), end, units="days since 2000-01-01 00:00:00", calendar="noleap", bounds="time_bnds")  # fmt: skip
            put(
                file,
                "time_bnds",
                ("time", "nbnd"),
                np.array([[0.0, 31.0], [31, 59], [59, 90]])[month : month + 1],
            )
            put(file, "date", ("time",), np.array([20000201 + 100 * month], "i4"))
            put(file, "date_written", ("time", "chars"), np.array([list("07/03/12")], "S1"))
            put(file, "P0", (), 1e5, units="Pa")
            put(file, "ndbase", (), np.int32(0))
            put(file, "hyam", ("lev",), [0.1, 0.2], long_name="hybrid A coefficient")
            put(
                file,
                "lev",
                ("lev",),
                [500.0, 1000.0],
                formula_terms="a: hyam p0: P0 ps: PS",
                positive="down",
            )
            for dim, values in (("lat", LAT), ("lon", LON)):
                put(file, dim, (dim,), values)
            put(file, "PS", ("time", "lat", "lon"), numbers(1, 3, 4, begin=month))
            put(file, "T", ("time", "lev", "lat", "lon"), numbers(1, 2, 3, 4, begin=100 * month))


@archive("NEMO: rebuilt files of XIOS with time_counter and time_centered", tool="XIOS", oracle=by_coords())  # fmt: skip
def make_nemo_rebuilt(folder):
    for month in range(3):
        with netCDF4.Dataset(folder / f"ORCA2_1m_grid_T_{month + 1:02d}.nc", "w") as file:
            file.setncatts({"name": f"ORCA2_{month}", "timeStamp": f"2020-Jan-0{month + 1}"})
            file.createDimension("time_counter", None)
            second = np.array([1296000.0 + 2592000 * month])
            for name in ("nav_lat", "nav_lon"):
                put(file, name, ("y", "x"), numbers(3, 4, begin=len(name)))
            put(file, "deptht", ("deptht",), np.array([0.5, 10.0], "f4"), positive="down", bounds="deptht_bounds")  # fmt: skip
            put(
                file,
                "deptht_bounds",
                ("deptht", "axis_nbounds"),
                np.array([[0, 1], [1, 20.0]], "f4"),
            )
            for name in ("time_centered", "time_counter"):
                put(file, name, ("time_counter",), second, units="seconds since 2000-01-01 00:00:00", calendar="noleap",
                    time_origin="2000-01-01 00:00:00", bounds=f"{name}_bounds")  # fmt: skip
                put(
                    file,
                    f"{name}_bounds",
                    ("time_counter", "axis_nbounds"),
                    np.stack([second - 1, second + 1], 1),
                )
            put(file, "thetao", ("time_counter", "deptht", "y", "x"), numbers(1, 2, 3, 4, begin=month * 50.0),
                fill=np.float32(1e20), coordinates="time_centered nav_lat nav_lon", interval_write="1 month")  # fmt: skip


@archive("NEMO: one file for each domain of the parallel run, not rebuilt", tool="NEMO",
         oracle=by_coords(), refused="concat_dim|dimension")  # fmt: skip
def make_nemo_tiles(folder):
    for tile in range(2):
        with netCDF4.Dataset(folder / f"ORCA2_restart_{tile:04d}.nc", "w") as file:
            file.setncatts({"DOMAIN_number_total": np.int32(2), "DOMAIN_number": np.int32(tile),
                            "DOMAIN_position_first": np.array([1, 1 + 3 * tile], "i4")})  # fmt: skip
            file.createDimension("t", None)
            put(file, "nav_lat", ("y", "x"), numbers(3, 4, begin=tile * 100))
            put(file, "sn", ("t", "y", "x"), numbers(1, 3, 4, begin=tile * 1000.0, kind="f8"))


@archive("ROMS: history files along ocean_time, with the grid in each", tool="ROMS", oracle=by_coords())  # fmt: skip
def make_roms_history(folder):
    for number in range(3):
        path = folder / f"roms_his_{number + 1:04d}.nc"
        with netCDF4.Dataset(path, "w", format="NETCDF3_64BIT_OFFSET") as file:
            file.setncatts({"type": "ROMS/TOMS history file", "history": f"run {number}"})
            file.createDimension("ocean_time", None)
            put(
                file,
                "ntimes",
                (),
                np.int32(720),
                long_name="number of long time-steps",
            )
            put(file, "dstart", (), 0.0, units="days since 2000-01-01 00:00:00")
            put(
                file,
                "s_rho",
                ("s_rho",),
                [-0.75, -0.25],
                standard_name="ocean_s_coordinate_g1",
                formula_terms="s: s_rho C: Cs_r eta: zeta depth: h depth_c: hc",
            )
            put(file, "Cs_r", ("s_rho",), [-0.6, -0.1])
            put(file, "hc", (), 250.0, units="meter")
            put(file, "h", ("eta_rho", "xi_rho"), numbers(3, 4, kind="f8"))
            for name in ("lon_rho", "lat_rho"):
                put(
                    file,
                    name,
                    ("eta_rho", "xi_rho"),
                    numbers(3, 4, kind="f8", begin=name == "lat_rho"),
                )
            put(
                file,
                "ocean_time",
                ("ocean_time",),
                (np.arange(2.0) + 2 * number) * 3600,
                units="seconds since 2000-01-01 00:00:00",
                calendar="proleptic_gregorian",
                field="time, scalar, series",
            )
            put(
                file,
                "zeta",
                ("ocean_time", "eta_rho", "xi_rho"),
                numbers(2, 3, 4, begin=100 * number),
                coordinates="lon_rho lat_rho ocean_time",
                time="ocean_time",
            )
            put(
                file,
                "temp",
                ("ocean_time", "s_rho", "eta_rho", "xi_rho"),
                numbers(2, 2, 3, 4, begin=100 * number),
                coordinates="lon_rho lat_rho s_rho ocean_time",
                time="ocean_time",
            )


@archive("WRF: Times as characters, no coordinate of Time, the grid in every step", tool="WRF", oracle=nested("Time"), choose="--concat-dim Time")  # fmt: skip
def make_wrf(folder):
    for hour in range(3):
        path = folder / f"wrfout_d01_2020-01-01_{hour:02d}_00_00"
        with netCDF4.Dataset(path, "w", format="NETCDF4_CLASSIC") as file:
            file.setncatts({"TITLE": "OUTPUT FROM WRF V4.1", "START_DATE": "2020-01-01_00:00:00"})
            file.createDimension("Time", None)
            text = f"2020-01-01_{hour:02d}:00:00"
            put(file, "Times", ("Time", "DateStrLen"), np.array([list(text)], "S1"))
            put(file, "XTIME", ("Time",), np.array([60.0 * hour], "f4"), units="minutes since 2020-01-01 00:00:00")  # fmt: skip
            for name in ("XLAT", "XLONG"):
                put(
                    file,
                    name,
                    ("Time", "south_north", "west_east"),
                    numbers(1, 3, 4, begin=len(name)),
                    units="degree",
                )
            put(
                file,
                "T2",
                ("Time", "south_north", "west_east"),
                numbers(1, 3, 4, begin=hour * 10),
                coordinates="XLONG XLAT XTIME",
                units="K",
            )


@archive("MOM6: daily means with average_T1 and average_DT, and a static file", tool="FMS", oracle=by_coords(),
         choose="--concat-dim time")  # fmt: skip
def make_mom6(folder):
    for month in range(2):
        with netCDF4.Dataset(folder / f"ocean_daily_{month + 1:02d}.nc", "w") as file:
            file.filename = f"ocean_daily_{month + 1:02d}.nc"
            file.createDimension("time", None)
            days = 0.5 + np.arange(3) + 3 * month
            units = "days since 1900-01-01 00:00:00"
            put(file, "time", ("time",), days, units=units, calendar_type="JULIAN", calendar="julian", bounds="time_bnds")  # fmt: skip
            for name, values in (
                ("average_T1", days - 0.5),
                ("average_T2", days + 0.5),
                ("average_DT", np.ones(3)),
            ):
                put(
                    file,
                    name,
                    ("time",),
                    values,
                    fill=1e20,
                    missing_value=1e20,
                    units=units if name != "average_DT" else "days",
                )
            put(file, "time_bnds", ("time", "nv"), np.stack([days - 0.5, days + 0.5], 1), units=units)  # fmt: skip
            for dim in ("yh", "xh"):
                put(file, dim, (dim,), np.array([0.5, 1.5, 2.5]), cartesian_axis=dim[0].upper())
            put(
                file,
                "tos",
                ("time", "yh", "xh"),
                numbers(3, 3, 3, begin=month * 100),
                fill=np.float32(1e20),
                missing_value=np.float32(1e20),
                cell_measures="area: areacello",
                time_avg_info="average_T1,average_T2,average_DT",
            )
    with netCDF4.Dataset(folder / "ocean_static.nc", "w") as file:
        for dim in ("yh", "xh"):
            put(file, dim, (dim,), np.array([0.5, 1.5, 2.5]), cartesian_axis=dim[0].upper())
        put(file, "areacello", ("yh", "xh"), numbers(3, 3), fill=np.float32(1e20))
        put(file, "geolat", ("yh", "xh"), numbers(3, 3, begin=50), fill=np.float32(1e20))


@archive("HYCOM: a packed file for each step, forecast hour in a variable", tool="HYCOM's publisher",
         oracle=by_coords(drop_variables="tau"), opened={"drop_variables": ["tau"]})  # fmt: skip
def make_hycom(folder):
    for step in range(3):
        path = folder / f"hycom_glby_930_2020010112_t{step * 3:03d}_ts3z.nc"
        with netCDF4.Dataset(path, "w", format="NETCDF4_CLASSIC") as file:
            file.createDimension("time", None)
            put(file, "time", ("time",), np.array([175332.0 + 3 * step]), units="hours since 2000-01-01 00:00:00",
                axis="T", calendar="gregorian", time_origin="2000-01-01 00:00:00")  # fmt: skip
            put(file, "tau", ("time",), np.array([3.0 * step]), units="hours since analysis")
            for dim, values in (
                ("depth", np.array([0.0, 2, 4])),
                ("lat", LAT.astype("f8")),
                ("lon", LON),
            ):
                put(file, dim, (dim,), values)
            packed = np.arange(36, dtype="i2").reshape(1, 3, 3, 4) + step
            packed[0, 0, 0, 0] = -30000
            put(
                file,
                "water_temp",
                ("time", "depth", "lat", "lon"),
                packed,
                fill=np.int16(-30000),
                missing_value=np.int16(-30000),
                scale_factor=np.float32(0.001),
                add_offset=np.float32(20.0),
                units="degC",
            )


@archive("MPAS: xtime as characters, a mesh of cells in each file", tool="MPAS", oracle=nested("Time"), choose="--concat-dim Time")  # fmt: skip
def make_mpas(folder):
    for hour in range(3):
        path = folder / f"history.2020-01-01_{hour:02d}.00.00.nc"
        with netCDF4.Dataset(path, "w", format="NETCDF3_64BIT_DATA") as file:
            file.setncatts({"on_a_sphere": "YES", "file_id": f"{hour}"})
            file.createDimension("Time", None)
            put(
                file,
                "xtime",
                ("Time", "StrLen"),
                np.array([list(f"2020-01-01_{hour:02d}:00:00".ljust(64))], "S1"),
            )
            put(file, "latCell", ("nCells",), numbers(5, kind="f8"))
            put(file, "verticesOnCell", ("nCells", "maxEdges"), np.arange(15, dtype="i4").reshape(5, 3))  # fmt: skip
            put(
                file,
                "theta",
                ("Time", "nCells", "nVertLevels"),
                numbers(1, 5, 2, begin=hour * 10, kind="f8"),
            )


@archive("FESOM: a file a year on nodes without coordinates", tool="FESOM", oracle=by_coords())
def make_fesom(folder):
    for year in range(2):
        with netCDF4.Dataset(folder / f"temp.fesom.{1958 + year}.nc", "w") as file:
            file.createDimension("time", None)
            put(file, "time", ("time",), np.array([0.0, 86400, 172800]) + year * 31536000,
                units="seconds since 1958-01-01 0:0:0", calendar="standard", axis="T")  # fmt: skip
            put(file, "nz1", ("nz1",), [2.5, 7.5], units="m", positive="down", axis="Z")
            put(
                file,
                "temp",
                ("time", "nod2", "nz1"),
                numbers(3, 6, 2, begin=year * 100),
                location="node",
                mesh="fesom_mesh",
                how={"zlib": True, "complevel": 1},
            )


@archive(
    "UGRID: a triangular mesh with its topology in every file", tool="SCHISM", oracle=by_coords()
)
def make_ugrid(folder):
    for day in range(2):
        with netCDF4.Dataset(folder / f"schout_{day + 1}.nc", "w") as file:
            file.createDimension("time", None)
            put(
                file,
                "time",
                ("time",),
                np.array([3600.0, 7200]) + 7200 * day,
                units="seconds since 2020-01-01 00:00:00 +0000",
                base_date="2020 1 1 0 0",
            )
            put(file, "mesh", (), np.array(b" ", "S1"), cf_role="mesh_topology", topology_dimension=np.int32(2),
                node_coordinates="node_x node_y", face_node_connectivity="faces")  # fmt: skip
            for number, name in enumerate(("node_x", "node_y")):
                put(file, name, ("node",), numbers(5, begin=number, kind="f8"))
            put(
                file,
                "faces",
                ("face", "three"),
                np.array([[1, 2, 3], [2, 3, 4], [3, 4, 5]], "i4"),
                start_index=np.int32(1),
                fill=np.int32(-999),
            )
            put(
                file,
                "elev",
                ("time", "node"),
                numbers(2, 5, begin=day * 10),
                mesh="mesh",
                location="node",
                coordinates="node_x node_y",
            )


def stacked(dim, pattern):
    """Stack files along a new dimension, by the numbers in their names."""

    def answer(files):
        opened = [xr.open_dataset(each, decode_times=DECODED).load() for each in files]
        labels = [int(re.search(pattern, each)[1]) for each in files]
        return xr.concat(opened, xr.DataArray(labels, dims=dim, name=dim), data_vars="all", coords="minimal",
                         compat="equals", join="exact", combine_attrs="override")  # fmt: skip

    return answer


@archive("An ensemble, one file a member, numbered in the names", tool="xarray", oracle=stacked("member", r"_m([0-9]+)"), choose="member")  # fmt: skip
def make_ensemble_by_name(folder):
    for member in (1, 2, 3):
        made = monthly(2000, 3)
        made["tas"] = made.tas + member
        made.to_netcdf(
            folder / f"tas_m{member:03d}.nc", encoding={"time": {"units": "days since 1850-01-01"}}
        )


@archive("Cubed sphere, one file a tile, without a coordinate of tiles", tool="FMS", oracle=stacked("tile", r"tile([0-9]+)"), choose="tile")  # fmt: skip
def make_cubed_sphere(folder):
    for tile in (1, 2):
        xr.Dataset(
            {
                "t": (("time", "grid_yt", "grid_xt"), numbers(2, 3, 3, begin=tile * 10)),
                "pk": ("phalf", [1.0, 2.0]),
            },
            {"time": [0, 1], "grid_yt": [1.0, 2, 3], "grid_xt": [1.0, 2, 3]},
        ).to_netcdf(folder / f"atmos_daily.tile{tile}.nc")


@archive("NEMO: real months that all say time_counter = 0", tool="NEMO (iris-sample-data)", oracle=nested("time_counter"),
         choose="--combine nested")  # fmt: skip
def make_nemo_months(folder):
    for each in (Path(iris_sample_data.path) / "NEMO").glob("*.nc"):
        shutil.copy(each, folder)
