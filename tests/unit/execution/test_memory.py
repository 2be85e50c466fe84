"""What was let go of goes back to the system."""

import ctypes
import os
from pathlib import Path

import pytest

from icevirt.execution.executor import give_back


def resident():
    """Return the bytes of memory that this process has."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "malloc_trim"), reason="glibc alone keeps it")
def test_what_was_freed_below_the_top_of_the_heap_goes_back():
    blocks = [b"x" * (64 << 10) for _ in range(3000)]
    top = blocks[-1]  # glibc gives back what is above the last block by itself
    del blocks
    held = resident()
    give_back()
    assert resident() < held - (100 << 20)
    assert len(top) == 64 << 10
