"""Arrays that are stored once may be stored otherwise in other files, if they mean the same there."""

import netCDF4
import numpy as np
import pytest
import xarray as xr

import icevirt
from archives.equal_meaning import mapping
from archives.spellings import field
from archives.writing import put
from icevirt.errors import CombineError, DataLoss
from long_forms import crossed

pytestmark = [pytest.mark.ci, pytest.mark.usefixtures("in_process")]

DAYS = "days since 2000-01-01"


def scalar(value, kind="f8", **attrs):
    """Return what adds a variable of one value."""
    return lambda file: put(file, "v", (), np.array(value, kind), **attrs)


def labels(values, kind="f8", **attrs):
    """Return what adds the coordinate of a dimension."""

    def add(file):
        put(file, "v", ("v",), np.array(values, kind), **attrs)
        put(file, "w", ("time", "v"), np.ones((2, len(values)), "f4"))

    return add


ALIKE = {
    "a day is 24 hours": (scalar(1, units="days"), scalar(24, "i4", units="hours")),
    "half a day is 720 minutes": (scalar(0.5, units="days"), scalar(720, "i8", units="minutes")),
    "durations that say so": (
        scalar(1, "i8", units="days", dtype="timedelta64[ns]"), scalar(86_400, "i8", units="seconds", dtype="timedelta64[s]"),
    ),
    "one date": (scalar(1, units=DAYS), scalar(0, "i4", units="hours since 2000-01-02")),
    "one date of a calendar with two names": (
        scalar(59, units=DAYS, calendar="noleap"), scalar(0, units="days since 2000-03-01", calendar="365_day"),
    ),
    "labels of durations": (labels([0, 0.25], units="days"), labels([0, 6], "i2", units="hours")),
    "labels of dates": (labels([1, 2], "i8", units=DAYS), labels([24, 48], "f4", units="hours since 2000-01-01")),
    "numbers of other types": (labels([1, 2], "f4"), labels([1, 2], "i8")),
    "packed numbers": (labels([10, 25], "i2", scale_factor=0.1), labels([1.0, 2.5])),
    "a missing value and NaN": (scalar(-9, "i2", missing_value=np.int16(-9)), scalar(np.nan)),
    "other units": (labels([1, 2.5], units="hPa"), labels([100, 250], "i4", units="pascal")),
    "thousandths that no float holds": (labels([0.1, 0.7], units="km"), labels([100, 700], units="m")),
    "words of units": (labels([1, 2], units="metres"), labels([1, 2], units="m")),
    "a mapping of an axis": (
        mapping(np.array([0], "i4"), dims=("one",)), mapping(np.array([-1], "i4"), dims=("one",)),
    ),
    "a mapping": (mapping(np.int32(0)), mapping(np.int32(-1))),
    "a mapping that is a text": (mapping(np.array(b"x", "S1")), mapping(np.float32(0))),
    "a mapping with the code of one projection": (mapping(np.int32(32632)), mapping(np.int32(0))),
}  # fmt: skip
UNLIKE = {
    "a day is not 23 hours": (scalar(1, units="days"), scalar(23, "i4", units="hours")),
    "a date is no duration": (scalar(1, units="days"), scalar(1, units=DAYS)),
    "another date": (scalar(1, units=DAYS), scalar(1, "i4", units="hours since 2000-01-02")),
    "another calendar": (scalar(70, units=DAYS), scalar(70, units=DAYS, calendar="noleap")),
    "only one says that it is a duration": (
        scalar(1, "i8", units="days", dtype="timedelta64[ns]"), scalar(24, "i8", units="hours"),
    ),
    "other numbers in other units": (labels([1, 2], units="hPa"), labels([1, 2], units="Pa")),
    "angles, which convert to no exact number": (
        labels([0, 180], units="degrees"), labels([0, np.pi], units="radians"),
    ),
    "codes of two projections of an axis": (
        mapping(np.array([32632], "i4"), dims=("one",)), mapping(np.array([32633], "i4"), dims=("one",)),
    ),
    "a third of another type": (labels([1 / 3], "f8"), labels([1 / 3], "f4")),
    "numbers that floats do not hold": (labels([2**53 + 1], "i8"), labels([2**53])),
    "other labels": (labels([1, 2], "f4"), labels([1, 3], "i8")),
    "codes of two projections": (mapping(np.int32(32632)), mapping(np.int32(32633))),
    "codes of two projections, as floats": (mapping(np.float64(32632)), mapping(np.int32(32633))),
    "one value without attributes of a mapping": (scalar(0), scalar(1, "i4")),
}  # fmt: skip


def write(folder, added):
    files = []
    for number, add in enumerate(added):
        files.append(str(folder / f"f{number}.nc"))
        is_mapped = add.__module__ == mapping.__module__
        field(files[-1], number, more=add, **({"grid_mapping": "crs"} if is_mapped else {}))
    return files


