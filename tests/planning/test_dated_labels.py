"""Labels that are dates make a time axis, which stays one when files are added."""
# ruff: noqa: PD011 - variables of xarray have values

import cftime
import numpy as np
import pandas as pd
import pytest
import xarray as xr

import icevirt
from icevirt.errors import InvalidInputError

pytestmark = [pytest.mark.ci, pytest.mark.usefixtures("in_process")]

DAYS = ("20240228", "20240229", "20240301")


def write(folder, *days):
    for day in days:
        grid = xr.Dataset(
            {"pr": (("lat", "lon"), np.full((2, 3), float(day)))},
            {"lat": [0.0, 1], "lon": [5.0, 6, 7]},
        )
        grid.to_netcdf(folder / f"pr_{day}_v20230101.nc")


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "in").mkdir()
    write(tmp_path / "in", *DAYS)
    return tmp_path / "in"


def build(folder, **options):
    own = {key: options.pop(key) for key in ("concat_dim", "mode") if key in options}
    sources = str(folder / "*.nc")
    return icevirt.build(sources, folder.parent / "repo", combine_options=options, **own)


def shown(folder):
    return xr.open_dataset(
        folder.parent / "repo", engine="icevirt",
        authorize_virtual_chunk_access={f"{folder.as_uri()}/": None},
    ).load()  # fmt: skip


def expected(folder, index):
    opened = [xr.open_dataset(file).load() for file in sorted(folder.glob("*.nc"))]
    return xr.concat(
        opened, index, coords="minimal", compat="equals", join="exact", data_vars="all"
    )


INDEX = pd.DatetimeIndex(["2024-02-28", "2024-02-29", "2024-03-01T06:30"], name="time")
LISTS = {
    "Timestamps": list(INDEX),
    "an index": INDEX,
    "datetimes": INDEX.to_pydatetime().tolist(),
    "datetime64": INDEX.to_numpy(),
    "a DataArray": xr.DataArray(INDEX, dims="n"),
}


@pytest.mark.parametrize("labels", LISTS.values(), ids=LISTS)
def test_dates_of_a_list_are_those_of_concat(labels, folder):
    build(folder, concat_dim="time", labels=labels)
    xr.testing.assert_identical(shown(folder), expected(folder, INDEX))


def test_dates_of_other_calendars_are_those_of_concat(folder):
    index = [cftime.Datetime360Day(2000, 2, day) for day in (28, 29, 30)]
    build(folder, concat_dim="time", labels=index)
    xr.testing.assert_identical(
        shown(folder), expected(folder, xr.Variable("time", np.array(index)))
    )


def test_the_files_of_tomorrow_get_labels_of_the_same_type(folder):
    """Nothing that was there changes, so that no option has to allow it."""
    how = {"labels": "pr_{time:%Y%m%d}_*.nc"}
    build(folder, **how)
    before = shown(folder)
    write(folder, "20240302", "19691231")
    build(folder, mode="w", **how)
    after = shown(folder)
    assert after.time.encoding["units"] == before.time.encoding["units"]
    assert str(after.time.values[0])[:10] == "1969-12-31"
    xr.testing.assert_identical(after.isel(time=slice(1, 4)), before)


def test_the_same_build_again_changes_nothing(folder):
    how = {"concat_dim": "time", "labels": list(INDEX)}
    build(folder, **how)
    before = shown(folder)
    build(folder, mode="w", **how)
    xr.testing.assert_identical(shown(folder), before)


def test_the_calendar_and_units_of_dates_in_names_are_attributes(folder):
    (folder / "pr_20240229_v20230101.nc").unlink()
    attrs = {"time": {"calendar": "noleap", "units": "hours since 2024-01-01", "axis": "T"}}
    build(folder, labels="pr_{time:%Y%m%d}_*.nc", attrs=attrs)
    with xr.set_options(keep_attrs=True):
        raw = icevirt.Repository.open(folder.parent / "repo").readonly_session("main")
    held = xr.open_zarr(raw.store, consolidated=False, decode_times=False)
    assert held.time.attrs == attrs["time"]
    assert held.time.values.tolist() == [58 * 24, 59 * 24]
    assert shown(folder).time.values.tolist() == [
        cftime.DatetimeNoLeap(2024, 2, 28, has_year_zero=True),
        cftime.DatetimeNoLeap(2024, 3, 1, has_year_zero=True),
    ]


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ({"labels": "pr_{time:%Y%m%d}_*.nc", "concat_dim": "date"}, "not in concat_dim"),
        (
            {"labels": {"time": "pr_{date:%Y%m%d}_*.nc"}, "concat_dim": "time"},
            "has none along 'time'",
        ),
        ({"labels": "pr_{time:%Y%U}_*.nc"}, "no directive %U"),
        ({"labels": [pd.NaT] * 3, "concat_dim": "time"}, "not a date"),
    ],
)
def test_labels_that_cannot_be_are_refused(how, message, folder):
    with pytest.raises(InvalidInputError, match=message):
        build(folder, **how)
