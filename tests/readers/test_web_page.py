"""The example of a web page draws what h5py reads, and says what is wrong with a server."""

import json
import re
import shlex
import shutil
import sys
from pathlib import Path
from urllib.parse import urlencode

import h5py
import icechunk
import netCDF4
import numpy as np
import pytest
import zarr
from typer.testing import CliRunner

import icevirt
from api.test_pages import decoded
from builds.support import write_days
from icevirt.cli.main import app
from readers import chromium, javascript
from servers.processes import free_port, running

pytestmark = [
    pytest.mark.ci,
    pytest.mark.skipif(not javascript.installed(), reason="just readers"),
    pytest.mark.skipif(chromium.PROGRAM is None, reason="Chromium is not installed"),
]


PAGE = Path(__file__).parents[2] / "docs" / "web-page.md"


def commands(port):
    """Return the commands of the page of the documentation, for another port."""
    text = "".join(re.findall(r"^```bash\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL))
    return [shlex.split(line) for line in text.replace("8000", str(port)).splitlines()]


@pytest.fixture
def site(tmp_path, monkeypatch, in_process):
    """What the commands of the page make in one directory, served; the directory and the URL."""
    del in_process
    monkeypatch.chdir(tmp_path)
    root, port = tmp_path / "site", free_port()
    for path in write_days(root / "archive", 2, nx=36, ny=18):
        with netCDF4.Dataset(path, "a") as file:
            variable = file.createVariable("real", "f4", ("time", "y", "x"), fill_value=-1e20)
            variable[:] = np.ma.masked_less(np.linspace(-1, 9, 4 * 18 * 36), 0).reshape(4, 18, 36)
    copied, installed, serve, build = commands(port)
    assert (copied[:2], installed[-6:-3]) == (["cp", "-r"], ["npm", "run", "files"])
    leave = shutil.ignore_patterns("node_modules", "lib")
    shutil.copytree(javascript.EXAMPLE, root / "map", ignore=leave)
    shutil.copytree(javascript.folder() / "lib", root / "map" / "lib")
    serve = [sys.executable, str(tmp_path / serve[1]), str(tmp_path / serve[2]), *serve[3:]]
    with running(serve, port=port):
        ran = CliRunner().invoke(app, build[1:])
        assert ran.exit_code == 0, ran.output
        yield root, f"http://localhost:{port}"


def drawn(tab, page, url, **choice):
    """Open a page, wait for its map, and return what it drew."""
    given = {"repo": f"{url}/repo", "authorize": f"{url}/archive/", **choice}
    tab.open(f"{page}?{urlencode(given)}")
    state = tab.wait_for(
        f"['drawn', 'failed'].includes(document.body?.dataset.state)"
        f" && location.href.includes({json.dumps(urlencode(given))}) && document.body.dataset.state"
    )
    if state == "failed":
        return tab.evaluate("document.getElementById('said').textContent")
    values = "Array.from(drawn.values, (each) => Number.isNaN(each) ? null : each)"
    found = json.loads(tab.evaluate(f"JSON.stringify({{...drawn, values: {values}}})"))
    return found["variable"], np.array(found["values"], float).reshape(found["shape"])


OPAQUE = """(({ width, height }, context) => {
  const { data } = context.getImageData(0, 0, width, height)
  return data.filter((value, at) => at % 4 === 3 && value === 255).length
})(document.getElementById('map'), document.getElementById('map').getContext('2d'))"""
"""JavaScript: how many pixels of the map have a color."""


def colors(tab):
    """Return the colors that a screenshot shows where the map is."""
    pixels = decoded(tab.screenshot())[:, :, :3]
    rect = tab.evaluate("document.getElementById('map').getBoundingClientRect().toJSON()")
    shown = pixels[int(rect["top"]) + 2 :, int(rect["left"]) + 2 : int(rect["right"]) - 2]
    return np.unique(shown.reshape(-1, 3), axis=0)


def test_a_page_draws_what_the_files_hold(site, tmp_path, http_server):
    root, url = site
    with h5py.File(root / "archive" / "day2.nc") as file:
        packed, mask = file["packed"], file["mask"][...]
        raw, real = packed[:2].astype(float), file["real"][0]
        scale, offset = (packed.attrs[name].item() for name in ("scale_factor", "add_offset"))
    official = icechunk.Repository.open(
        icechunk.http_storage(f"{url}/repo"),
        authorize_virtual_chunk_access={f"{url}/archive/": icechunk.credentials.HttpAccess},
    ).readonly_session("main")
    ours = icevirt.Repository.open(
        f"{url}/repo", authorize_virtual_chunk_access=[f"{url}/archive/"]
    ).readonly_session("main")
    for session in (official, ours):
        array = zarr.open_array(session.store, path="packed", mode="r")
        np.testing.assert_array_equal(array[4:6], raw)
    plain = free_port()
    at = [str(plain), "--bind", "127.0.0.1", "--directory", str(root)]
    with (
        running([sys.executable, "-m", "http.server", *at], port=plain),
        chromium.browsing(tmp_path / "profile") as tab,
    ):
        # the page's own server sends none of the headers, that of the files is another origin
        page = f"http://127.0.0.1:{plain}/map/index.html"
        variable, values = drawn(tab, page, url, variable="packed", step="5")
        assert variable == "packed"
        np.testing.assert_allclose(values, raw[1] * scale + offset, rtol=1e-9)
        assert len(colors(tab)) > 200

        # one server of everything, which sends them
        variable, values = drawn(tab, f"{url}/map/index.html", url, variable="mask")
        assert (variable, values.tolist()) == ("mask", mask.tolist())
        assert tab.evaluate("Boolean(navigator.serviceWorker.controller)") is False
        for name, step, held in (
            ("packed", "4", np.where(raw[0] == -999, -999, raw[0] * scale + offset)),
            ("real", "4", real),
        ):
            _, values = drawn(tab, f"{url}/map/index.html", url, variable=name, step=step)
            gaps = np.isnan(values)
            assert tab.evaluate(OPAQUE) == (~gaps).sum()
            assert 0 < gaps.sum() == (held < -1).sum()
            np.testing.assert_allclose(values[~gaps], held[~gaps], rtol=1e-9)

        # the files on a server that shares with nobody
        for path in (root / "repo").rglob("*"):
            if path.is_file():
                name = path.relative_to(root)
                http_server.files.put(str(name), path.read_bytes())
        said = drawn(tab, page, http_server.url)
        assert re.search(r"what http://127\.0\.0\.1:\d+/repo and .* must send", said)
