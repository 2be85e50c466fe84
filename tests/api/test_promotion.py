"""A build that is verified before its readers see it."""

from pathlib import Path

import pytest

import icevirt
from builds.support import write_day
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
    with pytest.raises(VerificationError, match=r"day1\.nc.*verify --snapshot-id"):
        build(days, repo_path, mode="w")
    repo = icevirt.Repository.open(repo_path)
    assert repo.lookup_branch("main") == first.snapshot_id
    assert repo.lookup_branch("staging") != first.snapshot_id


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
