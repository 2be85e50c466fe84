"""Of files that hold the same steps, a stated rule keeps one, and says so."""

import os
from pathlib import Path

import netCDF4
import pytest
import xarray as xr

import icevirt
from builds.support import verified, write_day
from grouping import grouped
from icevirt.errors import CombineError, InvalidInputError
from planning.test_times import write_month


@pytest.fixture
def files(tmp_path, in_process):
    """Days 0, 1, 2; day 1 twice: as v9, given last and modified last, and as v10."""
    names = ["day0_v1.nc", "day1_v10.nc", "day2_v1.nc", "day1_v9.nc"]
    for at, (name, day) in enumerate(zip(names, (0, 1, 2, 1), strict=True)):
        write_day(tmp_path / name, day, scale=0.01)
        os.utime(tmp_path / name, (1_700_000_000 + at, 1_700_000_000 + at))
    return [str(tmp_path / name) for name in names]


def left_out(files, rule):
    plan = icevirt.plan(files, concat_dim="time", combine_options={"duplicates": rule})
    return [(Path(each.url).name, Path(each.kept).name) for each in plan.left_out]


@pytest.mark.parametrize(
    ("rule", "out", "kept"),
    [
        ("first", "day1_v9.nc", "day1_v10.nc"),
        ("last", "day1_v10.nc", "day1_v9.nc"),
        ("newest", "day1_v10.nc", "day1_v9.nc"),
        ("version", "day1_v9.nc", "day1_v10.nc"),
    ],
)
def test_a_rule_keeps_one(files, rule, out, kept):

    assert left_out(files, rule) == [(out, kept)]


def test_without_a_rule_they_are_refused_and_the_rules_are_named(files, repo_path):
    with pytest.raises(CombineError, match='"duplicates": "newest"'):
        icevirt.build(files, repo_path, concat_dim="time")


def test_an_unknown_rule_is_refused(files, repo_path):
    with pytest.raises(InvalidInputError, match="refuse, first, last, newest, version"):
        icevirt.build(files, repo_path, concat_dim="time", combine_options={"duplicates": "best"})


def test_the_dataset_is_that_of_the_files_kept(files, repo_path):
    report = icevirt.build(
        files, repo_path, concat_dim="time", combine_options={"duplicates": "version"}
    )
    assert any("day1_v9.nc" in text for text in report.findings)
    ours = xr.open_dataset(
        repo_path, engine="icevirt", authorize_virtual_chunk_access=report.containers
    )
    theirs = xr.open_mfdataset(
        files[:3], combine="nested", concat_dim="time", data_vars="minimal", coords="minimal",
        compat="override",
    )  # fmt: skip
    xr.testing.assert_equal(ours.load(), theirs.load())
    verified(repo_path, report.containers)
    sources = {url for name in ("packed",) for url in _locations(repo_path)}
    assert not any("day1_v9" in url for url in sources)


def _locations(repo):
    return icevirt.Repository.open(repo).readonly_session("main").all_virtual_chunk_locations()


def test_the_steps_that_one_file_lacks_are_kept(tmp_path, repo_path, in_process):
    """Of files that overlap in part; where the newer file is the shorter one, two boxes count."""
    files = [str(tmp_path / f"{n}.nc") for n in range(2)]
    write_day(files[0], 0, steps=4)
    write_day(files[1], 0, steps=3)
    how = {"concat_dim": "time", "combine_options": {"duplicates": "last"}}
    report = icevirt.build(files, repo_path, **how)
    assert any("3 steps of 1 file cut along 'time'" in each for each in report.findings)
    ours = xr.open_dataset(
        repo_path, engine="icevirt", authorize_virtual_chunk_access=report.containers
    )
    one, other = (xr.open_dataset(path) for path in files)
    theirs = xr.concat([other, one.isel(time=[3])], "time", data_vars="minimal")
    xr.testing.assert_equal(ours.load(), theirs.load())
    with_access = {"authorize_virtual_chunk_access": report.containers}
    assert not icevirt.verify(repo_path, full=True, **with_access).checked.differences


@pytest.mark.parametrize("rule", ["first", "last"])
def test_the_only_file_that_is_left_keeps_its_times(tmp_path, repo_path, rule, in_process):
    """Whatever the other one counted from."""
    files = [str(tmp_path / f"{n}.nc") for n in range(2)]
    for path, year in zip(files, (2001, 2000), strict=True):
        write_month(path, 1, units=f"hours since {year}-01-01")
    report = icevirt.build(
        files, repo_path, concat_dim="time", combine_options={"duplicates": rule}
    )
    how = {"authorize_virtual_chunk_access": report.containers}
    with xr.open_dataset(repo_path, engine="icevirt", **how) as ours:
        kept = files[0 if rule == "first" else 1]
        with xr.open_dataset(kept) as theirs:
            assert ours.time.values.tolist() == theirs.time.values.tolist()
    assert not icevirt.verify(repo_path, full=True, **how).checked.differences


@pytest.mark.parametrize("names", [{}, {"extra": "more"}], ids=["", "renamed"])
def test_a_newer_file_with_one_variable_more_is_no_duplicate(files, names, repo_path):
    """No rule chooses between them, so none is recommended; what helps is named as in the file."""
    with netCDF4.Dataset(files[1], "a") as file:
        file.createVariable("extra", "f4", ("time",))[:] = 0
    how = {"concat_dim": "time", "duplicates": "version", "missing": "reserve"}
    with pytest.raises(CombineError, match="two files overlap along 'time'") as caught:
        icevirt.build(files, repo_path, **grouped(how, rename=names))
    remedy = 'scan_options={"drop_variables": ["/extra"]}'
    assert remedy in str(caught.value)
    report = icevirt.build(files, repo_path, **grouped(how, drop_variables=["/extra"]))
    assert any("day1_v9.nc" in text for text in report.findings)


def test_files_of_one_label_are_not_sent_to_nested_lists_which_know_no_such_labels(files):
    with pytest.raises(CombineError, match=r"same step along 'time'.*\"duplicates\"") as caught:
        icevirt.plan(
            files,
            concat_dim=["day", "time"],
            combine_options={"labels": {"day": "regex:day([0-9])"}},
        )
    assert "nested" not in str(caught.value)
