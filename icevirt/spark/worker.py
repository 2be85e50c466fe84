"""The child of `icevirt.spark.workers`: runs one task after the other until nobody sends more."""

from __future__ import annotations

import resource
import signal
import sys
import traceback
from contextlib import suppress
from multiprocessing.connection import Connection

from icevirt.spark.runner import run_one
from icevirt.spark.watch import become_worker


def main(fileno: int) -> None:
    """Serve the parent at the other end of ``fileno``."""
    line = Connection(fileno)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's, who ends its children
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    become_worker()
    with suppress(EOFError, BrokenPipeError, ConnectionResetError):
        while True:
            function, payload = line.recv()
            try:
                line.send(run_one(function, payload))
            except Exception:  # noqa: BLE001  # the parent tries again, as Spark would
                line.send((None, traceback.format_exc().encode()))


if __name__ == "__main__":
    main(int(sys.argv[1]))
