"""Servers as processes that end with the process that started them, however that one ends.

Between both stands a keeper, this file run as a program: it holds the read end of a pipe, and kills
the server when the pipe closes.

    python processes.py command ...
"""

import os
import selectors
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

_PATIENCE = 60.0  # seconds that a server may take to start


@contextmanager
def running(
    command: Sequence[str], *, port: int, env: dict[str, str] | None = None
) -> Iterator[None]:
    """Run a server until the block ends; give control when it listens on the port.

    Raises:
        RuntimeError: It ended, or listens nowhere; with what it said.
    """
    with tempfile.TemporaryFile() as said, tempfile.TemporaryDirectory() as folder:
        keeper = subprocess.Popen(
            [sys.executable, "-S", __file__, *command],
            stdin=subprocess.PIPE,
            stdout=said,
            stderr=said,
            cwd=folder,
            env={**os.environ, **(env or {})},
        )
        try:
            _await(keeper, port, said)
            yield
        finally:
            assert keeper.stdin is not None
            keeper.stdin.close()
            keeper.wait()


def free_port() -> int:
    """Return a port of loopback that nobody listens on just now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _await(keeper: subprocess.Popen[bytes], port: int, said) -> None:
    until = time.monotonic() + _PATIENCE
    while keeper.poll() is None and time.monotonic() < until:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
        except OSError:
            time.sleep(0.02)
        else:
            return
    said.seek(0)
    raise RuntimeError(f"the server did not start: {said.read().decode(errors='replace')[-2000:]}")


def _keep(command: Sequence[str]) -> int:
    """Run a command until standard input closes."""
    # The server is in our process group, so that whoever kills that ends it too. An interrupt it
    # ignores: tests that are interrupted still need it to clean up.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    child = subprocess.Popen(command, stdin=subprocess.DEVNULL)
    with selectors.DefaultSelector() as selector:
        selector.register(sys.stdin, selectors.EVENT_READ)
        while child.poll() is None:
            if selector.select(0.5):
                child.kill()
                break
    return child.wait()


if __name__ == "__main__":
    sys.exit(_keep(sys.argv[1:]))
