"""One's own datasets open without naming the prefixes of their files; others' do not."""

import shutil

import pytest
import xarray as xr

import icevirt
from builds.support import assert_same_dataset, expected_dataset, write_days
from icevirt.errors import UnauthorizedError


@pytest.fixture
def built(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.delenv("ICEVIRT_REMEMBER", raising=False)
    days = write_days(tmp_path / "in", 2)
    icevirt.build(days, tmp_path / "repo", concat_dim="time", executor="in-process")
    return days


def test_a_dataset_of_ones_own_opens(built, tmp_path):
    with icevirt.open(tmp_path / "repo") as dataset:
        assert_same_dataset(dataset, expected_dataset(built, "time"))
    with (
        icevirt.open(tmp_path / "repo", authorize_virtual_chunk_access=[]) as closed,
        pytest.raises(UnauthorizedError),
    ):
        closed.load()


def test_a_dataset_that_came_from_elsewhere_authorizes_nothing(built, tmp_path, monkeypatch):
    shutil.copytree(tmp_path / "repo", tmp_path / "copy")
    for repo, home in (("copy", "state"), ("repo", "another")):
        monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / home))
        with icevirt.open(tmp_path / repo) as dataset, pytest.raises(UnauthorizedError):
            dataset.load()


def test_recorded_stands_for_the_prefixes_of_ones_own_builds(built, tmp_path, run):
    status, _, error = run("verify", tmp_path / "repo", "--authorize", "recorded", "-q")
    assert (status, error) == (0, f"authorized: {(tmp_path / 'in').as_uri()}/\n")
    shutil.move(tmp_path / "repo", tmp_path / "moved")
    status, _, error = run("verify", tmp_path / "moved", "--authorize", "recorded")
    assert status == 2
    assert "nothing is recorded" in error


def test_a_refusal_is_ready_to_paste(built, tmp_path, run):
    status, _, error = run("verify", tmp_path / "repo")
    assert status == 1
    assert f"--authorize {(tmp_path / 'in').as_uri()}/" in error
    with pytest.raises(UnauthorizedError) as refused:
        icevirt.verify(tmp_path / "repo", executor="in-process")
    assert f'authorize_virtual_chunk_access=["{(tmp_path / "in").as_uri()}/"]' in str(refused.value)
    assert "--authorize" not in str(refused.value)
    with xr.open_dataset(
        tmp_path / "repo", engine="icevirt", authorize_virtual_chunk_access=[tmp_path.as_uri()]
    ) as dataset:
        assert_same_dataset(dataset, expected_dataset(built, "time"))
