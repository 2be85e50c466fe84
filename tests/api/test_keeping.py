"""A build that replaces a group keeps what others put there, or says whose work would be lost."""

import icechunk
import netCDF4
import numpy as np
import pytest
import xarray as xr
import zarr
from icechunk.xarray import to_icechunk

import icevirt
from builds.kept import Kept
from builds.support import official, opened, write_day, write_days
from grouping import grouped
from icevirt import errors

pytestmark = [pytest.mark.ci, pytest.mark.usefixtures("in_process")]


def made(place):
    days = write_days(place / "days", 2)
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


def rebuild(days, repo, **options):
    return icevirt.build(days, repo, concat_dim="time", mode="w", **grouped(options))


def one_more(days):
    """Write the day that follows, so that all arrays along time grow."""
    return [*days, write_day(days[0].replace("day1", "day9"), 9)]


def commit(repo, act):
    """Let the official client do something, and return its commit."""
    session = official(repo).writable_session("main")
    act(session)
    return session.commit(f"work of {act.__name__}")


def group_of(session, path=""):
    return zarr.open_group(session.store, path=path)


def tip(repo):
    return icevirt.Repository.open(repo).lookup_branch("main")


def nodes(repo):
    held = icevirt.Repository.open(repo).readonly_session("main").snapshot
    return {node.path: node for node in held.nodes}


# -- what others did to what the build made ---------------------------------------------------------


def append_a_step(session):
    with xr.open_zarr(session.store, consolidated=False, chunks=None) as held:
        last = held.isel(time=[-1]).load()
    last = last.assign_coords(time=last.time + np.timedelta64(6, "h"))
    for name in last.variables:
        last[name].encoding.clear()
    to_icechunk(last.drop_vars(["x", "y", "mask"]), session, append_dim="time")


def write_a_chunk(session):
    group_of(session)["packed"][1] = 5


def copy_natively(session):
    """Put stored chunks into the place of references, with the values that they had."""
    packed = group_of(session)["packed"]
    packed[...] = packed[...]


def edit_an_attribute(session):
    group_of(session)["packed"].attrs["comment"] = "checked by hand"


def change_units(session):
    group_of(session)["packed"].attrs["units"] = "degC"


def retitle(session):
    group_of(session).attrs["title"] = "better"


def delete(session):
    del group_of(session)["mask"]


def put_another_in_its_place(session):
    group_of(session).create_array("mask", data=np.ones((5, 6), "i1"), overwrite=True)


UNDONE = {
    append_a_step: ["/time (shape [8] → [9]", "/packed (shape [8, 5, 6] → [9, 5, 6]"],
    write_a_chunk: ["/packed (chunks)"],
    copy_natively: ["/packed (chunks)"],
    edit_an_attribute: ["/packed (attribute comment)"],
    change_units: ["/packed (attribute units)"],
    retitle: ["/ (attribute title)"],
    delete: ["/mask (deleted)"],
    put_another_in_its_place: ["/mask (not made by the last build of this group)"],
}


@pytest.mark.parametrize(("act", "output"), UNDONE.items(), ids=[act.__name__ for act in UNDONE])
def test_a_commit_after_the_last_build_is_not_undone_unasked(act, output, days, repo):
    changed = commit(repo, act)
    before = nodes(repo)
    sources = one_more(days) if act is append_a_step else days
    found = icevirt.plan(sources, repo=repo, concat_dim="time").difference
    with pytest.raises(errors.PlanChangedError, match='"allow_changes": True') as caught:
        rebuild(sources, repo)
    for text in (*output, changed, f"work of {act.__name__}"):
        assert text in str(caught.value)
        assert any(text in line for line in found.stopping)
    assert (tip(repo), nodes(repo)) == (changed, before)
    report = rebuild(sources, repo, allow_changes=True)
    assert any(changed in line for line in report.findings)
    history = [each.id for each in official(repo).ancestry(branch="main")]
    assert history[1] == changed
    assert nodes(repo)["/packed"].manifests


def test_a_variable_that_was_moved_is_not_made_again_unasked(days, repo):
    session = official(repo).rearrange_session("main")
    session.move("/mask", "/land")
    moved = session.commit("call it land")
    with pytest.raises(errors.PlanChangedError, match=r"/mask \(moved to /land\)") as caught:
        rebuild(days, repo)
    assert moved in str(caught.value)
    rebuild(days, repo, allow_changes=True)
    assert {"/mask", "/land"} <= nodes(repo).keys()


def test_manifests_that_were_rewritten_are_no_change(days, repo):
    icechunk_repo = official(repo)
    icechunk_repo.rewrite_manifests("rewrite", branch="main")
    built = {path: node for path, node in nodes(repo).items() if path == "/packed"}
    assert not icevirt.plan(days, repo=repo, concat_dim="time").difference.changes
    rebuild(one_more(days), repo)
    assert nodes(repo)["/packed"] != built["/packed"]


