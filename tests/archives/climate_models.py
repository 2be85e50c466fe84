"""Output of climate models, as they and the tools of their users write it."""

import numpy as np
import xarray as xr

from archives.archive import archive, by_coords


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
