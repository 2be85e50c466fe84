"""The pages about VirtualiZarr and kerchunk are true: their code and commands run, in this order."""

import json
import re
import shlex
from pathlib import Path

import pytest
import xarray as xr
from fsspec.implementations.reference import LazyReferenceMapper
from kerchunk.combine import MultiZarrToZarr
from kerchunk.hdf import SingleHdf5ToZarr
from typer.testing import CliRunner

from builds.support import write_day
from docs import shell
from icevirt.cli.main import app

DOCS = Path(__file__).parents[2] / "docs"


PAGE = (DOCS / "coming-from.md").read_text()


def blocks(title):
    return re.findall(r"^```(\w*)\n(.*?)^```", shell.section(PAGE, title), re.MULTILINE | re.DOTALL)


def run(title):
    """Run the blocks of a part of the page in their order; return what they made and what they printed."""
    names, said = {}, []
    for language, text in blocks(title):
        if language == "python":
            exec(compile(text, "docs/coming-from.md", "exec"), names)
        elif language == "bash":
            for line in text.splitlines():
                ran = CliRunner().invoke(app, shlex.split(line)[1:])
                assert ran.exit_code == 0, ran.output
                said.append(ran.stdout)
    return names, said


@pytest.fixture
def archive(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "archive").mkdir()
    for day in range(2):
        write_day(tmp_path / f"archive/{day}.nc", day)
    return tmp_path


@pytest.mark.usefixtures("in_process")
def test_the_page_about_virtualizarr(archive, capsys):
    names, _ = run("VirtualiZarr's datasets, in and out")
    assert names["report"].files == 2
    ours = names["built"].sizes
    assert ours == names["planned"].sizes == names["vds"].sizes
    assert names["scanned"].sizes["time"] == ours["time"] // 2
    together = {"combine": "nested", "concat_dim": "time", "coords": "minimal"}
    wanted = xr.open_mfdataset(
        ["archive/0.nc", "archive/1.nc"],
        engine="netcdf4",
        data_vars="minimal",
        compat="override",
        **together,
    )
    xr.testing.assert_equal(names["ds"].load(), wanted.load())
    assert json.loads((archive / "planned.json").read_text())["refs"]
    assert len(capsys.readouterr().out.splitlines()) == 2


@pytest.mark.usefixtures("in_process")
def test_the_page_about_kerchunk(archive, monkeypatch):
    monkeypatch.setattr(  # fastparquet, fsspec's default, is not installed
        LazyReferenceMapper.__init__, "__defaults__", (None, None, 128, 10, "pyarrow")
    )
    each = [
        SingleHdf5ToZarr(str(path), inline_threshold=100).translate()
        for path in sorted((archive / "archive").iterdir())
    ]
    combined = MultiZarrToZarr(each, concat_dims=["time"]).translate()
    (archive / "combined.json").write_text(json.dumps(combined))
    names, said = run("kerchunk's references, in and out")
    assert names["report"].references > 0
    assert "references.parquet" in said[2]
    assert "2 arrays" in said[2]
    values = [float(names[each]["packed"].mean()) for each in ("ds", "three")]
    assert values[0] == pytest.approx(values[1])
