"""The JavaScript readers of Icechunk and Zarr: where they are, and how they get there.

They are those of the example of a web page. npm installs them once into a cache directory outside
the checkout, as the example says:

    python tests/readers/javascript.py
"""

import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

EXAMPLE = Path(__file__).parents[2] / "examples" / "web"
NEEDED = ("package.json", "package-lock.json", "reader.js")  # of the example, to install them
PROGRAM = Path(__file__).with_name("read.mjs")


def folder() -> Path:
    """Return where they are or would be installed; other versions are elsewhere."""
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    versions = hashlib.sha256(b"".join((EXAMPLE / name).read_bytes() for name in NEEDED))
    return Path(cache) / "icevirt-tests" / f"icechunk-js-{versions.hexdigest()[:12]}"


def installed() -> bool:
    """Say whether they can be run here."""
    return shutil.which("node") is not None and (folder() / "lib").exists()


def install() -> None:
    """Install them with npm; whole or not at all."""
    if installed():
        return
    if shutil.which("npm") is None:
        sys.exit("there is no npm here: install Node 20 or newer")
    target = folder()
    unfinished = target.with_name(f"{target.name}.{os.getpid()}")
    unfinished.mkdir(parents=True)
    for name in NEEDED:
        shutil.copyfile(EXAMPLE / name, unfinished / name)
    # --force: the WebAssembly package says that it is for no processor of this machine
    quiet = ["--no-audit", "--no-fund", "--ignore-scripts", "--loglevel=error"]
    subprocess.run(["npm", "ci", "--force", *quiet], check=True, cwd=unfinished)
    subprocess.run(["npm", "run", "--silent", "files"], check=True, cwd=unfinished)
    if target.exists():
        shutil.rmtree(target)  # of an installation that was cut off
    unfinished.rename(target)


def node_version() -> str:
    """Return the version of Node."""
    ran = subprocess.run(["node", "--version"], capture_output=True, text=True, check=True)
    return ran.stdout.strip().removeprefix("v")


def run(program: str, *arguments: str) -> str:
    """Run a program beside the packages, and return what it printed."""
    environment = {**os.environ, "NAPI_RS_FORCE_WASI": "error", "NODE_NO_WARNINGS": "1"}
    with tempfile.NamedTemporaryFile("w", suffix=".mjs", dir=folder()) as file:
        file.write(program)
        file.flush()
        ran = subprocess.run(
            ["node", file.name, *arguments],
            capture_output=True,
            text=True,
            check=False,
            env=environment,
        )
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


def read(url: str, prefix: str, names: list[str]) -> dict[str, dict]:
    """Return for each array ``dtype``, ``shape`` and ``bytes`` or ``list``, or ``error``."""
    return json.loads(run(PROGRAM.read_text(), url, prefix, *names))


if __name__ == "__main__":
    install()
