"""A build that is verified before its readers see it."""

import re
import shlex
import time
from datetime import UTC, datetime
from pathlib import Path

import pytest

import icevirt
from builds.support import official, write_day
from grouping import grouped
from icevirt.api.verify import verify_snapshot
from icevirt.errors import (
    BuildError,
    ConflictError,
    InvalidInputError,
    RefNotFoundError,
    VerificationError,
)
from icevirt.tasks.verify.references import check_references


@pytest.fixture
def days(tmp_path, in_process):
    """Three days."""
    files = [str(tmp_path / f"day{day}.nc") for day in range(3)]
    for day, path in enumerate(files):
        write_day(path, day)
    return files


def build(days, repo, **how):
    return icevirt.build(
        days,
        repo,
        concat_dim="time",
        **grouped({"verify": 10, "promote": "main", **how}, branch="staging"),
    )


def test_what_passes_is_promoted_in_one_step(days, repo_path):
    report = build(days, repo_path)
    repo = icevirt.Repository.open(repo_path)
    assert repo.lookup_branch("main") == repo.lookup_branch("staging") == report.snapshot_id
    assert "verify" in report.seconds
    again = build(days, repo_path)
    assert again.already_built
    assert icevirt.check(repo_path).ok


def test_what_differs_is_not_promoted(days, repo_path, in_process):
    first = build(days[:2], repo_path)
    in_process.before[check_references] = lambda: write_day(days[1], 1, steps=3)
    with pytest.raises(VerificationError, match=r"day1\.nc.*verify .* --snapshot-id"):
        build(days, repo_path, mode="w")
    repo = icevirt.Repository.open(repo_path)
    assert repo.lookup_branch("main") == repo.lookup_branch("staging") == first.snapshot_id


def build_two(days, repo_path):
    return icevirt.build(days[:2], repo_path, concat_dim="time")


def rewrite(days):
    """Let a file change while it is verified."""
    return lambda: write_day(days[1], 1, steps=3)


VERIFIED = {
    "a first build": (
        None,
        lambda days, repo, how: icevirt.build(days[:2], repo, concat_dim="time", **how),
    ),
    "a rebuild": (
        build_two,
        lambda days, repo, how: icevirt.build(days, repo, mode="w", concat_dim="time", **how),
    ),
    "an append at the end": (
        build_two,
        lambda days, repo, how: icevirt.append(days[2], repo, **how),
    ),
    "an append planned of all files": (
        lambda days, repo: icevirt.build(days[1:], repo, concat_dim="time"),
        lambda days, repo, how: icevirt.append(
            days[0], repo, authorize=[str(Path(days[0]).parent)], **how
        ),
    ),
}


@pytest.mark.parametrize(("begin", "call"), VERIFIED.values(), ids=VERIFIED)
def test_what_differs_never_gets_on_the_branch(begin, call, days, repo_path, in_process):
    before = None if begin is None else begin(days, repo_path).snapshot_id
    in_process.before[check_references] = rewrite(days)
    how = {"commit_options": {"verify": 10}}
    with pytest.raises(VerificationError, match="'main' is as it was") as caught:
        call(days, repo_path, how)
    repo = icevirt.Repository.open(repo_path)
    assert len([*repo.ancestry(branch="main")]) == (1 if before is None else 2)
    assert before in (None, repo.lookup_branch("main"))
    found = icevirt.verify(
        repo_path,
        snapshot_id=caught.value.facts["snapshot"],
        authorize_virtual_chunk_access=[str(Path(days[0]).parent)],
    )
    assert not found.ok
    assert icevirt.check(repo_path).ok
    # the same, when the file is what it was again, or is scanned again
    in_process.before.clear()
    write_day(days[1], 1)
    if begin is None:
        done = call(days, repo_path, how)
        assert official(repo_path).lookup_branch("main") == done.snapshot_id