# -- what others put beside it ----------------------------------------------------------------------


def derive_in_space(session):
    group_of(session).create_array(
        "area", data=np.arange(30.0).reshape(5, 6), dimension_names=("y", "x")
    )


def derive_without_dimensions(session):
    group_of(session).create_array("version", data=np.array(3))


def derive_with_xarray(session):
    derived = xr.Dataset({"weight": (("y", "x"), np.ones((5, 6)))}, attrs={"note": "weights"})
    to_icechunk(derived, session, mode="a")


def put_a_group(session):
    to_icechunk(xr.Dataset({"v": ("time", [1.0])}, {"time": [7]}), session, group="own/deep")


def put_attributes(session):
    group_of(session).attrs["institution"] = "us"


def put_an_empty_group(session):
    group_of(session).create_group("later", attributes={"plan": "soon"})


KEPT = {
    derive_in_space: "/area",
    derive_without_dimensions: "/version",
    derive_with_xarray: "/weight",
    put_a_group: "/own/deep/v",
    put_attributes: "/",
    put_an_empty_group: "/later",
}


@pytest.mark.ci
@pytest.mark.parametrize("allow", [False, True], ids=["", "changes allowed"])
@pytest.mark.parametrize(("act", "path"), KEPT.items(), ids=[act.__name__ for act in KEPT])
def test_what_the_build_did_not_make_stays(act, path, allow, days, repo):
    commit(repo, act)
    before = nodes(repo)
    for sources in (one_more(days), one_more(days)[:2]):
        found = icevirt.plan(sources, repo=repo, concat_dim="time").difference
        assert path in ("/", *found.kept)
        report = rebuild(sources, repo, allow_changes=allow or len(sources) == 2)
        assert path == "/" or any(path in line for line in report.findings)
        after = nodes(repo)
        assert path == "/" or after[path] == before[path]
        ours = zarr.open_group(official(repo).readonly_session("main").store, mode="r").attrs
        assert {"title", "day"} <= {*ours}
        if act is put_attributes:
            assert ours["institution"] == "us"
        if act is derive_with_xarray:
            assert ours["note"] == "weights"
            np.testing.assert_array_equal(opened(repo)["weight"], np.ones((5, 6)))


def derive_along_time(session):
    group_of(session).create_array("anomaly", data=np.arange(8.0), dimension_names=("time",))


def derive_below(session):
    """Put an array into a group without coordinates, which has the dimensions of the root."""
    group_of(session).create_array("sub/anomaly", data=np.arange(8.0), dimension_names=("time",))


@pytest.mark.parametrize("act", [derive_along_time, derive_below], ids=lambda act: act.__name__)
def test_what_no_longer_fits_stops_the_build(act, days, repo):
    changed = commit(repo, act)
    path = next(path for path in nodes(repo) if path.endswith("anomaly"))
    rebuild_unlike = one_more(days)
    with pytest.raises(errors.PlanChangedError, match="its time has 8 steps, in the build 12"):
        rebuild(rebuild_unlike, repo)
    assert tip(repo) == changed
    found = icevirt.plan(rebuild_unlike, repo=repo, concat_dim="time").difference
    assert path in found.deleted
    rebuild(rebuild_unlike, repo, allow_changes=True)
    assert path not in nodes(repo)


def test_what_would_get_other_labels_stops_the_build(days, repo):
    """As many steps of other days would give the values of others to these days."""
    changed = commit(repo, derive_along_time)
    shifted = one_more(days)[1:]
    with pytest.raises(
        errors.PlanChangedError, match=r"/anomaly \(time has other labels"
    ) as caught:
        rebuild(shifted, repo)
    assert changed in str(caught.value)
    assert tip(repo) == changed
    rebuild(shifted, repo, allow_changes=True)
    assert "/anomaly" not in nodes(repo)


def test_what_keeps_its_labels_stays(days, repo):
    commit(repo, derive_along_time)
    for day in days:
        with netCDF4.Dataset(day, "a") as file:
            file["packed"][0, 1, 1] = 280
    rebuild(days, repo)
    np.testing.assert_array_equal(opened(repo)["anomaly"], np.arange(8.0))


# -- several builds of one repository ---------------------------------------------------------------


@pytest.mark.ci
def test_a_build_of_the_root_keeps_the_groups_of_other_builds(days, repo, tmp_path):
    other = write_days(tmp_path / "other", 3)
    icevirt.build(other, repo, concat_dim="time", group="/b/c")
    before = nodes(repo)
    rebuild(one_more(days), repo)
    after = nodes(repo)
    inside = {path for path in before if path.startswith("/b")}
    assert {path: after[path] for path in inside} == {path: before[path] for path in inside}
    assert opened(repo).sizes["time"] == opened(repo, group="b/c").sizes["time"] == 12
    prefixes = list(icevirt.Repository.open(repo).config.virtual_chunk_containers)
    assert icevirt.verify(repo, full=True, authorize_virtual_chunk_access=prefixes).ok


