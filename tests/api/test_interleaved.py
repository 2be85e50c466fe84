"""Commits that come between a build's plan and its commit: kept, or the build stops by name.

What comes between runs in the build's own `preprocess` function: after the build looked at its
branch, before it plans.
"""

import netCDF4
import numpy as np
import pytest
import zarr

import icevirt
from api.racing_builds import ROUNDS, race
from builds.support import (
    assert_same_dataset,
    expected_dataset,
    official,
    opened,
    write_days,
)
from grouping import grouped
from icevirt import errors
from servers.racing import raced

pytestmark = [pytest.mark.ci, pytest.mark.usefixtures("in_process")]


@pytest.fixture
def days(tmp_path):
    return write_days(tmp_path / "days", 2)


@pytest.fixture
def others(tmp_path):
    return write_days(tmp_path / "others", 3)


@pytest.fixture
def repo(tmp_path):
    return str(tmp_path / "repo")


def once(act):
    """Return a function for `preprocess` that acts at the first file."""
    left = [act]

    def meanwhile(_):
        if left:
            left.pop()()

    return meanwhile


def between(sources, repo, act, **options):
    return icevirt.build(sources, repo, concat_dim="time", **grouped(options, preprocess=once(act)))


def history(repo, branch="main"):
    return [each.id for each in icevirt.Repository.open(repo).ancestry(branch=branch)]


def write_sparse(path, name):
    """Write a file that has no variable in common with others of another name."""
    with netCDF4.Dataset(path, "w") as file:
        file.createDimension(name, 3)
        file.createVariable(name, "f4", (name,))[:] = [1, 2, 3]
    return str(path)


BOTH = {
    "sibling groups": ("/a", "/b"),
    "a group and one below": ("/a", "/a/deep/b"),
    "a group below, and the root": ("/b", "/"),
}


@pytest.mark.parametrize(("outer", "inner"), BOTH.values(), ids=BOTH)
def test_builds_of_different_groups_at_once_are_both_in(outer, inner, days, others, repo):
    """Of a group that was to be empty, what came below it meanwhile stops the build."""
    made = []

    def act():
        mode = "w" if inner == "/" else "w-"
        made.append(icevirt.build(others, repo, concat_dim="time", group=inner, mode=mode))

    if inner.startswith(f"{outer}/"):
        with pytest.raises(errors.ConflictError) as caught:
            between(days, repo, act, group=outer)
        assert all(path.startswith(outer) for path in caught.value.facts["paths"])
        assert history(repo)[0] == made[0].snapshot_id
        between(days, repo, lambda: None, group=outer, mode="w")
    else:
        report = between(days, repo, act, group=outer)
        assert history(repo)[:2] == [report.snapshot_id, made[0].snapshot_id]
    for group, sources in ((outer, days), (inner, others)):
        found = opened(repo, group=group)
        assert_same_dataset(found, expected_dataset(sources, "time"))


@pytest.mark.parametrize("mode", ["w-", "w"])
@pytest.mark.parametrize("start", ["no repository", "a repository"])
def test_of_two_builds_of_one_group_one_stops(mode, start, repo, tmp_path):
    """Even if they have no variable in common: a mixture of both is what nobody asked for."""
    if start == "a repository":
        icevirt.Repository.create(repo)
    one, two = (write_sparse(tmp_path / f"{name}.nc", name) for name in ("one", "two"))
    made = []

    def act():
        made.append(icevirt.build(one, repo, group="/g").snapshot_id)

    if mode == "w-":
        with pytest.raises(errors.ConflictError) as caught:
            icevirt.build(
                two, repo, group="/g", mode=mode, combine_options={"preprocess": once(act)}
            )
        assert {"/g", "/g/one"} & {*caught.value.facts["paths"]}
        assert history(repo)[0] == made[0]
        assert list(opened(repo, group="g").variables) == ["one"]
    else:
        with pytest.raises(errors.ConflictError, match="/g"):
            icevirt.build(
                two, repo, group="/g", mode=mode, combine_options={"preprocess": once(act)}
            )
        assert history(repo)[0] == made[0]


