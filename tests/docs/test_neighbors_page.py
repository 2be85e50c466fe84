"""Every part of docs/neighbors.md runs.

Programs that are too large for every environment of the tests run by `just neighbors`, which sets
``ICEVIRT_NEIGHBORS``: there a missing one is a failure.
"""

import importlib.util
import os
import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

from servers.processes import free_port

pytestmark = [pytest.mark.ci, pytest.mark.slow, pytest.mark.filterwarnings("ignore")]  # theirs

PAGE = Path(__file__).parents[2] / "docs" / "neighbors.md"
HERE = ("dask", "xpublish")  # in this process, which saves the imports
PARTS = {
    "dask": "distributed",
    "xpublish": "xpublish",
    "cubed": "cubed",
    "xarray-beam": "xarray_beam",
    "titiler.xarray": "titiler",
    "ndpyramid": "ndpyramid",
}
CHECKED = {
    "cubed": "session('main')['by_point'].chunks == (4, 16, 16)",
    "dask": "session('main')['anomaly'][:].any() and session('main')['anomalies/tas'][:].any()",
    "xarray-beam": "float(session('main')['doubled/tas'][:].min()) >= 0",
}


def blocks(title: str) -> list[tuple[str, str]]:
    """Return language and text of the blocks below a heading."""
    text = PAGE.read_text()
    section = re.search(
        rf"^## {re.escape(title)}\n(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL
    )
    return re.findall(
        r"^```(\w+)\n(.*?)^```", section[1] if section else text, re.MULTILINE | re.DOTALL
    )


@pytest.fixture(scope="module")
def archive(tmp_path_factory):
    """Return a directory with the archive and the module of the page."""
    folder = tmp_path_factory.mktemp("neighbors")
    (_, build), (_, module) = blocks("the head of the page")[:2]
    (folder / "build.py").write_text(build)
    (folder / "sea.py").write_text(module)
    back = Path.cwd()
    os.chdir(folder)
    try:
        runpy.run_path("build.py")
    finally:
        os.chdir(back)
    return folder


def test_every_part_is_tested():
    titles = re.findall(r"^## (.*)$", PAGE.read_text(), re.MULTILINE)
    assert titles == [*sorted(PARTS, key=titles.index), "Not with rechunker"]


@pytest.mark.parametrize("title", PARTS)
def test_a_part_runs(title, archive, monkeypatch, capsys):
    if importlib.util.find_spec(PARTS[title]) is None:
        assert title not in ("dask", "xpublish", "cubed")  # of the test group
        assert "ICEVIRT_NEIGHBORS" not in os.environ
        pytest.skip("just neighbors")
    (_, program), *output = blocks(title)
    (archive / "part.py").write_text(program.replace("9009", str(free_port())))
    monkeypatch.chdir(archive)
    if title in HERE:
        monkeypatch.syspath_prepend(archive)
        runpy.run_path("part.py", run_name="__main__")
        printed = capsys.readouterr().out
    else:
        command = [sys.executable, "part.py"]
        ran = subprocess.run(command, capture_output=True, text=True, check=False)
        assert ran.returncode == 0, ran.stderr
        printed = ran.stdout
    assert printed == "".join(text for language, text in output if language == "text")
    if title in CHECKED:
        assert eval(CHECKED[title], {"session": opened})


def opened(branch):
    """Return the root group of what a part left."""
    import zarr

    import icevirt

    return zarr.open_group(icevirt.Repository.open("repo").readonly_session(branch).store, mode="r")
