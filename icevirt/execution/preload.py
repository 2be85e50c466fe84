"""List the modules that task processes import once, before they are forked.

Children import none of it again, and all of them share its memory. These modules start no threads,
once Arrow is configured; `tests/spark/test_daemon.py` looks.
"""

from __future__ import annotations

import gc
import importlib
import os
from collections.abc import Sequence
from contextlib import suppress

STAGES = (
    "icevirt.tasks.scan",
    "icevirt.tasks.shuffle",
    "icevirt.tasks.source_values",
    "icevirt.tasks.recheck_targets",
    "icevirt.tasks.write_manifests",
    "icevirt_scanners.hdf5.scanner",
    "icevirt_scanners.kerchunk.scanner",
    "icevirt_scanners.netcdf3.scanner",
    "importlib.metadata",  # which finds scanners
)
"""What tasks need; scanners of others may start threads, and are imported when they are used."""


def prepare(names: Sequence[str] = STAGES) -> None:
    """Import what processes need, before they are forked."""
    # for Arrow's allocator, which reads it once; a thread that cleans up would not be forked
    os.environ.setdefault("JE_ARROW_MALLOC_CONF", "background_thread:false")
    for name in names:
        with suppress(ImportError):  # h5py is an extra: a scan that needs it says so
            importlib.import_module(name)
    gc.freeze()  # looking for garbage writes to pages that are shared
