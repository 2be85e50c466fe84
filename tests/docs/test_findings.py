"""The form of findings/: what findings/README.md asks of a script. `just findings` runs them."""

import os
import re
import shlex
import subprocess
from pathlib import Path

import pytest

FINDINGS = Path(__file__).parents[2] / "findings"
SCRIPTS = sorted(FINDINGS.glob("*.sh"))
HEAD = ("# Versions: ", "# Expected: ", "# Seen: ")
PINNED = re.compile(r"[A-Za-z0-9._-]+(\[[a-z0-9,-]+\])?==[0-9][A-Za-z0-9.]*")
MACHINE = re.compile(r"(?<![\w.$}\"'])/(home|root|Users|work|tmp|opt|usr/local|mnt)/")
SERVER = re.compile(r"https?://(?!127\.0\.0\.1|\{|\")")
MODULE = re.compile(r"\b(import|from)\s+icevirt")


def install_words(text: str) -> list[str]:
    """Return the packages of all `uv pip install` commands of a script."""
    commands = re.findall(r"^uv pip install ((?:.*\\\n)*.*)$", text, re.MULTILINE)
    words = [word for command in commands for word in shlex.split(command.replace("\\\n", " "))]
    return [word for word in words if not word.startswith("-") and "/" not in word]


def test_there_are_findings_and_the_guesses_that_led_to_them():
    assert len(SCRIPTS) >= 24
    rows = re.findall(r"^\| \d+ \|", (FINDINGS / "GUESSES.md").read_text(), re.MULTILINE)
    assert len(rows) >= 60


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_a_finding_has_the_form_that_the_readme_states(script):
    text = script.read_text()
    assert os.access(script, os.X_OK), "the run bit is missing"
    assert text.startswith("#!/usr/bin/env bash\n# "), "a claim follows the first line"
    for label in HEAD:
        assert f"\n{label}" in text, label
    assert "\nset -euo pipefail\n" in text
    assert "$(mktemp -d)" in text, "all happens in a temporary folder"
    assert "trap 'rm -rf" in text, "the folder is removed"
    assert "assert" in text, "a change of the behavior is noticed"
    packages = install_words(text)
    assert packages
    assert [word for word in packages if not PINNED.fullmatch(word)] == []
    assert not MODULE.search(text), "a finding is about others"
    assert not MACHINE.search(text), "no folder of a machine"
    assert not SERVER.search(text), "no server but its own"
    assert max(map(len, text.splitlines())) <= 110
    subprocess.run(["bash", "-n", script], check=True)


def test_findings_are_named_in_the_guesses():
    guesses = (FINDINGS / "GUESSES.md").read_text()
    assert [script.stem for script in SCRIPTS if f"`{script.stem}`" not in guesses] == []
