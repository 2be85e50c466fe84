"""Pages about plans, builds and repositories: complete, safe, and without a network."""

import shutil
import struct
import subprocess
import zlib
from html.parser import HTMLParser

import h5py
import numpy as np
import pytest
import xarray as xr

import icevirt
from builds.support import write_days
from icevirt.errors import StorageError

VOID = {"meta", "rect", "br"}
BROWSER = shutil.which("chromium") or shutil.which("chromium-browser")


class Page(HTMLParser):
    """A page's elements, which must be closed in order, and its text."""

    def __init__(self, html):
        super().__init__()
        self.open, self.attributes, self.text, self.tags = [], [], [], []
        self.feed(html)
        assert not self.open

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += attrs
        if tag not in VOID or (tag == "rect" and not self.get_starttag_text().endswith("/>")):
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += attrs

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text.append(data)


@pytest.fixture
def site(tmp_path):
    """An archive with a hole, a bad file, and names that a browser would obey."""
    days = write_days(tmp_path / "in", 6)
    for each in days:
        with h5py.File(each, "a") as file:
            file.attrs["title"] = "<script>alert(1)</script>"
    (tmp_path / "in" / "<img src=x>.nc").write_bytes(b"not a file")
    shutil.move(days[3], tmp_path / "away.nc")
    return tmp_path


OPTIONS = {
    "concat_dim": "time",
    "scan_options": {"max_bad_files": 1},
    "combine_options": {"spacing": {"time": "6h"}},
}


def test_pages_tell_what_there_is_and_obey_nobody(site):
    plan = icevirt.plan(site / "in", **OPTIONS)
    icevirt.to_html(plan, site / "plan.html")
    report = icevirt.build(site / "in", site / "repo", **OPTIONS)
    icevirt.to_html(report, site / "build.html")
    icevirt.to_html(site / "repo", site / "repo.html", branch="main")
    for name in ("plan", "build", "repo"):
        page = Page((site / f"{name}.html").read_text())
        said = " ".join(page.text)
        assert not {"script", "img", "link"} & {*page.tags}
        assert all(value.startswith("#") for key, value in page.attributes if key == "href")
        assert not {"src", "onclick"} & {key for key, _ in page.attributes}
        labels = [value for key, value in page.attributes if key == "aria-label"]
        variable = next(each for each in plan.arrays if len(each.shape) == 3).path
        assert any(
            f"{variable} along time" in each and "virtual" in each and "nothing" in each
            for each in labels
        ), name
        for array in plan.arrays:
            assert array.path in said
    repo = (site / "repo.html").read_text()
    assert report.snapshot_id in repo
    assert "2001-01-0" in repo  # labels of steps
    assert "&lt;script&gt;" in repo
    assert (
        "&lt;img src=x&gt;" in (site / "build.html").read_text()
        or "%3Cimg" in (site / "build.html").read_text()
    )


def test_each_group_has_its_own_steps_and_labels(tmp_path):
    repo = icevirt.Repository.create(str(tmp_path / "repo"))
    session = repo.writable_session("main")
    for group, begin, days in (("old", "1999-12-30", 4), ("new", "2024-01-01", 9)):
        xr.Dataset(
            {"t": ("time", np.arange(days))},
            {"time": np.datetime64(begin, "ns") + np.arange(days) * np.timedelta64(1, "D")},
        ).to_zarr(session.store, group=group, zarr_format=3, consolidated=False)
    session.commit("two groups")
    icevirt.to_html(tmp_path / "repo", tmp_path / "page.html")
    page = Page((tmp_path / "page.html").read_text())
    labels = [value for key, value in page.attributes if key == "aria-label"]
    assert any(each.startswith("/old/t along time: 1999-12-30 to 2000-01-02") for each in labels)
    assert any(each.startswith("/new/t along time: 2024-01-01 to 2024-01-09") for each in labels)
    said = " ".join(page.text)
    assert "Group /old, time: 4 steps" in said
    assert "Group /new, time: 9 steps" in said


def test_the_commands_write_pages(site, run):
    words = [site / "in", "--concat-dim", "time", "--spacing", "time=6h", "--max-bad-files", "1"]
    assert run("plan", *words, "-q", "--report", site / "plan.html")[0] == 0
    assert (
        run("build", *words[:1], site / "repo", *words[1:], "-q", "--report", site / "b.html")[0]
        == 0
    )
    assert run("info", site / "repo", "--report", site / "info.html")[0] == 0
    assert all((site / name).stat().st_size > 3000 for name in ("plan.html", "b.html", "info.html"))


def test_a_page_that_cannot_be_written_is_an_error(site):
    icevirt.build(site / "in", site / "repo", **OPTIONS)
    with pytest.raises(StorageError, match="the page cannot be written"):
        icevirt.to_html(site / "repo", site / "none" / "page.html")


@pytest.mark.ci
@pytest.mark.skipif(BROWSER is None, reason="Chromium is not installed")
@pytest.mark.parametrize(
    ("scheme", "color"), [("light", (0x2F, 0x6F, 0xB3)), ("dark", (0x6A, 0xA9, 0xE9))]
)
def test_a_browser_draws_the_steps_in_both_color_schemes(scheme, color, site):
    icevirt.build(site / "in", site / "repo", **OPTIONS)
    icevirt.to_html(site / "repo", site / "page.html")
    dark = ["--force-dark-mode", "--blink-settings=preferredColorScheme=0"]
    subprocess.run(
        [
            *(BROWSER, "--headless", "--no-sandbox", "--disable-gpu", "--window-size=900,900"),
            *(f"--user-data-dir={site / 'profile'}", f"--screenshot={site / 'page.png'}"),
            *(dark if scheme == "dark" else []),
            (site / "page.html").as_uri(),
        ],
        check=True,
        capture_output=True,
        timeout=120,
    )
    pixels = decoded((site / "page.png").read_bytes())
    assert (pixels[:, :, :3] == color).all(axis=2).sum() > 500


def decoded(png):
    """Return the pixels of a PNG of 8 bits a channel that is not interlaced."""
    at, data = 8, b""
    while at < len(png):
        (size,), kind = struct.unpack(">I", png[at : at + 4]), png[at + 4 : at + 8]
        body = png[at + 8 : at + 8 + size]
        if kind == b"IHDR":
            width, height, depth, color, *_ = struct.unpack(">IIBBBBB", body)
        data += body if kind == b"IDAT" else b""
        at += 12 + size
    assert depth == 8
    channels = {2: 3, 6: 4}[color]
    rows = np.frombuffer(zlib.decompress(data), np.uint8).reshape(height, 1 + width * channels)
    made = np.zeros((height, width * channels), np.uint8)
    before = np.zeros(width * channels, np.int32)
    for number, row in enumerate(rows):
        before = unfiltered(int(row[0]), row[1:].astype(np.int32), before, channels)
        made[number] = before
    return made.reshape(height, width, channels)


def unfiltered(kind, row, above, step):
    """Undo one of the five filters of a PNG's row."""
    if kind == 0:
        return row
    if kind == 2:
        return (row + above) % 256
    row = row.copy()
    for at in range(len(row)):
        left = int(row[at - step]) if at >= step else 0
        up, corner = int(above[at]), int(above[at - step]) if at >= step else 0
        if kind == 1:
            more = left
        elif kind == 3:
            more = (left + up) // 2
        else:
            near = left + up - corner
            more = min((left, up, corner), key=lambda each: abs(near - each))
        row[at] = (row[at] + more) % 256
    return row
