"""The scanner on the page about scanners works, is found, and passes the suite shipped for it."""

import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

PAGE = Path(__file__).parents[2] / "docs/scanners.md"


@pytest.fixture
def plugin(tmp_path):
    """A directory that, on ``sys.path``, is the distribution of the page."""
    text = PAGE.read_text()
    for code in re.findall(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL):
        name = re.match(r'"""(\w+\.py)"""', code)[1]
        (tmp_path / name).write_text(code)
    (entry,) = re.findall(r'^npy = "(.*)"$', text, re.MULTILINE)
    info = tmp_path / "npy_scanner-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: npy-scanner\nVersion: 1\n")
    (info / "entry_points.txt").write_text(f"[icevirt.scanners]\nnpy = {entry}\n")
    return tmp_path


@pytest.mark.ci
def test_the_scanner_passes_the_suite(plugin):
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(plugin)],
        capture_output=True,
        text=True,
        check=False,
        cwd=plugin,
    )
    assert ran.returncode == 0, ran.stdout
    passed = int(re.search(r"(\d+) passed", ran.stdout)[1])
    assert passed >= 39


@pytest.mark.ci
def test_the_scanner_is_found_by_content(plugin):
    np.save(plugin / "a.dat.npy", np.arange(12.0))
    code = "import sys, icevirt; print(icevirt.scan_file(sys.argv[1]).scanner)"
    ran = subprocess.run(
        [sys.executable, "-c", code, str(plugin / "a.dat.npy")],
        capture_output=True,
        text=True,
        check=False,
        cwd=plugin,
    )
    assert ran.stdout == "npy\n", ran.stderr
