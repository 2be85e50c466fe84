"""The page about files that move is true: its commands and its code run, in this order."""

import re
import shlex
import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner

import icevirt
from builds.support import write_days
from icevirt.cli.main import app

PAGE = (Path(__file__).parents[2] / "docs" / "moving.md").read_text()


def blocks(language):
    found = re.findall(r"^```(\w*)\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    return [text for of, text in found if of == language]


@pytest.mark.usefixtures("in_process")
def test_the_commands_and_the_code_of_the_page_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    files = write_days(tmp_path / "archive" / "old")
    icevirt.build(files, "repo", concat_dim="time")
    shutil.copytree("archive/old", "archive/new", copy_function=shutil.copyfile)
    shutil.copytree("archive/old", "archive/elsewhere", copy_function=shutil.copyfile)
    said = []
    for line in blocks("bash")[0].splitlines():
        ran = CliRunner().invoke(app, shlex.split(line)[1:])
        assert ran.exit_code == 0, ran.output
        said.append(ran.stdout)
    assert "nothing was changed: a plan" in said[0]
    assert "  relocated" in said[1]
    assert "on main" in said[1]
    exec(blocks("python")[0], {})
    shutil.rmtree("archive/old")
    shutil.rmtree("archive/new")
    exec(blocks("python")[1], {})
    for line in blocks("bash")[1].splitlines():
        ran = CliRunner().invoke(app, shlex.split(line)[1:])
        assert ran.exit_code == 0, ran.output
        said.append(ran.stdout)
    assert "nothing was changed: a plan" in said[2]
    assert "stored; every chunk was compared" in said[3]
    with icevirt_opened() as found:
        assert found.load().sizes["time"] == 12
        assert found["packed"].encoding["chunks"][0] == 6


def icevirt_opened():
    import xarray as xr

    return xr.open_dataset(
        "repo", engine="icevirt", authorize_virtual_chunk_access=["archive/elsewhere"]
    )
