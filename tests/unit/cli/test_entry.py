"""What is answered before the program is imported is what the program answers."""

import io
import os
import subprocess
import sys

import pytest

import icevirt
from icevirt.cli import entry, process


def output(*arguments, program="icevirt.cli.main", **environment):
    """Run the command in a process of its own; return its status, answer and complaint."""
    code = (
        f"import sys; sys.argv[:] = {['icevirt', *arguments]!r}; from {program} import run; run()"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, **environment},
    )
    return done.returncode, done.stdout, done.stderr


@pytest.fixture
def answered(monkeypatch):
    """Returns a function that answers without the program; None where that is left to it."""

    def answer(*arguments, name="/usr/bin/icevirt", columns="80"):
        monkeypatch.setattr(sys, "argv", [name, *arguments])
        monkeypatch.setattr(sys, "stdout", stream := io.StringIO())
        monkeypatch.setenv("COLUMNS", columns)
        monkeypatch.setattr(process, "prepare", lambda: None)  # it changes the whole process
        return stream.getvalue() if entry._answered() else None

    return answer


@pytest.mark.parametrize("columns", ["80", "200"])
def test_the_help_that_was_made_beforehand_is_what_the_program_prints(columns, answered):
    expected = output("--help", COLUMNS=columns)[1]
    assert answered("--help", columns=columns) == expected, "run python docs/make_help.py"


@pytest.mark.parametrize(
    "arguments",
    [
        ("--help", "build"),
        ("build", "--help"),
        (),
        ("--version",),
        ("info",),
        ("info", "--help"),
        ("info", "a", "--output", "json"),
        ("info", "a repository that is not there"),
    ],
    ids=" ".join,
)
def test_everything_else_is_left_to_the_program(arguments, answered):
    assert answered(*arguments) is None


def test_on_a_narrow_terminal_help_is_made_for_it(answered):
    assert answered("--help", columns="60") is None


@pytest.mark.ci
def test_info_is_what_the_program_prints(tmp_path, answered):
    repo = str(tmp_path / "repo")
    icevirt.Repository.create(repo).create_tag(
        "v1", icevirt.Repository.open(repo).lookup_branch("main")
    )
    status, answer, complaint = output("info", repo)
    assert (status, complaint) == (0, "")
    assert answered("info", repo) == answer
    for arguments in (("info", repo), ("info", repo + "x"), ("info",)):
        assert output(*arguments, program="icevirt.cli.entry") == output(*arguments)
