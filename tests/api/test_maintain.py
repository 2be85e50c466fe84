"""Old versions and garbage go, and nothing that a branch, a tag, a reader or a build needs."""

import json
import shutil
from datetime import UTC, datetime, timedelta
from pathlib import Path

import icechunk
import numpy as np
import pytest
import zarr
from typer.testing import CliRunner

import icevirt
from builds.aging import days_ago, grown, in_memory
from builds.support import official, opened, write_day, write_days
from icevirt.cli.main import app
from icevirt.errors import InvalidInputError
from icevirt.execution.selection import default_executor
from icevirt.repo.repo_info_file import RepoInfoFile
from icevirt.storage.constructors import storage_of
from repo.faults.faulty import End, endings
from repo.support import sound

pytestmark = pytest.mark.usefixtures("in_process")
WRITES = ("put", "put_if", "delete", "delete_many", "delete_below")
AGES = (80, 60, 40, 2)


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    """Four appends; the third is what the branch showed thirty days ago. A tag, a stored array."""
    folder = tmp_path_factory.mktemp("maintain")
    files, storage = write_days(folder / "days", len(AGES)), folder / "repo"
    with default_executor("in-process"):
        grown(str(storage), files[:3], AGES[:3])
        with days_ago(storage, 39):
            session = icevirt.Repository.open(storage).writable_session("main")
            array = zarr.create_array(
                session.store, name="n", shape=2000, chunks=1000, dtype="f8", compressors=None
            )
            array[:] = 1.0
            session.flush("nobody needs it")
        grown(str(storage), files[3:], AGES[3:])
    repo = icevirt.Repository.open(storage)
    versions = [each.id for each in repo.ancestry(branch="main")][::-1][1:]
    repo.create_tag("first", versions[0])
    return files, storage, versions


@pytest.fixture
def storage(base, tmp_path):
    return str(shutil.copytree(base[1], tmp_path / "repo"))


def paths(storage):
    storage = storage_of(storage)
    return {info.path for info in storage.list()}


def values(storage, **version):
    return opened(storage, **version).load()


def test_what_a_branch_showed_in_the_time_stays_and_tags_and_all_else_goes(base, storage, tmp_path):
    files, _, versions = base
    before, tip, tagged = paths(storage), values(storage), values(storage, tag="first")
    plan = icevirt.maintain(storage, keep_snapshots="30D", dry_run=True)
    assert paths(storage) == before
    by_tasks = icevirt.maintain(storage, dry_run=True, executor="in-process")
    assert (by_tasks.deleted, by_tasks.executor) == (plan.deleted, "in-process")
    assert paths(storage) == before
    assert plan.snapshots_expired == 2
    assert [each.message for each in plan.expired] == ["nobody needs it", "Append 1 file"]
    assert plan.expired[1].snapshot_id == versions[1]
    assert [each.name for each in plan.kept_by_name] == ["tag first"]
    assert plan.deleted["native chunks"].objects == 2
    assert plan.deleted["snapshots"].objects == 2
    done = icevirt.maintain(storage, executor="in-process")
    assert done.deleted == plan.deleted
    gone = before - paths(storage)
    assert len(gone) == done.objects > 0
    assert values(storage).identical(tip)
    assert values(storage, tag="first").identical(tagged)
    month = datetime.now(UTC) - timedelta(days=30)
    shown = opened(storage, as_of=month)
    assert shown.sizes["time"] == 12  # and the branch did not show the version of 60 days ago
    assert sound(storage)
    again = icevirt.maintain(storage)
    assert (again.objects, again.snapshots_expired) == (0, 0)

    folder = str(Path(files[0]).parent)
    more = icevirt.append(write_day(tmp_path / "day5.nc", 5), storage, authorize=folder)
    assert (more.files_scanned, more.files_known) == (1, 0)  # scans of the others are still there


def test_both_clients_collect_after_each_other_and_commit(storage):
    icevirt.maintain(storage)
    theirs = official(storage)
    session = theirs.writable_session("main")
    zarr.create_array(session.store, name="more", shape=3000, chunks=1000, dtype="f8")[:] = 2.0
    session.commit("by the official client")
    theirs.expire_snapshots(datetime.now(UTC) - timedelta(days=1))
    theirs.garbage_collect(datetime.now(UTC))
    assert sound(storage)
    report = icevirt.maintain(storage, keep_snapshots="7D")
    assert report.deleted["manifests"].objects == 0
    theirs = icechunk.Repository.open(icechunk.local_filesystem_storage(storage))
    group = zarr.open_group(theirs.readonly_session("main").store, mode="r")
    np.testing.assert_array_equal(group["more"][:], 2.0)


def test_unfinished_builds_protect_what_is_younger_and_dead_ones_are_removed(storage):
    dead, running = "0" * 20, "1" * 20
    for build, ages in ((dead, (30, 9)), (running, (70, 3))):
        for number, age in enumerate(ages):
            with days_ago(storage, age):
                storage_of(storage).put(f"icevirt/builds/{build}/items/{number}", b"x" * 10)
    report = icevirt.maintain(storage)
    assert [each.build_id for each in report.unfinished] == [running]
    assert report.deleted["native chunks"].objects == 0
    assert report.deleted["work of builds"].objects == 2
    assert not any(dead in path for path in paths(storage))
    assert any(running in path for path in paths(storage))
    assert report.snapshots_expired == 0


