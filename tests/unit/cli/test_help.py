"""The help of commands: panels, examples, and options that every command shares."""

import shlex

import pytest
import typer
from typer.testing import CliRunner

import icevirt
from icevirt.cli import main
from icevirt.cli.commands import FUNCTIONS
from icevirt.cli.help import COMMANDS, EXAMPLES, OPTIONS
from icevirt.cli.repository_access import with_storage
from icevirt.connect.credentials import object_stores
from icevirt.connect.credentials.common import Secret, profile_region
from icevirt.errors import InvalidInputError

RUNNER = CliRunner(env={"COLUMNS": "80"})
GROUP = typer.main.get_command(main.app)
NAMES = [name for names in COMMANDS.values() for name in names]


def help_of(*words):
    result = RUNNER.invoke(main.app, [*words, "--help"])
    assert result.exit_code == 0
    return result.stdout


def test_each_command_is_in_a_panel_and_shown_with_a_sentence():
    output = help_of()
    assert {*NAMES} == {*main._COMMANDS, *(name for name in FUNCTIONS if " " not in name)}
    sentences = " ".join(output.split())
    assert all(said in sentences for panel in COMMANDS.values() for said in panel.values())
    assert all(f"\n{panel}:\n" in output for panel in COMMANDS)


@pytest.mark.parametrize("name", ["build", "plan", "append", "update"])
def test_options_of_large_commands_are_in_panels(name):
    output = help_of(name)
    flags = {max(each.opts, key=len) for each in GROUP.get_command(None, name).params}
    placed = {flag for panel in OPTIONS.values() for flag in panel}
    assert {flag for flag in flags if flag.startswith("--")} <= placed
    assert "\nOptions:\n" not in output
    assert max(map(len, output.splitlines())) <= 80
    positions = [output.index(f"\n{panel}:\n") for panel in OPTIONS if f"\n{panel}:\n" in output]
    assert output.index("\nExamples:\n") < positions[0]
    assert positions == sorted(positions)
    assert not {"<str>", "<list[str]>", "<int>", "<float>"} & {*output.split()}


def test_panels_name_only_options_that_exist():
    flags = {
        flag
        for name in NAMES
        for each in GROUP.get_command(None, name).params
        for flag in each.opts
    } | {"--help"}
    assert {flag for panel in OPTIONS.values() for flag in panel} <= flags
    assert {*EXAMPLES} <= {*NAMES}


@pytest.mark.parametrize(
    "line", [line for shown in EXAMPLES.values() for _, line in shown], ids=lambda line: line
)
def test_examples_are_commands_that_parse(line):
    program, name, *words = shlex.split(line)
    assert program == "icevirt"
    command = GROUP.get_command(None, name)
    command.make_context(name, words)


def test_shells_complete_the_choices_of_options():
    (option,) = (each for each in GROUP.get_command(None, "build").params if each.name == "missing")
    assert [each.value for each in option.shell_complete(None, "re")] == [
        "refuse",
        "reserve",
    ]


COMPLETED = {
    "explain comm": ["commit-conflict"],
    "log repo --branch m": ["main"],
    "build day*.nc repo --branch ": ["main", "try"],
    "tag delete repo ": ["first"],
    "branch rename repo t": ["try"],
    "diff repo ": ["first", "main", "try"],
    "log s3://bucket/repo --branch ": [],
    "diff nowhere ": [],
}


def test_shells_complete_codes_branches_and_tags(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    made = icevirt.Repository.create("repo")
    root = made.lookup_branch("main")
    made.create_branch("try", root)
    made.create_tag("first", root)
    for line, wanted in COMPLETED.items():
        shell = {"COMP_WORDS": f"icevirt {line}", "COMP_CWORD": str(line.count(" ") + 1)}
        env = {"_ICEVIRT_COMPLETE": "complete_bash", **shell}
        assert RUNNER.invoke(main.app, env=env, prog_name="icevirt").stdout.split() == wanted, line


def test_a_missing_repository_is_called_missing(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "in").mkdir()
    for name in ("day1.nc", "day2.nc"):
        (tmp_path / "in" / name).touch()
    for words, what in {
        ("in/*.nc",): "in/*.nc names files",
        ("in/day1.nc", "in/day2.nc"): "in/day2.nc is a file",
        ("in",): "in is a directory of files",
    }.items():
        result = RUNNER.invoke(main.app, ["build", *words])
        assert result.exit_code == 2
        assert f"Missing argument 'REPO': {what}" in " ".join(result.stderr.split())
    result = RUNNER.invoke(main.app, ["build", "nowhere"])
    assert "Missing argument 'SOURCES'" in " ".join(result.stderr.split())


def test_a_wrong_command_line_is_json_where_json_is_asked(run):
    status, out, error = run("info", "repo", "-o", "json", "--bogus")
    assert (status, out) == (2, "")
    assert '"what": "No such option: --bogus"' in error
    assert len(error.splitlines()) == 1


@pytest.mark.parametrize("words", [("-o", "json"), ("--output=json",)])
def test_errors_of_all_commands_are_a_line_of_json_where_json_is_asked(words, run, tmp_path):
    status, out, error = run("info", tmp_path / "none", *words)
    assert (status, out) == (1, "")
    assert '"code": "repository-not-found"' in error
    assert len(error.splitlines()) == 1


# -- how to reach the bucket of a repository --------------------------------------------------------


@with_storage
def show(repo: str) -> object:
    return repo


NOTHING = {"anonymous": False, "region": None, "endpoint": None, "profile": None}


def test_a_command_gets_a_storage_only_where_options_say_how_to_reach_it():
    assert show(repo="s3://bucket/repo", **NOTHING) == "s3://bucket/repo"
    made = show(
        repo="s3a://bucket/repo",
        **(NOTHING | {"anonymous": True, "region": "eu-north-1", "endpoint": "http://127.0.0.1:9"}),
    )
    assert made.url == "s3://bucket/repo"
    assert (
        show(repo="gs://bucket/repo", **(NOTHING | {"anonymous": True})).url == "gs://bucket/repo"
    )


@pytest.mark.parametrize(
    ("repo", "given", "output"),
    [
        ("here/repo", {"anonymous": True}, "repositories in buckets"),
        ("https://host/repo", {"region": "x"}, "repositories in buckets"),
        ("gs://bucket/repo", {"endpoint": "https://host"}, "for S3"),
    ],
)
def test_options_of_buckets_are_refused_elsewhere(repo, given, output):
    with pytest.raises(typer.BadParameter, match=output):
        show(repo=repo, **(NOTHING | given))


def test_a_profile_is_preferred_to_the_environment(tmp_path, monkeypatch):
    config, keys = tmp_path / "config", tmp_path / "credentials"
    config.write_text("[profile mine]\nregion = eu-north-1\n")
    keys.write_text("[mine]\naws_access_key_id = A\naws_secret_access_key = B\n")
    for name, value in {
        "AWS_CONFIG_FILE": str(config),
        "AWS_SHARED_CREDENTIALS_FILE": str(keys),
        "AWS_ACCESS_KEY_ID": "another",
        "AWS_SECRET_ACCESS_KEY": "another",
        "AWS_PROFILE": "default",
    }.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("AWS_SESSION_TOKEN", raising=False)
    with pytest.raises(InvalidInputError, match="no such AWS profile"):
        object_stores.choose("nobody")
    assert object_stores.from_profile() is None  # the environment still counts
    show(repo="s3://bucket/repo", **(NOTHING | {"profile": "mine"}))
    found = object_stores.from_profile()
    assert (found.access_key_id, profile_region()) == (Secret("A"), "eu-north-1")
