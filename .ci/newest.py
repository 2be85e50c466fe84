"""Runs tests with the newest releases and pre-releases of the neighbors, and says what changed.

    python .ci/newest.py                                # a sample of the tests
    python .ci/newest.py tests/access tests/repo -x     # those that the arguments choose
    python .ci/newest.py --environment FOLDER ...       # kept, and used again

The environment is a temporary one; bounds of pyproject.toml hold. Then the tables of icechunk's
public names are made again (docs/make_api_table.py), and what differs from the pages is printed.
"""

import argparse
import os
import subprocess
import sys
import tempfile
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

HERE = Path(__file__).resolve().parents[1]
NEIGHBORS = ("icechunk", "zarr", "xarray", "virtualizarr", "h5py", "pyspark", "numpy")
BESIDE = ("obstore", "pandas", "pyarrow", "numcodecs", "dask", "kerchunk", "fsspec")
SAMPLE = (
    "tests/icechunk_names",
    "tests/repo/interop",
    "tests/access/interop",
    "tests/access/store",
    "tests/access/xarray",
    "tests/api/test_golden.py",
    "tests/scanners/hdf5/test_hdf5_values.py",
    "tests/scanners/virtualizarr",
    "tests/execution/test_session.py",
)
NAMES = """
import difflib, pathlib, sys
sys.path.insert(0, "docs")
import make_api_table as table
for page in table.PAGES:
    problems = [f"{page}: {problem}" for problem in table.compare(page).problems()]
    was = (pathlib.Path("docs") / page).read_text().splitlines()
    now = was if problems else table.whole(page).splitlines()
    print("\\n".join([*problems, *difflib.unified_diff(was, now, page, "newest", n=0)]), end="")
"""


def main() -> int:
    """Return 1 if a test fails, or a name of icechunk has changed."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--environment", type=Path, help="a folder that stays")
    asked, tests = parser.parse_known_args()
    with tempfile.TemporaryDirectory(prefix="icevirt-newest-") as folder:
        made = asked.environment or Path(folder) / "environment"
        _install(made)
        python = str(made / "bin" / "python")
        _print_changes(python)
        clean = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        command = [python, "-m", "pytest", "-q", *(tests or SAMPLE)]
        failed = subprocess.run(command, check=False, cwd=HERE, env=clean).returncode
        ran = subprocess.run(
            [python, "-c", NAMES], check=False, cwd=HERE, env=clean, text=True, capture_output=True
        )
    changed = ran.stdout if ran.returncode == 0 else ran.stderr
    print(f"icechunk's names:\n{changed}" if changed else "icechunk's names: as on the pages")
    return int(bool(failed or changed))


def _install(made: Path) -> None:
    """Install the project with its tests; a bound with a pre-release in it asks for these."""
    python = str(made / "bin" / "python")
    if not made.exists():
        subprocess.run(["uv", "venv", "--quiet", "--python", sys.executable, str(made)], check=True)
    newest = [f"{name}>=0a0" for name in NEIGHBORS]
    command = ["uv", "pip", "install", "--quiet", "--upgrade", "--python", python, "-e", "."]
    subprocess.run([*command, "--group", "test", "--group", "bench", *newest], check=True, cwd=HERE)


def _print_changes(python: str) -> None:
    """Print the versions that differ from the versions of this environment."""
    frozen = ["uv", "pip", "freeze", "--python", python]
    text = subprocess.run(frozen, check=True, capture_output=True, text=True).stdout
    there = dict(line.lower().split("==") for line in text.splitlines() if "==" in line)
    for name in (*NEIGHBORS, *BESIDE):
        try:
            here = version(name)
        except PackageNotFoundError:
            here = "not installed"
        now = there.get(name, "not installed")
        print(f"{name:14} {here:16} {'the same' if now == here else now}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
