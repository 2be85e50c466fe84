"""What the documents say is true: commands exist, code runs, output is the output, links lead."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from docs.shell import PAGES, blocks
from icevirt.cli.main import app

ROOT = Path(__file__).parents[2]
ICEVIRT = Path(sys.executable).parent / "icevirt"
COMMANDS = (
    "append branch build catalog check demo diff exclude explain export info log maintain materialize"
    " ops-log plan redo relocate reset scan source spark-script status tag undo update upgrade"
    " verify withdraw"
).split()


def commands(word: str) -> list[str]:
    """Return the command lines of all pages that call a program, inline or in a block."""
    found = set()
    for page in PAGES:
        lines = [
            line
            for language, text in blocks(page)
            if language in ("", "bash", "sh")
            for line in text.split("\n")
        ]
        for line in [*lines, *re.findall(r"`([^`\n]+)`", page.read_text())]:
            for part in line.partition("#")[0].split("&&"):
                call = part.strip().removeprefix("uv run ")
                if re.match(rf"{word} [a-z]", call):
                    found.add(call)
    return sorted(found)


def same(text: str) -> str:
    """Return text without what differs from run to run: ids, times, directories."""
    text = re.sub(r"\b[0-9A-HJKMNP-TV-Z]{20}\b", "ID", text)
    text = re.sub(r"file://\S*?(?=[\w.-]+/?['\s\]])", "file:///", text)
    return re.sub(r"\d+\.\d s\b", "T s", text)


@pytest.mark.ci
@pytest.mark.spark
def test_the_python_of_the_readme_prints_what_it_says(tmp_path):
    found = blocks(ROOT / "README.md")
    at = next(at for at, (language, _) in enumerate(found) if language == "python")
    ran = subprocess.run(
        [sys.executable, "-c", found[at][1]],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
    )
    assert ran.returncode == 0, ran.stderr
    assert same(ran.stdout).split() == same(found[at + 1][1]).split()


@pytest.mark.ci
@pytest.mark.spark
def test_the_demo_runs_and_runs_again(tmp_path):
    for _ in range(2):
        ran = subprocess.run(
            [ICEVIRT, "demo"], capture_output=True, text=True, check=False, cwd=tmp_path
        )
        assert ran.returncode == 0, ran.stderr
        assert "every value equal to h5py's reading of the files" in ran.stdout
        assert len(re.findall(r"2015-0[123]  +\d+\.\d+ °C", ran.stdout)) == 3
    assert [path.name for path in tmp_path.iterdir()] == ["icevirt-demo"]


@pytest.mark.parametrize("command", ["", *COMMANDS])
def test_help_is_there(command):
    result = CliRunner().invoke(app, [*command.split(), "--help"])
    assert result.exit_code == 0
    assert f"Usage: icevirt {command}".strip() in result.stdout
    assert [name for name in COMMANDS if command or name in result.stdout] == COMMANDS


@pytest.mark.parametrize("line", commands("icevirt"))
def test_commands_of_the_pages_exist_with_their_options(line):
    words = shlex.split(line)
    assert words[1] in COMMANDS
    output = CliRunner().invoke(app, [words[1], "--help"]).stdout
    assert [word for word in words if word.startswith("--") and word not in output] == []


@pytest.mark.parametrize("line", commands("just"))
def test_recipes_of_the_pages_exist(line):
    just = Path(sys.executable).parent / "just"
    listed = subprocess.run([just, "--summary"], capture_output=True, text=True, check=True)
    assert line.split()[1] in listed.stdout.split()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page):
    links = re.findall(r"\]\((?!https?:)([^)#]+)", page.read_text())
    assert [link for link in links if not (page.parent / link).exists()] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_pages_are_free_of_one_machine(page):
    assert re.findall(r"/(?:home|root|work|tmp|usr)/\S+", page.read_text()) == []
