"""Errors propose labels that work: each proposal has been tried on all files."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from icevirt.errors import CombineError
from icevirt.planning.axes.file_labels import NamePattern
from icevirt.planning.axes.label_proposals import label_fixes
from icevirt.planning.axes.name_proposals import date_patterns, field_patterns, relative
from icevirt.planning.eras.group_plan import combine_eras
from unit.planning.scanned_facts import File, coord, data, facts_of, label, plan, shown, spec

GRID = {"x": coord("x", [0.0, 1.0, 2.0])}


def map_of(name, value=1.0, attrs=(), **more):
    values = {"t2m": data("x", np.full(3, value, "f4"))}
    return File(name, {**values, **GRID, **more}, dict(attrs))


def maps(*names, **more):
    return [map_of(name, float(at), **more) for at, name in enumerate(names)]


def proposed(*files, name=None):
    return [" ".join(each.flags) for each in label_fixes(facts_of(*files), name)]


NAMES = {
    "a date": (("a_20240101.nc", "a_20240102.nc"), ["--labels *_{time:%Y%m%d}.nc"]),
    "a date in front": (("20240101_a.nc", "20240102_a.nc"), ["--labels {time:%Y%m%d}_*"]),
    "nothing but a date": (("2024-01.nc", "2024-02.nc"), ["--labels {time:%Y-%m}.nc"]),
    "years": (("a2001.nc", "a2002.nc"), ["--labels a{time:%Y}.nc"]),
    "hours": (("x_2024010100", "x_2024010112"), ["--labels *_{time:%Y%m%d%H}"]),
    "WRF": (
        ("wrfout_d01_2024-01-01_00:00:00", "wrfout_d01_2024-01-01_06:00:00"),
        ["--labels *_{time:%Y-%m-%d_%H:%M:%S}"],
    ),
    "Sentinel": (
        ("S3A_20240101T101010_20240101T101310_20240102T000000_v1.nc",
         "S3A_20240102T101010_20240102T101310_20240103T000000_v1.nc"),
        ["--labels S3A_{time:%Y%m%dT%H%M%S}_*"],
    ),
    "Aura": (
        ("OMI-Aura_L2-OMTO3_2004m1001t0003-o01132_v003.he5", "OMI-Aura_L2-OMTO3_2004m1001t0142-o01133_v003.he5"),
        ["--labels *_{time:%Ym%m%dt%H%M}-*"],
    ),
    "Suomi NPP": (
        ("OMPS-NPP_NMTO3-L2_v2.1_2022m0614t001010_o55120.h5", "OMPS-NPP_NMTO3-L2_v2.1_2022m0615t015140_o55121.h5"),
        ["--labels *_{time:%Ym%m%dt%H%M%S}_*"],
    ),
    "a date and a version that is no hour": (
        ("a_20240101_01.nc", "a_20240102_01.nc"), ["--labels *_{time:%Y%m%d}_*"],
    ),
    "made before the date": (
        ("c20240601_20240101.nc", "c20240602_20240102.nc"), ["--labels *_{time:%Y%m%d}.nc"],
    ),
    "days of the year in folders": (("2024/001/x.nc", "2024/002/x.nc"), ["--labels {time:%Y}/{time:%j}/*"]),
    "month and day below a year": (("2024/a_0101.nc", "2024/a_0102.nc", "2025/a_0101.nc"),
                                   ["--labels {time:%Y}/a_{time:%m%d}.nc"]),
    "Hive folders": (
        ("year=2020/month=01/x.nc", "year=2020/month=02/x.nc"),
        ["--labels year={time:%Y}/month={time:%m}/*"],
    ),
    "cycles of a forecast": (
        ("hrrr.20240101/conus/hrrr.t00z.f00.nc", "hrrr.20240101/conus/hrrr.t01z.f00.nc"),
        ["--labels *{time:%Y%m%d}/conus/*t{time:%H}z*"],
    ),
    "a year above the date": (("2020/20200101.nc", "2021/20210101.nc"), ["--labels {time:%Y%m%d}.nc"]),
    "endings that differ": (("a.20240101.nc", "a.20240102_p.nc"), ["--labels *.{time:%Y%m%d}*"]),
    "scenarios": (
        ("tas_MPI_ssp126.nc", "tas_MPI_ssp585.nc"), ["--labels tas_MPI_{scenario}.nc"],
    ),
    "steps": (("a.f003.nc", "a.f006.nc"), ["--labels a.f{step:d}.nc"]),
    "braces": (("{a}_20240101.nc", "{a}_20240102.nc"), ["--labels *_{time:%Y%m%d}.nc"]),
    "members": (("m1.nc", "m2.nc", "m10.nc"), ["--labels m{member:d}.nc"]),
    "levels": (("a_level10.nc", "a_level20.nc"), ["--labels a_level{level:d}.nc"]),
    "words": (("a_ssp126_x.nc", "a_historical_x.nc"), ["--labels a_{member}_x.nc"]),
    "the same date twice": (("a/20240101.nc", "b/20240101.nc"), ["--labels {member}/20240101.nc"]),
    "dates and members": (
        ("m1_2001.nc", "m1_2002.nc", "m2_2001.nc", "m2_2002.nc"),
        ["--labels m{member:d}_{time:%Y}.nc"],
    ),
    "a grid with a hole": (("m1_2001.nc", "m1_2002.nc", "m2_2001.nc"), []),
    "nothing in common": (("a.nc", "b-c.nc"), []),
}  # fmt: skip


@pytest.mark.parametrize(("names", "expected"), NAMES.values(), ids=NAMES)
def test_names_tell_labels(names, expected):
    files = maps(*names)
    assert proposed(*files) == expected
    for each in label_fixes(facts_of(*files)):
        pattern = each.flags[1]
        made = plan(
            files,
            *NamePattern.of(pattern).names,
            labels=dict.fromkeys(NamePattern.of(pattern).names, pattern),
        )
        assert sorted({*shown(made, files)["t2m"].values[..., 0].ravel().tolist()}) == [
            float(at) for at in range(len(names))
        ]


def test_both_ways_to_read_a_day_are_proposed_where_a_letter_leaves_it_open():
    names = ("OR_s20241011200206_e1.nc", "OR_s20241011210206_e2.nc")
    found = label_fixes(facts_of(*maps(*names)))
    assert [each.flags[1] for each in found] == [
        "*_s{time:%Y%j%H%M%S%f}_*",
        "*_s{time:%Y%m%d%H%M%S}_*",
    ]
    assert "2024-04-10T12:00:20" in found[0].price
    assert "2024-10-11T20:02:06" in found[1].price


def test_a_scalar_time_comes_first_and_an_attribute_behind_names():
    files = [
        map_of(f"a_2024010{at}.nc", at, {"start_time": f"2024-01-0{at}T06:00:00Z", "date_created": "x"},
               time=label(at, units="days since 2024-01-01"))
        for at in (1, 2)
    ]  # fmt: skip
    assert proposed(*files) == [
        "--concat-dim time --labels time=variable:time",
        "--labels *_{date:%Y%m%d}.nc",
        "--concat-dim date --labels date=attribute:start_time",
    ]
    assert proposed(*files, name="time") == ["--labels time=variable:time"]


def test_attributes_that_say_when_a_file_was_made_are_no_labels():
    files = [
        map_of(f"{name}-x.nc" if name == "a" else "b.nc", 0, {"date_modified": f"2024-01-0{at}"})
        for at, name in ((1, "a"), (2, "b"))
    ]
    assert proposed(*files) == []


def test_a_name_that_the_user_gave_is_kept():
    files = maps("a_2001.nc", "a_2002.nc")
    assert proposed(*files, name="init") == ["--labels *_{init:%Y}.nc"]
    assert proposed(*maps("m1.nc", "m2.nc"), name="run") == ["--labels m{run:d}.nc"]
    assert proposed(*files, name="x") == []
    with pytest.raises(CombineError, match="no variable has the dimension 'init'") as caught:
        plan(files, "init")
    assert caught.value.fixes[0].flags == ("--labels", "*_{init:%Y}.nc")


def test_files_of_one_label_that_hold_other_variables_are_merged():
    files = [
        File(f"{name}_{year}.nc", {name: data("x", np.zeros(3, "f4")), **GRID})
        for name in ("pr", "tas")
        for year in (2001, 2002)
    ]
    assert proposed(*files) == ["--labels *_{time:%Y}.nc"]


def test_a_single_file_needs_nothing():
    assert proposed(map_of("a_2001.nc")) == []


def test_the_error_says_which_files_are_alike():
    with pytest.raises(CombineError, match="2 files but no dimension") as caught:
        combine_eras(facts_of(*maps("a_2001.nc", "a_2002.nc")), spec())
    assert caught.value.facts["first"].endswith("a_2001.nc")
    assert [each.python for each in caught.value.fixes] == [
        'combine_options={"labels": "*_{time:%Y}.nc"}'
    ]


def test_many_files_are_looked_at_at_once():
    days = np.datetime64("1990-01-01") + np.arange(3000)
    names = [f"d_{str(day).replace('-', '')}.nc" for day in days]
    assert proposed(*(map_of(name) for name in names)) == ["--labels *_{time:%Y%m%d}.nc"]
    names[1500] = "d_broken.nc"
    assert proposed(*(map_of(name) for name in names)) == []


@pytest.mark.parametrize("odd", [0, 2, 5])
def test_a_name_that_is_not_like_the_others_is_reported(odd):
    names = [f"d_2024010{at}.nc" for at in range(1, 7)]
    names[odd] = "d_mean-all.nc"
    with pytest.raises(CombineError, match="6 files but no dimension") as caught:
        combine_eras(facts_of(*maps(*names)), spec())
    assert caught.value.fixes == ()
    assert "--labels '*_{time:%Y%m%d}.nc'" in caught.value.do
    assert "but not file:///data/d_mean-all.nc" in caught.value.do


TEXT = st.text("ab01_-./T{}*?", min_size=1, max_size=14)


@settings(max_examples=40)
@given(st.lists(TEXT, min_size=2, max_size=6, unique=True))
def test_any_names_make_valid_patterns(names):
    short = relative(names)
    assert all(name.endswith(each) for name, each in zip(names, short, strict=True))
    found = [pattern for ways, _ in date_patterns(short, "time") for pattern in ways]
    found += field_patterns(short, None, "", ())
    for pattern in found:
        assert NamePattern.of(pattern).names


# -- labels in the place of a coordinate ---------------------------------------------------------


def zero(name, at, **more):
    return File(
        name,
        {"t": data(("time", "x"), np.full((1, 3), at, "f4")), "time": coord("time", [0.0], units="days since 2000-01-01"),
         "area": data("x", np.ones(3, "f4")), **GRID, **more},
    )  # fmt: skip


def test_labels_replace_the_coordinate_of_files_with_one_step():
    files = [zero("a_2002.nc", 2), zero("a_2001.nc", 1)]
    assert proposed(*files) == ["--labels *_{time:%Y}.nc", "--concat-dim time --combine nested"]
    made = plan(files, "time", labels={"time": "*_{time:%Y}.nc"})
    found = shown(made, files)
    assert found["t"].dims == ("time", "x")
    assert found["t"].values[:, 0].tolist() == [1, 2]
    assert found["time"].values.tolist() == [11323, 11688]
    assert found["area"].dims == ("x",)
    assert "labels in the place of the files' own along 'time'" in made.notes


def test_files_without_the_dimension_have_no_label_along_it():
    files = [
        zero("a_2002.nc", 2),
        zero("a_2001.nc", 1),
        File("mask_2000.nc", {"m": data("x", np.ones(3, "f4")), **GRID}),
    ]
    made = plan(files, "time", labels={"time": "*_{time:%Y}.nc"})
    found = shown(made, files)
    assert found["time"].values.tolist() == [11323, 11688]
    assert found["m"].dims == ("x",)


@pytest.mark.parametrize(
    ("files", "labels", "message"),
    [
        ([zero("a", 1), zero("b", 2)], ["x", "x"], "hold the same variables at the same step"),
        ([zero("a", 1), zero("b", 2)], "variable:area", "labels of a variable need a new dimension"),
        (
            [File("a", {"t": data("time", np.zeros(2, "f4"))}), zero("b", 2)], [1, 2],
            "a label stands for one step, but a file has 2 steps",
        ),
        (
            [zero("a", 1, time=coord("time", [0.0], bounds="tb"), tb=data(("time", "nv"), np.zeros((1, 2)))),
             zero("b", 2)], [1, 2],
            "which has the bounds /tb",
        ),
    ],
    ids=["equal labels", "a variable", "several steps", "bounds"],
)  # fmt: skip
def test_labels_do_not_replace_what_they_cannot(files, labels, message):
    with pytest.raises(CombineError, match=message):
        plan(files, "time", labels={"time": labels})


def test_a_variable_of_the_name_of_the_labels_can_be_left_out():
    files = [map_of(f"a_200{at}.nc", at, time=label(at)) for at in (1, 2)]
    with pytest.raises(CombineError, match="already have a variable of its name") as caught:
        plan(files, "time", labels={"time": "*_{time:%Y}.nc"})
    assert caught.value.fixes[0].flags == ("--drop-variable", "/time")


HOURS = {"units": "hours since 2024-01-01"}
SAME = {"time": coord("time", [0.0, 6.0], **HOURS)}


def test_members_of_the_same_times_are_stacked_before_files_follow_one_another():
    files = maps("m1.nc", "m2.nc", **SAME)
    assert proposed(*files) == ["--labels m{member:d}.nc", "--concat-dim time --combine nested"]


def test_files_of_other_variables_are_no_members_and_do_not_follow_one_another():
    files = [
        File(f"{name}.nc", {name: data("time", np.ones(2, "f4")), **SAME}) for name in ("pr", "tas")
    ]
    assert proposed(*files) == ["--concat-dim time"]
    made = plan(files, "time")
    assert {*shown(made, files)} == {"pr", "tas"}


def test_a_dimension_whose_coordinate_is_said_to_be_time_is_one():
    step = coord("step", [0.0], axis="T")
    files = [map_of(f"{name}.nc", step=step) for name in ("a", "b-c")]
    assert proposed(*files) == ["--concat-dim step --combine nested"]


def test_files_of_other_lengths_are_not_stacked_but_follow_one_another():
    def swath(name, lines):
        return File(name, {"radiance": data(("line", "x"), np.ones((lines, 3), "f4")), **GRID})

    files = [swath("s_20240101.nc", 3), swath("s_20240102.nc", 4)]
    assert proposed(*files) == ["--concat-dim line"]
    assert proposed(*files, name="time") == []
