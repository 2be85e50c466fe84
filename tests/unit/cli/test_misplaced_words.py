"""A command line that lacks a word, or has it in another place, is answered with what to write."""

from pathlib import Path
from shlex import quote

import pytest

import icevirt
from icevirt.errors import IcevirtError

GROUPS = {
    "only a repository": (["tag", "repo"], "Did you mean `icevirt tag list repo`?"),
    "a repository and a name": (
        ["branch", "my repo", "dev", "main"],
        "Did you mean `icevirt branch create 'my repo' dev main`?",
    ),
    "a typing error": (["tag", "crate", "repo", "v1"], "Did you mean 'create'?"),
    "an argument that lacks": (["reset", "repo"], "Missing argument 'VERSION'"),
    "an argument of a group": (["tag", "create", "repo"], "Missing argument 'NAME'"),
    "files and a repository": (
        ["build"],
        "Missing arguments 'SOURCES' and 'REPO'. Name files and a repository, like",
    ),
    "files of an update": (
        ["update", "repo", "d/*.nc"],
        "Files elsewhere: icevirt append 'DIRECTORY/*.nc' REPO.",
    ),
    "no length of a chunk": (
        ["materialize", "repo", "tas", "--chunks", "time=5,lat"],
        "write it as DIM=LENGTH, like time=365 or time=365,lat=30",
    ),
}


@pytest.mark.parametrize(("words", "expected"), GROUPS.values(), ids=GROUPS.keys())
def test_what_to_write_is_said(words, expected, run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    status, out, error = run(*words)
    assert (status, out) == (2, "")
    assert expected in " ".join(error.split())


def test_a_recipe_without_a_repository_is_said_to_have_none(run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("r.toml").write_text('version = 2\nsources = ["a.nc"]\n')
    status, _, error = run("build", "-f", "r.toml")
    assert status == 2
    assert "Missing argument 'REPO': the recipe does not name it" in " ".join(error.split())


FILES = {
    "what looks at a repository": (["info", "a.nc"], "icevirt scan a.nc"),
    "what may make one of the file": (["log", "a.nc"], "icevirt build a.nc NEW_REPO"),
    "files come first": (
        ["withdraw", "repo", "a.nc"],
        "Name the repository last, behind the files",
    ),
    "files come last": (["exclude", "a.nc", "repo"], "Name the repository first, before the files"),
}


@pytest.mark.parametrize(("words", "expected"), FILES.values(), ids=FILES.keys())
def test_a_file_in_the_place_of_a_repository_is_said_to_be_one(
    words, expected, run, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    Path("a.nc").touch()
    status, out, error = run(*words)
    assert (status, out) == (1, "")
    assert error.startswith("icevirt: this is a file, not a repository (path='a.nc'). ")
    assert expected in error


def test_names_that_are_not_there_are_answered_by_commands(run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    icevirt.Repository.create("repo")
    assert (
        "The repository has main. To create it: icevirt branch create repo dev."
        in (run("branch", "delete", "repo", "dev")[2])
    )
    assert (
        "The repository has no tag. To create it: icevirt tag create repo v1."
        in (run("tag", "delete", "repo", "v1")[2])
    )
    assert "icevirt reset repo SNAPSHOT --branch main" in run("branch", "delete", "repo", "main")[2]
    with pytest.raises(icevirt.errors.RefNotFoundError, match=r"repo.create_branch\('dev', snap"):
        icevirt.Repository.open("repo").lookup_branch("dev")


def test_the_help_of_a_group_has_whole_sentences(run, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    output = " ".join(run("branch", "--help")[1].split())
    assert (
        "Delete a branch, main excepted; its snapshots stay until garbage is collected." in output
    )
    assert "..." not in output.partition("Commands:")[2]


@pytest.mark.parametrize("files", ["d/*.nc", "d/a.nc"])
def test_a_new_repository_before_the_files_is_said_to_stand_last(files, run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("d").mkdir()
    Path("d/a.nc").touch()
    status, _, error = run("build", "new", files)
    assert status == 2
    said = f"new is no file; the repository stands last: `icevirt build {quote(files)} new`"
    assert said in " ".join(error.split())
    with pytest.raises(IcevirtError, match="Pass the files first, and behind them the repository"):
        icevirt.append("new", "d/a.nc", executor="in-process")


@pytest.mark.parametrize("files", ["d/*.nc", "d", "d/a.nc"])
def test_a_repository_before_the_files_is_said_to_stand_last(files, run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    icevirt.Repository.create("repo")
    Path("d").mkdir()
    Path("d/a.nc").touch()
    status, _, error = run("build", "repo", files)
    assert status == 2
    said = f"repo is a repository, which stands last: `icevirt build {quote(files)} repo`"
    assert said in " ".join(error.split())


def test_a_repository_is_a_source_of_a_new_one(run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    icevirt.Repository.create("repo")
    status, _, error = run("build", "repo", "new", "--executor", "in-process")
    assert "stands last" not in error
    assert status != 2
