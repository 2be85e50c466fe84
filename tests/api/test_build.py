"""`icevirt.build`: what it promises when all is well."""

import os
from pathlib import Path

import numpy as np
import pytest

import icevirt
from builds.support import (
    assert_same_dataset,
    assert_same_raw,
    expected_dataset,
    official,
    opened,
    truncate,
    write_day,
    write_days,
)
from grouping import grouped
from icevirt import errors

pytestmark = pytest.mark.usefixtures("in_process")


@pytest.fixture
def days(tmp_path):
    """Three days of an archive."""
    return write_days(tmp_path / "archive")


def snapshots(repo):
    """Return the messages of main's history, newest first."""
    return [each.message for each in icevirt.Repository.open(repo).ancestry(branch="main")]


def test_a_packed_archive_reads_as_its_files_do(days, repo_path):
    """f4 scale factors stay f4, holes stay NaN, partial time_bnds are stored."""
    report = icevirt.build(days, repo_path, concat_dim="time")
    assert_same_dataset(opened(repo_path), expected_dataset(days, "time"))
    session = icevirt.Repository.open(
        repo_path, authorize_virtual_chunk_access=report.containers
    ).readonly_session("main")
    assert_same_raw(
        session.store,
        days,
        lambda name, array: 0 if "time" in array.metadata.dimension_names else None,
    )
    counts = report.references
    assert (counts.virtual, counts.native + counts.inline) == (13, 4)
    assert counts.bytes_referenced > 0


@pytest.mark.ci
def test_sources_are_globs_directories_paths_and_urls(days, tmp_path):
    """The same archive named in four ways is the same build."""
    folder = Path(days[0]).parent
    (folder / "notes.txt").write_text("not data")
    ways = [str(folder / "*.nc"), folder, days, [f"file://{path}" for path in days]]
    found = {
        icevirt.build(way, tmp_path / f"repo{n}", concat_dim="time").build_id
        for n, way in enumerate(ways)
    }
    assert len(found) == 1


def test_a_repository_is_named_by_path_or_url(days, tmp_path):
    """A file URL is as good as a path."""
    report = icevirt.build(days, f"file://{tmp_path}/a repo", concat_dim="time")
    assert report.repo == f"file://{tmp_path}/a%20repo"
    assert icevirt.info(tmp_path / "a repo").snapshot_id == report.snapshot_id


def test_the_same_build_again_changes_nothing(days, repo_path):
    """A build that was committed is found and reported, whatever the mode."""
    first = icevirt.build(days, repo_path, concat_dim="time")
    for mode in ("w-", "w"):
        again = icevirt.build(days, repo_path, concat_dim="time", mode=mode)
        assert again.already_built
        assert again.snapshot_id == first.snapshot_id
        assert again.references == first.references
    assert len(snapshots(repo_path)) == 2


@pytest.mark.parametrize(("first", "then"), [("time", None), (None, "time"), (None, None)])
def test_the_same_dimension_named_or_inferred_is_the_same_build(days, repo_path, first, then):
    """A build that infers the dimension finds the one that named it, and the other way round."""
    made = icevirt.build(days, repo_path, concat_dim=first)
    for mode in ("w-", "w"):
        again = icevirt.build(days, repo_path, concat_dim=then, mode=mode)
        assert (again.already_built, again.snapshot_id) == (True, made.snapshot_id)
    with pytest.raises(errors.AlreadyExistsError, match='mode="w"'):
        icevirt.build(days[:-1], repo_path, concat_dim=then)
    assert len(snapshots(repo_path)) == 2
    assert not (Path(repo_path) / "icevirt" / "builds").exists()


@pytest.mark.ci
def test_a_build_that_the_branch_no_longer_holds_is_made_again(days, repo_path):
    """Replaced by another build, or changed by a commit, whose work is not undone unasked."""
    call = {"concat_dim": "time", "group": "g"}
    icevirt.build(days, repo_path, **grouped(call))
    icevirt.build(days[:1], repo_path, group="g", mode="w", commit_options={"allow_changes": True})
    assert not icevirt.build(days, repo_path, **grouped(call), mode="w").already_built
    session = icevirt.Repository.open(repo_path).writable_session("main")
    session.delete("/g/mask")
    session.commit("lost a variable")
    with pytest.raises(errors.PlanChangedError, match="lost a variable"):
        icevirt.build(days, repo_path, mode="w", **grouped(call))
    again = icevirt.build(days, repo_path, mode="w", **grouped(call, allow_changes=True))
    assert not again.already_built
    assert "mask" in opened(repo_path, group="g")