def test_builds_into_two_branches_at_once_are_both_in(days, others, repo):
    held = icevirt.Repository.create(repo)
    held.create_branch("dev", held.lookup_branch("main"))
    made = []
    report = between(
        days,
        repo,
        lambda: made.append(
            icevirt.build(others, repo, concat_dim="time", commit_options={"branch": "dev"})
        ),
    )
    assert history(repo)[0] == report.snapshot_id
    assert history(repo, "dev")[0] == made[0].snapshot_id


def test_a_branch_that_was_reset_meanwhile_stops_the_build(days, others, repo):
    first = icevirt.build(days, repo, concat_dim="time").snapshot_id
    held = icevirt.Repository.open(repo)
    with pytest.raises(errors.ConflictError, match="reset"):
        between(
            others,
            repo,
            lambda: held.reset_branch("main", history(repo)[1]),
            mode="w",
            allow_changes=True,
        )
    assert first not in history(repo)


def edit(root):
    root["packed"].attrs["comment"] = "checked"


def write(root):
    root["packed"][0] = 7


def delete(root):
    del root["mask"]


def retitle(root):
    root.attrs["title"] = "better"


def add_what_does_not_fit(root):
    root.create_array("anomaly", data=np.arange(8.0), dimension_names=("time",))


def add_what_is_planned(root):
    root.create_array("extra", data=np.arange(8.0), dimension_names=("time",))


@pytest.mark.parametrize("allow", [False, True], ids=["", "changes allowed"])
@pytest.mark.parametrize(
    "act",
    [edit, write, delete, retitle, add_what_does_not_fit, add_what_is_planned],
    ids=lambda act: act.__name__,
)
def test_a_commit_in_between_is_never_replaced_unseen(act, allow, days, others, repo):
    """Changes that are allowed are those that could be looked at."""
    icevirt.build(days, repo, concat_dim="time")
    for day in others:
        with netCDF4.Dataset(day, "a") as file:
            file.createVariable("extra", "f4", ("time",))[:] = 0
    made = []

    def meanwhile():
        session = official(repo).writable_session("main")
        act(zarr.open_group(session.store))
        made.append(session.commit(act.__name__))

    with pytest.raises(errors.ConflictError):
        between(others, repo, meanwhile, mode="w", allow_changes=allow)
    assert history(repo)[0] == made[0]


def test_a_variable_that_is_added_in_between_is_kept(days, others, repo):
    icevirt.build(days, repo, concat_dim="time")

    def meanwhile():
        session = official(repo).writable_session("main")
        root = zarr.open_group(session.store)
        root.create_array("area", data=np.ones((5, 6)), dimension_names=("y", "x"))
        session.commit("area")

    between(others, repo, meanwhile, mode="w")
    found = opened(repo)
    assert found.sizes["time"] == 12
    np.testing.assert_array_equal(found["area"], np.ones((5, 6)))


# -- two processes ----------------------------------------------------------------------------------


@pytest.mark.ci
def test_builds_of_two_processes_are_in_whole_or_refused(tmp_path):
    for racer, scale in enumerate((0.01, 0.02)):
        write_days(tmp_path / f"racer{racer}", 2, scale=scale)
    for number, round_ in enumerate(ROUNDS):
        held = icevirt.Repository.create(tmp_path / f"repo{number}")
        if "dev" in round_:
            held.create_branch("dev", held.lookup_branch("main"))
    told = raced(race, [(racer, str(tmp_path)) for racer in (0, 1)])
    for number, (*groups, _, one, two) in enumerate(ROUNDS):
        outcomes = [each[number] for each in told]
        acknowledged = {
            racer: text for racer, text in enumerate(outcomes) if not text.startswith("refused")
        }
        assert acknowledged
        for racer, snapshot in acknowledged.items():
            repo = str(tmp_path / f"repo{number}")
            assert snapshot in history(repo, (one, two)[racer])
            if groups[0] != groups[1] or one != two or len(acknowledged) == 1:
                found = opened(repo, group=groups[racer], branch=(one, two)[racer])
                sources = [f"{tmp_path}/racer{racer}/day{day}.nc" for day in (1, 2)]
                assert_same_dataset(found, expected_dataset(sources, "time"))
        if groups[0] == groups[1] and one == two:
            assert len(acknowledged) == 1
