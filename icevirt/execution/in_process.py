"""Run tasks one by one in this process: for tests, notebooks, debuggers, tiny archives.

An error is raised where it happens, with its whole traceback. Nothing is started, so nothing stands
between a damaged file and the caller: one that crashes a library ends this process, and the limits
of time and memory of a file are not enforced. The other executors survive such files.
"""

from __future__ import annotations

import pickle
import time
from collections.abc import Callable, Iterable

from icevirt.execution.executor import Done
from icevirt.execution.local_shuffle import LocalShuffle
from icevirt.storage.protocol import Storage

_INTERVAL = 0.5  # seconds between two reports of progress


class InProcessExecutor(LocalShuffle):
    """Runs tasks where it is called.

    Args:
        parallelism: Into how many tasks at a time work is divided, though they run one by one.
    """

    name = "in-process"

    def __init__(self, parallelism: int = 1) -> None:
        self.parallelism = parallelism

    def run[T, R](
        self,
        function: Callable[[T], R],
        tasks: Iterable[T],
        *,
        progress: Done | None = None,
        storage: Storage | None = None,
    ) -> list[R]:
        """Run every task; see `Executor.run`. The first error ends it."""
        del storage  # nothing is sent anywhere
        results: list[R] = []
        last = time.monotonic()
        for task in tasks:
            results.append(_copied(function(_copied(task))))
            if progress is not None and time.monotonic() - last >= _INTERVAL:
                progress(len(results))
                last = time.monotonic()
        if progress is not None:
            progress(len(results))
        return results

    def close(self) -> None:
        """Do nothing: nothing was started."""


def _copied[T](value: T) -> T:
    """Return the value as another process would get it: no task shares state with its caller."""
    copy: T = pickle.loads(pickle.dumps(value))  # noqa: S301  # made here
    return copy