@pytest.mark.ci
def test_a_group_is_rebuilt_below_a_root_that_is_rebuilt(days, repo, tmp_path):
    other = write_days(tmp_path / "other", 3)
    icevirt.build(other[:2], repo, concat_dim="time", group="b")
    rebuild(one_more(days), repo)
    rebuild(other, repo, group="b")
    rebuild(one_more(days)[:2], repo, allow_changes=True)
    assert opened(repo).sizes["time"] == 8
    assert opened(repo, group="b").sizes["time"] == 12


def test_the_same_build_again_is_found_although_others_built_below(days, repo, tmp_path):
    icevirt.build(write_days(tmp_path / "other", 1), repo, group="b")
    assert icevirt.build(days, repo, concat_dim="time").already_built


@pytest.mark.parametrize("by", ["hand", "another build"])
def test_the_first_build_of_a_group_takes_nothing_that_is_there(by, days, tmp_path):
    repo = str(tmp_path / "repo")
    if by == "hand":
        held = icechunk.Repository.create(icechunk.local_filesystem_storage(repo))
        session = held.writable_session("main")
        to_icechunk(xr.Dataset({"mask": ("q", [1, 2])}, attrs={"title": "mine"}), session)
        first = session.commit("by hand")
    else:
        first = icevirt.build(days[:1], repo, group="/mask").snapshot_id
    with pytest.raises(errors.PlanChangedError, match="/mask") as caught:
        rebuild(days, repo)
    assert first in str(caught.value)
    assert tip(repo) == first
    rebuild(days, repo, allow_changes=True)
    assert opened(repo)["packed"].sizes["time"] == 8


def test_a_build_of_a_group_takes_nothing_that_a_build_of_the_root_put_there(tmp_path):
    path = str(tmp_path / "nested.nc")
    with netCDF4.Dataset(path, "w") as file:
        file.createDimension("n", 2)
        file.createGroup("g").createVariable("v", "i4", ("n",))[:] = [1, 2]
    repo = str(tmp_path / "repo")
    root = icevirt.build(path, repo).snapshot_id
    below = {"group": "/g", "source_group": "/g", "mode": "w"}
    with pytest.raises(errors.PlanChangedError, match=r"/g/v \(not made by the last build"):
        icevirt.build(path, repo, **grouped(below))
    group = icevirt.build(path, repo, **grouped(below, allow_changes=True)).snapshot_id
    with pytest.raises(errors.PlanChangedError, match=r"/g/v \(not made by the last") as caught:
        icevirt.build(path, repo, mode="w")
    assert group in str(caught.value)
    assert [each.id for each in icevirt.Repository.open(repo).ancestry(branch="main")][:2] == [
        group,
        root,
    ]


@pytest.mark.parametrize("lost", ["amended", "expired"])
def test_a_build_whose_commit_is_gone_made_nothing_that_may_go(lost, days, repo):
    """Nobody can tell any more what of the nodes is as it was built."""
    held = official(repo)
    session = held.writable_session("main")
    edit_an_attribute(session)
    if lost == "amended":
        session.amend("amended")
    else:
        session.commit("edited")
        held.expire_snapshots(held.lookup_snapshot(held.lookup_branch("main")).written_at)
        held.garbage_collect(held.lookup_snapshot(held.lookup_branch("main")).written_at)
    before = tip(repo)
    with pytest.raises(errors.PlanChangedError, match="/packed"):
        rebuild(days, repo)
    assert tip(repo) == before
    rebuild(days, repo, allow_changes=True)
    assert "comment" not in opened(repo)["packed"].attrs


def test_eras_that_are_built_again_keep_what_others_put_into_them(tmp_path):
    files = [
        write_day(tmp_path / f"d{day}.nc", day, scale=0.01 if day < 3 else 0.02)
        for day in (1, 2, 3, 4)
    ]
    repo = str(tmp_path / "repo")
    icevirt.build(files[:3], repo, concat_dim="time", combine_options={"on_mismatch": "eras"})

    def derive(session):
        group_of(session, "era_0").create_array(
            "area", data=np.ones((5, 6)), dimension_names=("y", "x")
        )

    commit(repo, derive)
    rebuild(files, repo, on_mismatch="eras")
    np.testing.assert_array_equal(opened(repo, group="era_0")["area"], np.ones((5, 6)))
    assert opened(repo, group="era_1").sizes["time"] == 8
