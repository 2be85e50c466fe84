"""What executors do in tests of clusters."""

import os
import socket
import time
from pathlib import Path


def host(seconds: float) -> str:
    """Wait, and return the name of this host."""
    time.sleep(seconds)
    return socket.gethostname()


def imported(_: int) -> tuple[str, str, bool]:
    """Return the host, from where it imports us, and whether it sees the driver's files."""
    import icevirt

    return socket.gethostname(), str(icevirt.__file__), Path("/mnt/disk/of-the-driver").exists()


def environment(name: str) -> str | None:
    """Return a variable."""
    return os.environ.get(name)


def fill(path: str) -> None:
    """Fill the disk of a file of this host."""
    time.sleep(0.5)  # so that every executor gets some of these
    block = bytes(1 << 20)
    try:
        with Path(path).open("ab", buffering=0) as file:
            while file.write(block):
                pass
    except OSError:
        return