@pytest.mark.parametrize("begin", [None, build_two], ids=["build", "append"])
def test_garbage_that_is_collected_meanwhile_ends_the_call(begin, days, repo_path, monkeypatch):
    """Else the branch would get a snapshot that is no more."""
    first = begin and begin(days, repo_path).snapshot_id

    def verify_and_collect(*given, **how):
        found = verify_snapshot(*given, **how)
        time.sleep(1)  # younger than what was written by whole seconds, which are what counts
        gone = icevirt.Repository.open(repo_path).garbage_collect(datetime.now(UTC))
        assert gone.snapshots_deleted == 1
        return found

    call = icevirt.append if begin else icevirt.build
    with monkeypatch.context() as patch:
        patch.setattr("icevirt.api.verify.verify_snapshot", verify_and_collect)
        with pytest.raises(BuildError, match="garbage was collected"):
            call(days, repo_path, concat_dim="time", commit_options={"verify": 2})
    assert icevirt.check(repo_path).ok
    assert first is None or icevirt.Repository.open(repo_path).lookup_branch("main") == first
    assert call(days, repo_path, concat_dim="time", commit_options={"verify": 2}).snapshot_id


def test_datasets_of_other_groups_stop_no_verified_build(days, repo_path, tmp_path):
    """Neither a lost file of theirs, nor a scanner that only its user may name."""
    scanner = "icevirt_scanners.hdf5.scanner:Hdf5Scanner"
    other = write_day(tmp_path / "other.nc", 7)
    icevirt.build(other, repo_path, group="/a", scan_options={"scanner": scanner})
    Path(other).unlink()
    report = icevirt.build(
        days, repo_path, concat_dim="time", group="/b", commit_options={"verify": 5}
    )
    assert report.snapshot_id == icevirt.Repository.open(repo_path).lookup_branch("main")
    assert not [each for each in report.findings if "not verified" in each]


def test_the_command_of_the_error_shows_what_differs(days, repo_path, in_process, run):
    in_process.before[check_references] = rewrite(days)
    with pytest.raises(VerificationError) as caught:
        icevirt.build(days, repo_path, concat_dim="time", commit_options={"verify": 500})
    (words,) = re.findall("`icevirt (.*)`", str(caught.value))
    status, shown, _ = run(*shlex.split(words))
    assert status == 1
    assert "day1.nc" in shown


def test_others_may_commit_elsewhere_while_a_build_is_verified(days, repo_path, in_process):
    def commit():
        repo = icevirt.Repository.open(repo_path)
        session = repo.writable_session("main")
        session.add_group("/notes", b'{"zarr_format": 3, "node_type": "group"}')
        session.commit("somebody else")

    in_process.before[check_references] = commit
    icevirt.build(days, repo_path, concat_dim="time", group="/own", commit_options={"verify": 10})
    session = icevirt.Repository.open(repo_path).readonly_session("main")
    assert session.find("/notes") is not None
    assert session.find("/own") is not None
    assert icevirt.check(repo_path).ok


def test_a_branch_that_went_on_is_not_moved_back(days, repo_path):
    build(days[:2], repo_path)
    repo = icevirt.Repository.open(repo_path)
    session = repo.writable_session("main")
    session.add_group("/notes", b'{"zarr_format": 3, "node_type": "group"}')
    mine = session.commit("somebody else")
    with pytest.raises(ConflictError, match="'main' holds commits"):
        build(days, repo_path, mode="w")
    assert repo.lookup_branch("main") == mine


@pytest.mark.parametrize(
    ("how", "kind"),
    [
        ({"promote": "staging"}, InvalidInputError),
        ({"promote": "nowhere"}, RefNotFoundError),
        ({"verify": -1}, InvalidInputError),
    ],
)
def test_what_cannot_be_is_refused(days, repo_path, how, kind):
    with pytest.raises(kind):
        build(days, repo_path, **how)
    assert not Path(repo_path, "refs").exists()
