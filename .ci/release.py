"""Builds the distribution twice, compares the bytes, and checks its metadata and its contents.

The first sdist and wheel are built from this clone, into dist/; the second from that sdist,
unpacked elsewhere, where files have other times and permissions. So anybody who builds a tag, or
its sdist, gets the bytes that were published, by the same hatchling.
"""

import hashlib
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path

HERE = Path(__file__).resolve().parents[1]
DIST = HERE / "dist"
IN_WHEEL = ("icevirt/", "icevirt_scanners/", "icevirt-")
GENERATED = {"PKG-INFO"}  # in an sdist, and not in git


def main() -> int:
    """Return 1, and say so, where something is wrong."""
    os.environ.pop("SOURCE_DATE_EPOCH", None)  # hatchling has a date of its own, the same for all
    shutil.rmtree(DIST, ignore_errors=True)
    _build(HERE, DIST)
    problems = [*_differences(), *_contents()]
    files = sorted(DIST.glob("icevirt-*"))
    command = [sys.executable, "-m", "twine", "--no-color", "check", "--strict", *map(str, files)]
    problems += ["its metadata"] * bool(subprocess.run(command, check=False).returncode)
    for file in files:
        print(hashlib.sha256(file.read_bytes()).hexdigest(), file.name)
    print(*(f"wrong: {each}" for each in problems or ["nothing"]), sep="\n")
    return int(bool(problems))


def _build(source: Path, target: Path) -> None:
    """Build the sdist, and the wheel from it, by the hatchling that is installed here."""
    command = ["uv", "build", "--quiet", "--no-build-isolation", "--out-dir", str(target)]
    command.append(str(source))
    subprocess.run(command, check=True, cwd=source)


def _differences() -> list[str]:
    """Build again from the sdist, and return which file has other bytes."""
    (sdist,) = DIST.glob("*.tar.gz")
    with tempfile.TemporaryDirectory() as folder:
        with tarfile.open(sdist) as packed:
            packed.extractall(folder, filter="data")
        source = Path(folder) / sdist.name.removesuffix(".tar.gz")
        for path in source.rglob("*"):
            os.utime(path, (1e9, 1e9))
            path.chmod(path.stat().st_mode & 0o700)  # who may execute a file stays
        _build(source, Path(folder) / "again")
        return [
            f"{file.name} has other bytes, built again"
            for file in sorted(DIST.glob("icevirt-*"))
            if (Path(folder) / "again" / file.name).read_bytes() != file.read_bytes()
        ]


def _contents() -> list[str]:
    """Return what a wheel or an sdist has too much, or lacks."""
    ((wheel,), (sdist,)) = DIST.glob("*.whl"), DIST.glob("*.tar.gz")
    with zipfile.ZipFile(wheel) as packed:
        strange = [each for each in packed.namelist() if not each.startswith(IN_WHEEL)]
    problems = [f"the wheel holds {each}" for each in strange]
    tracked = subprocess.run(["git", "ls-files"], capture_output=True, text=True, check=False)
    if tracked.returncode == 0:  # in a clone
        with tarfile.open(sdist) as files:
            held = {each.name.partition("/")[2] for each in files.getmembers() if each.isfile()}
        there = {each for each in tracked.stdout.split("\n") if each and (HERE / each).exists()}
        problems += [f"the sdist lacks {each}" for each in sorted(there - held)]
        problems += [f"the sdist holds {each}" for each in sorted(held - there - GENERATED)]
    return problems


if __name__ == "__main__":
    sys.exit(main())
