"""The page on operating an archive is true: its commands and its code run, in this order."""

import json
import re
import shlex
from pathlib import Path

import pytest
from typer.testing import CliRunner

import icevirt
from builds.support import write_days
from icevirt.cli.main import app

PAGE = (Path(__file__).parents[2] / "docs" / "operating.md").read_text()
BLOCKS = re.findall(r"^```(\w*)\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)


@pytest.mark.usefixtures("in_process")
def test_the_commands_and_the_code_of_the_page_run(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    write_days(tmp_path / "archive", 8)
    icevirt.append("archive/day1.nc", "repo", concat_dim="time")
    names = {}
    for language, text in BLOCKS:
        if language == "bash":
            for line in text.splitlines():
                ran = CliRunner().invoke(app, shlex.split(line)[1:])
                assert ran.exit_code == 0, ran.output
        elif language == "python":
            exec(compile(text, "docs/operating.md", "exec"), names)
        elif language != "text":
            assert language == "json"
            json.loads(text)
    assert "the file itself" in capsys.readouterr().out
    assert icevirt.status("repo").files == 2
