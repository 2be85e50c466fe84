"""What the price of groups says of reading them is what reading them does."""

import netCDF4
import numpy as np
import pytest
import xarray as xr

import icevirt
from archives.spellings import CHUNKS, SHAPE, field, observed
from archives.writing import put
from icevirt.errors import CombineError

pytestmark = [pytest.mark.ci, pytest.mark.usefixtures("in_process")]

SECONDS = "seconds since 2000-01-01"


def lasting(unit, number):
    """Return what adds a duration of every point."""

    def add(file):
        values = np.full(SHAPE, number, "i8")
        put(
            file, "lasts", ("time", "lat", "lon"), values, how=CHUNKS, units=unit, dtype="timedelta64[ns]"
        )  # fmt: skip

    return add


def scalar(number):
    """Return what adds a value without steps."""
    return lambda file: put(file, "level", (), number)


def in_units(unit):
    def change(file):
        file["tas"].units = unit

    return change


AS_ONE = {
    "durations": ({"more": lasting("seconds", 1)}, {"more": lasting("milliseconds", 1000)}),
    "dates": ({"more": observed(SECONDS, "noleap")}, {"more": observed("seconds since 2001-01-01", "365_day")}),
    "two names of today's calendar": (
        {"more": observed(SECONDS, "standard")}, {"more": observed("seconds since 2001-01-01", "proleptic_gregorian")},
    ),
    "a scale": ({"scale_factor": np.float32(2)}, {"scale_factor": np.float32(3)}),
    "a missing value": ({"fill": np.float32(2)}, {}),
    "a type": ({}, {"values": np.arange(288, dtype="f8").reshape(SHAPE)}),
}  # fmt: skip
ONE_BY_ONE = {
    "calendars of fields": ({"more": observed(SECONDS, "standard")}, {"more": observed(SECONDS, "noleap")}),
    "calendars of labels": ({"calendar": "noleap"}, {"calendar": "standard"}),
    "units": ({}, {"more": in_units("degC")}),
    "flags": (
        {"flag_values": np.array([1, 2], "i2"), "flag_meanings": "a b"},
        {"flag_values": np.array([1, 2], "i2"), "flag_meanings": "b a"},
    ),
    "a grid": ({}, {"lat": np.linspace(-20, 20, 12)}),
    "a value without steps": ({"more": scalar(1.0)}, {"more": scalar(2.0), "fill": np.float32(2)}),
}  # fmt: skip


def built(folder, pair):
    """Build a group for each of two files; return the repository, and what that was said to cost."""
    for number, how in enumerate(pair):
        field(folder / f"f{number}.nc", number, **how)
    files, repo = [str(folder / f"f{n}.nc") for n in range(2)], str(folder / "repo")
    with pytest.raises(CombineError) as caught:
        icevirt.build(files, repo)
    wanted = {"on_mismatch": "eras"}
    (said,) = [e.price for e in caught.value.fixes if e.arguments.get("combine_options") == wanted]
    icevirt.build(files, repo, combine_options=wanted)
    return files, repo, said


@pytest.mark.parametrize("case", AS_ONE)
def test_groups_that_open_as_one_dataset_are_said_to(case, tmp_path):
    files, repo, said = built(tmp_path, AS_ONE[case])
    assert 'eras="concat" opens as one dataset' in said
    access = [f"{tmp_path.as_uri()}/"]
    held = icevirt.open(repo, eras="concat", authorize_virtual_chunk_access=access).load()
    how = {"data_vars": "minimal", "coords": "minimal", "compat": "override", "join": "exact"}
    assert held.equals(xr.concat([xr.open_dataset(file) for file in files], "time", **how))


@pytest.mark.parametrize("case", ONE_BY_ONE)
def test_groups_that_do_not_are_said_to_open_one_by_one(case, tmp_path):
    files, repo, said = built(tmp_path, ONE_BY_ONE[case])
    assert "opened one by one" in said
    access = [f"{tmp_path.as_uri()}/"]
    with pytest.raises(CombineError):
        icevirt.open(repo, eras="concat", authorize_virtual_chunk_access=access).load()
    for number, file in enumerate(files):
        group = f"era_{number}"
        held = icevirt.open(repo, group=group, authorize_virtual_chunk_access=access)
        with netCDF4.Dataset(file) as theirs:
            theirs.set_auto_maskandscale(False)
            assert np.array_equal(held.tas.values, theirs["tas"][:])


def test_groups_are_counted_where_more_is_needed(tmp_path):
    """Units differ, and so does a field without steps, which gets one for each."""
    for number, unit in enumerate(("K", "K", "degC")):

        def add(file, number=number, unit=unit):
            file["tas"].units = unit
            put(file, "mask", ("lat",), np.full(SHAPE[1], number))

        field(tmp_path / f"f{number}.nc", number, more=add)
    with pytest.raises(CombineError) as caught:
        icevirt.plan([str(tmp_path / f"f{n}.nc") for n in range(3)])
    first = caught.value.fixes[0]
    options = first.arguments["combine_options"]
    assert (options["on_mismatch"], first.loss.groups) == ("eras", 2)
    assert "2 groups, opened one by one; mask gets the dimension 'time'" in first.price
