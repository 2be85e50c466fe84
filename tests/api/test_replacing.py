"""A build that replaces another says what it takes away, and does so only when it is told."""

import json
from dataclasses import replace

import netCDF4
import numpy as np
import pytest

import icevirt
from builds.kept import Kept
from builds.support import opened, write_day, write_days
from grouping import grouped
from icevirt import errors
from icevirt.display.document import document
from icevirt.repo import layout
from icevirt.storage.local import LocalStorage
from icevirt.wire import snapshot
from icevirt.wire.repo_info import file as repo_info

pytestmark = pytest.mark.usefixtures("in_process")


def change(path, **output):
    """Change attributes of the packed variable of a file."""
    with netCDF4.Dataset(path, "a") as file:
        file["packed"].setncatts(output)


def add_variable(path, name):
    with netCDF4.Dataset(path, "a") as file:
        file.createVariable(name, "f4", ("time",))[:] = 0


def made(place):
    days = write_days(place / "days")
    for day in days:
        add_variable(day, "extra")
    icevirt.build(days, place / "repo", concat_dim="time")
    return days, str(place / "repo")


@pytest.fixture(scope="module")
def kept(tmp_path_factory):
    return Kept(tmp_path_factory.mktemp("kept"), made)


@pytest.fixture
def laid_down(kept):
    return kept.lay_down()


@pytest.fixture
def days(laid_down):
    return laid_down[0]


@pytest.fixture
def repo(laid_down):
    return laid_down[1]


def without_extra(days, folder):
    return write_days(folder / "again", len(days))


CHANGES = {
    "variables vanish": (without_extra, "1 variable vanished: /extra"),
    "steps vanish": (
        lambda days, folder: days[:2],
        "steps along time 12 → 8 of /time, /time_bnds, /packed, /extra",
    ),
    "an attribute that decodes": (
        lambda days, folder: (
            [change(day, scale_factor=np.float32(0.5), units="degC") for day in days] and days
        ),
        "/packed: scale_factor 0.009999999776482582 (f4) → 0.5 (f4); /packed: units K → degC",
    ),
    "a fixed dimension": (
        lambda days, folder: write_days(folder / "wide", 3, nx=7),
        "/packed: length along x 6 → 7",
    ),
}


@pytest.mark.parametrize(("changed", "output"), CHANGES.values(), ids=CHANGES)
def test_a_build_that_takes_away_stops_before_it_writes(changed, output, days, repo, tmp_path):
    sources = changed(days, tmp_path)
    tip = icevirt.Repository.open(repo).lookup_branch("main")
    found = icevirt.plan(sources, repo=repo, concat_dim="time").difference
    assert any(output.split("; ")[0] in line for line in found.stopping)
    with pytest.raises(errors.PlanChangedError, match='"allow_changes": True') as caught:
        icevirt.build(sources, repo, concat_dim="time", mode="w")
    assert output in str(caught.value)
    assert caught.value.facts["last_build"] == tip == found.snapshot_id
    assert icevirt.Repository.open(repo).lookup_branch("main") == tip
    icevirt.build(
        sources, repo, concat_dim="time", mode="w", commit_options={"allow_changes": True}
    )
    assert icevirt.Repository.open(repo).lookup_branch("main") != tip


def test_more_steps_new_variables_and_other_chunks_stop_nothing(days, repo):
    """They are told; readers of what was there read it as before."""
    fourth = write_day(days[0].replace("day1", "day4"), 4)
    add_variable(fourth, "extra")
    for day in (*days, fourth):
        add_variable(day, "more")
    found = icevirt.plan([*days, fourth], repo=repo, concat_dim="time").difference
    assert not found.stopping
    output = [each.what for each in found.changes]
    assert "1 variable new: /more" in output
    assert any(each.startswith("steps along time 12 → 16") for each in output)
    icevirt.build([*days, fourth], repo, concat_dim="time", mode="w")
    assert opened(repo).sizes["time"] == 16


def test_another_reference_date_of_times_stops_nothing(days, repo):
    """Times mean what they meant, whatever they count from."""
    for number, day in enumerate(days, 1):
        write_day(day, number, units="hours since 2001-01-02")
        add_variable(day, "extra")
    found = icevirt.plan(days, repo=repo, concat_dim="time").difference
    assert [(each.what, each.stops) for each in found.changes] == [
        ("/time: units hours since 2001-01-01 → hours since 2001-01-02", False)
    ]


def test_the_same_files_differ_in_nothing_and_the_first_build_has_nothing_to_differ_from(
    days, repo
):
    assert icevirt.plan(days, repo=repo, concat_dim="time").difference.changes == ()
    assert icevirt.plan(days, repo=repo, concat_dim="time", group="/b").difference is None
    assert icevirt.plan(days, concat_dim="time").difference is None


ODD = {
    "attributes of null": {"attributes": None},
    "an extension in a list": {"icevirt": [1]},
    "recorded dtypes in a list": {"icevirt": {"must_understand": False, "attribute_dtypes": [1]}},
    "a recorded dtype of a number": {
        "icevirt": {"must_understand": False, "attribute_dtypes": {"units": 5}}
    },
}


@pytest.mark.parametrize("changed", ODD.values(), ids=ODD)
def test_odd_metadata_that_others_wrote_is_compared(changed, days, repo):
    storage = LocalStorage(repo)
    key = repo_info.decode(storage.get(layout.REPO)).branches["main"]
    held = snapshot.decode(storage.get(layout.snapshot(key)))
    raw = json.dumps({**json.loads(held.find("/packed").user_data), **changed}).encode()
    nodes = tuple(
        node._replace(user_data=raw) if node.path == "/packed" else node for node in held.nodes
    )
    storage.put(layout.snapshot(key), snapshot.encode(replace(held, nodes=nodes)))
    found = icevirt.plan(days, repo=repo, concat_dim="time").difference
    assert any("/packed" in change.what for change in found.changes)


def test_a_plan_as_json_holds_the_difference(days, repo):
    output = document(icevirt.plan(days[:1], repo=repo, concat_dim="time"))["difference"]
    assert [change["stops"] for change in output["changes"]] == [True, False]


def corrected_by_a_function(facts):
    return icevirt.FileChanges(attrs={"time": {"units": "days since 2021-01-01"}})


CORRECTIONS = {
    "attributes": {"attrs": {"time": {"units": "days since 2021-01-01"}}},
    "a function": {"preprocess": corrected_by_a_function},
}


@pytest.mark.ci
@pytest.mark.parametrize("how", CORRECTIONS.values(), ids=CORRECTIONS)
def test_a_correction_of_times_is_not_taken_for_another_reference_date(how, days, tmp_path):
    """The stored numbers stay, so that to forget it, or to say it anew, moves all times."""
    repo, again = tmp_path / "repo", {"concat_dim": "time", "mode": "w"}
    icevirt.build(days[:2], repo, concat_dim="time", **grouped(how))
    with pytest.raises(errors.PlanChangedError, match="/time: units days since 2021-01-01 → "):
        icevirt.build(days, repo, **grouped(again))
    icevirt.build(days, repo, **grouped({**again, **how}))
    icevirt.build(days, repo, **grouped(again, allow_changes=True))
    with pytest.raises(errors.PlanChangedError, match=r"/time: units .* → days since 2021-01-01"):
        icevirt.build(days, repo, **grouped({**again, **how}))
