"""End a Spark worker that hangs in a library, so that Spark tries its task again.

The clock runs outside of Python, which a library that never returns does not let run. Only workers
are ended: whoever runs a stage in a process of their own keeps it.
"""

from __future__ import annotations

import faulthandler
import sys
from collections.abc import Iterator
from contextlib import contextmanager

_STDERR = 2


@contextmanager
def deadline(seconds: float) -> Iterator[None]:
    """End the process with a traceback if the block takes longer, in a Spark worker."""
    if not _in_worker():
        yield
        return
    faulthandler.dump_traceback_later(seconds, exit=True, file=_STDERR)
    try:
        yield
    finally:
        faulthandler.cancel_dump_traceback_later()


def _in_worker() -> bool:
    module = sys.modules.get("pyspark.taskcontext")
    return module is not None and module.TaskContext.get() is not None
