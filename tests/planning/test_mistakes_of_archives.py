"""What a plan says of the mistakes that real archives have: each sentence is about what differs."""

import numpy as np
import pytest
import xarray as xr

import icevirt
from icevirt.errors import CombineError, ScanError

pytestmark = pytest.mark.ci


@pytest.fixture
def month(tmp_path):
    """Write a month of daily fields in chunks of five days; months of 31 days end within a chunk."""

    def write(number, days, *, units="K", cells=18, calendar="standard", name="tas"):
        begin = f"2001-{number:02}-01"
        times = xr.date_range(
            begin, periods=days, calendar=calendar, use_cftime=calendar != "standard"
        )
        values = np.full((days, cells, 36), 280, "f4")
        made = xr.Dataset(
            {name: (("time", "lat", "lon"), values, {"units": units})},
            {"time": times, "lat": np.linspace(-85, 85, cells), "lon": np.arange(0, 360, 10.0)},
        )
        chunked = {"zlib": True, "chunksizes": (5, cells, 36)}
        made.to_netcdf(tmp_path / f"{name}_{number}.nc", encoding={name: chunked})

    return write


def refused(tmp_path, **options):
    with pytest.raises((CombineError, ScanError)) as caught:
        icevirt.plan(f"{tmp_path}/*.nc", combine_options=options)
    return caught.value


def test_one_file_in_other_units_is_the_only_other_era(tmp_path, month):
    """Whether the scan read the values of a short month is no difference."""
    for number, days in ((1, 31), (3, 31), (4, 30), (5, 31)):
        month(number, days)
    month(6, 30, units="degC")
    error = refused(tmp_path)
    assert [era.files for era in error.facts["eras"].eras] == [4, 1]
    assert [str(each) for each in error.facts["eras"].eras[1].changes] == ["/tas: units K → degC"]
    assert "attribute units" in error.what
    assert str(error).endswith(
        'Pass combine_options={"on_mismatch": "eras"}: no data is copied; 2 groups'
    )


def test_files_of_another_calendar_differ_in_it_alone(tmp_path, month):
    month(1, 31)
    month(2, 28)
    month(3, 31, calendar="noleap")
    error = refused(tmp_path)
    assert error.what == "/time is encoded differently in 1 of 3 files: attribute calendar"
    assert error.facts["other"].endswith("tas_3.nc")


def test_files_of_two_grids_are_not_padded_into_one(tmp_path, month):
    month(1, 31)
    month(2, 28, cells=36)
    error = refused(tmp_path)
    assert error.what == "the grids of variable /tas differ along lat"
    assert not any("--pad" in each.flags for each in error.fixes)
    assert 'group="..."' in str(error)


def test_stored_chunks_name_the_files_that_end_and_those_that_begin_within_one(tmp_path, month):
    for number, days in ((1, 31), (3, 31), (4, 30)):
        month(number, days)
    (why,) = (note for note in icevirt.plan(f"{tmp_path}/*.nc").notes if "are stored" in note)
    assert "2 files end within a chunk of 5×18×36" in why
    assert "1 file does not begin where a chunk of 5×18×36 begins" in why


def test_a_truncated_file_is_named_once_with_its_size(tmp_path, month):
    month(1, 31)
    month(2, 28)
    whole = tmp_path / "tas_2.nc"
    size = whole.stat().st_size
    whole.write_bytes(whole.read_bytes()[: size // 2])
    error = refused(tmp_path)
    assert f"it has {size // 2:,} of {size:,} bytes" in error.what
    assert str(error).count("tas_2.nc'") == 1
