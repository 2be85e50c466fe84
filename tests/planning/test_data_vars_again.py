"""The next build over files keeps which variables have a dimension."""

import json

import netCDF4
import pytest
import xarray as xr

import icevirt
from grouping import grouped
from icevirt.errors import CombineError, PlanChangedError
from planning.runs_and_days import by_xarray, days, dims, opened, recorded, runs, stacked, write

pytestmark = pytest.mark.usefixtures("in_process")


def by_an_earlier_version(monkeypatch, files, repo, dimensions):
    """Build as before there were rules: what has the new dimension is recorded, and no rule is."""
    from icevirt.api.dataset.change import Request

    recorded = Request.recorded.fget
    with monkeypatch.context() as patch:
        patch.setattr(
            Request, "recorded", property(lambda self: recorded(self) | {"data_vars": None})
        )
        stacked(files, repo, data_vars=dimensions)


def test_a_rebuild_keeps_what_an_earlier_version_gave_a_dimension(tmp_path, repo_path, monkeypatch):
    """Its axes depended on values; those of tomorrow do not change them, but may be refused."""
    files = runs(tmp_path, number=7)
    by_an_earlier_version(monkeypatch, files, repo_path, ["field", "lat"])
    before = recorded(repo_path)
    assert before["mask"] == ("y", "x")
    assert before["lat"] == ("run", "y", "x")
    more = [*files, write(tmp_path / "run2.nc", 2, lat=5)]
    stacked(more, repo_path, mode="w")
    assert recorded(repo_path) == before
    write(more[2], 2, mask=3)
    with pytest.raises(CombineError, match="/mask does not have the dimension 'run'") as caught:
        stacked(more, repo_path, mode="w")
    pasted = ["field", "lat", "mask"]
    how = f'{{"data_vars": {json.dumps(pasted)}}}, commit_options={{"allow_changes": True}}: '
    assert f"combine_options={how}" in str(caught.value)
    assert " ".join(caught.value.fixes[0].flags).endswith("--data-vars mask --allow-changes")
    with pytest.raises(PlanChangedError, match="/mask: dimensions"):
        stacked(more, repo_path, mode="w", data_vars=pasted)
    stacked(more, repo_path, mode="w", data_vars=pasted, allow_changes=True)
    assert recorded(repo_path) == {**before, "mask": ("run", "y", "x")}


@pytest.mark.ci
def test_a_rebuild_keeps_the_rules_of_the_last_build(tmp_path, repo_path):
    """And so does the build after that, which knows of the one before it only."""
    files = days(tmp_path)
    icevirt.build(
        files, repo_path, concat_dim="time", combine_options={"data_vars": ["mask", "number"]}
    )
    before = recorded(repo_path)
    more = [*files, write(tmp_path / "day2.nc", day=2, mask=5, number=5)]
    made = icevirt.plan(more, concat_dim="time", repo=repo_path)
    assert not made.difference.stopping
    icevirt.build(more, repo_path, concat_dim="time", mode="w")
    more.append(write(tmp_path / "day3.nc", day=3, mask=6, number=6))
    report = icevirt.build(more, repo_path, concat_dim="time", mode="w")
    assert recorded(repo_path) == before
    xr.testing.assert_identical(
        opened(repo_path, report), by_xarray(more, "time", ["mask", "number"])
    )


@pytest.mark.ci
def test_a_rebuild_in_a_group_and_of_eras_keeps_dimensions(tmp_path, repo_path, monkeypatch):
    files = runs(tmp_path, count=4)
    for path in files[2:]:
        with netCDF4.Dataset(path, "r+") as file:
            file["field"].units = "K"
    how = {"group": "deep/er", "on_mismatch": "eras"}
    monkeypatch.setattr("icevirt.api.dataset.change.as_choice", lambda labels: None)
    stacked(files, repo_path, **how, data_vars=["field", "mask"])
    before = recorded(repo_path)
    assert before["deep/er/era_1/mask"][0] == "run"
    assert before["deep/er/era_1/flag"] == ("y", "x")
    stacked([*files, write(tmp_path / "more.nc", 9)], repo_path, **how, mode="w")
    assert recorded(repo_path) == before


def test_a_dimension_that_the_last_build_did_not_have_goes_to_all_data(tmp_path, repo_path):
    """Nothing was recorded of it; that arrays get another dimension is to be meant."""
    icevirt.build(write(tmp_path / "one.nc"), repo_path, concat_dim="time")
    files = runs(tmp_path)
    with pytest.raises(PlanChangedError, match="/field: dimensions"):
        stacked(files, repo_path, mode="w")
    stacked(files, repo_path, mode="w", allow_changes=True)
    assert recorded(repo_path) == {**dims(stacked(files)), "run": ("run",)}


def test_what_the_last_build_gave_a_dimension_is_not_said_to_lack_it(tmp_path, repo_path):
    files = [write(tmp_path / f"day{n}.nc", day=n, mask=1 + n) for n in range(2)]
    how = {"concat_dim": "time", "mode": "w"}
    icevirt.build(files, repo_path, concat_dim="time", combine_options={"data_vars": "mask"})
    with pytest.raises(CombineError, match=r'"data_vars": \["mask"\]}: '):
        icevirt.build(files, repo_path, **grouped(how, data_vars="minimal"))
    icevirt.build(files, repo_path, **grouped(how, data_vars=["mask"]))
