"""A plan is compared with what its group holds: what is lost stops it, what grows does not."""

import json
from dataclasses import replace

import numpy as np
import pytest

from icevirt.planning.edits.file_edits import FileEdit
from icevirt.planning.plan_diff import changes_of_others, plan_changes
from icevirt.versioning.merge.kept_nodes import Loss
from unit.planning.scanned_facts import ZLIB, coord, data, plan, step

NOTHING = (FileEdit(), ""), (FileEdit(), "")


def v(value=1.0, **changes):
    return data(("time", "x"), np.full((1, 3), value, "f4"), chunks=(1, 3), **changes)


def archive(*, count=2, **more):
    return plan([step(f"f{n}", n, t=None, v=v(), **more) for n in range(count)])


def changes(new, last=None, *, files=0, edits=NOTHING):
    """Return what becomes of arrays, and whether it stops a build."""
    last = last or archive()
    held = {array.path: array.zarr_json for array in last.arrays}
    return {each.what: each.stops for each in plan_changes(held, files, new, edits)}


def changed(**facts):
    """Return a plan whose variable has other metadata."""
    made = archive()
    arrays = []
    for array in made.arrays:
        document = json.loads(array.zarr_json)
        if array.path == "/v":
            document.update(facts)
        arrays.append(replace(array, zarr_json=json.dumps(document).encode()))
    return replace(made, arrays=tuple(arrays))


def test_the_same_plan_changes_nothing():
    assert changes(archive()) == {}


def test_more_steps_are_no_loss_and_fewer_are():
    assert changes(archive(count=3), files=2) == {"steps along time 2 → 3 of /time, /v": False}
    assert changes(archive(count=2), archive(count=3), files=3) == {
        "steps along time 3 → 2 of /time, /v": True,
        "files 3 → 2": False,
    }


def test_variables_that_vanish_stop_a_build():
    more = archive(u=v())
    assert changes(archive(), more) == {"1 variable vanished: /u": True}
    assert changes(more) == {"1 variable new: /u": False}
    many = archive(**{f"u{n:02}": v() for n in range(12)})
    (line,) = changes(archive(), many)
    assert line.startswith("12 variables vanished: /u00, ")
    assert line.endswith("/u09 and 2 more")


@pytest.mark.parametrize(
    ("facts", "line", "stops"),
    [
        ({"data_type": "float64"}, "/v: data type float32 → float64", True),
        (
            {"dimension_names": ["time", "lon"]},
            '/v: dimensions ["time", "x"] → ["time", "lon"]',
            True,
        ),
        ({"fill_value": 9}, "/v: fill value 0 → 9", True),
        ({"attributes": {"units": "K"}}, "/v: units none → K", True),
        ({"attributes": {"title": "K"}}, None, False),
        ({"shape": [2, 4]}, "/v: length along x 3 → 4", True),
        ({"shape": [2]}, None, False),
        ({"codecs": [ZLIB[0]]}, '/v: codecs ["bytes", "numcodecs.zlib"] → ["bytes"]', False),
        (
            {"chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [2, 3]}}},
            "/v: chunks [1, 3] → [2, 3]",
            False,
        ),
    ],
)
def test_metadata_that_decides_values_stops_a_build(facts, line, stops):
    assert changes(changed(**facts)) == ({} if line is None else {line: stops})


def test_a_compression_level_is_no_change():
    level = {"name": "numcodecs.zlib", "configuration": {"level": 9}}
    assert changes(changed(codecs=[ZLIB[0], level])) == {}


def test_another_reference_date_changes_no_time_unless_a_user_set_it():
    made = [
        plan([step(f"f{n}", n, time=coord("time", [1.0 * n], units=f"days since 200{y}-01-01"))
              for n in range(2)])
        for y in range(2)
    ]  # fmt: skip
    line = "/time: units days since 2000-01-01 → days since 2001-01-01"
    assert changes(made[1], made[0]) == {line: False}
    text = json.dumps(["days since 2001-01-01", None])
    corrected = (FileEdit(), ""), (FileEdit(attrs=(("time", "units", text),)), "")
    assert changes(made[1], made[0], edits=corrected) == {line: True}
    by_function = (FileEdit(), "one:f"), (FileEdit(), "other:f")
    assert changes(made[1], made[0], edits=by_function) == {line: True}


def test_times_may_get_a_wider_type_and_a_finer_unit_with_further_files():
    """And so may their bounds, which have no units of their own; not another calendar."""

    def made(units, calendar="standard"):
        files = []
        for n, (unit, kind) in enumerate(units):
            time = coord("time", np.array([n], kind), units=unit, bounds="b", calendar=calendar)
            edges = data(("time", "nv"), np.array([[n, n + 1]], kind), chunks=None)
            files.append(step(f"f{n}", n, time=time, b=edges))
        return plan(files)

    old = made([("days since 2000-01-01", "i4"), ("days since 2000-01-01", "i4")])
    new = made([("days since 2000-01-01", "i4"), ("hours since 2000-01-04T06:00", "i4")])
    assert changes(new, old) == {
        "/time: data type int32 → int64": False,
        "/time: units days since 2000-01-01 → hours since 2000-01-01": False,
        "/b: data type int32 → int64": False,
    }
    other = made([("days since 2000-01-01", "i4")] * 2, "noleap")
    assert changes(other, old) == {"/time: calendar standard → noleap": True}
    named = made([("days since 2000-01-01", "i4")] * 2, "proleptic_gregorian")
    assert changes(named, old) == {"/time: calendar standard → proleptic_gregorian": False}


@pytest.mark.parametrize(
    ("first", "later", "line"),
    [
        ({}, {"_FillValue": np.float32("nan")}, "/v: _FillValue none → nan (f4)"),
        ({"_FillValue": np.float32(9)}, {"missing_value": np.float32(9)}, "/v: _FillValue 9.0 (f4) → none"),
        ({"units": "degree_north"}, {"units": "degreeN"}, "/v: units degree_north → degreeN"),
        ({"calendar": "noleap"}, {"calendar": "365_day"}, "/v: calendar noleap → 365_day"),
    ],
)  # fmt: skip
def test_what_is_spelled_otherwise_stops_no_build(first, later, line):
    """Files of one meaning make one dataset, so another first file may say it in its own way."""
    old, new = (plan([step("f", 0, t=None, v=v(attrs=each))]) for each in (first, later))
    found = changes(new, old)
    assert line in found
    assert not any(found.values())


def test_a_calendar_by_another_name_stops_no_build():
    def made(calendar):
        time = coord("time", np.array([0.0]), units="days since 2000-01-01", calendar=calendar)
        return plan([step("f", 0, time=time)])

    found = changes(made("365_day"), made("noleap"))
    assert found == {"/time: calendar noleap → 365_day": False}


def test_work_of_others_is_listed_by_commit():
    found = [
        Loss(path="/a", what="array", stops=True),
        Loss(path="/b", what="array", stops=True),
        Loss(path="/c", what="attributes", stops=False),
        Loss(path="/d", what="array", stops=True),
    ]
    commits = dict.fromkeys(("/a", "/b", "/c"), ("1CE", "fix"))
    assert {each.what: each.stops for each in changes_of_others(found, commits)} == {
        "work of commit 1CE ('fix') would be lost: /a (array), /b (array)": True,
        "work of commit 1CE ('fix') would be undone: /c (attributes)": False,
        "work of an earlier commit would be lost: /d (array)": True,
    }
