"""A comparison that a file crashes: children import it as they import tests."""

import os
import signal

from icevirt.tasks.verify.comparison import compare_file

NAME = "day1.nc"


def compare(place, url, wanted):
    """Compare a file, unless it is the one that crashes its library."""
    if url.endswith(NAME):
        os.kill(os.getpid(), signal.SIGSEGV)
    return compare_file(place, url, wanted)
