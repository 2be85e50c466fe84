"""What this process has open, for tests that nothing stays so."""

import gc
import os


def open_below(folder):
    """Return the paths below a folder that are open, once for each descriptor.

    What other tests left to the garbage collector, and connections that libraries keep, do not
    count: they come and go at any time.
    """
    gc.collect()  # libraries leave files in cycles of objects
    found = []
    for name in os.listdir("/proc/self/fd"):
        try:
            path = os.readlink(f"/proc/self/fd/{name}")
        except FileNotFoundError:  # that of the listing itself, or another thread's
            continue
        if path.startswith(os.path.join(os.path.realpath(folder), "")):
            found.append(path)
    return found
