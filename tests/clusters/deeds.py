"""What executors do in tests of clusters."""

import socket
import time


def host(seconds: float) -> str:
    """Wait, and return the name of this host."""
    time.sleep(seconds)
    return socket.gethostname()