@pytest.mark.parametrize("mode", ["w-", "w"])
def test_a_build_into_a_group_below_does_not_undo_the_one_above(days, repo_path, mode):
    """Running the outer build again finds it, and leaves the inner one alone."""
    icevirt.build(days, repo_path, concat_dim="time")
    icevirt.build(days[:1], repo_path, group="inner")
    assert icevirt.build(days, repo_path, concat_dim="time", mode=mode).already_built
    assert "packed" in opened(repo_path, group="inner")


def test_a_build_with_bad_files_is_no_build_without(days, repo_path):
    """What was left out is remembered, and counted against what may be."""
    truncate(days[1])
    first = icevirt.build(days, repo_path, concat_dim="time", scan_options={"max_bad_files": 1})
    again = icevirt.build(days, repo_path, concat_dim="time", scan_options={"max_bad_files": 1})
    assert again.already_built
    assert again.bad_files == first.bad_files
    with pytest.raises(errors.ScanError, match=r"day2\.nc"):
        icevirt.build(days, repo_path, concat_dim="time", mode="w")


def test_the_repository_is_not_among_its_own_sources(days, tmp_path):
    """A wide glob over an archive that holds the repository finds the data only."""
    folder = Path(days[0]).parent
    for _ in range(2):
        icevirt.build(str(folder / "**"), folder / "repo", concat_dim="time")
    assert len(snapshots(str(folder / "repo"))) == 2


@pytest.mark.ci
def test_a_replaced_group_keeps_its_past(days, repo_path):
    """mode="w" commits a new snapshot; the old one reads as before."""
    first = icevirt.build(days[:2], repo_path, concat_dim="time")
    icevirt.build(
        days, repo_path, concat_dim="time", mode="w", commit_options={"message": "a day more"}
    )
    assert_same_dataset(opened(repo_path), expected_dataset(days, "time"))
    past = opened(repo_path, snapshot_id=first.snapshot_id)
    assert_same_dataset(past, expected_dataset(days[:2], "time"))
    assert snapshots(repo_path)[0] == "a day more"


def test_a_group_that_is_not_empty_is_not_touched(days, repo_path):
    """The default mode refuses and says how to go on."""
    icevirt.build(days[:2], repo_path, concat_dim="time")
    with pytest.raises(errors.AlreadyExistsError, match='mode="w"'):
        icevirt.build(days, repo_path, concat_dim="time")
    assert len(snapshots(repo_path)) == 2


def test_groups_hold_datasets_of_their_own(days, repo_path):
    """Two archives in one repository, each read by its group."""
    other = [write_day(Path(days[0]).parent / "fine.nc", 1, nx=12)]
    icevirt.build(days, repo_path, concat_dim="time", group="coarse")
    icevirt.build(other, repo_path, group="/nested/fine")
    assert_same_dataset(opened(repo_path, group="coarse"), expected_dataset(days, "time"))
    assert_same_dataset(opened(repo_path, group="nested/fine"), expected_dataset(other, None))


def test_a_branch_is_built_without_touching_main(days, repo_path):
    """Readers of main see nothing until the branch is merged or main is reset."""
    first = icevirt.build(days[:2], repo_path, concat_dim="time")
    icevirt.Repository.open(repo_path).create_branch("next", first.snapshot_id)
    icevirt.build(days, repo_path, concat_dim="time", commit_options={"branch": "next"}, mode="w")
    assert opened(repo_path).sizes["time"] == 8
    assert opened(repo_path, branch="next").sizes["time"] == 12


def test_dropped_variables_are_not_there(days, repo_path):
    """By name; everything else is."""
    icevirt.build(
        days, repo_path, concat_dim="time", scan_options={"drop_variables": ["mask", "time_bnds"]}
    )
    assert set(opened(repo_path).variables) == {"packed", "time", "x", "y"}


