"""A build that is verified before its readers see it."""

from pathlib import Path

import pytest

import icevirt
from builds.support import official, write_day
from grouping import grouped
from icevirt.errors import ConflictError, InvalidInputError, RefNotFoundError, VerificationError
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