@pytest.mark.parametrize(("case", "turn"), crossed(ALIKE, [1, -1]))
def test_values_are_those_of_the_first_file_and_mean_those_of_all(case, turn, tmp_path):
    files = write(tmp_path, (*ALIKE[case][::turn], ALIKE[case][0]))
    icevirt.build(files[:2], str(tmp_path / "repo"))
    icevirt.append(files[2:], str(tmp_path / "repo"))
    access = [f"{tmp_path.as_uri()}/"]
    held = icevirt.open(
        str(tmp_path / "repo"), authorize_virtual_chunk_access=access, decode_timedelta=True
    ).load()
    assert held.sizes["time"] == 6
    with xr.open_dataset(files[0], decode_timedelta=True) as first:
        for name in {"v", "crs"} & {*held.variables}:
            assert held[name].variable.identical(first[name].variable)
    assert icevirt.verify(str(tmp_path / "repo"), authorize_virtual_chunk_access=access).ok


@pytest.mark.parametrize(("case", "turn"), crossed(UNLIKE, [1, -1]))
def test_what_means_something_else_is_refused(case, turn, tmp_path):
    with pytest.raises(CombineError, match=r"/v|/crs|'v'"):
        icevirt.build(write(tmp_path, UNLIKE[case][::turn]), str(tmp_path / "repo"))


def test_a_value_that_gets_a_dimension_is_kept_of_each_file(tmp_path):
    files = write(tmp_path, ALIKE["a day is 24 hours"])
    built = icevirt.build(files, str(tmp_path / "repo"), combine_options={"data_vars": ["v"]})
    held = built.open(decode_timedelta=True)
    assert held.v.dims == ("time",)
    assert (held.v == np.timedelta64(1, "D")).all()


def zone(number, value=0, **more):
    """Return what adds the projection of a zone."""
    return lambda file: put(
        file, "crs", (), np.int32(value), grid_mapping_name="transverse_mercator",
        longitude_of_central_meridian=6.0 * number - 183, **more,
    )  # fmt: skip


ZONES = {
    "equal values": (zone(32), zone(33), zone(32)),
    "other values, too": (zone(32, 1), zone(33, 2), zone(32, 3)),
    "in words that differ": (zone(32), zone(33, 1, long_name="zone 33"), zone(32, long_name="32")),
}


@pytest.mark.parametrize("case", ZONES)
def test_projections_that_differ_become_groups(case, tmp_path):
    files = []
    for number, add in enumerate(ZONES[case]):
        files.append(str(tmp_path / f"f{number}.nc"))
        field(files[-1], number, more=add, grid_mapping="crs")
    repo = str(tmp_path / "repo")
    with pytest.raises(CombineError, match="project their grid") as caught:
        icevirt.build(files, repo)
    (eras,) = (
        each for each in caught.value.fixes
        if each.arguments == {"combine_options": {"on_mismatch": "eras"}}
    )  # fmt: skip
    assert "opened one by one" in eras.price
    loss = caught.value.fixes[0].loss
    assert loss == DataLoss(groups=loss.groups), "all values stay"
    icevirt.build(files, repo, combine_options={"on_mismatch": "eras"})
    for era, members in enumerate((files[::2], files[1:2])):
        held = icevirt.open(
            repo, group=f"era_{era}", authorize_virtual_chunk_access=[f"{tmp_path.as_uri()}/"]
        )
        theirs = xr.concat([xr.open_dataset(each) for each in members], "time", data_vars="minimal",
                           coords="minimal", compat="override", join="exact")  # fmt: skip
        assert (held.tas == theirs.tas).all()
        assert held.crs.longitude_of_central_meridian == theirs.crs.longitude_of_central_meridian


def test_a_projection_is_shown_as_the_files_spell_it(tmp_path):
    files = [str(tmp_path / f"f{number}.nc") for number in range(2)]
    for number, path in enumerate(files):
        field(path, number, esri_pe_string=f"UTM_Zone_{32 + number}")
    with pytest.raises(CombineError, match="esri_pe_string of /tas") as caught:
        icevirt.plan(files)
    assert caught.value.facts["other_has"] == "esri_pe_string UTM_Zone_33"


def test_a_zone_that_only_groups_say_is_noted(tmp_path):
    for number in range(2):
        field(tmp_path / f"f{number}.nc", number)
        with netCDF4.Dataset(tmp_path / f"f{number}.nc", "a") as file:
            file.crs = f"EPSG:{32632 + number}"
    built = icevirt.build([str(tmp_path / "f*.nc")], str(tmp_path / "repo"))
    assert any("attribute crs of / is not the same" in str(each) for each in built.findings)
