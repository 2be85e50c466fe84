"""What a plan says of the mistakes that real archives have: each sentence is about what differs."""

import numpy as np
import pytest
import xarray as xr

import icevirt
from icevirt.amounts import size_of
from icevirt.errors import CombineError, ScanError
from long_forms import crossed

pytestmark = pytest.mark.ci


@pytest.fixture
def month(tmp_path):
    """Write a month of daily fields in chunks of five days; months of 31 days end within a chunk."""

    def write(
        number, days, *, units="K", cells=18, calendar="standard", name="tas", shift=0.0, chunk=None
    ):
        begin = f"2001-{number:02}-01"
        times = xr.date_range(
            begin, periods=days, calendar=calendar, use_cftime=calendar != "standard"
        )
        values = np.full((days, cells, 36), 280 + number, "f4")
        made = xr.Dataset(
            {name: (("time", "lat", "lon"), values, {"units": units})},
            {
                "time": times,
                "lat": np.linspace(-85, 85, cells) + shift,
                "lon": np.arange(0, 360, 10.0),
            },
        )
        chunked = {"zlib": True, "chunksizes": chunk or (5, cells, 36)}
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
    (way,) = error.fixes
    assert way.cost == f"stores {size_of(way.stored)} of values; 2 groups, opened one by one"
    assert (way.loss.groups, bool(way.loss)) == (2, False)
    plan = icevirt.plan(f"{tmp_path}/*.nc", combine_options={"on_mismatch": "eras"})
    assert way.stored == sum(each.hybrid.nbytes for each in plan.arrays if each.hybrid is not None)


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
    assert [each.flags for each in error.fixes] == [("--on-mismatch", "eras")]
    assert 'group="..."' in str(error)


GRIDS = {
    "lengths": ({"cells": 36}, "/lat: length of lat 18 → 36"),
    "values": ({"shift": 2.5}, "/lat: other values"),
}


@pytest.mark.parametrize(("grid", "interleaved"), crossed(GRIDS, [False, True]))
def test_files_of_two_grids_become_a_group_each(tmp_path, month, grid, interleaved):
    """The chunks are equal, so that nothing but the grid differs; the proposed fix is taken."""
    changed, differs = GRIDS[grid]
    for number, days in enumerate((31, 28, 31, 30), 1):
        is_other = number == 2 if interleaved else number == 4
        month(number, days, chunk=(1, 6, 36), **(changed if is_other else {}))
    error = refused(tmp_path)
    assert differs in {str(each) for each in error.facts["eras"].eras[1].changes}
    assert not error.facts["eras"].as_one
    (fix,) = error.fixes
    made = icevirt.build(f"{tmp_path}/*.nc", tmp_path / "repo", **fix.arguments)
    for number, months in enumerate(((1, 3, 4), (2,)) if interleaved else ((1, 2, 3), (4,))):
        files = [tmp_path / f"tas_{each}.nc" for each in months]
        expected = xr.open_mfdataset(files, combine="nested", concat_dim="time", data_vars="all")
        found = made.open(group=f"era_{number}")
        xr.testing.assert_equal(found.load(), expected.load())


def test_many_lengths_are_no_grids(tmp_path, month):
    """Files that each have a length of their own are padded, not kept apart."""
    for number in range(1, 8):
        month(number, 28, cells=10 + number, chunk=(1, 5, 36))
    assert "eras" not in refused(tmp_path).facts


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


@pytest.mark.parametrize("gone", [(), (3,), (2, 3)], ids=["nothing", "a month", "two months"])
def test_a_gap_is_shown_without_being_asked_for(tmp_path, month, gone, run):
    """In text, JSON, the page and the line of a plan; what reserves the steps is tried."""
    for number, days in enumerate((31, 28, 31, 30), 1):
        if number not in gone:
            month(number, days, chunk=(1, 18, 36))
    made = icevirt.plan(f"{tmp_path}/*.nc")
    (axis,) = made.dimensions
    missing = sum((31, 28, 31, 30)[number - 1] for number in gone)
    steps = 120 - missing
    assert (axis.first, axis.last, axis.every) == ("2001-01-01", "2001-04-30", "day")
    assert (axis.steps, axis.missing, axis.gaps) == (steps, missing, bool(gone))
    status, text, _ = run("plan", f"{tmp_path}/*.nc")
    line = f"  along time  {steps} steps, 2001-01-01 → 2001-04-30, every day"
    end = f", 1 gap ({missing} steps missing)" if gone else ""
    assert (status, f"{line}{end}\n" in text) == (0, True)
    assert str(axis) in repr(made)
    assert str(axis) in made._repr_html_()
    notes = [note for note in made.notes if "gap" in note]
    assert len(notes) == bool(gone)
    if gone:
        assert f"{missing} steps between 2001-" in notes[0]
        assert "--spacing time=1D" in text
        whole = icevirt.plan(f"{tmp_path}/*.nc", combine_options={"spacing": {"time": "1D"}})
        assert str(whole.dimensions[0]) == "120 steps, 2001-01-01 → 2001-04-30, every day"


@pytest.mark.parametrize("calendar", ["julian", "360_day", "noleap", "all_leap"])
def test_dates_of_other_calendars_are_dates(tmp_path, month, calendar, run):
    month(1, 28, calendar=calendar, chunk=(1, 18, 36))
    month(2, 28, calendar=calendar, chunk=(1, 18, 36))
    status, text, _ = run("plan", f"{tmp_path}/*.nc")
    assert status == 0
    assert f"56 steps, 2001-01-01 → 2001-02-28 ({calendar} calendar), every day, 1 gap" in text
    icevirt.build(f"{tmp_path}/*.nc", tmp_path / "repo")
    shown = icevirt.source(tmp_path / "repo", "tas", {"time": "2001-02-20T06"}, nearest=True)
    assert shown.at == {"time": "2001-02-20"}
    status, _, error = run("source", tmp_path / "repo", "tas", "--at", "time=2001-03-20")
    assert (status, "2001-02-28" in error) == (1, True)


def test_an_append_of_another_grid_proposes_what_works_at_once(tmp_path, month):
    """The dataset becomes a group for each grid, which its writer has to permit."""
    month(1, 31, chunk=(1, 18, 36))
    icevirt.build(f"{tmp_path}/*.nc", tmp_path / "repo")
    month(2, 28, cells=36, chunk=(1, 18, 36))
    with pytest.raises(CombineError, match="the grids of variable /tas differ") as caught:
        icevirt.append(f"{tmp_path}/*.nc", tmp_path / "repo")
    (fix,) = caught.value.fixes
    assert fix.flags == ("--on-mismatch", "eras", "--allow-changes")
    icevirt.append(f"{tmp_path}/*.nc", tmp_path / "repo", **fix.arguments)
    found = icevirt.open(tmp_path / "repo", group="era_1")
    assert dict(found.sizes) == {"time": 28, "lat": 36, "lon": 36}
