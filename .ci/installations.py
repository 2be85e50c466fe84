"""Installs the built wheel into empty environments, and reads and builds there.

    python .ci/installations.py                        # all of them
    python .ci/installations.py --python 3.13 --extras spark --sdist

Each Python that is here, with the lowest and the newest versions that the wheel allows, for a
reader, a builder without Spark, and one with Spark. Then, with `--sdist`, the fast tests of the
unpacked sdist. A Python that is not here is named, and left out.
"""

import argparse
import os
import subprocess
import sys
import tarfile
import tempfile
import tomllib
from itertools import product
from pathlib import Path

HERE = Path(__file__).resolve().parents[1]
DIST = HERE / "dist"
PYTHONS = ("3.12", "3.13", "3.14")
EXTRAS = {
    "reader": (),
    "builder": ("hdf5", "cluster"),
    "spark": ("hdf5", "cluster", "spark", "jdk"),
}
RESOLUTIONS = ("lowest-direct", "highest")

PROGRAM = """
import json, subprocess, sys
import numpy as np
import icevirt, xarray as xr

folder, extras = sys.argv[1:]
if __name__ == "__main__":
    repo = f"{folder}/repo"
    if extras != "reader":
        repo = f"{folder}/repo-{extras}"
        executor = "spark" if extras == "spark" else "processes"
        report = icevirt.build(f"{folder}/archive", repo, concat_dim="time", executor=executor)
        assert report.files_scanned == 3, report
        icevirt.verify(repo, authorize_virtual_chunk_access=[folder], executor="in-process")
    opened = xr.open_dataset(repo, engine="icevirt", authorize_virtual_chunk_access=[folder])
    assert opened["v"].shape == (3, 4) and opened["v"].dtype == "float32", opened["v"]
    np.testing.assert_array_equal(opened["v"].values, np.arange(12.0).reshape(3, 4))
    command = [sys.executable, "-m", "icevirt", "--version", "-o", "json"]
    found = json.loads(subprocess.check_output(command))
    names = ("python", "numpy", "zarr", "xarray", "h5py", "pyarrow", "pyspark")
    print(*(f"{name} {found[name]}" for name in names if name in found), sep=", ")
"""


def main() -> int:
    """Return 1 if an environment fails."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--python", action="append", choices=PYTHONS)
    parser.add_argument("--extras", action="append", choices=[*EXTRAS])
    parser.add_argument("--resolution", action="append", choices=RESOLUTIONS)
    parser.add_argument("--sdist", action="store_true", help="run the tests of the sdist, too")
    asked = parser.parse_args()
    failed: list[tuple[str, ...]] = []
    with tempfile.TemporaryDirectory(prefix="icevirt-installations-") as text:
        folder = Path(text).resolve()
        _write_archive(folder)
        for version in asked.python or PYTHONS:
            if (python := _find(version)) is None:
                print(f"Python {version}: not here, not tried", flush=True)
                continue
            cases = product(asked.resolution or RESOLUTIONS, asked.extras or EXTRAS)
            failed += [(version, *case) for case in cases if not _try(folder, python, *case)]
        if asked.sdist and not _test_sdist(folder):
            failed.append(("the tests of the sdist",))
    print(f"{len(failed)} failed: {failed}" if failed else "all passed")
    return int(bool(failed))


def _find(version: str) -> str | None:
    """Return a Python of this version; uv does not look at what pyenv keeps back."""
    root = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv")
    for found in sorted(root.glob(f"versions/{version}.*/bin/python")):
        return str(found)
    ran = subprocess.run(["uv", "python", "find", version], capture_output=True, check=False)
    return ran.stdout.decode().strip() if ran.returncode == 0 else None


def _write_archive(folder: Path) -> None:
    """Write three files, and a repository of them for readers."""
    import h5py
    import numpy as np

    import icevirt

    (folder / "archive").mkdir()
    for number in range(3):
        with h5py.File(folder / "archive" / f"{number}.nc", "w") as file:
            time = file.create_dataset("time", data=[float(number)], maxshape=(None,))
            time.make_scale("time")
            values = np.arange(4.0, dtype="f4")[None] + 4 * number
            v = file.create_dataset("v", data=values, chunks=(1, 4), maxshape=(None, 4))
            v.dims[0].attach_scale(time)
    icevirt.build(folder / "archive", folder / "repo", concat_dim="time", executor="in-process")


def _try(folder: Path, python: str, resolution: str, extras: str) -> bool:
    """Install the wheel, and run the program; say what was installed."""
    (wheel,) = DIST.glob("*.whl")
    name = f"{Path(python).parents[1].name}-{resolution}-{extras}"
    made = folder / name
    subprocess.run(["uv", "venv", "--quiet", "--python", python, str(made)], check=True)
    where = ["--quiet", "--python", str(made / "bin" / "python"), "--resolution", resolution]
    wanted = [f"icevirt[{','.join(EXTRAS[extras])}] @ {wheel.as_uri()}", *_requirements(extras)]
    # the lowest version that has a wheel for this Python; PySpark has none for any
    where += ["--only-binary", ":all:", "--no-binary", "pyspark"]
    program = folder / "program.py"
    program.write_text(PROGRAM)
    state = {**os.environ, "XDG_STATE_HOME": str(folder / "state")}
    state.pop("PYTHONPATH", None)
    steps = (
        ["uv", "pip", "install", *where, *wanted],
        ["uv", "pip", "check", "--quiet", *where[1:3]],
        [str(made / "bin" / "python"), str(program), str(folder), extras],
    )
    print(f"{name}: ", end="", flush=True)
    for step in steps:
        ran = subprocess.run(step, check=False, cwd=folder, env=state, capture_output=True)
        if ran.returncode != 0:
            print(f"FAILED at {step[:3]}\n{ran.stderr.decode()[-3000:]}", flush=True)
            return False
    print(ran.stdout.decode().strip().splitlines()[-1], flush=True)
    subprocess.run(["rm", "-rf", str(made), str(folder / f"repo-{extras}")], check=True)
    return True


def _requirements(extras: str) -> list[str]:
    """Return what the wheel requires; what is named directly can be had in its lowest version."""
    project = tomllib.loads((HERE / "pyproject.toml").read_text())["project"]
    optional = [each for name in EXTRAS[extras] for each in project["optional-dependencies"][name]]
    return [
        *project["dependencies"],
        *(each for each in optional if not each.startswith("icevirt")),
    ]


def _test_sdist(folder: Path) -> bool:
    """Run the fast tests of the unpacked sdist, in an environment of its own."""
    (sdist,) = DIST.glob("*.tar.gz")
    with tarfile.open(sdist) as packed:
        packed.extractall(folder, filter="data")
    source = folder / sdist.name.removesuffix(".tar.gz")
    environment = {each: os.environ[each] for each in os.environ if each != "VIRTUAL_ENV"}
    ran = subprocess.run(["uv", "run", "pytest", "-q"], check=False, cwd=source, env=environment)
    return ran.returncode == 0


if __name__ == "__main__":
    sys.exit(main())