def test_bad_files_are_left_out_when_that_is_allowed(days, repo_path):
    """The report names each with its error; the others are all there."""
    Path(days[1]).write_text("not a netCDF file")
    report = icevirt.build(days, repo_path, concat_dim="time", scan_options={"max_bad_files": 1})
    assert [(Path(bad.url).name, bad.code) for bad in report.bad_files] == [("day2.nc", "scan")]
    assert_same_dataset(opened(repo_path), expected_dataset([days[0], days[2]], "time"))


def test_a_catalog_that_is_named_is_kept_and_used(days, tmp_path):
    """A second repository over the same files scans nothing."""
    catalog = tmp_path / "catalog"
    icevirt.build(days, tmp_path / "a", concat_dim="time", catalog=catalog)
    report = icevirt.build(days, tmp_path / "b", concat_dim="time", catalog=catalog)
    assert (report.files_scanned, report.files_reused) == (0, 3)
    assert_same_dataset(opened(str(tmp_path / "b")), expected_dataset(days, "time"))


def test_nothing_of_the_build_stays_in_the_repository(days, repo_path):
    """After success the root holds what the format knows, and what the dataset was made of."""
    icevirt.build(days, repo_path, concat_dim="time")
    assert sorted(os.listdir(f"{repo_path}/icevirt")) == [
        "catalog",
        "known",
        "listings",
        "recipes",
        "records",
        "tails",
    ]
    assert len(os.listdir(f"{repo_path}/icevirt/listings")) == 1
    assert set(os.listdir(repo_path)) - {"icevirt"} == {
        "repo",
        "snapshots",
        "manifests",
        "transactions",
        "overwritten",
        "chunks",
    } - ({"chunks"} if not (Path(repo_path) / "chunks").exists() else set())


def test_official_writers_leave_the_other_manifests_alone(days, repo_path):
    """The windows are persisted, so one chunk's commit rewrites one manifest."""
    icevirt.build(days, repo_path, concat_dim="time")
    repo = official(repo_path)
    before = {info.id for info in repo.list_manifest_files(repo.lookup_branch("main"))}
    session = repo.writable_session("main")
    session.store.set_virtual_ref("packed/c/5/0/0", f"file://{days[0]}", offset=1, length=9)
    session.commit("one chunk")
    after = {info.id for info in repo.list_manifest_files(repo.lookup_branch("main"))}
    assert len(after - before) == 1
    index = np.array([[5, 0, 0]])
    found = icevirt.Repository.open(repo_path).readonly_session("main").references("packed", index)
    assert (int(found.offset[0]), int(found.length[0])) == (1, 9)


def test_progress_is_reported(days, repo_path):
    """Every long phase says how far it is."""
    output = []
    icevirt.build(days, repo_path, concat_dim="time", progress=output.append)
    steps = {(each.phase, each.done, each.total, each.unit) for each in output}
    assert {("scan", 3, 3, "files"), ("write", 2, 2, "manifests")} <= steps
    assert list(dict.fromkeys(each.phase for each in output)) == [
        *("list", "executor", "scan", "plan", "write", "commit")
    ]
    scanned = next(each for each in output if each.phase == "scan" and each.done == 3)
    assert (scanned.files, scanned.bytes) == (3, sum(Path(day).stat().st_size for day in days))
    written = next(each for each in output if each.phase == "write" and each.done == 2)
    assert written.references > 0


def test_metadata_says_what_was_built(days, repo_path):
    """A snapshot can be traced to its build."""
    report = icevirt.build(
        days, repo_path, concat_dim="time", commit_options={"metadata": {"ticket": 7}}
    )
    output = icevirt.Repository.open(repo_path).lookup_snapshot(report.snapshot_id).metadata
    assert output["ticket"] == 7
    assert output["icevirt_build"]["files"] == 3
    assert output["icevirt_build"]["build_id"] == report.build_id
    assert output["icevirt_build"]["icevirt"] == icevirt.__version__
    assert output["icevirt_build"]["scanners"]["hdf5"] == icevirt.scan_file(days[0]).scanner_version
