"""Azurite, Microsoft's emulator of Azure's blob storage: where it is, and how it gets there.

It is a program for Node, installed once into a cache directory outside the checkout:

    python tests/servers/azurite.py
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

VERSION = "3.35.0"
ACCOUNT = "devstoreaccount1"
# the key of all emulators, printed in their documentation: no secret
KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
REMEDY = "run `just servers` once (it needs Node 20 or newer)"


def folder() -> Path:
    """Return where it is or would be installed."""
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(cache) / "icevirt-tests" / f"azurite-{VERSION}"


def installed() -> bool:
    """Say whether it can be run here."""
    return shutil.which("node") is not None and _program().exists()


def command(port: int) -> list[str]:
    """Return the command that serves on a port of loopback."""
    options = "--silent --loose --skipApiVersionCheck --inMemoryPersistence --disableTelemetry"
    return [
        *("node", str(_program()), "--blobHost", "127.0.0.1", "--blobPort", str(port)),
        *options.split(),
    ]


def install() -> None:
    """Install it with npm; whole or not at all."""
    if installed():
        return
    if shutil.which("npm") is None:
        sys.exit("there is no npm here: install Node 20 or newer")
    target = folder()
    unfinished = target.with_name(f"{target.name}.{os.getpid()}")
    quiet = "--no-audit --no-fund --omit=dev --ignore-scripts --loglevel=error"
    subprocess.run(
        ["npm", "install", "--prefix", str(unfinished), *quiet.split(), f"azurite@{VERSION}"],
        check=True,
    )
    if target.exists():
        shutil.rmtree(target)  # of an installation that was cut off
    unfinished.rename(target)


def _program() -> Path:
    return folder() / "node_modules" / "azurite" / "dist" / "src" / "blob" / "main.js"


if __name__ == "__main__":
    install()
