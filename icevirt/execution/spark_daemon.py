"""The process that Spark forks its Python workers from, where icevirt started the session.

It imports what workers need before it forks the first: none imports it again, and all of them
share its memory. Spark's own imports nothing, because it cannot know which libraries start threads.
These do not, once Arrow is told; `tests/execution/test_daemon.py` looks.
"""

from __future__ import annotations

import gc
import importlib
import os
from collections.abc import Sequence
from contextlib import suppress

from icevirt.import_path import take_told

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
"""What tasks need; third parties' scanners may start threads, and are imported by who uses them."""

NEEDED = ("pyspark.worker", *STAGES)


def prepare(names: Sequence[str] = NEEDED) -> None:
    """Import what workers need, before they are forked."""
    # for Arrow's allocator, which reads it once; a thread that cleans up would not be forked
    os.environ.setdefault("JE_ARROW_MALLOC_CONF", "background_thread:false")
    for name in names:
        with suppress(ImportError):  # h5py is an extra; whoever needs it is told
            importlib.import_module(name)
    gc.freeze()  # looking for garbage writes to pages that are shared


def main() -> None:
    """Import, then do as Spark's own daemon."""
    take_told()
    prepare()
    from pyspark.daemon import manager

    manager()


if __name__ == "__main__":
    main()
