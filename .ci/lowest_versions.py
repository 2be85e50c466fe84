"""Installs the lowest version of each package that pyproject.toml allows, and tries them.

The environment is a temporary one of Python 3.12, the oldest that icevirt runs on. It scans,
builds, reads and uses the command line: the demo on Spark, the conformance checks with the oldest
pytest, then tests of the project.
"""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parents[1]

TESTS = (
    "tests/unit/cli",
    "tests/unit/catalog/test_refs.py",
    "tests/unit/connect/test_plain_paths.py",
    "tests/scanners/hdf5/test_hdf5_values.py",
    "tests/scanners/hdf5/test_bad_files.py",
    "tests/scanners/virtualizarr",
    "tests/access/test_virtual_reads.py",
    "tests/api/test_open.py",
)
TOOLS = (  # of the tests, not of those who install icevirt
    *("pytest>=9", "pytest-timeout", "pytest-xdist", "pytest-randomly", "hypothesis"),
    *("icechunk>=2.3,<3", "netCDF4", "hdf5plugin", "trustme", "flatbuffers"),
    *("tifffile>=2025.1", "virtual-tiff>=0.5"),
)
LEFT_OUT = (
    # libhdf5 1.14.4, in the wheels of h5py 3.12, opens no such integers: icevirt refuses them, too
    "nbit_reduced",
)
WARNINGS = (
    # numpy says this of wheels that were made for another one, and leaves it out elsewhere
    "ignore:numpy.ndarray size changed",
)

KIT = """
import h5py
import numpy as np
import pytest

from icevirt.testing.samples import Expected, Sample
from icevirt.testing.scanners import ScannerConformance
from icevirt_scanners.hdf5.scanner import Hdf5Scanner


class TestHdf5(ScannerConformance):
    @pytest.fixture
    def scanner(self):
        return Hdf5Scanner()

    @pytest.fixture
    def sample(self, tmp_path):
        values = np.arange(4000.0).reshape(40, 100)
        with h5py.File(tmp_path / "a.h5", "w") as file:
            file.create_dataset("v", data=values, chunks=(10, 100), compression="gzip")
        return Sample(path=tmp_path / "a.h5", expected=lambda: {"/v": Expected(values=values)})
"""


def main() -> int:
    """Return 1 if something fails."""
    with tempfile.TemporaryDirectory(prefix="icevirt-lowest-") as folder:
        bin_ = environment(Path(folder)) / "bin"
        print(versions(bin_), flush=True)
        where = {**os.environ, "PATH": f"{bin_}{os.pathsep}{os.environ['PATH']}"}
        where.pop("PYTHONPATH", None)
        kit = Path(folder) / "test_kit.py"
        kit.write_text(KIT)
        steps = (
            # with the pytest that the extra `testing` allows
            [bin_ / "pytest", "-q", "-c", os.devnull, "--rootdir", folder, kit],
            [bin_ / "icevirt", "demo", Path(folder) / "demo", "--executor", "spark"],
            ["uv", "pip", "install", "--quiet", "--python", bin_ / "python", *TOOLS],
            [
                # one process: another one imports, compiles and collects all of this again
                *(bin_ / "pytest", "-q", "-n", "0", "-m", "not spark and not servers"),
                *("-k", " and ".join(f"not {each}" for each in LEFT_OUT)),
                *(word for each in WARNINGS for word in ("-W", each)),
                *TESTS,
            ],
        )
        return int(any(run(step, where) for step in steps))


def environment(folder: Path) -> Path:
    """Make the environment, and return its folder."""
    made = folder / "environment"
    for python in (*pythons(), sys.executable):
        tried = subprocess.run(
            ["uv", "venv", "--quiet", "--python", python, made], capture_output=True, check=False
        )
        if tried.returncode == 0:
            break
    extras = ".[all,virtualizarr,grib,tiff,testing]"
    lowest = ("--resolution", "lowest-direct", "-e", extras)
    command = ["uv", "pip", "install", "--quiet", "--python", made / "bin" / "python", *lowest]
    subprocess.run(command, check=True, cwd=HERE)
    return made


def pythons() -> list[str]:
    """Return where Python 3.12 may be; uv does not look at what pyenv keeps back."""
    root = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv")
    return [*map(str, sorted(root.glob("versions/3.12.*/bin/python"))), "3.12"]


def versions(bin_: Path) -> str:
    """Return what was installed."""
    facts = "import platform; print('Python', platform.python_version())"
    python = subprocess.run(
        [bin_ / "python", "-c", facts], capture_output=True, text=True, check=True
    )
    frozen = ["uv", "pip", "freeze", "--python", bin_ / "python"]
    found = subprocess.run(frozen, capture_output=True, text=True, check=True).stdout
    return python.stdout + " ".join(each for each in found.split() if "==" in each)


def run(step: list[object], where: dict[str, str]) -> int:
    """Run a command; return its status."""
    return subprocess.run(list(map(str, step)), check=False, cwd=HERE, env=where).returncode


if __name__ == "__main__":
    sys.exit(main())
