"""What this user made is remembered in a file that nobody else can have written."""

import os
import stat

import pytest

from icevirt.repo.kept_objects import cache_of
from icevirt.repo.made_here import (
    identify,
    is_remembered,
    own_or,
    read_containers,
    remember,
    remember_containers,
)
from icevirt.storage.constructors import s3_storage
from icevirt.storage.protocol import Below
from icevirt.storage.web_server import http_storage


@pytest.fixture
def state(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.delenv("ICEVIRT_REMEMBER", raising=False)
    return tmp_path / "icevirt" / "recipes.jsonl"


def test_a_recipe_is_remembered_for_its_repository_and_noted_once(state):
    remember("s3://b/repo", "d1")
    remember("s3://b/repo", "d1")
    remember("s3://b/repo", "d2")
    assert is_remembered("s3://b/repo", "d1")
    assert is_remembered("s3://b/repo", "d2")
    assert not is_remembered("s3://b/repo", "d3")
    assert not is_remembered("s3://b/other", "d1")
    assert len(state.read_text().splitlines()) == 2
    assert stat.S_IMODE(os.stat(state).st_mode) == 0o600


def test_prefixes_of_builds_are_remembered_by_repository(state):
    remember_containers("s3://b/repo", ["file:///a/", ("s3://c/", "https://host")])
    remember_containers("s3://b/repo", ["file:///a/", "file:///d/"])
    remember_containers("s3://b/repo", ["file:///a/"])
    remember("s3://b/repo", "d1")
    with state.open("a") as file:
        file.write('{"repo": "s3://b/repo", "containers": [1, ["x"], {"y": 2}]}\n')
    assert read_containers("s3://b/repo") == (
        "file:///a/",
        ("s3://c/", "https://host"),
        "file:///d/",
    )
    assert read_containers("s3://b/other") == ()
    assert len(state.read_text().splitlines()) == 4
    os.chmod(state, 0o620)
    assert read_containers("s3://b/repo") == ()


def test_a_bucket_of_the_same_name_on_another_server_is_another_one(state):
    mine = s3_storage(bucket="data", prefix="repo", region="us-east-1")
    theirs = s3_storage(
        bucket="data", prefix="repo", region="us-east-1", endpoint_url="https://s3.example"
    )
    assert mine.url == theirs.url
    remember(identify(mine), "d1")
    remember_containers(identify(mine), ["file:///home/me/"])
    assert own_or(None, identify(mine)) == ("file:///home/me/",)
    assert own_or(None, identify(theirs)) is None
    assert not is_remembered(identify(theirs), "d1")
    assert cache_of(mine) is cache_of(mine)
    assert cache_of(mine) is not cache_of(theirs)
    assert cache_of(Below(mine, "icevirt/")) is not cache_of(Below(theirs, "icevirt/"))
    web = http_storage("https://host/repo/")
    assert identify(web) == web.url


@pytest.mark.parametrize("word", ["0", "false", "Off", " no "])
def test_a_variable_switches_it_off(word, state, monkeypatch):
    remember("s3://b/repo", "d1")
    monkeypatch.setenv("ICEVIRT_REMEMBER", word)
    assert not is_remembered("s3://b/repo", "d1")
    remember("s3://b/repo", "d2")
    assert "d2" not in state.read_text()


def test_a_file_that_others_can_write_says_nothing(state):
    remember("s3://b/repo", "d1")
    os.chmod(state, 0o620)
    assert not is_remembered("s3://b/repo", "d1")
    os.chmod(state, 0o600)
    moved = state.with_name("elsewhere")
    state.rename(moved)
    state.symlink_to(moved)
    assert not is_remembered("s3://b/repo", "d1")


def test_a_place_that_cannot_be_written_stops_nothing(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "file"))
    remember("s3://b/repo", "d1")
    assert not is_remembered("s3://b/repo", "d1")


def test_damaged_lines_are_passed_over(state):
    remember("s3://b/repo", "d1")
    with state.open("ab") as file:
        file.write(b"\xff{\n[]\n")
    assert is_remembered("s3://b/repo", "d1")