def test_records_that_no_version_names_go(base, storage):
    root = storage_of(storage)
    info = RepoInfoFile(root).read().info
    record = info.snapshots[info.branches["main"]].metadata["icevirt_build"]
    recipe, unknown = "a" * 40, "b" * 40
    records = (each for each in paths(storage) if each.startswith("icevirt/records/"))
    (own,) = (each for each in records if record["listing"].encode() in root.get(each))
    same = json.dumps(json.loads(root.get(own)) | {"note": recipe}).encode()
    with days_ago(storage, 20):
        root.put(f"icevirt/records/{record['build_id']}.{'d' * 20}.json", same)
        for path in (
            f"records/{'c' * 20}.json",
            f"recipes/{recipe}.toml",
            f"recipes/{unknown}.toml",
        ):
            root.put(f"icevirt/{path}", b"{}")
        root.put("icevirt/excluded/a-note", b"")
        root.put("icevirt/by-others/note", b"")
    before = paths(storage)
    report = icevirt.maintain(storage)
    left = paths(storage)
    kinds = tuple(f"icevirt/{each}/" for each in ("records", "recipes", "tails"))
    gone = {each for each in before - left if each.startswith(kinds)}
    assert report.deleted["records"].objects == len(gone)
    assert {f"icevirt/records/{'c' * 20}.json", f"icevirt/recipes/{unknown}.toml"} <= gone
    assert {f"icevirt/recipes/{recipe}.toml", "icevirt/excluded/a-note"} <= left
    assert "icevirt/by-others/note" in left
    assert {own, f"icevirt/records/{record['build_id']}.{'d' * 20}.json"} <= left


def test_indexes_of_scans_go_with_scans_and_stay_where_these_stay(storage):
    """The next scan of many files writes one again."""
    root, known = storage_of(storage), "icevirt/catalog/known/scan-0-0"
    with days_ago(storage, 20):
        root.put(known, b"")
    icevirt.maintain(storage)
    assert known in paths(storage)
    part = min(each for each in paths(storage) if each.startswith("icevirt/catalog/files/"))
    same = f"{part.rpartition('-')[0]}-{'g' * 16}.parquet"  # behind the other
    with days_ago(storage, 20):
        root.put(same, root.get(part))
    assert icevirt.maintain(storage).deleted["scans"].objects == 2
    assert not {known, same} & paths(storage)
    assert part in paths(storage)


def test_what_was_undone_lately_can_be_redone(base, storage):
    _, _, versions = base
    for _ in range(3):
        icevirt.undo(storage)
    report = icevirt.maintain(storage)
    assert [each.message for each in report.expired] == ["nobody needs it"]
    assert icevirt.redo(storage).after.snapshot_id == versions[1]
    assert values(storage).sizes["time"] == 8


@pytest.mark.ci
def test_however_it_is_killed_nothing_is_lost_and_a_second_run_finishes(base):
    tip = RepoInfoFile(storage_of(base[1])).read().info.branches["main"]
    whole = in_memory(base[1])
    icevirt.maintain(whole)
    kept = {path for path in paths(whole) if not path.startswith("overwritten/")}
    for left, end in endings(icevirt.maintain, lambda: in_memory(base[1]), WRITES):
        assert RepoInfoFile(left).read().info.branches["main"] == tip
        assert kept <= paths(left)
        if end is End.answer_lost:
            continue  # as where it is killed behind the call
        icevirt.maintain(left)
        found = {path for path in paths(left) if not path.startswith("overwritten/")}
        assert found == kept
    assert sound(left)


@pytest.mark.parametrize("given", ["6D", "a while", timedelta(hours=1)], ids=str)
def test_a_time_that_is_too_short_is_refused(base, given):
    with pytest.raises(InvalidInputError, match=r"seven days|not a time"):
        icevirt.maintain(base[1], keep_snapshots=given)


def test_the_command_shows_first_and_acts_if_reported_to(storage):
    for options, status, words in (
        (["--dry-run"], 0, "nothing was changed: a plan"),
        ([], 1, "nothing was changed without --yes"),
        (["--yes"], 0, "deleted "),
    ):
        ran = CliRunner().invoke(app, ["maintain", storage, "-o", "text", *options])
        assert (ran.exit_code, words in ran.output) == (status, True), ran.output
    assert "tag first" in ran.output


def test_appends_stay_flat_behind_a_build_that_is_no_longer_in_the_history(tmp_path):
    """What it recorded is an object, which stays: docs/operating.md."""
    repo = str(tmp_path / "repo")
    files = write_days(tmp_path / "days", 3)
    with days_ago(repo, 60):
        built = icevirt.append(files[:2], repo, concat_dim="time").snapshot_id
    for age in (50, 40):  # of which the newest is the tip
        with days_ago(repo, age):
            session = icevirt.Repository.open(repo).writable_session("main")
            zarr.open_group(session.store).require_group("mine").attrs["n"] = age
            session.commit("another group")
    icevirt.maintain(repo)
    there = [each.id for each in icevirt.Repository.open(repo).ancestry(branch="main")]
    assert built not in there
    assert len(there) == 2  # with the first of all
    report = icevirt.append(files[2:], repo)
    assert report.flat, report.findings
    assert opened(repo).sizes["time"] == 12
